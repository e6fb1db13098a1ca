//! Model files: opened, run, examined, differentiated, compared and written.

use std::path::PathBuf;
use std::sync::Mutex;

use ferrane::audit::AuditOptions;
use ferrane::machine::cost::{CostModel, predict_function};
use ferrane::machine::placement::{PlaceOptions, core_ml_profile, place};
use ferrane::machine::{CheckOptions, Profile, check};
use ferrane::mil::diff::diff;
use ferrane::mil::grad::{BackwardOptions, VjpOptions, backward};
use ferrane::mil::package::{Care, Form, WriteOptions};
use ferrane::mil::print;
use ferrane::model::{ModelOptions, ModelProgram, write_as};
use ferrane::onnx::Precision;
use ferrane::page::NetworkPage;
use ferrane::{Call, OutputDistance, Tensors};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value;

use crate::arrays::{self, Declared};
use crate::device::{Arguments, Device, Executable, Given};
use crate::error::{self, failed};
use crate::fork::unlocked;

/// Executables that a model keeps, one for each device and choice of shapes.
const KEPT: usize = 8;

/// A parameter as Python sees it: its name, its type as MIL spells it, and its shape.
type PortTuple = (String, &'static str, Vec<usize>);

/// A device and shapes, as [`OpenModel::run`] is given them.
type Choice = (String, Vec<String>);

/// What [`OpenModel::place`] finds.
type Placed = (String, String, Vec<Option<String>>);

/// What [`OpenModel::diff`] finds.
type Differences = (Vec<(&'static str, String, String, String)>, Option<Vec<(String, String, f64, f64, f64, bool)>>);

/// A model that is open, with its functions for one choice of shapes.
#[pyclass(frozen, name = "Model", module = "ferrane._native")]
pub struct OpenModel {
    /// What reports call the model.
    name: String,
    program: ModelProgram,
    options: ModelOptions,
    model: ferrane::Model,
    inputs: Vec<Declared>,
    states: Vec<Declared>,
    /// By device and shapes, the last one used at the end.
    loaded: Mutex<Vec<(Choice, Executable)>>,
}

impl OpenModel {
    fn new(name: String, program: ModelProgram, options: ModelOptions) -> PyResult<OpenModel> {
        let model = ferrane::Model::new(program.clone(), &options, &[]).map_err(|e| error::model(&e))?;
        let (inputs, states) = arrays::parameters(model.function());
        Ok(OpenModel { name, program, options, model, inputs, states, loaded: Mutex::default() })
    }

    /// The choices of shapes for tensors whose shapes are not those of the function; the file may
    /// allow them.
    fn other_shapes(&self, inputs: &Tensors) -> Vec<String> {
        let extents = |shape: &[usize]| shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
        let found = arrays::reshaped(inputs, &self.inputs);
        found.into_iter().map(|(name, shape, _)| format!("{name}={}", extents(shape))).collect()
    }

    /// The options with other shapes in addition to, or instead of, those that were chosen before.
    fn reshaped(&self, shapes: &[String]) -> ModelOptions {
        let mut options = self.options.clone();
        let name = |item: &str| item.split('=').next().unwrap_or_default().to_string();
        options.shapes.retain(|old| shapes.iter().all(|new| name(new) != name(old)));
        options.shapes.extend(shapes.iter().cloned());
        options
    }

    /// Runs the function on a device, for the shapes that the tensors have.
    fn call<'py>(&self, py: Python<'py>, given: Given, device: &str) -> PyResult<Bound<'py, PyDict>> {
        let shapes = self.other_shapes(&given.inputs);
        // What is wrong with a scalar is said by the function, which takes other values.
        let shapes = if given.inputs.iter().any(|(_, t)| t.shape().is_empty()) { Vec::new() } else { shapes };
        self.executable(py, device, shapes)?.call(py, given)
    }

    /// The function, loaded on a device for some shapes; from the last calls if it was there.
    fn executable(&self, py: Python<'_>, on: &str, shapes: Vec<String>) -> PyResult<Executable> {
        let key = (on.to_string(), shapes);
        {
            let mut loaded = self.loaded.lock().map_err(failed)?;
            if let Some(at) = loaded.iter().position(|(k, _)| *k == key) {
                let found = loaded.remove(at);
                loaded.push(found.clone());
                return Ok(found.1);
            }
        }
        let device = unlocked(py, || ferrane::open(on))?.map_err(|e| error::device(&e))?;
        let executable = if key.1.is_empty() {
            Executable::load(py, &device, &self.model)?
        } else {
            let options = self.reshaped(&key.1);
            let model = ferrane::Model::new(self.program.clone(), &options, &[]).map_err(|e| error::model(&e))?;
            Executable::load(py, &device, &model)?
        };
        // Another thread may have loaded the same; the last one is found first.
        let mut loaded = self.loaded.lock().map_err(failed)?;
        if loaded.len() == KEPT {
            loaded.remove(0);
        }
        loaded.push((key, executable.clone()));
        Ok(executable)
    }
}

fn ports(list: &[Declared]) -> Vec<PortTuple> {
    list.iter().map(|(name, dtype, shape)| (name.clone(), dtype.name(), shape.clone().unwrap_or_default())).collect()
}

fn profile(machine: &str) -> PyResult<Profile> {
    Profile::find(machine).map_err(failed)
}

#[pymethods]
impl OpenModel {
    /// Opens a file: `.mlpackage`, `.mlmodel`, `.mlmodelc`, `.mil`, `.onnx`, `.aimodel`. Items of
    /// `shapes` are as after `--shape` of the command; reports call the model `name` if it is
    /// given.
    #[staticmethod]
    #[pyo3(signature = (path, function = None, shapes = Vec::new(), fp16 = false, name = None))]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        function: Option<&str>,
        shapes: Vec<String>,
        fp16: bool,
        name: Option<String>,
    ) -> PyResult<OpenModel> {
        let mut options = ModelOptions::default();
        (options.function, options.shapes) = (function.map(str::to_string), shapes);
        if fp16 {
            options.onnx = options.onnx.precision(Precision::Fp16);
        }
        let program =
            unlocked(py, || ModelProgram::open(path, Care::Whole, &options))?.map_err(|e| error::model(&e))?;
        OpenModel::new(name.unwrap_or_else(|| program.source.name().to_string()), program, options)
    }

    /// What reports call the model: its path, if it was opened from one.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The inputs of the function.
    #[getter]
    fn inputs(&self) -> Vec<PortTuple> {
        ports(&self.inputs)
    }

    /// The states of the function.
    #[getter]
    fn states(&self) -> Vec<PortTuple> {
        ports(&self.states)
    }

    /// The outputs of the function.
    #[getter]
    fn outputs(&self) -> Vec<PortTuple> {
        let function = self.model.function();
        let outputs = function.body().outputs.iter().map(|&id| function.value(id));
        ports(&outputs.map(|value| arrays::declared(&value.name, &value.ty)).collect::<Vec<_>>())
    }

    /// Compiles the function, and keeps it loaded on a device.
    fn load(&self, py: Python<'_>, on: &Device) -> PyResult<Executable> {
        Executable::load(py, &on.0, &self.model)
    }

    /// The program as MIL text; large weights are named by their place in a weight file.
    fn text(&self) -> String {
        print(self.model.whole_program())
    }

    /// Runs the function. The model keeps what it has compiled for the last devices and shapes.
    #[pyo3(signature = (inputs, device = "emulator", states = None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyDict>,
        device: &str,
        states: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.call(py, Given::read(inputs, states, (&self.inputs, &self.states))?, device)
    }

    /// Reads the arguments of a later run.
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
    #[pyo3(signature = (arguments, device = "emulator"))]
    fn run_read<'py>(&self, py: Python<'py>, arguments: &Arguments, device: &str) -> PyResult<Bound<'py, PyDict>> {
        self.call(py, arguments.take()?, device)
    }

    /// What a machine refuses, computes wrongly or runs slowly, in all functions: a JSON array of
    /// findings.
    #[pyo3(signature = (machine, strict = false))]
    fn check(&self, py: Python<'_>, machine: &str, strict: bool) -> PyResult<String> {
        let profile = profile(machine)?;
        let options = CheckOptions { strict, ..CheckOptions::default() };
        let program = self.model.whole_program();
        let found = unlocked(py, || check(program, &profile, &options))?;
        Ok(Value::from_iter(found.iter().map(|finding| finding.json(program))).to_string())
    }

    /// The predicted time of each op on a chip, as JSON and as text.
    fn cost(&self, py: Python<'_>, machine: &str) -> PyResult<(String, String)> {
        let model = CostModel::for_profile(&profile(machine)?).map_err(failed)?;
        let cost = unlocked(py, || predict_function(self.model.function(), &model))?.map_err(failed)?;
        Ok((cost.json(&model).to_string(), cost.to_string()))
    }

    /// Where each op probably runs if a framework decides: as JSON, as text, and for each op the
    /// reason why it is not on the engine.
    #[pyo3(signature = (machine, framework = "coreml", units = "cpu-and-ne"))]
    fn place(&self, py: Python<'_>, machine: &str, framework: &str, units: &str) -> PyResult<Placed> {
        let profile = core_ml_profile(&profile(machine)?).map_err(failed)?;
        let options = PlaceOptions {
            framework: framework.parse().map_err(failed)?,
            units: units.parse().map_err(failed)?,
            function: Some(self.model.function().name.clone()),
        };
        let program = self.model.whole_program();
        let placement = unlocked(py, || place(program, &profile, &options))?;
        let reasons = placement.ops.iter().map(|op| op.reason().map(|(_, sentence)| sentence.to_string())).collect();
        Ok((serde_json::to_string(&placement).map_err(failed)?, placement.to_string(), reasons))
    }

    /// A page with the network as a graph, and what a machine does with it.
    fn page(&self, py: Python<'_>, machine: &str) -> PyResult<String> {
        let profile = profile(machine)?;
        unlocked(py, || {
            let mut page = NetworkPage::new(self.name(), self.model.whole_program());
            page.examine(&profile, &CheckOptions::default(), &PlaceOptions::default());
            page.html()
        })
    }

    /// Which op loses precision for some inputs, as JSON, as text and as a page.
    #[pyo3(signature = (inputs, machine = None))]
    fn audit(
        &self,
        py: Python<'_>,
        inputs: &Bound<'_, PyDict>,
        machine: Option<&str>,
    ) -> PyResult<(String, String, String)> {
        let mut options = AuditOptions::default();
        if let Some(machine) = machine {
            options.profile = profile(machine)?;
        }
        let inputs = arrays::tensors(inputs, &self.inputs)?;
        arrays::check_shapes(&inputs, &self.inputs)?;
        let call = Call::new().function(self.model.function().name.as_str()).inputs(inputs);
        let audit = unlocked(py, || self.model.audit(&call, &options))?.map_err(|e| error::model(&e))?;
        Ok((audit.json(self.name()).to_string(), audit.to_string(), audit.html(self.name())))
    }

    /// The backward program of the function, as a model.
    #[pyo3(signature = (outputs = Vec::new(), inputs = Vec::new(), lift = Vec::new(), keep_outputs = false))]
    fn grad(
        &self,
        py: Python<'_>,
        outputs: Vec<String>,
        inputs: Vec<String>,
        lift: Vec<String>,
        keep_outputs: bool,
    ) -> PyResult<OpenModel> {
        let vjp = VjpOptions { outputs: keep_outputs, ..VjpOptions::default() };
        let options = BackwardOptions { lift, outputs, inputs, vjp };
        let name = &self.model.function().name;
        let program = unlocked(py, || backward(self.model.program(), name, &options))?.map_err(failed)?;
        let made = format!("backward of {}", self.name);
        OpenModel::new(made.clone(), ModelProgram::made(&made, program), ModelOptions::default().function(name))
    }

    /// What differs between two models, each difference with its kind, function, name and message;
    /// with a seed, also the distances of their outputs for random inputs: function, output,
    /// largest and mean difference, largest magnitude, and whether the largest is within so many
    /// parts of it.
    #[pyo3(signature = (other, seed = None, within = 0.0))]
    fn diff(&self, py: Python<'_>, other: &OpenModel, seed: Option<u64>, within: f64) -> PyResult<Differences> {
        let (a, b) = (self.model.program(), other.model.program());
        let found = unlocked(py, || diff(a, b))?.into_iter();
        let differences = found.map(|d| (d.kind.name(), d.function, d.name, d.message)).collect();
        let Some(seed) = seed else { return Ok((differences, None)) };
        let emulator = ferrane::open("emulator?numerics=exact").map_err(|e| error::device(&e))?;
        let distances = unlocked(py, || ferrane::compare(&emulator, a, b, seed))?.map_err(failed)?;
        let one = |OutputDistance { function, output, distance }: OutputDistance| {
            (function, output, distance.max, distance.mean, distance.scale, distance.is_within(within))
        };
        Ok((differences, Some(distances.into_iter().map(one).collect())))
    }

    /// Writes the model in the form that the path's extension names.
    #[pyo3(signature = (path, overwrite = false))]
    fn save(&self, py: Python<'_>, path: PathBuf, overwrite: bool) -> PyResult<()> {
        let form = Form::of_target(&path).map_err(failed)?;
        let description = self.model.description();
        let options = WriteOptions { overwrite, description, ..WriteOptions::default() };
        unlocked(py, || write_as(self.model.whole_program(), &path, form, &options))?.map_err(|e| error::model(&e))?;
        Ok(())
    }
}
