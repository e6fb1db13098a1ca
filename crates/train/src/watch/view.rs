//! What a dashboard shows of a run.

use std::collections::{BTreeMap, VecDeque};

use ferrane_sensors::{Domain, Temperature, Unread};

use super::Series;
use crate::metrics::{PartTimes, PowerRecord, Record, RunEnergy, SensorRecord};

/// Largest number of lines of the log.
const LINES: usize = 2000;
/// Largest number of texts that are held.
const SAMPLES: usize = 50;
/// Largest number of characters of a line or a text.
const CHARACTERS: usize = 4000;
/// Largest number of reasons why something is unknown, and of characters of a sensor's name.
const REASONS: usize = 32;
const NAME: usize = 100;
/// Number of updates over which times and the loss are averaged.
const AVERAGED: usize = 32;

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Number of updates done.
    pub step: u64,
    /// What the line is about.
    pub kind: LogKind,
    /// The line, without control characters.
    pub text: String,
}

/// What a line of the log is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogKind {
    /// Checkpoints, pauses, the beginning.
    Note,
    /// The loss of a validation.
    Validation,
    /// A text by the model.
    Sample,
    /// A skipped update, or another warning.
    Warning,
}

/// The state of a run as its records show it.
#[derive(Debug, Clone, Default)]
pub struct RunView {
    /// Training loss in nats per token.
    pub loss: Series,
    /// Validation loss in nats per token.
    pub validation: Series,
    /// Gradient norm before clipping.
    pub gradient_norm: Series,
    /// Learning rate of each update, as scheduled.
    pub learning_rate: Series,
    /// Tokens per second of each update, optimizer and staging included.
    pub speed: Series,
    /// GFLOP/s of forward and backward passes.
    pub gflops: Series,
    /// Number of busy cores.
    pub cores: Series,
    /// Resident memory in bytes.
    pub resident: Series,
    /// The highest temperature of a sensor in °C.
    pub hottest: Series,
    power: BTreeMap<Domain, Series>,
    energy: RunEnergy,
    /// The last readings, with clean texts; `None` if the run reads no sensors.
    sensors: Option<SensorRecord>,
    peak: Option<Temperature>,
    last: Option<Record>,
    first: Option<u64>,
    records: u64,
    bad: u64,
    skipped: u64,
    best: Option<(u64, f64)>,
    planned: Option<u64>,
    recent: VecDeque<(Option<f64>, f64, PartTimes)>,
    log: VecDeque<LogLine>,
    samples: VecDeque<(u64, String)>,
    lines_ever: u64,
    samples_ever: u64,
}

/// `text` without control characters, except for line breaks, and not longer than it may be.
fn clean(text: &str) -> String {
    // The marks that change the direction of a text would also change what follows it.
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let kept = |c: &char| *c == '\n' || !(c.is_control() || turns(*c));
    text.chars().map(|c| if c == '\t' { ' ' } else { c }).filter(kept).take(CHARACTERS).collect()
}

impl RunView {
    /// A run without records.
    pub fn new() -> RunView {
        RunView::default()
    }

    /// Adds a record. One whose step is not later than all before is counted as a line that is no
    /// record.
    pub fn push(&mut self, record: Record) {
        let step = record.step;
        if self.last.as_ref().is_some_and(|last| last.step >= step) {
            return self.push_bad();
        }
        self.records += 1;
        self.first.get_or_insert(step);
        let process = record.process.as_ref();
        for (series, value) in [
            (&mut self.loss, record.loss),
            (&mut self.validation, record.valid_loss),
            (&mut self.gradient_norm, record.grad_norm),
            (&mut self.learning_rate, Some(record.lr)),
            (&mut self.speed, Some(record.tokens_per_second)),
            (&mut self.gflops, process.map(|p| p.gflops)),
            (&mut self.cores, process.and_then(|p| p.cores)),
            (&mut self.resident, process.and_then(|p| p.resident).map(|bytes| bytes as f64)),
        ] {
            if let Some(value) = value {
                series.push(step, value);
            }
        }
        if let Some(sensors) = process.and_then(|p| p.sensors.as_ref()) {
            self.readings(step, sensors);
        }
        self.planned = process.map(|p| p.steps).filter(|steps| *steps > 0).or(self.planned);
        let (seconds, parts) = process.map_or((0.0, PartTimes::default()), |p| (p.seconds, p.parts_ms));
        self.recent.push_back((record.loss, seconds, parts));
        if self.recent.len() > AVERAGED {
            self.recent.pop_front();
        }
        for note in process.map_or(&[][..], |p| p.notes.as_slice()) {
            let kind = if note.starts_with("warning: ") { LogKind::Warning } else { LogKind::Note };
            self.log(step, kind, note);
        }
        if record.skipped {
            self.skipped += 1;
            let text = format!("update {step} skipped: not finite at loss scale {}", record.loss_scale);
            self.log(step, LogKind::Warning, &text);
        }
        if let Some(loss) = record.valid_loss {
            if self.best.is_none_or(|(_, best)| loss < best) {
                self.best = Some((step, loss));
            }
            self.log(step, LogKind::Validation, &format!("validation loss {loss:.4} after update {step}"));
        }
        if let Some(text) = &record.sample {
            self.sample(step, text);
        }
        self.last = Some(Record { sample: None, process: None, ..record });
    }

