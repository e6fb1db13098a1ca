//! Convolutions and pools. One spatial axis becomes two, of which the first has extent 1.

use super::elementwise::Results;
use super::state::{Built, Extents, Raise, rejected, unmapped};
use crate::bytecode::ValueId;
use crate::dialect::ElementType::{self, Bool, UInt32};

/// The windows of a convolution or pool along each spatial axis of an op.
struct Windows {
    kernel: Vec<i64>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    /// Margins that the op states, and those up to the end of the last window.
    stated: Vec<u64>,
    pads: Vec<u64>,
}

impl Windows {
    /// Windows of `kernel` over the spatial axes of x, as many as the result has.
    fn new(r: &Raise<'_>, x: ValueId, kernel: Vec<i64>) -> Built<Windows> {
        let n = kernel.len();
        let (from, to) = (r.extents(x)?, r.result(0)?.shape);
        if from.len() != n + 2 || to.len() != n + 2 || kernel.iter().any(|&k| k < 1) {
            return rejected(format!("windows of {kernel:?} over {from:?}"));
        }
        let strides = r.counts("strides", n, 1, 1)?;
        let dilations = if r.has("dilations") { r.counts("dilations", n, 1, 1)? } else { vec![1; n] };
        let form = r.text("pad_type")?;
        let given = if form == "custom" { r.counts("pad", 2 * n, 0, 0)? } else { vec![0; 2 * n] };
        let mut stated: Vec<u64> = given.iter().map(|&p| p as u64).collect();
        let ceil = r.def.param("ceil_mode").is_some() && r.flag("ceil_mode")?;
        let mut pads = stated.clone();
        if form.starts_with("same") || ceil {
            for i in 0..n {
                let (Some(from), Some(to)) = (from[i + 2], to[i + 2]) else {
                    return unmapped("its padding depends on extents that are known only when the model runs");
                };
                let reach = (kernel[i] - 1).saturating_mul(dilations[i]).saturating_add(1);
                let span = (to as i64 - 1).saturating_mul(strides[i]).saturating_add(reach);
                let all = span.saturating_sub(from as i64).max(0) as u64;
                if ceil {
                    pads[2 * i + 1] = all.saturating_sub(pads[2 * i]).max(pads[2 * i + 1]);
                } else {
                    let before = if form == "same_lower" { all.div_ceil(2) } else { all / 2 };
                    (pads[2 * i], pads[2 * i + 1]) = (before, all - before);
                    stated[2 * i..2 * i + 2].copy_from_slice(&pads[2 * i..2 * i + 2]);
                }
            }
        }
        Ok(Windows { kernel, strides, dilations, stated, pads })
    }

    /// x with its margins.
    fn padded(&self, r: &mut Raise<'_>, x: ValueId, value: f64) -> Built {
        let pads: Vec<u64> = [0; 4].into_iter().chain(self.pads.iter().copied()).collect();
        r.padded(x, &pads, value)
    }

    /// Numbers for each spatial axis of the operation, which has two or more.
    fn each(&self, r: &mut Raise<'_>, numbers: &[i64], least: i64) -> Built {
        match numbers {
            [one] => r.vector(UInt32, &[least, *one]),
            all => r.vector(UInt32, all),
        }
    }
}

/// x with a second spatial axis, if it has a single one.
fn deepened(r: &mut Raise<'_>, x: ValueId) -> Built {
    if r.rank(x)? == 3 { r.expand(x, &[2]) } else { Ok(x) }
}

/// The operation for the number of spatial axes, and its result.
fn spatial(
    r: &mut Raise<'_>,
    names: [&str; 2],
    operands: &[ValueId],
    shape: &[Option<u64>],
    element: ElementType,
) -> Built {
    let name = if shape.len() == 5 { names[1] } else { names[0] };
    if shape.len() != 3 {
        return Ok(r.op(name, operands, shape.to_vec(), element));
    }
    let wide: Extents = vec![shape[0], shape[1], Some(1), shape[2]];
    let y = r.op(name, operands, wide, element);
    r.shrink(y, &[2])
}

