//! Sampling of images at computed points: regions of interest, coordinate maps, affine transforms.

use ferrane_device::Result;

use super::super::{Call, HeapTensor, TensorOp};
use super::grid::Sampling;

pub(super) const FAMILY: &[(&str, TensorOp)] =
    &[("crop_resize", crop_resize), ("resample", resample), ("affine", affine)];

/// The values outside of an image.
#[derive(Clone, Copy)]
enum Padding {
    /// The same constant everywhere.
    Constant(f32),
    /// The nearest edge element.
    Border,
    /// The image mirrored at the middle of its edge elements.
    Reflection,
    /// The image mirrored at its edges.
    Symmetric,
}

impl Padding {
    /// A coordinate moved into an axis of `n` elements, if the padding does that.
    fn moved(self, at: f32, n: usize) -> f32 {
        let last = n as f32 - 1.0;
        let at = match self {
            Padding::Constant(_) => return at,
            Padding::Border => at,
            Padding::Reflection => mirrored(at, 0.0, last),
            Padding::Symmetric => mirrored(at, -0.5, n as f32),
        };
        // In this order, NaN becomes 0.
        at.max(0.0).min(last)
    }
}

/// A coordinate folded into `low..=low + span`.
fn mirrored(at: f32, low: f32, span: f32) -> f32 {
    if span <= 0.0 {
        return 0.0;
    }
    let folded = (at - low).abs() % (2.0 * span);
    low + if folded > span { 2.0 * span - folded } else { folded }
}

/// A plane of an image.
struct Plane<'v> {
    values: &'v [f32],
    height: usize,
    width: usize,
}

impl Plane<'_> {
    /// The element at a position, if it is inside.
    fn element(&self, y: i64, x: i64) -> Option<f32> {
        let (y, x) = (usize::try_from(y).ok()?, usize::try_from(x).ok()?);
        (y < self.height && x < self.width).then(|| self.values[y * self.width + x])
    }

    /// Bilinear between four elements; elements outside of the image are `outside`. Elements of
    /// weight 0 are not read.
    fn bilinear(&self, y: f32, x: f32, outside: f32) -> f32 {
        if !y.is_finite() || !x.is_finite() {
            return outside;
        }
        let (top, left) = (y.floor(), x.floor());
        let (down, right) = (y - top, x - left);
        let mut sum = 0.0;
        for (row, row_weight) in [(top, 1.0 - down), (top + 1.0, down)] {
            for (col, col_weight) in [(left, 1.0 - right), (left + 1.0, right)] {
                let weight = row_weight * col_weight;
                if weight != 0.0 {
                    sum += weight * self.element(row as i64, col as i64).unwrap_or(outside);
                }
            }
        }
        sum
    }

    /// The nearest element, of two, the one with the even coordinate.
    fn nearest(&self, y: f32, x: f32, outside: f32) -> f32 {
        if !y.is_finite() || !x.is_finite() {
            return outside;
        }
        self.element(y.round_ties_even() as i64, x.round_ties_even() as i64).unwrap_or(outside)
    }
}

/// The unit of coordinates.
#[derive(Clone, Copy)]
enum Coordinates {
    /// Coordinates count elements, from 0.
    Elements,
    /// From 0 to 1 between the ends.
    ZeroToOne,
    /// From -1 to 1 between the ends.
    MinusOneToOne,
}

impl Coordinates {
    fn of(call: &Call<'_>) -> Result<Coordinates> {
        Ok(match call.text("coordinates_mode")?.to_lowercase().as_str() {
            "unnormalized" => Coordinates::Elements,
            "normalized_zero_to_one" => Coordinates::ZeroToOne,
            "normalized_minus_one_to_one" => Coordinates::MinusOneToOne,
            other => return Err(call.fail(format!("has no coordinates mode `{other}`"))),
        })
    }

    /// A coordinate in elements of an axis of `n`. With aligned corners the ends are the centers of
    /// the edge elements, else their outer edges.
    fn elements(self, at: f32, n: usize, align: bool) -> f32 {
        let n = n as f32;
        let share = match self {
            Coordinates::Elements => return at,
            Coordinates::ZeroToOne => at,
            Coordinates::MinusOneToOne => (at + 1.0) / 2.0,
        };
        if align { share * (n - 1.0) } else { share * n - 0.5 }
    }
}

fn bilinear_mode(call: &Call<'_>) -> Result<bool> {
    match call.text("sampling_mode")?.to_lowercase().as_str() {
        "bilinear" => Ok(true),
        "nearest" => Ok(false),
        other => Err(call.fail(format!("has no sampling mode `{other}`"))),
    }
}

