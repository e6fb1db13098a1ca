//! Pooling: MIL's ops where they compute the same, else ops over each kernel position.

use ferrane_mil::{Arg, Constant, ValueId};

use super::conv::{Window, ints};
use super::lower::{Built, Lower, one, unmapped};

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
    if l.wants(1) {
        return unmapped("MIL's max_pool gives no indices");
    }
    let x = l.x(0)?;
    if !l.is_float(x) {
        let wide = l.cast(x, ferrane_mil::DataType::Fp32)?;
        let y = pooled(l, wide, form)?;
        return one(l.cast(y, ferrane_mil::DataType::Int32)?);
    }
    one(pooled(l, x, form)?)
}

fn pooled(l: &mut Lower<'_>, x: ValueId, form: Form) -> Built {
    let shape = l.shape(x)?;
    let kernel: Vec<usize> = l.list("kernel_shape").unwrap_or_default().iter().map(|&n| n as usize).collect();
    let w = Window::read(l, &shape[2..], &kernel);
    let ceil = l.int("ceil_mode", 0) != 0;
    let inclusive = l.int("count_include_pad", 0) != 0;
    let counts = outputs(&w, &shape[2..], &kernel, ceil);
    let p = l.int("p", 2);
    let plain = w.dilations.iter().all(|&d| d == 1) && !ceil && (form != Form::Lp || p == 2);
    if plain {
        let kernel: Vec<i64> = kernel.iter().map(|&k| k as i64).collect();
        let mut args: Vec<(&str, Arg)> = vec![
            ("x", x.into()),
            ("kernel_sizes", ints(&kernel).into()),
            ("strides", ints(&w.strides).into()),
            ("pad_type", Constant::string("custom").into()),
            ("pad", ints(&w.pads).into()),
        ];
        if form == Form::Average {
            args.push(("exclude_padding_from_average", Constant::bool(!inclusive).into()));
        }
        let op = match form {
            Form::Max => "max_pool",
            Form::Average => "avg_pool",
            Form::Lp => "l2_pool",
        };
        return Ok(l.b.op(op, "pool", args)?);
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
    let shape = l.shape(x)?;
    let rank = shape.len();
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
    let mut total: Option<ValueId> = None;
    for place in 0..kernel.iter().product::<usize>() {
        let (mut rest, mut begin, mut end, mut stride) = (place, vec![0i32; rank], vec![0i32; rank], vec![1i32; rank]);
        (end[0], end[1]) = (shape[0] as i32, shape[1] as i32);
        for i in (0..kernel.len()).rev() {
            let from = (rest % kernel[i]) as i64 * w.dilations[i];
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
        total = Some(match total {
            Some(t) => l.bin(op, t, part)?,
            None => part,
        });
    }
    total.map_or_else(|| unmapped("an empty kernel"), Ok)
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
