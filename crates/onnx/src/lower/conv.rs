//! Convolutions.

use ferrane_mil::emit::{Emit, int32s};
use ferrane_mil::{Arg, Constant, DataType, ValueId};

use super::reduce::centered;
use super::state::{Built, Lower, Stop, one};
use crate::element::ElementType;

type Results = Built<Vec<Option<ValueId>>>;

/// Strides, dilations and padding of the spatial axes.
pub(super) struct Window {
    pub strides: Vec<i64>,
    pub dilations: Vec<i64>,
    /// Padding before and after each axis, interleaved as MIL expects it.
    pub pads: Vec<i64>,
}

impl Window {
    /// Reads the attributes of a window over the spatial extents `x`, and checks them.
    pub(super) fn read(l: &Lower<'_>, x: &[usize], kernel: &[usize]) -> Built<Window> {
        let n = kernel.len();
        if x.len() != n || kernel.contains(&0) {
            return Err(Stop::Rejected(format!("a window of {kernel:?} over {x:?}")));
        }
        let strides = l.counts("strides", n, 1, 1)?;
        let dilations = l.counts("dilations", n, 1, 1)?;
        let given = l.counts("pads", 2 * n, 0, 0)?;
        let mut pads: Vec<i64> = (0..n).flat_map(|i| [given[i], given[i + n]]).collect();
        let auto = l.text("auto_pad", "NOTSET");
        if auto.starts_with("SAME") {
            for i in 0..n {
                let extent = x[i] as i64;
                let out = (extent + strides[i] - 1) / strides[i];
                let reach = (kernel[i] as i64 - 1) * dilations[i] + 1;
                let total = ((out - 1) * strides[i] + reach - extent).max(0);
                let (small, large) = (total / 2, total - total / 2);
                (pads[2 * i], pads[2 * i + 1]) = if auto == "SAME_LOWER" { (large, small) } else { (small, large) };
            }
        } else if auto == "VALID" {
            pads = vec![0; 2 * n];
        }
        Ok(Window { strides, dilations, pads })
    }
}

pub(super) fn conv_of(l: &mut Lower<'_>, x: ValueId, weight: ValueId, bias: Option<ValueId>) -> Built {
    let (shape, kernel) = (l.ranked(x, 3)?, l.ranked(weight, 3)?);
    let w = Window::read(l, &shape[2..], &kernel[2..])?;
    let mut args: Vec<(&str, Arg)> = vec![
        ("x", x.into()),
        ("weight", weight.into()),
        ("strides", int32s(&w.strides).into()),
        ("pad_type", Constant::string("custom").into()),
        ("pad", int32s(&w.pads).into()),
        ("dilations", int32s(&w.dilations).into()),
        ("groups", Constant::int32(l.int("group", 1) as i32).into()),
    ];
    if let Some(bias) = bias {
        args.push(("bias", bias.into()));
    }
    l.build("conv", args)
}

/// Combines x `[N, C, …]` with a vector of one element for each channel.
pub(super) fn along_channels(l: &mut Lower<'_>, op: &str, x: ValueId, v: ValueId) -> Built {
    let mut wide = vec![1; l.ranked(x, 2)?.len()];
    wide[1] = l.shape(v)?.iter().product();
    let v = l.reshape(v, &wide)?;
    l.bin(op, x, v)
}

pub(super) fn conv(l: &mut Lower<'_>) -> Results {
    let (x, weight) = (l.x(0)?, l.x(1)?);
    if l.has(2) && !l.is_known(2) {
        let y = conv_of(l, x, weight, None)?;
        let bias = l.x(2)?;
        return one(along_channels(l, "add", y, bias)?);
    }
    let bias = l.maybe(2)?;
    one(conv_of(l, x, weight, bias)?)
}

