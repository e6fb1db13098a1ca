//! Resizing of images, and averages over boxes of them. MIL's own ops are used if one of their
//! sampling modes matches; otherwise each axis is multiplied by the matrix of its interpolation
//! weights.

use ferrane_mil::emit::Emit;
use ferrane_mil::{Constant, Transpose, ValueId};

use super::state::{Built, Lower, Stop, one, unmapped};

type Results = Built<Vec<Option<ValueId>>>;

/// How one axis is resized.
struct Axis {
    from: usize,
    to: usize,
    scale: f64,
    /// Start and end of the region of interest, for `tf_crop_and_resize`.
    region: (f64, f64),
}

/// The coordinate in the input that output `i` samples.
fn coordinate(mode: &str, a: &Axis, i: usize) -> f64 {
    // The resized extent before it is rounded down; aligned corners are spread over it.
    let (n, m, i) = (a.from as f64, a.scale * a.from as f64, i as f64);
    match mode {
        "asymmetric" => i / a.scale,
        "align_corners" => {
            if a.to == 1 {
                0.0
            } else {
                i * (n - 1.0) / (m - 1.0)
            }
        }
        "pytorch_half_pixel" if a.to == 1 => -0.5,
        "half_pixel_symmetric" => {
            let adjustment = a.to as f64 / m;
            let offset = n / 2.0 * (1.0 - adjustment);
            offset + (i + 0.5) / a.scale - 0.5
        }
        "tf_crop_and_resize" => {
            let (start, end) = a.region;
            if a.to == 1 {
                (start + end) * (n - 1.0) / 2.0
            } else {
                start * (n - 1.0) + i * (end - start) * (n - 1.0) / (m - 1.0)
            }
        }
        _ => (i + 0.5) / a.scale - 0.5,
    }
}

fn nearest(mode: &str, x: f64) -> i64 {
    (match mode {
        "floor" => x.floor(),
        "ceil" => x.ceil(),
        "round_prefer_ceil" => (x + 0.5).floor(),
        _ => (x - 0.5).ceil(),
    }) as i64
}

/// The cubic convolution kernel with its free parameter `a`.
fn cubic(a: f64, x: f64) -> f64 {
    let x = x.abs();
    if x <= 1.0 {
        (a + 2.0) * x.powi(3) - (a + 3.0) * x.powi(2) + 1.0
    } else if x < 2.0 {
        a * (x.powi(3) - 5.0 * x.powi(2) + 8.0 * x - 4.0)
    } else {
        0.0
    }
}

/// The `(position, weight)` pairs that are summed at coordinate `x`; positions may lie outside of
/// the input.
fn taps(l: &Lower<'_>, a: &Axis, x: f64) -> Vec<(i64, f64)> {
    let base = x.floor();
    let antialias = l.int("antialias", 0) != 0;
    let scale = if antialias { a.scale.min(1.0) } else { 1.0 };
    let coefficient = f64::from(l.float("cubic_coeff_a", -0.75));
    let is_cubic = l.text("mode", "nearest") == "cubic";
    let reach = if is_cubic { 2.0 } else { 1.0 };
    let first = (-reach / scale).floor() as i64 + 1;
    let mut found: Vec<(i64, f64)> = (first..=(reach / scale).ceil() as i64)
        .map(|k| {
            let distance = (k as f64 - (x - base)) * scale;
            let weight = if is_cubic { cubic(coefficient, distance) } else { (1.0 - distance.abs()).max(0.0) };
            (base as i64 + k, weight)
        })
        .collect();
    if l.int("exclude_outside", 0) != 0 {
        found.retain(|(i, _)| (0..a.from as i64).contains(i));
    }
    let total: f64 = found.iter().map(|(_, w)| w).sum();
    found.iter_mut().for_each(|(_, w)| *w /= total);
    found
}

