//! The kernels of training as MIL programs (training-dynamic §2, §3; training-static §1).
//!
//! [`build`] makes the program of one [`Kernel`] for a [`Shape`]: opset ios18, fp16 throughout,
//! inputs and output by the [`KernelLayout`] (`x`, the inputs of the weights if they are not packed
//! into `x`, and `out`). A kernel is compiled once and shared by all layers. [`build_layer`] makes
//! the program of one layer, in which the weights are constants if the shape's pipeline wants that.
//! Both use the same sequences of ops.
//!
//! | file | kernels |
//! |---|---|
//! | `linear` | `woFwd`, `ffnBwdW2t`, `ffnBwdW13t`, `wotBwd`, `qBwd`, `kvBwd`, `qkvBwd`: sums of products |
//! | `attention` | `sdpaFwd`, `fwdAttn` |
//! | `attention_backward` | `sdpaBwd1`, `woSdpaBwd1`, `sdpaBwd2` |
//! | `feed_forward` | `ffnFused`, `ffnBwd` |
//! | `norm_and_loss` | `rmsFfnBwd`, `rmsAttnBwd`, `rmsFinal`, `classifier`, `softmax` |
//! | `tables` | mask and rotation tables |
//! | `frame`, `ops` | inputs, regions, weights and taps; sequences of ops that generation's kernels share |
//!
//! The forward kernels of the static trainer also compute RMSNorm. Here that is fp32 on the CPU in
//! every pipeline, like the residual stream that it reads.
//!
//! Query head `h` reads kv head `h / ratio`; the forward pass of the reference trainer uses `h mod
//! kv_heads` (upstream-defects #1). Keys and values are not copied: the `ratio` query heads of a kv
//! head are adjacent, so `[1, heads, seq, head_dim]` has the layout of `[1, kv_heads, ratio · seq,
//! head_dim]`, and one product of rank 4 serves the group. Repeating along a new axis would need
//! products of rank 5, which engines reject, or `tile`, which corrupts the state of one engine
//! (mil-text §6).

mod attention;
mod attention_backward;
mod feed_forward;
mod frame;
mod linear;
mod norm_and_loss;
pub(crate) mod ops;
mod tables;

use ferrane_mil::{MilError, Program};

use crate::layout::{Kernel, KernelLayout, LayoutError, Shape};
use crate::weights::{Layer, Part};

pub(crate) use tables::mask;
pub use tables::{MASKED, causal_mask, rope_tables};

/// Why a kernel could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The shape has no layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The builder refused an op.
    #[error("{kernel}: {source}")]
    Mil {
        /// The kernel's name, `sdpaFwd` for example.
        kernel: &'static str,
        /// The cause, as the builder reports it.
        source: MilError,
    },
}

/// Builds the program of a kernel that all layers share, and returns it with its layout.
///
/// # Errors
/// The shape has no layout ([`Shape::layout`]), or its weights are constants, which only
/// [`build_layer`] has.
pub fn build(shape: &Shape, kernel: Kernel) -> Result<(Program, KernelLayout), KernelError> {
    program(shape, kernel, None, None)
}

/// Builds the program of a kernel for one layer, and returns it with its layout.
///
/// # Errors
/// The shape has no layout ([`Shape::layout`]), or a weight is missing or has another size than the
/// model's.
pub fn build_layer(shape: &Shape, kernel: Kernel, layer: &Layer) -> Result<(Program, KernelLayout), KernelError> {
    program(shape, kernel, Some(layer), None)
}

/// The weights of a model that are constants of its kernels ([`Kernel::is_of_model`]).
#[derive(Clone, Copy, Debug)]
pub struct ModelConstants<'a> {
    /// Gains of the final norm, `[dim]`.
    pub norm: &'a [f32],
    /// Rows of the classifier, `[classes, dim]`.
    pub classifier: &'a [f32],
}

/// Builds the program of a kernel of the model, and returns it with its layout.
///
/// # Errors
/// The shape has no layout ([`Shape::layout`]), or a constant has another size than the model's.
pub fn build_model(
    shape: &Shape,
    kernel: Kernel,
    model: ModelConstants<'_>,
) -> Result<(Program, KernelLayout), KernelError> {
    program(shape, kernel, None, Some(model))
}

