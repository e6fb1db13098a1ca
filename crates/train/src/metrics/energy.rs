//! What the computer drew, and how warm it was, while a run trained.
//!
//! Invariants: what no source meters is absent and never zero; the records of a process cover its
//! time up to the last of them without pauses, so that the sums in its summary are those of its
//! records. Everything is about the whole computer, as [`ferrane_sensors`] reports it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ferrane_host::sync::lock;
use ferrane_sensors::{Domain, History, Interval, Sensors, Temperature, Unread, energy_text};
use serde::{Deserialize, Serialize};

/// Least time between two records with readings. Shorter updates share one.
const EVERY: Duration = Duration::from_secs(1);
/// Least time of the readings in the last record of a run. Counters advance in steps of about a
/// millisecond, so less would say nothing.
const LEAST: Duration = Duration::from_millis(100);
/// Time after which the sensors are read during an update, before a counter can wrap twice.
const WITHIN: Duration = Duration::from_secs(5);
/// Number of temperatures in a record: a Mac has dozens of sensors.
const HOTTEST: usize = 4;
/// Sums are limited to this magnitude, so that those of a hostile file stay finite.
const LARGEST: f64 = 1e30;

/// What the sensors reported since the previous record that has readings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SensorRecord {
    /// The time of the readings in seconds, without pauses; 0 if the record has only
    /// [`SensorRecord::unread`].
    pub seconds: f64,
    /// Number of tokens trained on in that time.
    pub tokens: u64,
    /// Mean power of each domain that is metered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub power: Vec<PowerRecord>,
    /// The highest temperatures at the end of that time, from the hottest sensor down.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub temperatures: Vec<Temperature>,
    /// What no sensor reads, with the reason. `None` if it is as the records before say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread: Option<Vec<Unread>>,
}

/// The mean power of a domain in the time of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PowerRecord {
    /// The part of the computer that drew it.
    pub domain: Domain,
    /// The source of the counters, such as `RAPL`.
    pub source: String,
    /// The mean, in watts.
    pub watts: f64,
    /// The energy, in joules.
    pub joules: f64,
}

/// The energy of a domain in all records that meter it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EnergySum {
    /// The part of the computer that drew it.
    pub domain: Domain,
    /// The source of the last record's counters.
    pub source: String,
    /// The sum, in joules.
    pub joules: f64,
    /// The time of these records in seconds, without pauses.
    pub seconds: f64,
    /// The mean power over that time, in watts.
    pub watts: f64,
    /// Number of tokens trained on in that time.
    pub tokens: u64,
    /// Joules for each of these tokens; `None` if there are none.
    pub joules_per_token: Option<f64>,
}

impl fmt::Display for EnergySum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {:.1} s, {:.2} W on average", energy_text(self.joules), self.seconds, self.watts)?;
        if let Some(joules) = self.joules_per_token {
            write!(f, ", {} a token", energy_text(joules))?;
        }
        write!(f, ", from {}", self.source)
    }
}

/// The energy of a run by domain. Domains overlap, so it has no total.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunEnergy(BTreeMap<Domain, EnergySum>);

impl RunEnergy {
    /// Adds the readings of a record.
    pub fn add(&mut self, record: &SensorRecord) {
        for power in &record.power {
            let sum = self.0.entry(power.domain).or_insert_with(|| EnergySum {
                domain: power.domain,
                source: String::new(),
                joules: 0.0,
                seconds: 0.0,
                watts: 0.0,
                tokens: 0,
                joules_per_token: None,
            });
            sum.source.clone_from(&power.source);
            sum.joules = (sum.joules + power.joules).clamp(-LARGEST, LARGEST);
            sum.seconds = (sum.seconds + record.seconds).clamp(0.0, LARGEST);
            sum.tokens = sum.tokens.saturating_add(record.tokens);
            sum.watts = if sum.seconds > 0.0 { sum.joules / sum.seconds } else { 0.0 };
            sum.joules_per_token = (sum.tokens > 0).then(|| sum.joules / sum.tokens as f64);
        }
    }

    /// The sums, in the order of [`Domain::ALL`].
    pub fn sums(&self) -> impl Iterator<Item = &EnergySum> {
        self.0.values()
    }

    /// The sum of a domain; `None` if no record meters it.
    pub fn sum(&self, domain: Domain) -> Option<&EnergySum> {
        self.0.get(&domain)
    }
}