/// Computes `M · x` along one axis; rows outside of the region have the extrapolation value.
fn along(l: &mut Lower<'_>, x: ValueId, axis: usize, a: &Axis) -> Built {
    let mode =
        l.text("coordinate_transformation_mode", if l.node.op == "Upsample" { "asymmetric" } else { "half_pixel" });
    let n = a.from as i64;
    let rule = l.text("nearest_mode", if l.node.op == "Upsample" { "floor" } else { "round_prefer_floor" });
    let crop = mode == "tf_crop_and_resize";
    if n == 0 || a.to == 0 || a.scale.is_nan() || a.scale <= 0.0 {
        return Err(Stop::Rejected(format!("{} elements resized to {} by {}", a.from, a.to, a.scale)));
    }
    let total = l.table(&[a.from, a.to])?;
    // Antialiasing sums as many elements as the scale shrinks.
    l.table(&[a.to, 8 + (8.0 / a.scale.min(1.0)).min(1e9) as usize])?;
    let mut outside = vec![false; a.to];
    let mut matrix = vec![0.0f64; total];
    for i in 0..a.to {
        let at = coordinate(mode, a, i);
        outside[i] = crop && (at < 0.0 || at > a.from as f64 - 1.0);
        let weights = match l.text("mode", "nearest") {
            "nearest" => vec![(nearest(rule, at), 1.0)],
            _ => taps(l, a, at),
        };
        for (place, weight) in weights {
            matrix[i * a.from + place.clamp(0, n - 1) as usize] += weight;
        }
    }
    let rank = l.shape(x)?.len();
    let mut perm: Vec<usize> = (0..rank).filter(|&d| d != axis).collect();
    perm.push(axis);
    let mut back = vec![0; rank];
    for (i, &p) in perm.iter().enumerate() {
        back[p] = i;
    }
    let last = l.transpose(x, &perm)?;
    let dtype = l.dtype(last);
    let float = if dtype.is_float() { last } else { l.cast(last, ferrane_mil::DataType::Fp32)? };
    let weights = l.tensor(float, &[a.to, a.from], &matrix)?;
    let mut y = if rank == 1 {
        let row = l.reshape(float, &[1, a.from])?;
        let row = l.b.matmul(&l.label, row, weights, Transpose::Y)?;
        l.reshape(row, &[a.to])?
    } else {
        l.b.matmul(&l.label, float, weights, Transpose::Y)?
    };
    if outside.contains(&true) {
        let value = f64::from(l.float("extrapolation_value", 0.0));
        let inside: Vec<f64> = outside.iter().map(|&o| f64::from(u8::from(!o))).collect();
        let beyond: Vec<f64> = outside.iter().map(|&o| if o { value } else { 0.0 }).collect();
        let (inside, beyond) = (l.tensor(y, &[a.to], &inside)?, l.tensor(y, &[a.to], &beyond)?);
        y = l.bin("mul", y, inside)?;
        y = l.bin("add", y, beyond)?;
    }
    let y = l.cast(y, dtype)?;
    l.transpose(y, &back)
}

