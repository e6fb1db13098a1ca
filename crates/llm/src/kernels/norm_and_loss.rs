//! `rmsFfnBwd`, `rmsAttnBwd`, `rmsFinal`, `classifier` and `softmax`: what the static pipeline with
//! extras computes on the device, too (training-static §3).
//!
//! Values are scaled by `1/√dim` before they are squared or multiplied, as in the QK-norm: the sums
//! over the channels are then means, which fp16 holds.

use ferrane_mil::{Conv, MilError, Program, ReducedDims, ValueId};

use super::frame::Frame;
use super::ops::OpResult;
use crate::layout::Activation;
use crate::weights::Part;

/// `x/√dim` and `1/√(mean of x² + eps)`, `[1, 1, 1, seq]`.
fn inverse_rms(f: &mut Frame<'_>, x: ValueId) -> Result<(ValueId, ValueId), MilError> {
    let (dim, eps) = (f.shape.config.dim, f.shape.config.norm_eps);
    let scaled = f.b.scale("x_scaled", x, 1.0 / (dim as f32).sqrt())?;
    let squares = f.b.mul("x_squares", scaled, scaled)?;
    let mean = f.b.reduce_sum("x_mean", squares, &[1], ReducedDims::Keep)?;
    let eps = f.b.scalar_like(mean, eps)?;
    let mean = f.b.add("x_mean_eps", mean, eps)?;
    let power = f.b.scalar_like(mean, -0.5)?;
    Ok((scaled, f.b.pow("inverse_rms", mean, power)?))
}

/// `dx = r · (w·dy − x · r² · mean of w·dy·x)`; the reference trainer's kernel has the same
/// formula.
pub(super) fn rms_bwd(mut f: Frame<'_>, gain: Part) -> Result<Program, MilError> {
    let (dy, x) = (f.activation(Activation::Dy)?, f.activation(Activation::X)?);
    let gain = f.region(gain.name())?;
    let (scaled, r) = inverse_rms(&mut f, x)?;
    let gained = f.b.mul("dy_gained", dy, gain)?;
    let products = f.b.mul("dy_x", gained, scaled)?;
    let sum = f.b.reduce_sum("dy_x_sum", products, &[1], ReducedDims::Keep)?;
    let sum = f.b.mul("dy_x_r", sum, r)?;
    let sum = f.b.mul("dy_x_rr", sum, r)?;
    let along = f.b.mul("along_x", scaled, sum)?;
    let across = f.b.sub("across_x", gained, along)?;
    let dx = f.b.mul("dx", across, r)?;
    f.finish(&[dx])
}

pub(super) fn rms_final(mut f: Frame<'_>) -> Result<Program, MilError> {
    let dim = f.shape.config.dim;
    let x = f.activation(Activation::X)?;
    let (_, r) = inverse_rms(&mut f, x)?;
    let normed = f.b.mul("x_normed", x, r)?;
    let gain = model_constant(&mut f, "norm", |of| of.norm, [1, dim, 1, 1])?;
    let out = f.b.mul("xnorm", normed, gain)?;
    f.finish(&[out])
}

pub(super) fn classifier(mut f: Frame<'_>) -> Result<Program, MilError> {
    let (classes, dim) = (f.shape.classes, f.shape.config.dim);
    let x = f.activation(Activation::Xnorm)?;
    let rows = model_constant(&mut f, "classifier", |of| of.classifier, [classes, dim, 1, 1])?;
    let logits = f.b.conv("logits", x, rows, None, &Conv::default())?;
    f.finish(&[logits])
}

pub(super) fn softmax(mut f: Frame<'_>) -> Result<Program, MilError> {
    let logits = f.activation(Activation::Logits)?;
    let probs = f.b.softmax("class_probs", logits, 1)?;
    f.finish(&[probs])
}

/// A constant of the model, rounded to fp16.
fn model_constant<'a>(
    f: &mut Frame<'a>,
    name: &str,
    values: impl FnOnce(&super::ModelConstants<'a>) -> &'a [f32],
    shape: [usize; 4],
) -> OpResult {
    let values = f.model.as_ref().map(values).unwrap_or_default();
    if values.len() != shape.iter().product::<usize>() {
        return Err(MilError::Invalid { reason: format!("wrong size of weight `{name}`, or none") });
    }
    f.rounded_constant(name, values, shape)
}