fn padding(call: &Call<'_>) -> Result<Padding> {
    Ok(match call.text("padding_mode")?.to_lowercase().as_str() {
        "constant" => Padding::Constant(call.float("padding_value")?),
        "border" => Padding::Border,
        "reflection" => Padding::Reflection,
        "symmetric" => Padding::Symmetric,
        other => return Err(call.fail(format!("has no padding mode `{other}`"))),
    })
}

/// Samples every channel of each image of `x` at `points[image][place]`, which are `(y, x)` in
/// elements.
fn sampled(
    call: &Call<'_>,
    shape: &[usize],
    images: impl Iterator<Item = (usize, Vec<(f32, f32)>)>,
    bilinear: bool,
    padding: Padding,
) -> Result<HeapTensor> {
    let x = call.ranked("x", 4)?;
    let values = call.reals("x", x)?;
    let &[_, channels, height, width] = x.shape.as_slice() else { return Err(call.fail("needs images")) };
    let area = height * width;
    let outside = if let Padding::Constant(value) = padding { value } else { 0.0 };
    let mut out = Vec::with_capacity(call.elements(shape)?);
    for (image, points) in images {
        let points: Vec<_> = points.iter().map(|p| (padding.moved(p.0, height), padding.moved(p.1, width))).collect();
        for c in 0..channels {
            let from = (image * channels + c) * area;
            let plane = Plane { values: &values[from..from + area], height, width };
            if bilinear {
                out.extend(points.iter().map(|p| plane.bilinear(p.0, p.1, outside)));
            } else {
                out.extend(points.iter().map(|p| plane.nearest(p.0, p.1, outside)));
            }
        }
    }
    Ok(HeapTensor::floats(x.dtype, shape, out))
}

/// `resample` (coremltools 9.0): each result has its own coordinates `(x, y)`, as in PyTorch's
/// `grid_sample`.
fn resample(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let (x, map) = (call.ranked("x", 4)?, call.ranked("coordinates", 4)?);
    let (batch, rows, cols) = (map.shape[0], map.shape[1], map.shape[2]);
    if map.shape[3] != 2 || batch != x.shape[0] {
        return Err(call.fail(format!("coordinates of shape {:?} for images of shape {:?}", map.shape, x.shape)));
    }
    let (height, width) = (x.shape[2], x.shape[3]);
    let (mode, align) = (Coordinates::of(call)?, call.flag("align_corners")?);
    let shape = [batch, x.shape[1], rows, cols];
    call.elements(&shape)?;
    let images = (0..batch).map(|b| {
        let at = |p: usize| {
            let i = (b * rows * cols + p) * 2;
            (mode.elements(map.float(i + 1), height, align), mode.elements(map.float(i), width, align))
        };
        (b, (0..rows * cols).map(at).collect())
    });
    Ok(vec![sampled(call, &shape, images, bilinear_mode(call)?, padding(call)?)?])
}

/// `affine` (coremltools 9.0): a result at `(x, y)` is sampled at `(a0·x + a1·y + a2, b0·x + b1·y +
/// b2)`, all from -1 to 1, as in PyTorch's `affine_grid` and `grid_sample`. coremltools allows only
/// aligned corners and zeros outside; other arguments follow PyTorch.
fn affine(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let (x, matrix) = (call.ranked("x", 4)?, call.ranked("transform_matrix", 2)?);
    let (batch, height, width) = (x.shape[0], x.shape[2], x.shape[3]);
    if matrix.shape[1] != 6 || (matrix.shape[0] != 1 && matrix.shape[0] != batch) {
        return Err(call.fail(format!("a matrix of shape {:?} for {batch} images", matrix.shape)));
    }
    let mode @ Coordinates::MinusOneToOne = Coordinates::of(call)? else {
        return Err(call.fail("needs coordinates from -1 to 1"));
    };
    let (rows, cols) = (call.count("output_height")?, call.count("output_width")?);
    let shape = [batch, x.shape[1], rows, cols];
    call.elements(&shape)?;
    let align = call.flag("align_corners")?;
    let spread = |i: usize, m: usize| match (m, align) {
        (1, _) => 0.0,
        (m, true) => 2.0 * i as f32 / (m as f32 - 1.0) - 1.0,
        (m, false) => (2.0 * i as f32 + 1.0) / m as f32 - 1.0,
    };
    let images = (0..batch).map(|b| {
        let from = if matrix.shape[0] == 1 { 0 } else { b * 6 };
        let m = |i: usize| matrix.float(from + i);
        let at = |p: usize| {
            let (x, y) = (spread(p % cols, cols), spread(p / cols, rows));
            let (u, v) = (m(0) * x + m(1) * y + m(2), m(3) * x + m(4) * y + m(5));
            (mode.elements(v, height, align), mode.elements(u, width, align))
        };
        (b, (0..rows * cols).map(at).collect())
    });
    Ok(vec![sampled(call, &shape, images, bilinear_mode(call)?, padding(call)?)?])
}