    fn readings(&mut self, step: u64, record: &SensorRecord) {
        let name = |text: &str| clean(text).replace('\n', " ").chars().take(NAME).collect::<String>();
        let last = self.sensors.get_or_insert_default();
        if let Some(unread) = &record.unread {
            let line = |text: &str| clean(text).replace('\n', " ");
            let unread = unread.iter().take(REASONS).map(|u| Unread { what: line(&u.what), why: line(&u.why) });
            last.unread = Some(unread.collect());
        }
        if record.seconds <= 0.0 {
            return;
        }
        let power = record.power.iter().take(Domain::ALL.len());
        last.power = power.map(|p| PowerRecord { source: name(&p.source), ..p.clone() }).collect();
        let hottest = record.temperatures.iter().max_by(|a, b| a.celsius.total_cmp(&b.celsius));
        let hottest = hottest.map(|t| Temperature { sensor: name(&t.sensor), ..*t });
        last.temperatures = hottest.clone().into_iter().collect();
        (last.seconds, last.tokens) = (record.seconds, record.tokens);
        self.energy.add(&SensorRecord { unread: None, ..last.clone() });
        for power in &last.power {
            self.power.entry(power.domain).or_default().push(step, power.watts);
        }
        if let Some(hottest) = hottest {
            self.hottest.push(step, hottest.celsius);
            if self.peak.as_ref().is_none_or(|peak| peak.celsius < hottest.celsius) {
                self.peak = Some(hottest);
            }
        }
    }

    /// Counts a line that is no record.
    pub fn push_bad(&mut self) {
        self.bad += 1;
    }

    /// Adds a text by the model, which may come before the record that has it.
    pub fn sample(&mut self, step: u64, text: &str) {
        let text = clean(text);
        if self.samples.back().is_some_and(|(_, last)| *last == text) {
            return;
        }
        self.samples_ever += 1;
        self.samples.push_back((step, text));
        if self.samples.len() > SAMPLES {
            self.samples.pop_front();
        }
        self.log(step, LogKind::Sample, &format!("sample after update {step}"));
    }

    /// Adds a line to the log, with spaces for line breaks.
    pub fn log(&mut self, step: u64, kind: LogKind, text: &str) {
        self.lines_ever += 1;
        self.log.push_back(LogLine { step, kind, text: clean(text).replace('\n', " ") });
        if self.log.len() > LINES {
            self.log.pop_front();
        }
    }

    /// The last record, without sample and process.
    pub fn last(&self) -> Option<&Record> {
        self.last.as_ref()
    }

    /// The first and the last step.
    pub fn steps(&self) -> Option<(u64, u64)> {
        Some((self.first?, self.last.as_ref()?.step))
    }

    /// Number of records so far, skipped updates included.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Number of lines that are no records.
    pub fn bad_lines(&self) -> u64 {
        self.bad
    }

    /// Number of skipped updates.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Number of updates of the whole run, if the records state it.
    pub fn planned(&self) -> Option<u64> {
        self.planned
    }

    /// Whether the last planned update is done.
    pub fn is_complete(&self) -> bool {
        self.planned.zip(self.last()).is_some_and(|(planned, last)| last.step >= planned)
    }

    /// The step and the value of the smallest validation loss.
    pub fn best_validation(&self) -> Option<(u64, f64)> {
        self.best
    }

    /// Mean loss of the last updates.
    pub fn mean_loss(&self) -> Option<f64> {
        let losses: Vec<f64> = self.recent.iter().filter_map(|r| r.0).collect();
        (!losses.is_empty()).then(|| losses.iter().map(|l| l / losses.len() as f64).sum())
    }

