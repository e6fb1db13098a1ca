//! Requests: procedures with bound surfaces, evaluated or submitted any number of times.
//!
//! A run first acquires its accesses (all of them or none), then runs, and releases them before the
//! result is reported, so a waiter can read the outputs immediately. If a backend drops a submitted
//! run without completing it, the run ends with an error.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Accesses, Completion, Prepared, Stats};
use crate::executable::{Life, Running};
use crate::log::TARGET;
use crate::submission::CompletionSlot;
use crate::sync::{Mutex, lock};
use crate::{Bindings, Error, ErrorKind, Port, Procedure, Result, Submission, Surface};

/// A bound surface with the name of its port.
struct PortBinding {
    port: String,
    surface: Surface,
}

struct Single {
    prepared: Arc<dyn Prepared>,
    inputs: Vec<PortBinding>,
    outputs: Vec<PortBinding>,
    states: Vec<PortBinding>,
    life: Arc<Life>,
    /// Buffers for guards, reused between runs so that a run does not allocate.
    spare: Mutex<Accesses>,
}

enum RequestKind {
    Single(Single),
    /// Steps that the front end runs in sequence; the program stays loaded from the first to the
    /// last.
    Sequence(Vec<Request>, Arc<Life>),
}

/// A procedure with bound surfaces, or a chain of them. Clones refer to the same request.
#[derive(Clone)]
pub struct Request(Arc<RequestKind>);

fn gather(ports: &[Port], bindings: &Bindings) -> Vec<PortBinding> {
    let bound = |p: &Port| bindings.surface(&p.name).map(|s| PortBinding { port: p.name.clone(), surface: s.clone() });
    ports.iter().filter_map(bound).collect()
}

impl Request {
    pub(crate) fn single(
        prepared: Arc<dyn Prepared>,
        procedure: &Procedure,
        bindings: &Bindings,
        life: Arc<Life>,
    ) -> Request {
        let inputs = gather(&procedure.inputs, bindings);
        let outputs = gather(&procedure.outputs, bindings);
        let states = gather(&procedure.states, bindings);
        Request(Arc::new(RequestKind::Single(Single {
            prepared,
            inputs,
            outputs,
            states,
            life,
            spare: Mutex::default(),
        })))
    }

    /// A chain that the machine runs as one request: each memory once, among the outputs if any
    /// step writes it.
    pub(crate) fn chained(
        prepared: Arc<dyn Prepared>,
        procedures: &[&Procedure],
        steps: &[Bindings],
        life: Arc<Life>,
    ) -> Request {
        let (mut inputs, mut outputs): (Vec<PortBinding>, Vec<PortBinding>) = (Vec::new(), Vec::new());
        let add = |list: &mut Vec<PortBinding>, bound: PortBinding| {
            if !list.iter().any(|b| b.surface.same_memory(&bound.surface)) {
                list.push(bound);
            }
        };
        for (procedure, bindings) in procedures.iter().zip(steps) {
            for bound in gather(&procedure.outputs, bindings).into_iter().chain(gather(&procedure.states, bindings)) {
                add(&mut outputs, bound);
            }
        }
        for (procedure, bindings) in procedures.iter().zip(steps) {
            for bound in gather(&procedure.inputs, bindings) {
                if !outputs.iter().any(|b| b.surface.same_memory(&bound.surface)) {
                    add(&mut inputs, bound);
                }
            }
        }
        let states = Vec::new();
        Request(Arc::new(RequestKind::Single(Single {
            prepared,
            inputs,
            outputs,
            states,
            life,
            spare: Mutex::default(),
        })))
    }

    pub(crate) fn sequence(steps: Vec<Request>, life: Arc<Life>) -> Request {
        Request(Arc::new(RequestKind::Sequence(steps, life)))
    }

    fn enter(&self) -> Result<Running> {
        match &*self.0 {
            RequestKind::Single(single) => single.life.enter(),
            RequestKind::Sequence(_, life) => life.enter(),
        }
    }

    /// Runs the request and waits for it.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if a surface is in use, [`ErrorKind::Unloaded`], or the evaluation
    /// failed. A chain ends at the first step that fails.
    pub fn evaluate(&self) -> Result<Stats> {
        let _running = self.enter()?;
        let _span = tracing::trace_span!(target: TARGET, "evaluate").entered();
        self.run()
    }

    fn run(&self) -> Result<Stats> {
        match &*self.0 {
            RequestKind::Single(single) => {
                let mut accesses = single.acquire()?;
                let result = single.prepared.evaluate(&mut accesses);
                single.put_back(accesses);
                result
            }
            RequestKind::Sequence(steps, _) => {
                let mut total = Stats { hardware: Some(Duration::ZERO), ..Stats::default() };
                for step in steps {
                    total = total.then(step.run()?);
                }
                Ok(total)
            }
        }
    }

    /// Queues the request.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if a surface is in use (also by this request in flight),
    /// [`ErrorKind::Unloaded`] or [`ErrorKind::QueueFull`]. Then nothing is in flight and every
    /// surface is free.
    pub fn submit(&self) -> Result<Submission> {
        let slot = CompletionSlot::new();
        let filled = slot.clone();
        self.submit_then(move |result| filled.fill(result))?;
        Ok(Submission::new(slot))
    }

