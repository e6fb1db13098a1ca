//! The life of a program on the emulator: compiled, loaded, prepared, run, unloaded.

mod compiled;
mod loaded;
mod request;

pub(crate) use compiled::{Artefact, Shared};
