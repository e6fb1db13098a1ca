//! A loaded program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ferrane_device::backend::{Loaded, Prepared};
use ferrane_device::{Bindings, Error, ErrorKind, Procedure, Result};
use ferrane_host::buffer::AlignedBuf;

use super::compiled::Shared;
use super::request::Request;

/// Arenas that no evaluation uses now. There are as many as evaluations ran at one time.
#[derive(Default)]
pub(crate) struct Arenas(Mutex<Vec<AlignedBuf>>);

impl Arenas {
    pub(crate) fn take(&self, bytes: usize) -> Result<AlignedBuf> {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut arena = spare.unwrap_or_default();
        arena.grow(bytes).map_err(|e| Error::new(ErrorKind::OutOfMemory, e.to_string()))?;
        Ok(arena)
    }

    pub(crate) fn give(&self, arena: AlignedBuf) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(arena);
    }
}

/// A loaded program.
pub(crate) struct Ready {
    shared: Arc<Shared>,
    unloaded: Arc<AtomicBool>,
    arenas: Arc<Arenas>,
}

impl Ready {
    pub(crate) fn new(shared: Arc<Shared>) -> Ready {
        Ready { shared, unloaded: Arc::default(), arenas: Arc::default() }
    }
}

impl Loaded for Ready {
    fn procedures(&self) -> &[Procedure] {
        &self.shared.procedures
    }

    fn prepare(&self, bindings: &Bindings) -> Result<Arc<dyn Prepared>> {
        if self.unloaded.load(Ordering::Acquire) {
            return Err(unloaded());
        }
        let wanted = bindings.procedure_name();
        let body =
            self.shared.procedures.iter().position(|p| wanted.is_none_or(|n| n == p.name)).ok_or_else(|| {
                Error::new(ErrorKind::Binding, format!("no procedure `{}`", wanted.unwrap_or("main")))
            })?;
        Ok(Arc::new(Request {
            shared: self.shared.clone(),
            body,
            unloaded: self.unloaded.clone(),
            arenas: self.arenas.clone(),
            waits: bindings.waits().to_vec(),
            signals: bindings.signals().to_vec(),
        }))
    }

    fn unload(&self) -> Result<()> {
        if self.unloaded.swap(true, Ordering::AcqRel) {
            return Err(unloaded());
        }
        self.arenas.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(())
    }

    fn reload(&self) -> Result<()> {
        self.unload()?;
        self.unloaded.store(false, Ordering::Release);
        Ok(())
    }
}

/// The error of whatever comes after an unload.
pub(crate) fn unloaded() -> Error {
    Error::new(ErrorKind::Unloaded, "the program is unloaded")
}
