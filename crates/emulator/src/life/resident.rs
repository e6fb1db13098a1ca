//! Whether a program is on the machine.

use std::sync::{Arc, Mutex, MutexGuard};

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_host::sync::lock;

use super::process::Slot;
use super::program::Shared;

/// A program on the machine.
pub(super) struct Resident {
    pub shared: Arc<Shared>,
    pub _slot: Slot,
}

/// What a loaded program and its requests share.
pub(super) struct Place {
    /// `None` after an unload.
    pub resident: Mutex<Option<Resident>>,
}

impl Place {
    /// The program, if it is loaded.
    pub(super) fn program(&self) -> Result<Arc<Shared>> {
        self.lock().as_ref().map(|r| r.shared.clone()).ok_or_else(unloaded)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Resident>> {
        lock(&self.resident)
    }
}

/// The error of whatever comes after an unload.
pub(super) fn unloaded() -> Error {
    Error::new(ErrorKind::Unloaded, "the program is unloaded")
}
