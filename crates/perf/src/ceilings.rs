//! The ceilings of this computer: fp32 multiply-adds from registers, and reading memory.

use std::fmt;
use std::time::Duration;

use ferrane_host::{ceiling, pool};
use serde::ser::{Serialize, SerializeStruct, Serializer};
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::plot::Roofs;
use crate::spread::round;

/// Bytes of the largest memory that is read: more than caches hold.
pub const LARGE: usize = 1 << 28;
/// Turns of each ceiling in one [`Ceilings::measure`].
const TURNS: usize = 5;
/// The shortest time of one reading of memory.
const READ: Duration = Duration::from_millis(10);

/// The best rates that this computer has shown.
///
/// Memory is read in three sizes: 256 KiB a thread, 16 MiB, and [`LARGE`]. The rates only rise:
/// measure before and after what is compared with them.
pub struct Ceilings {
    gflops: f64,
    /// Bytes of the memory that is read, and GB/s.
    reads: [(usize, f64); 3],
    memory: Vec<u64>,
}

impl Ceilings {
    /// Allocates the memory to read; nothing is measured yet.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the system has no [`LARGE`] bytes.
    pub fn new() -> Result<Ceilings> {
        let mut memory = Vec::new();
        let failed = |_| Error::OutOfMemory { bytes: LARGE, purpose: "the memory to read" };
        memory.try_reserve_exact(LARGE / 8).map_err(failed)?;
        memory.extend(1..=(LARGE / 8) as u64);
        let sizes = [pool::threads() << 18, 1 << 24, LARGE];
        Ok(Ceilings { gflops: 0.0, reads: sizes.map(|size| (size.min(LARGE), 0.0)), memory })
    }

    /// Measures every ceiling five times and keeps the best.
    pub fn measure(&mut self) {
        for _ in 0..TURNS {
            self.gflops = self.gflops.max(ceiling::flops() / 1e9);
            for (size, rate) in &mut self.reads {
                let found = ceiling::read_bandwidth(&self.memory[..*size / 8], READ) / 1e9;
                *rate = rate.max(found);
            }
        }
    }

    /// GFLOP/s of fp32 multiply-adds from registers, all threads together.
    pub fn gflops(&self) -> f64 {
        self.gflops
    }

    /// The GFLOP/s that the ceilings allow a routine with so many operations and bytes to move.
    /// `cold` operands come from the largest memory whatever their size.
    pub fn roof(&self, operations: f64, bytes: usize, cold: bool) -> f64 {
        let fits = self.reads.iter().find(|(size, _)| bytes <= *size && !cold);
        let rate = fits.unwrap_or(&self.reads[2]).1;
        self.gflops.min(operations / bytes as f64 * rate)
    }

    /// The ceilings as a plot draws them.
    pub fn roofs(&self) -> Roofs {
        let bandwidths = self.reads.iter().map(|(size, rate)| (size_name(*size), *rate)).collect();
        Roofs { gflops: self.gflops, bandwidths }
    }
}

impl fmt::Display for Ceilings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.gflops / pool::threads() as f64;
        writeln!(f, "  {:.0} GFLOP/s of fp32 multiply-adds from registers, {each:.0} a thread", self.gflops)?;
        let reads: Vec<String> =
            self.reads.iter().map(|(size, rate)| format!("{rate:.0} of {}", size_name(*size))).collect();
        writeln!(f, "  reads, in GB/s: {}", reads.join(", "))
    }
}

impl Serialize for Ceilings {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let reads: Map<String, Value> =
            self.reads.iter().map(|(size, rate)| (size_name(*size), json!(round(*rate)))).collect();
        let mut object = serializer.serialize_struct("Ceilings", 2)?;
        object.serialize_field("gflops", &round(self.gflops))?;
        object.serialize_field("read_gb_per_s", &reads)?;
        object.end()
    }
}

fn size_name(bytes: usize) -> String {
    if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_of_few_bytes_has_the_roof_of_registers() {
        let ceilings =
            Ceilings { gflops: 100.0, reads: [(1 << 18, 50.0), (1 << 24, 20.0), (LARGE, 10.0)], memory: Vec::new() };
        assert_eq!(ceilings.roof(1e9, 1 << 18, false), 100.0);
        assert_eq!(ceilings.roof(2e6, 1_000_000, false), 40.0);
        assert_eq!(ceilings.roof(2e6, 1_000_000, true), 20.0);
        assert_eq!(ceilings.roof(2e9, 1 << 30, false), 2e9 / f64::from(1 << 30) * 10.0);
    }
}
