//! Many intervals in bounded memory: energy, means, peaks, and the last values as curves.
//!
//! ```
//! use std::time::Duration;
//!
//! use ferrane_sensors::{Domain, Sensors, measure};
//!
//! let mut sensors = Sensors::of_this_computer();
//! let (sum, measured) = measure(&mut sensors, Duration::from_millis(250), || (0..1000u64).sum::<u64>());
//! println!("{sum} after {:.3} s", measured.mean.seconds);
//! match measured.mean.power(Domain::Package) {
//!     Some(power) => println!("{:.2} J", power.joules),
//!     None => println!("unknown: {:?}", measured.mean.unread),
//! }
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use crate::{Core, Domain, Interval, Load, Power, SensorReading, Sensors};

/// Number of the last values that a curve of a [`History`] holds.
pub const CURVE: usize = 4096;

/// The highest mean power that a domain had in one interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeakPower {
    /// The part of the computer that drew it.
    pub domain: Domain,
    /// The source of the counters, as `Power::source` has it.
    pub source: &'static str,
    /// Watts, as the mean of that interval.
    pub watts: f64,
}

/// What happened in many intervals, taken together.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredTime {
    /// The whole time as one interval: energy is summed, power and load are means over time,
    /// temperatures, frequencies and memory are those at the end.
    #[serde(flatten)]
    pub mean: Interval,
    /// The peak of each domain and source.
    pub peaks: Vec<PeakPower>,
    /// The most memory in use at the end of an interval, in bytes; `None` if it is unknown.
    pub memory_peak: Option<u64>,
    /// Number of intervals that are taken together; 0 before the first one has ended.
    pub intervals: u64,
}

impl MeasuredTime {
    /// The peak of a domain in watts, by the source that [`Interval::power`] selects.
    pub fn peak(&self, domain: Domain) -> Option<f64> {
        let source = self.mean.power(domain)?.source;
        self.peaks.iter().find(|peak| peak.domain == domain && peak.source == source).map(|peak| peak.watts)
    }
}

/// A line for each domain, then time, load, memory, and what is unknown.
impl fmt::Display for MeasuredTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for domain in Domain::ALL {
            match (self.mean.power(domain), self.peak(domain)) {
                (Some(Power { source, watts, joules, .. }), Some(peak)) => {
                    let name = domain.name();
                    writeln!(f, "{name:<8} {joules:>12.3} J {watts:>10.3} W mean {peak:>10.3} W peak  {source}")?;
                }
                _ => writeln!(f, "{:<8} {:>14}", domain.name(), "unknown")?,
            }
        }
        writeln!(f, "{:<8} {:>12.3} s", "time", self.mean.seconds)?;
        if let Some(load) = &self.mean.load {
            let cores = load.cores.len();
            writeln!(f, "{:<8} {:>12.2} of {cores} cores busy", "load", load.busy() * cores as f64)?;
            let gb = |bytes: u64| bytes as f64 / 1e9;
            let most = gb(self.memory_peak.unwrap_or(load.memory_used));
            writeln!(f, "{:<8} {most:>12.2} GB of {:.2} GB in use at most", "memory", gb(load.memory_total))?;
        }
        self.mean.unread.iter().try_for_each(|unread| writeln!(f, "unknown: {unread}"))
    }
}

/// What the sensors reported since a first reading.
///
/// Sums and peaks begin again at [`History::reset`]; the counters of [`History::openmetrics`] and
/// the curves do not, and a curve holds the last [`CURVE`] values.
#[derive(Clone, Debug)]
pub struct History {
    /// Where the sums begin.
    origin: SensorReading,
    last: SensorReading,
    latest: Option<Interval>,
    seconds: f64,
    sums: RunningSums,
    counters: BTreeMap<Meter, f64>,
    curves: BTreeMap<Domain, Curve>,
    busy: Curve,
}

