//! Metrics of a run: a record for each update, the plot of the loss, time and memory by part, and
//! the timeline.
//!
//! A [`Sink`] takes the records. Every run has [`JsonLines`], which writes `OUT/metrics.jsonl`.

mod efficiency;
mod energy;
mod lines;
mod memory;
mod openmetrics;
pub mod plot;
mod process;
mod record;
mod tensorboard;
pub mod timeline;

pub use efficiency::{Efficiency, Flops};
pub(crate) use energy::SensorMeter;
pub use energy::{EnergySum, PowerRecord, RunEnergy, SensorRecord};
pub use lines::{JsonLines, METRICS, read};
#[cfg(test)]
pub(crate) use memory::layer_activations;
pub use memory::{EngineMemory, Memory};
pub use openmetrics::RunMetrics;
pub(crate) use process::Meter;
pub use process::{PartTimes, ProcessRecord};
pub(crate) use record::finite;
pub use record::{Record, Sink};
pub use tensorboard::EventFile;
pub use timeline::Timeline;
