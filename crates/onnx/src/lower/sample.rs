//! Samples of images and volumes at computed coordinates.
//!
//! MIL's `resample` is used where it interpolates as the operator does. Otherwise each axis gives
//! *taps*, positions with weights, and the elements at all combinations of them are gathered and
//! summed.

use ferrane_mil::emit::Emit;
use ferrane_mil::{Constant, DataType, Transpose, ValueId};

use super::conv::{Window, along_channels};
use super::state::{Built, Lower, Stop, one, unmapped};

type Results = Built<Vec<Option<ValueId>>>;

/// How values between elements are computed.
#[derive(Clone, Copy, PartialEq)]
enum Interpolation {
    Nearest,
    Linear,
    Cubic,
}

/// What lies outside of the elements.
#[derive(Clone, Copy, PartialEq)]
enum Outside {
    Zeros,
    Border,
    Reflection,
}

/// An axis that is sampled.
struct SampledAxis {
    extent: usize,
    outside: Outside,
    /// Coordinates of the ends: the centers of the edge elements, or their outer edges.
    ends: (f64, f64),
}

/// Elements of one axis that are summed: positions as fp32 whole numbers `[N, P]`, and their
/// weights of the same shape; `None` for 1.
type Tap = (ValueId, Option<ValueId>);

/// The most elements of an axis whose positions are computed: fp32 holds whole numbers up to this.
const MOST_POSITIONS: usize = 1 << 24;

/// The coefficient of the cubic kernel, as in PyTorch's `grid_sample`.
const CUBIC: f32 = -0.75;

impl SampledAxis {
    fn new(extent: usize, outside: Outside, aligned: bool) -> SampledAxis {
        let n = extent as f64;
        SampledAxis { extent, outside, ends: if aligned { (0.0, n - 1.0) } else { (-0.5, n - 0.5) } }
    }

    fn clamped(&self, l: &mut Lower<'_>, v: ValueId) -> Built {
        let least = l.bin("maximum", v, l.num(v, 0.0))?;
        l.bin("minimum", least, l.num(v, self.extent as f32 - 1.0))
    }

    /// True where `from <= v <= to`.
    fn within(l: &mut Lower<'_>, v: ValueId, (from, to): (f64, f64)) -> Built {
        let least = l.bin("greater_equal", v, l.num(v, from as f32))?;
        let most = l.bin("less_equal", v, l.num(v, to as f32))?;
        l.bin("logical_and", least, most)
    }

    /// Reflects at the ends until the result lies between them: a triangle wave.
    fn reflected(&self, l: &mut Lower<'_>, v: ValueId) -> Built {
        let (from, to) = self.ends;
        let range = to - from;
        if range <= 0.0 {
            return l.bin("mul", v, l.num(v, 0.0));
        }
        let distance = l.bin("sub", v, l.num(v, from as f32))?;
        let distance = l.un("abs", distance)?;
        let turns = l.bin("mul", distance, l.num(v, (0.5 / range) as f32))?;
        let turns = l.un("floor", turns)?;
        let turns = l.bin("mul", turns, l.num(v, (2.0 * range) as f32))?;
        let rest = l.bin("sub", distance, turns)?;
        let back = l.bin("sub", l.num(v, (2.0 * range) as f32), rest)?;
        let rest = l.bin("minimum", rest, back)?;
        l.bin("add", rest, l.num(v, from as f32))
    }

    /// The taps at the coordinates `v`, in elements. Each tap is moved into the axis by itself, as
    /// PyTorch and ONNX Runtime do: where `v` is outside, a cubic kernel still weighs elements
    /// inside.
    fn taps(&self, l: &mut Lower<'_>, v: ValueId, interpolation: Interpolation) -> Built<Vec<Tap>> {
        let v = if interpolation == Interpolation::Nearest { l.un("round", v)? } else { v };
        let (base, steps): (ValueId, &[f32]) = match interpolation {
            Interpolation::Nearest => (v, &[0.0]),
            Interpolation::Linear => (l.un("floor", v)?, &[0.0, 1.0]),
            Interpolation::Cubic => (l.un("floor", v)?, &[-1.0, 0.0, 1.0, 2.0]),
        };
        let mut taps = Vec::with_capacity(steps.len());
        for &step in steps {
            let place = if step == 0.0 { base } else { l.bin("add", base, l.num(v, step))? };
            let weight = match interpolation {
                Interpolation::Nearest => None,
                _ => {
                    let distance = l.bin("sub", v, place)?;
                    let distance = l.un("abs", distance)?;
                    Some(match interpolation {
                        Interpolation::Linear => l.bin("sub", l.num(v, 1.0), distance)?,
                        _ => cubic(l, distance, step == 0.0 || step == 1.0)?,
                    })
                }
            };
            taps.push(self.tap(l, place, weight)?);
        }
        Ok(taps)
    }

