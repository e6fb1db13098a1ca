//! Calls with tensors: the short way to run a program.
//!
//! [`Executable::call`] allocates a surface for each port by the machine's rules, writes the
//! inputs, evaluates and reads the outputs. A [`BoundProcedure`] keeps surfaces and request for
//! many runs. [`Device::call`] starts from a program; it also runs functions with ports that no
//! surface can have, if the backend supports it ([`Backend::call`](crate::Backend::call)).
//!
//! Element types are never converted: a tensor of another type than its port's is an error.

use std::time::{Duration, Instant};

use ferrane_mil::{Function, Program};

use crate::log::TARGET;
use crate::{
    Bindings, Device, Error, ErrorKind, Executable, Layout, Port, Procedure, Request, Result, Stats, Surface, Tensor,
    Tensors,
};

/// What a function is called with.
///
/// ```
/// # use ferrane_device::{Call, Tensor};
/// # fn main() -> ferrane_device::Result<()> {
/// let x = Tensor::fp16(&[1, 2], &[0.5, 1.0])?;
/// let call = Call::from([("x", x.clone())]); // the first function
/// let call = Call::new().function("decode").input("x", x.clone()).state("cache", x);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Call {
    function: Option<String>,
    label: Option<String>,
    inputs: Tensors,
    states: Tensors,
}

impl Call {
    /// A call of the first function without inputs.
    pub fn new() -> Call {
        Call::default()
    }

    /// Selects a function other than the first.
    #[must_use]
    pub fn function(mut self, name: impl Into<String>) -> Call {
        self.function = Some(name.into());
        self
    }

    /// The name of the program in the machine's messages; by default that of the function.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Call {
        self.label = Some(label.into());
        self
    }

    /// Adds the value of an input.
    #[must_use]
    pub fn input(mut self, name: impl Into<String>, tensor: Tensor) -> Call {
        self.inputs.insert(name, tensor);
        self
    }

    /// The value of a state before the run; zeros by default.
    #[must_use]
    pub fn state(mut self, name: impl Into<String>, tensor: Tensor) -> Call {
        self.states.insert(name, tensor);
        self
    }

    /// Sets the values of all inputs.
    #[must_use]
    pub fn inputs(mut self, inputs: impl Into<Tensors>) -> Call {
        self.inputs = inputs.into();
        self
    }

    /// Sets the values of states before the run; states that are not named are zeros.
    #[must_use]
    pub fn states(mut self, states: impl Into<Tensors>) -> Call {
        self.states = states.into();
        self
    }

    /// The selected function; `None` for the first.
    pub fn function_name(&self) -> Option<&str> {
        self.function.as_deref()
    }

    /// The values of inputs that were set.
    pub fn given_inputs(&self) -> &Tensors {
        &self.inputs
    }

    /// The values of states that were set.
    pub fn given_states(&self) -> &Tensors {
        &self.states
    }
}

impl From<Tensors> for Call {
    fn from(inputs: Tensors) -> Call {
        Call { inputs, ..Call::default() }
    }
}

impl<N: Into<String>, const K: usize> From<[(N, Tensor); K]> for Call {
    fn from(inputs: [(N, Tensor); K]) -> Call {
        Tensors::from(inputs).into()
    }
}

/// The results of a call.
#[derive(Clone, Debug, Default)]
pub struct Returned {
    /// The outputs, in the machine's order.
    pub outputs: Tensors,
    /// All states after the run.
    pub states: Tensors,
    /// The time of the evaluation, without compiling and loading.
    pub stats: Stats,
}

impl Returned {
    /// The output or state with this name.
    ///
    /// # Errors
    /// [`ErrorKind::Binding`] for another name; the message lists the outputs.
    pub fn get(&self, name: &str) -> Result<&Tensor> {
        match self.outputs.find(name).or_else(|| self.states.find(name)) {
            Some(tensor) => Ok(tensor),
            None => self.outputs.get(name),
        }
    }
}

/// A procedure with its own surface for each port. Its runs are sequential; states keep their
/// values from run to run until they are written.
pub struct BoundProcedure {
    procedure: Procedure,
    surfaces: Vec<Surface>,
    request: Request,
}

impl BoundProcedure {
    /// The procedure that is bound, with its ports.
    pub fn procedure(&self) -> &Procedure {
        &self.procedure
    }

