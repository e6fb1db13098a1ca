//! Transformer training through the device seam.
//!
//! | module | what |
//! |---|---|
//! | [`data`] | token ids out of text and files, splits, the sampler, vocabulary compaction |
//! | [`step`] | one micro-step, on a device or in the plain fp32 reference |
//! | [`optim`] | AdamW, learning rate, clipping, loss scale |
//! | [`checkpoint`] | what a run needs to go on, written so that a crash loses nothing |
//! | [`metrics`] | a record an update, the plot of the loss, where the time went |
//! | [`run`] | the loop over all of these |
//! | [`session`] | a run built from its options: the way in |
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod data;
pub mod metrics;
pub mod optim;
pub mod run;
pub mod session;
pub mod step;

/// The examples of the README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;
