//! A run's folder and its checkpoints.
//!
//! ```text
//! OUT/step-000100/model.safetensors      weights, with the configuration in the metadata
//!                 optimizer.safetensors  both moments: m.<tensor> and v.<tensor>
//!                 state.json             everything else, and size and SHA-256 of the two others
//! OUT/step-000200/…
//! OUT/.lock                              held while a run writes here
//! ```
//!
//! The one decision: a checkpoint is a folder that appears under its name only when every byte of
//! it is on the disk. It is written under a temporary name, each file synced, the folder synced,
//! renamed, and the parent synced. Only then is an older one removed, so at every moment the last
//! complete checkpoint can be loaded: after a kill, a full disk, a loss of power. Leftovers of a
//! broken save are removed by the next run.
//!
//! A checkpoint that the disk has damaged is found by its hashes; the one before it takes its
//! place, with a warning.

mod error;
mod files;
mod state;
mod store;

pub use error::Error;
pub use files::{Disk, Files};
pub use state::{Digest, State, VERSION};
pub use store::{Checkpoint, OPTIMIZER, Snapshot, Store};
