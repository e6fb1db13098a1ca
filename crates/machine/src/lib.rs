//! What a machine allows: claims, profiles, selection, rules and the cost model.
//!
//! A [`Claim`] is what somebody found out, with where it applies. A [`Profile`] is a set of typed
//! values for one chip, operating system and path; each names the claims it rests on and those it
//! overrules. Profiles are resolved from conditioned TOML overlays: the most specific match wins
//! and a tie is an error. [`select`](select()) says what the profile's compiler does with each op,
//! and [`check`](check()) lets the [`rules`] look at a program: each [`Finding`] has a code, what
//! happens on the machine, the claims behind it, and the way out. [`fix`] applies those that a
//! program can be given without a person.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod check;
pub mod claims;
pub mod cost;
pub mod explain;
mod finding;
mod findings;
pub mod fix;
mod options;
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

/// The examples of the README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;
