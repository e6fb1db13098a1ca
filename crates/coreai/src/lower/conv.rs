//! Convolutions and pools.

use ferrane_mil::emit::{Emit, int32s};
use ferrane_mil::{Constant, ValueId};

use super::elementwise::Results;
use super::shape::padded;
use super::state::{Built, Lower, rejected};

pub(super) fn conv(l: &mut Lower<'_>) -> Results {
    let (x, weight) = (l.x(0)?, l.x(1)?);
    let n = l.ranked(x, 3)?.len() - 2;
    let (strides, dilations) = (l.counts(2, n, 1)?, l.counts(3, n, 1)?);
    let groups = l.int(4)?.clamp(1, 1 << 30);
    Ok(vec![l.unpadded_conv("conv", [x, weight], &strides, &dilations, groups)?])
}

/// Computes the full transposed convolution, then crops the padding and fills elements beyond it
/// with zeros.
pub(super) fn conv_transpose(l: &mut Lower<'_>) -> Results {
    let (x, weight) = (l.x(0)?, l.x(1)?);
    let (shape, kernel) = (l.ranked(x, 3)?, l.ranked(weight, 3)?);
    let n = shape.len() - 2;
    if kernel.len() != n + 2 || kernel.contains(&0) {
        return rejected(format!("a filter of shape {kernel:?} over {shape:?}"));
    }
    let (strides, pads) = (l.counts(2, n, 1)?, l.counts(3, n, 0)?);
    let (dilations, extra) = (l.counts(4, n, 1)?, l.counts(5, n, 0)?);
    let groups = l.int(6)?.clamp(1, 1 << 30);
    let mut y = l.unpadded_conv("conv_transpose", [x, weight], &strides, &dilations, groups)?;
    let mut tail = vec![0i64; 2 * (n + 2)];
    for i in 0..n {
        let full = l.ranked(y, i + 3)?[i + 2] as i64;
        let natural = (shape[i + 2] as i64 - 1) * strides[i] + (kernel[i + 2] as i64 - 1) * dilations[i] + 1;
        let out = natural + extra[i] - 2 * pads[i];
        let there = (full - pads[i]).min(out);
        if there <= 0 || out > i64::from(i32::MAX) {
            return rejected(format!("an output of {out} elements along axis {}", i + 2));
        }
        y = l.slice(y, i + 2, pads[i] as usize, there as usize)?;
        tail[2 * (i + 2) + 1] = out - there;
    }
    if tail.iter().all(|&t| t == 0) {
        return Ok(vec![y]);
    }
    let zero = l.num(y, 0.0);
    let mode = Constant::string("constant");
    Ok(vec![l.op(
        "pad",
        [("x", y.into()), ("pad", int32s(&tail).into()), ("mode", mode.into()), ("constant_val", zero.into())],
    )?])
}

/// The windows of a pool over the last axes of x.
struct Windows {
    kernel: Vec<i64>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
}

impl Windows {
    fn read(l: &Lower<'_>, x: ValueId) -> Built<Windows> {
        let n = l.ranked(x, 3)?.len() - 2;
        let (kernel, strides, dilations) = (l.counts(1, n, 1)?, l.counts(2, n, 1)?, l.counts(3, n, 1)?);
        Ok(Windows { kernel, strides, dilations })
    }

    /// From the first to the last element of a window.
    fn reach(&self, i: usize) -> i64 {
        (self.kernel[i] - 1) * self.dilations[i] + 1
    }

    fn is_dense(&self) -> bool {
        self.dilations.iter().all(|&d| d == 1)
    }

    fn pool(&self, l: &mut Lower<'_>, op: &str, x: ValueId) -> Built {
        let mut args = vec![
            ("x", x.into()),
            ("kernel_sizes", int32s(&self.kernel).into()),
            ("strides", int32s(&self.strides).into()),
            ("pad_type", Constant::string("custom").into()),
            ("pad", int32s(&vec![0; 2 * self.kernel.len()]).into()),
        ];
        if op == "avg_pool" {
            args.push(("exclude_padding_from_average", Constant::bool(false).into()));
        }
        l.build(op, args)
    }

    /// Combines the elements at each place of the windows: a strided slice of x for each place.
    fn combine(&self, l: &mut Lower<'_>, op: &str, x: ValueId) -> Built {
        let shape = l.shape(x)?;
        let n = self.kernel.len();
        let mut counts = Vec::new();
        for i in 0..n {
            let free = shape[i + 2] as i64 - self.reach(i);
            if free < 0 {
                return rejected(format!("windows of {:?} over {shape:?}", self.kernel));
            }
            counts.push(free / self.strides[i] + 1);
        }
        let places = self.kernel.iter().try_fold(1usize, |n, &k| n.checked_mul(k as usize)).unwrap_or(usize::MAX);
        l.spend(places)?;
        let mut found: Option<ValueId> = None;
        for place in 0..places {
            let (mut rest, mut begin) = (place as i64, vec![0; n + 2]);
            let mut end: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
            let mut stride = vec![1; n + 2];
            for i in (0..n).rev() {
                begin[i + 2] = rest % self.kernel[i] * self.dilations[i];
                rest /= self.kernel[i];
                stride[i + 2] = self.strides[i];
                end[i + 2] = begin[i + 2] + (counts[i] - 1) * self.strides[i] + 1;
            }
            let part = l.op(
                "slice_by_index",
                [
                    ("x", x.into()),
                    ("begin", int32s(&begin).into()),
                    ("end", int32s(&end).into()),
                    ("stride", int32s(&stride).into()),
                ],
            )?;
            found = Some(match found {
                Some(sum) => l.bin(op, sum, part)?,
                None => part,
            });
        }
        found.map_or_else(|| rejected("a window without elements"), Ok)
    }
}

/// Windows that reach beyond the last element, which a ceiling of their number allows, see the
/// smallest number there.
pub(super) fn max_pool(l: &mut Lower<'_>) -> Results {
    let mut x = l.x(0)?;
    let w = Windows::read(l, x)?;
    let shape = l.shape(x)?;
    if l.known(4)?.first().is_some_and(|v| v != 0.0) {
        let mut pads = vec![0i64; 2 * shape.len()];
        for i in 0..w.kernel.len() {
            let free = shape[i + 2] as i64 - w.reach(i);
            if free < 0 {
                return rejected(format!("windows of {:?} over {shape:?}", w.kernel));
            }
            pads[2 * (i + 2) + 1] = (free + w.strides[i] - 1) / w.strides[i] * w.strides[i] - free;
        }
        if pads.iter().any(|&p| p > 0) {
            x = padded(l, x, &pads, if l.is_float(x) { f64::NEG_INFINITY } else { f64::from(i32::MIN) })?;
        }
    }
    Ok(vec![match w.is_dense() && l.is_float(x) {
        true => w.pool(l, "max_pool", x)?,
        false => w.combine(l, "maximum", x)?,
    }])
}

/// The mean of each window times its size.
pub(super) fn sum_pool(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let w = Windows::read(l, x)?;
    let element = l.element(0)?;
    if !w.is_dense() || !l.is_float(x) {
        let sum = w.combine(l, "add", x)?;
        return Ok(vec![l.wrapped(sum, element)?]);
    }
    let size: f32 = w.kernel.iter().map(|&k| k as f32).product();
    let mean = w.pool(l, "avg_pool", x)?;
    let size = l.num(mean, size);
    Ok(vec![l.bin("mul", mean, size)?])
}
