//! What is in a file, for people and as JSON.

use crate::cursor::shown;
use crate::{Array, GgufHeader, MetadataValue, TensorType};
use ferrane_diag::printable;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fmt;

/// The most characters of a string in the text.
const WIDEST: usize = 100;
/// The most elements of an array in the text and in the JSON.
const MOST_ELEMENTS: usize = 8;

/// The metadata and tensors of a file.
///
/// Long strings and arrays are cut in the text, long arrays also in the JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct GgufSummary<'a> {
    header: &'a GgufHeader,
}

impl<'a> GgufSummary<'a> {
    /// The summary of a file with this header.
    pub fn of(header: &'a GgufHeader) -> GgufSummary<'a> {
        GgufSummary { header }
    }

    /// Values of all tensors together.
    pub fn values(&self) -> u64 {
        self.header.tensors().iter().map(|t| t.elements() as u64).sum()
    }

    /// Bytes of all tensors together.
    pub fn bytes(&self) -> u64 {
        self.header.tensors().iter().map(|t| t.range().len() as u64).sum()
    }

    /// The tensors of each type: their number, values and bytes. The types are sorted by bytes, the
    /// largest first.
    pub fn types(&self) -> Vec<(TensorType, usize, u64, u64)> {
        let mut types: BTreeMap<u32, (TensorType, usize, u64, u64)> = BTreeMap::new();
        for tensor in self.header.tensors() {
            let entry = types.entry(tensor.ty().id()).or_insert((tensor.ty(), 0, 0, 0));
            entry.1 += 1;
            entry.2 += tensor.elements() as u64;
            entry.3 += tensor.range().len() as u64;
        }
        let mut types: Vec<_> = types.into_values().collect();
        types.sort_by_key(|&(.., bytes)| std::cmp::Reverse(bytes));
        types
    }

    /// Bits of a value on average, 0 without tensors.
    pub fn bits_per_value(&self) -> f64 {
        bits(self.bytes(), self.values())
    }

    /// As one JSON object.
    pub fn json(&self) -> Json {
        let metadata: serde_json::Map<String, Json> =
            self.header.metadata().iter().map(|(key, value)| (key.clone(), value_json(value))).collect();
        let tensors: Vec<Json> = self
            .header
            .tensors()
            .iter()
            .map(|t| {
                json!({
                    "name": t.name(), "type": t.ty().name(), "shape": t.shape(), "offset": t.range().start,
                    "bytes": t.range().len(),
                })
            })
            .collect();
        let types: Vec<Json> = self
            .types()
            .into_iter()
            .map(|(ty, count, values, bytes)| {
                json!({
                    "type": ty.name(), "tensors": count, "values": values, "bytes": bytes,
                    "readable": ty.is_readable(),
                })
            })
            .collect();
        json!({
            "version": self.header.version(), "alignment": self.header.alignment(), "values": self.values(),
            "bytes": self.bytes(), "bits_per_value": self.bits_per_value(), "types": types, "metadata": metadata,
            "tensors": tensors,
        })
    }
}

fn bits(bytes: u64, values: u64) -> f64 {
    if values == 0 { 0.0 } else { 8.0 * bytes as f64 / values as f64 }
}

fn value_json(value: &MetadataValue) -> Json {
    match value {
        MetadataValue::Array(array) if array.len() > MOST_ELEMENTS => {
            json!({"type": array.ty().name(), "length": array.len(), "first": elements(array)})
        }
        MetadataValue::Array(array) => elements(array).into(),
        MetadataValue::Bool(v) => (*v).into(),
        MetadataValue::String(v) => v.as_str().into(),
        MetadataValue::U64(v) => (*v).into(),
        MetadataValue::I64(v) => (*v).into(),
        MetadataValue::F32(_) | MetadataValue::F64(_) => value.as_f64().into(),
        other => match other.as_u64() {
            Some(v) => v.into(),
            // What is left are negative integers of at most 32 bits.
            None => other.to_string().parse::<i64>().ok().into(),
        },
    }
}

fn elements(array: &Array) -> Vec<Json> {
    (0..array.len().min(MOST_ELEMENTS)).filter_map(|index| array.get(index)).map(|v| value_json(&v)).collect()
}

/// A value on one line.
fn line(value: &MetadataValue) -> String {
    match value {
        MetadataValue::Array(array) => {
            let shown: Vec<String> =
                (0..array.len().min(MOST_ELEMENTS)).filter_map(|index| array.get(index)).map(|v| line(&v)).collect();
            let more = if array.len() > MOST_ELEMENTS { ", …" } else { "" };
            format!("[{}{more}] ({} elements of {})", shown.join(", "), array.len(), array.ty().name())
        }
        MetadataValue::String(text) if text.chars().nth(WIDEST).is_some() => {
            let start: String = text.chars().take(WIDEST).collect();
            format!("{} … ({} bytes)", printable(&format!("{start:?}")), text.len())
        }
        other => printable(&other.to_string()),
    }
}

impl fmt::Display for GgufSummary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = self.header;
        writeln!(
            f,
            "GGUF version {}, {} keys, {} tensors",
            header.version(),
            header.metadata().len(),
            header.tensors().len()
        )?;
        writeln!(f, "{} values in {} bytes, {:.2} bits per value", self.values(), self.bytes(), self.bits_per_value())?;
        writeln!(f, "\nmetadata")?;
        let width = header.metadata().iter().map(|(key, _)| shown(key).chars().count()).max().unwrap_or(0);
        for (key, value) in header.metadata() {
            writeln!(f, "  {:width$}  {}", shown(key), line(value))?;
        }
        writeln!(f, "\ntypes")?;
        for (ty, count, values, bytes) in self.types() {
            let note = if ty.is_readable() { "" } else { ", cannot be read" };
            writeln!(
                f,
                "  {:7}  {count} tensors, {values} values, {bytes} bytes, {:.4} bits per value{note}",
                ty.name(),
                ty.bits_per_value()
            )?;
        }
        writeln!(f, "\ntensors")?;
        let width = header.tensors().iter().map(|t| shown(t.name()).chars().count()).max().unwrap_or(0);
        for tensor in header.tensors() {
            let (ty, shape, bytes) = (tensor.ty().name(), tensor.shape(), tensor.range().len());
            writeln!(f, "  {:width$}  {ty:7}  {shape:?}, {bytes} bytes", shown(tensor.name()))?;
        }
        Ok(())
    }
}
