//! Summaries of how two tensors differ. The terms are defined in the module `audit`.

use crate::tensor_ops::{Data, HeapTensor};

/// Upper ends of the histogram's bins, in ulps: 0 holds exact results, the next bin correctly
/// rounded ones. Two more bins follow: larger errors, and elements that are NaN or infinite on one
/// side only.
pub const BINS: [f64; 13] = [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

/// The largest fp16 value.
pub(super) const HALF_MAX: f64 = 65504.0;

/// The magnitude from which on fp16 rounds to infinity.
const HALF_END: f64 = 65520.0;

/// The smallest normal fp16 value, 2⁻¹⁴.
pub(super) const HALF_NORMAL: f64 = 6.103_515_625e-5;

/// Statistics of a tensor. Extremes do not count NaN and infinities.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ValueStats {
    /// Number of elements, finite or not.
    pub elements: usize,
    /// The smallest finite value; 0 if no value is finite.
    pub min: f64,
    /// The largest finite value; 0 if no value is finite.
    pub max: f64,
    /// The largest finite magnitude; 0 if no value is finite.
    pub peak: f64,
    /// The smallest nonzero magnitude; 0 if there is none.
    pub least: f64,
    /// Number of elements that fp16 rounds to infinity.
    pub beyond: usize,
    /// Number of nonzero elements below 2⁻¹⁴.
    pub subnormal: usize,
    /// Number of elements that are NaN or infinite.
    pub not_finite: usize,
}

/// The element to look at: the first one that is infinite or NaN on one side only, else the one
/// with the largest error.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Worst {
    /// Its index along each axis.
    pub index: Vec<usize>,
    /// The value that `exact` computes for it.
    pub exact: f64,
    /// The value that was found.
    pub found: f64,
}

/// How far a tensor is from the exact one. Errors count only elements that are finite on both
/// sides.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Deviation {
    /// Number of elements, finite or not.
    pub elements: usize,
    /// The largest absolute error.
    pub max: f64,
    /// The root mean squared error.
    pub rms: f64,
    /// `rms` over the root mean square of the exact values; 0 if there is no error.
    pub relative: f64,
    /// The largest error in ulps of its own element: large where terms cancel.
    pub max_ulps: f64,
    /// The largest error in ulps of the largest exact magnitude: the measure for the tensor as a
    /// whole.
    pub peak_ulps: f64,
    /// Number of elements by their error in their own ulps: [`BINS`], larger errors, not finite on
    /// one side.
    pub histogram: [usize; BINS.len() + 2],
    /// Number of elements that are finite in exact, and here infinite or clamped to the largest
    /// value.
    pub overflow: usize,
    /// How many of them have an exact value that fp16 can hold.
    pub saturated: usize,
    /// Number of elements that are NaN or infinite in exact and something else here, or NaN only
    /// here.
    pub special: usize,
    /// Number of elements that are nonzero in exact and zero here.
    pub underflow: usize,
    /// The largest exact magnitude among those.
    pub vanished: f64,
    /// Number of nonzero elements below 2⁻¹⁴ here.
    pub subnormal: usize,
    /// Number of elements that differ from the exact ones.
    pub differ: usize,
    /// The element to look at. `None` if nothing differs.
    pub worst: Option<Worst>,
}

/// The distance between neighboring fp16 values at a magnitude.
pub(super) fn ulp(v: f64) -> f64 {
    let exponent = ((v.to_bits() >> 52 & 0x7FF) as i32 - 1023).max(-14);
    2f64.powi(exponent - 10)
}

/// The elements as numbers. Strings have none.
fn values(tensor: &HeapTensor) -> Box<dyn Iterator<Item = f64> + '_> {
    match &tensor.data {
        Data::Floats(v) => Box::new(v.iter().map(|&v| f64::from(v))),
        Data::Ints(v) => Box::new(v.iter().map(|&v| v as f64)),
        Data::Strings(_) => Box::new(std::iter::empty()),
    }
}

