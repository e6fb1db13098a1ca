//! Tests of the crate's data: claims against the published list, profiles against the claims, the
//! cost model and the model of placement against published numbers. docs/claims.md is written from
//! them.
// Tests print messages for the person who runs them.
#![allow(clippy::print_stderr)]

mod claims;
mod cost;
mod doc;
mod errors_doc;
mod placement;
mod profiles;
