//! Sequences of ops that the kernels of training and of generation share. The caller chooses the
//! prefix of the values' names.

use ferrane_mil::{Builder, MilError, ReducedDims, ValueId};

use crate::config::Config;

/// The result of a sequence of ops.
pub(crate) type OpResult = Result<ValueId, MilError>;

/// Converts a size to the int32 of MIL's shapes. Kernels check beforehand that sizes fit.
pub(crate) fn int(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// Reshapes to four axes.
pub(crate) fn reshape(b: &mut Builder, name: &str, x: ValueId, shape: [usize; 4]) -> OpResult {
    b.reshape(name, x, &shape.map(int))
}

/// RMSNorm over the last axis, times `gain`. Each value is named by `name` and a suffix.
///
/// The values are scaled by `1/√head_dim` before they are squared. The sum is then the mean, which
/// stays below the fp16 limit for heads with a root mean square of up to 255.
pub(crate) fn head_norm(b: &mut Builder, config: &Config, name: &str, x: ValueId, gain: ValueId) -> OpResult {
    let (eps, scale) = (config.norm_eps, 1.0 / (config.head_dim as f32).sqrt());
    let scaled = b.scale(&format!("{name}_scaled"), x, scale)?;
    let squares = b.mul(&format!("{name}_squares"), scaled, scaled)?;
    let mean = b.reduce_sum(&format!("{name}_mean"), squares, &[-1], ReducedDims::Keep)?;
    let eps = b.scalar_like(mean, eps)?;
    let mean = b.add(&format!("{name}_mean_eps"), mean, eps)?;
    let power = b.scalar_like(mean, -0.5)?;
    let rms = b.pow(&format!("{name}_inverse_rms"), mean, power)?;
    let normed = b.mul(&format!("{name}_normed"), x, rms)?;
    b.mul(&format!("{name}_gained"), normed, gain)
}

/// The value whose sigmoid, times `x`, is GELU in its approximation by tanh: `(1 + tanh u) / 2` is
/// the sigmoid of `2u`, and `2u = x · 2√(2/π) · (1 + 0.044715 · x²)`. A square beyond fp16 is
/// infinite, and the sigmoid is then 0 or 1 as it must be.
pub(crate) fn gelu_inner(b: &mut Builder, x: ValueId) -> OpResult {
    let slope = (8.0 / std::f32::consts::PI).sqrt();
    let squares = b.mul("gelu_squares", x, x)?;
    let steep = b.scale("gelu_steep", squares, 0.044_715 * slope)?;
    let slope = b.scalar_like(steep, slope)?;
    let slope = b.add("gelu_slope", steep, slope)?;
    b.mul("gelu_inner", x, slope)
}
