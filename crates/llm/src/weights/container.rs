//! The safetensors container: a JSON header, then named fp32, fp16 or bf16 tensors.
//!
//! Reading maps the file. Tensors stay there, or are copied into memory that the caller allocated
//! for its configuration, so a malicious header cannot cause an allocation. Writing is streamed:
//! the header, then each tensor from its own memory, without a second copy of the model.

use super::stored::{Encoding, Piece};
use super::{Error, TensorRef};
use ferrane_gguf::{TensorType, dequantize};
use ferrane_host::map::Mapped;
use safetensors::Dtype;
use safetensors::tensor::Metadata;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// An open safetensors file.
#[derive(Debug)]
pub struct Container {
    path: PathBuf,
    bytes: Mapped,
    tensors: BTreeMap<String, Entry>,
    metadata: HashMap<String, String>,
}

/// The position, type and shape of a tensor in its file.
#[derive(Debug, Clone)]
pub struct Entry {
    dtype: Dtype,
    shape: Vec<usize>,
    range: Range<usize>,
}

impl Entry {
    /// The shape in the file.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The element type in the file.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }
}

impl Container {
    /// Opens a file and checks its header: every range must lie inside the file, and every size
    /// must match its shape and type.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Format`], [`Error::Size`] for a truncated file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let bytes = Mapped::open(path).map_err(|e| Error::io(path, e))?;
        let bad = |reason: String| Error::format(path, format!("safetensors header: {reason}"));
        let length = bytes.first_chunk().ok_or_else(|| bad(format!("the file has {} bytes", bytes.len())))?;
        // The header's length is bounded by the file's, and so is the cost of parsing.
        let start = usize::try_from(u64::from_le_bytes(*length)).ok().and_then(|n| n.checked_add(8));
        let Some((start, header)) = start.and_then(|start| Some((start, bytes.get(8..start)?))) else {
            return Err(bad(format!("a length of {} in a file of {} bytes", u64::from_le_bytes(*length), bytes.len())));
        };
        let info: Metadata = serde_json::from_slice(header).map_err(|e| bad(e.to_string()))?;
        let expected = (start as u64).saturating_add(info.data_len() as u64);
        if expected != bytes.len() as u64 {
            let file = path.display().to_string();
            return Err(Error::Size { file, expected, found: bytes.len() as u64 });
        }
        let tensors = info
            .tensors()
            .into_iter()
            .map(|(name, t)| {
                let range = start + t.data_offsets.0..start + t.data_offsets.1;
                (name, Entry { dtype: t.dtype, shape: t.shape.clone(), range })
            })
            .collect();
        let metadata = info.metadata().clone().unwrap_or_default();
        Ok(Container { path: path.to_path_buf(), bytes, tensors, metadata })
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The `__metadata__` of the header.
    pub fn metadata(&self) -> &HashMap<String, String> {
        &self.metadata
    }

    /// The tensors' names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The entry of a tensor; `None` for an unknown name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.tensors.get(name)
    }

    /// The bytes of a tensor as stored.
    pub fn raw(&self, entry: &Entry) -> &[u8] {
        self.bytes.get(entry.range.clone()).unwrap_or(&[])
    }

    /// The entry of the tensor `name`, which must have this shape.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Shape`].
    pub fn expect(&self, name: &str, shape: &[usize]) -> Result<&Entry, Error> {
        let (file, name, expected) = (self.path.display().to_string(), name.to_string(), shape.to_vec());
        match self.tensors.get(&name) {
            None => Err(Error::Missing { file, name, expected }),
            Some(entry) if entry.shape == shape => Ok(entry),
            Some(entry) => Err(Error::Shape { file, name, expected, found: entry.shape.clone() }),
        }
    }

    /// The bytes of a tensor, which share the mapping; `None` for an entry of another file that
    /// this one cannot hold.
    pub fn mapped(&self, entry: &Entry) -> Option<Mapped> {
        self.bytes.slice(entry.range.clone())
    }

    /// The element type of a tensor, which must be fp32, fp16 or bf16.
    ///
    /// # Errors
    /// [`Error::Dtype`] for any other one.
    pub(super) fn number(&self, name: &str, entry: &Entry) -> Result<TensorType, Error> {
        match entry.dtype {
            Dtype::F32 => Ok(TensorType::F32),
            Dtype::F16 => Ok(TensorType::F16),
            Dtype::BF16 => Ok(TensorType::BF16),
            other => {
                let (file, name) = (self.path.display().to_string(), name.to_string());
                Err(Error::Dtype { file, name, found: format!("{other:?}") })
            }
        }
    }

    /// Values of the tensor `name`, which has this shape, in row-major order.
    pub(super) fn piece(&self, name: &str, shape: &[usize], part: Range<usize>) -> Result<Piece, Error> {
        let entry = self.expect(name, shape)?;
        let ty = self.number(name, entry)?;
        let size = ty.block_bytes();
        let bytes = self.mapped(entry).and_then(|bytes| bytes.slice(part.start * size..part.end * size));
        let values = shape.iter().product();
        let wrong = Error::Mismatch { name: name.to_string(), expected: values, found: part.end };
        Ok(Piece { bytes: bytes.ok_or(wrong)?, encoding: Encoding::Blocks(ty) })
    }

    /// Reads a tensor of exactly this shape into `out`, widening fp16 and bf16.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Shape`], [`Error::Dtype`]; [`Error::Mismatch`] if `out` has
    /// another size.
    pub fn read(&self, name: &str, shape: &[usize], out: &mut [f32]) -> Result<(), Error> {
        let entry = self.expect(name, shape)?;
        let (ty, bytes) = (self.number(name, entry)?, self.raw(entry));
        if bytes.len() != out.len() * ty.block_bytes() {
            let expected = bytes.len() / ty.block_bytes();
            return Err(Error::Mismatch { name: name.to_string(), expected, found: out.len() });
        }
        Ok(dequantize::parallel(ty, bytes, out)?)
    }
}

