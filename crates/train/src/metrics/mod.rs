//! Metrics of a run: a record for each update, the plot of the loss, time and memory by part, and
//! the timeline.
//!
//! A [`Sink`] takes the records. Every run has [`JsonLines`], which writes `OUT/metrics.jsonl`.

mod efficiency;
mod lines;
mod memory;
pub mod plot;
mod record;
pub mod timeline;

pub use efficiency::{Efficiency, Flops};
pub use lines::{JsonLines, read};
pub use memory::{EngineMemory, Memory};
pub(crate) use record::finite;
pub use record::{Record, Sink};
pub use timeline::Timeline;
