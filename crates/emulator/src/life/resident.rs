//! Residency: whether a program is on the machine.

use std::sync::{Arc, Mutex, MutexGuard};

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_host::sync::lock;

use super::process::LoadSlot;
use super::program::CompiledProgram;

/// A program on the machine.
pub(super) struct Resident {
    pub shared: Arc<CompiledProgram>,
    pub _slot: LoadSlot,
}

/// The residency of a loaded program, shared with its requests.
pub(super) struct Residency {
    /// `None` after an unload.
    pub resident: Mutex<Option<Resident>>,
}

impl Residency {
    /// The program, if it is loaded.
    pub(super) fn program(&self) -> Result<Arc<CompiledProgram>> {
        self.lock().as_ref().map(|r| r.shared.clone()).ok_or_else(unloaded)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Resident>> {
        lock(&self.resident)
    }
}

/// The error for any call after an unload.
pub(super) fn unloaded() -> Error {
    Error::new(ErrorKind::Unloaded, "the program is unloaded")
}