    /// Mean milliseconds of the last updates, and of their parts; `None` if the records have no
    /// times.
    pub fn times(&self) -> Option<(f64, Vec<(&'static str, f64)>)> {
        let timed: Vec<_> = self.recent.iter().filter(|r| r.1 > 0.0).collect();
        let count = timed.len() as f64;
        let parts: Vec<_> = timed.iter().map(|r| r.2.parts()).collect();
        let mean = |at: usize| parts.iter().map(|p| p[at].1 / count).sum::<f64>();
        let names = parts.first()?.iter().enumerate();
        let means = names.map(|(at, (name, _))| (*name, mean(at))).collect();
        Some((timed.iter().map(|r| 1e3 * r.1 / count).sum(), means))
    }

    /// Estimated seconds until the last planned update, at the mean speed of the last ones.
    pub fn seconds_left(&self) -> Option<f64> {
        let left = self.planned?.saturating_sub(self.last.as_ref()?.step);
        Some(left as f64 * self.times()?.0 / 1e3)
    }

    /// The last readings of the sensors: power by domain, the hottest sensor, and why something is
    /// unknown. `None` if the records have none.
    pub fn sensors(&self) -> Option<&SensorRecord> {
        self.sensors.as_ref()
    }

    /// The mean power of each domain that is metered, in watts.
    pub fn power(&self) -> impl Iterator<Item = (Domain, &Series)> {
        self.power.iter().map(|(domain, series)| (*domain, series))
    }

    /// The energy of all records that have readings.
    pub fn energy(&self) -> &RunEnergy {
        &self.energy
    }

    /// Why the power is unknown, as a clause; `None` if a domain is metered, or if the records do
    /// not say it.
    pub fn why_no_power(&self) -> Option<String> {
        let last = self.sensors.as_ref().filter(|last| last.power.is_empty())?;
        let reasons: Vec<String> = last.unread.iter().flatten().map(Unread::to_string).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// The highest temperature of the run, with its sensor.
    pub fn highest_temperature(&self) -> Option<&Temperature> {
        self.peak.as_ref()
    }

    /// The lines of the log, the oldest first.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = &LogLine> {
        self.log.iter()
    }

    /// The texts of the model with their steps, the oldest first.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = &(u64, String)> {
        self.samples.iter()
    }

    /// Number of lines that the log has had, with those that [`RunView::lines`] has no more.
    pub fn lines_ever(&self) -> u64 {
        self.lines_ever
    }

