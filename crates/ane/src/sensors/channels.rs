//! Which channels of IOReport are read, and what their numbers are.
//!
//! Names are those that public programs match:
//!
//! - `Energy Model` with `ANE`, `ANE0`, `ANE0_1`, `CPU Energy`, `DIE_0_CPU Energy`, `GPU Energy`
//!   and `DRAM…`, and `PMP` / `Energy Counters` with `ANE…`: macmon's `shared.rs` and `metrics.rs`,
//!   <https://github.com/vladkens/macmon>.
//! - States of cores and of the GPU: the same.
//! - States of the engine: `SoC Stats` / `Cluster Power States` with `ANE0` and the states `ACT`
//!   and `INACT` (`ANESampler.swift` of <https://github.com/kennss/SiliconScope>); `PMP` / `SOC
//!   Floor`, `DCS Floor` and `Fast-Die CE` with `ANE-AF-BW`, `ANE-DCS-BW` and `ANE0`
//!   (<https://github.com/metaspartan/mactop/pull/72>); `ANE` / `IOP State` / `status`
//!   (<https://github.com/wieslawsoltes/ActivityMonitor/pull/39>); `H11ANE` / `H11ANE Power State`
//!   / `ANE Power` (macmon's tests name it).
//! - A token before a name, such as `DIE0 ANE0`, says which die it is (`IOReportNaming.swift` of
//!   SiliconScope), and a number at the end of a group such as `PMP0` does too.
//!
//! Not one of them is on every machine.

use ferrane_sensors::Domain;

/// The format of a channel with one number (`kIOReportFormatSimple` of xnu's `IOReportTypes.h`).
pub(crate) const SIMPLE: u8 = 1;

/// The format of a channel with the time in each state (`kIOReportFormatState`, as above).
pub(crate) const STATE: u8 = 2;

/// The group of energy counters.
const ENERGY: &str = "Energy Model";

const MODEL: &str = "IOReport Energy Model";
const COUNTERS: &str = "IOReport PMP / Energy Counters";

/// What a channel is read for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ChannelUse {
    /// An energy counter: what it meters, and its source.
    Energy(Domain, &'static str),
    /// The time in each state, and its source.
    States(&'static str),
}

/// Groups and subgroups with states, the source of a reading, and whether a channel is read.
type StateRow = (&'static str, &'static str, &'static str, fn(&str) -> bool);

const STATES: [StateRow; 9] = [
    ("CPU Stats", "CPU Core Performance States", "IOReport CPU Stats / CPU Core Performance States", every),
    ("CPU Stats", "CPU Complex Performance States", "IOReport CPU Stats / CPU Complex Performance States", every),
    ("GPU Stats", "GPU Performance States", "IOReport GPU Stats / GPU Performance States", every),
    ("SoC Stats", "Cluster Power States", "IOReport SoC Stats / Cluster Power States", is_engine),
    ("PMP", "SOC Floor", "IOReport PMP / SOC Floor", is_engine),
    ("PMP", "DCS Floor", "IOReport PMP / DCS Floor", is_engine),
    ("PMP", "Fast-Die CE", "IOReport PMP / Fast-Die CE", is_engine),
    ("ANE", "IOP State", "IOReport ANE / IOP State", |name| name == "status"),
    ("H11ANE", "H11ANE Power State", "IOReport H11ANE / H11ANE Power State", |name| name == "ANE Power"),
];

fn every(_: &str) -> bool {
    true
}

/// Whether a name's last word is a unit of the engine: `ANE`, `ANE0`, `ANE0_1`, `ANE-AF-BW`,
/// `PACC0_ANE`, and not `ANEXL` or `PLANE`.
fn is_engine(name: &str) -> bool {
    let word = name.rsplit(' ').next().unwrap_or(name);
    let begins = word.strip_prefix("ANE").is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphabetic()));
    begins || word.ends_with("_ANE")
}

/// Whether a name is a unit's, by itself or after the name of a die: `CPU Energy`, `DIE0 CPU
/// Energy`, `DIE_0_CPU Energy`, and not `EACC_CPU Energy`, which is a part.
fn is_unit(name: &str, unit: &str) -> bool {
    match name.strip_suffix(unit) {
        None => false,
        Some("") => true,
        Some(die) => die.ends_with(' ') || die.starts_with("DIE_") && die.ends_with('_'),
    }
}

/// The group that is read, of a name that may have the die before it and a number at its end;
/// `None` for others.
fn family(group: &str) -> Option<&'static str> {
    let bare = group.trim_end_matches(|c: char| c.is_ascii_digit());
    let is = |family: &str| [group, bare].iter().any(|name| *name == family || name.ends_with(&format!(" {family}")));
    std::iter::once(ENERGY).chain(STATES.iter().map(|(group, ..)| *group)).find(|family| is(family))
}

/// Whether any channel of a group may be read.
pub(crate) fn is_group(group: &str) -> bool {
    family(group).is_some()
}

