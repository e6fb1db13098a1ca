//! Devices, and functions that are loaded on one.

use ferrane::{Call, Tensors};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::{self, Declared};
use crate::error::device;
use crate::fork::unlocked;

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

/// A function that is loaded on a device. Several threads may call it at once.
#[pyclass(frozen, module = "ferrane._native")]
#[derive(Clone)]
pub struct Executable {
    executable: ferrane::Executable,
    function: String,
    inputs: Vec<Declared>,
    states: Vec<Declared>,
}

impl Executable {
    pub fn load(py: Python<'_>, on: &ferrane::Device, model: &ferrane::Model) -> PyResult<Executable> {
        let function = model.function();
        let executable = unlocked(py, || on.load(model.program(), &function.name))?.map_err(|e| device(&e))?;
        let (inputs, states) = arrays::parameters(function);
        Ok(Executable { executable, function: function.name.clone(), inputs, states })
    }

    /// Runs the function on tensors that have its shapes.
    pub fn call<'py>(
        &self,
        py: Python<'py>,
        inputs: Tensors,
        states: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        arrays::check_shapes(&inputs, &self.inputs)?;
        let mut call = Call::new().function(self.function.as_str()).inputs(inputs);
        if let Some(states) = states {
            let states = arrays::tensors(states, &self.states)?;
            arrays::check_shapes(&states, &self.states)?;
            call = call.states(states);
        }
        let returned = unlocked(py, || self.executable.call(call))?.map_err(|e| device(&e))?;
        if let Some(states) = states {
            arrays::put(states, returned.states.iter())?;
        }
        let outputs = PyDict::new(py);
        arrays::put(&outputs, returned.outputs.iter())?;
        Ok(outputs)
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
        self.call(py, arrays::tensors(inputs, &self.inputs)?, states)
    }
}