/// y with the bias of each channel, if there is one.
fn biased(r: &mut Raise<'_>, y: ValueId) -> Results {
    if !r.has("bias") {
        return Ok(vec![y]);
    }
    let (bias, rank) = (r.as_type_of("bias", y)?, r.rank(y)?);
    let bias = r.along(bias, 1, rank)?;
    Ok(vec![r.bin("add", y, bias)?])
}

/// The extents of a filter over its spatial axes.
fn kernel_of(r: &Raise<'_>, weight: ValueId) -> Built<Vec<i64>> {
    let shape = r.shape(weight)?;
    match shape.len() {
        3..=5 => Ok(shape[2..].iter().map(|&n| n.min(1 << 31) as i64).collect()),
        _ => rejected(format!("a filter of extents {shape:?}")),
    }
}

pub(super) fn conv(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let weight = r.as_type_of("weight", x)?;
    let w = Windows::new(r, x, kernel_of(r, weight)?)?;
    let x = w.padded(r, x, 0.0)?;
    let (x, weight) = (deepened(r, x)?, deepened(r, weight)?);
    let (strides, dilations) = (w.each(r, &w.strides, 1)?, w.each(r, &w.dilations, 1)?);
    let groups = r.scalar(UInt32, r.int("groups")? as f64)?;
    let (shape, element) = (r.result(0)?.shape, r.element(x)?);
    let names = ["primitive.conv2d_v1", "primitive.conv3d_v1"];
    let y = spatial(r, names, &[x, weight, strides, dilations, groups], &shape, element)?;
    biased(r, y)
}

/// The full result, of which margins are cut off, and which zeros continue.
pub(super) fn conv_transpose(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let weight = r.as_type_of("weight", x)?;
    let kernel = kernel_of(r, weight)?;
    let n = kernel.len();
    let (from, to) = (r.shape(x)?, r.result(0)?.shape);
    if from.len() != n + 2 || to.len() != n + 2 {
        return rejected(format!("a filter of {kernel:?} over {from:?}"));
    }
    let (strides, dilations) = (r.counts("strides", n, 1, 1)?, r.counts("dilations", n, 1, 1)?);
    let form = r.text("pad_type")?;
    let stated = if form == "custom" { r.counts("pad", 2 * n, 0, 0)? } else { vec![0; 2 * n] };
    let (mut full, mut cut) = (vec![to[0], to[1]], Vec::new());
    for i in 0..n {
        let (from, Some(to)) = (from[i + 2] as i64, to[i + 2]) else {
            return unmapped("its result has an extent that is known only when the model runs");
        };
        let reach = (kernel[i] - 1).saturating_mul(dilations[i]).saturating_add(1);
        let natural = (from - 1).saturating_mul(strides[i]).saturating_add(reach);
        let before = match form.as_str() {
            "same" => natural.saturating_sub(to as i64).max(0) / 2,
            _ => stated[2 * i],
        };
        if natural <= before || from < 1 {
            return rejected(format!("nothing is left along axis {}", i + 2));
        }
        full.push(Some(natural as u64));
        cut.push((before as u64, to.min((natural - before) as u64), to));
    }
    let (wide, weight) = (deepened(r, x)?, deepened(r, weight)?);
    let w = Windows { kernel, strides, dilations, stated: Vec::new(), pads: Vec::new() };
    let none = vec![0; n];
    let (strides, dilations, none) = (w.each(r, &w.strides, 1)?, w.each(r, &w.dilations, 1)?, w.each(r, &none, 0)?);
    let groups = r.scalar(UInt32, r.int("groups")? as f64)?;
    let element = r.element(x)?;
    let names = ["primitive.conv_transpose2d_v1", "primitive.conv_transpose3d_v1"];
    let mut y = spatial(r, names, &[wide, weight, strides, none, dilations, none, groups], &full, element)?;
    let mut tail = vec![0; 2 * (n + 2)];
    for (i, &(before, there, wanted)) in cut.iter().enumerate() {
        y = r.part(y, i + 2, before, there)?;
        tail[2 * (i + 2) + 1] = wanted - there;
    }
    let y = r.padded(y, &tail, 0.0)?;
    biased(r, y)
}

