//! Files of the engine's compiler: described, compared, assembled, and their weights.

use ferrane::Tensor;
use ferrane::diag::Source;
use ferrane::hwx::weights::FilterShape;
use ferrane::hwx::{Filter, Hwx, describe, text};
use ferrane::mil::DataType;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::arrays;
use crate::error::{self, device, failed};
use crate::fork::unlocked;

/// A compiled program, in the container of Apple's compiler.
#[pyclass(frozen, module = "ferrane._native")]
pub struct CompiledProgram(Hwx);

/// The weights of a task, by its index: their shape, or why their order is not known.
type FilterShapes = Vec<(usize, Option<[usize; 4]>, Option<String>)>;

/// `[Cout, Cin, Kh, Kw]`.
fn dimensions(shape: FilterShape) -> [usize; 4] {
    [shape.cout, shape.cin, shape.kh, shape.kw].map(|n| n as usize)
}

#[pymethods]
impl CompiledProgram {
    /// Reads the bytes of a file; of one for the Linux driver, a container is made.
    #[new]
    fn new(py: Python<'_>, bytes: &[u8]) -> PyResult<CompiledProgram> {
        unlocked(py, || ferrane::read_compiled(bytes))?.map(CompiledProgram).map_err(|e| error::compiled(&e))
    }

    /// The report about the file as JSON.
    fn json(&self, py: Python<'_>) -> PyResult<String> {
        unlocked(py, || describe::json(&self.0).to_string())
    }

    /// The report in words.
    #[pyo3(signature = (registers = false))]
    fn prose(&self, py: Python<'_>, registers: bool) -> PyResult<String> {
        unlocked(py, || describe::prose(&self.0, describe::Detail { registers }))
    }

    /// The text that `assemble` reads.
    fn text(&self, py: Python<'_>) -> PyResult<String> {
        unlocked(py, || text::print(&self.0))
    }

    /// Tasks and buffers as a picture.
    fn svg(&self, py: Python<'_>) -> PyResult<String> {
        unlocked(py, || describe::svg(&self.0))
    }

    /// Tasks and buffers as a graph of Graphviz.
    fn dot(&self, py: Python<'_>) -> PyResult<String> {
        unlocked(py, || describe::dot(&self.0))
    }

    /// The bytes of the file.
    fn write<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &unlocked(py, || self.0.write())?))
    }

    /// The differences to another file, as a JSON array.
    fn diff(&self, py: Python<'_>, other: &CompiledProgram) -> PyResult<String> {
        let found = unlocked(py, || describe::diff(&self.0, &other.0))?;
        serde_json::to_string(&found).map_err(failed)
    }

    /// The tasks that read weights, each with the shape of these, or the reason why their order is
    /// not known.
    fn filters(&self, py: Python<'_>) -> PyResult<FilterShapes> {
        let filters = unlocked(py, || self.0.filters())?.map_err(|e| error::compiled(&e))?;
        let shape = |filter: Filter| match filter.lanes {
            Ok(lanes) => (filter.task, Some(dimensions(lanes.shape())), None),
            Err(e) => (filter.task, None, Some(e.to_string())),
        };
        Ok(filters.into_iter().map(shape).collect())
    }

    /// The weights of a task, `[Cout, Cin, Kh, Kw]`.
    fn weights<'py>(&self, py: Python<'py>, task: usize) -> PyResult<Bound<'py, PyAny>> {
        let tensor = unlocked(py, || {
            let filter = self.filter(task)?;
            let weights = self.0.filter_weights(&filter).map_err(|e| error::compiled(&e))?;
            let shape = filter.lanes.as_ref().map_err(error::compiled)?.shape();
            let bytes: Vec<u8> = weights.iter().flat_map(|w| w.to_bits().to_le_bytes()).collect();
            Tensor::new(DataType::Fp16, dimensions(shape), bytes).map_err(|e| device(&e))
        })??;
        arrays::array(py, &tensor)
    }

    /// The program with other weights: arrays by the index of their task.
    fn with_weights(&self, py: Python<'_>, weights: &Bound<'_, PyDict>) -> PyResult<CompiledProgram> {
        let mut hwx = self.0.clone();
        for (task, array) in weights.iter() {
            let filter = self.filter(task.extract()?)?;
            let shape = dimensions(filter.lanes.as_ref().map_err(error::compiled)?.shape());
            let tensor = arrays::tensor(&array, Some(DataType::Fp16))?;
            if tensor.shape() != shape {
                let (found, task) = (tensor.shape(), filter.task);
                return Err(failed(format!("the array has shape {found:?}, and the weights of task {task} {shape:?}")));
            }
            let weights: Vec<_> =
                tensor.elements().map(|b| ferrane::f16::from_bits(u16::from_le_bytes([b[0], b[1]]))).collect();
            unlocked(py, || hwx.set_filter_weights(&filter, &weights))?.map_err(|e| error::compiled(&e))?;
        }
        Ok(CompiledProgram(hwx))
    }
}

impl CompiledProgram {
    fn filter(&self, task: usize) -> PyResult<Filter> {
        let filters = self.0.filters().map_err(|e| error::compiled(&e))?;
        let found = filters.into_iter().find(|filter| filter.task == task);
        found.ok_or_else(|| failed(format!("task {task} reads no weights")))
    }
}

/// The bytes of the file that a text describes.
#[pyfunction]
pub fn assemble<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyBytes>> {
    let made = unlocked(py, || text::assemble(text).map(|hwx| hwx.write()))?;
    let bytes = made.map_err(|diagnostics| {
        let source = Source::new("text".to_string(), text);
        let message = format!("the text is not right:\n{}", diagnostics.render(&source, false).trim_end());
        error::diagnosed(message, &diagnostics, &source)
    })?;
    Ok(PyBytes::new(py, &bytes))
}