/// Reads the sensors between the records of a run.
pub(crate) struct SensorMeter {
    sensors: Sensors,
    /// Everything since the sensors were opened, pauses included.
    history: Arc<Mutex<History>>,
    /// When the sensors were last read.
    at: Instant,
    /// Seconds, and joules with their seconds by domain, since the last record with readings.
    seconds: f64,
    sums: BTreeMap<Domain, (&'static str, f64, f64)>,
    temperatures: Vec<Temperature>,
    unread: Vec<Unread>,
    /// What a record said before.
    said: Vec<Unread>,
    /// Number of tokens of the run at the last record with readings.
    tokens: u64,
    total: RunEnergy,
}

impl SensorMeter {
    /// Reads the sensors for the first time.
    pub(crate) fn new(mut sensors: Sensors) -> SensorMeter {
        let first = sensors.read();
        let unread = first.without_sensor().cloned().collect();
        SensorMeter {
            sensors,
            history: Arc::new(Mutex::new(History::new(first))),
            at: Instant::now(),
            seconds: 0.0,
            sums: BTreeMap::new(),
            temperatures: Vec::new(),
            unread,
            said: Vec::new(),
            tokens: 0,
            total: RunEnergy::default(),
        }
    }

    /// All readings, which another thread may read meanwhile.
    pub(crate) fn history(&self) -> &Arc<Mutex<History>> {
        &self.history
    }

    /// Begins to count now, in a run that has trained on so many tokens.
    pub(crate) fn begin(&mut self, tokens: u64) {
        self.read(false);
        (self.seconds, self.tokens) = (0.0, tokens);
        self.sums.clear();
    }

    /// Reads the sensors if an update or a pause takes long. The energy of a pause does not count.
    pub(crate) fn poll(&mut self, pauses: bool) {
        if self.at.elapsed() >= if pauses { EVERY } else { WITHIN } {
            self.read(!pauses);
        }
    }

    /// Reads the sensors at the begin or the end of a pause.
    pub(crate) fn pause(&mut self, begins: bool) {
        self.read(begins);
    }

    fn read(&mut self, counts: bool) {
        let reading = self.sensors.read();
        self.at = Instant::now();
        self.unread = reading.without_sensor().cloned().collect();
        let mut history = lock(&self.history);
        let interval = history.push(reading);
        self.temperatures.clone_from(&interval.temperatures);
        if counts {
            let interval = interval.clone();
            drop(history);
            self.count(&interval);
        }
    }

    fn count(&mut self, interval: &Interval) {
        self.seconds += interval.seconds;
        for power in Domain::ALL.into_iter().filter_map(|domain| interval.power(domain)) {
            let (source, joules, seconds) = self.sums.entry(power.domain).or_insert((power.source, 0.0, 0.0));
            *source = power.source;
            *joules += power.joules;
            *seconds += interval.seconds;
        }
    }

    /// What came since the last record with readings, in a run that has trained on `tokens` so far;
    /// `None` if that is not long ago and there is no reason to write. `last` is the last record of
    /// the run.
    pub(crate) fn take(&mut self, tokens: u64, last: bool) -> Option<SensorRecord> {
        let least = if last { LEAST } else { EVERY };
        let is_due = self.seconds + self.at.elapsed().as_secs_f64() >= least.as_secs_f64();
        let mut record = SensorRecord::default();
        if is_due {
            self.read(true);
            record.seconds = rounded(self.seconds);
            record.tokens = tokens.saturating_sub(self.tokens);
            let power = |(domain, (source, joules, seconds)): (Domain, (&'static str, f64, f64))| PowerRecord {
                domain,
                source: source.into(),
                watts: rounded(joules / seconds.max(1e-9)),
                joules: rounded(joules),
            };
            record.power = std::mem::take(&mut self.sums).into_iter().map(power).collect();
            record.temperatures = hottest(&self.temperatures);
            self.total.add(&record);
            (self.seconds, self.tokens) = (0.0, tokens);
        }
        if self.said != self.unread {
            self.said.clone_from(&self.unread);
            record.unread = Some(self.unread.clone());
        }
        (is_due || record.unread.is_some()).then_some(record)
    }

    /// The energy of all records of this process.
    pub(crate) fn total(&self) -> &RunEnergy {
        &self.total
    }
}

/// `value` with six digits after the point, so that a line of metrics stays short.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// The highest temperatures, from the hottest sensor down.
fn hottest(temperatures: &[Temperature]) -> Vec<Temperature> {
    let mut sorted = temperatures.to_vec();
    sorted.sort_by(|a, b| b.celsius.total_cmp(&a.celsius).then_with(|| a.sensor.cmp(&b.sensor)));
    sorted.truncate(HOTTEST);
    for temperature in &mut sorted {
        temperature.celsius = (temperature.celsius * 10.0).round() / 10.0;
    }
    sorted
}

#[cfg(test)]
mod tests {
    use std::thread;

    use ferrane_sensors::{Energy, Sensor, SensorReading};

    use super::*;

    /// Draws a joule at each reading, and reports no temperature of the engine.
    struct Steady(f64);

    impl Sensor for Steady {
        fn name(&self) -> &str {
            "steady"
        }

