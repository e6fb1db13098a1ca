//! A trace as a file: `.safetensors` with one JSON text among its metadata (docs/traces.md).
//!
//! A file from elsewhere is not trusted. Its sizes are held against its length before anything is allocated; every tensor that the
//! header names must be there; paths of weights must stay in the folder that they will be extracted to. What is read is mapped.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Component, Path, PathBuf};

use ferrane_host::map::Mapped;
use ferrane_mil::{Bytes, DataType};
use safetensors::SafeTensors;
use safetensors::tensor::Metadata;
use serde_json::{Map, Value, json};

use crate::header::{Header, Outcome, VERSION};
use crate::tensor::{Tensor, from_file, word};
use crate::trace::Trace;

/// The key of the JSON text among the metadata.
const KEY: &str = "ferrane.trace";
/// The folder that the text's paths begin with.
const MODEL: &str = "@model_path/";
/// Where tensors begin in the file, as blob files want it.
const ALIGNMENT: usize = 64;

/// Why a file is no trace, or a program cannot be in one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The system's own.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// No `.safetensors` file, or one that is cut off or contradicts itself.
    #[error("no trace, or a damaged one: {0}")]
    Container(String),
    /// A `.safetensors` file of another kind.
    #[error("a .safetensors file, but no trace: its metadata have no `{KEY}`")]
    NotATrace,
    /// A version that is not known here.
    #[error(
        "a trace of version {found}, and this is Ferrane {}, which reads version {VERSION}; Ferrane {writer} wrote it and reads it",
        env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// Of the file.
        found: u64,
        /// The Ferrane that wrote it.
        writer: String,
    },
    /// The JSON text is not right.
    #[error("its header is not right: {0}")]
    Header(String),
    /// A tensor is missing or is not what it must be.
    #[error("its tensor `{name}` {why}")]
    Tensor {
        /// Its name in the file.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// The path of a weight file leads out of the program's folder.
    #[error("the weight file `{0}` lies outside of the program's folder")]
    Path(String),
    /// The program's text is not right.
    #[error("the program cannot be traced: {0}")]
    Text(String),
}

/// Opens a trace. Its tensors and weights stay in the file, which must not be changed meanwhile.
///
/// # Errors
/// A [`TraceError`].
pub fn open(path: impl AsRef<Path>) -> Result<Trace, TraceError> {
    read(Mapped::open(path)?)
}

/// Reads a trace. What was mapped stays mapped.
///
/// # Errors
/// A [`TraceError`].
pub fn read(bytes: impl Into<Bytes>) -> Result<Trace, TraceError> {
    let bytes = bytes.into();
    let broken = |e: safetensors::SafeTensorError| TraceError::Container(e.to_string());
    let (length, index) = SafeTensors::read_metadata(&bytes).map_err(broken)?;
    let header = header(&index)?;
    let start = length + 8;
    let part = |name: &str| -> Result<Tensor, TraceError> {
        let fail = |why: &str| TraceError::Tensor { name: name.to_string(), why: why.to_string() };
        let info = index.info(name).ok_or_else(|| fail("is missing"))?;
        let dtype = from_file(info.dtype).ok_or_else(|| fail("has a type that no port has"))?;
        let (from, to) = info.data_offsets;
        let range = start.checked_add(from).zip(start.checked_add(to)).map(|(from, to)| from..to);
        let data = range.and_then(|r| bytes.slice(r)).ok_or_else(|| fail("lies outside of the file"))?;
        Tensor::new(dtype, info.shape.clone(), data).map_err(|e| fail(&format!("is not right: {e}")))
    };
    let raw = |name: &str| -> Result<Bytes, TraceError> {
        let tensor = part(name)?;
        match tensor.dtype() == DataType::UInt8 && tensor.shape().len() == 1 {
            true => Ok(tensor.bytes().clone()),
            false => Err(TraceError::Tensor { name: name.to_string(), why: "is not a row of bytes".to_string() }),
        }
    };
    let list = |folder: &str, names: &[String]| -> Result<Vec<(String, Tensor)>, TraceError> {
        names.iter().map(|name| Ok((name.clone(), part(&format!("{folder}/{name}"))?))).collect()
    };
    let mut paths: Vec<String> =
        index.offset_keys().into_iter().filter_map(|n| n.strip_prefix("weights/").map(str::to_string)).collect();
    paths.sort();
    let weights = paths.into_iter().map(|path| {
        plain(&path)?;
        Ok((path.clone(), raw(&format!("weights/{path}"))?))
    });
    let times = |name: &str| -> Result<Vec<u64>, TraceError> {
        if index.info(name).is_none() {
            return Ok(Vec::new());
        }
        let tensor = part(name)?;
        if tensor.dtype() != DataType::UInt64 {
            return Err(TraceError::Tensor { name: name.to_string(), why: "is not of uint64".to_string() });
        }
        Ok(tensor.elements().filter_map(|e| Some(u64::from_le_bytes(e.try_into().ok()?))).collect())
    };
    let (outputs, states) = match &header.outcome {
        Outcome::Ran { outputs, states, .. } => (outputs.as_slice(), states.as_slice()),
        Outcome::Failed(_) => (&[][..], &[][..]),
    };
    Ok(Trace {
        text: raw("program")?,
        weights: weights.collect::<Result<_, TraceError>>()?,
        inputs: list("input", &header.inputs)?,
        states: list("state", &header.states)?,
        outputs: list("output", outputs)?,
        left: list("after", states)?,
        wall: times("time/wall_ns")?,
        hardware: times("time/hardware_ns")?,
        header,
    })
}

