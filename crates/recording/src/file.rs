//! A recording as a file: `.safetensors` with one JSON text among its metadata
//! (docs/recordings.md).
//!
//! Files are not trusted. Their sizes are checked against the length of the file before memory is
//! allocated, every tensor that the header names must be there, and paths of weights must stay in
//! the folder that they will be extracted to. Tensors share the mapping of the file.

use std::io::Write;
use std::path::{Component, Path, PathBuf};

use ferrane_device::{Tensor, Tensors};
use ferrane_host::fs::{AtomicFile, Durability};
use ferrane_host::map::Mapped;
use ferrane_mil::{Bytes, DataType};
use ferrane_tensor_io::safetensors::{Entry, element_type, entry};
use ferrane_tensor_io::{Error as TensorError, safetensors as container};
use safetensors::SafeTensors;
use safetensors::tensor::Metadata;
use serde_json::Value;

use crate::header::{Header, Outcome, VERSION};
use crate::recording::Recording;

/// The key of the JSON text among the metadata.
const KEY: &str = "ferrane.trace";
/// What the paths of weight files in MIL text begin with.
const MODEL: &str = "@model_path/";

/// Why a file cannot be read as a recording, or a program cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file cannot be opened, mapped or written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// Not a `.safetensors` file, or one that is truncated or inconsistent.
    #[error("no recording, or a damaged one: {0}")]
    Container(String),
    /// A `.safetensors` file of another kind.
    #[error("a .safetensors file, but no recording: its metadata has no `{KEY}`")]
    NotARecording,
    /// A version of the format that this Ferrane does not read.
    #[error(
        "a recording of version {found}; this is Ferrane {}, which reads version {VERSION}: Ferrane {writer} wrote it, use that version",
        env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// The version that the file states.
        found: u64,
        /// The version of Ferrane that wrote the file.
        writer: String,
    },
    /// The JSON text is malformed, or lacks a field.
    #[error("its header is malformed: {0}")]
    Header(String),
    /// A tensor is missing, or has the wrong type or shape.
    #[error("its tensor `{name}` {why}")]
    Tensor {
        /// Its name in the file.
        name: String,
        /// What is wrong, as the end of a sentence about the tensor.
        why: String,
    },
    /// The path of a weight file leads out of the program's folder.
    #[error("the weight file `{0}` lies outside of the program's folder")]
    Path(String),
    /// The text of the program is invalid, or does not describe the same program.
    #[error("the program cannot be recorded: {0}")]
    Text(String),
}

/// Opens a recording. Its tensors and weights share the mapping of the file, which must not change
/// while they live.
///
/// # Errors
/// A [`RecordingError`].
pub fn open(path: impl AsRef<Path>) -> Result<Recording, RecordingError> {
    read(Mapped::open(path)?)
}

/// Reads a recording from bytes. Tensors and weights share them.
///
/// # Errors
/// A [`RecordingError`].
pub fn read(bytes: impl Into<Bytes>) -> Result<Recording, RecordingError> {
    let bytes = bytes.into();
    let broken = |e: safetensors::SafeTensorError| RecordingError::Container(e.to_string());
    let (length, index) = SafeTensors::read_metadata(&bytes).map_err(broken)?;
    let header = header(&index)?;
    let start = length + 8;
    let part = |name: &str| -> Result<Tensor, RecordingError> {
        let fail = |why: &str| RecordingError::Tensor { name: name.to_string(), why: why.to_string() };
        let info = index.info(name).ok_or_else(|| fail("is missing"))?;
        let dtype = element_type(info.dtype).ok_or_else(|| fail("has a type that no port has"))?;
        let (from, to) = info.data_offsets;
        let range = start.checked_add(from).zip(start.checked_add(to)).map(|(from, to)| from..to);
        let data = range.and_then(|r| bytes.slice(r)).ok_or_else(|| fail("lies outside of the file"))?;
        Tensor::new(dtype, info.shape.clone(), data).map_err(|e| fail(&format!("is malformed: {e}")))
    };
    let raw = |name: &str| -> Result<Bytes, RecordingError> {
        let tensor = part(name)?;
        match tensor.dtype() == DataType::UInt8 && tensor.shape().len() == 1 {
            true => Ok(tensor.bytes().clone()),
            false => Err(RecordingError::Tensor { name: name.to_string(), why: "is not a row of bytes".to_string() }),
        }
    };
    let list = |folder: &str, names: &[String]| -> Result<Tensors, RecordingError> {
        names.iter().map(|name| Ok((name.clone(), part(&format!("{folder}/{name}"))?))).collect()
    };
    let mut paths: Vec<String> =
        index.offset_keys().into_iter().filter_map(|n| n.strip_prefix("weights/").map(str::to_string)).collect();
    paths.sort();
    let weights = paths.into_iter().map(|path| {
        plain(&path)?;
        Ok((path.clone(), raw(&format!("weights/{path}"))?))
    });
    let times = |name: &str| -> Result<Vec<u64>, RecordingError> {
        if index.info(name).is_none() {
            return Ok(Vec::new());
        }
        let tensor = part(name)?;
        if tensor.dtype() != DataType::UInt64 {
            return Err(RecordingError::Tensor { name: name.to_string(), why: "is not of uint64".to_string() });
        }
        Ok(tensor.elements().filter_map(|e| Some(u64::from_le_bytes(e.try_into().ok()?))).collect())
    };
    let (outputs, states) = match &header.outcome {
        Outcome::Ran { outputs, states, .. } => (outputs.as_slice(), states.as_slice()),
        Outcome::Failed(_) => (&[][..], &[][..]),
    };
    Ok(Recording {
        text: raw("program")?,
        weights: weights.collect::<Result<_, RecordingError>>()?,
        inputs: list("input", &header.inputs)?,
        states: list("state", &header.states)?,
        outputs: list("output", outputs)?,
        left: list("after", states)?,
        wall: times("time/wall_ns")?,
        hardware: times("time/hardware_ns")?,
        header,
    })
}

