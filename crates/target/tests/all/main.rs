//! The data of the crate: claims against the published list, profiles against the claims, the cost model against published numbers.
// Tests speak to the person who runs them.
#![allow(clippy::print_stderr)]

mod claims;
mod cost;
mod profiles;
