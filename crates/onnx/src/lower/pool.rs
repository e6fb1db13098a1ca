//! Pooling: MIL's ops where they compute the same, else ops over each kernel position.

use ferrane_mil::emit::{Emit, int32s};
use ferrane_mil::{Arg, Constant, DataType, ValueId};

use super::conv::Window;
use super::state::{Built, Lower, Stop, one, unmapped};

type Results = Built<Vec<Option<ValueId>>>;

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Max,
    Average,
    Lp,
}

/// The output extents. A window that begins in the padding after the input is dropped.
fn outputs(w: &Window, x: &[usize], kernel: &[usize], ceil: bool) -> Vec<usize> {
    (0..kernel.len())
        .map(|i| {
            let (extent, stride) = (x[i] as i64, w.strides[i]);
            let reach = (kernel[i] as i64 - 1) * w.dilations[i] + 1;
            let free = extent + w.pads[2 * i] + w.pads[2 * i + 1] - reach;
            let mut steps = if ceil { (free + stride - 1) / stride } else { free.div_euclid(stride) };
            if ceil && steps * stride >= extent + w.pads[2 * i] {
                steps -= 1;
            }
            (steps + 1).max(0) as usize
        })
        .collect()
}

fn pool(l: &mut Lower<'_>, form: Form) -> Results {
    let x = l.x(0)?;
    if l.wants(1) {
        return with_indices(l, x);
    }
    if !l.is_float(x) {
        let wide = l.cast(x, DataType::Fp32)?;
        let y = pooled(l, wide, form)?;
        return one(l.cast(y, DataType::Int32)?);
    }
    one(pooled(l, x, form)?)
}

fn pooled(l: &mut Lower<'_>, x: ValueId, form: Form) -> Built {
    let shape = l.ranked(x, 3)?;
    let kernel: Vec<usize> = l.counts("kernel_shape", shape.len() - 2, 0, 1)?.iter().map(|&n| n as usize).collect();
    let w = Window::read(l, &shape[2..], &kernel)?;
    let ceil = l.int("ceil_mode", 0) != 0;
    let inclusive = l.int("count_include_pad", 0) != 0;
    let counts = outputs(&w, &shape[2..], &kernel, ceil);
    let p = l.number("p", 2, 1)? as i64;
    let plain = w.dilations.iter().all(|&d| d == 1) && !ceil && (form != Form::Lp || p == 2);
    if plain {
        let kernel: Vec<i64> = kernel.iter().map(|&k| k as i64).collect();
        let mut args: Vec<(&str, Arg)> = vec![
            ("x", x.into()),
            ("kernel_sizes", int32s(&kernel).into()),
            ("strides", int32s(&w.strides).into()),
            ("pad_type", Constant::string("custom").into()),
            ("pad", int32s(&w.pads).into()),
        ];
        if form == Form::Average {
            args.push(("exclude_padding_from_average", Constant::bool(!inclusive).into()));
        }
        let op = match form {
            Form::Max => "max_pool",
            Form::Average => "avg_pool",
            Form::Lp => "l2_pool",
        };
        return l.build(op, args);
    }
    let outside = if form == Form::Max { f32::NEG_INFINITY } else { 0.0 };
    let powered = match form {
        Form::Lp => {
            let size = l.un("abs", x)?;
            l.bin("pow", size, l.num(x, p as f32))?
        }
        _ => x,
    };
    let total = windows(l, powered, &w, &kernel, &counts, outside, if form == Form::Max { "maximum" } else { "add" })?;
    match form {
        Form::Max => Ok(total),
        Form::Lp => l.bin("pow", total, l.num(x, 1.0 / p as f32)),
        Form::Average => {
            // The number of elements in each window: of the input alone, or including explicit
            // padding.
            l.table(&counts)?;
            let mut divisors = vec![1.0f64];
            for i in 0..kernel.len() {
                let (before, after) = (w.pads[2 * i], w.pads[2 * i + 1]);
                let (low, high) =
                    if inclusive { (-before, shape[i + 2] as i64 + after) } else { (0, shape[i + 2] as i64) };
                let along: Vec<f64> = (0..counts[i] as i64)
                    .map(|o| {
                        let at = |k: usize| o * w.strides[i] - before + k as i64 * w.dilations[i];
                        (0..kernel[i]).filter(|&k| (low..high).contains(&at(k))).count() as f64
                    })
                    .collect();
                divisors = divisors.iter().flat_map(|d| along.iter().map(move |a| d * a)).collect();
            }
            let mut wide = vec![1, 1];
            wide.extend(&counts);
            let divisors = l.tensor(x, &wide, &divisors)?;
            l.bin("real_div", total, divisors)
        }
    }
}

