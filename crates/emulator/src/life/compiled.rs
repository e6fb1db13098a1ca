//! A compiled program and what comes of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrane_device::backend::{Compiled, Loaded, ProgramState};
use ferrane_device::queue::Queue;
use ferrane_device::{Error, ErrorKind, Procedure, Result};
use ferrane_mil::Program;

use super::findings::Fate;
use super::loaded::Ready;
use super::process::Ticket;
use super::staging::{Files, Products};
use super::{Life, lock};
use crate::body::Body;
use crate::device::checked;
use crate::faults::FaultStage;
use crate::interpret::Bounds;
use crate::pace;
use crate::plan::Ports;
use crate::tables::Table;

/// How a device compiles and runs.
#[derive(Clone)]
pub(crate) struct Recipe {
    pub life: Arc<Life>,
    pub queue: Arc<Queue>,
    pub timeout: Duration,
    pub table: Table,
    pub bounds: Bounds,
    /// Whether evaluations take as long as on the machine.
    pub pace: bool,
}

/// What compiled, loaded and prepared programs share. It does not change; a load that finds other
/// weights makes another.
pub(crate) struct Shared {
    pub bodies: Vec<Body>,
    pub procedures: Vec<Procedure>,
    pub kept: Arc<Kept>,
}

/// What a program keeps whatever its weights become.
pub(crate) struct Kept {
    pub recipe: Recipe,
    pub ticket: Option<Ticket>,
    pub fate: Fate,
    /// The least time of an evaluation, for each function; empty without a pace.
    pub pace: Vec<Duration>,
    /// Its files, and the program to read them for again.
    files: Option<Files>,
    program: Option<Program>,
}

/// A compiled program.
pub(crate) struct Artifact {
    key: String,
    shared: Arc<Shared>,
    state: Arc<Mutex<ProgramState>>,
}

impl Artifact {
    /// Compiles a verified program; `text` is what it was read from. One with that key that is
    /// still in use is not compiled, and not charged, again.
    pub(crate) fn compile(recipe: Recipe, program: &Program, text: Option<&str>, key: String) -> Result<Artifact> {
        let life = recipe.life.clone();
        let known = lock(&life.programs).get(&key).and_then(std::sync::Weak::upgrade);
        let shared = match known {
            Some(shared) => shared,
            None => {
                let shared = Arc::new(Shared::new(recipe, program, text, &key)?);
                let mut programs = lock(&life.programs);
                programs.retain(|_, program| program.strong_count() > 0);
                programs.insert(key.clone(), Arc::downgrade(&shared));
                shared
            }
        };
        Ok(Artifact { key, shared, state: Arc::new(Mutex::new(ProgramState::Compiled)) })
    }
}

impl Shared {
    fn new(recipe: Recipe, program: &Program, text: Option<&str>, key: &str) -> Result<Shared> {
        let fate = recipe.life.judge(program, text)?;
        let (bodies, procedures) = bodies(&recipe, program)?;
        let life = &recipe.life;
        let pace = if recipe.pace { pace::least(program, &life.profile)? } else { Vec::new() };
        let files = life.stage(key, program)?;
        let products = files.as_ref().map(|_| Products::new(key, program, &procedures));
        let staged = files.as_ref().zip(products.as_ref());
        // Temporary files are those of a program in use, maybe another device's; only kept ones are
        // a compile of before.
        let kept = staged.filter(|_| life.keeps_files());
        let before = kept.map_or(Ok(false), |(files, products)| files.hold(products))?;
        let ticket = if before { None } else { life.charge()? };
        if let Some((files, products)) = staged.filter(|_| !before) {
            files.add(products)?;
        }
        let program = (files.is_some() && life.reads_weights()).then(|| program.clone());
        Ok(Shared { bodies, procedures, kept: Arc::new(Kept { recipe, ticket, fate, pace, files, program }) })
    }

    /// As a load finds it: with the weights that lie in its folder, where the machine reads them
    /// again.
    pub(super) fn loaded(self: &Arc<Shared>) -> Result<Arc<Shared>> {
        let (Some(files), Some(program)) = (&self.kept.files, &self.kept.program) else { return Ok(self.clone()) };
        let Some(program) = files.changed(program)? else { return Ok(self.clone()) };
        let (bodies, procedures) = bodies(&self.kept.recipe, &program)?;
        Ok(Arc::new(Shared { bodies, procedures, kept: self.kept.clone() }))
    }

    pub(super) fn life(&self) -> &Arc<Life> {
        &self.kept.recipe.life
    }
}

/// Compiles every function.
fn bodies(recipe: &Recipe, program: &Program) -> Result<(Vec<Body>, Vec<Procedure>)> {
    let one = |(id, function)| {
        checked(function, &program.weights)?;
        let mut ports = Ports::declared(id as u32, function)?;
        recipe.life.arrange(&mut ports)?;
        Body::new(ports, function, &program.weights, &recipe.table, recipe.bounds)
    };
    let bodies = program.functions.iter().enumerate().map(one).collect::<Result<Vec<_>>>()?;
    if bodies.is_empty() {
        return Err(Error::new(ErrorKind::InvalidProgram, "the program has no function"));
    }
    let procedures = bodies.iter().map(|b| b.procedure().clone()).collect();
    Ok((bodies, procedures))
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
