//! The ten loaded kernels with each layer's surfaces: staging, evaluation, retries.
//!
//! A failed load is retried once, and so is a failed evaluation, after loading its kernel again
//! (the published bridge does so for loads). That is safe because kernels hold no state: the inputs
//! are unchanged and the outputs are overwritten. A second failure is an error. Bindings and
//! compiles are not retried, because they would fail in the same way.

use std::sync::Mutex;

use ferrane_device::{CompileOptions, Device, ErrorKind, Executable, ProgramSource, Surface, WriteAccess};
use ferrane_host::f16;
use ferrane_host::sync::lock;
use ferrane_llm::config::Config;
use ferrane_llm::kernels;
use ferrane_llm::layout::{Activation, Kernel, KernelLayout, LayoutError, Region, Shape};
use ferrane_llm::staging::{self, LayerInputs};
use ferrane_llm::weights::{Slot, Weights};

use super::StepError;
use crate::metrics::timeline::{SpanKind, Tracer};
use crate::optim::UpdateShare;

/// A kernel: its layout, the loaded program, and the output surface that all layers share.
struct TrainingKernel {
    layout: KernelLayout,
    executable: Executable,
    output: Surface,
}

/// The ten kernels, bound to the surfaces of every layer.
pub struct Kernels {
    loaded: Vec<TrainingKernel>,
    /// For each layer: the eight kernels with weights in their inputs, each with its own input
    /// surfaces.
    layers: Vec<Vec<(Kernel, LayerInputs)>>,
    /// The two kernels without weights, whose inputs all layers share.
    shared: Vec<(Kernel, LayerInputs)>,
    /// Remarks about successful retries that were not returned yet.
    repeated: Mutex<Vec<String>>,
}

fn at(kernel: Kernel) -> impl Fn(ferrane_device::Error) -> StepError {
    move |source| StepError::Device { kernel: kernel.name().to_string(), source }
}

fn second_try(kernel: Kernel, first: &ferrane_device::Error) -> String {
    format!("{} succeeded at the second try; the first one failed: {first}", kernel.name())
}

fn layout_failed(error: LayoutError) -> StepError {
    StepError::Shape(error.to_string())
}

impl Kernels {
    /// Builds, compiles and loads the kernels and allocates their surfaces.
    ///
    /// # Errors
    /// The shape has no layout, or the device refused a kernel or surface.
    pub fn new(device: &Device, shape: &Shape) -> Result<Kernels, StepError> {
        let (mut loaded, mut repeated) = (Vec::new(), Vec::new());
        for kernel in Kernel::ALL {
            let failed = |e: &dyn std::fmt::Display| StepError::Shape(format!("{}: {e}", kernel.name()));
            let (program, layout) = kernels::build(shape, kernel).map_err(|e| failed(&e))?;
            let options = CompileOptions::labeled(kernel.name());
            let artifact = device.compile(ProgramSource::Program(&program), &options).map_err(at(kernel))?;
            let executable = artifact.load().or_else(|first| match first.kind() {
                ErrorKind::Load => artifact.load().inspect(|_| repeated.push(second_try(kernel, &first))),
                _ => Err(first),
            });
            let executable = executable.map_err(at(kernel))?;
            let output = staging::output_surface(device, &executable).map_err(at(kernel))?;
            loaded.push(TrainingKernel { layout, executable, output });
        }
        let bind = |with_weights: bool| -> Result<Vec<(Kernel, LayerInputs)>, StepError> {
            let own = loaded.iter().filter(|k| k.layout.kernel.has_weights() == with_weights);
            let bound = own.map(|k| {
                let kernel = k.layout.kernel;
                Ok((kernel, LayerInputs::new(device, &k.executable, &k.layout, &k.output).map_err(at(kernel))?))
            });
            bound.collect()
        };
        let layers = (0..shape.config.layers).map(|_| bind(true)).collect::<Result<_, _>>()?;
        let shared = bind(false)?;
        Ok(Kernels { loaded, layers, shared, repeated: Mutex::new(repeated) })
    }