/// What a channel is read for; `None` for what is not read.
pub(crate) fn channel_use(group: &str, sub_group: &str, name: &str) -> Option<ChannelUse> {
    let family = family(group)?;
    if family == ENERGY {
        let domain = if is_engine(name) {
            Domain::Ane
        } else if is_unit(name, "CPU Energy") {
            Domain::Cpu
        } else if is_unit(name, "GPU Energy") {
            Domain::Gpu
        } else if name.rsplit(' ').next().is_some_and(|word| word.starts_with("DRAM")) {
            Domain::Dram
        } else {
            return None;
        };
        return Some(ChannelUse::Energy(domain, MODEL));
    }
    if (family, sub_group) == ("PMP", "Energy Counters") {
        return is_engine(name).then_some(ChannelUse::Energy(Domain::Ane, COUNTERS));
    }
    let row = STATES.iter().find(|(of, sub, _, reads)| (*of, *sub) == (family, sub_group) && reads(name));
    row.map(|(_, _, source, _)| ChannelUse::States(source))
}

/// The name of a channel in a reading. It has the group's where that says which die or engine it
/// is.
pub(crate) fn label(group: &str, name: &str) -> String {
    match family(group) {
        Some(family) if family == group && family != "ANE" => name.to_string(),
        _ => format!("{group} {name}"),
    }
}

/// The joules of one count, by the label of the unit (macmon's `watts_from_energy` has the same
/// three); `None` for others.
pub(crate) fn joules(unit: &str) -> Option<f64> {
    match unit.trim() {
        "mJ" => Some(1e-3),
        "uJ" => Some(1e-6),
        "nJ" => Some(1e-9),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn energy(name: &str) -> Option<Domain> {
        match channel_use("Energy Model", "", name) {
            Some(ChannelUse::Energy(domain, MODEL)) => Some(domain),
            None => None,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn energy_channels_are_those_that_public_programs_read() {
        for name in ["ANE", "ANE0", "ANE0_1", "DIE0 ANE0"] {
            assert_eq!(energy(name), Some(Domain::Ane), "{name}");
        }
        for name in ["CPU Energy", "DIE_0_CPU Energy", "DIE1 CPU Energy"] {
            assert_eq!(energy(name), Some(Domain::Cpu), "{name}");
        }
        assert_eq!(energy("GPU Energy"), Some(Domain::Gpu));
        assert_eq!((energy("DRAM"), energy("DRAM0_1")), (Some(Domain::Dram), Some(Domain::Dram)));
        // Parts of what is counted already, and other units.
        for name in ["EACC_CPU Energy", "EACC_CPU0", "PCPU", "GPU SRAM0", "ANEXL", "PLANE", "AVE", ""] {
            assert_eq!(energy(name), None, "{name}");
        }
        let counter = |group, sub, name| channel_use(group, sub, name);
        assert_eq!(counter("PMP", "Energy Counters", "ANE"), Some(ChannelUse::Energy(Domain::Ane, COUNTERS)));
        assert_eq!(counter("PMP1", "Energy Counters", "ANE0"), Some(ChannelUse::Energy(Domain::Ane, COUNTERS)));
        assert_eq!(counter("PMP", "Energy Counters", "ECPU"), None);
        assert_eq!(counter("PMP", "AF BW", "ANE0 RD"), None);
        assert_eq!(counter("CLPC", "Energy Counters", "ANE"), None);
    }

    #[test]
    fn states_are_those_of_cores_the_gpu_and_the_engine() {
        let source = |group, sub, name| match channel_use(group, sub, name) {
            Some(ChannelUse::States(source)) => Some(source),
            _ => None,
        };
        for (group, sub, name) in [
            ("CPU Stats", "CPU Core Performance States", "ECPU000"),
            ("CPU Stats", "CPU Complex Performance States", "PCPU"),
            ("DIE1 CPU Stats", "CPU Complex Performance States", "PCPU"),
            ("GPU Stats", "GPU Performance States", "GPUPH"),
            ("SoC Stats", "Cluster Power States", "DIE0 ANE1"),
            ("SoC Stats", "Cluster Power States", "PACC0_ANE"),
            ("PMP0", "SOC Floor", "ANE-AF-BW"),
            ("DIE0 PMP", "DCS Floor", "ANE-DCS-BW"),
            ("PMP", "Fast-Die CE", "ANE0"),
            ("ANE1", "IOP State", "status"),
            ("H11ANE", "H11ANE Power State", "ANE Power"),
        ] {
            assert!(source(group, sub, name).is_some_and(|s| s.ends_with(sub)), "{group} / {sub} / {name}");
        }
        for (group, sub, name) in [
            ("SoC Stats", "Cluster Power States", "ECPU"),
            ("PMP", "SOC Floor", "AGX"),
            ("CPU Stats", "CPU Core Idle States", "ECPU000"),
            ("ANE", "IOP State", "interrupts"),
            ("H13ANE", "IOP State", "status"),
            ("", "", ""),
        ] {
            assert_eq!(source(group, sub, name), None, "{group} / {sub} / {name}");
        }
    }

    #[test]
    fn labels_keep_dies_distinct_and_units_are_known() {
        assert_eq!(label("PMP", "ANE0"), "ANE0");
        assert_eq!(label("PMP1", "ANE0"), "PMP1 ANE0");
        assert_eq!(label("DIE1 GPU Stats", "GPUPH"), "DIE1 GPU Stats GPUPH");
        assert_eq!((label("ANE", "status"), label("ANE1", "status")), ("ANE status".into(), "ANE1 status".into()));
        assert_eq!(
            (joules("mJ"), joules("uJ   "), joules("nJ"), joules("J")),
            (Some(1e-3), Some(1e-6), Some(1e-9), None)
        );
    }
}