    /// The request that runs it.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The surface of a port.
    ///
    /// # Errors
    /// [`ErrorKind::Binding`] for an unknown name.
    pub fn surface(&self, port: &str) -> Result<&Surface> {
        let mut bound = self.procedure.ports().zip(&self.surfaces);
        match bound.find(|(p, _)| p.name == port) {
            Some((_, surface)) => Ok(surface),
            None => Err(self.procedure.port(port).err().unwrap_or_else(|| unknown(port))),
        }
    }

    /// Writes a tensor to a port.
    ///
    /// # Errors
    /// [`ErrorKind::Binding`] for an unknown port, another element type or number of elements;
    /// [`ErrorKind::Busy`] while a run is in flight.
    pub fn write(&self, port: &str, tensor: &Tensor) -> Result<()> {
        self.surface(port)?.write_tensor(tensor).map_err(|e| e.with_port(port))
    }

    /// Reads the tensor of a port.
    ///
    /// # Errors
    /// [`ErrorKind::Binding`] for an unknown port, [`ErrorKind::Busy`] while a run is in flight.
    pub fn read(&self, port: &str) -> Result<Tensor> {
        self.surface(port)?.read_tensor().map_err(|e| e.with_port(port))
    }

    /// Writes all inputs.
    ///
    /// # Errors
    /// [`ErrorKind::Binding`] for a missing or unknown input; otherwise as
    /// [`BoundProcedure::write`].
    pub fn write_inputs(&self, inputs: &Tensors) -> Result<()> {
        let known = |name: &str| self.procedure.inputs.iter().any(|p| p.name == name);
        if let Some(name) = inputs.names().find(|name| !known(name)) {
            return Err(unknown_among(name, "input", self.procedure.inputs.iter().map(|p| p.name.as_str())));
        }
        for port in &self.procedure.inputs {
            let missing = || Error::new(ErrorKind::Binding, "no value for the input").with_port(&port.name);
            self.write(&port.name, inputs.find(&port.name).ok_or_else(missing)?)?;
        }
        Ok(())
    }

    /// Writes the given states, and zeros to the others.
    ///
    /// # Errors
    /// [`ErrorKind::Binding`] for an unknown state; otherwise as [`BoundProcedure::write`].
    pub fn write_states(&self, states: &Tensors) -> Result<()> {
        let known = |name: &str| self.procedure.states.iter().any(|p| p.name == name);
        if let Some(name) = states.names().find(|name| !known(name)) {
            return Err(unknown_among(name, "state", self.procedure.states.iter().map(|p| p.name.as_str())));
        }
        for port in &self.procedure.states {
            match states.find(&port.name) {
                Some(tensor) => self.write(&port.name, tensor)?,
                None => self.surface(&port.name)?.write()?.bytes_mut().fill(0),
            }
        }
        Ok(())
    }

    /// Runs the procedure once.
    ///
    /// # Errors
    /// As [`Request::evaluate`].
    pub fn evaluate(&self) -> Result<Stats> {
        self.request.evaluate()
    }

    /// Reads the outputs, in the machine's order.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] while a run is in flight.
    pub fn outputs(&self) -> Result<Tensors> {
        self.procedure.outputs.iter().map(|p| Ok((p.name.clone(), self.read(&p.name)?))).collect()
    }

    /// Reads the states.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] while a run is in flight.
    pub fn states(&self) -> Result<Tensors> {
        self.procedure.states.iter().map(|p| Ok((p.name.clone(), self.read(&p.name)?))).collect()
    }

    /// Writes inputs and states, runs the procedure once, and reads outputs and states.
    ///
    /// # Errors
    /// Those of writing, evaluating and reading.
    pub fn call(&self, inputs: &Tensors, states: &Tensors) -> Result<Returned> {
        self.write_inputs(inputs)?;
        self.write_states(states)?;
        let stats = self.evaluate()?;
        Ok(Returned { outputs: self.outputs()?, states: self.states()?, stats })
    }
}

fn unknown(port: &str) -> Error {
    Error::new(ErrorKind::Binding, "no such port").with_port(port)
}

fn unknown_among<'a>(name: &str, what: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let known: Vec<&str> = known.collect();
    let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
    Error::new(ErrorKind::Binding, format!("no {what} `{name}`; there are {known}")).with_port(name)
}

impl Executable {
    /// Binds a procedure (the first, if no name is given) to new surfaces that meet the machine's
    /// requirements ([`Device::surfaces`]).
    ///
    /// # Errors
    /// [`ErrorKind::Binding`] for an unknown name; as [`Device::surface`] and
    /// [`Executable::prepare`].
    pub fn bind(&self, function: Option<&str>) -> Result<BoundProcedure> {
        self.bind_with(function, |procedure, port| self.device().fitted(procedure, &port.name))
    }

