//! What a machine allows: profiles and their resolution.
//!
//! A [`Profile`] is a set of typed values for one chip, operating system and path. Each value names the claims it rests on.
//! Profiles are resolved from conditioned TOML overlays: the most specific match wins and a tie is an error.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod profile;
pub mod select;

pub use profile::{Profile, ProfileError, Sourced, Subject};
pub use select::{Selected, Selection, Unit, Work, select};
