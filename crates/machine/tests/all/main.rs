//! The data of the crate: claims against the published list, profiles against the claims, the cost
//! model against published numbers; docs/claims.md is written from them.
// Tests speak to the person who runs them.
#![allow(clippy::print_stderr)]

mod claims;
mod cost;
mod doc;
mod errors_doc;
mod profiles;
