//! How long things take on this computer: matrix products, training steps, decoding, programs, and
//! the fixed cost of an evaluation.
//!
//! Each module measures one thing: it takes options, runs, and returns a report that serializes
//! (`serde::Serialize`) and prints (`Display`).
//!
//! - [`gemm`]: matrix products next to the [`ceilings`] of the processor and its memory
//! - [`step`]: one training step, and a [sweep](step::sweep) over window lengths or layers
//! - [`llm`](mod@llm): prefill and decode of a language model
//! - [`program`]: any program, stage by stage and step by step
//! - [`dispatch`]: what an evaluation costs besides its arithmetic
//! - [`suite`]: the measurements of the reference work, next to published and predicted values
//! - [`submission`]: whether a report of `ferrane doctor` is fit to be sent
//!
//! ```
//! use ferrane_perf::{Repeats, Unit, measure};
//!
//! let mut sum = 0.0f64;
//! let times = measure(2, Repeats::Count(9), || {
//!     sum += (0..1000).map(f64::from).sum::<f64>();
//!     Ok(())
//! })?;
//! assert_eq!((times.count(), times.unit()), (9, Unit::Milliseconds));
//! println!("{times}"); // 0.001 ms (0.001 to 0.004)
//! # Ok::<(), ferrane_perf::Error>(())
//! ```
//!
//! # What the numbers mean
//!
//! A measurement warms up, repeats, and reports the median with the lowest and the highest value
//! ([`Spread`]): a mean hides what else the computer did. Every report names the [`Computer`] that
//! its numbers come from.
//!
//! A speed by itself says little about a computer that other processes use. Compare what was
//! measured in one run: products with the ceilings measured next to them, peers by
//! `scripts/bench-peers.sh`, which takes turns.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod ceilings;
mod computer;
pub mod dispatch;
mod error;
mod fit;
pub mod gemm;
pub mod llm;
mod plot;
pub mod program;
mod spread;
pub mod step;
pub mod submission;
pub mod suite;

pub use computer::Computer;
pub use error::{Error, Result};
pub use fit::Line;
pub use plot::{RooflinePoint, Roofs, roofline_svg, sweep_svg};
pub use spread::{FEWEST, MANY, MOST, Repeats, Spread, Unit, WARM_UP, measure};