    /// Takes the remarks about successful retries since the last call.
    pub fn repeated(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.repeated))
    }

    /// Size of all surfaces in bytes.
    pub fn surface_bytes(&self) -> usize {
        let inputs = |k: &TrainingKernel| {
            let copies = if k.layout.kernel.has_weights() { self.layers.len() } else { 1 };
            k.layout.input_bytes() * copies
        };
        self.loaded.iter().map(|k| inputs(k) + k.layout.output_bytes()).sum()
    }

    /// Stages the weights: writes the weight regions of every layer.
    ///
    /// # Errors
    /// A tensor is missing or of another size, or a surface is in use.
    pub fn stage(&self, weights: &Weights) -> Result<(), StepError> {
        for (bounds, layer) in self.layers.iter().zip(&weights.layers) {
            for (kernel, bound) in bounds {
                bound.stage(&self.find(*kernel)?.layout, layer).map_err(at(*kernel))?;
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
        for (layer, bounds) in self.layers.iter().enumerate() {
            for ffn in [true, false] {
                let of = |k: Kernel| matches!(k, Kernel::FfnFused | Kernel::FfnBwdW2t | Kernel::FfnBwdW13t) == ffn;
                let mut open = Vec::new();
                for (kernel, bound) in bounds.iter().filter(|(k, _)| of(*k)) {
                    open.push(bound.open(&self.find(*kernel)?.layout, config).map_err(at(*kernel))?);
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

    /// The kernels with the surfaces of one layer.
    pub fn of_layer<'a>(&'a self, layer: usize, tracer: Tracer<'a>) -> LayerRun<'a> {
        LayerRun { kernels: self, layer, tracer }
    }

    fn find(&self, kernel: Kernel) -> Result<&TrainingKernel, StepError> {
        let missing = || StepError::Shape(format!("{} is not loaded", kernel.name()));
        self.loaded.iter().find(|k| k.layout.kernel == kernel).ok_or_else(missing)
    }
}

/// The ten kernels with the surfaces of one layer.
#[derive(Clone, Copy)]
pub struct LayerRun<'a> {
    kernels: &'a Kernels,
    layer: usize,
    tracer: Tracer<'a>,
}

impl LayerRun<'_> {
    fn span(&self, kind: SpanKind, name: &'static str) -> crate::metrics::timeline::Span<'_> {
        self.tracer.span(kind, name, Some(self.layer))
    }

    fn bound(&self, kernel: Kernel) -> Result<&LayerInputs, StepError> {
        let own = self.kernels.layers.get(self.layer).into_iter().flatten();
        let missing = || StepError::Shape(format!("{} is not bound", kernel.name()));
        own.chain(&self.kernels.shared).find(|(k, _)| *k == kernel).map(|(_, b)| b).ok_or_else(missing)
    }

    /// Evaluates a kernel; a failure is retried once.
    ///
    /// # Errors
    /// The evaluation failed twice, the second time after loading its kernel again.
    pub fn evaluate(&self, kernel: Kernel) -> Result<(), StepError> {
        let _span = self.span(SpanKind::Device, kernel.name());
        let request = self.bound(kernel)?.request();
        let first = match request.evaluate() {
            Ok(_) => return Ok(()),
            Err(first) => first,
        };
        if !matches!(first.kind(), ErrorKind::Evaluate | ErrorKind::System | ErrorKind::Crashed) {
            return Err(at(kernel)(first));
        }
        let executable = &self.kernels.find(kernel)?.executable;
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
        self.bound(kernel)?.write(region, values).map_err(at(kernel))
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
        let access = self.bound(kernel)?.surface(region.port).and_then(Surface::write).map_err(at(kernel))?;
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
        let mut write = self.bound(to)?.surface(region.port).and_then(Surface::write).map_err(at(to))?;
        staging::copy_tap(&read, tap, &mut write, region).map_err(at(to))
    }
}
