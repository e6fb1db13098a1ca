//! `.safetensors` files: a JSON header with types, shapes and offsets, then the bytes.
//!
//! Files are read through the crate `safetensors`. They are written here, so that large parts
//! stream to the file and begin at a multiple of 64 bytes.

use std::io::Write;

use ferrane_device::{Tensor, Tensors};
use ferrane_diag::did_you_mean;
use ferrane_mil::{Bytes, DataType};
use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value, json};

use crate::{Error, Result};

/// The bytes begin at a multiple of this.
const ALIGNMENT: usize = 64;
/// Number of names that an error lists at most.
const LISTED: usize = 10;

/// Element types of MIL that a file can hold, and what it calls them.
const TYPES: [(DataType, Dtype, &str); 15] = [
    (DataType::Bool, Dtype::BOOL, "BOOL"),
    (DataType::Fp16, Dtype::F16, "F16"),
    (DataType::Fp32, Dtype::F32, "F32"),
    (DataType::Fp64, Dtype::F64, "F64"),
    (DataType::Bf16, Dtype::BF16, "BF16"),
    (DataType::Fp8E4M3Fn, Dtype::F8_E4M3, "F8_E4M3"),
    (DataType::Fp8E5M2, Dtype::F8_E5M2, "F8_E5M2"),
    (DataType::Int8, Dtype::I8, "I8"),
    (DataType::Int16, Dtype::I16, "I16"),
    (DataType::Int32, Dtype::I32, "I32"),
    (DataType::Int64, Dtype::I64, "I64"),
    (DataType::UInt8, Dtype::U8, "U8"),
    (DataType::UInt16, Dtype::U16, "U16"),
    (DataType::UInt32, Dtype::U32, "U32"),
    (DataType::UInt64, Dtype::U64, "U64"),
];

/// The word that a file has for an element type; `None` for types that it cannot hold.
pub fn type_name(dtype: DataType) -> Option<&'static str> {
    TYPES.iter().find(|(d, ..)| *d == dtype).map(|(.., name)| *name)
}

/// The element type that a file means; `None` for types that MIL does not have.
pub fn element_type(dtype: Dtype) -> Option<DataType> {
    TYPES.iter().find(|(_, d, _)| *d == dtype).map(|(d, ..)| *d)
}

pub(crate) fn unknown(name: &str, names: &[&str]) -> Error {
    let near = did_you_mean(name, names.iter().copied());
    let more = if names.len() > LISTED { ", …" } else { "" };
    let listed = names[..names.len().min(LISTED)].join(", ");
    Error::Unknown(format!("no tensor `{name}`{near} (there are {listed}{more}); name one after a colon"))
}

/// Reads the tensor of that name. It shares the bytes of the file.
///
/// # Errors
/// [`Error::Format`] for a damaged file or an element type that MIL does not have,
/// [`Error::Unknown`] for another name.
pub fn read(file: impl Into<Bytes>, name: &str) -> Result<Tensor> {
    let file = file.into();
    let broken =
        |e: safetensors::SafeTensorError| Error::Format(format!("not a .safetensors file, or a damaged one: {e}"));
    let (length, index) = SafeTensors::read_metadata(&file).map_err(broken)?;
    let Some(info) = index.info(name) else {
        let mut names = index.offset_keys();
        names.sort_unstable();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        return Err(unknown(name, &names));
    };
    let unsupported = || Error::Format(format!("elements of type {:?} are not supported", info.dtype));
    let dtype = element_type(info.dtype).ok_or_else(unsupported)?;
    let (from, to) = info.data_offsets;
    let start = length + 8;
    let range = start.checked_add(from).zip(start.checked_add(to)).map(|(from, to)| from..to);
    let data = range.and_then(|r| file.slice(r));
    let data = data.ok_or_else(|| Error::Format(format!("`{name}` is outside of the file")))?;
    Ok(Tensor::new(dtype, info.shape.clone(), data)?)
}

/// A tensor to be written: name, element type, shape, bytes.
pub type Entry<'a> = (String, DataType, Vec<usize>, &'a [u8]);

/// The entry of a tensor under a name.
pub fn entry(name: impl Into<String>, tensor: &Tensor) -> Entry<'_> {
    (name.into(), tensor.dtype(), tensor.shape().to_vec(), tensor.bytes())
}

/// The bytes of a file with these tensors, the largest elements first, so that each begins at a
/// multiple of its size.
///
/// # Errors
/// [`Error::Format`] for a type that the format cannot hold.
pub fn to_bytes(tensors: &Tensors) -> Result<Vec<u8>> {
    let mut entries: Vec<Entry<'_>> = tensors.iter().map(|(name, tensor)| entry(name, tensor)).collect();
    entries.sort_by_key(|(_, dtype, ..)| std::cmp::Reverse(dtype.bytes()));
    let mut bytes = Vec::new();
    write(&mut bytes, &[], &entries)?;
    Ok(bytes)
}

/// Writes entries in this order, with texts among the metadata.
///
/// # Errors
/// [`Error::Format`] for a name that occurs twice, or a type that the format cannot hold;
/// [`Error::Io`].
pub fn write(out: &mut impl Write, metadata: &[(&str, &str)], entries: &[Entry<'_>]) -> Result<()> {
    let mut index = Map::new();
    if !metadata.is_empty() {
        let texts: Map<String, Value> = metadata.iter().map(|(k, v)| ((*k).to_string(), json!(v))).collect();
        index.insert("__metadata__".to_string(), texts.into());
    }
    let mut at = 0;
    for (name, dtype, shape, bytes) in entries {
        let bad = |why: &str| Error::Format(format!("the tensor `{name}` {why}"));
        let dtype = type_name(*dtype).ok_or_else(|| bad(&format!("is of {dtype}, which the format cannot hold")))?;
        let end = at + bytes.len();
        let value = json!({"dtype": dtype, "shape": shape, "data_offsets": [at, end]});
        if index.insert(name.clone(), value).is_some() {
            return Err(bad("is there twice"));
        }
        at = end;
    }
    let mut head = Value::Object(index).to_string();
    while !(head.len() + 8).is_multiple_of(ALIGNMENT) {
        head.push(' ');
    }
    out.write_all(&(head.len() as u64).to_le_bytes())?;
    out.write_all(head.as_bytes())?;
    entries.iter().try_for_each(|(.., bytes)| out.write_all(bytes))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_come_back_and_names_are_suggested() {
        let tensor = Tensor::from_f64(DataType::Int16, &[2], [-3.0, 4.0]).unwrap();
        let wide = Tensor::fp32(&[1], &[0.5]).unwrap();
        let file = to_bytes(&Tensors::from([("logits", tensor.clone()), ("scale", wide.clone())])).unwrap();
        assert_eq!(read(file.clone(), "logits").unwrap(), tensor);
        assert_eq!(read(file.clone(), "scale").unwrap(), wide);
        // What the crate itself reads.
        let theirs = SafeTensors::deserialize(&file).unwrap();
        assert_eq!(theirs.tensor("scale").unwrap().data(), &**wide.bytes());
        let error = read(file.clone(), "logit").unwrap_err().to_string();
        assert!(error.contains("did you mean `logits`"), "{error}");
        for cut in 0..file.len() {
            assert!(read(file[..cut].to_vec(), "logits").is_err(), "{cut}");
        }
    }

    #[test]
    fn a_name_is_written_once() {
        let tensor = Tensor::bool(&[1], &[true]).unwrap();
        let twice = [entry("x", &tensor), entry("x", &tensor)];
        assert!(write(&mut Vec::new(), &[], &twice).unwrap_err().to_string().contains("`x` is there twice"));
    }
}
