//! A request: a procedure with bound surfaces and events.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ferrane_device::backend::{Accesses, Done, Event, Prepared, Stats};
use ferrane_device::{Error, ErrorKind, Result};
use ferrane_host::sync::lock;

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
    /// When it was submitted, while it is in the queue.
    pub submitted: Mutex<Option<Instant>>,
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
        let booking = self.kept.times.as_ref().and_then(|times| {
            let now = Instant::now();
            let arrived = lock(&self.submitted).take().unwrap_or(now);
            let first = !self.kept.evaluated.swap(true, Ordering::Relaxed);
            // Programs that exist at the same time have different addresses.
            let program = Arc::as_ptr(&self.kept).addr();
            life.engine.book(times, (program, self.function), first, (arrived, now))
        });
        self.compute(&shared, accesses)?;
        if let Some(booking) = booking {
            pace::wait(booking.ends);
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
        stats.hardware = booking.map(|booking| booking.takes);
        Ok(stats)
    }

    fn submit(self: Arc<Self>, accesses: Accesses, done: Done) -> std::result::Result<(), (Error, Accesses)> {
        if let Err(error) = self.place.program() {
            return Err((error, accesses));
        }
        if self.kept.times.is_some() {
            *lock(&self.submitted) = Some(Instant::now());
        }
        let queue = self.kept.recipe.queue.clone();
        queue.submit(self, accesses, done)
    }
}
