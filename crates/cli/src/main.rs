//! The ferrane command.
fn main() {}
