//! A software Apple Neural Engine.
#![deny(missing_docs)]