    /// Number of texts that there were, with those that [`RunView::samples`] has no more.
    pub fn samples_ever(&self) -> u64 {
        self.samples_ever
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::ProcessRecord;

    fn record(step: u64) -> Record {
        let parts_ms = PartTimes { device_forward: 3.0, optimizer: 1.0, ..PartTimes::default() };
        let process = ProcessRecord { steps: 100, seconds: 0.01, gflops: 5.0, parts_ms, ..ProcessRecord::default() };
        Record { step, loss: Some(2.0), process: Some(process), ..Record::default() }
    }

    #[test]
    fn numbers_of_the_last_updates() {
        let mut view = RunView::new();
        assert!(view.times().is_none() && view.seconds_left().is_none() && view.steps().is_none());
        (1..=50).for_each(|step| view.push(record(step)));
        view.push(Record { valid_loss: Some(1.5), loss: None, skipped: true, ..record(60) });
        view.push(Record { valid_loss: Some(1.75), ..record(61) });
        assert_eq!((view.steps(), view.planned(), view.skipped()), (Some((1, 61)), Some(100), 1));
        assert_eq!(view.best_validation(), Some((60, 1.5)));
        assert!((view.mean_loss().unwrap() - 2.0).abs() < 1e-9);
        let (update, parts) = view.times().unwrap();
        assert!((update - 10.0).abs() < 1e-9 && (parts[0].1 - 3.0).abs() < 1e-9 && parts[0].0 == "device forward");
        assert!((view.seconds_left().unwrap() - 0.39).abs() < 1e-9 && !view.is_complete());
        view.push(record(100));
        assert!(view.is_complete());
        let kinds: Vec<LogKind> = view.lines().map(|line| line.kind).collect();
        assert_eq!(kinds, [LogKind::Warning, LogKind::Validation, LogKind::Validation]);
    }

    fn read(step: u64, sensors: SensorRecord) -> Record {
        let mut record = record(step);
        record.process.as_mut().unwrap().sensors = Some(sensors);
        record
    }

    #[test]
    fn readings_are_summed_and_the_last_ones_are_shown() {
        let mut view = RunView::new();
        view.push(record(1));
        assert!(view.sensors().is_none() && view.why_no_power().is_none() && view.power().next().is_none());
        let why = Unread { what: "energy\u{1b} of the gpu".into(), why: "no\nsource".into() };
        view.push(read(2, SensorRecord { unread: Some(vec![why]), ..SensorRecord::default() }));
        assert_eq!(view.why_no_power().as_deref(), Some("energy of the gpu: no source"));
        let power = |watts: f64, joules: f64| PowerRecord { domain: Domain::Ane, source: "s".into(), watts, joules };
        let hot = |sensor: &str, celsius: f64| Temperature { sensor: sensor.into(), celsius };
        let temperatures = vec![hot("a", 40.0), hot("b\u{7}", 60.0)];
        let readings =
            SensorRecord { seconds: 2.0, tokens: 10, power: vec![power(3.0, 6.0)], ..SensorRecord::default() };
        view.push(read(3, SensorRecord { temperatures, ..readings.clone() }));
        view.push(read(
            4,
            SensorRecord { power: vec![power(5.0, 10.0)], temperatures: vec![hot("a", 50.0)], ..readings },
        ));
        view.push(record(5));
        let sum = view.energy().sum(Domain::Ane).unwrap();
        assert_eq!((sum.joules, sum.seconds, sum.watts, sum.joules_per_token), (16.0, 4.0, 4.0, Some(0.8)));
        assert_eq!(sum.to_string(), "16.0 J in 4.0 s, 4.00 W on average, 800.0 mJ a token, from s");
        let last = view.sensors().unwrap();
        assert_eq!((last.power[0].watts, &last.temperatures[..]), (5.0, &[hot("a", 50.0)][..]));
        assert_eq!((view.highest_temperature(), view.why_no_power()), (Some(&hot("b", 60.0)), None));
        let points = |series: &Series| series.points(1, 9, 9);
        assert_eq!(points(view.power().next().unwrap().1), [(3.0, 3.0), (4.0, 5.0)]);
        assert_eq!(points(&view.hottest), [(3.0, 60.0), (4.0, 50.0)]);
        // A process that may not read the counters any more.
        let why = vec![Unread { what: "energy".into(), why: "denied".into() }];
        view.push(read(6, SensorRecord { seconds: 1.0, unread: Some(why), ..SensorRecord::default() }));
        assert_eq!(view.why_no_power().as_deref(), Some("energy: denied"));
        assert_eq!(view.energy().sums().count(), 1, "what was drawn before stays");
    }

    #[test]
    fn readings_of_a_hostile_file_are_bounded() {
        let mut view = RunView::new();
        let text = "\u{1b}[2J\u{202e}x\n".repeat(1000);
        let why = Unread { what: text.clone(), why: text.clone() };
        let power = PowerRecord { domain: Domain::Gpu, source: text.clone(), watts: f64::MAX, joules: f64::MIN };
        let hot = Temperature { sensor: text, celsius: f64::MAX };
        for step in 1..100 {
            view.push(read(
                step,
                SensorRecord {
                    seconds: f64::MAX,
                    tokens: u64::MAX,
                    power: vec![power.clone(); 1000],
                    temperatures: vec![hot.clone(); 1000],
                    unread: Some(vec![why.clone(); 1000]),
                },
            ));
        }
        let last = view.sensors().unwrap();
        assert_eq!((last.power.len(), last.unread.as_ref().unwrap().len()), (Domain::ALL.len(), REASONS));
        let texts = last.unread.iter().flatten().flat_map(|u| [&u.what, &u.why]);
        let mut texts =
            texts.chain(last.power.iter().map(|p| &p.source)).chain(last.temperatures.iter().map(|t| &t.sensor));
        assert!(texts.all(|t| t.len() <= 4 * CHARACTERS && !t.contains(|c: char| c.is_control() || c == '\u{202e}')));
        assert!(view.energy().sums().all(|sum| sum.joules.is_finite() && sum.source.len() <= 4 * NAME));
    }

    #[test]
    fn texts_are_bounded_and_cannot_control_a_terminal() {
        let mut view = RunView::new();
        for step in 1..3000 {
            let mut record = Record { sample: Some(format!("\u{1b}[2J\u{9b}{step}\ta\nb")), ..record(step) };
            record.process.as_mut().unwrap().notes = vec!["warning: \u{7}\u{202e}x\ny".repeat(1000)];
            view.push(record);
        }
        assert_eq!((view.lines().len(), view.samples().len()), (LINES, SAMPLES));
        assert_eq!(view.samples().last().unwrap().1, "[2J2999 a\nb");
        assert!(
            view.lines().all(
                |l| l.text.len() <= 4 * CHARACTERS && !l.text.contains(|c: char| c.is_control() || c == '\u{202e}')
            )
        );
        // The same text before its record and in it is one sample.
        view.sample(3000, "once");
        view.push(Record { sample: Some("once".into()), ..record(3000) });
        assert_eq!(view.samples().filter(|(_, text)| text == "once").count(), 1);
    }
}
