//! The ten kernels of the dynamic pipeline as MIL programs (training-dynamic §2, §3).
//!
//! [`build`] makes the program of one [`Kernel`] for a [`Shape`]: opset ios18, fp16 throughout,
//! inputs and output by the [`KernelLayout`] (`x`, the inputs of the weights if they are not packed
//! into `x`, and `out`). A kernel is compiled once and shared by all layers.
//!
//! | file | kernels |
//! |---|---|
//! | `linear` | `woFwd`, `ffnBwdW2t`, `ffnBwdW13t`, `wotBwd`, `qBwd`, `kvBwd`, all of them dynamic products |
//! | `attention` | `sdpaFwd` |
//! | `attention_backward` | `sdpaBwd1`, `sdpaBwd2` |
//! | `feed_forward` | `ffnFused` |
//! | `tables` | mask and rotation tables |
//! | `frame`, `ops` | inputs, regions and taps; sequences of ops that generation's kernels share |
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
pub(crate) mod ops;
mod tables;

use ferrane_mil::{MilError, Program};

use crate::layout::{Kernel, KernelLayout, LayoutError, Shape};

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

/// Builds the program of a kernel, and returns it with its layout.
///
/// # Errors
/// The shape has no layout ([`Shape::layout`]).
pub fn build(shape: &Shape, kernel: Kernel) -> Result<(Program, KernelLayout), KernelError> {
    let layout = shape.layout(kernel)?;
    let mil = |source| KernelError::Mil { kernel: kernel.name(), source };
    let frame = frame::Frame::new(shape, &layout).map_err(mil)?;
    let program = match kernel {
        Kernel::SdpaFwd => attention::sdpa_fwd(frame),
        Kernel::FfnFused => feed_forward::ffn_fused(frame),
        Kernel::SdpaBwd1 => attention_backward::sdpa_bwd1(frame),
        Kernel::SdpaBwd2 => attention_backward::sdpa_bwd2(frame),
        _ => linear::linear(frame),
    }
    .map_err(mil)?;
    Ok((program, layout))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, RopeStyle, preset};
    use crate::layout::{Residual, WeightForm};

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
            let shape = Shape::new(config, 16, residual, form);
            for kernel in Kernel::ALL {
                let (program, layout) = build(&shape, kernel).unwrap();
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