    /// As [`Executable::bind`], with chosen layouts, for code that depends on the size of an
    /// allocation.
    ///
    /// # Errors
    /// As [`Executable::bind`].
    pub fn bind_with(
        &self,
        function: Option<&str>,
        layout: impl Fn(&Procedure, &Port) -> Result<Layout>,
    ) -> Result<BoundProcedure> {
        let procedure = self.procedure_or_first(function)?.clone();
        let mut bindings = Bindings::new().procedure(&procedure.name);
        let mut surfaces = Vec::new();
        for port in procedure.ports() {
            let surface = self.device().surface(&layout(&procedure, port)?)?;
            bindings = bindings.bind(&port.name, &surface);
            surfaces.push(surface);
        }
        Ok(BoundProcedure { request: self.prepare(bindings)?, procedure, surfaces })
    }

    /// Runs a procedure once on tensors. The surfaces are allocated for this call;
    /// [`Executable::bind`] keeps them.
    ///
    /// ```
    /// # use ferrane_scripted::{Scripted, procedure};
    /// # use ferrane_device::{CompileOptions, Device, ProgramSource, Tensor};
    /// # fn main() -> ferrane_device::Result<()> {
    /// # let copy = procedure("main", 0, &[("x", &[1, 4])], &[("y", &[1, 4])])?;
    /// # let device = Device::new(Scripted::new(move |_| Ok(vec![copy.clone()]))?);
    /// # let source = ProgramSource::Text { mil: b"program(1.3)", weights: &Default::default() };
    /// # let executable = device.compile(source, &CompileOptions::labeled("copy"))?.load()?;
    /// // `executable` is a loaded program that returns its input `x` as `y`.
    /// let x = Tensor::fp16(&[1, 4], &[1.0, 2.0, 3.0, 0.5])?;
    /// let returned = executable.call([("x", x)])?;
    /// assert_eq!(returned.get("y")?.to_f32(), [1.0, 2.0, 3.0, 0.5]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Binding`] for a missing or unknown input or one of another type;
    /// [`ErrorKind::Unloaded`]; otherwise as for an evaluation.
    pub fn call(&self, call: impl Into<Call>) -> Result<Returned> {
        let call = call.into();
        self.bind(call.function_name())?.call(&call.inputs, &call.states)
    }
}

impl Device {
    /// Runs a function of a program once: compiles and loads the program or, if a port cannot have
    /// a surface (open shapes, extents of 0, 64-bit elements), lets the backend run it on tensors.
    ///
    /// Every call compiles the program: load programs that run often.
    ///
    /// # Errors
    /// As [`Device::compile`], [`Artifact::load`](crate::Artifact::load) and [`Executable::call`].
    pub fn call(&self, program: &Program, call: impl Into<Call>) -> Result<Returned> {
        let mut call = call.into();
        let function = match &call.function {
            None => program.functions.first().ok_or_else(|| Error::new(ErrorKind::Binding, "the program is empty"))?,
            Some(name) => program
                .function(name)
                .ok_or_else(|| unknown_among(name, "function", program.functions.iter().map(|f| f.name.as_str())))?,
        };
        let label = call.label.clone().unwrap_or_else(|| function.name.clone());
        call.function = Some(function.name.clone());
        if !fits_surfaces(function) {
            let begun = Instant::now();
            let _span = tracing::info_span!(target: TARGET, "call", %label, device = %self.name()).entered();
            if let Some(returned) = self.backend().call(program, &function.name, &call) {
                let mut returned = returned?;
                if returned.stats.wall == Duration::ZERO {
                    returned.stats.wall = begun.elapsed();
                }
                return Ok(returned);
            }
        }
        self.load(program, &label)?.call(call)
    }
}

/// True if every port of a function can have a surface: known extents above 0, elements of 1 to 4
/// bytes.
pub fn fits_surfaces(function: &Function) -> bool {
    let ports = function.inputs.iter().chain(&function.body().outputs);
    ports.map(|v| &function.value(*v).ty).all(|ty| {
        let narrow = ty.dtype().and_then(|d| d.bytes()).is_some_and(|b| b <= 4);
        narrow && ty.shape().is_some_and(|shape| !shape.contains(&0))
    })
}
