//! Chains: the steps of a seam chain as one prepared request of the engine (apple-runtime §8).
//!
//! A chain is prepared once with a buffer for every input and an output set for every step; a run
//! then tells, step by step, where outputs go and that inputs are ready, and waits for the event
//! that the last set raises. That reading of the calls is ours: no published program has run a
//! chain of MIL text to its end, and none has met hardware through this crate. So by default a
//! chain that the framework refuses, at its preparation or at the first step of a run, goes as
//! requests of its own, one after another; the device's notes say so and why, and
//! [`Stats::chained`] which of the two it was.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use ferrane_device::backend::{Accesses, Done, Event as _, Prepared, Stats};
use ferrane_device::{Bindings, Error, ErrorKind, Layout, Memory as _, Procedure, Result};
use ferrane_host::sync::lock;
use ferrane_mil::DataType;

use crate::bind::foundation::{List, Map, Number, list, number};
use crate::bind::{
    Buffer, ChainingRequest, Client, InputBuffersReady, Model, OutputSetEnqueue, OutputSets, SignalEvent, Wrap as _,
};
use crate::device::{LoadedModel, Ready, Routed, placed};
use crate::events::EventCounter;
use crate::surface::{SurfaceMemory, behind};

/// The values of the option `chain`.
pub(crate) const WORDS: [(&str, Chains); 3] =
    [("auto", Chains::Auto), ("hardware", Chains::Hardware), ("off", Chains::Off)];

/// How chains run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Chains {
    /// As one request of the engine where it takes them.
    #[default]
    Auto,
    /// As one request of the engine, or an error that says why not.
    Hardware,
    /// As requests of their own.
    Off,
}

/// The source of an `_ANEBuffer` that the engine reads, and of one that it writes.
const INPUT: i64 = 0;
const OUTPUT: i64 = 1;

/// Bytes of the surface for counters: any will do, and it must be there.
const COUNTERS: usize = 64;

/// The chain that the engine has prepared for a model: one at a time, since a second preparation
/// replaces the first.
pub(crate) struct Active {
    chain: u64,
    client: Client,
    model: Model,
}

/// Steps that run as one request.
pub(crate) struct Chain {
    model: Arc<Routed>,
    steps: Vec<Ready>,
    /// Nothing once the engine has refused it.
    hardware: Mutex<Option<Arc<Hardware>>>,
}

struct ChainStep {
    procedure: u32,
    /// Indices into the chain's inputs, and when each is free again: at once.
    inputs: (List, List),
}

struct Hardware {
    id: u64,
    request: ChainingRequest,
    steps: Vec<ChainStep>,
    done: EventCounter,
    _counters: SurfaceMemory,
    /// A run that was given up: the surfaces are the engine's until the event has this value.
    abandoned: Mutex<Option<(u64, Accesses)>>,
}

fn nil(what: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the framework makes no {what} of these surfaces"))
}

/// Why a run of the engine's chain failed, and whether any step of it may have begun.
struct Refusal {
    error: Error,
    untouched: bool,
}

impl Chain {
    /// Prepares one. Whatever stands in its way is a note, or with [`Chains::Hardware`] the error.
    pub(crate) fn new(loaded: &LoadedModel, chains: Chains, steps: &[Bindings]) -> Result<Chain> {
        let model = loaded.model.clone();
        let hardware = Hardware::new(loaded, steps).and_then(|hardware| {
            drop(hardware.activate(&model)?);
            Ok(Arc::new(hardware))
        });
        let hardware = match hardware {
            Ok(hardware) => Some(hardware),
            Err(error) if chains == Chains::Hardware => return Err(error),
            Err(error) => {
                note(&model, steps.len(), &error);
                None
            }
        };
        let ready = |bindings| loaded.ready(bindings);
        let steps = steps.iter().map(ready).collect::<Result<_>>()?;
        Ok(Chain { model, steps, hardware: Mutex::new(hardware) })
    }

    /// Without an engine's chain, and without trying for one.
    fn one_by_one(&self, accesses: &mut Accesses) -> Result<Stats> {
        let mut steps = self.steps.iter();
        let first = steps.next().map_or_else(|| Ok(Stats::default()), |step| step.evaluate(accesses))?;
        steps.try_fold(first, |total, step| Ok(total.then(step.evaluate(accesses)?)))
    }
}

fn note(model: &Routed, steps: usize, error: &Error) {
    model.running.shared.note(format!("a chain of {steps} steps runs as requests of their own: {error}"));
}

impl Prepared for Chain {
    fn evaluate(&self, accesses: &mut Accesses) -> Result<Stats> {
        let hardware = lock(&self.hardware).clone();
        let Some(hardware) = hardware else { return self.one_by_one(accesses) };
        let start = Instant::now();
        match hardware.run(&self.model, accesses) {
            Ok(()) => {
                let mut stats = Stats::default();
                (stats.wall, stats.chained) = (start.elapsed(), true);
                Ok(stats)
            }
            Err(Refusal { error, untouched: true }) if self.model.running.shared.opened.chains == Chains::Auto => {
                note(&self.model, self.steps.len(), &error);
                *lock(&self.hardware) = None;
                self.one_by_one(accesses)
            }
            Err(refusal) => Err(refusal.error),
        }
    }

    fn submit(self: Arc<Self>, accesses: Accesses, done: Done) -> std::result::Result<(), (Error, Accesses)> {
        let shared = self.model.running.shared.clone();
        shared.queue.submit(self, accesses, done)
    }
}

