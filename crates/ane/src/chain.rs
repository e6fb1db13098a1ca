//! Runs the steps of a chain as one prepared request of the engine (apple-runtime §8).
//!
//! A chain is prepared once, with a buffer for every input and an output set for every step. A run
//! then enqueues the output set and announces the inputs of each step in turn, and waits for the
//! event that the last set signals. This use of the calls is our interpretation: no published
//! program has run a chain from MIL text to its end, and none has run on hardware through this
//! crate.
//!
//! So by default, if the framework refuses a chain at its preparation or at the first step of a
//! run, its steps run as separate requests in sequence. The device's notes state this with the
//! reason, and [`Stats::chained`] reports which of the two happened.

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

/// How the steps of a chain run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Chains {
    /// As one request of the engine if it accepts the chain, else as separate requests.
    #[default]
    Auto,
    /// As one request of the engine, or as an error with the reason why not.
    Hardware,
    /// As separate requests, one per step.
    Off,
}

/// The `source` of an `_ANEBuffer` that the engine reads, and of one that it writes.
const INPUT: i64 = 0;
const OUTPUT: i64 = 1;

/// The size of the surface for counters in bytes: any size works, but the surface is required.
const COUNTERS: usize = 64;

/// The chain that the engine has prepared for a model. There is one at a time, because another
/// preparation replaces it.
pub(crate) struct Active {
    chain: u64,
    client: Client,
    model: Model,
}

/// Steps that run as one request.
pub(crate) struct Chain {
    model: Arc<Routed>,
    steps: Vec<Ready>,
    /// `None` once the engine has refused it.
    hardware: Mutex<Option<Arc<Hardware>>>,
}

struct ChainStep {
    procedure: u32,
    /// Indices into the chain's inputs, and the values at which each is free again (immediately).
    inputs: (List, List),
}

struct Hardware {
    id: u64,
    request: ChainingRequest,
    steps: Vec<ChainStep>,
    done: EventCounter,
    _counters: SurfaceMemory,
    /// A run that timed out: the engine uses its surfaces until the event has this value.
    abandoned: Mutex<Option<(u64, Accesses)>>,
}

fn nil(what: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the framework makes no {what} of these surfaces"))
}

/// Why a run of the engine's chain failed, and whether a step may have begun.
struct Refusal {
    error: Error,
    untouched: bool,
}

impl Chain {
    /// Prepares a chain. An obstacle becomes a note, or with [`Chains::Hardware`] the error.
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

    /// Runs the steps as separate requests, without trying the engine's chain.
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
            // SAFETY: the pointer is the IOSurface of `counters`, which is kept with the request
            // and outlives this borrow.
            let stats = unsafe { foreign.as_ref() };
            sets.push(OutputSets::with(stats, &outputs)?.ok_or_else(|| nil("output set"))?);
            kept.push(ChainStep { procedure: procedure.id, inputs: (list(&own)?, list(&free)?) });
            last = procedure.outputs.first().map_or(0, |p| p.symbol);
        }
        let done = EventCounter::new()?;
        let signal = SignalEvent::with(1, last, 0, done.object().object())?.ok_or_else(|| nil("event"))?;
        let signals = list([&signal])?;
        // Loop-backs and the procedure must be nil: numbers and lists raise an exception.
        let request =
            ChainingRequest::with(&list(&inputs)?, &list(&sets)?, None, None, None, Some(&signals), None, None, None)?;
        let request = request.ok_or_else(|| nil("chaining request"))?;
        if !request.validate()? {
            return Err(Error::new(ErrorKind::Unavailable, "the framework finds the chaining request incomplete"));
        }
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        Ok(Hardware { id, request, steps: kept, done, _counters: counters, abandoned: Mutex::default() })
    }

    /// Prepares this chain for its model unless it is already active; returns the client and the
    /// model in use.
    fn activate<'a>(&self, model: &'a Routed) -> Result<MutexGuard<'a, Option<Active>>> {
        let mut active = lock(&model.active);
        if active.as_ref().is_none_or(|a| a.chain != self.id) {
            *active = None;
            let missing = |what: &str| Error::new(ErrorKind::Unavailable, what.to_string());
            // The in-memory model raises an exception and the shared client is refused;
            // preparations succeeded with the inner model and a client of our own.
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
