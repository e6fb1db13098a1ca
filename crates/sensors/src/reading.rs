//! Readings, and what lies between two of them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::Load;

/// A part of the computer whose energy is metered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Domain {
    /// The Neural Engine, all dies together.
    Ane,
    /// The processor cores without what surrounds them.
    Cpu,
    /// The graphics processor that is integrated with the cores.
    Gpu,
    /// The memory modules, without the controller in the package.
    Dram,
    /// A processor's package: its cores, caches, and what else is on it.
    Package,
    /// The whole computer, what has no domain of its own included.
    System,
}

impl Domain {
    /// Every domain, in the order of reports.
    pub const ALL: [Domain; 6] = [Domain::Ane, Domain::Cpu, Domain::Gpu, Domain::Dram, Domain::Package, Domain::System];

    /// The name: `ane`, `cpu`, `gpu`, `dram`, `package` or `system`.
    pub const fn name(self) -> &'static str {
        match self {
            Domain::Ane => "ane",
            Domain::Cpu => "cpu",
            Domain::Gpu => "gpu",
            Domain::Dram => "dram",
            Domain::Package => "package",
            Domain::System => "system",
        }
    }
}

/// An energy counter, which only grows.
#[derive(Clone, Debug, PartialEq)]
pub struct Energy {
    /// The part of the computer that it meters.
    pub domain: Domain,
    /// Its name in the source, such as `ANE0` or `package-0`.
    pub channel: String,
    /// The source: `RAPL`, `IOReport Energy Model`.
    pub source: &'static str,
    /// Joules since the source was opened.
    pub joules: f64,
}

/// Counters of the time that a unit spent in each of its states.
#[derive(Clone, Debug, PartialEq)]
pub struct Residency {
    /// The unit, such as `ANE0` or `ECPU`.
    pub unit: String,
    /// Where the counters come from, such as `IOReport CPU Stats`.
    pub source: &'static str,
    /// State and time in it since the source was opened, in a unit of the source's own.
    pub states: Vec<(String, f64)>,
}

