//! The account of who held the memory of this process.

use ferrane::train::metrics::Memory;

use crate::error::Result;
use crate::out;

/// The account, for people.
pub fn show(memory: &Memory) -> Result<()> {
    for (name, bytes) in memory.parts() {
        out::line(format_args!("    {name:20} {:9.1} MB", bytes as f64 / 1e6))?;
    }
    Ok(())
}

/// The account, in bytes.
pub fn json(memory: &Memory) -> serde_json::Value {
    let parts = memory.parts().into_iter().map(|(name, bytes)| (name.to_string(), bytes.into()));
    let mut object: serde_json::Map<_, _> = parts.collect();
    object.insert("peak".into(), memory.peak.into());
    object.into()
}
