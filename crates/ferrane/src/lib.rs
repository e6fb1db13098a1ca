//! Program the Apple Neural Engine from Rust: the façade.
#![deny(missing_docs)]
