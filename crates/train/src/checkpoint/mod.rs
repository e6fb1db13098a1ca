//! The folder of a training run, and its checkpoints.
//!
//! ```text
//! OUT/step-000100/model.safetensors      weights, with the configuration in the metadata
//!                 optimizer.safetensors  both moments: m.<tensor> and v.<tensor>
//!                 state.json             everything else, and size and SHA-256 of both other files
//! OUT/step-000200/…
//! OUT/.lock                              held while a run writes here
//! ```
//!
//! A run that trains adapters has `adapter_config.json` and `adapter_model.safetensors`, as PEFT
//! writes them, instead of the weights, and the moments of the adapters.
//!
//! A checkpoint is a folder that gets its final name only after every byte of it is on the disk: it
//! is written under a temporary name, each file is synced, the folder is synced and renamed, and
//! its parent is synced. Only then is an older checkpoint removed. So the last complete checkpoint
//! can be loaded at any time, also after a kill, a full disk or a power failure. The next run
//! removes the leftovers of an interrupted save.
//!
//! A checkpoint that was damaged on the disk is detected by its hashes; the previous one is loaded
//! instead, with a warning.

mod adapters;
mod error;
mod files;
mod state;
mod store;

pub use adapters::AdapterSnapshot;
pub use error::Error;
pub(crate) use files::create_folders;
pub use files::{Disk, Files, SyncWrite};
pub use state::{Digest, State, VERSION};
pub use store::{Checkpoint, MomentSource, OPTIMIZER, Snapshot, Store};
pub(crate) use store::{LOCK, folder_size};