pub(super) fn max_pool(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let w = Windows::new(r, x, r.ints("kernel_sizes")?)?;
    let x = w.padded(r, x, f64::NEG_INFINITY)?;
    let (shape, element) = (r.result(0)?.shape, r.element(x)?);
    let x = deepened(r, x)?;
    let operands =
        [x, w.each(r, &w.kernel, 1)?, w.each(r, &w.strides, 1)?, w.each(r, &w.dilations, 1)?, r.scalar(Bool, 0.0)?];
    let names = ["primitive.max_pool_2d_v1", "primitive.max_pool_3d_v1"];
    Ok(vec![spatial(r, names, &operands, &shape, element)?])
}

/// The sum of each window.
fn sums(r: &mut Raise<'_>, x: ValueId, w: &Windows) -> Built {
    let x = w.padded(r, x, 0.0)?;
    let (shape, element) = (r.result(0)?.shape, r.element(x)?);
    let x = deepened(r, x)?;
    let operands = [x, w.each(r, &w.kernel, 1)?, w.each(r, &w.strides, 1)?, w.each(r, &w.dilations, 1)?];
    spatial(r, ["primitive.sum_pool_2d_v1", "primitive.sum_pool_3d_v1"], &operands, &shape, element)
}

/// How many elements each window along an axis of `extent` counts: those within the stated margins,
/// or those of x alone.
fn counted(w: &Windows, i: usize, extent: u64, out: u64, alone: bool) -> Vec<u64> {
    let (low, high) = match alone {
        true => (0, extent as i64),
        false => (-(w.stated[2 * i] as i64), (extent + w.stated[2 * i + 1]) as i64),
    };
    let first = |at: u64| (at as i64).saturating_mul(w.strides[i]) - w.pads[2 * i] as i64;
    let inside = |at: u64| (first(at).saturating_add(w.kernel[i]).min(high) - first(at).max(low)).max(1) as u64;
    (0..out).map(inside).collect()
}

pub(super) fn avg_pool(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let w = Windows::new(r, x, r.ints("kernel_sizes")?)?;
    let sum = sums(r, x, &w)?;
    let alone = r.flag("exclude_padding_from_average")?;
    let size: i64 = w.kernel.iter().fold(1, |n, &k| n.saturating_mul(k));
    if w.pads.iter().all(|&p| p == 0) || !alone && w.pads == w.stated {
        return Ok(vec![r.with("mul", sum, 1.0 / size as f64)?]);
    }
    let (from, to) = (r.shape(x)?, r.shape(sum)?);
    r.table(&to[2..])?;
    let mut counts = vec![1.0];
    for i in 0..w.kernel.len() {
        let axis = counted(&w, i, from[i + 2], to[i + 2], alone);
        counts = counts.iter().flat_map(|n| axis.iter().map(move |&m| n * m as f64)).collect();
    }
    let factors: Vec<f64> = counts.iter().map(|n| 1.0 / n).collect();
    let element = r.element(sum)?;
    let factors = r.numbers(element, &to[2..], &factors)?;
    Ok(vec![r.bin("mul", sum, factors)?])
}

pub(super) fn l2_pool(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let element = r.element(x)?;
    let wide = r.wide(x)?;
    let square = r.bin("mul", wide, wide)?;
    let w = Windows::new(r, square, r.ints("kernel_sizes")?)?;
    let sum = sums(r, square, &w)?;
    let root = r.un("primitive.sqrt_v1", sum)?;
    Ok(vec![r.cast(root, element)?])
}