/// Computes the full transposed convolution, then crops the padding and fills elements beyond it
/// with zeros.
pub(super) fn conv_transpose(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let weight = l.fixed(1)?;
    let (shape, kernel) = (l.ranked(x, 3)?, l.ranked(weight, 3)?);
    let n = shape.len() - 2;
    if kernel.len() != n + 2 || kernel.contains(&0) {
        return Err(Stop::Rejected(format!("a filter of shape {kernel:?} over {shape:?}")));
    }
    let strides = l.counts("strides", n, 1, 1)?;
    let dilations = l.counts("dilations", n, 1, 1)?;
    let extra = l.counts("output_padding", n, 0, 0)?;
    let pads = l.counts("pads", 2 * n, 0, 0)?;
    let auto = l.text("auto_pad", "NOTSET");
    let groups = l.int("group", 1);
    let mut y = l.unpadded_conv("conv_transpose", [x, weight], &strides, &dilations, groups)?;
    let wanted = l.list("output_shape");
    if wanted.as_ref().is_some_and(|w| w.len() < n) {
        return Err(Stop::Rejected(format!("the attribute `output_shape` is {wanted:?}")));
    }
    let mut ranges = Vec::with_capacity(n);
    for i in 0..n {
        let extent = shape[i + 2] as i64;
        let full = (extent - 1) * strides[i] + (kernel[i + 2] as i64 - 1) * dilations[i] + 1;
        let natural = full + extra[i];
        let out = match &wanted {
            Some(w) => Some(w[w.len() - n + i]),
            None if auto.starts_with("SAME") => Some(extent * strides[i]),
            None => None,
        };
        ranges.push(match out {
            Some(out) => {
                let total = (natural - out).max(0);
                let small = total / 2;
                let first = auto == "SAME_UPPER" || wanted.is_some() && auto != "SAME_LOWER";
                (if first { small } else { total - small }, out)
            }
            None => (pads[i], natural - pads[i] - pads[i + n]),
        });
    }
    y = fitted(l, y, &ranges)?;
    if let Some(bias) = l.maybe(2)? {
        y = along_channels(l, "add", y, bias)?;
    }
    one(y)
}

/// The elements `before..before + out` of each spatial axis, with zeros where y has none.
fn fitted(l: &mut Lower<'_>, mut y: ValueId, ranges: &[(i64, i64)]) -> Built {
    let mut tail = vec![0i32; 2 * (ranges.len() + 2)];
    for (i, &(before, out)) in ranges.iter().enumerate() {
        let full = l.ranked(y, i + 3)?[i + 2] as i64;
        let there = (full - before).min(out);
        if before < 0 || there <= 0 || out > i64::from(i32::MAX) {
            return Err(Stop::Rejected(format!("an output of {out} elements along axis {}", i + 2)));
        }
        y = l.slice(y, i + 2, before as usize, there as usize)?;
        tail[2 * (i + 2) + 1] = (out - there) as i32;
    }
    if tail.iter().all(|&t| t == 0) {
        return Ok(y);
    }
    let zero = l.num(y, 0.0);
    l.op(
        "pad",
        [
            ("x", y.into()),
            ("pad", Constant::int32s(&tail).into()),
            ("mode", Constant::string("constant").into()),
            ("constant_val", zero.into()),
        ],
    )
}

/// Sums blocks into an image: a transposed convolution in which each channel of a block has a
/// filter with a single one.
pub(super) fn col2im(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.ranked(x, 3)?;
    let sizes = |i: usize| -> Built<Vec<i64>> { Ok(l.ints(i)?.iter().map(|&n| n.clamp(0, 1 << 24)).collect()) };
    let (image, block) = (sizes(1)?, sizes(2)?);
    let n = image.len();
    let dilations = l.counts("dilations", n, 1, 1)?;
    let strides = l.counts("strides", n, 1, 1)?;
    let pads = l.counts("pads", 2 * n, 0, 0)?;
    if block.len() != n || n == 0 || block.contains(&0) || shape.len() != 3 {
        return Err(Stop::Rejected(format!("blocks of {block:?} in an image of {image:?}")));
    }
    let extents: Vec<usize> = block.iter().map(|&n| n as usize).collect();
    let size = l.table(&extents)?;
    let counts: Vec<i64> = (0..n)
        .map(|i| (image[i] + pads[i] + pads[i + n] - dilations[i] * (block[i] - 1) - 1).div_euclid(strides[i]) + 1)
        .collect();
    let groups = shape[1] / size;
    if counts.iter().any(|&c| c <= 0) || groups * size != shape[1] {
        return Err(Stop::Rejected(format!("blocks of {block:?} for {shape:?}")));
    }
    let mut wide = vec![shape[0], shape[1]];
    wide.extend(counts.iter().map(|&c| c as usize));
    let x = l.reshape(x, &wide)?;
    let total = l.table(&[shape[1], size])?;
    let ones: Vec<f64> = (0..total).map(|i| f64::from(u8::from(i / size % size == i % size))).collect();
    let mut filter = vec![shape[1], 1];
    filter.extend(&extents);
    let weight = l.tensor(x, &filter, &ones)?;
    let y = l.unpadded_conv("conv_transpose", [x, weight], &strides, &dilations, groups as i64)?;
    let ranges: Vec<(i64, i64)> = (0..n).map(|i| (pads[i], image[i])).collect();
    one(fitted(l, y, &ranges)?)
}

