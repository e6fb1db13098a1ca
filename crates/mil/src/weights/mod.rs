//! The weights of a program: an append-only store of blob records.
//!
//! A record knows the file and offset that text names (`@model_path/weights/x.bin`, 64), so printing and packaging agree with
//! what was compiled. Cloning is cheap: records share their bytes. See weight-blob for the file format.

use std::sync::Arc;

use crate::program::DataType;

/// A record of [`Weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub u32);

/// The weights of one program.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    records: Arc<Vec<Record>>,
}

#[derive(Clone, Debug)]
struct Record {
    file: String,
    offset: u64,
    dtype: DataType,
    bytes: Arc<[u8]>,
}

impl Weights {
    /// An empty store.
    pub fn new() -> Weights {
        Weights::default()
    }

    /// Appends a record in a blob file of its own (`weights/NAME`), offset 64.
    pub fn add(&mut self, file: &str, dtype: DataType, bytes: impl Into<Arc<[u8]>>) -> WeightId {
        let id = WeightId(self.records.len() as u32);
        let record = Record { file: file.to_string(), offset: 64, dtype, bytes: bytes.into() };
        Arc::make_mut(&mut self.records).push(record);
        id
    }

    /// The payload of a record.
    pub fn bytes(&self, id: WeightId) -> Option<&[u8]> {
        self.records.get(id.0 as usize).map(|r| &*r.bytes)
    }

    /// The element type of a record.
    pub fn dtype(&self, id: WeightId) -> Option<DataType> {
        self.records.get(id.0 as usize).map(|r| r.dtype)
    }

    /// `(file, offset of the metadata record)` as text names them.
    pub fn location(&self, id: WeightId) -> Option<(&str, u64)> {
        self.records.get(id.0 as usize).map(|r| (r.file.as_str(), r.offset))
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// True without records.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}