/// A box: start and end of height and of width.
fn corners(mode: &str, b: [f32; 4]) -> Option<[(f32, f32); 2]> {
    let [p, q, r, s] = b;
    let around = |middle: f32, size: f32| (middle - size / 2.0, middle + size / 2.0);
    Some(match mode {
        "CORNERS_HEIGHT_FIRST" => [(p, r), (q, s)],
        "CORNERS_WIDTH_FIRST" => [(q, s), (p, r)],
        "CENTER_SIZE_HEIGHT_FIRST" => [around(p, r), around(q, s)],
        "CENTER_SIZE_WIDTH_FIRST" => [around(q, s), around(p, r)],
        _ => return None,
    })
}

/// `crop_resize` (coremltools 9.0): boxes resized to one size, `pad_value` where a sample leaves
/// the image (TensorFlow's `crop_and_resize`). A box covers the elements from its start to its end,
/// both included, so its extent for the sampling mode is their distance plus 1; the end may be
/// before the start. The boxes are `roi`, with or without the image's index, up to iOS 16, and
/// `boxes` with `box_indices` later.
fn crop_resize(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let x = call.ranked("x", 4)?;
    let (batch, channels, height, width) = (x.shape[0], x.shape[1], x.shape[2], x.shape[3]);
    let (rows, cols) = (call.count("target_height")?, call.count("target_width")?);
    let new = call.maybe("boxes").is_some();
    let boxes = call.tensor(if new { "boxes" } else { "roi" })?;
    let each = match boxes.shape.as_slice() {
        [_, 4] if new => 4,
        &[_, 1, each @ (4 | 5), 1, 1] if !new => each,
        other => return Err(call.fail(format!("boxes of shape {other:?}"))),
    };
    let count = boxes.shape[0];
    let image = |n: usize| -> Result<usize> {
        let index = match call.maybe("box_indices") {
            Some(indices) if new && indices.len() == count => indices.int(n),
            Some(_) if new => return Err(call.fail("needs an image for each box")),
            _ if new => n as i64,
            _ => boxes.int(n * each),
        };
        let found = usize::try_from(index).ok().filter(|&i| i < batch);
        found.ok_or_else(|| call.fail(format!("box {n} is of image {index} of {batch}")))
    };
    let scale = call.float("spatial_scale")?;
    let normal = call.flag("normalized_coordinates")?;
    let scales = [height, width].map(|n| if normal { scale * (n as f32 - 1.0) } else { scale });
    let (mode, sampling) = (call.text("box_coordinate_mode")?, Sampling::of(call)?);
    let shape = match (new, each) {
        (true, _) => vec![count, channels, rows, cols],
        (false, 4) => vec![count, batch, channels, rows, cols],
        (false, _) => vec![count, 1, channels, rows, cols],
    };
    // The points of a box are listed, so they are limited even if there is no channel.
    call.elements(&[count, if each == 4 && !new { batch } else { 1 }, channels.max(1), rows, cols])?;
    let mut jobs = Vec::new();
    for n in 0..count {
        let at = n * each + each - 4;
        let sides = corners(&mode, [0, 1, 2, 3].map(|i| boxes.float(at + i)));
        let [tall, wide] = sides.ok_or_else(|| call.fail(format!("has no box coordinate mode `{mode}`")))?;
        let line = |side: (f32, f32), scale: f32, m: usize| -> Vec<f32> {
            let (start, end) = (f64::from(side.0 * scale), f64::from(side.1 * scale));
            let (span, sign) = ((end - start).abs(), if end < start { -1.0 } else { 1.0 });
            (0..m).map(|i| (start + sign * sampling.at(i, span + 1.0, m)) as f32).collect()
        };
        let (ys, xs) = (line(tall, scales[0], rows), line(wide, scales[1], cols));
        let points = ys.iter().flat_map(|&y| xs.iter().map(move |&x| (y, x))).map(|(y, x)| {
            // Beyond the edge elements there is no neighbor to interpolate with.
            let inside = y >= 0.0 && y <= height as f32 - 1.0 && x >= 0.0 && x <= width as f32 - 1.0;
            if inside { (y, x) } else { (f32::INFINITY, f32::INFINITY) }
        });
        let points: Vec<(f32, f32)> = points.collect();
        if !new && each == 4 {
            jobs.extend((0..batch).map(|b| (b, points.clone())));
        } else {
            jobs.push((image(n)?, points));
        }
    }
    let outside = Padding::Constant(call.float_or("pad_value", 0.0)?);
    Ok(vec![sampled(call, &shape, jobs.into_iter(), true, outside)?])
}
