//! Resized images.

use super::elementwise::Results;
use super::emit::{INTERPOLATION, known};
use super::state::{Built, Raise, rejected, unmapped};
use crate::bytecode::ValueId;
use crate::dialect::ElementType::{Float32, Int32};

/// How the samples of a resized axis lie on it: `start + i · step`, held within the axis.
struct Samples {
    start: f64,
    step: f64,
}

impl Samples {
    fn of(mode: &str, n: u64, m: u64) -> Built<Samples> {
        let (n, m) = (n as f64, m as f64);
        let at = |start: f64, step: f64| Ok(Samples { start, step });
        match mode {
            "ALIGN_CORNERS" if m == 1.0 => at((n - 1.0) / 2.0, 0.0),
            "STRICT_ALIGN_CORNERS" if m == 1.0 => at(0.0, 0.0),
            "ALIGN_CORNERS" | "STRICT_ALIGN_CORNERS" => at(0.0, (n - 1.0) / (m - 1.0)),
            "DEFAULT" => at(0.0, n / m),
            "OFFSET_CORNERS" => at(0.5 * (n - 1.0).max(1.0) / m, (n - 1.0).max(1.0) / m),
            "UNALIGN_CORNERS" => at(0.5 * n / m - 0.5, n / m),
            other => rejected(format!("a sampling mode `{other}`")),
        }
    }

    fn at(&self, i: u64, n: u64) -> f64 {
        (self.start + i as f64 * self.step).clamp(0.0, n.saturating_sub(1) as f64)
    }
}

/// x resized along some axes by lines between elements: Core AI's operation where the samples move
/// along the axis, else the same arithmetic on gathered elements.
fn lines(r: &mut Raise<'_>, x: ValueId, resized: &[(usize, u64)], mode: &str) -> Built {
    let shape = r.shape(x)?;
    let (mut out, mut scales, mut offsets) = (shape.clone(), vec![1.0; shape.len()], vec![0.0; shape.len()]);
    let mut slow = Vec::new();
    for &(axis, m) in resized {
        let samples = Samples::of(mode, shape[axis], m)?;
        if samples.step <= 0.0 || shape[axis] == 0 {
            slow.push((axis, m));
            continue;
        }
        // Core AI takes the element at (i + 1/2 - offset) / scale - 1/2.
        out[axis] = m;
        scales[axis] = 1.0 / samples.step;
        offsets[axis] = 0.5 - (samples.start + 0.5) * scales[axis];
    }
    let mut y = interpolated(r, x, &out, &scales, &offsets, 0)?;
    for (axis, m) in slow {
        let samples = Samples::of(mode, shape[axis], m)?;
        y = mixed(r, y, axis, shape[axis], m, &samples)?;
    }
    Ok(y)
}

/// Core AI's interpolation, by lines (0) or by the nearest element (1).
fn interpolated(r: &mut Raise<'_>, x: ValueId, out: &[u64], scales: &[f64], offsets: &[f64], form: u64) -> Built {
    let element = r.element(x)?;
    if r.shape(x)? == out {
        return Ok(x);
    }
    let rank = [out.len() as u64];
    let sizes: Vec<i64> = out.iter().map(|&n| n as i64).collect();
    let operands =
        [x, r.vector(Int32, &sizes)?, r.numbers(Float32, &rank, scales)?, r.numbers(Float32, &rank, offsets)?];
    let form = r.choice(INTERPOLATION, form);
    Ok(r.formed("primitive.interpolate_v1", &operands, Some(("interpolation_mode", form)), known(out), element))
}

/// Elements between two others, which are gathered.
fn mixed(r: &mut Raise<'_>, x: ValueId, axis: usize, n: u64, m: u64, samples: &Samples) -> Built {
    r.table(&[m])?;
    let places: Vec<f64> = (0..m).map(|i| samples.at(i, n)).collect();
    let low: Vec<i64> = places.iter().map(|p| p.floor() as i64).collect();
    let high: Vec<i64> = low.iter().map(|&l| (l + 1).min(n.saturating_sub(1) as i64)).collect();
    let parts: Vec<f64> = places.iter().map(|p| p - p.floor()).collect();
    let (low, high) = (r.vector(Int32, &low)?, r.vector(Int32, &high)?);
    let first = r.gather(x, low, axis)?;
    if parts.iter().all(|&p| p == 0.0) {
        return Ok(first);
    }
    let second = r.gather(x, high, axis)?;
    let rank = r.rank(x)?;
    let element = r.element(x)?;
    let parts = r.numbers(element, &[m], &parts)?;
    let parts = r.along(parts, axis, rank)?;
    let step = r.bin("sub", second, first)?;
    let step = r.bin("mul", step, parts)?;
    r.bin("add", first, step)
}

