//! A loaded program.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use ferrane_device::backend::{Loaded, Prepared, ProgramState};
use ferrane_device::{Bindings, Error, ErrorKind, Procedure, Result};
use ferrane_host::buffer::AlignedBuf;

use super::compiled::Shared;
use super::lock;
use super::process::Slot;
use super::request::Request;
use crate::faults::FaultStage;

/// Memory for intermediate values, shared by the programs of a device: there are as many arenas as
/// evaluations ran at one time, each as large as the largest that ran in it.
#[derive(Default)]
pub(crate) struct Arenas {
    /// Those that no evaluation uses now.
    free: Mutex<Vec<AlignedBuf>>,
    bytes: AtomicUsize,
}

impl Arenas {
    pub(super) fn take(&self, bytes: usize) -> Result<AlignedBuf> {
        let mut arena = lock(&self.free).pop().unwrap_or_default();
        let before = arena.len();
        let grown = arena.grow(bytes);
        self.bytes.fetch_sub(before, Ordering::Relaxed);
        self.bytes.fetch_add(arena.len(), Ordering::Relaxed);
        grown.map_err(|e| Error::new(ErrorKind::OutOfMemory, e.to_string()))?;
        Ok(arena)
    }

    pub(super) fn give(&self, arena: AlignedBuf) {
        lock(&self.free).push(arena);
    }

    /// Gives back what no evaluation uses now.
    fn clear(&self) {
        let free = std::mem::take(&mut *lock(&self.free));
        self.bytes.fetch_sub(free.iter().map(|a| a.len()).sum(), Ordering::Relaxed);
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A program on the machine.
struct Resident {
    shared: Arc<Shared>,
    _slot: Slot,
}

/// What a loaded program and its requests share.
pub(super) struct Place {
    /// `None` after an unload.
    resident: Mutex<Option<Resident>>,
}

impl Place {
    /// The program, if it is loaded.
    pub(super) fn program(&self) -> Result<Arc<Shared>> {
        self.lock().as_ref().map(|r| r.shared.clone()).ok_or_else(unloaded)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Resident>> {
        lock(&self.resident)
    }
}

/// A loaded program.
pub(super) struct Ready {
    shared: Arc<Shared>,
    place: Arc<Place>,
    state: Mutex<ProgramState>,
    /// That of the artifact it came from.
    artifact: Arc<Mutex<ProgramState>>,
}

impl Ready {
    pub(super) fn new(shared: Arc<Shared>, slot: Slot, artifact: Arc<Mutex<ProgramState>>) -> Ready {
        let resident = Mutex::new(Some(Resident { shared: shared.clone(), _slot: slot }));
        let place = Arc::new(Place { resident });
        Ready { shared, place, state: Mutex::new(ProgramState::Loaded), artifact }
    }

    fn stand(&self, state: ProgramState) {
        *lock(&self.state) = state;
        *lock(&self.artifact) = state;
    }

    fn load(&self) -> Result<()> {
        let life = self.shared.life();
        life.begin(FaultStage::Load)?;
        let resident = Resident { shared: self.shared.loaded()?, _slot: life.slot()? };
        *self.place.lock() = Some(resident);
        Ok(())
    }
}

impl Loaded for Ready {
    fn procedures(&self) -> &[Procedure] {
        &self.shared.procedures
    }

    fn prepare(&self, bindings: &Bindings) -> Result<Arc<dyn Prepared>> {
        self.place.program()?;
        let wanted = bindings.procedure_name();
        let procedures = &self.shared.procedures;
        let body = procedures
            .iter()
            .position(|p| wanted.is_none_or(|n| n == p.name))
            .ok_or_else(|| Error::new(ErrorKind::Binding, format!("no procedure `{}`", wanted.unwrap_or("main"))))?;
        Ok(Arc::new(Request {
            place: self.place.clone(),
            kept: self.shared.kept.clone(),
            body,
            misfit: procedures.get(body).and_then(|p| self.shared.life().misfit(p, bindings)),
            waits: bindings.waits().to_vec(),
            signals: bindings.signals().to_vec(),
        }))
    }

    fn unload(&self) -> Result<()> {
        self.place.lock().take().ok_or_else(unloaded)?;
        self.shared.life().arenas.clear();
        if let Some(ticket) = &self.shared.kept.ticket {
            ticket.unloaded();
        }
        self.stand(ProgramState::Created);
        Ok(())
    }

    fn reload(&self) -> Result<()> {
        self.unload()?;
        let result = self.load();
        self.stand(if result.is_ok() { ProgramState::Loaded } else { ProgramState::Error });
        result
    }

    fn state(&self) -> ProgramState {
        *lock(&self.state)
    }
}

/// The error of whatever comes after an unload.
fn unloaded() -> Error {
    Error::new(ErrorKind::Unloaded, "the program is unloaded")
}
