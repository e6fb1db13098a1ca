//! Memory of this process, and the account of who held it.

use ferrane::train::metrics::Memory;

use crate::error::Result;
use crate::out;

/// Largest resident memory of this process so far, from the kernel's own account; `None` where there is none.
pub fn peak() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    let kib: usize = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

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