impl ValueStats {
    pub(super) fn of(tensor: &HeapTensor) -> ValueStats {
        let is_float = matches!(tensor.data, Data::Floats(_));
        let mut span = ValueStats { elements: tensor.len(), ..ValueStats::default() };
        let (mut min, mut max, mut least) = (f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY);
        for v in values(tensor) {
            if !v.is_finite() {
                span.not_finite += 1;
                continue;
            }
            (min, max) = (min.min(v), max.max(v));
            let magnitude = v.abs();
            if magnitude > 0.0 {
                least = least.min(magnitude);
            }
            span.beyond += usize::from(is_float && magnitude >= HALF_END);
            span.subnormal += usize::from(is_float && magnitude > 0.0 && magnitude < HALF_NORMAL);
        }
        let finite = |v: f64| if v.is_finite() { v } else { 0.0 };
        (span.min, span.max, span.least) = (finite(min), finite(max), finite(least));
        span.peak = span.min.abs().max(span.max.abs());
        span
    }
}

impl Deviation {
    /// `None` if the shapes differ, or if they hold strings.
    pub(super) fn of(exact: &HeapTensor, found: &HeapTensor) -> Option<Deviation> {
        if exact.shape != found.shape || exact.len() != found.len() || matches!(exact.data, Data::Strings(_)) {
            return None;
        }
        let is_float = matches!(exact.data, Data::Floats(_));
        let mut d = Deviation { elements: exact.len(), ..Deviation::default() };
        let (mut squares, mut exact_squares, mut pairs, mut peak) = (0f64, 0f64, 0usize, 0f64);
        // The place and the error of the element to look at; an infinite error is never replaced by
        // a later one.
        let mut worst: Option<(usize, f64, f64, f64)> = None;
        for (i, (e, f)) in values(exact).zip(values(found)).enumerate() {
            d.subnormal += usize::from(is_float && f != 0.0 && f.abs() < HALF_NORMAL);
            if e.is_finite() {
                peak = peak.max(e.abs());
            }
            if e == f || (e.is_nan() && f.is_nan()) {
                d.histogram[0] += 1;
                if e.is_finite() {
                    pairs += 1;
                    exact_squares += e * e;
                }
                continue;
            }
            d.differ += 1;
            let held = is_float && f.abs() == HALF_MAX && e.abs() >= HALF_END && e.is_finite();
            if e.is_finite() && (f.is_infinite() || held) {
                d.overflow += 1;
                d.saturated += usize::from(e.abs() < HALF_END);
            } else if !e.is_finite() || f.is_nan() {
                d.special += 1;
            }
            if is_float && f == 0.0 && e.is_finite() {
                d.underflow += 1;
                d.vanished = d.vanished.max(e.abs());
            }
            let error = match e.is_finite() && f.is_finite() {
                true => (e - f).abs(),
                false => f64::INFINITY,
            };
            if worst.is_none_or(|(_, most, ..)| error > most) {
                worst = Some((i, error, e, f));
            }
            let bin = if error.is_finite() {
                let ulps = if is_float { error / ulp(e) } else { error };
                pairs += 1;
                squares += error * error;
                exact_squares += e * e;
                d.max = d.max.max(error);
                d.max_ulps = d.max_ulps.max(ulps);
                BINS.iter().position(|&end| ulps <= end).unwrap_or(BINS.len())
            } else {
                BINS.len() + 1
            };
            if let Some(count) = d.histogram.get_mut(bin) {
                *count += 1;
            }
        }
        d.rms = (squares / pairs.max(1) as f64).sqrt();
        d.relative = if squares == 0.0 { 0.0 } else { (squares / exact_squares).sqrt() };
        d.peak_ulps = if is_float { d.max / ulp(peak) } else { d.max };
        d.worst = worst.map(|(i, _, exact, f)| Worst { index: index(&found.shape, i), exact, found: f });
        Some(d)
    }
}

/// The index of an element along each axis.
fn index(shape: &[usize], mut at: usize) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (place, &extent) in index.iter_mut().zip(shape).rev() {
        let extent = extent.max(1);
        *place = at % extent;
        at /= extent;
    }
    index
}

#[cfg(test)]
mod tests {
    use ferrane_mil::DataType;

    use super::*;

    fn floats(v: &[f32]) -> HeapTensor {
        HeapTensor::floats(DataType::Fp16, &[v.len()], v.to_vec())
    }

