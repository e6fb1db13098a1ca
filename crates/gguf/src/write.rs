//! Writing of files, version 3.

use crate::header::{ALIGNMENT, ALIGNMENT_KEY, value_count};
use crate::{Array, Error, MAGIC, MetadataValue, TensorType};
use ferrane_host::fs::{AtomicFile, Durability};
use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;

/// A file being put together: metadata and tensors, whose bytes stay borrowed until it is written.
///
/// Keys and tensors are written in the order in which they were added, so equal calls give equal
/// bytes.
#[derive(Debug, Clone, Default)]
pub struct Writer<'a> {
    metadata: Vec<(String, MetadataValue)>,
    tensors: Vec<(String, Vec<usize>, TensorType, &'a [u8])>,
    alignment: Option<u64>,
    keys: HashSet<String>,
    names: HashSet<String>,
}

fn refuse(what: String, reason: impl Into<String>) -> Error {
    Error::Invalid { what, at: 0, reason: reason.into() }
}

impl<'a> Writer<'a> {
    /// A file without metadata and tensors.
    pub fn new() -> Writer<'a> {
        Writer::default()
    }

    /// Adds a key with its value. `general.alignment` also sets the alignment of the tensors.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the key was added before, or for an alignment that is no power of two
    /// of type u32.
    pub fn metadata(&mut self, key: &str, value: MetadataValue) -> Result<(), Error> {
        if key == ALIGNMENT_KEY {
            match value {
                MetadataValue::U32(n) if n.is_power_of_two() => self.alignment = Some(n.into()),
                other => {
                    return Err(refuse(
                        format!("the key `{key}`"),
                        format!("{other} is not a power of two of type u32"),
                    ));
                }
            }
        }
        if !self.keys.insert(key.to_string()) {
            return Err(refuse(format!("the key `{key}`"), "it occurs twice"));
        }
        self.metadata.push((key.to_string(), value));
        Ok(())
    }

    /// Adds a tensor: its shape in row-major order, and its bytes as they are stored.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name was added before, for more than four axes, or if the rows are
    /// not whole blocks; [`Error::Length`] if the bytes are not those of the shape.
    pub fn tensor(&mut self, name: &str, shape: &[usize], ty: TensorType, bytes: &'a [u8]) -> Result<(), Error> {
        let what = || format!("the tensor `{name}`");
        if shape.len() > 4 {
            return Err(refuse(what(), format!("{} axes; the most are 4", shape.len())));
        }
        if !shape.last().copied().unwrap_or(1).is_multiple_of(ty.block_values()) {
            return Err(refuse(what(), format!("rows of {shape:?} are not whole blocks of {}", ty.name())));
        }
        let values = value_count(shape.iter().map(|&extent| extent as u64)).and_then(|n| usize::try_from(n).ok());
        let values = values.ok_or_else(|| refuse(what(), format!("the extents {shape:?} overflow")))?;
        let expected = ty.bytes(values as u64).unwrap_or(u64::MAX);
        if expected != bytes.len() as u64 {
            return Err(Error::Length { ty, values, expected, found: bytes.len() as u64 });
        }
        if !self.names.insert(name.to_string()) {
            return Err(refuse(what(), "the name occurs twice"));
        }
        self.tensors.push((name.to_string(), shape.to_vec(), ty, bytes));
        Ok(())
    }

    /// Writes the file.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let alignment = self.alignment.unwrap_or(ALIGNMENT);
        let mut header = MAGIC.to_vec();
        header.extend(3u32.to_le_bytes());
        header.extend((self.tensors.len() as u64).to_le_bytes());
        header.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            string(&mut header, key);
            header.extend(value.ty().id().to_le_bytes());
            self::value(&mut header, value);
        }
        let mut offset = 0u64;
        for (name, shape, ty, bytes) in &self.tensors {
            string(&mut header, name);
            header.extend((shape.len() as u32).to_le_bytes());
            shape.iter().rev().for_each(|&extent| header.extend((extent as u64).to_le_bytes()));
            header.extend(ty.id().to_le_bytes());
            header.extend(offset.to_le_bytes());
            offset = (offset + bytes.len() as u64).next_multiple_of(alignment);
        }
        out.write_all(&header)?;
        pad(out, header.len() as u64, alignment)?;
        for (.., bytes) in &self.tensors {
            out.write_all(bytes)?;
            pad(out, bytes.len() as u64, alignment)?;
        }
        Ok(())
    }

    /// Writes the file to `path`. An existing file is replaced atomically.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let io = |e| Error::io(path, e);
        let mut file = AtomicFile::create(path).map_err(io)?;
        self.write(&mut file).map_err(io)?;
        file.commit(Durability::Synced).map_err(io)
    }
}

fn pad(out: &mut impl Write, length: u64, alignment: u64) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), length.next_multiple_of(alignment) - length), out).map(|_| ())
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn value(out: &mut Vec<u8>, value: &MetadataValue) {
    match value {
        MetadataValue::U8(v) => out.push(*v),
        MetadataValue::I8(v) => out.extend(v.to_le_bytes()),
        MetadataValue::U16(v) => out.extend(v.to_le_bytes()),
        MetadataValue::I16(v) => out.extend(v.to_le_bytes()),
        MetadataValue::U32(v) => out.extend(v.to_le_bytes()),
        MetadataValue::I32(v) => out.extend(v.to_le_bytes()),
        MetadataValue::F32(v) => out.extend(v.to_le_bytes()),
        MetadataValue::Bool(v) => out.push((*v).into()),
        MetadataValue::String(v) => string(out, v),
        MetadataValue::Array(v) => array(out, v),
        MetadataValue::U64(v) => out.extend(v.to_le_bytes()),
        MetadataValue::I64(v) => out.extend(v.to_le_bytes()),
        MetadataValue::F64(v) => out.extend(v.to_le_bytes()),
    }
}

fn array(out: &mut Vec<u8>, array: &Array) {
    out.extend(array.ty().id().to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    match array {
        Array::Array(v) => v.iter().for_each(|inner| self::array(out, inner)),
        Array::String(v) => v.iter().for_each(|text| string(out, text)),
        Array::U8(v) => out.extend(v),
        flat => (0..flat.len()).filter_map(|index| flat.get(index)).for_each(|v| value(out, &v)),
    }
}