pub(super) fn resize(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.shape(x)?;
    let rank = shape.len();
    let named: Vec<usize> = match l.list("axes") {
        Some(axes) => axes.iter().map(|&a| l.normal(a, rank)).collect::<Built<_>>()?,
        None => (0..rank).collect(),
    };
    let old = l.node.opset < 11 || l.node.op == "Upsample";
    let (scales_at, sizes_at) = if old { (1, usize::MAX) } else { (2, 3) };
    let roi = if !old && l.has(1) { l.floats(1)? } else { Vec::new() };
    // Before opset 9 the scales of Upsample are an attribute.
    let scales = match l.node.attribute("scales") {
        Some(crate::graph::Attribute::Floats(scales)) => scales.iter().map(|&s| f64::from(s)).collect(),
        _ if l.has(scales_at) => l.floats(scales_at)?,
        _ => Vec::new(),
    };
    let sizes = if l.has(sizes_at) { l.ints(sizes_at)? } else { Vec::new() };
    let policy = l.text("keep_aspect_ratio_policy", "stretch");
    let ratios: Vec<f64> = named.iter().zip(&sizes).map(|(&a, &n)| n as f64 / shape[a] as f64).collect();
    let common = match policy {
        "not_larger" => ratios.iter().copied().reduce(f64::min),
        "not_smaller" => ratios.iter().copied().reduce(f64::max),
        _ => None,
    };
    let mut axes = Vec::new();
    for (i, &axis) in named.iter().enumerate() {
        let from = shape[axis];
        let (to, scale) = match (scales.get(i), sizes.get(i), common) {
            (Some(&s), _, _) => ((from as f64 * s).floor() as usize, s),
            (_, Some(_), Some(c)) => ((from as f64 * c + 0.5).floor() as usize, c),
            (_, Some(&n), None) => (n.max(0) as usize, n as f64 / from as f64),
            _ => (from, 1.0),
        };
        if to == 0 || to > i32::MAX as usize || from == 0 {
            return Err(Stop::Rejected(format!("axis {axis} of {from} elements is resized to {to}")));
        }
        let region = (roi.get(i).copied().unwrap_or(0.0), roi.get(i + named.len()).copied().unwrap_or(1.0));
        axes.push((axis, Axis { from, to, scale, region }));
    }
    if let Some(y) = native(l, x, &axes)? {
        return one(y);
    }
    let crop = l.text("coordinate_transformation_mode", "") == "tf_crop_and_resize";
    let mut y = x;
    for (axis, a) in &axes {
        if a.from != a.to || a.scale != 1.0 || crop && a.region != (0.0, 1.0) {
            y = along(l, y, *axis, a)?;
        }
    }
    one(if y == x { l.un("identity", x)? } else { y })
}

/// MIL's own resize op, or `None` if none computes exactly this.
fn native(l: &mut Lower<'_>, x: ValueId, axes: &[(usize, Axis)]) -> Built<Option<ValueId>> {
    let shape = l.shape(x)?;
    let rank = shape.len();
    let changed: Vec<&(usize, Axis)> = axes.iter().filter(|(_, a)| a.from != a.to || a.scale != 1.0).collect();
    let [(h, tall), (w, wide)] = changed[..] else { return Ok(None) };
    let exact = |a: &Axis| (a.scale * a.from as f64 - a.to as f64).abs() < 1e-9;
    if rank != 4 || (*h, *w) != (2, 3) || !l.is_float(x) || !exact(tall) || !exact(wide) {
        return Ok(None);
    }
    let old = l.node.op == "Upsample";
    let coordinates = l.text("coordinate_transformation_mode", if old { "asymmetric" } else { "half_pixel" });
    let grows = |a: &Axis| a.to.is_multiple_of(a.from);
    match l.text("mode", "nearest") {
        "nearest" if grows(tall) && grows(wide) && matches!(coordinates, "asymmetric" | "half_pixel") => {
            // At whole factors every rounding of a half-pixel coordinate, and rounding down of an
            // asymmetric one, selects the same pixel.
            let rule = l.text("nearest_mode", if old { "floor" } else { "round_prefer_floor" });
            if coordinates == "asymmetric" && rule != "floor"
                || coordinates == "half_pixel" && rule != "round_prefer_floor"
            {
                return Ok(None);
            }
            let factor = |a: &Axis| Constant::int32((a.to / a.from) as i32);
            let args = [
                ("x", x.into()),
                ("scale_factor_height", factor(tall).into()),
                ("scale_factor_width", factor(wide).into()),
            ];
            Ok(Some(l.op("upsample_nearest_neighbor", args)?))
        }
        "linear" if l.int("antialias", 0) == 0 && l.int("exclude_outside", 0) == 0 => {
            let sampling = match coordinates {
                "half_pixel" => "UNALIGN_CORNERS",
                "align_corners" => "ALIGN_CORNERS",
                "asymmetric" if tall.to > 1 && wide.to > 1 => "DEFAULT",
                _ => return Ok(None),
            };
            let args = [
                ("x", x.into()),
                ("target_size_height", Constant::int32(tall.to as i32).into()),
                ("target_size_width", Constant::int32(wide.to as i32).into()),
                ("sampling_mode", Constant::string(sampling).into()),
            ];
            Ok(Some(l.op("resize_bilinear", args)?))
        }
        _ => Ok(None),
    }
}