/// The largest element of each window and its place in x: of each kernel position in turn, the
/// larger element wins.
fn with_indices(l: &mut Lower<'_>, x: ValueId) -> Results {
    let shape = l.ranked(x, 3)?;
    let kernel: Vec<usize> = l.counts("kernel_shape", shape.len() - 2, 0, 1)?.iter().map(|&n| n as usize).collect();
    let w = Window::read(l, &shape[2..], &kernel)?;
    let counts = outputs(&w, &shape[2..], &kernel, l.int("ceil_mode", 0) != 0);
    let dtype = l.dtype(x);
    let float = if dtype.is_float() { x } else { l.cast(x, DataType::Fp32)? };
    let parts = parts(l, float, &w, &kernel, &counts, f32::NEG_INFINITY)?;
    // A place in x is linear in the window and in the kernel position.
    let by_column = l.int("storage_order", 0) != 0;
    let n = kernel.len();
    let mut strides = vec![1i64; n];
    let order: Vec<usize> = if by_column { (0..n).collect() } else { (0..n).rev().collect() };
    for pair in order.windows(2) {
        strides[pair[1]] = strides[pair[0]] * shape[pair[0] + 2] as i64;
    }
    let image: i64 = shape[2..].iter().product::<usize>() as i64;
    let mut best: Option<(ValueId, ValueId)> = None;
    for (place, part) in parts {
        let delta: i64 = (0..n).map(|i| place[i] as i64 * w.dilations[i] * strides[i]).sum();
        let here = l.bin("equal", part, part)?;
        let here = l.cast(here, DataType::Int32)?;
        let here = l.bin("mul", here, Constant::int32(delta as i32))?;
        best = Some(match best {
            None => (part, here),
            Some((value, at)) => {
                let larger = l.bin("greater", part, value)?;
                (l.bin("maximum", part, value)?, l.select(larger, here, at)?)
            }
        });
    }
    let Some((value, mut at)) = best else { return unmapped("an empty kernel") };
    let channels: Vec<i64> = (0..(shape[0] * shape[1]) as i64).map(|i| i * image).collect();
    let mut wide = vec![shape[0], shape[1]];
    wide.resize(n + 2, 1);
    let base = l.indices(&wide, &channels)?;
    at = l.bin("add", at, base)?;
    for i in 0..n {
        let along: Vec<i64> = (0..counts[i] as i64).map(|o| (o * w.strides[i] - w.pads[2 * i]) * strides[i]).collect();
        let mut wide = vec![1; n + 2];
        wide[i + 2] = counts[i];
        let offset = l.indices(&wide, &along)?;
        at = l.bin("add", at, offset)?;
    }
    Ok(vec![Some(l.cast(value, dtype)?), Some(at)])
}

/// Combines, for each kernel position, the elements at that position of every window.
fn windows(
    l: &mut Lower<'_>,
    x: ValueId,
    w: &Window,
    kernel: &[usize],
    counts: &[usize],
    outside: f32,
    op: &str,
) -> Built {
    let mut total: Option<ValueId> = None;
    for (_, part) in parts(l, x, w, kernel, counts, outside)? {
        total = Some(match total {
            Some(t) => l.bin(op, t, part)?,
            None => part,
        });
    }
    total.map_or_else(|| unmapped("an empty kernel"), Ok)
}

/// For each kernel position, the elements at that position of every window.
fn parts(
    l: &mut Lower<'_>,
    x: ValueId,
    w: &Window,
    kernel: &[usize],
    counts: &[usize],
    outside: f32,
) -> Built<Vec<(Vec<usize>, ValueId)>> {
    let shape = l.shape(x)?;
    let rank = shape.len();
    l.spend(kernel.iter().fold(2, |n: usize, &k| n.saturating_mul(k)))?;
    if counts.contains(&0) {
        return Err(Stop::Rejected(format!("windows of {kernel:?} do not fit {shape:?}")));
    }
    let mut pad = vec![0i32; 4];
    for i in 0..kernel.len() {
        let reach = (kernel[i] as i64 - 1) * w.dilations[i] + 1;
        let needed = (counts[i] as i64 - 1) * w.strides[i] + reach;
        let after = (needed - shape[i + 2] as i64 - w.pads[2 * i]).max(0);
        pad.extend([w.pads[2 * i] as i32, after as i32]);
    }
    let value = l.num(x, outside);
    let padded = l.op(
        "pad",
        [
            ("x", x.into()),
            ("pad", Constant::int32s(&pad).into()),
            ("mode", Constant::string("constant").into()),
            ("constant_val", value.into()),
        ],
    )?;
    let mut found = Vec::new();
    for place in 0..kernel.iter().product::<usize>() {
        let (mut rest, mut begin, mut end, mut stride) = (place, vec![0i32; rank], vec![0i32; rank], vec![1i32; rank]);
        (end[0], end[1]) = (shape[0] as i32, shape[1] as i32);
        let mut at = vec![0; kernel.len()];
        for i in (0..kernel.len()).rev() {
            at[i] = rest % kernel[i];
            let from = at[i] as i64 * w.dilations[i];
            rest /= kernel[i];
            begin[i + 2] = from as i32;
            end[i + 2] = (from + (counts[i] as i64 - 1) * w.strides[i] + 1) as i32;
            stride[i + 2] = w.strides[i] as i32;
        }
        let part = l.op(
            "slice_by_index",
            [
                ("x", padded.into()),
                ("begin", Constant::int32s(&begin).into()),
                ("end", Constant::int32s(&end).into()),
                ("stride", Constant::int32s(&stride).into()),
            ],
        )?;
        found.push((at, part));
    }
    Ok(found)
}

pub(super) fn max_pool(l: &mut Lower<'_>) -> Results {
    pool(l, Form::Max)
}

pub(super) fn average_pool(l: &mut Lower<'_>) -> Results {
    pool(l, Form::Average)
}

pub(super) fn lp_pool(l: &mut Lower<'_>) -> Results {
    pool(l, Form::Lp)
}

fn global(l: &mut Lower<'_>, op: &str) -> Results {
    let x = l.x(0)?;
    let axes: Vec<usize> = (2..l.shape(x)?.len()).collect();
    one(l.reduce(op, x, &axes, true)?)
}

pub(super) fn global_max(l: &mut Lower<'_>) -> Results {
    global(l, "reduce_max")
}

pub(super) fn global_average(l: &mut Lower<'_>) -> Results {
    global(l, "reduce_mean")
}

pub(super) fn global_lp(l: &mut Lower<'_>) -> Results {
    match l.int("p", 2) {
        1 => global(l, "reduce_l1_norm"),
        2 => global(l, "reduce_l2_norm"),
        _ => unmapped("norms 1 and 2 only"),
    }
}
