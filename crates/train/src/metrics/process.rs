//! What an update cost on the computer that it ran on.

use std::time::{Duration, Instant};

use ferrane_host::memory;
use serde::{Deserialize, Serialize};

use super::efficiency::PARTS;
use super::{Efficiency, SensorRecord};

/// Largest number of events that one record lists, and of bytes of each.
const MOST_NOTES: usize = 50;
const MOST_BYTES: usize = 500;

/// Times, rates and resources since the previous record.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessRecord {
    /// Number of updates of the whole run, as planned.
    pub steps: u64,
    /// Wall time since the previous record of this process, pauses excluded, in seconds.
    pub seconds: f64,
    /// GFLOP/s of forward and backward passes over the time of the micro-steps.
    pub gflops: f64,
    /// Mean number of busy cores; `None` if the system does not report processor time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<f64>,
    /// Resident memory in bytes: the current one, or the peak where the system reports only that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident: Option<u64>,
    /// Times of the parts.
    pub parts_ms: PartTimes,
    /// Milliseconds in which each rank computed its windows of this update, if there are several
    /// ranks. The slowest one determines the time of the update.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks_ms: Vec<f64>,
    /// What the sensors of the computer reported. `None` if the run reads none, or if the previous
    /// record with readings is less than a second old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sensors: Option<SensorRecord>,
    /// Events since the previous record, a line each: warnings, checkpoints, pauses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Milliseconds by part of an update, as [`Efficiency`] counts them. Parts that took no time are
/// left out of the JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields of `Efficiency` with the same names describe them")]
pub struct PartTimes {
    #[serde(skip_serializing_if = "is_zero")]
    pub device_forward: f64,
    #[serde(skip_serializing_if = "is_zero")]
    pub device_backward: f64,
    #[serde(skip_serializing_if = "is_zero")]
    pub staging: f64,
    #[serde(skip_serializing_if = "is_zero")]
    pub elementwise: f64,
    #[serde(skip_serializing_if = "is_zero")]
    pub classifier: f64,
    #[serde(skip_serializing_if = "is_zero")]
    pub weight_gradients: f64,
    #[serde(skip_serializing_if = "is_zero")]
    pub waiting: f64,
    #[serde(skip_serializing_if = "is_zero")]
    pub compile: f64,
    #[serde(skip_serializing_if = "is_zero")]
    pub optimizer: f64,
    #[serde(skip_serializing_if = "is_zero")]
    pub exchange: f64,
    #[serde(skip_serializing_if = "is_zero")]
    pub validation: f64,
    #[serde(skip_serializing_if = "is_zero")]
    pub checkpoints: f64,
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// `value` with three decimals, so that a line of metrics stays short.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

impl PartTimes {
    /// The time between two states of the same run.
    fn between(before: &Efficiency, now: &Efficiency) -> PartTimes {
        let ms = |part: fn(&Efficiency) -> f64| rounded(1e3 * (part(now) - part(before)));
        PartTimes {
            device_forward: ms(|e| e.device_forward),
            device_backward: ms(|e| e.device_backward),
            staging: ms(|e| e.staging),
            elementwise: ms(|e| e.elementwise),
            classifier: ms(|e| e.classifier),
            weight_gradients: ms(|e| e.weight_gradients),
            waiting: ms(|e| e.waiting),
            compile: ms(|e| e.compile),
            optimizer: ms(|e| e.optimizer),
            exchange: ms(|e| e.exchange),
            validation: ms(|e| e.validation),
            checkpoints: ms(|e| e.checkpoints),
        }
    }

