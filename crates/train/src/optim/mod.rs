//! From gradients to new weights: global norm, clipping, loss scale, schedule, AdamW.
//!
//! The one decision: after the norm is known, *one* pass over memory does everything that is left
//! (unscale, clip, moments, decay, new weight, and handing it to the engine while it is in the
//! cache). The state of a model is four values a weight, and the pass is bound by the memory, so a
//! second pass would cost as much again. Gradients are never set to zero ([`Gradients`]).
//!
//! All results are the same bits for every number of threads: work is cut by size, partial sums are
//! combined in order.

mod adamw;
mod gradients;
mod loss_scale;
mod norm;
mod schedule;

pub use adamw::{AdamW, RowSink, Update, UpdateShare};
pub use gradients::{Gradients, Moments, RowSet};
pub use loss_scale::LossScale;
pub use norm::{Norms, clip_factor, norms};
pub use schedule::Schedule;

/// Values that one task works on: 256 KiB of each array, little enough to spread over threads and
/// much against the cost of a task. Sums are cut here too, so this number is part of the result's
/// last bits.
const CHUNK: usize = 1 << 16;
