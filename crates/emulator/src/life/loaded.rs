//! Loaded programs: prepare, unload, reload.

use std::sync::{Arc, Mutex};

use ferrane_device::backend::{Loaded, Prepared, ProgramState};
use ferrane_device::{Bindings, Error, ErrorKind, Procedure, Result};
use ferrane_host::sync::lock;

use super::process::LoadSlot;
use super::program::CompiledProgram;
use super::request::Request;
use super::resident::{Residency, Resident, unloaded};
use crate::faults::FaultStage;

/// A loaded program, until it is unloaded.
pub(super) struct Ready {
    shared: Arc<CompiledProgram>,
    place: Arc<Residency>,
    state: Mutex<ProgramState>,
    /// The state of the artifact that it was loaded from.
    artifact: Arc<Mutex<ProgramState>>,
}

impl Ready {
    pub(super) fn new(shared: Arc<CompiledProgram>, slot: LoadSlot, artifact: Arc<Mutex<ProgramState>>) -> Ready {
        let resident = Mutex::new(Some(Resident { shared: shared.clone(), _slot: slot }));
        let place = Arc::new(Residency { resident });
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
        let function = procedures
            .iter()
            .position(|p| wanted.is_none_or(|n| n == p.name))
            .ok_or_else(|| Error::new(ErrorKind::Binding, format!("no procedure `{}`", wanted.unwrap_or("main"))))?;
        Ok(Arc::new(Request {
            place: self.place.clone(),
            kept: self.shared.kept.clone(),
            function,
            misfit: procedures.get(function).and_then(|p| self.shared.life().misfit(p, bindings)),
            waits: bindings.waits().to_vec(),
            signals: bindings.signals().to_vec(),
            submitted: Mutex::new(None),
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
