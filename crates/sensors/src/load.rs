//! The load of the processor cores and the memory, from the crate `sysinfo`.

use std::time::Instant;

use serde::Serialize;
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use crate::{SensorReading, Unread};

/// What [`Unread`] calls the load.
pub(crate) const WHAT: &str = "load";

/// The load of one logical core.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Core {
    /// The share of time in which it was busy, from 0 to 1.
    pub busy: f64,
    /// Its frequency in MHz; `None` if the system does not report it.
    pub mhz: Option<u64>,
}

/// The load of a computer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Load {
    /// One entry for each logical core, in the system's order.
    pub cores: Vec<Core>,
    /// Memory in use, in bytes.
    pub memory_used: u64,
    /// Memory in all, in bytes.
    pub memory_total: u64,
    /// Swap space in use, in bytes.
    pub swap_used: u64,
}

impl Load {
    /// The mean share of time in which a core was busy.
    pub fn busy(&self) -> f64 {
        self.cores.iter().map(|core| core.busy).sum::<f64>() / self.cores.len().max(1) as f64
    }
}

/// Keeps the counters of the last reading, since a load is a difference of two.
pub(crate) struct Meter {
    system: System,
    /// When the counters of the cores were last read, and whether a difference is known.
    at: Instant,
    known: bool,
    #[cfg(target_os = "linux")]
    components: sysinfo::Components,
}

impl Meter {
    pub(crate) fn new() -> Meter {
        let kind = RefreshKind::nothing()
            .with_cpu(CpuRefreshKind::nothing().with_cpu_usage().with_frequency())
            .with_memory(MemoryRefreshKind::everything());
        Meter {
            system: System::new_with_specifics(kind),
            at: Instant::now(),
            known: false,
            #[cfg(target_os = "linux")]
            components: sysinfo::Components::new_with_refreshed_list(),
        }
    }

    pub(crate) fn read(&mut self, reading: &mut SensorReading) {
        // Over a shorter time the system's counters say nothing; the last difference stays.
        if self.at.elapsed() > sysinfo::MINIMUM_CPU_UPDATE_INTERVAL {
            self.system.refresh_cpu_specifics(CpuRefreshKind::nothing().with_cpu_usage().with_frequency());
            (self.at, self.known) = (Instant::now(), true);
        }
        self.system.refresh_memory();
        let core = |cpu: &sysinfo::Cpu| Core {
            busy: f64::from(cpu.cpu_usage()) / 100.0,
            mhz: Some(cpu.frequency()).filter(|mhz| *mhz > 0),
        };
        let cores: Vec<Core> = self.system.cpus().iter().map(core).collect();
        if !self.known {
            let least = sysinfo::MINIMUM_CPU_UPDATE_INTERVAL.as_millis();
            let why = format!("the system's counters are compared over {least} ms or more");
            reading.unread.push(Unread { what: WHAT.into(), why });
        } else if !cores.is_empty() {
            reading.load = Some(Load {
                cores,
                memory_used: self.system.used_memory(),
                memory_total: self.system.total_memory(),
                swap_used: self.system.used_swap(),
            });
        }
        #[cfg(target_os = "linux")]
        {
            self.components.refresh(false);
            let found = self.components.iter().filter_map(|component| {
                let celsius = f64::from(component.temperature()?);
                Some(crate::Temperature { sensor: component.label().to_string(), celsius })
            });
            reading.temperatures.extend(found.filter(|t| t.celsius.is_finite()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_core_is_seen() {
        let mut meter = Meter::new();
        let mut reading = SensorReading::now();
        meter.read(&mut reading);
        assert!(reading.load.is_none() && reading.unread[0].what == WHAT, "no load is known yet: {reading:?}");
        let begun = std::time::Instant::now();
        while begun.elapsed() < 2 * sysinfo::MINIMUM_CPU_UPDATE_INTERVAL {
            std::hint::spin_loop();
        }
        meter.read(&mut reading);
        let load = reading.load.unwrap();
        assert!(load.cores.iter().any(|core| core.busy > 0.2), "{load:?}");
        assert!(load.cores.iter().all(|core| (0.0..=1.0).contains(&core.busy)), "{load:?}");
        assert!(load.memory_used > 0 && load.memory_used <= load.memory_total, "{load:?}");
    }
}
