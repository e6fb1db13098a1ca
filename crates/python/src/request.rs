//! Requests that stay bound: surfaces that are allocated once, and arrays next to them.
//!
//! An array has the type and the shape of its port, so a run copies its bytes to the surface and
//! back, and converts and allocates nothing. The arrays are not the surfaces' own memory: Python
//! may write an array at any time, also while a run reads it, and a machine has to rely on what it
//! has checked.

use std::sync::atomic::{AtomicBool, Ordering};

use ferrane::mil::DataType;
use ferrane::{BoundProcedure, Error, ErrorKind, Layout, Port, Surface, Tensors};
use numpy::{PyArray1, PyArrayMethods as _};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays;
use crate::error::{device, failed};
use crate::fork::unlocked;

/// A port with its array.
struct Shared {
    surface: Surface,
    /// The elements as bytes; Python sees a view with the port's type and shape.
    bytes: Py<PyArray1<u8>>,
}

/// A procedure with surfaces and arrays of its own.
#[pyclass(frozen, name = "Request", module = "ferrane._native")]
pub struct PreparedRequest {
    bound: BoundProcedure,
    inputs: Vec<Shared>,
    outputs: Vec<Shared>,
    input_arrays: Py<PyDict>,
    output_arrays: Py<PyDict>,
    running: AtomicBool,
}

/// The name of an element type in numpy.
fn numpy_name(dtype: DataType) -> Option<&'static str> {
    Some(match dtype {
        DataType::Bool => "bool",
        DataType::Fp16 => "float16",
        DataType::Fp32 => "float32",
        DataType::Int8 => "int8",
        DataType::Int16 => "int16",
        DataType::Int32 => "int32",
        DataType::UInt8 => "uint8",
        DataType::UInt16 => "uint16",
        DataType::UInt32 => "uint32",
        _ => return None,
    })
}

/// Arrays for ports, which are also put into a dictionary.
fn share(py: Python<'_>, bound: &BoundProcedure, ports: &[Port]) -> PyResult<(Vec<Shared>, Py<PyDict>)> {
    let (mut list, dict) = (Vec::new(), PyDict::new(py));
    for Port { name, layout, .. } in ports {
        let Some(dtype) = numpy_name(layout.dtype) else {
            let message = format!("`{name}` has elements of {}, which numpy lacks; call the executable", layout.dtype);
            return Err(failed(message));
        };
        let bytes = PyArray1::<u8>::zeros(py, layout.elements() * layout.element_bytes(), false);
        dict.set_item(name, bytes.call_method1("view", (dtype,))?.call_method1("reshape", (layout.shape.clone(),))?)?;
        list.push(Shared { surface: bound.surface(name).map_err(|e| device(&e))?.clone(), bytes: bytes.unbind() });
    }
    Ok((list, dict.unbind()))
}

fn short(layout: &Layout) -> PyErr {
    failed(format!("a surface is smaller than {} {:?}", layout.dtype, layout.shape))
}

impl Shared {
    fn write(&self, py: Python<'_>) -> PyResult<()> {
        let bytes = self.bytes.bind(py).try_readonly().map_err(failed)?;
        let mut access = self.surface.write().map_err(|e| device(&e))?;
        let layout = self.surface.layout();
        layout.unpack(bytes.as_slice().map_err(failed)?, access.bytes_mut()).ok_or_else(|| short(layout))
    }

    fn read(&self, py: Python<'_>) -> PyResult<()> {
        let mut bytes = self.bytes.bind(py).try_readwrite().map_err(failed)?;
        let mut rest = bytes.as_slice_mut().map_err(failed)?;
        let access = self.surface.read().map_err(|e| device(&e))?;
        let layout = self.surface.layout();
        // The array has a place for each element.
        let copied = layout.pack_to(access.bytes(), |row| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(row.len());
            now.copy_from_slice(row);
            rest = later;
        });
        copied.ok_or_else(|| short(layout))
    }
}

impl PreparedRequest {
    /// Binds a function. Inputs that have no tensor are zeros, and so are states.
    pub fn new(
        py: Python<'_>,
        executable: &ferrane::Executable,
        function: &str,
        inputs: &Tensors,
        states: &Tensors,
    ) -> PyResult<PreparedRequest> {
        let bound = unlocked(py, || executable.bind(Some(function)))?.map_err(|e| device(&e))?;
        bound.write_states(states).map_err(|e| device(&e))?;
        let procedure = bound.procedure();
        if let Some(unknown) = inputs.names().find(|name| procedure.inputs.iter().all(|p| p.name != **name)) {
            // Its error lists those that there are.
            return Err(bound.write_inputs(inputs).map_or_else(|e| device(&e), |()| failed(unknown)));
        }
        let (shared_inputs, input_arrays) = share(py, &bound, &procedure.inputs)?;
        let (outputs, output_arrays) = share(py, &bound, &procedure.outputs)?;
        for (port, shared) in procedure.inputs.iter().zip(&shared_inputs) {
            if let Some(tensor) = inputs.find(&port.name) {
                let mut bytes = shared.bytes.bind(py).try_readwrite().map_err(failed)?;
                bytes.as_slice_mut().map_err(failed)?.copy_from_slice(tensor.bytes());
            }
        }
        let running = AtomicBool::new(false);
        Ok(PreparedRequest { inputs: shared_inputs, outputs, input_arrays, output_arrays, running, bound })
    }
}

/// Permits the next run.
struct Turn<'a>(&'a AtomicBool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[pymethods]
impl PreparedRequest {
    /// The array of each input, which a run reads.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> Bound<'py, PyDict> {
        self.input_arrays.bind(py).clone()
    }

    /// The array of each output, which a run writes.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> Bound<'py, PyDict> {
        self.output_arrays.bind(py).clone()
    }

    /// A copy of each state.
    fn states<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let states = PyDict::new(py);
        arrays::put(&states, self.bound.states().map_err(|e| device(&e))?.iter())?;
        Ok(states)
    }

    /// Runs the function on what the arrays of the inputs hold.
    fn run(&self, py: Python<'_>) -> PyResult<()> {
        if self.running.swap(true, Ordering::Acquire) {
            let message = "the request is running in another thread; prepare a request for each";
            return Err(device(&Error::new(ErrorKind::Busy, message)));
        }
        let _turn = Turn(&self.running);
        self.inputs.iter().try_for_each(|input| input.write(py))?;
        unlocked(py, || self.bound.evaluate())?.map_err(|e| device(&e))?;
        self.outputs.iter().try_for_each(|output| output.read(py))
    }
}