fn header(index: &Metadata) -> Result<Header, RecordingError> {
    let text = index.metadata().as_ref().and_then(|m| m.get(KEY)).ok_or(RecordingError::NotARecording)?;
    let wrong = |e: serde_json::Error| RecordingError::Header(e.to_string());
    let value: Value = serde_json::from_str(text).map_err(wrong)?;
    // The version first: it decides which fields there are.
    let found = value.get("version").and_then(Value::as_u64);
    let found = found.ok_or_else(|| RecordingError::Header("it has no `version`".to_string()))?;
    if found != VERSION {
        let writer = value.get("ferrane").and_then(Value::as_str).unwrap_or("of an unknown version");
        // The text is not trusted, and it may be printed on a terminal.
        let writer = writer.chars().filter(|c| !c.is_control()).take(40).collect();
        return Err(RecordingError::Version { found, writer });
    }
    serde_json::from_value(value).map_err(wrong)
}

/// The path of a weight file relative to the program's folder.
pub(crate) fn plain(path: &str) -> Result<PathBuf, RecordingError> {
    let relative = Path::new(path.strip_prefix(MODEL).unwrap_or(path));
    let normal = |c: Component<'_>| matches!(c, Component::Normal(name) if !name.to_string_lossy().contains('\\'));
    let ok = !relative.as_os_str().is_empty() && relative.components().all(normal) && !path.contains('\0');
    if ok { Ok(relative.to_path_buf()) } else { Err(RecordingError::Path(path.to_string())) }
}

impl Recording {
    /// The blob files with their paths relative to the program's folder. No path leads out of it.
    ///
    /// # Errors
    /// [`RecordingError::Path`].
    pub fn blobs(&self) -> Result<Vec<(PathBuf, &Bytes)>, RecordingError> {
        self.weights.iter().map(|(path, bytes)| Ok((plain(path)?, bytes))).collect()
    }
}

/// Writes a recording to a file, whole or not at all.
///
/// # Errors
/// [`RecordingError::Io`]; [`RecordingError::Tensor`] if two tensors have one name.
pub fn write(recording: &Recording, path: &Path) -> Result<(), RecordingError> {
    let mut file = AtomicFile::create(path)?;
    write_to(recording, &mut file)?;
    Ok(file.commit(Durability::Synced)?)
}

/// Writes the bytes of a recording.
///
/// # Errors
/// As [`write()`].
pub fn write_to(recording: &Recording, out: &mut impl Write) -> Result<(), RecordingError> {
    let header = serde_json::to_string(&recording.header).map_err(|e| RecordingError::Header(e.to_string()))?;
    let words = |list: &[u64]| list.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let (wall, hardware) = (words(&recording.wall), words(&recording.hardware));
    let runs = |bytes: &[u8]| vec![bytes.len() / 8];
    // Blob files come first, because they are mapped by pages; then the tensors with the largest
    // elements, so that each begins at a multiple of its element size.
    let mut parts: Vec<Entry<'_>> = Vec::new();
    for (path, bytes) in &recording.weights {
        parts.push((format!("weights/{path}"), DataType::UInt8, vec![bytes.len()], bytes));
    }
    for (name, bytes) in [("time/wall_ns", &wall), ("time/hardware_ns", &hardware)] {
        if !bytes.is_empty() {
            parts.push((name.to_string(), DataType::UInt64, runs(bytes), bytes));
        }
    }
    let folders = [
        ("input", &recording.inputs),
        ("state", &recording.states),
        ("output", &recording.outputs),
        ("after", &recording.left),
    ];
    let mut tensors: Vec<Entry<'_>> = Vec::new();
    for (folder, list) in folders {
        tensors.extend(list.iter().map(|(name, tensor)| entry(format!("{folder}/{name}"), tensor)));
    }
    tensors.sort_by_key(|(_, dtype, ..)| std::cmp::Reverse(dtype.bytes()));
    parts.extend(tensors);
    parts.push(("program".to_string(), DataType::UInt8, vec![recording.text.len()], &recording.text));
    container::write(out, &[(KEY, &header)], &parts).map_err(|e| match e {
        TensorError::Io(e) => e.into(),
        other => RecordingError::Container(other.to_string()),
    })
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
            assert!(matches!(plain(path), Err(RecordingError::Path(_))), "{path:?}");
        }
    }
}
