//! A request: a procedure with bound surfaces and events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ferrane_device::backend::{Accesses, Done, Event, Prepared, Stats};
use ferrane_device::{Error, ErrorKind, Result};

use super::compiled::Shared;
use super::loaded::{Arenas, unloaded};
use crate::body::{Body, interpret};
use crate::queue::Run;

/// A request.
pub(crate) struct Request {
    pub shared: Arc<Shared>,
    pub body: usize,
    pub unloaded: Arc<AtomicBool>,
    pub arenas: Arc<Arenas>,
    pub waits: Vec<(Arc<dyn Event>, u64)>,
    pub signals: Vec<(Arc<dyn Event>, u64)>,
}

impl Run for Request {
    fn run(&self, accesses: &mut Accesses) -> Result<Stats> {
        let start = Instant::now();
        if self.unloaded.load(Ordering::Acquire) {
            return Err(unloaded());
        }
        for (event, value) in &self.waits {
            if !event.wait(*value, self.shared.timeout) {
                let message = format!("waited {:?} for an event to reach {value}", self.shared.timeout);
                return Err(Error::new(ErrorKind::Evaluate, message));
            }
        }
        match &self.shared.bodies[self.body] {
            Body::Plan(plan) => {
                let mut arena = self.arenas.take(plan.arena_bytes)?;
                let result = plan.evaluate(&mut arena, accesses);
                self.arenas.give(arena);
                result?;
            }
            Body::Interpreted(function, procedure) => interpret(function, procedure, accesses)?,
        }
        for (event, value) in &self.signals {
            event.signal(*value);
        }
        let mut stats = Stats::default();
        stats.wall = start.elapsed();
        Ok(stats)
    }
}

impl Prepared for Request {
    fn evaluate(&self, accesses: &mut Accesses) -> Result<Stats> {
        self.run(accesses)
    }

    fn submit(self: Arc<Self>, accesses: Accesses, done: Done) -> std::result::Result<(), (Error, Accesses)> {
        if self.unloaded.load(Ordering::Acquire) {
            return Err((unloaded(), accesses));
        }
        let shared = self.shared.clone();
        shared.queue.submit(self, accesses, done)
    }
}