fn header(index: &Metadata) -> Result<Header, TraceError> {
    let text = index.metadata().as_ref().and_then(|m| m.get(KEY)).ok_or(TraceError::NotATrace)?;
    let wrong = |e: serde_json::Error| TraceError::Header(e.to_string());
    let value: Value = serde_json::from_str(text).map_err(wrong)?;
    // The version first: what else is in there is for that version to say.
    let found = value.get("version").and_then(Value::as_u64);
    let found = found.ok_or_else(|| TraceError::Header("it has no `version`".to_string()))?;
    if found != VERSION {
        let writer = value.get("ferrane").and_then(Value::as_str).unwrap_or("of an unknown version");
        // A word from elsewhere goes to a terminal.
        let writer = writer.chars().filter(|c| !c.is_control()).take(40).collect();
        return Err(TraceError::Version { found, writer });
    }
    serde_json::from_value(value).map_err(wrong)
}

/// The path of a weight file relative to the program's folder.
pub(crate) fn plain(path: &str) -> Result<PathBuf, TraceError> {
    let relative = Path::new(path.strip_prefix(MODEL).unwrap_or(path));
    let normal = |c: Component<'_>| matches!(c, Component::Normal(name) if !name.to_string_lossy().contains('\\'));
    let ok = !relative.as_os_str().is_empty() && relative.components().all(normal) && !path.contains('\0');
    if ok { Ok(relative.to_path_buf()) } else { Err(TraceError::Path(path.to_string())) }
}

impl Trace {
    /// The blob files, each under its path relative to the program's folder, which it does not leave.
    ///
    /// # Errors
    /// [`TraceError::Path`].
    pub fn blobs(&self) -> Result<Vec<(PathBuf, &Bytes)>, TraceError> {
        self.weights.iter().map(|(path, bytes)| Ok((plain(path)?, bytes))).collect()
    }
}

/// Writes a trace to a file, whole or not at all: beside it first, then renamed.
///
/// # Errors
/// The system's own; a tensor's name is there twice.
pub fn write(trace: &Trace, path: &Path) -> Result<(), TraceError> {
    let folder = path.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or_else(|| std::io::Error::other("no file's name"))?;
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}", std::process::id()));
    let beside = folder.join(beside);
    let done = (|| {
        let file = File::create(&beside)?;
        let mut out = BufWriter::new(file);
        write_to(trace, &mut out)?;
        out.into_inner().map_err(|e| e.into_error())?.sync_all()?;
        Ok(fs::rename(&beside, path)?)
    })();
    if done.is_err() {
        // Nothing of it is of use; that it cannot be removed adds nothing to what failed.
        let _ = fs::remove_file(&beside);
    }
    done
}