/// The average bilinear weights of the samples in each bin along one axis, `[boxes, bins, extent]`.
/// `from` and `to` are `[boxes, 1]`.
fn bin_weights(l: &mut Lower<'_>, from: ValueId, to: ValueId, bins: usize, samples: usize, extent: usize) -> Built {
    let boxes = l.shape(from)?[0];
    let count = bins * samples;
    let span = l.bin("sub", to, from)?;
    let steps: Vec<f64> = (0..count).map(|t| (t as f64 + 0.5) / count as f64).collect();
    let steps = l.tensor(from, &[1, count], &steps)?;
    let along = l.bin("mul", span, steps)?;
    let at = l.bin("add", along, from)?;
    // A sample more than one pixel outside of the image counts as 0.
    let least = l.bin("greater_equal", at, l.num(at, -1.0))?;
    let most = l.bin("less_equal", at, l.num(at, extent as f32))?;
    let inside = l.bin("logical_and", least, most)?;
    let inside = l.cast(inside, l.dtype(at))?;
    let above = l.bin("maximum", at, l.num(at, 0.0))?;
    let at = l.bin("minimum", above, l.num(at, extent as f32 - 1.0))?;
    let at = l.reshape(at, &[boxes, count, 1])?;
    let pixels: Vec<f64> = (0..extent).map(|i| i as f64).collect();
    let pixels = l.tensor(at, &[1, 1, extent], &pixels)?;
    let distance = l.bin("sub", at, pixels)?;
    let distance = l.un("abs", distance)?;
    let weight = l.bin("sub", l.num(at, 1.0), distance)?;
    let weight = l.un("relu", weight)?;
    let inside = l.reshape(inside, &[boxes, count, 1])?;
    let weight = l.bin("mul", weight, inside)?;
    let weight = l.reshape(weight, &[boxes, bins, samples, extent])?;
    l.reduce("reduce_mean", weight, &[2], false)
}

/// The image under each box, multiplied by the matrices of the weights of rows and columns.
pub(super) fn roi_align(l: &mut Lower<'_>) -> Results {
    if l.text("mode", "avg") != "avg" {
        return unmapped("its maximum takes the largest weighted corner of the samples, not of their values");
    }
    let samples = l.number("sampling_ratio", 0, 0)?;
    if samples == 0 {
        return unmapped("the number of samples depends on the size of each box; export it with a sampling_ratio");
    }
    let (x, boxes, batches) = (l.x(0)?, l.x(1)?, l.x(2)?);
    let (shape, count) = (l.ranked(x, 4)?, l.ranked(boxes, 2)?);
    let (height, width) = (l.number("output_height", 1, 1)?, l.number("output_width", 1, 1)?);
    l.table(&[height, samples])?;
    l.table(&[width, samples])?;
    if count[1] != 4 {
        return Err(Stop::Rejected(format!("boxes of shape {count:?}")));
    }
    let mode =
        l.text("coordinate_transformation_mode", if l.node.opset < 16 { "output_half_pixel" } else { "half_pixel" });
    let half = mode == "half_pixel";
    let scaled = l.bin("mul", boxes, l.num(boxes, l.float("spatial_scale", 1.0)))?;
    let moved = l.bin("sub", scaled, l.num(scaled, if half { 0.5 } else { 0.0 }))?;
    let mut side = |i: usize| l.slice(moved, 1, i, 1);
    let (x1, y1, x2, y2) = (side(0)?, side(1)?, side(2)?, side(3)?);
    let mut weights = Vec::new();
    for (from, to, bins, extent) in [(y1, y2, height, shape[2]), (x1, x2, width, shape[3])] {
        let to = if half {
            to
        } else {
            // A box is at least one pixel large.
            let least = l.bin("add", from, l.num(from, 1.0))?;
            l.bin("maximum", to, least)?
        };
        let w = bin_weights(l, from, to, bins, samples, extent)?;
        weights.push(l.reshape(w, &[count[0], 1, bins, extent])?);
    }
    let images = l.b.gather(&l.label, x, batches, 0)?;
    let rows = l.bin("matmul", weights[0], images)?;
    one(l.b.matmul(&l.label, rows, weights[1], Transpose::Y)?)
}
