//! The device suite over every backend, the published call sequences, and the filetests.

mod devices;
mod filetests;
mod sequences;
