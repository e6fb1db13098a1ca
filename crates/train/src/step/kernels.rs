//! The loaded kernels with each layer's surfaces: staging, evaluation, retries.
//!
//! A kernel with weights is either one program that all layers share, with input surfaces of each
//! layer, or, where weights are constants, a program of each layer, with input surfaces that all
//! layers share. Two kernels of the static pipeline with extras have weights of the model: one
//! program each. Constants cannot be changed, so new weights are new programs. The old ones are
//! released first, because some machines return their compiles to the budget of the process. If the
//! budget is too small for all new ones, none is compiled.
//!
//! A failed load is retried once, and so is a failed evaluation, after loading its kernel again
//! (the published bridge does so for loads). That is safe because kernels hold no state: the inputs
//! are unchanged and the outputs are overwritten. A second failure is an error. Bindings and
//! compiles are not retried, because they would fail in the same way.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use ferrane_device::{CompileOptions, Device, ErrorKind, Executable, ProgramSource, Surface, WriteAccess};
use ferrane_host::f16;
use ferrane_host::sync::lock;
use ferrane_llm::config::Config;
use ferrane_llm::kernels::{self, ModelConstants};
use ferrane_llm::layout::{Activation, Kernel, KernelLayout, LayoutError, Region, Shape};
use ferrane_llm::staging::{self, InputSurfaces, LayerInputs};
use ferrane_llm::weights::{Layer, Slot, Weights};

use super::StepError;
use crate::metrics::timeline::{SpanKind, Tracer};
use crate::optim::UpdateShare;

/// A kernel: its layout, and the surfaces that all layers share.
struct TrainingKernel {
    layout: KernelLayout,
    output: Surface,
    /// Empty if each layer has its own input surfaces.
    inputs: InputSurfaces,
}

/// A loaded program, bound to its surfaces.
struct BoundKernel {
    kernel: Kernel,
    executable: Executable,
    inputs: LayerInputs,
}

