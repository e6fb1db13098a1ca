//! Convolutions.

use ferrane_mil::{Arg, Constant, DataType, ValueId};

use super::lower::{Built, Lower, one, unmapped};
use super::reduce::centered;

type Results = Built<Vec<Option<ValueId>>>;

/// Strides, dilations and padding of the spatial axes.
pub(super) struct Window {
    pub strides: Vec<i64>,
    pub dilations: Vec<i64>,
    /// Padding before and after each axis, interleaved as MIL expects it.
    pub pads: Vec<i64>,
}

impl Window {
    pub(super) fn read(l: &Lower<'_>, x: &[usize], kernel: &[usize]) -> Window {
        let n = kernel.len();
        let strides = l.list("strides").unwrap_or_else(|| vec![1; n]);
        let dilations = l.list("dilations").unwrap_or_else(|| vec![1; n]);
        let given = l.list("pads").unwrap_or_else(|| vec![0; 2 * n]);
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
        Window { strides, dilations, pads }
    }
}

pub(super) fn ints(values: &[i64]) -> Constant {
    Constant::int32s(&values.iter().map(|&v| v as i32).collect::<Vec<_>>())
}

fn conv_of(l: &mut Lower<'_>, x: ValueId, weight: ValueId, bias: Option<Constant>) -> Built {
    let (shape, kernel) = (l.shape(x)?, l.shape(weight)?);
    let w = Window::read(l, &shape[2..], &kernel[2..]);
    let mut args: Vec<(&str, Arg)> = vec![
        ("x", x.into()),
        ("weight", weight.into()),
        ("strides", ints(&w.strides).into()),
        ("pad_type", Constant::string("custom").into()),
        ("pad", ints(&w.pads).into()),
        ("dilations", ints(&w.dilations).into()),
        ("groups", Constant::int32(l.int("group", 1) as i32).into()),
    ];
    if let Some(bias) = bias {
        args.push(("bias", bias.into()));
    }
    Ok(l.b.op("conv", "conv", args)?)
}

pub(super) fn conv(l: &mut Lower<'_>) -> Results {
    let (x, weight) = (l.x(0)?, l.x(1)?);
    let bias = if l.has(2) { Some(l.fixed(2)?) } else { None };
    one(conv_of(l, x, weight, bias)?)
}

/// Computes the full transposed convolution, then crops the padding and fills elements beyond it
/// with zeros.
pub(super) fn conv_transpose(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let weight = l.fixed(1)?;
    let Some(kernel) = weight.ty().shape() else { return unmapped("a weight without extents") };
    let shape = l.shape(x)?;
    let n = shape.len() - 2;
    let strides = l.list("strides").unwrap_or_else(|| vec![1; n]);
    let dilations = l.list("dilations").unwrap_or_else(|| vec![1; n]);
    let extra = l.list("output_padding").unwrap_or_else(|| vec![0; n]);
    let pads = l.list("pads").unwrap_or_else(|| vec![0; 2 * n]);
    let auto = l.text("auto_pad", "NOTSET");
    let groups = l.int("group", 1);
    let mut y = l.op(
        "conv_transpose",
        [
            ("x", x.into()),
            ("weight", weight.into()),
            ("strides", ints(&strides).into()),
            ("pad_type", Constant::string("valid").into()),
            ("dilations", ints(&dilations).into()),
            ("groups", Constant::int32(groups as i32).into()),
        ],
    )?;
    let wanted = l.list("output_shape");
    let mut tail = vec![0i32; 2 * (n + 2)];
    for i in 0..n {
        let extent = shape[i + 2] as i64;
        let full = (extent - 1) * strides[i] + (kernel[i + 2] as i64 - 1) * dilations[i] + 1;
        let natural = full + extra[i];
        let out = match &wanted {
            Some(w) => Some(w[w.len() - n + i]),
            None if auto.starts_with("SAME") => Some(extent * strides[i]),
            None => None,
        };
        let (before, out) = match out {
            Some(out) => {
                let total = (natural - out).max(0);
                let small = total / 2;
                (
                    if auto == "SAME_UPPER" || wanted.is_some() && auto != "SAME_LOWER" {
                        small
                    } else {
                        total - small
                    },
                    out,
                )
            }
            None => (pads[i], natural - pads[i] - pads[i + n]),
        };
        let there = (full - before).min(out);
        y = l.slice(y, i + 2, before as usize, there as usize)?;
        tail[2 * (i + 2) + 1] = (out - there) as i32;
    }
    if tail.iter().any(|&t| t > 0) {
        let zero = l.num(y, 0.0);
        y = l.op(
            "pad",
            [
                ("x", y.into()),
                ("pad", Constant::int32s(&tail).into()),
                ("mode", Constant::string("constant").into()),
                ("constant_val", zero.into()),
            ],
        )?;
    }
    if let Some(bias) = l.maybe(2)? {
        let mut wide = vec![1; n + 2];
        wide[1] = l.shape(bias)?[0];
        let bias = l.reshape(bias, &wide)?;
        y = l.bin("add", y, bias)?;
    }
    one(y)
}