    /// Queues the request. `done` is called once with the result, on a thread of the device, after
    /// all surfaces were released. It must not wait for another request of the device, which may be
    /// queued after this one.
    ///
    /// # Errors
    /// As [`Request::submit`]; `done` is not called then.
    pub fn submit_then(&self, done: impl FnOnce(Result<Stats>) + Send + 'static) -> Result<()> {
        let ticket = Ticket { running: Some(self.enter()?), done: Some(Box::new(done)) };
        let _span = tracing::trace_span!(target: TARGET, "submit").entered();
        let submitted = match &*self.0 {
            RequestKind::Single(_) => {
                let shared = Arc::new(Mutex::new(Some(ticket)));
                let theirs = shared.clone();
                let then = move |result| {
                    let Some(ticket) = lock(&theirs).take() else { return };
                    ticket.close(result);
                };
                self.submit_single(Box::new(then)).map_err(|error| (error, lock(&shared).take()))
            }
            RequestKind::Sequence(..) => {
                let total = Stats { hardware: Some(Duration::ZERO), ..Stats::default() };
                self.submit_from(0, total, ticket)
            }
        };
        submitted.map_err(|(error, ticket)| {
            if let Some(ticket) = ticket {
                ticket.void();
            }
            error
        })
    }

    fn submit_single(&self, then: Box<dyn FnOnce(Result<Stats>) + Send>) -> Result<()> {
        let RequestKind::Single(single) = &*self.0 else {
            return Err(Error::new(ErrorKind::System, "a chain inside a chain"));
        };
        let accesses = single.acquire()?;
        let request = self.clone();
        let done = Box::new(move |completion: Completion| {
            if let RequestKind::Single(single) = &*request.0 {
                single.put_back(completion.accesses);
            }
            // A waiter may then drop the program completely.
            drop(request);
            then(completion.result);
        });
        single.prepared.clone().submit(accesses, done).map_err(|(error, accesses)| {
            single.put_back(accesses);
            error
        })
    }

    /// Submits the steps of a sequence from index `at` on; the completion of each step submits the
    /// next.
    fn submit_from(&self, at: usize, total: Stats, ticket: Ticket) -> std::result::Result<(), (Error, Option<Ticket>)> {
        let RequestKind::Sequence(steps, _) = &*self.0 else { return Ok(()) };
        let Some(step) = steps.get(at) else {
            ticket.close(Ok(total));
            return Ok(());
        };
        // The ticket is needed again if the submit fails, but the closure that holds it is then
        // dropped: share it.
        let shared = Arc::new(Mutex::new(Some(ticket)));
        let (theirs, request, last) = (shared.clone(), self.clone(), at + 1 == steps.len());
        let then = Box::new(move |result: Result<Stats>| {
            let Some(ticket) = lock(&theirs).take() else { return };
            let ended = match result {
                Err(error) => Some((ticket, Err(error))),
                Ok(stats) if last => Some((ticket, Ok(total.then(stats)))),
                Ok(stats) => match request.submit_from(at + 1, total.then(stats), ticket) {
                    Ok(()) => None,
                    Err((error, ticket)) => ticket.map(|ticket| (ticket, Err(error))),
                },
            };
            // As for a single request.
            drop(request);
            if let Some((ticket, result)) = ended {
                ticket.close(result);
            }
        });
        step.submit_single(then).map_err(|error| (error, lock(&shared).take()))
    }
}

impl Single {
    fn acquire(&self) -> Result<Accesses> {
        let mut accesses = std::mem::take(&mut *lock(&self.spare));
        match self.fill(&mut accesses) {
            Ok(()) => Ok(accesses),
            Err(e) => {
                self.put_back(accesses);
                Err(e)
            }
        }
    }

    fn fill(&self, accesses: &mut Accesses) -> Result<()> {
        let busy = |b: &PortBinding, what: &str| {
            Error::new(ErrorKind::Busy, format!("the surface is {what}")).with_port(&b.port)
        };
        for b in &self.inputs {
            accesses.inputs.push(b.surface.memory().bytes().try_read().ok_or_else(|| busy(b, "being written"))?);
        }
        for b in &self.outputs {
            accesses.outputs.push(b.surface.memory().bytes().try_write().ok_or_else(|| busy(b, "in use"))?);
        }
        for b in &self.states {
            accesses.states.push(b.surface.memory().bytes().try_write().ok_or_else(|| busy(b, "in use"))?);
        }
        Ok(())
    }

    fn put_back(&self, mut accesses: Accesses) {
        accesses.release();
        *lock(&self.spare) = accesses;
    }
}

/// The obligation to report the result of a submitted run, discharged once, at the latest on drop.
struct Ticket {
    /// Released before the result is reported, so that a waiter may unload immediately.
    running: Option<Running>,
    done: Option<Box<dyn FnOnce(Result<Stats>) + Send>>,
}

impl Ticket {
    fn close(mut self, result: Result<Stats>) {
        self.tell(result);
    }

    /// Discharges the obligation of a run that was never queued.
    fn void(mut self) {
        self.done = None;
    }

    fn tell(&mut self, result: Result<Stats>) {
        if let Some(done) = self.done.take() {
            drop(self.running.take());
            done(result);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.tell(Err(Error::new(ErrorKind::System, "the device dropped the request without reporting a result")));
    }
}