/// The weights that a program has as constants.
enum Constants<'a> {
    None,
    Layer(&'a Layer),
    Model(ModelConstants<'a>),
}

/// The kernels of a pipeline, bound to the surfaces of every layer.
pub struct Kernels {
    device: Device,
    shape: Shape,
    kernels: Vec<TrainingKernel>,
    /// For each layer: the kernels with weights.
    layers: Vec<Vec<BoundKernel>>,
    /// The kernels without weights.
    shared: Vec<BoundKernel>,
    /// The kernels with weights of the model.
    model: Vec<BoundKernel>,
    /// Digest of the weights that the programs have as constants; `None` if an update has changed
    /// the weights since.
    constants: Option<u64>,
    /// How long these programs took to compile.
    constants_time: Duration,
    /// Remarks about successful retries that were not returned yet.
    repeated: Mutex<Vec<String>>,
}

fn at(kernel: Kernel) -> impl Fn(ferrane_device::Error) -> StepError {
    move |source| StepError::Device { kernel: kernel.name().to_string(), source }
}

fn second_try(kernel: Kernel, first: &ferrane_device::Error) -> String {
    format!("{} succeeded at the second try; the first one failed: {first}", kernel.name())
}

/// A digest by which equal weights are recognized.
fn digest(weights: &Weights, config: &Config) -> u64 {
    // FNV-1a over words instead of bytes.
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for value in weights.tensors(config).iter().flat_map(|tensor| tensor.data) {
        hash = (hash ^ u64::from(value.to_bits())).wrapping_mul(0x100_0000_01b3);
    }
    hash
}

fn layout_failed(error: LayoutError) -> StepError {
    StepError::Shape(error.to_string())
}

impl Kernels {
    /// Builds, compiles and loads the kernels and allocates their surfaces. Weights that are inputs
    /// are not staged. `rows` are those of the classifier.
    ///
    /// # Errors
    /// The shape has no layout, or the device refused a kernel or surface.
    pub fn new(device: &Device, shape: &Shape, weights: &Weights, rows: &[f32]) -> Result<Kernels, StepError> {
        let mut made = Kernels {
            device: device.clone(),
            shape: shape.clone(),
            kernels: Vec::new(),
            layers: Vec::new(),
            shared: Vec::new(),
            model: Vec::new(),
            constants: None,
            constants_time: Duration::ZERO,
            repeated: Mutex::default(),
        };
        made.layers.resize_with(shape.config.layers, Vec::new);
        for &kernel in shape.pipeline.kernels() {
            if made.are_constants(kernel) {
                made.compile_constants(kernel, weights, rows)?;
            } else {
                made.compile_shared(kernel)?;
            }
        }
        made.constants = shape.pipeline.has_constants().then(|| digest(weights, &shape.config));
        Ok(made)
    }

    /// Whether the weights of a kernel are constants of its programs.
    fn are_constants(&self, kernel: Kernel) -> bool {
        self.shape.pipeline.has_constants() && kernel.has_weights()
    }

    /// Compiles a kernel for all layers, and binds it once for each layer or, if it has no weights,
    /// once for all.
    fn compile_shared(&mut self, kernel: Kernel) -> Result<(), StepError> {
        let (executable, layout) = self.load(kernel, Constants::None)?;
        let output = staging::output_surface(&self.device, &executable).map_err(at(kernel))?;
        let bind = || {
            let inputs = LayerInputs::new(&self.device, &executable, &layout, &output).map_err(at(kernel))?;
            Ok::<_, StepError>(BoundKernel { kernel, executable: executable.clone(), inputs })
        };
        if kernel.has_weights() {
            for layer in &mut self.layers {
                layer.push(bind()?);
            }
        } else {
            self.shared.push(bind()?);
        }
        self.kernels.push(TrainingKernel { layout, output, inputs: Vec::new() });
        Ok(())
    }

    /// Compiles a kernel with its weights, for each layer or once for the model. The first time,
    /// its surfaces are allocated.
    fn compile_constants(&mut self, kernel: Kernel, weights: &Weights, rows: &[f32]) -> Result<(), StepError> {
        if weights.layers.len() != self.layers.len() {
            let (found, wanted) = (weights.layers.len(), self.layers.len());
            return Err(StepError::Shape(format!("{found} layers of weights for a model of {wanted}")));
        }
        let begun = Instant::now();
        let of_model = ModelConstants { norm: &weights.norm, classifier: rows };
        let constants: Vec<_> = match kernel.is_of_model() {
            true => vec![Constants::Model(of_model)],
            false => weights.layers.iter().map(Constants::Layer).collect(),
        };
        for (index, constants) in constants.into_iter().enumerate() {
            let (executable, layout) = self.load(kernel, constants)?;
            let inputs = match self.kernels.iter().find(|k| k.layout.kernel == kernel) {
                Some(found) => {
                    LayerInputs::bind(found.inputs.clone(), &executable, &found.output).map_err(at(kernel))?
                }
                None => {
                    let output = staging::output_surface(&self.device, &executable).map_err(at(kernel))?;
                    let bound = LayerInputs::new(&self.device, &executable, &layout, &output).map_err(at(kernel))?;
                    self.kernels.push(TrainingKernel { layout, output, inputs: bound.surfaces().clone() });
                    bound
                }
            };
            let owner = if kernel.is_of_model() { &mut self.model } else { &mut self.layers[index] };
            owner.push(BoundKernel { kernel, executable, inputs });
        }
        self.constants_time += begun.elapsed();
        Ok(())
    }

    /// Compiles and loads a program; a failed load is repeated once.
    fn load(&self, kernel: Kernel, constants: Constants<'_>) -> Result<(Executable, KernelLayout), StepError> {
        let built = match constants {
            Constants::None => kernels::build(&self.shape, kernel),
            Constants::Layer(layer) => kernels::build_layer(&self.shape, kernel, layer),
            Constants::Model(model) => kernels::build_model(&self.shape, kernel, model),
        };
        let (program, layout) = built.map_err(|e| StepError::Shape(format!("{}: {e}", kernel.name())))?;
        let options = CompileOptions::labeled(kernel.name());
        let artifact = self.device.compile(ProgramSource::Program(&program), &options).map_err(at(kernel))?;
        let executable = artifact.load().or_else(|first| match first.kind() {
            ErrorKind::Load => artifact.load().inspect(|_| lock(&self.repeated).push(second_try(kernel, &first))),
            _ => Err(first),
        });
        Ok((executable.map_err(at(kernel))?, layout))
    }

    /// Notes that an update has changed the weights, so that constants are outdated.
    pub fn outdate(&mut self) {
        self.constants = None;
    }

    /// Compiles programs of `weights` if the loaded ones have others as constants. After an error
    /// no layer can be evaluated until this succeeds.
    ///
    /// # Errors
    /// The device refused a kernel; [`ErrorKind::CompileBudget`] if the compiles that are left to
    /// this process are too few.
    pub fn refresh(&mut self, weights: &Weights, rows: &[f32]) -> Result<(), StepError> {
        if self.constants.is_some() || !self.shape.pipeline.has_constants() {
            return Ok(());
        }
        self.layers.iter_mut().for_each(Vec::clear);
        self.model.clear();
        let kernels: Vec<Kernel> =
            self.shape.pipeline.kernels().iter().copied().filter(|k| self.are_constants(*k)).collect();
        // Not checked for the first programs: kept ones cost nothing, so any budget may suffice.
        let needed = kernels.iter().map(|k| self.copies(*k)).sum();
        if let Some(left) = self.device.compiles_left().filter(|left| *left < needed) {
            let text = format!("new weights take {needed} compiles, and this process has {left} left");
            let source = ferrane_device::Error::new(ErrorKind::CompileBudget, text);
            return Err(StepError::Device { kernel: self.shape.pipeline.name().to_string(), source });
        }
        self.constants_time = Duration::ZERO;
        for kernel in kernels {
            self.compile_constants(kernel, weights, rows)?;
        }
        self.constants = Some(digest(weights, &self.shape.config));
        Ok(())
    }

    /// Takes the remarks about successful retries since the last call.
    pub fn repeated(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.repeated))
    }

    /// How long the programs took to compile that have the current weights as constants.
    pub fn constants_time(&self) -> Duration {
        self.constants_time
    }

    /// Number of loaded programs.
    pub fn programs(&self) -> usize {
        self.kernels.iter().map(|k| self.copies(k.layout.kernel)).sum()
    }

    /// Number of programs of a kernel.
    fn copies(&self, kernel: Kernel) -> usize {
        if self.are_constants(kernel) && !kernel.is_of_model() { self.layers.len() } else { 1 }
    }

    /// Size of all surfaces in bytes.
    pub fn surface_bytes(&self) -> usize {
        let inputs = |k: &TrainingKernel| {
            let own = k.layout.kernel.has_weights() && !self.are_constants(k.layout.kernel);
            k.layout.input_bytes() * if own { self.layers.len() } else { 1 }
        };
        self.kernels.iter().map(|k| inputs(k) + k.layout.output_bytes()).sum()
    }

    /// Stages the weights: writes the weight regions of every layer. Constants that differ are
    /// outdated.
    ///
    /// # Errors
    /// A tensor is missing or of another size, or a surface is in use.
    pub fn stage(&mut self, weights: &Weights) -> Result<(), StepError> {
        if self.shape.pipeline.has_constants() {
            self.constants = self.constants.filter(|before| *before == digest(weights, &self.shape.config));
            return Ok(());
        }
        for (bounds, layer) in self.layers.iter().zip(&weights.layers) {
            for BoundKernel { kernel, inputs, .. } in bounds {
                inputs.stage(&self.find(*kernel)?.layout, layer).map_err(at(*kernel))?;
            }
        }
        Ok(())
    }

    /// The shares of an update that stage the new weights as they are computed. Each layer has two,
    /// for attention and for the feed-forward part, which have no kernel in common. The shares hold
    /// the surfaces' write locks.
    ///
    /// # Errors
    /// A surface is in use.
    pub fn shares(&self, config: &Config) -> Result<Vec<UpdateShare<'static>>, StepError> {
        let mut shares = Vec::new();
        if self.shape.pipeline.has_constants() {
            return Ok(shares);
        }
        for (layer, bounds) in self.layers.iter().enumerate() {
            for ffn in [true, false] {
                let of = |k: Kernel| {
                    use Kernel::{FfnBwd, FfnBwdW2t, FfnBwdW13t, FfnFused};
                    matches!(k, FfnFused | FfnBwdW2t | FfnBwdW13t | FfnBwd) == ffn
                };
                let mut open = Vec::new();
                for BoundKernel { kernel, inputs, .. } in bounds.iter().filter(|b| of(b.kernel)) {
                    open.push(inputs.open(&self.find(*kernel)?.layout, config).map_err(at(*kernel))?);
                }
                let mut parts: Vec<_> = open.iter().flat_map(|o| o.parts()).collect();
                parts.sort_by_key(|p| p.name());
                parts.dedup();
                let range = |part: &ferrane_llm::weights::Part| 0..part.shape(config).iter().product();
                let ranges = parts.iter().map(|part| (Slot::Layer(layer, *part), range(part))).collect();
                let take = move |slot: Slot, at: usize, values: &[f32]| {
                    if let Slot::Layer(_, part) = slot {
                        open.iter_mut().for_each(|o| o.write(part, at, values));
                    }
                };
                shares.push(UpdateShare { ranges, take: Box::new(take) });
            }
        }
        Ok(shares)
    }

    /// The kernels of the model, and those without weights.
    pub fn of_model<'a>(&'a self, tracer: Tracer<'a>) -> LayerRun<'a> {
        LayerRun { kernels: self, layer: None, tracer }
    }

    /// The kernels with the surfaces of one layer.
    pub fn of_layer<'a>(&'a self, layer: usize, tracer: Tracer<'a>) -> LayerRun<'a> {
        LayerRun { kernels: self, layer: Some(layer), tracer }
    }

    fn find(&self, kernel: Kernel) -> Result<&TrainingKernel, StepError> {
        let missing = || StepError::Shape(format!("{} is not loaded", kernel.name()));
        self.kernels.iter().find(|k| k.layout.kernel == kernel).ok_or_else(missing)
    }
}