fn program(
    shape: &Shape,
    kernel: Kernel,
    layer: Option<&Layer>,
    model: Option<ModelConstants<'_>>,
) -> Result<(Program, KernelLayout), KernelError> {
    let layout = shape.layout(kernel)?;
    let mil = |source| KernelError::Mil { kernel: kernel.name(), source };
    let frame = frame::Frame::new(shape, &layout, layer, model).map_err(mil)?;
    let program = match kernel {
        Kernel::SdpaFwd | Kernel::FwdAttn => attention::sdpa_fwd(frame),
        Kernel::FfnFused => feed_forward::ffn_fused(frame),
        Kernel::FfnBwd => feed_forward::ffn_bwd(frame),
        Kernel::SdpaBwd1 | Kernel::WoSdpaBwd1 => attention_backward::sdpa_bwd1(frame),
        Kernel::SdpaBwd2 => attention_backward::sdpa_bwd2(frame),
        Kernel::RmsFfnBwd => norm_and_loss::rms_bwd(frame, Part::FfnNorm),
        Kernel::RmsAttnBwd => norm_and_loss::rms_bwd(frame, Part::AttnNorm),
        Kernel::RmsFinal => norm_and_loss::rms_final(frame),
        Kernel::Classifier => norm_and_loss::classifier(frame),
        Kernel::Softmax => norm_and_loss::softmax(frame),
        Kernel::WoFwd
        | Kernel::FfnBwdW2t
        | Kernel::FfnBwdW13t
        | Kernel::WotBwd
        | Kernel::QBwd
        | Kernel::KvBwd
        | Kernel::QkvBwd => linear::linear(frame),
    }
    .map_err(mil)?;
    Ok((program, layout))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, RopeStyle, preset};
    use crate::layout::{PipelineKind, Residual, WeightForm};
    use crate::weights::Weights;

    #[test]
    fn every_option_builds_and_fits_its_layout() {
        for bits in 0..64 {
            let on = |bit: u32| bits & (1 << bit) != 0;
            let mut config: Config = preset("stories260k").unwrap();
            (config.qk_norm, config.qkv_bias) = (on(0), on(1));
            config.rope.style = if on(2) { RopeStyle::Half } else { RopeStyle::Interleaved };
            config.kv_heads = if on(3) { config.heads } else { config.heads / 2 };
            let residual = if on(4) { Residual::Fp32 } else { Residual::Fp16 };
            let form = if on(5) { WeightForm::Inputs } else { WeightForm::Packed };
            let mut weights = Weights::zeros(&config);
            let layer = weights.layers.remove(0);
            let model = ModelConstants { norm: &weights.norm, classifier: &weights.embed };
            use PipelineKind::{Dynamic, Fused, Static, StaticExtras};
            let pipelines = [Dynamic, Static, StaticExtras, Fused];
            let shapes = pipelines.map(|p| Shape::new(config.clone(), 16, residual, form).with_pipeline(p));
            for (shape, kernel) in shapes.iter().flat_map(|s| s.pipeline.kernels().iter().map(move |k| (s, *k))) {
                let (program, layout) = match kernel.is_of_model() {
                    true => build_model(shape, kernel, model).unwrap(),
                    false => build_layer(shape, kernel, &layer).unwrap(),
                };
                let shared = build(shape, kernel);
                assert_eq!(shared.is_err(), shape.pipeline.has_constants() && kernel.has_weights(), "{shared:?}");
                let main = program.function("main").unwrap();
                let out = main.body().outputs[0];
                assert_eq!(main.value(out).ty.shape().unwrap(), [1, layout.out_channels, 1, 16]);
                assert_eq!(main.value(out).name, crate::layout::OUTPUT);
                let names: Vec<_> = main.inputs.iter().map(|v| main.value(*v).name.as_str()).collect();
                assert_eq!(names, layout.inputs.iter().map(|i| i.name).collect::<Vec<_>>());
                let rank = |v: &ferrane_mil::Value| v.ty.rank().unwrap_or(0);
                assert!(main.values.iter().map(rank).max() <= Some(4));
            }
        }
    }
}
