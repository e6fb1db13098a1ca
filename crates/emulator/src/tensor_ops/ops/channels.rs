//! Ops with a parameter for each channel or across channels, and running sums.

use ferrane_device::Result;

use super::super::index::around;
use super::super::{Call, Data, HeapTensor, TensorOp};

pub(super) const FAMILY: &[(&str, TensorOp)] = &[
    ("prelu", prelu),
    ("softplus_parametric", softplus_parametric),
    ("local_response_norm", local_response_norm),
    ("cumsum", cumsum),
];

/// `f(x, channel)` at every element; the channels are axis 1.
fn by_channel(call: &Call<'_>, parameters: &[&HeapTensor], f: impl Fn(f32, usize) -> f32) -> Result<Vec<HeapTensor>> {
    let x = call.tensor("x")?;
    let values = call.reals("x", x)?;
    if x.shape.len() < 2 {
        return Err(call.fail("needs an axis of channels"));
    }
    let (_, channels, inner) = around(&x.shape, 1);
    if parameters.iter().any(|p| p.len() != channels) {
        return Err(call.fail(format!("needs parameters for {channels} channels")));
    }
    let out = values.iter().enumerate().map(|(i, &v)| f(v, i / inner % channels)).collect();
    Ok(vec![HeapTensor::floats(x.dtype, &x.shape, out)])
}

/// `prelu` (coremltools 9.0): values below 0 are scaled by the channel's `alpha`.
fn prelu(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let alpha = call.tensor("alpha")?;
    by_channel(call, &[alpha], |x, c| if x > 0.0 { x } else { alpha.float(c) * x })
}

/// `softplus_parametric` (coremltools 9.0): `alpha · ln(1 + e^(beta · x))`, in a form that does not
/// overflow.
fn softplus_parametric(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let (alpha, beta) = (call.tensor("alpha")?, call.tensor("beta")?);
    by_channel(call, &[alpha, beta], |x, c| {
        let z = beta.float(c) * x;
        let positive = if z < 0.0 { 0.0 } else { z };
        alpha.float(c) * (positive + (-z.abs()).exp().ln_1p())
    })
}

/// `local_response_norm` (coremltools 9.0; PyTorch's): `x / (k + alpha/size · Σx²)^beta` over a
/// window of `size` channels, which starts `size / 2` channels earlier. The channels are the third
/// axis from the end: axis 1 of images, but axis 0 of rank 3, as the expected values of
/// coremltools' test show.
fn local_response_norm(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let x = call.tensor("x")?;
    let values = call.reals("x", x)?;
    let axis = x.shape.len().checked_sub(3).ok_or_else(|| call.fail("needs a rank of 3 or more"))?;
    let (outer, channels, inner) = around(&x.shape, axis);
    let size = call.count("size")?;
    let (alpha, beta, k) = (call.float("alpha")?, call.float("beta")?, call.float("k")?);
    let (alpha, beta, k) = (f64::from(alpha) / size as f64, f64::from(beta), f64::from(k));
    let mut out = Vec::with_capacity(values.len());
    let mut sums = vec![0.0f64; inner];
    for o in 0..outer {
        for c in 0..channels {
            let window = c.saturating_sub(size / 2)..(c + (size - 1) / 2 + 1).min(channels);
            sums.fill(0.0);
            for w in window {
                let row = &values[(o * channels + w) * inner..][..inner];
                sums.iter_mut().zip(row).for_each(|(s, &v)| *s += f64::from(v) * f64::from(v));
            }
            let row = &values[(o * channels + c) * inner..][..inner];
            out.extend(row.iter().zip(&sums).map(|(&v, s)| (f64::from(v) / (k + alpha * s).powf(beta)) as f32));
        }
    }
    Ok(vec![HeapTensor::floats(x.dtype, &x.shape, out)])
}

/// `cumsum` (coremltools 9.0): for each element the sum of all elements up to it, without itself if
/// `exclusive`, from the end if `reverse`.
fn cumsum(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let x = call.tensor("x")?;
    let axis = call.axis("axis", x.shape.len())?;
    let (exclusive, reverse) = (call.flag("exclusive")?, call.flag("reverse")?);
    let (outer, n, inner) = around(&x.shape, axis);
    // The lines along the axis.
    let lines = (0..outer).flat_map(|o| (0..inner).map(move |i| o * n * inner + i));
    let place = |line: usize, p: usize| line + if reverse { n - 1 - p } else { p } * inner;
    match &x.data {
        Data::Floats(v) => {
            let mut out = vec![0.0f32; v.len()];
            for line in lines {
                let (mut narrow, mut wide) = (0.0f32, 0.0f64);
                for at in (0..n).map(|p| place(line, p)) {
                    let before = if call.wide { wide as f32 } else { narrow };
                    (narrow, wide) = (narrow + v[at], wide + f64::from(v[at]));
                    out[at] = match (exclusive, call.wide) {
                        (true, _) => before,
                        (false, true) => wide as f32,
                        (false, false) => narrow,
                    };
                }
            }
            Ok(vec![HeapTensor::floats(x.dtype, &x.shape, out)])
        }
        Data::Ints(v) => {
            let mut out = vec![0i64; v.len()];
            for line in lines {
                let mut sum = 0i64;
                for at in (0..n).map(|p| place(line, p)) {
                    let before = sum;
                    sum = sum.wrapping_add(v[at]);
                    out[at] = if exclusive { before } else { sum };
                }
            }
            Ok(vec![HeapTensor::ints(x.dtype, &x.shape, out)])
        }
        Data::Strings(_) => Err(call.fail("`x` must have numeric elements")),
    }
}
