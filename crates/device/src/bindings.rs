//! Bindings of surfaces and events to the ports of a procedure, and their validation.

use std::sync::Arc;

use crate::backend::Event;
use crate::executable::check_name;
use crate::{Error, ErrorKind, Layout, Procedure, Result, Surface};

/// The surface of each port, and the events that a run waits for and signals.
#[derive(Clone, Default)]
pub struct Bindings {
    procedure: Option<String>,
    surfaces: Vec<(String, Surface)>,
    waits: Vec<(Arc<dyn Event>, u64)>,
    signals: Vec<(Arc<dyn Event>, u64)>,
}

impl Bindings {
    /// Empty bindings of the first procedure.
    pub fn new() -> Bindings {
        Bindings::default()
    }

    /// Selects a procedure other than the first.
    #[must_use]
    pub fn procedure(mut self, name: impl Into<String>) -> Bindings {
        self.procedure = Some(name.into());
        self
    }

    /// Binds a surface to a port, by name.
    #[must_use]
    pub fn bind(mut self, port: impl Into<String>, surface: &Surface) -> Bindings {
        self.surfaces.push((port.into(), surface.clone()));
        self
    }

    /// Waits for an event before each run. A counter only increases, so a second run of the same
    /// request does not wait again. Submitted requests run in order: a waiting request also delays
    /// those queued after it, so its event must be signaled by another thread or by an earlier
    /// request. The timeout is an option of the device (the emulator's `event_timeout`).
    #[must_use]
    pub fn wait(mut self, event: &Arc<dyn Event>, value: u64) -> Bindings {
        self.waits.push((event.clone(), value));
        self
    }

    /// Signals an event after each successful run. A failed run signals nothing, and waiters wait
    /// until their timeout: after a failure, raise the event from the CPU.
    #[must_use]
    pub fn signal(mut self, event: &Arc<dyn Event>, value: u64) -> Bindings {
        self.signals.push((event.clone(), value));
        self
    }

    /// The same bindings with each event replaced.
    pub(crate) fn map_events(mut self, map: impl Fn(&Arc<dyn Event>) -> Arc<dyn Event>) -> Bindings {
        for (event, _) in self.waits.iter_mut().chain(&mut self.signals) {
            *event = map(event);
        }
        self
    }

    /// The selected procedure; `None` for the first.
    pub fn procedure_name(&self) -> Option<&str> {
        self.procedure.as_deref()
    }

    /// Every bound surface with its port, in the order of binding.
    pub fn surfaces(&self) -> impl Iterator<Item = (&str, &Surface)> {
        self.surfaces.iter().map(|(n, s)| (n.as_str(), s))
    }

    /// The surface bound to a port, if any.
    pub fn surface(&self, port: &str) -> Option<&Surface> {
        self.surfaces.iter().find(|(n, _)| n == port).map(|(_, s)| s)
    }

    /// The events to wait for, with their values.
    pub fn waits(&self) -> &[(Arc<dyn Event>, u64)] {
        &self.waits
    }

    /// The events to signal, with their values.
    pub fn signals(&self) -> &[(Arc<dyn Event>, u64)] {
        &self.signals
    }
}

/// Validates bindings for a loaded program and returns the selected procedure.
///
/// # Errors
/// [`ErrorKind::Binding`] with the port: it is unknown, bound twice or not bound, has another type,
/// shape or strides, too little memory, or memory that is written and bound a second time. A
/// surface that does not fit its port has the engine's error for this, status 0x1d (apple-runtime
/// §4).
pub(crate) fn check<'a>(procedures: &'a [Procedure], bindings: &Bindings) -> Result<&'a Procedure> {
    let binding = |m: String, port: &str| Error::new(ErrorKind::Binding, m).with_port(port);
    let procedure = check_name(procedures, bindings.procedure_name())?;
    for (i, (port, surface)) in bindings.surfaces.iter().enumerate() {
        let wanted = &procedure.port(port)?.layout;
        if bindings.surfaces[..i].iter().any(|(p, _)| p == port) {
            return Err(binding("bound twice".into(), port));
        }
        let found = surface.layout();
        if found.dtype != wanted.dtype || found.shape != wanted.shape || found.strides != wanted.strides {
            let show = |l: &Layout| format!("{} {:?} strides {:?}", l.dtype, l.shape, l.strides);
            let message = format!("surface is {}, port wants {}", show(found), show(wanted));
            return Err(binding(message, port).with_row("surface-mismatch"));
        }
        // A machine reads and writes whole allocations, including padding.
        let (have, need) = (surface.memory().bytes().len(), wanted.allocation);
        if have < need {
            let message = format!("surface has {have} bytes, port wants {need}");
            return Err(binding(message, port).with_row("surface-mismatch"));
        }
    }
    if let Some(port) = procedure.ports().find(|p| bindings.surface(&p.name).is_none()) {
        return Err(binding("no surface bound".into(), &port.name));
    }
    for port in procedure.outputs.iter().chain(&procedure.states) {
        let Some(surface) = bindings.surface(&port.name) else { continue };
        let clash = bindings.surfaces.iter().find(|(n, s)| *n != port.name && s.same_memory(surface));
        if let Some((other, _)) = clash {
            return Err(binding(format!("its memory is also bound to `{other}`"), &port.name));
        }
    }
    Ok(procedure)
}