    /// The tap with a position inside of the axis.
    fn tap(&self, l: &mut Lower<'_>, place: ValueId, weight: Option<ValueId>) -> Built<Tap> {
        let (place, weight) = match self.outside {
            Outside::Zeros => {
                let inside = SampledAxis::within(l, place, (0.0, self.extent as f64 - 1.0))?;
                let inside = l.cast(inside, DataType::Fp32)?;
                let weight = match weight {
                    Some(weight) => l.bin("mul", weight, inside)?,
                    None => inside,
                };
                (place, Some(weight))
            }
            Outside::Border => (place, weight),
            Outside::Reflection => (self.reflected(l, place)?, weight),
        };
        Ok((self.clamped(l, place)?, weight))
    }
}

/// The cubic convolution kernel at a distance from 0 to 1 (`near`) or from 1 to 2.
fn cubic(l: &mut Lower<'_>, x: ValueId, near: bool) -> Built {
    // Coefficients of x³, x², x and 1.
    let a = CUBIC;
    let polynomial = if near { [a + 2.0, -(a + 3.0), 0.0, 1.0] } else { [a, -5.0 * a, 8.0 * a, -4.0 * a] };
    let mut sum = l.bin("mul", x, l.num(x, polynomial[0]))?;
    for (i, &coefficient) in polynomial.iter().enumerate().skip(1) {
        sum = l.bin("add", sum, l.num(x, coefficient))?;
        if i < 3 {
            sum = l.bin("mul", sum, x)?;
        }
    }
    Ok(sum)
}

/// The coordinate in elements of one from -1 to 1, with the roundings of the reference.
fn denormalized(l: &mut Lower<'_>, v: ValueId, extent: usize, aligned: bool) -> Built {
    let v = l.bin("add", v, l.num(v, 1.0))?;
    if aligned {
        return l.bin("mul", v, l.num(v, (extent as f32 - 1.0) / 2.0));
    }
    let v = l.bin("mul", v, l.num(v, extent as f32))?;
    let v = l.bin("sub", v, l.num(v, 1.0))?;
    l.bin("mul", v, l.num(v, 0.5))
}

/// x `[N, C, …]` at points given by the taps of each spatial axis, `[N, C, P]`.
fn gathered(l: &mut Lower<'_>, x: ValueId, axes: &[(usize, Vec<Tap>)]) -> Built {
    let shape = l.ranked(x, 3)?;
    let (batch, channels) = (shape[0], shape[1]);
    let size: usize = shape[2..].iter().product();
    if batch * size > i32::MAX as usize {
        return unmapped(format!("the elements of images of shape {shape:?} have no positions of type int32"));
    }
    // Every combination of taps: its position in the image as int32, and its weight.
    let mut all: Vec<(Option<ValueId>, Option<ValueId>)> = vec![(None, None)];
    for (extent, taps) in axes {
        let mut next = Vec::with_capacity(all.len() * taps.len());
        for &(place, weight) in &all {
            for &(tap, factor) in taps {
                let tap = l.cast(tap, DataType::Int32)?;
                let place = match place {
                    Some(place) => {
                        let rows = l.bin("mul", place, Constant::int32(*extent as i32))?;
                        l.bin("add", rows, tap)?
                    }
                    None => tap,
                };
                let weight = match (weight, factor) {
                    (Some(a), Some(b)) => Some(l.bin("mul", a, b)?),
                    (a, b) => a.or(b),
                };
                next.push((Some(place), weight));
            }
        }
        all = next;
    }
    let places: Vec<ValueId> = all.iter().filter_map(|(place, _)| *place).collect();
    let [first, ..] = places[..] else { return Err(Stop::Rejected("an image without axes".into())) };
    let (points, taps) = (l.ranked(first, 2)?[1], places.len());
    let places = l.concat(&places, 1)?;
    // Rows of all images in one list: `gather` has batches only since iOS 17.
    l.table(&[batch])?;
    let starts: Vec<i64> = (0..batch).map(|n| (n * size) as i64).collect();
    let starts = l.indices(&[batch, 1], &starts)?;
    let places = l.bin("add", places, starts)?;
    let rows = l.reshape(x, &[batch, channels, size])?;
    let rows = l.transpose(rows, &[0, 2, 1])?;
    let rows = l.reshape(rows, &[batch * size, channels])?;
    let mut y = l.b.gather(&l.label, rows, places, 0)?;
    let weights: Vec<ValueId> = all.iter().filter_map(|(_, weight)| *weight).collect();
    if !weights.is_empty() {
        let weights = l.concat(&weights, 1)?;
        let weights = l.reshape(weights, &[batch, taps * points, 1])?;
        let weights = l.cast(weights, l.dtype(x))?;
        y = l.bin("mul", y, weights)?;
    }
    if taps > 1 {
        y = l.reshape(y, &[batch, taps, points, channels])?;
        y = l.reduce("reduce_sum", y, &[1], false)?;
    }
    l.transpose(y, &[0, 2, 1])
}

