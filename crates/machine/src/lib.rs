//! What machines allow: claims, profiles, selection, rules and the cost model.
//!
//! A *machine* is a chip with a system version and a path to the engine: `m4-macos15-inmem`.
//!
//! # From evidence to findings
//!
//! - A [`Claim`] is a published statement about a machine, with its source and where it applies.
//!   Claims contradict each other, and all are kept ([`claims`]).
//! - A [`Profile`] is a set of typed values for one machine. Each value names the claims it rests
//!   on and those it overrules. Values are resolved from TOML overlays with conditions: the overlay
//!   with most conditions wins, and a tie is an error.
//! - [`select()`] says what the profile's compiler does with each op: the unit, whether it is
//!   accepted, how much work it is.
//! - [`rules`] are functions over the selection and the profile. [`check()`] runs them; each
//!   [`Finding`] has a code, what happens on the machine ([`Effect`]), the claims, and a rewrite
//!   that avoids it.
//! - [`fix`] applies the rewrites that need no decision by the author.
//!
//! ```
//! use ferrane_machine::{Effect, Profile, check};
//! use ferrane_mil::{Builder, DataType, Opset, Type};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut b = Builder::new("main", Opset::IOS18);
//! let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 64, 1, 64]))?;
//! let y = b.op("tan", "y", [("x", x.into())])?;
//! let program = b.finish(&[("y", y)])?;
//!
//! let findings = check(&program, &Profile::find("m4-macos15-inmem")?, &Default::default());
//! assert!(findings.iter().any(|f| f.effect == Effect::REFUSED));
//! # Ok(())
//! # }
//! ```
//!
//! # Cost
//!
//! [`cost`] predicts the time of each op and what bounds it, with few constants fitted to published
//! measurements (docs/cost-model.md has the errors).
//!
//! # Placement
//!
//! [`placement`] predicts on which processor each op runs when Core ML decides, with probabilities
//! fitted to published placements (docs/placement.md has the errors).
//!
//! # Where to look next
//!
//! docs/claims.md lists all claims, docs/errors.md all rules with their long explanations
//! ([`explain`]); both pages are generated from this crate.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod check;
pub mod claims;
pub mod cost;
pub mod describe;
pub mod explain;
mod finding;
mod findings;
pub mod fix;
mod options;
pub mod placement;
pub mod profile;
mod ranges;
pub mod rules;
pub mod select;
mod view;

pub use check::check;
pub use claims::Claim;
pub use finding::{Effect, Finding, Fix};
pub use options::{CheckOptions, InputBounds, InputBoundsError};
pub use profile::{Profile, ProfileError, Sourced, Subject};
pub use select::{Selected, Selection, Unit, Work, select};