/// The temperature that one sensor of the system reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Temperature {
    /// The sensor's name, as the system spells it.
    pub sensor: String,
    /// In °C, above absolute zero and finite.
    pub celsius: f64,
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread {
    /// What is unknown, such as `energy of package-0`.
    pub what: String,
    /// Why, and what helps.
    pub why: String,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

/// The state of all counters at one moment.
#[derive(Clone, Debug)]
pub struct SensorReading {
    /// When it was taken.
    pub at: Instant,
    /// Energy counters, in joules since their sources were opened.
    pub energy: Vec<Energy>,
    /// Residency counters, one entry for each unit.
    pub residency: Vec<Residency>,
    /// Temperatures in °C; empty if no sensor is known.
    pub temperatures: Vec<Temperature>,
    /// The load since the reading before.
    pub load: Option<Load>,
    /// What could not be read.
    pub unread: Vec<Unread>,
}

impl SensorReading {
    /// A reading of nothing, now.
    pub fn now() -> SensorReading {
        SensorReading {
            at: Instant::now(),
            energy: Vec::new(),
            residency: Vec::new(),
            temperatures: Vec::new(),
            load: None,
            unread: Vec::new(),
        }
    }

    /// What no sensor of this computer reads: all that is unread, except a load that only needs
    /// more time.
    pub fn without_sensor(&self) -> impl Iterator<Item = &Unread> {
        self.unread.iter().filter(|unread| unread.what != crate::load::WHAT)
    }

    /// What lies between an earlier reading of the same sensors and this one. Counters that only
    /// one of the readings has are left out.
    pub fn since(&self, earlier: &SensorReading) -> Interval {
        let seconds = self.at.saturating_duration_since(earlier.at).as_secs_f64();
        let mut sums = BTreeMap::<(Domain, &'static str), f64>::new();
        for now in &self.energy {
            let same = |e: &&Energy| e.channel == now.channel && e.source == now.source && e.domain == now.domain;
            if let Some(before) = earlier.energy.iter().find(same) {
                // A counter that was reset says nothing about this interval.
                *sums.entry((now.domain, now.source)).or_default() += (now.joules - before.joules).max(0.0);
            }
        }
        let watts = |joules: f64| if seconds > 0.0 { joules / seconds } else { 0.0 };
        let power = |((domain, source), joules): ((Domain, &'static str), f64)| Power {
            domain,
            source,
            watts: watts(joules),
            joules,
        };
        let shares = |now: &Residency| {
            let before = earlier.residency.iter().find(|r| r.unit == now.unit && r.source == now.source)?;
            let spent = |(state, time): &(String, f64)| {
                let was = before.states.iter().find(|(s, _)| s == state).map_or(0.0, |(_, t)| *t);
                (state.clone(), (time - was).max(0.0))
            };
            let spent: Vec<(String, f64)> = now.states.iter().map(spent).collect();
            let all: f64 = spent.iter().map(|(_, time)| time).sum();
            let states = spent.into_iter().map(|(state, time)| (state, if all > 0.0 { time / all } else { 0.0 }));
            Some(Shares { unit: now.unit.clone(), source: now.source, states: states.collect() })
        };
        Interval {
            seconds,
            power: sums.into_iter().map(power).collect(),
            shares: self.residency.iter().filter_map(shares).collect(),
            temperatures: self.temperatures.clone(),
            load: self.load.clone(),
            unread: self.unread.clone(),
        }
    }
}

/// The mean power of a domain, as one source meters it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Power {
    /// The part of the computer that drew it.
    pub domain: Domain,
    /// The counters' source; several sources may meter one domain.
    pub source: &'static str,
    /// The mean over the interval, in watts.
    pub watts: f64,
    /// The energy of the interval, in joules.
    pub joules: f64,
}

/// The share of time that a unit spent in each of its states.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shares {
    /// The unit, such as `ANE0` or `ECPU`.
    pub unit: String,
    /// Where the counters come from, such as `IOReport CPU Stats`.
    pub source: &'static str,
    /// State and share; the shares add up to 1, or to 0 if no time was counted.
    pub states: Vec<(String, f64)>,
}

/// An energy as text, with the unit that fits: `150.0 J`, `12.34 kJ`, `0.5 mJ`.
pub fn energy_text(joules: f64) -> String {
    match joules.abs() {
        size if size >= 1e10 => format!("{:.2} GJ", joules / 1e9),
        size if size >= 1e7 => format!("{:.2} MJ", joules / 1e6),
        size if size >= 1e4 => format!("{:.2} kJ", joules / 1e3),
        size if size >= 1.0 || size == 0.0 => format!("{joules:.1} J"),
        size if size >= 1e-3 => format!("{:.1} mJ", joules * 1e3),
        _ => format!("{:.1} µJ", joules * 1e6),
    }
}

/// What happened between two readings.
#[derive(Clone, Debug, Serialize)]
pub struct Interval {
    /// Its length in seconds.
    pub seconds: f64,
    /// Power, by domain and source.
    pub power: Vec<Power>,
    /// Shares of time, by unit.
    pub shares: Vec<Shares>,
    /// The temperatures at its end.
    pub temperatures: Vec<Temperature>,
    /// The load in it.
    pub load: Option<Load>,
    /// What could not be read at its end.
    pub unread: Vec<Unread>,
}

impl Interval {
    /// The power of a domain; `None` if no source meters it. Where several do, it is the source
    /// that counted most: systems leave counters in place that no longer count.
    pub fn power(&self, domain: Domain) -> Option<&Power> {
        self.power.iter().filter(|p| p.domain == domain).max_by(|a, b| a.joules.total_cmp(&b.joules))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn energy(domain: Domain, channel: &str, source: &'static str, joules: f64) -> Energy {
        Energy { domain, channel: channel.into(), source, joules }
    }

    #[test]
    fn watts_are_joules_over_the_time_between() {
        let mut first = SensorReading::now();
        let mut second = SensorReading { at: first.at + Duration::from_millis(500), ..SensorReading::now() };
        first.energy = vec![energy(Domain::Ane, "ANE0", "a", 3.0), energy(Domain::Ane, "ANE1", "a", 1.0)];
        second.energy = vec![
            energy(Domain::Ane, "ANE0", "a", 4.0),
            energy(Domain::Ane, "ANE1", "a", 1.5),
            energy(Domain::Gpu, "GPU", "a", 9.0),
        ];
        let interval = second.since(&first);
        let power = interval.power(Domain::Ane).unwrap();
        assert_eq!((power.watts, power.joules), (3.0, 1.5), "both dies");
        assert_eq!(interval.power(Domain::Gpu), None, "the counter appeared only now");
    }

    #[test]
    fn the_source_that_counts_speaks_for_a_domain() {
        let mut first = SensorReading::now();
        let mut second = SensorReading { at: first.at + Duration::from_secs(1), ..SensorReading::now() };
        first.energy = vec![energy(Domain::Ane, "ANE", "frozen", 5.0), energy(Domain::Ane, "ANE", "alive", 0.0)];
        second.energy = vec![energy(Domain::Ane, "ANE", "frozen", 5.0), energy(Domain::Ane, "ANE", "alive", 2.0)];
        assert_eq!(second.since(&first).power(Domain::Ane).unwrap().source, "alive");
        // A counter that starts again from zero is no negative power.
        assert_eq!(first.since(&second).power(Domain::Ane).unwrap().watts, 0.0);
    }

    #[test]
    fn energies_have_the_unit_that_fits() {
        let cases = [
            (0.0, "0.0 J"),
            (2.5e-5, "25.0 µJ"),
            (0.0125, "12.5 mJ"),
            (150.0, "150.0 J"),
            (12_340.0, "12.34 kJ"),
            (1e8, "100.00 MJ"),
            (-3e10, "-30.00 GJ"),
        ];
        for (joules, text) in cases {
            assert_eq!(energy_text(joules), text);
        }
    }

    #[test]
    fn shares_add_up_to_one() {
        let residency = |off: f64, on: f64| Residency {
            unit: "ANE0".into(),
            source: "s",
            states: vec![("OFF".into(), off), ("ON".into(), on)],
        };
        let mut first = SensorReading::now();
        let mut second = SensorReading::now();
        first.residency = vec![residency(10.0, 5.0)];
        second.residency = vec![residency(13.0, 6.0)];
        let states = &second.since(&first).shares[0].states;
        assert_eq!(states, &[("OFF".to_string(), 0.75), ("ON".to_string(), 0.25)]);
        assert_eq!(first.since(&first).shares[0].states[0].1, 0.0, "no time was counted");
    }
}