/// A domain and the source that meters it.
type Meter = (Domain, &'static str);
/// Seconds since the first reading, and the value.
type Curve = VecDeque<(f64, f64)>;

#[derive(Clone, Debug, Default)]
struct RunningSums {
    power: BTreeMap<Meter, PowerSum>,
    /// Seconds in which each core was busy.
    busy: Vec<f64>,
    /// Seconds of the intervals whose load is known.
    load_seconds: f64,
    memory_peak: Option<u64>,
    intervals: u64,
}

#[derive(Clone, Debug, Default)]
struct PowerSum {
    joules: f64,
    seconds: f64,
    peak: f64,
}

fn append(curve: &mut Curve, seconds: f64, value: f64) {
    if curve.len() == CURVE {
        curve.pop_front();
    }
    curve.push_back((seconds, value));
}

impl History {
    /// A history that begins with this reading.
    pub fn new(first: SensorReading) -> History {
        History {
            origin: first.clone(),
            last: first,
            latest: None,
            seconds: 0.0,
            sums: RunningSums::default(),
            counters: BTreeMap::new(),
            curves: BTreeMap::new(),
            busy: Curve::new(),
        }
    }

    /// Adds the interval from the last reading to this one, and returns it.
    pub fn push(&mut self, reading: SensorReading) -> &Interval {
        let interval = reading.since(&self.last);
        self.last = reading;
        self.seconds += interval.seconds;
        for power in &interval.power {
            let sum = self.sums.power.entry((power.domain, power.source)).or_default();
            sum.joules += power.joules;
            sum.seconds += interval.seconds;
            sum.peak = sum.peak.max(power.watts);
            *self.counters.entry((power.domain, power.source)).or_default() += power.joules;
        }
        for domain in Domain::ALL {
            if let Some(power) = interval.power(domain) {
                append(self.curves.entry(domain).or_default(), self.seconds, power.watts);
            }
        }
        if let Some(load) = &interval.load {
            append(&mut self.busy, self.seconds, load.busy());
            self.sums.load(load, interval.seconds);
        }
        self.sums.intervals += 1;
        self.latest.insert(interval)
    }

    /// The last interval; `None` before the second reading.
    pub fn latest(&self) -> Option<&Interval> {
        self.latest.as_ref()
    }

    /// The length of all intervals since the first reading, in seconds.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Mean power of a domain in each of the last intervals: seconds from the first reading to the
    /// interval's end, and watts. Empty if the domain is not metered.
    pub fn watts(&self, domain: Domain) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.curves.get(&domain).into_iter().flatten().copied()
    }

    /// The mean load of the cores in each of the last intervals: seconds from the first reading to
    /// the interval's end, and a share from 0 to 1.
    pub fn busy(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.busy.iter().copied()
    }

    /// Joules since the first reading, by domain and source.
    pub fn joules(&self) -> impl Iterator<Item = (Domain, &'static str, f64)> + '_ {
        self.counters.iter().map(|((domain, source), joules)| (*domain, *source, *joules))
    }

    /// Everything since the first reading or the last [`History::reset`].
    pub fn measured(&self) -> MeasuredTime {
        let mut mean = self.last.since(&self.origin);
        let rate = |sum: &PowerSum| if sum.seconds > 0.0 { sum.joules / sum.seconds } else { 0.0 };
        let sums = || self.sums.power.iter().map(|((domain, source), sum)| (*domain, *source, sum));
        let power = |(domain, source, sum): (Domain, &'static str, &PowerSum)| Power {
            domain,
            source,
            watts: rate(sum),
            joules: sum.joules,
        };
        mean.power = sums().map(power).collect();
        mean.load = self.sums.mean_load(mean.load);
        let peaks = sums().map(|(domain, source, sum)| PeakPower { domain, source, watts: sum.peak });
        MeasuredTime {
            mean,
            peaks: peaks.collect(),
            memory_peak: self.sums.memory_peak,
            intervals: self.sums.intervals,
        }
    }

    /// Begins the sums and peaks of [`History::measured`] again at the last reading.
    pub fn reset(&mut self) {
        self.origin = self.last.clone();
        self.sums = RunningSums::default();
    }
}

impl RunningSums {
    fn load(&mut self, load: &Load, seconds: f64) {
        self.busy.resize(self.busy.len().max(load.cores.len()), 0.0);
        for (sum, core) in self.busy.iter_mut().zip(&load.cores) {
            *sum += core.busy * seconds;
        }
        self.load_seconds += seconds;
        self.memory_peak = self.memory_peak.max(Some(load.memory_used));
    }

    /// The last load with the means of its cores; `None` if no interval had one.
    fn mean_load(&self, last: Option<Load>) -> Option<Load> {
        let mut load = last.filter(|_| self.load_seconds > 0.0)?;
        let mean = |(core, sum): (&Core, &f64)| Core { busy: sum / self.load_seconds, mhz: core.mhz };
        load.cores = load.cores.iter().zip(&self.busy).map(mean).collect();
        Some(load)
    }
}

/// Runs `work` and reports what happened meanwhile. Another thread reads the sensors `every` so
/// often, so that no counter wraps unseen and the peaks have that resolution.
pub fn measure<T>(sensors: &mut Sensors, every: Duration, work: impl FnOnce() -> T) -> (T, MeasuredTime) {
    let mut history = History::new(sensors.read());
    let (working, ended) = mpsc::channel::<()>();
    let value = thread::scope(|scope| {
        // It is dropped when the work ends or panics, which ends the thread.
        let working = working;
        let history = &mut history;
        scope.spawn(move || {
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                history.push(sensors.read());
            }
            history.push(sensors.read());
        });
        let value = work();
        drop(working);
        value
    });
    (value, history.measured())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Energy, Residency, Sensor, Unread};

    /// A reading `seconds` after `first`, with an engine that drew so many joules.
    fn reading(first: &SensorReading, seconds: f64, joules: f64, busy: f64) -> SensorReading {
        let load = Load {
            cores: vec![Core { busy, mhz: Some(3000) }, Core { busy: 0.0, mhz: None }],
            memory_used: (1e9 * busy) as u64,
            memory_total: 2_000_000_000,
            swap_used: 0,
        };
        SensorReading {
            at: first.at + Duration::from_secs_f64(seconds),
            energy: vec![Energy { domain: Domain::Ane, channel: "ANE0".into(), source: "s", joules }],
            residency: vec![Residency {
                unit: "ANE0".into(),
                source: "s",
                states: vec![("OFF".into(), seconds), ("ON".into(), joules)],
            }],
            load: Some(load),
            unread: vec![Unread { what: "energy of the gpu".into(), why: "no source".into() }],
            ..SensorReading::now()
        }
    }

    fn two_intervals() -> History {
        let first = reading(&SensorReading::now(), 0.0, 10.0, 0.0);
        let mut history = History::new(first.clone());
        assert!(history.latest().is_none());
        assert_eq!(history.push(reading(&first, 1.0, 14.0, 0.75)).power(Domain::Ane).unwrap().watts, 4.0);
        history.push(reading(&first, 4.0, 20.0, 0.25));
        history
    }

    #[test]
    fn sums_means_and_peaks_are_over_all_intervals() {
        let history = two_intervals();
        let measured = history.measured();
        let power = measured.mean.power(Domain::Ane).unwrap();
        assert_eq!((measured.mean.seconds, power.joules, power.watts), (4.0, 10.0, 2.5));
        assert_eq!(measured.peak(Domain::Ane), Some(4.0));
        assert_eq!((measured.mean.power(Domain::Gpu), measured.peak(Domain::Gpu)), (None, None), "never zero");
        let load = measured.mean.load.as_ref().unwrap();
        assert_eq!(load.cores[0], Core { busy: (0.75 + 3.0 * 0.25) / 4.0, mhz: Some(3000) });
        assert_eq!((measured.memory_peak, load.memory_used), (Some(750_000_000), 250_000_000));
        assert_eq!(measured.mean.shares[0].states[1].1, 10.0 / 14.0);
        assert_eq!((measured.intervals, measured.mean.unread.len()), (2, 1));
        assert_eq!(history.watts(Domain::Ane).collect::<Vec<_>>(), [(1.0, 4.0), (4.0, 2.0)]);
        assert_eq!(history.watts(Domain::Gpu).count(), 0);
        let text = measured.to_string();
        for line in [
            "ane            10.000 J      2.500 W mean      4.000 W peak  s",
            "gpu             unknown",
            "time            4.000 s",
            "load             0.38 of 2 cores busy",
            "memory           0.75 GB of 2.00 GB in use at most",
            "unknown: energy of the gpu: no source",
        ] {
            assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
        }
        assert_eq!(history.busy().collect::<Vec<_>>(), [(1.0, 0.375), (4.0, 0.125)]);
    }

    #[test]
    fn a_reset_begins_sums_again_but_not_counters_and_curves() {
        let mut history = two_intervals();
        history.reset();
        let none = history.measured();
        assert_eq!((none.mean.seconds, none.mean.power.len(), none.mean.load, none.intervals), (0.0, 0, None, 0));
        let at = history.last.clone();
        history.push(reading(&at, 2.0, 21.0, 0.5));
        let measured = history.measured();
        let power = measured.mean.power(Domain::Ane).unwrap();
        assert_eq!((measured.mean.seconds, power.joules, power.watts), (2.0, 1.0, 0.5));
        assert_eq!(measured.peak(Domain::Ane), Some(0.5));
        assert_eq!(history.joules().collect::<Vec<_>>(), [(Domain::Ane, "s", 11.0)]);
        assert_eq!((history.watts(Domain::Ane).count(), history.seconds()), (3, 6.0));
    }

    #[test]
    fn curves_are_bounded() {
        let first = reading(&SensorReading::now(), 0.0, 0.0, 0.0);
        let mut history = History::new(first.clone());
        for step in 1..=CURVE + 10 {
            history.push(reading(&first, step as f64, step as f64, 0.5));
        }
        assert_eq!((history.watts(Domain::Ane).count(), history.busy().count()), (CURVE, CURVE));
        assert_eq!(history.watts(Domain::Ane).next(), Some((11.0, 1.0)));
        assert_eq!(history.measured().mean.power(Domain::Ane).unwrap().joules, (CURVE + 10) as f64);
    }

    /// Draws a joule at each reading.
    struct Steady(f64);

    impl Sensor for Steady {
        fn name(&self) -> &str {
            "steady"
        }

        fn read(&mut self, reading: &mut SensorReading) {
            self.0 += 1.0;
            let channel = "steady".to_string();
            reading.energy.push(Energy { domain: Domain::Cpu, channel, source: "steady", joules: self.0 });
        }
    }

    #[test]
    fn work_is_measured_while_it_runs() {
        let mut sensors = Sensors::with(vec![Box::new(Steady(0.0))]);
        let every = Duration::from_millis(20);
        let (value, measured) = measure(&mut sensors, every, || {
            thread::sleep(Duration::from_millis(150));
            7
        });
        assert_eq!(value, 7);
        assert!((0.15..5.0).contains(&measured.mean.seconds), "{measured:?}");
        assert!((3..=8).contains(&measured.intervals), "{measured:?}");
        assert_eq!(measured.mean.power(Domain::Cpu).unwrap().joules, measured.intervals as f64);
        let panics = || measure(&mut sensors, Duration::from_secs(600), || panic!("the work fails"));
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics));
        assert!(ended.is_err(), "and the thread has ended at once");
    }
}
