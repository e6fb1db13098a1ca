//! From gradients to new weights: global norm, clipping, loss scale, schedule, AdamW.
//!
//! Once the norm is known, *one* pass over memory does everything else: unscale, clip, moments,
//! decay, new weight, and passing the weight to the engine while it is in the cache. The state of a
//! model is four values for each weight and the pass is limited by memory bandwidth, so a second
//! pass would double its time. Gradients are never zeroed ([`Gradients`]).
//!
//! Results have the same bits for any number of threads: work is split by size, and partial sums
//! are combined in order.

mod adamw;
mod frozen;
mod gradients;
mod loss_scale;
mod norm;
mod schedule;
mod shard;
mod update;

pub use adamw::AdamW;
pub use frozen::{FreezeError, Frozen};
pub use gradients::{Gradients, Moments, RowSet};
pub use loss_scale::LossScale;
pub use norm::{Norms, clip_factor, norms};
pub use schedule::Schedule;
pub(crate) use shard::cuts;
pub use update::{RowSink, Update, UpdateShare};

/// Values in one task: 256 KiB of each array, small enough to use all threads and large compared
/// with the cost of a task. Sums are split at the same size, so this number affects the last bits
/// of results.
const CHUNK: usize = 1 << 16;

/// Number of values in a row of a tensor, which every dimension but the first spans.
fn row_size(shape: &[usize]) -> usize {
    shape.iter().skip(1).product::<usize>().max(1)
}
