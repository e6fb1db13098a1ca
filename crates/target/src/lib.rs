//! What a machine allows: profiles and their resolution.
#![deny(missing_docs)]
