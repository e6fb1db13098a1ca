//! The last record of a run in the text format of OpenMetrics, which Prometheus reads.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use ferrane_host::sync::lock;
use ferrane_sensors::History;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::{Record, Sink};

/// What Prometheus reads of a run: counters of updates and tokens, and the numbers of the last
/// update. Clones share one state, so that one can be a sink and another one write the text.
#[derive(Clone, Debug, Default)]
pub struct RunMetrics {
    state: Arc<Mutex<RunState>>,
    sensors: Option<Arc<Mutex<History>>>,
}

#[derive(Debug, Default)]
struct RunState {
    last: Option<Record>,
    valid_loss: Option<f64>,
    /// Updates that were skipped since this process began.
    skipped: u64,
}

impl Sink for RunMetrics {
    fn record(&mut self, record: &Record) -> std::io::Result<()> {
        let mut state = lock(&self.state);
        state.skipped += u64::from(record.skipped);
        state.valid_loss = record.valid_loss.or(state.valid_loss);
        // Samples and notes are texts, which are no metrics.
        state.last = Some(Record { sample: None, ..record.clone() });
        Ok(())
    }
}

impl RunMetrics {
    /// Metrics of a run that has not begun.
    pub fn new() -> RunMetrics {
        RunMetrics::default()
    }

    /// Also writes what the sensors reported, under the names that `ferrane top` has.
    #[must_use]
    pub fn with_sensors(self, history: Option<Arc<Mutex<History>>>) -> RunMetrics {
        RunMetrics { sensors: history, ..self }
    }

    /// The text. A number that the last update does not have, such as a loss that is not finite,
    /// has no sample.
    pub fn text(&self) -> String {
        let mut registry = Registry::with_prefix("ferrane_train");
        lock(&self.state).register(&mut registry);
        let mut text = self.sensors.as_ref().map_or_else(String::new, |history| lock(history).openmetrics_families());
        // Writing to a string does not fail.
        let _ = encode_registry(&mut text, &registry).and_then(|()| encode_eof(&mut text));
        text
    }
}

fn gauge(registry: &mut Registry, name: &str, help: &str, unit: Option<Unit>, value: Option<f64>) {
    let Some(value) = value else { return };
    let gauge = Gauge::<f64, AtomicU64>::default();
    gauge.set(value);
    match unit {
        Some(unit) => registry.register_with_unit(name, help, unit, gauge),
        None => registry.register(name, help, gauge),
    }
}

impl RunState {
    fn register(&self, registry: &mut Registry) {
        let Some(record) = &self.last else { return };
        let counters = [
            ("updates", "Updates of the run, those before a resume included", record.step),
            ("tokens", "Tokens trained on", record.tokens),
            ("skipped_updates", "Updates that were skipped since the process began", self.skipped),
        ];
        for (name, help, value) in counters {
            let counter = Counter::<u64>::default();
            counter.inc_by(value);
            registry.register(name, help, counter);
        }
        gauge(registry, "loss", "Training loss of the last update, in nats per token", None, record.loss);
        gauge(registry, "validation_loss", "Last validation loss, in nats per token", None, self.valid_loss);
        gauge(registry, "learning_rate", "Learning rate of the last update", None, Some(record.lr));
        gauge(registry, "gradient_norm", "Gradient norm before clipping", None, record.grad_norm);
        gauge(registry, "loss_scale", "Loss scale of the last update", None, Some(record.loss_scale));
        let rate = Some(record.tokens_per_second);
        gauge(registry, "tokens_per_second", "Tokens of the last update over its time", None, rate);
        let Some(process) = &record.process else { return };
        gauge(registry, "planned_updates", "Updates of the whole run", None, Some(process.steps as f64));
        let help = "Time of the last update, pauses excluded";
        gauge(registry, "update", help, Some(Unit::Seconds), Some(process.seconds));
        gauge(registry, "gflops", "GFLOP/s of forward and backward passes", None, Some(process.gflops));
        gauge(registry, "busy_cores", "Mean number of busy cores", None, process.cores);
        let resident = process.resident.map(|bytes| bytes as f64);
        gauge(registry, "resident", "Resident memory of the process", Some(Unit::Bytes), resident);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::ProcessRecord;

    #[test]
    fn the_last_update_is_what_is_read() {
        let metrics = RunMetrics::new();
        assert_eq!(metrics.text(), "# EOF\n");
        let process = ProcessRecord { steps: 100, seconds: 0.5, gflops: 12.5, ..ProcessRecord::default() };
        let first = Record {
            step: 41,
            loss: Some(2.5),
            lr: 1e-3,
            grad_norm: Some(0.75),
            loss_scale: 256.0,
            tokens: 1000,
            tokens_per_second: 640.0,
            valid_loss: Some(2.25),
            process: Some(process),
            ..Record::default()
        };
        let mut sink = metrics.clone();
        sink.record(&first).unwrap();
        sink.record(&Record { step: 42, loss: None, skipped: true, valid_loss: None, tokens: 1024, ..first }).unwrap();
        let text = metrics.text();
        for line in [
            "# TYPE ferrane_train_updates counter",
            "ferrane_train_updates_total 42",
            "ferrane_train_tokens_total 1024",
            "ferrane_train_skipped_updates_total 1",
            "ferrane_train_validation_loss 2.25",
            "ferrane_train_learning_rate 0.001",
            "ferrane_train_gradient_norm 0.75",
            "ferrane_train_loss_scale 256.0",
            "ferrane_train_tokens_per_second 640.0",
            "ferrane_train_planned_updates 100.0",
            "ferrane_train_update_seconds 0.5",
            "ferrane_train_gflops 12.5",
        ] {
            assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
        }
        for unknown in ["ferrane_train_loss ", "busy_cores", "resident"] {
            assert!(!text.contains(unknown), "`{unknown}` is not known: {text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
