//! The account of who held the memory of this process.

use ferrane::train::metrics::Memory;

use crate::error::Result;
use crate::out;

/// The account, for people.
pub fn show(memory: &Memory) -> Result<()> {
    out::print(memory)
}

/// The account, in bytes.
pub fn json(memory: &Memory) -> serde_json::Value {
    serde_json::to_value(memory).unwrap_or_default()
}
