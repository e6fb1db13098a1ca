//! RAPL, the energy counters of Intel and AMD processors, as Linux shows them in files.
//!
//! Each folder of `/sys/class/powercap` with the files `name` and `energy_uj` is a counter in
//! microjoules, which starts again from zero after `max_energy_range_uj`; folders of subdomains lie
//! there too (the kernel's Documentation/power/powercap/powercap.rst). Since Linux 5.10 only root
//! may read the counters, because they betray what a processor computes (CVE-2020-8694).
//!
//! A container mostly sees no counters where the system has them; [`VARIABLE`] names another folder
//! that the host's was mounted at.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::{Domain, Energy, Sensor, SensorReading, Unread};

/// What [`Rapl`] calls itself.
pub const NAME: &str = "RAPL";
/// The environment variable with the folder that is read instead of `/sys/class/powercap`.
pub const VARIABLE: &str = "FERRANE_POWERCAP";
const FOLDER: &str = "/sys/class/powercap";

/// The counters of RAPL.
#[derive(Debug)]
pub struct Rapl {
    folder: PathBuf,
    counters: BTreeMap<PathBuf, Counter>,
}

#[derive(Debug)]
struct Counter {
    last: u64,
    /// Microjoules since the first reading.
    sum: u64,
}

impl Rapl {
    /// Those of this computer, which may have none, or those of the folder that [`VARIABLE`] names.
    pub fn of_this_computer() -> Rapl {
        Rapl::at(env::var_os(VARIABLE).unwrap_or_else(|| FOLDER.into()))
    }

    /// Those of a folder like `/sys/class/powercap`.
    pub fn at(folder: impl Into<PathBuf>) -> Rapl {
        Rapl { folder: folder.into(), counters: BTreeMap::new() }
    }

    fn read_counter(&mut self, folder: &Path) -> io::Result<f64> {
        let now = number(&folder.join("energy_uj"))?;
        let counter = self.counters.entry(folder.to_path_buf()).or_insert(Counter { last: now, sum: 0 });
        let step = match now.checked_sub(counter.last) {
            Some(step) => step,
            None => (number(&folder.join("max_energy_range_uj"))?.saturating_sub(counter.last)).saturating_add(now),
        };
        counter.last = now;
        counter.sum = counter.sum.saturating_add(step);
        Ok(counter.sum as f64 / 1e6)
    }
}

fn number(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    text.trim()
        .parse()
        .map_err(|_| io::Error::new(ErrorKind::InvalidData, format!("{} holds no number", path.display())))
}

/// The part of the computer that a name stands for; `None` for names that are not documented.
fn domain(name: &str) -> Option<Domain> {
    match name {
        "core" => Some(Domain::Cpu),
        "uncore" => Some(Domain::Gpu),
        "dram" => Some(Domain::Dram),
        "psys" => Some(Domain::System),
        name if name.starts_with("package-") => Some(Domain::Package),
        _ => None,
    }
}

impl Sensor for Rapl {
    fn name(&self) -> &str {
        NAME
    }

    fn read(&mut self, reading: &mut SensorReading) {
        let unread = |what: &str, why: String| Unread { what: what.into(), why };
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) => {
                let why = match error.kind() {
                    ErrorKind::NotFound => format!(
                        "there is no {}: the processor has no RAPL, or this is a guest that does not see it",
                        self.folder.display()
                    ),
                    _ => format!("{}: {error}", self.folder.display()),
                };
                reading.unread.push(unread("energy of the processor", why));
                return;
            }
        };
        let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        folders.sort();
        let mut found = false;
        for folder in folders {
            // Memory-mapped RAPL meters the same packages a second time.
            let file_name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let Ok(name) = fs::read_to_string(folder.join("name")) else { continue };
            let Some(domain) = domain(name.trim()).filter(|_| !file_name.contains("mmio")) else { continue };
            found = true;
            match self.read_counter(&folder) {
                Ok(joules) => {
                    // Subdomains of two packages have the same name; their folders differ.
                    let channel = format!("{} ({file_name})", name.trim());
                    reading.energy.push(Energy { domain, channel, source: NAME, joules });
                }
                Err(error) => {
                    let remedy = match error.kind() {
                        ErrorKind::PermissionDenied => {
                            format!(
                                "; `sudo chmod a+r {}/*/energy_uj` allows it until the next start",
                                self.folder.display()
                            )
                        }
                        _ => String::new(),
                    };
                    let what = format!("energy of {}", name.trim());
                    reading.unread.push(unread(&what, format!("{}/energy_uj: {error}{remedy}", folder.display())));
                }
            }
        }
        if !found {
            let why = format!("{} has no counter of RAPL", self.folder.display());
            reading.unread.push(unread("energy of the processor", why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(root: &Path, folder: &str, name: &str, energy: &str) {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("name"), format!("{name}\n")).unwrap();
        fs::write(folder.join("energy_uj"), format!("{energy}\n")).unwrap();
        fs::write(folder.join("max_energy_range_uj"), "1000000\n").unwrap();
    }

    fn read(rapl: &mut Rapl) -> SensorReading {
        let mut reading = SensorReading::now();
        rapl.read(&mut reading);
        reading
    }

    #[test]
    fn counters_start_at_zero_and_survive_a_wrap() {
        let root = tempfile::tempdir().unwrap();
        zone(root.path(), "intel-rapl:0", "package-0", "900000");
        zone(root.path(), "intel-rapl:0:0", "core", "5");
        zone(root.path(), "intel-rapl:1:0", "core", "7");
        zone(root.path(), "intel-rapl-mmio:0", "package-0", "900000");
        zone(root.path(), "dtpm", "something", "5");
        let mut rapl = Rapl::at(root.path());
        let first = read(&mut rapl);
        let domains: Vec<Domain> = first.energy.iter().map(|e| e.domain).collect();
        assert_eq!(domains, [Domain::Package, Domain::Cpu, Domain::Cpu]);
        assert!(first.energy.iter().all(|e| e.joules == 0.0));
        // It reaches 1 J and starts again.
        zone(root.path(), "intel-rapl:0", "package-0", "150000");
        zone(root.path(), "intel-rapl:1:0", "core", "2000007");
        let second = read(&mut rapl);
        assert_eq!(second.energy[0].joules, 0.25);
        assert_eq!(second.since(&first).power(Domain::Cpu).unwrap().joules, 2.0);
        assert_eq!(second.unread, []);
    }

    #[test]
    fn what_cannot_be_read_is_said_and_not_zero() {
        let root = tempfile::tempdir().unwrap();
        let missing = read(&mut Rapl::at(root.path().join("none")));
        assert!(missing.unread[0].why.contains("there is no"), "{missing:?}");
        let empty = read(&mut Rapl::at(root.path()));
        assert!(empty.unread[0].why.contains("no counter"), "{empty:?}");
        zone(root.path(), "intel-rapl:0", "package-0", "no number");
        let odd = read(&mut Rapl::at(root.path()));
        assert_eq!(odd.energy, []);
        assert_eq!(odd.unread[0].what, "energy of package-0");
    }
}