        fn read(&mut self, reading: &mut SensorReading) {
            self.0 += 1.0;
            let channel = "steady".to_string();
            reading.energy.push(Energy { domain: Domain::Package, channel, source: "steady", joules: self.0 });
            let celsius = |(at, sensor): (usize, &str)| Temperature {
                sensor: sensor.into(),
                celsius: 40.04 + ((at * 3) % 7) as f64,
            };
            // Those of the system come after these.
            reading.temperatures = ["a", "b", "c", "d", "e", "f"].into_iter().enumerate().map(celsius).collect();
            reading.unread.push(Unread { what: "energy of the gpu".into(), why: "no source".into() });
        }
    }

    fn meter() -> SensorMeter {
        let mut meter = SensorMeter::new(Sensors::with(vec![Box::new(Steady(0.0))]));
        meter.begin(1000);
        meter
    }

    #[test]
    fn records_have_what_came_since_the_last_one_with_readings() {
        let mut meter = meter();
        let first = meter.take(1010, false).unwrap();
        assert_eq!((first.seconds, first.tokens, first.power.len(), first.temperatures.len()), (0.0, 0, 0, 0));
        let ours = |unread: &Unread| unread.what == "energy of the gpu" && unread.why == "no source";
        assert!(first.unread.unwrap().iter().any(ours), "the reason is in the first record");
        assert_eq!(meter.take(1020, false), None, "too early");
        thread::sleep(EVERY);
        meter.read(true);
        let second = meter.take(1040, false).unwrap();
        assert!((1.0..60.0).contains(&second.seconds) && second.unread.is_none(), "{second:?}");
        let power = &second.power[0];
        assert_eq!((power.domain, power.source.as_str(), second.tokens), (Domain::Package, "steady", 40));
        assert_eq!(power.joules, 2.0, "both readings");
        assert!((power.watts - 2.0 / second.seconds).abs() < 1e-4, "{second:?}");
        assert_eq!(second.power.len(), 1, "what is not metered is absent");
        let names: Vec<_> = second.temperatures.iter().take(2).map(|t| (t.sensor.as_str(), t.celsius)).collect();
        assert!(
            second.temperatures.len() == HOTTEST && second.temperatures.is_sorted_by(|a, b| a.celsius >= b.celsius)
        );
        assert!(names.contains(&("c", 46.0)) || second.temperatures[0].celsius > 46.0, "{second:?}");
        // A record soon after has none, unless it is the last one of the run.
        thread::sleep(LEAST);
        assert_eq!(meter.take(1050, false), None);
        let last = meter.take(1060, true).unwrap();
        assert_eq!((last.power[0].joules, last.tokens), (1.0, 20));
        assert_eq!(meter.take(1060, true), None, "too short to say anything");
        let sum = meter.total().sum(Domain::Package).unwrap();
        assert_eq!((sum.joules, sum.tokens, sum.joules_per_token), (3.0, 60, Some(0.05)));
        assert!((sum.seconds - second.seconds - last.seconds).abs() < 1e-9);
        assert_eq!(meter.total().sum(Domain::Gpu), None);
    }

    #[test]
    fn pauses_and_the_time_before_do_not_count() {
        let mut meter = meter();
        thread::sleep(LEAST);
        meter.pause(true);
        thread::sleep(EVERY);
        meter.poll(true);
        meter.pause(false);
        let record = meter.take(1000, true).unwrap();
        assert_eq!(record.power[0].joules, 2.0, "the one before the pause and that of the record");
        assert!(record.seconds < 1.0, "{record:?}");
        let counted = lock(meter.history()).joules().map(|(_, _, joules)| joules).collect::<Vec<_>>();
        assert_eq!(counted, [5.0], "the counters have all of it");
    }

    #[test]
    fn a_reason_is_written_again_only_if_it_changes() {
        let mut meter = meter();
        assert!(meter.take(1000, false).is_some_and(|record| record.unread.is_some()));
        assert_eq!(meter.take(1000, false), None);
        meter.unread.clear();
        let cleared = meter.take(1000, false).unwrap();
        assert_eq!(cleared.unread, Some(Vec::new()));
        let text = serde_json::to_string(&cleared).unwrap();
        assert_eq!(serde_json::from_str::<SensorRecord>(&text).unwrap(), cleared, "{text}");
    }

    #[test]
    fn sums_of_a_hostile_file_stay_finite() {
        let mut energy = RunEnergy::default();
        let power = |joules: f64| PowerRecord { domain: Domain::Ane, source: "s".into(), watts: joules, joules };
        for joules in [f64::MAX, f64::MAX, f64::MIN] {
            let record = SensorRecord { seconds: joules, tokens: u64::MAX, ..SensorRecord::default() };
            energy.add(&SensorRecord { power: vec![power(joules); 2], ..record });
        }
        let sum = energy.sum(Domain::Ane).unwrap();
        assert!(sum.joules.is_finite() && sum.seconds.is_finite() && sum.watts.is_finite(), "{sum:?}");
        assert!(!sum.to_string().is_empty());
    }
}
