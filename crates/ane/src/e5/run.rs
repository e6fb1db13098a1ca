//! Loaded programs and their requests: the last step of the recipe.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ferrane_device::backend::{Accesses, Done, Loaded, Prepared, ProgramState, Stats};
use ferrane_device::{Bindings, Error, ErrorKind, Port, Procedure, Result};
use ferrane_host::sync::lock;

use super::assembly::Assembly;
use super::slot::PortArray;
use super::{E5Context, proof};
use crate::bind::coreml::{FeatureValue, Features, PredictionOptions};
use crate::bind::e5::Engine;
use crate::bind::foundation::{Map, map};
use crate::bind::{Object, Wrap as _};

/// A program with its engines.
pub(super) struct Running(Arc<LoadedProgram>);

struct LoadedProgram {
    shared: Arc<E5Context>,
    assembly: Arc<Assembly>,
    procedures: Vec<Procedure>,
    /// An engine for each procedure, while the program is loaded.
    engines: Mutex<Option<Arc<Vec<Engine>>>>,
    /// For each procedure, whether it was observed to compute.
    proven: Vec<AtomicBool>,
}

impl LoadedProgram {
    fn engines(&self) -> std::sync::MutexGuard<'_, Option<Arc<Vec<Engine>>>> {
        lock(&self.engines)
    }

    fn load(&self) -> Result<()> {
        let engines = self.assembly.engines()?;
        *self.engines() = Some(Arc::new(engines));
        Ok(())
    }
}

impl Running {
    /// Creates the engines of a program.
    ///
    /// # Errors
    /// Core ML's error.
    pub(super) fn new(shared: Arc<E5Context>, assembly: Arc<Assembly>, procedures: Vec<Procedure>) -> Result<Running> {
        let proven = procedures.iter().map(|_| AtomicBool::new(false)).collect();
        let state = LoadedProgram { shared, assembly, procedures, engines: Mutex::default(), proven };
        state.load()?;
        Ok(Running(Arc::new(state)))
    }
}

impl Loaded for Running {
    fn procedures(&self) -> &[Procedure] {
        &self.0.procedures
    }

    fn prepare(&self, bindings: &Bindings) -> Result<Arc<dyn Prepared>> {
        if !bindings.waits().is_empty() || !bindings.signals().is_empty() {
            return Err(Error::new(ErrorKind::Unavailable, "the E5 path has no events"));
        }
        let name = bindings.procedure_name();
        let index = self.0.procedures.iter().position(|p| name.is_none_or(|n| n == p.name));
        let none = || Error::new(ErrorKind::Binding, "no such procedure");
        let (index, procedure) = index.and_then(|i| Some((i, self.0.procedures.get(i)?))).ok_or_else(none)?;
        let slots = |ports: &[Port]| {
            let slot = |port: &Port| {
                let bad = |why: &str| Error::new(ErrorKind::Binding, why).with_port(&port.name);
                let surface = bindings.surface(&port.name).ok_or_else(|| bad("no surface bound"))?;
                PortArray::new(port, surface)
            };
            ports.iter().map(slot).collect::<Result<Vec<_>>>()
        };
        let (inputs, outputs) = (slots(&procedure.inputs)?, slots(&procedure.outputs)?);
        let features = Features::with(&values(&inputs)?)?;
        let options = PredictionOptions::new()??;
        let backings = outputs.iter().map(|s| (s.port.as_str(), s.array().object().clone()));
        options.set_backings(&map(backings)?)?;
        let request = Request { inputs, outputs, features, options };
        Ok(Arc::new(Ready { state: self.0.clone(), index, request }))
    }

    fn unload(&self) -> Result<()> {
        self.0.engines().take();
        Ok(())
    }

    fn reload(&self) -> Result<()> {
        self.0.engines().take();
        self.0.load()
    }

    fn state(&self) -> ProgramState {
        if self.0.engines().is_some() { ProgramState::Loaded } else { ProgramState::Created }
    }
}

/// The values of ports by name.
fn values(slots: &[PortArray]) -> Result<Map> {
    let values = slots.iter().map(|s| Ok((s.port.as_str(), s.value()?.object().clone())));
    map(values.collect::<Result<Vec<_>>>()?)
}

/// The arrays of a request, bound once.
pub(super) struct Request {
    pub(super) inputs: Vec<PortArray>,
    pub(super) outputs: Vec<PortArray>,
    features: Features,
    options: PredictionOptions,
}

impl Request {
    /// Runs one prediction. The outputs are then in the arrays of the request.
    ///
    /// # Errors
    /// Core ML's error, or an output that it did not return.
    pub(super) fn predict(&self, engine: &Engine, accesses: &mut Accesses) -> Result<()> {
        let found = Features::wrap(engine.predict(&self.features, &self.options)?);
        for (slot, surface) in self.outputs.iter().zip(&mut accesses.outputs) {
            let none = || Error::new(ErrorKind::Evaluate, "Core ML gave no such output").with_port(&slot.port);
            let value: FeatureValue = found.value(&slot.name)?.ok_or_else(none)?;
            slot.take(&value.array()?.ok_or_else(none)?, surface)?;
        }
        Ok(())
    }

    /// The values of the inputs and one more.
    ///
    /// # Errors
    /// Core ML's error.
    pub(super) fn features_and(&self, name: &str, value: &FeatureValue) -> Result<Features> {
        let mut all: Vec<(&str, Object)> = Vec::new();
        for slot in &self.inputs {
            all.push((slot.port.as_str(), slot.value()?.object().clone()));
        }
        all.push((name, value.object().clone()));
        Features::with(&map(all)?)
    }
}

/// A request with its program.
struct Ready {
    state: Arc<LoadedProgram>,
    index: usize,
    request: Request,
}

impl Ready {
    fn run(&self, accesses: &mut Accesses) -> Result<Stats> {
        let start = Instant::now();
        let unloaded = || Error::new(ErrorKind::Unloaded, "the program is not loaded");
        let engines = self.state.engines().clone().ok_or_else(unloaded)?;
        let engine = engines.get(self.index).ok_or_else(unloaded)?;
        let Request { inputs, outputs, .. } = &self.request;
        let mut locks = inputs.iter().map(|s| s.lock(false)).collect::<Result<Vec<_>>>()?;
        for slot in outputs {
            locks.push(slot.lock(true)?);
        }
        for (slot, surface) in inputs.iter().zip(&accesses.inputs) {
            slot.load(surface)?;
        }
        match self.state.proven.get(self.index) {
            Some(proven) if !proven.load(Ordering::Relaxed) => {
                let LoadedProgram { shared, assembly, procedures, .. } = &*self.state;
                let function = procedures.get(self.index).map_or("", |p| p.name.as_str());
                let seen = proof::first(shared, assembly, function, engine, &self.request, accesses)?;
                proven.store(seen, Ordering::Relaxed);
            }
            _ => self.request.predict(engine, accesses)?,
        }
        for (slot, surface) in outputs.iter().zip(&mut accesses.outputs) {
            slot.store(surface)?;
        }
        drop(locks);
        let mut stats = Stats::default();
        stats.wall = start.elapsed();
        Ok(stats)
    }
}

impl Prepared for Ready {
    fn evaluate(&self, accesses: &mut Accesses) -> Result<Stats> {
        self.run(accesses)
    }

    // A prediction is synchronous.
    fn submit(self: Arc<Self>, accesses: Accesses, done: Done) -> std::result::Result<(), (Error, Accesses)> {
        let shared = self.state.shared.clone();
        shared.queue.submit(self, accesses, done)
    }
}
