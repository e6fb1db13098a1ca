//! Random tensors.
//!
//! Core ML's generator is not documented, so the numbers differ from Apple's; their distributions
//! do not. The generator here is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
//! number generators", OOPSLA 2014), started at the seed as a signed 64-bit integer; a draw is the
//! upper 53 bits of an output over 2⁵³. The same seed gives the same numbers in every run. A
//! negative seed, with which Core ML returns different numbers each time, is a seed like any other
//! here, so that runs can be compared.

use ferrane_device::Result;

use super::super::{Call, HeapTensor, TensorOp};

pub(super) const FAMILY: &[(&str, TensorOp)] = &[
    ("random_uniform", random_uniform),
    ("random_normal", random_normal),
    ("random_bernoulli", random_bernoulli),
    ("random_categorical", random_categorical),
];

/// The state of SplitMix64.
struct Draws(u64);

impl Draws {
    fn of(call: &Call<'_>) -> Result<Draws> {
        Ok(Draws(call.int("seed")? as u64))
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `[0, 1)`.
    fn next(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A tensor of the requested shape, drawn element by element.
fn drawn(call: &Call<'_>, mut draw: impl FnMut(&mut Draws) -> f32) -> Result<Vec<HeapTensor>> {
    let shape = call.extents(&call.ints("shape")?)?;
    let mut draws = Draws::of(call)?;
    let values = (0..call.elements(&shape)?).map(|_| draw(&mut draws)).collect();
    Ok(vec![HeapTensor::floats(call.dtype(0)?, &shape, values)])
}

/// `random_uniform`: in `[low, high)` (coremltools 9.0).
fn random_uniform(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let (low, high) = (call.float("low")?, call.float("high")?);
    let (from, span) = (f64::from(low), f64::from(high) - f64::from(low));
    drawn(call, |draws| {
        let value = (from + draws.next() * span) as f32;
        // Rounding may give `high`, which is outside of the interval.
        if value >= high && high > low { high.next_down() } else { value }
    })
}

/// `random_normal` (coremltools 9.0), by the transform of Box and Muller: two draws for each
/// element.
fn random_normal(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let (mean, deviation) = (f64::from(call.float("mean")?), f64::from(call.float("stddev")?));
    drawn(call, |draws| {
        // 1 - u is never 0.
        let radius = (-2.0 * (1.0 - draws.next()).ln()).sqrt();
        let angle = std::f64::consts::TAU * draws.next();
        (mean + deviation * radius * angle.cos()) as f32
    })
}

/// `random_bernoulli`: 1 with probability `prob`, else 0 (coremltools 9.0).
fn random_bernoulli(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let probability = f64::from(call.float("prob")?);
    drawn(call, |draws| if draws.next() < probability { 1.0 } else { 0.0 })
}

/// `random_categorical`: `size` indices for each line of logits or probabilities, drawn with
/// replacement (coremltools 9.0). The probabilities need not add up to 1.
fn random_categorical(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let x = call.tensor("x")?;
    let values = call.reals("x", x)?;
    let Some((&classes, lines)) = x.shape.split_last().filter(|(n, _)| **n > 0) else {
        return Err(call.fail("needs a line of probabilities"));
    };
    let logits = match call.text("mode")?.as_str() {
        "logits" => true,
        "probs" => false,
        other => return Err(call.fail(format!("has no mode `{other}`"))),
    };
    let size = call.count("size")?;
    let mut shape = lines.to_vec();
    shape.push(size);
    let mut out = Vec::with_capacity(call.elements(&shape)?);
    let mut draws = Draws::of(call)?;
    for line in values.chunks_exact(classes) {
        let most = line.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weight = |v: &f32| if logits { f64::from(v - most).exp() } else { f64::from(*v) };
        let mut sum = 0.0f64;
        let bounds: Vec<f64> = line.iter().map(|v| (sum += weight(v), sum).1).collect();
        for _ in 0..size {
            let at = draws.next() * sum;
            // The first class whose cumulative probability is above the draw; NaN chooses the last
            // class.
            out.push(bounds.partition_point(|&b| b <= at).min(classes - 1) as f32);
        }
    }
    Ok(vec![HeapTensor::floats(x.dtype, &shape, out)])
}
