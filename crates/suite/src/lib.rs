//! Filetests and the device suite.
#![deny(missing_docs)]