    /// The parts with their names, in milliseconds, in the order of the report.
    pub fn parts(&self) -> [(&'static str, f64); PARTS.len()] {
        let ms = [
            self.device_forward,
            self.device_backward,
            self.staging,
            self.elementwise,
            self.classifier,
            self.weight_gradients,
            self.waiting,
            self.compile,
            self.optimizer,
            self.exchange,
            self.validation,
            self.checkpoints,
        ];
        std::array::from_fn(|at| (PARTS[at], ms[at]))
    }
}

/// Measures the time between two records.
pub(crate) struct Meter {
    before: Efficiency,
    at: Instant,
    cpu: Option<Duration>,
    paused: Duration,
    notes: Vec<String>,
}

impl Meter {
    /// Begins to measure now.
    pub(crate) fn new(efficiency: &Efficiency) -> Meter {
        Meter {
            before: efficiency.clone(),
            at: Instant::now(),
            cpu: memory::cpu_time(),
            paused: Duration::ZERO,
            notes: Vec::new(),
        }
    }

    /// Adds an event to the next record, unless that has many already.
    pub(crate) fn note(&mut self, mut text: String) {
        if self.notes.len() < MOST_NOTES {
            let end = (0..=text.len().min(MOST_BYTES)).rev().find(|end| text.is_char_boundary(*end));
            text.truncate(end.unwrap_or(0));
            self.notes.push(text);
        }
    }

    /// Excludes a pause from the time of the next record.
    pub(crate) fn pause(&mut self, time: Duration) {
        self.paused += time;
    }

    /// What happened since the previous call, in a run of `steps` updates.
    pub(crate) fn take(&mut self, now: &Efficiency, steps: u64) -> ProcessRecord {
        let (at, cpu) = (Instant::now(), memory::cpu_time());
        let seconds = at.duration_since(self.at).saturating_sub(self.paused).as_secs_f64();
        let busy = cpu.zip(self.cpu).map(|(now, before)| now.saturating_sub(before).as_secs_f64());
        let operations = now.flops.total() * (now.micro_steps - self.before.micro_steps) as f64;
        let record = ProcessRecord {
            steps,
            seconds: rounded(1e3 * seconds) / 1e3,
            gflops: rounded(operations / 1e9 / (now.steps - self.before.steps).max(1e-9)),
            cores: busy.map(|busy| rounded(busy / seconds.max(1e-9))),
            resident: memory::resident().or_else(memory::peak_resident).map(|bytes| bytes as u64),
            parts_ms: PartTimes::between(&self.before, now),
            ranks_ms: Vec::new(),
            sensors: None,
            notes: std::mem::take(&mut self.notes),
        };
        *self = Meter::new(now);
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Flops;
    use crate::step::Parts;

    #[test]
    fn a_record_has_what_came_since_the_one_before() {
        let mut sum = Efficiency::new(Flops { layers: 1e9, attention: 0.0, classifier: 0.0, frozen: false });
        let parts = Parts { device_forward: Duration::from_millis(250), ..Parts::default() };
        sum.micro_step(&parts, Duration::from_millis(500), 10);
        let mut meter = Meter::new(&sum);
        (0..2).for_each(|_| sum.micro_step(&parts, Duration::from_millis(500), 10));
        sum.optimizer += 0.25;
        meter.note("é".repeat(MOST_BYTES));
        (0..100).for_each(|_| meter.note("saved".into()));
        meter.pause(Duration::from_secs(3600));
        let record = meter.take(&sum, 7);
        assert_eq!((record.steps, record.gflops, record.seconds), (7, 6.0, 0.0));
        assert_eq!((record.parts_ms.device_forward, record.parts_ms.optimizer), (500.0, 250.0));
        assert_eq!((record.notes.len(), record.notes[0].len()), (MOST_NOTES, MOST_BYTES));
        assert_eq!(record.parts_ms.parts()[0], ("device forward", 500.0));
        let text = serde_json::to_string(&record).unwrap();
        assert!(!text.contains("staging"), "{text}");
        assert_eq!(serde_json::from_str::<ProcessRecord>(&text).unwrap(), record);
        let next = meter.take(&sum, 7);
        assert_eq!((next.gflops, next.parts_ms, next.notes.len()), (0.0, PartTimes::default(), 0));
    }
}