pub(super) fn grid_sample(l: &mut Lower<'_>) -> Results {
    let (x, grid) = (l.x(0)?, l.x(1)?);
    let shape = l.ranked(x, 3)?;
    let points = l.ranked(grid, 3)?;
    let n = shape.len() - 2;
    if points.len() != shape.len() || points[n + 1] != n || points[0] != shape[0] || shape.contains(&0) {
        return Err(Stop::Rejected(format!("coordinates of shape {points:?} for images of shape {shape:?}")));
    }
    let interpolation = match l.text("mode", "linear") {
        "linear" | "bilinear" => Interpolation::Linear,
        "nearest" => Interpolation::Nearest,
        "cubic" | "bicubic" => Interpolation::Cubic,
        other => return unmapped(format!("the interpolation `{other}`")),
    };
    let outside = match l.text("padding_mode", "zeros") {
        "border" => Outside::Border,
        "reflection" => Outside::Reflection,
        _ => Outside::Zeros,
    };
    let aligned = l.int("align_corners", 0) != 0;
    if n == 2 && interpolation != Interpolation::Cubic {
        let nearest = interpolation == Interpolation::Nearest;
        let padding = match outside {
            Outside::Zeros => "constant",
            Outside::Border => "border",
            // ONNX reflects at the centers of the corner pixels if corners are aligned, else at
            // their outer edges.
            Outside::Reflection if aligned => "reflection",
            Outside::Reflection => "symmetric",
        };
        return one(resample(l, x, grid, nearest, padding, "normalized_minus_one_to_one", aligned)?);
    }
    if n > 3 {
        return unmapped("images of more than three axes");
    }
    if shape[2..].iter().any(|&extent| extent > MOST_POSITIONS) {
        return unmapped(format!("images of {:?} elements, whose positions fp32 cannot hold", &shape[2..]));
    }
    l.spend(16 * 4usize.pow(n as u32))?;
    let total: usize = points[1..=n].iter().product();
    // fp16 has no positions from 2049 on.
    let grid = l.cast(grid, DataType::Fp32)?;
    let grid = l.reshape(grid, &[shape[0], total, n])?;
    let mut axes = Vec::with_capacity(n);
    for (i, &extent) in shape[2..].iter().enumerate() {
        // The last axis is x, the first coordinate.
        let v = l.slice(grid, 2, n - 1 - i, 1)?;
        let v = l.reshape(v, &[shape[0], total])?;
        let v = denormalized(l, v, extent, aligned)?;
        axes.push((extent, SampledAxis::new(extent, outside, aligned).taps(l, v, interpolation)?));
    }
    let y = gathered(l, x, &axes)?;
    let mut wanted = vec![shape[0], shape[1]];
    wanted.extend(&points[1..=n]);
    one(l.reshape(y, &wanted)?)
}

fn resample(
    l: &mut Lower<'_>,
    x: ValueId,
    coordinates: ValueId,
    nearest: bool,
    padding: &str,
    mode: &str,
    aligned: bool,
) -> Built {
    let zero = l.num(x, 0.0);
    l.op(
        "resample",
        [
            ("x", x.into()),
            ("coordinates", coordinates.into()),
            ("sampling_mode", Constant::string(if nearest { "nearest" } else { "bilinear" }).into()),
            ("padding_mode", Constant::string(padding).into()),
            ("padding_value", zero.into()),
            ("coordinates_mode", Constant::string(mode).into()),
            ("align_corners", Constant::bool(aligned).into()),
        ],
    )
}