/// x with the elements at known places of each resized axis.
fn nearest(r: &mut Raise<'_>, x: ValueId, resized: &[(usize, u64)], place: impl Fn(u64, u64, u64) -> u64) -> Built {
    let mut y = x;
    for &(axis, m) in resized {
        let n = r.shape(y)?[axis];
        if m % n.max(1) == 0 && (0..m).all(|i| place(i, n, m) == i / (m / n.max(1))) {
            // Whole factors are the middle of each part, which Core AI finds.
            let mut out = r.shape(y)?;
            let (mut scales, offsets) = (vec![1.0; out.len()], vec![0.0; out.len()]);
            (out[axis], scales[axis]) = (m, m as f64 / n as f64);
            y = interpolated(r, y, &out, &scales, &offsets, 1)?;
            continue;
        }
        r.table(&[m])?;
        let places: Vec<i64> = (0..m).map(|i| place(i, n, m).min(n.saturating_sub(1)) as i64).collect();
        let places = r.vector(Int32, &places)?;
        y = r.gather(y, places, axis)?;
    }
    Ok(y)
}

/// The last two axes of x with the extents of the result.
fn plane(r: &Raise<'_>, x: ValueId) -> Built<Vec<(usize, u64)>> {
    let (from, to) = (r.shape(x)?, r.result(0)?.shape);
    let rank = from.len();
    match to.iter().copied().collect::<Option<Vec<u64>>>() {
        Some(to) if rank >= 3 && to.len() == rank => Ok(vec![(rank - 2, to[rank - 2]), (rank - 1, to[rank - 1])]),
        _ => unmapped("it needs the extents of its result"),
    }
}

/// The element that contains the middle of part i of m.
fn middle(i: u64, n: u64, m: u64) -> u64 {
    ((2 * u128::from(i) + 1) * u128::from(n) / (2 * u128::from(m))) as u64
}

pub(super) fn resize_bilinear(r: &mut Raise<'_>) -> Results {
    let (x, mode) = (r.x("x")?, r.text("sampling_mode")?);
    let axes = plane(r, x)?;
    Ok(vec![lines(r, x, &axes, &mode)?])
}

pub(super) fn resize_nearest_neighbor(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let axes = plane(r, x)?;
    Ok(vec![nearest(r, x, &axes, middle)?])
}

pub(super) fn upsample_bilinear(r: &mut Raise<'_>) -> Results {
    let (x, align) = (r.x("x")?, r.flag("align_corners")?);
    let half = if r.has("half_pixel_centers") { r.flag("half_pixel_centers")? } else { !align };
    let mode = match (align, half) {
        (true, false) => "STRICT_ALIGN_CORNERS",
        (false, true) => "UNALIGN_CORNERS",
        (false, false) => "DEFAULT",
        (true, true) => return rejected("`align_corners` and `half_pixel_centers` exclude each other"),
    };
    let axes = plane(r, x)?;
    Ok(vec![lines(r, x, &axes, mode)?])
}

pub(super) fn upsample_nearest_neighbor(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let axes = plane(r, x)?;
    Ok(vec![nearest(r, x, &axes, |i, n, m| (u128::from(i) * u128::from(n) / u128::from(m)) as u64)?])
}

pub(super) fn resize(r: &mut Raise<'_>) -> Results {
    let (x, mode) = (r.x("x")?, r.text("sampling_mode")?);
    let (from, to) = (r.shape(x)?, r.result(0)?.shape);
    let to = to.iter().copied().collect::<Option<Vec<u64>>>();
    let Some(to) = to.filter(|to| to.len() == from.len()) else {
        return unmapped("it needs the extents of its result");
    };
    let first = from.len().saturating_sub(r.int("resized_dims")?.max(0) as usize);
    let shape = r.ints("shape")?;
    let kept = |axis: usize| (shape.len() + axis).checked_sub(from.len()).is_some_and(|i| shape.get(i) == Some(&0));
    let axes: Vec<(usize, u64)> = (first..from.len()).filter(|&a| !kept(a)).map(|a| (a, to[a])).collect();
    if r.text("interpolation_mode")? == "LINEAR" {
        if !r.is_float(x)? {
            let wide = r.cast(x, Float32)?;
            let y = lines(r, wide, &axes, &mode)?;
            let y = r.un("primitive.round_v1", y)?;
            let element = r.element(x)?;
            return Ok(vec![r.cast(y, element)?]);
        }
        return Ok(vec![lines(r, x, &axes, &mode)?]);
    }
    if mode == "DEFAULT" {
        return Ok(vec![nearest(r, x, &axes, middle)?]);
    }
    Samples::of(&mode, 1, 1)?;
    let place = |i: u64, n: u64, m: u64| Samples::of(&mode, n, m).map_or(0, |samples| (samples.at(i, n) + 0.5) as u64);
    Ok(vec![nearest(r, x, &axes, place)?])
}