/// Writes fp32 values little-endian, through a small buffer.
///
/// # Errors
/// Errors of the writer.
pub fn write_values(out: &mut impl Write, values: &[f32]) -> std::io::Result<()> {
    let mut buffer = Vec::with_capacity(4 * 4096);
    for part in values.chunks(4096) {
        buffer.clear();
        part.iter().for_each(|v| buffer.extend_from_slice(&v.to_le_bytes()));
        out.write_all(&buffer)?;
    }
    Ok(())
}

/// Writes a safetensors stream of fp32 tensors in the given order. The data start at a multiple of
/// eight bytes.
///
/// Metadata are written in the given order as well, so equal input gives equal bytes.
///
/// # Errors
/// Errors of the writer; `InvalidInput` if a shape does not fit its values or a name occurs twice.
pub fn write(out: &mut impl Write, metadata: &[(&str, &str)], tensors: &[TensorRef<'_>]) -> std::io::Result<()> {
    let refuse = |text: String| std::io::Error::new(std::io::ErrorKind::InvalidInput, text);
    for tensor in tensors {
        if tensor.shape.iter().product::<usize>() != tensor.data.len() {
            let (name, shape, found) = (&tensor.name, &tensor.shape, tensor.data.len());
            return Err(refuse(format!("tensor {name} of shape {shape:?} has {found} values")));
        }
    }
    begin(out, metadata, tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.shape.as_slice())))?;
    tensors.iter().try_for_each(|tensor| write_values(out, tensor.data))
}

/// Writes the beginning of a safetensors stream of fp32 tensors, given their names and shapes.
/// Their values follow in the same order ([`write_values`]).
///
/// # Errors
/// Errors of the writer; `InvalidInput` if a name occurs twice.
pub fn begin<'a>(
    out: &mut impl Write,
    metadata: &[(&str, &str)],
    tensors: impl Iterator<Item = (&'a str, &'a [usize])>,
) -> std::io::Result<()> {
    let refuse = |text: String| std::io::Error::new(std::io::ErrorKind::InvalidInput, text);
    let mut header = serde_json::Map::new();
    if !metadata.is_empty() {
        let pairs = metadata.iter().map(|(k, v)| ((*k).to_string(), serde_json::Value::from(*v)));
        header.insert("__metadata__".into(), serde_json::Value::Object(pairs.collect()));
    }
    let mut offset = 0u64;
    for (name, shape) in tensors {
        let end = offset + 4 * shape.iter().product::<usize>() as u64;
        let entry = serde_json::json!({ "dtype": "F32", "shape": shape, "data_offsets": [offset, end] });
        if header.insert(name.to_string(), entry).is_some() {
            return Err(refuse(format!("tensor {name} occurs twice")));
        }
        offset = end;
    }
    let mut text = serde_json::Value::Object(header).to_string();
    text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
    out.write_all(&(text.len() as u64).to_le_bytes())?;
    out.write_all(text.as_bytes())
}