/// Writes the bytes of a trace.
///
/// # Errors
/// As [`write()`].
pub fn write_to(trace: &Trace, out: &mut impl Write) -> Result<(), TraceError> {
    let header = serde_json::to_string(&trace.header).map_err(|e| TraceError::Header(e.to_string()))?;
    let words = |list: &[u64]| list.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let (wall, hardware) = (words(&trace.wall), words(&trace.hardware));
    let runs = |bytes: &[u8]| vec![bytes.len() / 8];
    // The largest elements first, so that each begins at a multiple of its size; blob files before all, as they lie in pages.
    let mut parts: Vec<Part<'_>> = Vec::new();
    for (path, bytes) in &trace.weights {
        parts.push((format!("weights/{path}"), DataType::UInt8, vec![bytes.len()], bytes));
    }
    for (name, bytes) in [("time/wall_ns", &wall), ("time/hardware_ns", &hardware)] {
        if !bytes.is_empty() {
            parts.push((name.to_string(), DataType::UInt64, runs(bytes), bytes));
        }
    }
    let folders =
        [("input", &trace.inputs), ("state", &trace.states), ("output", &trace.outputs), ("after", &trace.left)];
    let mut tensors: Vec<Part<'_>> = Vec::new();
    for (folder, list) in folders {
        tensors.extend(list.iter().map(|(name, tensor)| part(format!("{folder}/{name}"), tensor)));
    }
    tensors.sort_by_key(|(_, dtype, ..)| std::cmp::Reverse(dtype.bytes()));
    parts.extend(tensors);
    parts.push(("program".to_string(), DataType::UInt8, vec![trace.text.len()], &trace.text));
    container(Some(header), &parts, out)
}

/// The bytes of a `.safetensors` file with these tensors and no metadata.
///
/// # Errors
/// A name is there twice.
pub fn safetensors(tensors: &[(String, Tensor)]) -> Result<Vec<u8>, TraceError> {
    let mut parts: Vec<Part<'_>> = tensors.iter().map(|(name, tensor)| part(name.clone(), tensor)).collect();
    parts.sort_by_key(|(_, dtype, ..)| std::cmp::Reverse(dtype.bytes()));
    let mut bytes = Vec::new();
    container(None, &parts, &mut bytes)?;
    Ok(bytes)
}

/// A tensor in a file: name, type, extents, bytes.
type Part<'a> = (String, DataType, Vec<usize>, &'a [u8]);

fn part(name: String, tensor: &Tensor) -> Part<'_> {
    (name, tensor.dtype(), tensor.shape().to_vec(), tensor.bytes())
}

/// Writes tensors in this order, with one text among the metadata.
fn container(text: Option<String>, parts: &[Part<'_>], out: &mut impl Write) -> Result<(), TraceError> {
    let mut index = Map::new();
    if let Some(text) = text {
        index.insert("__metadata__".to_string(), json!({ KEY: text }));
    }
    let mut at = 0;
    for (name, dtype, shape, bytes) in parts {
        let fail = |why: &str| TraceError::Tensor { name: name.clone(), why: why.to_string() };
        let dtype = word(*dtype).ok_or_else(|| fail("has a type that a trace cannot hold"))?;
        let end = at + bytes.len();
        let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [at, end]});
        if index.insert(name.clone(), entry).is_some() {
            return Err(fail("is there twice"));
        }
        at = end;
    }
    let mut head = Value::Object(index).to_string();
    while !(head.len() + 8).is_multiple_of(ALIGNMENT) {
        head.push(' ');
    }
    out.write_all(&(head.len() as u64).to_le_bytes())?;
    out.write_all(head.as_bytes())?;
    parts.iter().try_for_each(|(.., bytes)| out.write_all(bytes))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside() {
        assert_eq!(plain("@model_path/weights/w.bin").unwrap(), Path::new("weights/w.bin"));
        for path in
            ["", "@model_path/", "/etc/passwd", "@model_path/../x", "@model_path//etc/x", "a/../../b", "..\\x", "a\0"]
        {
            assert!(matches!(plain(path), Err(TraceError::Path(_))), "{path:?}");
        }
    }
}
