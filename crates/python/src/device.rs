//! Devices, and functions that are loaded on one.

use std::sync::{Arc, Mutex, PoisonError};

use ferrane::mil::Program;
use ferrane::{Call, Tensors};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::{self, Declared};
use crate::error::{device, failed};
use crate::fork::unlocked;
use crate::request::PreparedRequest;

/// A device, opened by its name: `emulator`, `emulator?numerics=exact`, `ane`.
#[pyclass(frozen, module = "ferrane._native")]
pub struct Device(pub ferrane::Device);

#[pymethods]
impl Device {
    #[new]
    #[pyo3(signature = (name = "emulator"))]
    fn new(py: Python<'_>, name: &str) -> PyResult<Device> {
        unlocked(py, || ferrane::open(name))?.map(Device).map_err(|e| device(&e))
    }

    /// The device's name, with its options.
    #[getter]
    fn name(&self) -> String {
        self.0.name()
    }
}

/// What a call runs.
#[derive(Clone)]
enum Loaded {
    Executable(ferrane::Executable),
    /// A function with a port that no surface can have, which a device runs on tensors.
    Program(ferrane::Device, Arc<Program>),
}

/// A function that is loaded on a device. Several threads may call it at once.
#[pyclass(frozen, module = "ferrane._native")]
#[derive(Clone)]
pub struct Executable {
    loaded: Loaded,
    function: String,
    inputs: Vec<Declared>,
    states: Vec<Declared>,
}

impl Executable {
    pub fn load(py: Python<'_>, on: &ferrane::Device, model: &ferrane::Model) -> PyResult<Executable> {
        let function = model.function();
        let loaded = if ferrane::fits_surfaces(function) {
            let loaded = unlocked(py, || on.load(model.program(), &function.name))?;
            Loaded::Executable(loaded.map_err(|e| device(&e))?)
        } else {
            Loaded::Program(on.clone(), Arc::new(model.program().clone()))
        };
        let (inputs, states) = arrays::parameters(function);
        Ok(Executable { loaded, function: function.name.clone(), inputs, states })
    }

    /// Runs the function on tensors, which must have its shapes.
    pub fn call<'py>(&self, py: Python<'py>, given: Given) -> PyResult<Bound<'py, PyDict>> {
        arrays::check_shapes(&given.inputs, &self.inputs)?;
        let (states, into) = given.states.map_or((Tensors::new(), None), |(states, dict)| (states, Some(dict)));
        arrays::check_shapes(&states, &self.states)?;
        let call = Call::new().function(self.function.as_str()).inputs(given.inputs).states(states);
        let returned = unlocked(py, || match &self.loaded {
            Loaded::Executable(executable) => executable.call(call),
            Loaded::Program(device, program) => device.call(program, call),
        })?;
        let returned = returned.map_err(|e| device(&e))?;
        if let Some(states) = into {
            arrays::put(states.bind(py), returned.states.iter())?;
        }
        let outputs = PyDict::new(py);
        arrays::put(&outputs, returned.outputs.iter())?;
        Ok(outputs)
    }
}

/// What a function is called with, read from arrays in the types that it declares.
pub struct Given {
    pub inputs: Tensors,
    /// The states with the dictionary that gets those after the run.
    states: Option<(Tensors, Py<PyDict>)>,
}

impl Given {
    /// Reads arrays in the types that a function declares.
    pub fn read(
        inputs: &Bound<'_, PyDict>,
        states: Option<&Bound<'_, PyDict>>,
        declared: (&[Declared], &[Declared]),
    ) -> PyResult<Given> {
        let inputs = arrays::tensors(inputs, declared.0)?;
        let states = states.map(|dict| Ok::<_, PyErr>((arrays::tensors(dict, declared.1)?, dict.clone().unbind())));
        Ok(Given { inputs, states: states.transpose()? })
    }
}

/// Arguments of a later call, which were read from arrays. They are used once.
#[pyclass(frozen, module = "ferrane._native")]
pub struct Arguments(Mutex<Option<Given>>);

impl Arguments {
    /// # Errors
    /// In a process whose threads are missing, so that no call waits for them.
    pub fn new(py: Python<'_>, given: Given) -> PyResult<Arguments> {
        unlocked(py, || Arguments(Mutex::new(Some(given))))
    }

    pub fn take(&self) -> PyResult<Given> {
        let given = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        given.ok_or_else(|| failed("the arguments were used already"))
    }
}

#[pymethods]
impl Executable {
    /// Runs the function: an array for each output. `states` are the states before the run, and are
    /// replaced by those after it; states that are not named begin as zeros.
    #[pyo3(signature = (inputs, states = None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyDict>,
        states: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.call(py, Given::read(inputs, states, (&self.inputs, &self.states))?)
    }

    /// Reads the arguments of a later call.
    #[pyo3(signature = (inputs, states = None))]
    fn read(
        &self,
        py: Python<'_>,
        inputs: &Bound<'_, PyDict>,
        states: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Arguments> {
        Arguments::new(py, Given::read(inputs, states, (&self.inputs, &self.states))?)
    }

    /// Runs the function on arguments that were read before.
    fn run_read<'py>(&self, py: Python<'py>, arguments: &Arguments) -> PyResult<Bound<'py, PyDict>> {
        self.call(py, arguments.take()?)
    }

    /// Binds the function to surfaces that stay, with an array for each input and output.
    #[pyo3(signature = (inputs, states = None))]
    fn prepare(
        &self,
        py: Python<'_>,
        inputs: &Bound<'_, PyDict>,
        states: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PreparedRequest> {
        let Loaded::Executable(executable) = &self.loaded else {
            return Err(failed(format!(
                "`{}` has a port that no surface can have (64-bit elements, open shapes or extents of 0); call the \
                 executable instead",
                self.function
            )));
        };
        let given = Given::read(inputs, states, (&self.inputs, &self.states))?;
        arrays::check_shapes(&given.inputs, &self.inputs)?;
        let states = given.states.map(|(tensors, _)| tensors).unwrap_or_default();
        arrays::check_shapes(&states, &self.states)?;
        PreparedRequest::new(py, executable, &self.function, &given.inputs, &states)
    }
}
