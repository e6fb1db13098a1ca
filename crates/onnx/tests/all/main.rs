//! Integration tests of the crate.

mod common;
mod models;
mod options;
mod reader;
