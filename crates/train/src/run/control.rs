//! Requests to a run from another thread, and how the loop meets them.
//!
//! The loop looks at its requests before each micro-step. The weights, moments and state are those
//! of the last update then, so a checkpoint or a sample is the same as between two updates.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ferrane_llm::config::Config;
use ferrane_llm::weights::Weights;
use ferrane_sensors::{History, Sensors};

use super::{Event, Run};
use crate::metrics::{Record, SensorMeter, Sink};

/// Time between two looks at the requests of a paused run.
const LOOK: Duration = Duration::from_millis(20);

/// A handle that pauses a run and requests checkpoints and samples. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct Control(Arc<Requests>);

#[derive(Debug, Default)]
struct Requests {
    paused: AtomicBool,
    save: AtomicBool,
    sample: AtomicBool,
}

impl Control {
    /// Pauses the run before its next micro-step, or lets it continue. A stop ends the pause, too.
    pub fn pause(&self, paused: bool) {
        self.0.paused.store(paused, Ordering::SeqCst);
    }

    /// Whether the run is to pause.
    pub fn is_paused(&self) -> bool {
        self.0.paused.load(Ordering::SeqCst)
    }

    /// Requests a checkpoint of the last update, which is written before the next micro-step, or,
    /// if the moments are sharded over ranks, after the next update.
    pub fn save(&self) {
        self.0.save.store(true, Ordering::SeqCst);
    }

    /// Requests a text by the model as of the last update, which [`Event::Sampled`] returns.
    pub fn sample(&self) {
        self.0.sample.store(true, Ordering::SeqCst);
    }
}

/// Writes a text with the given weights; the number is that of the updates done. The error is a
/// clause.
pub(crate) type SampleText = Box<dyn Fn(&Config, &Weights, u64) -> Result<String, String> + Send>;

impl Run {
    /// Lets `control` pause the run and request checkpoints and samples.
    #[must_use]
    pub fn with_control(mut self, control: &Control) -> Self {
        self.control = control.clone();
        self
    }

    /// Also writes every record to `sink`. One that fails is dropped with a warning.
    #[must_use]
    pub fn with_sink(mut self, sink: Box<dyn Sink + Send>) -> Self {
        self.sinks.push(sink);
        self
    }

    /// Reads these sensors while the run trains: records get what the computer draws and how warm
    /// it is. With several ranks, the first one reads its own computer.
    #[must_use]
    pub fn with_sensors(mut self, sensors: Sensors) -> Self {
        self.sensors = self.ranks.is_first().then(|| SensorMeter::new(sensors));
        self
    }

    /// All readings of the sensors, if the run reads some. It grows while the run trains.
    pub fn sensor_history(&self) -> Option<Arc<Mutex<History>>> {
        self.sensors.as_ref().map(|sensors| sensors.history().clone())
    }

    /// Reads the sensors if the last reading is some seconds old.
    pub(super) fn sense(&mut self) {
        if let Some(sensors) = &mut self.sensors {
            sensors.poll(false);
        }
    }

    /// Lets the run write samples.
    pub(crate) fn with_samples(mut self, text: SampleText) -> Self {
        self.text = Some(text);
        self
    }

    /// Meets the requests; returns when the run is not paused, or is to stop.
    pub(super) fn attend(&mut self, events: &mut dyn FnMut(&Event), stop: &AtomicBool) {
        let mut since: Option<Instant> = None;
        self.sense();
        loop {
            let requests = self.control.0.clone();
            if requests.save.swap(false, Ordering::SeqCst) {
                self.save_on_request(events);
            }
            if requests.sample.swap(false, Ordering::SeqCst) {
                self.sample(events);
            }
            let step = self.state.step;
            match (self.control.is_paused() && !stop.load(Ordering::Relaxed), since) {
                (true, None) => {
                    self.emit(&Event::Paused { step }, events);
                    since = Some(Instant::now());
                    self.sensors.iter_mut().for_each(|sensors| sensors.pause(true));
                }
                (true, Some(_)) => self.sensors.iter_mut().for_each(|sensors| sensors.poll(true)),
                (false, None) => return,
                (false, Some(begun)) => {
                    let time = begun.elapsed();
                    self.paused += time;
                    self.meter.pause(time);
                    self.sensors.iter_mut().for_each(|sensors| sensors.pause(false));
                    self.emit(&Event::Continued { step }, events);
                    return;
                }
            }
            std::thread::sleep(LOOK);
        }
    }

    fn save_on_request(&mut self, events: &mut dyn FnMut(&Event)) {
        match self.saved.clone() {
            Some((step, path)) if step == self.state.step => self.emit(&Event::Saved { path, step }, events),
            // The other ranks are asked after the update.
            _ if self.is_sharded() => self.save_requested = true,
            _ => {
                self.state.seconds = self.since.1 + self.since.0.elapsed().as_secs_f64();
                self.save_or_warn(events);
            }
        }
    }

    /// Saves a checkpoint; a failure emits a warning.
    pub(super) fn save_or_warn(&mut self, events: &mut dyn FnMut(&Event)) {
        if let Err(error) = self.save(events) {
            let text = format!("the checkpoint could not be written; the previous one is kept: {error}");
            self.emit(&Event::Warning { text }, events);
        }
    }

    /// Writes a text for the next record.
    pub(super) fn sample(&mut self, events: &mut dyn FnMut(&Event)) {
        let step = self.state.step;
        let found = match &self.text {
            Some(text) => text(&self.config, &self.weights, step),
            None => Err("the run has no tokenizer".to_string()),
        };
        match found {
            Ok(text) => {
                self.emit(&Event::Sampled { step, text: text.clone() }, events);
                self.sampled = Some(text);
            }
            Err(reason) => self.emit(&Event::Warning { text: format!("no sample: {reason}") }, events),
        }
    }

    /// Emits an event, and notes it in the next record.
    pub(super) fn emit(&mut self, event: &Event, events: &mut dyn FnMut(&Event)) {
        if let Some(text) = event.note() {
            self.meter.note(text);
        }
        events(event);
    }

    /// Adds to a record what came since the previous one, and writes it to `metrics.jsonl` and the
    /// sinks. A sink that fails is dropped; the run continues.
    pub(super) fn write_record(&mut self, record: &mut Record, events: &mut dyn FnMut(&Event)) {
        record.sample = self.sampled.take();
        let mut process = self.meter.take(&self.efficiency, self.options.steps);
        process.ranks_ms = self.rank_seconds.drain(..).map(|seconds| (1e6 * seconds).round() / 1e3).collect();
        let last = record.step >= self.options.steps;
        process.sensors = self.sensors.as_mut().and_then(|sensors| sensors.take(record.tokens, last));
        record.process = Some(process);
        let mut failures = Vec::new();
        if let Some(Err(error)) = self.lines.as_mut().map(|lines| lines.record(record)) {
            self.lines = None;
            failures.push(format!("metrics.jsonl could not be written and gets no more records: {error}"));
        }
        self.sinks.retain_mut(|sink| match sink.record(record) {
            Ok(()) => true,
            Err(error) => {
                failures.push(format!("{error}; it gets no more records"));
                false
            }
        });
        for text in failures {
            self.emit(&Event::Warning { text }, events);
        }
    }
}