    #[test]
    fn ulps_are_those_of_fp16() {
        // 1 to 2 has 1024 steps; 2048 to 4096 goes by 2; below 2^-14 all steps are 2^-24; above
        // 65504 they continue to grow.
        for (v, want) in [(1.0, -10), (1.99, -10), (-2.0, -9), (2048.0, 1), (65504.0, 5), (65536.0, 6), (1e-5, -24)] {
            assert_eq!(ulp(v), 2f64.powi(want), "{v}");
        }
        assert_eq!((ulp(0.0), ulp(HALF_NORMAL)), (2f64.powi(-24), 2f64.powi(-24)));
    }

    #[test]
    fn every_count_by_hand() {
        let inf = f32::INFINITY;
        //            same  ½ ulp at 1        3 ulps at 1        overflow  saturated  held      special    NaN both
        let exact = [0.5, 1.0 + 2e-4, 1.0, 70000.0, 40000.0, -70000.0, f32::NAN, f32::NAN, 1e-3, 2e-5, inf, 1.0, -inf];
        let found =
            [0.5, 1.0, 1.0 + 3.0 / 1024.0, inf, inf, -65504.0, inf, f32::NAN, 0.0, 2.1e-5, -45440.0, f32::NAN, -inf];
        let d = Deviation::of(&floats(&exact), &floats(&found)).unwrap();
        assert_eq!((d.elements, d.differ), (13, 10));
        assert_eq!((d.overflow, d.saturated, d.special, d.underflow, d.subnormal), (3, 1, 3, 1, 1));
        assert_eq!(d.vanished, f64::from(1e-3f32));
        let mut histogram = [0; BINS.len() + 2];
        // 0.5, NaN and -inf are the same; 1.0002 errs by 0.2 ulps, 1 by 3, 1e-3 by 1 in steps of
        // 2^-20, that is 1048; 2e-5 by 1e-6 in steps of 2^-24, that is 16.8; 70000 held at 65504 by
        // 4496 in steps of 64, that is 70.25.
        histogram[0] = 3;
        histogram[1] = 1;
        histogram[4] = 1;
        histogram[13] = 1;
        histogram[7] = 1;
        histogram[9] = 1;
        histogram[14] = 5;
        assert_eq!(d.histogram, histogram);
        assert_eq!(d.max, 4496.0);
        // The largest finite exact magnitude is 70000, whose step is 64.
        assert_eq!(d.peak_ulps, 4496.0 / 64.0);
        let worst = d.worst.unwrap();
        assert_eq!((worst.index, worst.exact, worst.found), (vec![3], 70000.0, f64::INFINITY));
    }

    #[test]
    fn rms_is_over_what_is_finite_on_both_sides() {
        let d = Deviation::of(&floats(&[3.0, 4.0, 9.0]), &floats(&[4.0, 5.0, f32::INFINITY])).unwrap();
        assert_eq!((d.max, d.rms), (1.0, 1.0));
        assert!((d.relative - (2f64 / 25.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn integers_differ_or_do_not() {
        let ints = |v: &[i64]| HeapTensor::ints(DataType::Int32, &[v.len()], v.to_vec());
        let d = Deviation::of(&ints(&[1, 100_000, 3]), &ints(&[1, 100_002, 0])).unwrap();
        assert_eq!((d.differ, d.max, d.max_ulps, d.overflow, d.subnormal), (2, 3.0, 3.0, 0, 0));
        assert_eq!(Deviation::of(&ints(&[1]), &ints(&[1, 2])), None);
    }

    #[test]
    fn spans() {
        let span = ValueStats::of(&floats(&[-2.0, 0.0, 1e-5, 70000.0, f32::NAN, f32::INFINITY]));
        let counts = (span.elements, span.beyond, span.subnormal, span.not_finite);
        assert_eq!(counts, (6, 1, 1, 2));
        assert_eq!((span.min, span.max, span.peak, span.least), (-2.0, 70000.0, 70000.0, f64::from(1e-5f32)));
        assert_eq!(ValueStats::of(&floats(&[f32::NAN])).peak, 0.0);
    }

    #[test]
    fn places_are_row_major() {
        assert_eq!(index(&[2, 3, 4], 23), [1, 2, 3]);
        assert_eq!(index(&[2, 3, 4], 5), [0, 1, 1]);
    }
}
