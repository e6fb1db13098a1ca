//! A request: a procedure with bound surfaces and events.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ferrane_device::backend::{Accesses, Done, Event, Prepared, Stats};
use ferrane_device::{Error, ErrorKind, Result};

use super::Life;
use super::program::{CompiledProgram, Kept};
use super::resident::Residency;
use super::words::{MISMATCH, evaluation};
use crate::faults::FaultStage;
use crate::function::{CompiledFunction, interpret};
use crate::pace;

/// A procedure that is ready to run over bound surfaces.
pub(super) struct Request {
    pub place: Arc<Residency>,
    pub kept: Arc<Kept>,
    pub function: usize,
    /// Why the machine would refuse the surfaces, if it would.
    pub misfit: Option<String>,
    pub waits: Vec<(Arc<dyn Event>, u64)>,
    pub signals: Vec<(Arc<dyn Event>, u64)>,
}

impl Request {
    /// Fails if the machine would refuse to run.
    fn permitted(&self, life: &Life) -> Result<()> {
        if life.poisoned.load(Ordering::Relaxed) {
            let why = "an earlier evaluation poisoned the process; open the device again";
            life.beyond(|| evaluation(MISMATCH, why))?;
        }
        if let Some(why) = &self.misfit {
            life.beyond(|| evaluation(MISMATCH, why))?;
        }
        self.kept.fate.fails.as_ref().map_or(Ok(()), |failure| life.beyond(|| failure.error()))
    }

    fn compute(&self, shared: &CompiledProgram, accesses: &mut Accesses) -> Result<()> {
        match &shared.functions[self.function] {
            CompiledFunction::Plan(plan) => {
                let arenas = &shared.life().arenas;
                let mut arena = arenas.take(plan.arena_bytes)?;
                let result = plan.evaluate(&mut arena, accesses);
                arenas.give(arena);
                result
            }
            CompiledFunction::Interpreted(function, ports) => interpret(function, ports, accesses),
        }
    }
}

impl Prepared for Request {
    fn evaluate(&self, accesses: &mut Accesses) -> Result<Stats> {
        let start = Instant::now();
        let shared = self.place.program()?;
        let (life, recipe) = (shared.life(), &self.kept.recipe);
        let n = life.begin(FaultStage::Evaluate)?;
        self.permitted(life)?;
        for (event, value) in &self.waits {
            if !event.wait(*value, recipe.timeout) {
                let message = format!("waited {:?} for an event to reach {value}", recipe.timeout);
                return Err(Error::new(ErrorKind::Evaluate, message));
            }
        }
        let begun = Instant::now();
        self.compute(&shared, accesses)?;
        let least = self.kept.pace.get(self.function).copied().filter(|time| !time.is_zero());
        if let Some(least) = least {
            pace::hold(begun, least);
        }
        life.corrupt(n, shared.functions[self.function].procedure(), accesses);
        if self.kept.fate.poisons {
            life.poisoned.store(true, Ordering::Relaxed);
        }
        for (event, value) in &self.signals {
            event.signal(*value);
        }
        let mut stats = Stats::default();
        stats.wall = start.elapsed();
        // The machine's own clock is the model's, also where computing here takes longer.
        stats.hardware = least;
        Ok(stats)
    }

    fn submit(self: Arc<Self>, accesses: Accesses, done: Done) -> std::result::Result<(), (Error, Accesses)> {
        if let Err(error) = self.place.program() {
            return Err((error, accesses));
        }
        let queue = self.kept.recipe.queue.clone();
        queue.submit(self, accesses, done)
    }
}
