//! Transformer training through the device seam.
//!
//! A run draws windows from the data, accumulates gradients over micro-steps, updates the weights
//! with AdamW, and writes metrics and checkpoints from which it continues bit for bit. The forward
//! pass and the activation gradients run on the device; weight gradients, norms, classifier, loss
//! and optimizer run on the CPU at the same time (docs/training.md).
//!
//! | module | what |
//! |---|---|
//! | [`data`] | token ids from text and files, splits, the sampler, vocabulary compaction |
//! | [`step`] | one micro-step, on a device or in the plain fp32 reference |
//! | [`optim`] | AdamW, learning rate, clipping, loss scale |
//! | [`lora`] | adapters, which are trained instead of the weights |
//! | [`checkpoint`] | the state of a run on disk, written so that a crash loses nothing |
//! | [`metrics`] | a record for each update, the plot of the loss, the timeline |
//! | [`ranks`] | training in several processes |
//! | [`run`] | the loop over all of these |
//! | [`watch`] | a run as its metrics show it, for a dashboard |
//! | [`session`] | builds a run from its options; start here |
//!
//! # A run
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//!
//! use ferrane_train::session::{Session, SessionOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A story model on a corpus of its own, in the fp32 reference: no device is given.
//! let mut options = SessionOptions::embedded();
//! options.run.out = "runs/example".into();
//! let mut session = Session::begin(options, None, &mut |_| {})?;
//! let summary = session.run(&mut |_| {}, &AtomicBool::new(false))?;
//! println!("{}", summary.checkpoint.display());
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//!
//! The same options, data and seed give the same weights on one machine, whatever the number of
//! threads. A non-finite gradient skips the update and lowers the loss scale. A failed kernel is
//! loaded again and repeated once; a second failure ends the run with a checkpoint of the last
//! update.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod data;
pub mod lora;
pub mod metrics;
pub mod optim;
pub mod ranks;
pub mod run;
pub mod session;
pub mod step;
pub mod watch;