/// 8-bit integers and the sums of their products here are exact in fp32.
pub(super) fn conv_integer(l: &mut Lower<'_>) -> Results {
    let (x, weight) = (centered(l, 0, 2, 1)?, centered(l, 1, 3, 0)?);
    let (x, weight) = (l.cast(x, DataType::Fp32)?, l.cast(weight, DataType::Fp32)?);
    let y = conv_of(l, x, weight, None)?;
    one(l.cast(y, DataType::Int32)?)
}

/// Computes `(x - zero) · scale` in fp32; a vector of scales lies along `axis`.
fn real(l: &mut Lower<'_>, x: usize, scale: usize, zero: usize, axis: usize) -> Built {
    let v = centered(l, x, zero, axis)?;
    let v = l.cast(v, DataType::Fp32)?;
    let mut s = l.x(scale)?;
    s = l.cast(s, DataType::Fp32)?;
    let (shape, extents) = (l.shape(v)?, l.shape(s)?);
    if extents.len() == 1 && extents[0] > 1 {
        let mut wide = vec![1; shape.len()];
        wide[axis] = extents[0];
        s = l.reshape(s, &wide)?;
    }
    l.bin("mul", v, s)
}

/// Computes `round(y / scale) + zero`, clamped to the range of the zero point's type.
fn stored(l: &mut Lower<'_>, y: ValueId, scale: usize, zero: usize) -> Built {
    let s = l.x(scale)?;
    let s = l.cast(s, DataType::Fp32)?;
    let (bits, signed) = l.known(zero)?.element.integer().unwrap_or((8, false));
    let scaled = l.bin("real_div", y, s)?;
    let rounded = l.un("round", scaled)?;
    let point = l.x(zero)?;
    let point = l.cast(point, DataType::Fp32)?;
    let moved = l.bin("add", rounded, point)?;
    let (low, high) = super::quantize::range(bits, signed);
    let above = l.bin("maximum", moved, Constant::fp32(low as f32))?;
    let inside = l.bin("minimum", above, Constant::fp32(high as f32))?;
    l.cast(inside, DataType::Int32)
}

pub(super) fn q_linear_conv(l: &mut Lower<'_>) -> Results {
    let (x, weight) = (real(l, 0, 1, 2, 1)?, real(l, 3, 4, 5, 0)?);
    let mut y = conv_of(l, x, weight, None)?;
    if let Some(bias) = l.maybe(8)? {
        let bias = l.cast(bias, DataType::Fp32)?;
        let (sx, sw) = (l.x(1)?, l.x(4)?);
        let scale = l.bin("mul", sx, sw)?;
        let bias = l.bin("mul", bias, scale)?;
        let mut wide = vec![1; l.shape(y)?.len()];
        wide[1] = l.shape(bias)?[0];
        let bias = l.reshape(bias, &wide)?;
        y = l.bin("add", y, bias)?;
    }
    one(stored(l, y, 6, 7)?)
}

pub(super) fn q_linear_matmul(l: &mut Lower<'_>) -> Results {
    let (rows, columns) = (l.known(0)?.shape.len(), l.known(3)?.shape.len());
    let a = real(l, 0, 1, 2, rows.saturating_sub(2))?;
    let b = real(l, 3, 4, 5, columns.saturating_sub(1))?;
    let y = l.bin("matmul", a, b)?;
    one(stored(l, y, 6, 7)?)
}