/// 8-bit integers and the sums of their products here are exact in fp32.
pub(super) fn conv_integer(l: &mut Lower<'_>) -> Results {
    let (x, weight) = (centered(l, 0, 2, 1)?, centered(l, 1, 3, 0)?);
    let (x, weight) = (l.cast(x, DataType::Fp32)?, l.cast(weight, DataType::Fp32)?);
    let y = conv_of(l, x, weight, None)?;
    l.elements = Some(ElementType::Int32);
    one(l.cast(y, DataType::Int32)?)
}

/// A scale as fp32; one of a single element is a scalar.
fn scalar(l: &mut Lower<'_>, s: ValueId) -> Built {
    let s = l.cast(s, DataType::Fp32)?;
    if l.shape(s)?.iter().product::<usize>() == 1 { l.reshape(s, &[]) } else { Ok(s) }
}

/// Computes `(x - zero) · scale` in fp32; a vector of scales lies along `axis`.
pub(super) fn real(l: &mut Lower<'_>, x: usize, scale: usize, zero: usize, axis: usize) -> Built {
    let v = centered(l, x, zero, axis)?;
    let v = l.cast(v, DataType::Fp32)?;
    let s = l.x(scale)?;
    let mut s = scalar(l, s)?;
    let (shape, extents) = (l.shape(v)?, l.shape(s)?);
    if extents.len() == 1 && axis < shape.len() {
        let mut wide = vec![1; shape.len()];
        wide[axis] = extents[0];
        s = l.reshape(s, &wide)?;
    }
    l.bin("mul", v, s)
}

/// Computes `round(y / scale) + zero`, clamped to the range of the zero point's type.
pub(super) fn stored(l: &mut Lower<'_>, y: ValueId, scale: usize, zero: usize) -> Built {
    let s = l.x(scale)?;
    let s = scalar(l, s)?;
    let element = if l.has(zero) { l.element(zero)? } else { ElementType::UInt8 };
    let (low, high) = element.range().unwrap_or((0.0, 255.0));
    l.elements = Some(element);
    let scaled = l.bin("real_div", y, s)?;
    let mut y = l.un("round", scaled)?;
    if let Some(point) = l.maybe(zero)? {
        let point = scalar(l, point)?;
        y = l.bin("add", y, point)?;
    }
    let above = l.bin("maximum", y, Constant::fp32(low as f32))?;
    let inside = l.bin("minimum", above, Constant::fp32(high as f32))?;
    l.cast(inside, DataType::Int32)
}

pub(super) fn q_linear_conv(l: &mut Lower<'_>) -> Results {
    let (x, weight) = (real(l, 0, 1, 2, 1)?, real(l, 3, 4, 5, 0)?);
    let mut y = conv_of(l, x, weight, None)?;
    if let Some(bias) = l.maybe(8)? {
        let bias = l.cast(bias, DataType::Fp32)?;
        let (sx, sw) = (l.x(1)?, l.x(4)?);
        let (sx, sw) = (scalar(l, sx)?, scalar(l, sw)?);
        let scale = l.bin("mul", sx, sw)?;
        let bias = l.bin("mul", bias, scale)?;
        y = along_channels(l, "add", y, bias)?;
    }
    one(stored(l, y, 6, 7)?)
}

pub(super) fn q_linear_matmul(l: &mut Lower<'_>) -> Results {
    let (rows, columns) = (l.extents(0)?.len(), l.extents(3)?.len());
    let a = real(l, 0, 1, 2, rows.saturating_sub(2))?;
    let b = real(l, 3, 4, 5, columns.saturating_sub(1))?;
    let y = l.bin("matmul", a, b)?;
    one(stored(l, y, 6, 7)?)
}