impl Hardware {
    fn new(loaded: &LoadedModel, steps: &[Bindings]) -> Result<Hardware> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        if steps.iter().any(|b| !b.waits().is_empty() || !b.signals().is_empty()) {
            return Err(Error::new(ErrorKind::Unavailable, "a chain of the engine has no events between its steps"));
        }
        let shared = &loaded.model.running.shared;
        let layout = Layout::packed(DataType::Fp16, &[COUNTERS / 2])?;
        let counters = SurfaceMemory::new(shared.system.surfaces, &layout, COUNTERS)?;
        let (mut inputs, mut sets, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        let mut last = 0;
        for bindings in steps {
            let procedure = loaded.procedure(bindings)?;
            let own: Vec<Number> =
                (0..procedure.inputs.len()).map(|i| number((inputs.len() + i) as u64)).collect::<Result<_>>()?;
            let free: Vec<Number> = own.iter().map(|_| number(0)).collect::<Result<_>>()?;
            inputs.extend(buffers(procedure, bindings, INPUT)?);
            let outputs = list(&buffers(procedure, bindings, OUTPUT)?)?;
            let foreign = behind(counters.foreign()).ok_or_else(|| nil("output set"))?;
            // SAFETY: the surface lives as long as `counters`, which is kept with the request.
            let stats = unsafe { foreign.as_ref() };
            sets.push(OutputSets::with(stats, &outputs)?.ok_or_else(|| nil("output set"))?);
            kept.push(ChainStep { procedure: procedure.id, inputs: (list(&own)?, list(&free)?) });
            last = procedure.outputs.first().map_or(0, |p| p.symbol);
        }
        let done = EventCounter::new()?;
        let signal = SignalEvent::with(1, last, 0, done.object().object())?.ok_or_else(|| nil("event"))?;
        let signals = list([&signal])?;
        // Loop-backs and the procedure must be nil: numbers and lists raise.
        let request =
            ChainingRequest::with(&list(&inputs)?, &list(&sets)?, None, None, None, Some(&signals), None, None, None)?;
        let request = request.ok_or_else(|| nil("chaining request"))?;
        if !request.validate()? {
            return Err(Error::new(ErrorKind::Unavailable, "the framework finds the chaining request incomplete"));
        }
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        Ok(Hardware { id, request, steps: kept, done, _counters: counters, abandoned: Mutex::default() })
    }

    /// Has the engine prepare this chain for its model, and gives the client and the model that
    /// were used.
    fn activate<'a>(&self, model: &'a Routed) -> Result<MutexGuard<'a, Option<Active>>> {
        let mut active = lock(&model.active);
        if active.as_ref().is_none_or(|a| a.chain != self.id) {
            *active = None;
            let missing = |what: &str| Error::new(ErrorKind::Unavailable, what.to_string());
            // The in-memory model raises, and a shared client is refused: the model inside and a
            // client of our own are what preparations succeeded with.
            let client = Client::restricted(true)?.ok_or_else(|| missing("there is no client of our own"))?;
            let inner = model.running.model.model()?.ok_or_else(|| missing("the model has no model inside"))?;
            let shared = &model.running.shared;
            client.prepare_chaining(&inner, &shared.no_options, &self.request, shared.opened.qos)?;
            *active = Some(Active { chain: self.id, client, model: inner });
        }
        Ok(active)
    }

    fn run(&self, model: &Routed, accesses: &mut Accesses) -> std::result::Result<(), Refusal> {
        let refused = |error| Refusal { error, untouched: true };
        let mut abandoned = lock(&self.abandoned);
        if abandoned.as_ref().is_some_and(|(value, _)| self.done.value() < *value) {
            let error = Error::new(ErrorKind::Busy, "the engine has not ended the chain's last run");
            return Err(Refusal { error, untouched: false });
        }
        *abandoned = None;
        let active = self.activate(model).map_err(refused)?;
        let Some(Active { client, model: inner, .. }) = &*active else {
            return Err(refused(Error::new(ErrorKind::System, "no chain is prepared")));
        };
        let shared = &model.running.shared;
        let base = self.done.value();
        for (i, step) in self.steps.iter().enumerate() {
            let value = base.saturating_add(i as u64 + 1);
            let sent = step.send(i as u32, value, client, inner, &shared.no_options, shared.opened.qos);
            sent.map_err(|error| Refusal { error, untouched: i == 0 })?;
        }
        let end = base.saturating_add(self.steps.len() as u64);
        if self.done.wait(end, shared.opened.event_timeout) {
            return Ok(());
        }
        *abandoned = Some((end, std::mem::take(accesses)));
        let after = shared.opened.event_timeout.as_secs_f32();
        let message =
            format!("the engine has not ended a chain within {after} s; `chain=off` runs its steps one by one");
        Err(Refusal { error: Error::new(ErrorKind::Evaluate, message), untouched: false })
    }
}

impl ChainStep {
    fn send(&self, set: u32, value: u64, client: &Client, model: &Model, options: &Map, qos: u32) -> Result<()> {
        let outputs =
            OutputSetEnqueue::with(self.procedure, set, value, false, false)?.ok_or_else(|| nil("output set"))?;
        client.enqueue_sets(model, &outputs, options, qos)?;
        let (buffers, free) = &self.inputs;
        let inputs = InputBuffersReady::with(self.procedure, buffers, free, 0)?.ok_or_else(|| nil("list of inputs"))?;
        client.buffers_ready(model, &inputs, options, qos)
    }
}

fn buffers(procedure: &Procedure, bindings: &Bindings, source: i64) -> Result<Vec<Buffer>> {
    let ports = if source == INPUT { &procedure.inputs } else { &procedure.outputs };
    let buffer = |port| {
        let (symbol, surface) = placed(port, bindings)?;
        Buffer::with(&surface, &symbol, source)?.ok_or_else(|| nil("buffer"))
    };
    ports.iter().map(buffer).collect()
}
