//! The artifact of a compile, which loads programs.

use std::sync::{Arc, Mutex};

use ferrane_device::Result;
use ferrane_device::backend::{Compiled, Loaded, ProgramState};
use ferrane_host::sync::lock;
use ferrane_mil::Program;

use super::loaded::Ready;
use super::program::{CompiledProgram, Recipe};
use crate::faults::FaultStage;

/// A compiled program with its key; the backend's side of `ferrane_device::Artifact`.
pub(crate) struct Artifact {
    key: String,
    shared: Arc<CompiledProgram>,
    state: Arc<Mutex<ProgramState>>,
}

impl Artifact {
    /// Compiles a verified program; `text` is the text that it was read from, if any. A program
    /// with the same key that is still in use is neither compiled nor charged again.
    pub(crate) fn compile(recipe: Recipe, program: &Program, text: Option<&str>, key: String) -> Result<Artifact> {
        let life = recipe.life.clone();
        let known = lock(&life.programs).get(&key).and_then(std::sync::Weak::upgrade);
        let shared = match known {
            Some(shared) => shared,
            None => {
                let shared = Arc::new(CompiledProgram::new(recipe, program, text, &key)?);
                let mut programs = lock(&life.programs);
                programs.retain(|_, program| program.strong_count() > 0);
                programs.insert(key.clone(), Arc::downgrade(&shared));
                shared
            }
        };
        Ok(Artifact { key, shared, state: Arc::new(Mutex::new(ProgramState::Compiled)) })
    }
}

impl Compiled for Artifact {
    fn key(&self) -> &str {
        &self.key
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        None
    }

    fn load(&self) -> Result<Arc<dyn Loaded>> {
        let life = self.shared.life();
        let load = || {
            life.begin(FaultStage::Load)?;
            Ok(Ready::new(self.shared.loaded()?, life.slot()?, self.state.clone()))
        };
        let loaded: Result<Ready> = load();
        *lock(&self.state) = if loaded.is_ok() { ProgramState::Loaded } else { ProgramState::Error };
        Ok(Arc::new(loaded?))
    }

    fn state(&self) -> ProgramState {
        *lock(&self.state)
    }
}