/// Samples the image at each place of the filter, moved by the offset there, and multiplies what is
/// found with the filter as a matrix.
pub(super) fn deform_conv(l: &mut Lower<'_>) -> Results {
    let (x, weight, offset) = (l.x(0)?, l.x(1)?, l.x(2)?);
    let (shape, filter, moves) = (l.ranked(x, 3)?, l.ranked(weight, 3)?, l.ranked(offset, 3)?);
    let (&[n, channels, height, width], &[out, part, kh, kw], &[batch, entries, rows, columns]) =
        (&shape[..], &filter[..], &moves[..])
    else {
        return unmapped("MIL's resample takes images of rank 4");
    };
    let w = Window::read(l, &shape[2..], &filter[2..])?;
    let (groups, parts) = (l.number("group", 1, 1)?, l.number("offset_group", 1, 1)?);
    let taps = kh * kw;
    let entries_of = |parts: usize| parts.checked_mul(taps)?.checked_mul(2);
    let fits = part.checked_mul(groups) == Some(channels)
        && out.is_multiple_of(groups)
        && channels.is_multiple_of(parts)
        && entries_of(parts) == Some(entries)
        && batch == n;
    let reach = |i: usize, extent: usize, kernel: usize| {
        let room = extent as i64 + w.pads[2 * i] + w.pads[2 * i + 1] - (kernel as i64 - 1) * w.dilations[i] - 1;
        (room >= 0).then(|| room / w.strides[i] + 1)
    };
    let spans = reach(0, height, kh) == Some(rows as i64) && reach(1, width, kw) == Some(columns as i64);
    if !fits || !spans || shape.contains(&0) {
        return Err(Stop::Rejected(format!(
            "offsets of shape {moves:?} for a filter of shape {filter:?} over {shape:?}"
        )));
    }
    l.table(&[taps, rows, columns, 2])?;
    let mut base = Vec::with_capacity(taps * rows * columns * 2);
    for tap in 0..taps {
        for place in 0..rows * columns {
            let at = |i: usize, tap: usize, place: usize| {
                place as i64 * w.strides[i] + tap as i64 * w.dilations[i] - w.pads[2 * i]
            };
            base.push(at(1, tap % kw, place % columns) as f64);
            base.push(at(0, tap / kw, place / columns) as f64);
        }
    }
    // Offsets are pairs (y, x); coordinates of `resample` are (x, y).
    let offset = l.reshape(offset, &[n * parts, taps, 2, rows * columns])?;
    let (dy, dx) = (l.slice(offset, 2, 0, 1)?, l.slice(offset, 2, 1, 1)?);
    let pairs = l.concat(&[dx, dy], 2)?;
    let pairs = l.transpose(pairs, &[0, 1, 3, 2])?;
    let pairs = l.reshape(pairs, &[n * parts, taps * rows, columns, 2])?;
    let base = l.tensor(offset, &[1, taps * rows, columns, 2], &base)?;
    let places = l.bin("add", pairs, base)?;
    let images = l.reshape(x, &[n * parts, channels / parts, height, width])?;
    let mut found = resample(l, images, places, false, "constant", "unnormalized", true)?;
    if let Some(mask) = l.maybe(4)? {
        let mask = l.reshape(mask, &[n * parts, 1, taps * rows, columns])?;
        found = l.bin("mul", found, mask)?;
    }
    let found = l.reshape(found, &[n, groups, part * taps, rows * columns])?;
    let weight = l.reshape(weight, &[1, groups, out / groups, part * taps])?;
    let y = l.bin("matmul", weight, found)?;
    let y = l.reshape(y, &[n, out, rows, columns])?;
    one(match l.maybe(3)? {
        Some(bias) => along_channels(l, "add", y, bias)?,
        None => y,
    })
}

/// Computes `theta · (x, y, 1)` over a grid of the requested size.
pub(super) fn affine_grid(l: &mut Lower<'_>) -> Results {
    let theta = l.x(0)?;
    let size: Vec<usize> = l.ints(1)?.iter().map(|&n| n.max(0) as usize).collect();
    let aligned = l.int("align_corners", 0) != 0;
    let Some(extents) = size.get(2..) else { return Err(Stop::Rejected(format!("the size {size:?}"))) };
    l.table(extents)?;
    let at = |i: usize, n: usize| {
        if aligned {
            if n == 1 { 0.0 } else { -1.0 + 2.0 * i as f64 / (n as f64 - 1.0) }
        } else {
            (2.0 * i as f64 + 1.0) / n as f64 - 1.0
        }
    };
    let total: usize = extents.iter().product();
    let mut points = Vec::new();
    for mut place in 0..total {
        // The last axis is x, which is the first coordinate.
        let mut along = Vec::new();
        for &n in extents.iter().rev() {
            along.push(at(place % n, n));
            place /= n;
        }
        along.push(1.0);
        points.extend(along);
    }
    let d = extents.len();
    let points = l.tensor(theta, &[1, total, d + 1], &points)?;
    let grid = l.b.matmul(&l.label, points, theta, Transpose::Y)?;
    let mut shape = vec![size[0]];
    shape.extend(extents);
    shape.push(d);
    one(l.reshape(grid, &shape)?)
}