/// The kernels with the surfaces of one layer, or those of the model.
#[derive(Clone, Copy)]
pub struct LayerRun<'a> {
    kernels: &'a Kernels,
    layer: Option<usize>,
    tracer: Tracer<'a>,
}

impl LayerRun<'_> {
    fn span(&self, kind: SpanKind, name: &'static str) -> crate::metrics::timeline::Span<'_> {
        self.tracer.span(kind, name, self.layer)
    }

    /// Whether the kernels are those of the pipelines of six.
    pub fn is_fused(&self) -> bool {
        self.kernels.shape.pipeline.is_fused()
    }

    /// Whether norms, classifier and softmax are kernels.
    pub fn has_extras(&self) -> bool {
        self.kernels.shape.pipeline.has_extras()
    }

    fn bound(&self, kernel: Kernel) -> Result<&BoundKernel, StepError> {
        let own = self.layer.map_or(Some(&self.kernels.model), |layer| self.kernels.layers.get(layer));
        let missing = || StepError::Shape(format!("{} is not bound", kernel.name()));
        own.into_iter().flatten().chain(&self.kernels.shared).find(|b| b.kernel == kernel).ok_or_else(missing)
    }

    /// Evaluates a kernel; a failure is retried once.
    ///
    /// # Errors
    /// The evaluation failed twice, the second time after loading its kernel again.
    pub fn evaluate(&self, kernel: Kernel) -> Result<(), StepError> {
        let _span = self.span(SpanKind::Device, kernel.name());
        let BoundKernel { executable, inputs, .. } = self.bound(kernel)?;
        let request = inputs.request();
        let first = match request.evaluate() {
            Ok(_) => return Ok(()),
            Err(first) => first,
        };
        if !matches!(first.kind(), ErrorKind::Evaluate | ErrorKind::System | ErrorKind::Crashed) {
            return Err(at(kernel)(first));
        }
        executable.reload().and_then(|()| request.evaluate()).map_err(at(kernel))?;
        let mut repeated = lock(&self.kernels.repeated);
        repeated.push(second_try(kernel, &first));
        Ok(())
    }

    /// Rounds fp32 rows into a region.
    ///
    /// # Errors
    /// The kernel has no such region, or the region has another size.
    pub fn write(&self, kernel: Kernel, region: Activation, values: &[f32]) -> Result<(), StepError> {
        let _span = self.span(SpanKind::Staging, region.name());
        let region = self.kernels.find(kernel)?.layout.region(region.name()).map_err(layout_failed)?;
        self.bound(kernel)?.inputs.write(region, values).map_err(at(kernel))
    }

    /// Copies fp16 rows into a region.
    ///
    /// # Errors
    /// The kernel has no such region, or the region has another size.
    pub fn write_half(&self, kernel: Kernel, region: Activation, values: &[f16]) -> Result<(), StepError> {
        let _span = self.span(SpanKind::Staging, region.name());
        let (region, mut access) = self.region(kernel, region)?;
        staging::write_region_f16(&mut access, region, values).map_err(at(kernel))
    }

    /// Copies fp16 key/value heads into a region, each repeated for the query heads that share it.
    ///
    /// # Errors
    /// The kernel has no such region, or the region has another size.
    pub fn write_half_tiled(
        &self,
        kernel: Kernel,
        region: Activation,
        values: &[f16],
        config: &Config,
    ) -> Result<(), StepError> {
        let _span = self.span(SpanKind::Staging, region.name());
        let (region, mut access) = self.region(kernel, region)?;
        staging::write_region_tiled(&mut access, region, values, config.head_dim, config.gqa_ratio())
            .map_err(at(kernel))
    }

    fn region(&self, kernel: Kernel, region: Activation) -> Result<(&Region, WriteAccess), StepError> {
        let region = self.kernels.find(kernel)?.layout.region(region.name()).map_err(layout_failed)?;
        let access = self.bound(kernel)?.inputs.surface(region.port).and_then(Surface::write).map_err(at(kernel))?;
        Ok((region, access))
    }

    /// Reads a tap, widened to fp32.
    ///
    /// # Errors
    /// The kernel has no such tap, or the tap has another size.
    pub fn read(&self, kernel: Kernel, tap: Activation, values: &mut [f32]) -> Result<(), StepError> {
        let _span = self.span(SpanKind::Staging, tap.name());
        let loaded = self.kernels.find(kernel)?;
        let tap = loaded.layout.tap(tap.name()).map_err(layout_failed)?;
        let access = loaded.output.read().map_err(at(kernel))?;
        staging::read_tap(&access, tap, values).map_err(at(kernel))
    }

    /// Reads a tap in fp16.
    ///
    /// # Errors
    /// The kernel has no such tap, or the tap has another size.
    pub fn read_half(&self, kernel: Kernel, tap: Activation, values: &mut [f16]) -> Result<(), StepError> {
        let _span = self.span(SpanKind::Staging, tap.name());
        let loaded = self.kernels.find(kernel)?;
        let tap = loaded.layout.tap(tap.name()).map_err(layout_failed)?;
        let access = loaded.output.read().map_err(at(kernel))?;
        staging::read_tap_f16(&access, tap, values).map_err(at(kernel))
    }

    /// Copies a tap of one kernel into the region of another that holds the same activation.
    ///
    /// # Errors
    /// A kernel does not have the activation, or the sizes differ.
    pub fn copy(&self, from: Kernel, to: Kernel, activation: Activation) -> Result<(), StepError> {
        let _span = self.span(SpanKind::Staging, activation.name());
        let (source, target) = (self.kernels.find(from)?, self.kernels.find(to)?);
        let tap = source.layout.tap(activation.name()).map_err(layout_failed)?;
        let region = target.layout.region(activation.name()).map_err(layout_failed)?;
        let read = source.output.read().map_err(at(from))?;
        let mut write = self.bound(to)?.inputs.surface(region.port).and_then(Surface::write).map_err(at(to))?;
        staging::copy_tap(&read, tap, &mut write, region).map_err(at(to))
    }
}
