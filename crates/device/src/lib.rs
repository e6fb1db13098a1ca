//! The seam between programs and the machines that run them.
#![deny(missing_docs)]
