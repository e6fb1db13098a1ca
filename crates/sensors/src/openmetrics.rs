//! A history in the text format of OpenMetrics, which Prometheus reads.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::{History, Interval, Load};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MeterLabels {
    domain: &'static str,
    source: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    unit: String,
    source: &'static str,
    state: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SensorLabels {
    sensor: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CoreLabels {
    core: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UnreadLabels {
    what: String,
    why: String,
}

type Gauges<L> = Family<L, Gauge<f64, AtomicU64>>;

impl History {
    /// Energy as counters since the first reading; power, states, temperatures, load and memory of
    /// the last interval as gauges. What is unknown has no sample and is listed in
    /// `ferrane_unread`.
    pub fn openmetrics(&self) -> String {
        let mut text = self.openmetrics_families();
        // Writing to a string does not fail.
        let _ = encode_eof(&mut text);
        text
    }

    /// The text of [`History::openmetrics`] without the mark of its end, so that other families may
    /// come before and after it.
    pub fn openmetrics_families(&self) -> String {
        let mut registry = Registry::with_prefix("ferrane");
        let energy = Family::<MeterLabels, Counter<f64, AtomicU64>>::default();
        for (domain, source, joules) in self.joules() {
            energy.get_or_create(&MeterLabels { domain: domain.name(), source }).inc_by(joules);
        }
        registry.register_with_unit("energy", "Energy since the command began", Unit::Joules, energy);
        if let Some(interval) = self.latest() {
            of_interval(&mut registry, interval);
        }
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode_registry(&mut text, &registry);
        text
    }
}

fn of_interval(registry: &mut Registry, interval: &Interval) {
    let length = Gauge::<f64, AtomicU64>::default();
    length.set(interval.seconds);
    registry.register_with_unit("interval", "Length of the last interval", Unit::Seconds, length);

    let power = Gauges::<MeterLabels>::default();
    for p in &interval.power {
        power.get_or_create(&MeterLabels { domain: p.domain.name(), source: p.source }).set(p.watts);
    }
    let watts = Unit::Other("watts".into());
    registry.register_with_unit("power", "Mean power of the last interval", watts, power);

    let states = Gauges::<StateLabels>::default();
    for shares in &interval.shares {
        for (state, share) in &shares.states {
            let labels = StateLabels { unit: shares.unit.clone(), source: shares.source, state: state.clone() };
            states.get_or_create(&labels).set(*share);
        }
    }
    let help = "Share of the last interval that a unit spent in a state";
    registry.register_with_unit("state", help, Unit::Ratios, states);

    let temperatures = Gauges::<SensorLabels>::default();
    let mut seen = HashMap::<&str, usize>::new();
    for t in &interval.temperatures {
        // A system may have several sensors of one name; each needs labels of its own.
        let number = seen.entry(&t.sensor).or_default();
        *number += 1;
        let sensor = if *number > 1 { format!("{} ({number})", t.sensor) } else { t.sensor.clone() };
        temperatures.get_or_create(&SensorLabels { sensor }).set(t.celsius);
    }
    registry.register_with_unit("temperature", "Temperature", Unit::Celsius, temperatures);

    if let Some(load) = &interval.load {
        of_load(registry, load);
    }

    let unread = Gauges::<UnreadLabels>::default();
    for u in &interval.unread {
        unread.get_or_create(&UnreadLabels { what: u.what.clone(), why: u.why.clone() }).set(1.0);
    }
    registry.register("unread", "What cannot be read, and why", unread);
}

fn of_load(registry: &mut Registry, load: &Load) {
    let (busy, frequency) = (Gauges::<CoreLabels>::default(), Gauges::<CoreLabels>::default());
    for (core, number) in load.cores.iter().zip(0..) {
        let labels = CoreLabels { core: number };
        busy.get_or_create(&labels).set(core.busy);
        if let Some(mhz) = core.mhz {
            frequency.get_or_create(&labels).set(mhz as f64 * 1e6);
        }
    }
    registry.register_with_unit("core_busy", "Share of time in which a core was busy", Unit::Ratios, busy);
    registry.register_with_unit("core_frequency", "Frequency of a core", Unit::Other("hertz".into()), frequency);
    let bytes = [
        ("memory_used", "Memory in use", load.memory_used),
        ("memory_total", "Memory in all", load.memory_total),
        ("swap_used", "Swap space in use", load.swap_used),
    ];
    for (name, help, value) in bytes {
        let gauge = Gauge::<f64, AtomicU64>::default();
        gauge.set(value as f64);
        registry.register_with_unit(name, help, Unit::Bytes, gauge);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Core, Domain, Energy, Residency, SensorReading, Temperature, Unread};

    #[test]
    fn everything_known_is_a_sample_and_the_unknown_is_none() {
        let mut first = SensorReading::now();
        let mut second = SensorReading { at: first.at + Duration::from_secs(2), ..SensorReading::now() };
        let energy = |joules| Energy { domain: Domain::Ane, channel: "ANE0".into(), source: "IOReport", joules };
        let residency = |on| Residency {
            unit: "ANE0".into(),
            source: "IOReport",
            states: vec![("OFF".into(), 1.0), ("a \"state\"".into(), on)],
        };
        (first.energy, second.energy) = (vec![energy(1.0)], vec![energy(4.0)]);
        (first.residency, second.residency) = (vec![residency(0.0)], vec![residency(3.0)]);
        let hot = |celsius| Temperature { sensor: "temp1".into(), celsius };
        second.temperatures = vec![hot(40.0), hot(41.5)];
        second.load = Some(Load {
            cores: vec![Core { busy: 0.5, mhz: Some(3200) }, Core { busy: 1.0, mhz: None }],
            memory_used: 5,
            memory_total: 10,
            swap_used: 0,
        });
        second.unread = vec![Unread { what: "energy of the gpu".into(), why: "no\nsource".into() }];
        let mut history = History::new(first);
        assert!(!history.openmetrics().contains("power"), "nothing before the first interval");
        history.push(second);
        let text = history.openmetrics();
        for line in [
            "# TYPE ferrane_energy_joules counter",
            "# UNIT ferrane_energy_joules joules",
            "ferrane_energy_joules_total{domain=\"ane\",source=\"IOReport\"} 3.0",
            "ferrane_power_watts{domain=\"ane\",source=\"IOReport\"} 1.5",
            "ferrane_state_ratios{unit=\"ANE0\",source=\"IOReport\",state=\"a \\\"state\\\"\"} 1.0",
            "ferrane_temperature_celsius{sensor=\"temp1\"} 40.0",
            "ferrane_temperature_celsius{sensor=\"temp1 (2)\"} 41.5",
            "ferrane_core_busy_ratios{core=\"1\"} 1.0",
            "ferrane_core_frequency_hertz{core=\"0\"} 3200000000.0",
            "ferrane_memory_used_bytes 5.0",
            "ferrane_interval_seconds 2.0",
            "ferrane_unread{what=\"energy of the gpu\",why=\"no\\nsource\"} 1.0",
        ] {
            assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
        }
        assert_eq!(history.openmetrics_families().lines().count() + 1, text.lines().count());
        assert!(text.ends_with("# EOF\n") && !history.openmetrics_families().contains("EOF"), "{text}");
        assert!(!text.contains("gpu\"}"), "{text}");
        assert!(!text.contains("hertz{core=\"1\"}"), "{text}");
    }
}
