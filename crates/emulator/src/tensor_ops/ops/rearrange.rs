//! Ops that only move elements: between channels, batch and space, into windows, backwards.

use ferrane_device::Result;

use super::super::index::{MAX_ELEMENTS, Walk, strides};
use super::super::{Call, HeapTensor, TensorOp};

pub(super) const FAMILY: &[(&str, TensorOp)] = &[
    ("depth_to_space", depth_to_space),
    ("space_to_depth", space_to_depth),
    ("pixel_shuffle", pixel_shuffle),
    ("pixel_unshuffle", pixel_unshuffle),
    ("batch_to_space", batch_to_space),
    ("space_to_batch", space_to_batch),
    ("crop", crop),
    ("flatten2d", flatten2d),
    ("reshape_like", reshape_like),
    ("reverse_sequence", reverse_sequence),
    ("sliding_windows", sliding_windows),
];

/// The elements of `x`, reshaped to the extents `split` and permuted by `perm`.
fn permuted(x: &HeapTensor, split: &[usize], perm: &[usize], shape: &[usize]) -> Vec<HeapTensor> {
    vec![x.walked(shape, Walk::permuted(split, perm))]
}

/// An image batch `[n, c, h, w]`.
fn image<'c>(call: &'c Call<'_>) -> Result<(&'c HeapTensor, [usize; 4])> {
    let x = call.ranked("x", 4)?;
    Ok((x, [x.shape[0], x.shape[1], x.shape[2], x.shape[3]]))
}

/// `n / by`, if `by` divides `n`.
fn part(call: &Call<'_>, what: &str, n: usize, by: usize) -> Result<usize> {
    if !n.is_multiple_of(by) {
        return Err(call.fail(format!("{what} {n} is not divisible by {by}")));
    }
    Ok(n / by)
}

/// The square of a block size.
fn square(call: &Call<'_>, b: usize) -> Result<usize> {
    b.checked_mul(b).ok_or_else(|| call.fail(format!("a block of {b} is too large")))
}

/// `depth_to_space`: the position in the block is the outer part of the channel (coremltools 9.0;
/// TensorFlow's order).
fn depth_to_space(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let ((x, [n, c, h, w]), b) = (image(call)?, call.count("block_size")?);
    let c = part(call, "the channels", c, square(call, b)?)?;
    Ok(permuted(x, &[n, b, b, c, h, w], &[0, 3, 4, 1, 5, 2], &[n, c, h * b, w * b]))
}

/// `space_to_depth`: the reverse of `depth_to_space` (coremltools 9.0).
fn space_to_depth(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let ((x, [n, c, h, w]), b) = (image(call)?, call.count("block_size")?);
    let (h, w) = (part(call, "the height", h, b)?, part(call, "the width", w, b)?);
    Ok(permuted(x, &[n, c, h, b, w, b], &[0, 3, 5, 1, 2, 4], &[n, c * square(call, b)?, h, w]))
}

/// `pixel_shuffle`: the position in the block is the inner part of the channel (coremltools 9.0;
/// PyTorch's `PixelShuffle`).
fn pixel_shuffle(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let ((x, [n, c, h, w]), f) = (image(call)?, call.count("upscale_factor")?);
    let c = part(call, "the channels", c, square(call, f)?)?;
    Ok(permuted(x, &[n, c, f, f, h, w], &[0, 1, 4, 2, 5, 3], &[n, c, h * f, w * f]))
}

/// `pixel_unshuffle`: the reverse of `pixel_shuffle` (coremltools 9.0, iOS 16).
fn pixel_unshuffle(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let ((x, [n, c, h, w]), f) = (image(call)?, call.count("downscale_factor")?);
    let (h, w) = (part(call, "the height", h, f)?, part(call, "the width", w, f)?);
    Ok(permuted(x, &[n, c, h, f, w, f], &[0, 1, 3, 5, 2, 4], &[n, c * square(call, f)?, h, w]))
}

/// A pair of extents of at least 1.
fn blocks(call: &Call<'_>) -> Result<[usize; 2]> {
    match call.extents(&call.ints("block_shape")?)?.as_slice() {
        &[a, b] if a > 0 && b > 0 => Ok([a, b]),
        _ => Err(call.fail("`block_shape` must be two extents")),
    }
}

/// Four amounts: before and after the height, before and after the width.
fn margins(call: &Call<'_>, values: &[i64]) -> Result<[usize; 4]> {
    let fits = |v: &i64| usize::try_from(*v).ok().filter(|&v| v <= MAX_ELEMENTS);
    match values.iter().map(fits).collect::<Option<Vec<_>>>().as_deref() {
        Some(&[a, b, c, d]) => Ok([a, b, c, d]),
        _ => Err(call.fail(format!("{values:?} are no margins"))),
    }
}

/// The last two axes without their margins.
fn cropped(call: &Call<'_>, x: &HeapTensor, margins: [usize; 4]) -> Result<HeapTensor> {
    let rank = x.shape.len();
    if rank < 2 {
        return Err(call.fail("needs a matrix"));
    }
    let [top, bottom, left, right] = margins;
    let less = |n: usize, a: usize, b: usize| {
        n.checked_sub(a + b).ok_or_else(|| call.fail(format!("cannot cut {a} and {b} from an extent of {n}")))
    };
    let mut shape = x.shape.clone();
    shape[rank - 2] = less(shape[rank - 2], top, bottom)?;
    shape[rank - 1] = less(shape[rank - 1], left, right)?;
    let start = (top * x.shape[rank - 1] + left) as isize;
    Ok(x.walked(&shape, Walk::new(&shape, &strides(&x.shape), start)))
}

/// `crop`: removes elements from the ends of the last two axes (coremltools 9.0).
fn crop(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let mut amounts = call.ints("crop_height")?;
    amounts.extend(call.ints("crop_width")?);
    Ok(vec![cropped(call, call.tensor("x")?, margins(call, &amounts)?)?])
}

/// `batch_to_space`: moves blocks out of the batch, then crops (coremltools 9.0; TensorFlow's
/// order: the block is the outer part of the batch).
fn batch_to_space(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let ((x, [n, c, h, w]), [a, b]) = (image(call)?, blocks(call)?);
    let n = part(call, "the batch", n, a * b)?;
    let whole = x.walked(&[n, c, h * a, w * b], Walk::permuted(&[a, b, n, c, h, w], &[2, 3, 4, 0, 5, 1]));
    Ok(vec![cropped(call, &whole, margins(call, &call.ints("crops")?)?)?])
}

/// `space_to_batch`: pads with zeros, then moves blocks into the batch (coremltools 9.0).
fn space_to_batch(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let ((x, [n, c, h, w]), [a, b]) = (image(call)?, blocks(call)?);
    let [top, bottom, left, right] = margins(call, &call.ints("paddings")?)?;
    let (tall, wide) = (h + top + bottom, w + left + right);
    let (rows, cols) = (part(call, "the height", tall, a)?, part(call, "the width", wide, b)?);
    call.elements(&[n, c, tall, wide])?;
    let places = Walk::permuted(&[n, c, rows, a, cols, b], &[3, 5, 0, 1, 2, 4]).map(|i| {
        let (plane, y, z) = (i / wide / tall, i / wide % tall, i % wide);
        let inside = (top..top + h).contains(&y) && (left..left + w).contains(&z);
        inside.then(|| (plane * h + y - top) * w + z - left)
    });
    Ok(vec![x.pick_or_zero(&[n * a * b, c, rows, cols], places)])
}

/// A position in a list of `n` as Python's slices read it: a negative one counts from the end, and
/// the result is clamped to `0..=n`.
fn slice_bound(at: i64, n: usize) -> usize {
    let n = n as i64;
    (if at < 0 { at.saturating_add(n) } else { at }).clamp(0, n) as usize
}

/// `flatten2d`: the axes before `axis`, and the rest (coremltools 9.0).
fn flatten2d(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let x = call.tensor("x")?;
    let (front, back) = x.shape.split_at(slice_bound(call.int("axis")?, x.shape.len()));
    Ok(vec![x.reshaped(&[front.iter().product(), back.iter().product()])])
}

/// `reshape_like`: a shape composed of parts of other tensors' shapes (coremltools 9.0, iOS 16).
fn reshape_like(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let x = call.tensor("x")?;
    let lists = ["ref_tensors", "begins", "ends", "end_masks"].map(|name| call.list(name));
    let [others, begins, ends, masks] = lists;
    if lists.iter().any(|l| l.len() != others.len()) || lists[1..].iter().any(|l| l.iter().any(|t| t.len() != 1)) {
        return Err(call.fail("needs a begin, an end and a mask for each reference"));
    }
    let mut shape = Vec::new();
    for (i, other) in others.iter().enumerate() {
        let rank = other.shape.len();
        let begin = slice_bound(begins[i].int(0), rank);
        let end = if masks[i].int(0) != 0 { rank } else { slice_bound(ends[i].int(0), rank) };
        shape.extend(other.shape.get(begin..end).unwrap_or_default());
    }
    if call.elements(&shape)? != x.len() {
        return Err(call.fail(format!("{:?} cannot become {shape:?}", x.shape)));
    }
    Ok(vec![x.reshaped(&shape)])
}

/// `reverse_sequence`: the first `lengths[b]` elements of each sequence backwards (coremltools
/// 9.0).
fn reverse_sequence(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let (x, lengths) = (call.tensor("x")?, call.ranked("lengths", 1)?);
    let rank = x.shape.len();
    let (seq, batch) = (call.axis("seq_axis", rank)?, call.axis("batch_axis", rank)?);
    if lengths.len() != x.shape[batch] {
        return Err(call.fail(format!("{} lengths for a batch of {}", lengths.len(), x.shape[batch])));
    }
    let n = x.shape[seq];
    if let Some(bad) = (0..lengths.len()).map(|i| lengths.int(i)).find(|&l| l < 0 || l > n as i64) {
        return Err(call.fail(format!("a length of {bad} of an axis of {n}")));
    }
    let steps = strides(&x.shape);
    let (step, apart) = (steps[seq] as usize, steps[batch] as usize);
    let places = (0..x.len()).map(|i| {
        let (s, length) = (i / step % n, lengths.int(i / apart % x.shape[batch]) as usize);
        if s < length { i - s * step + (length - 1 - s) * step } else { i }
    });
    Ok(vec![x.pick(&x.shape, places)])
}

/// `sliding_windows`: every window along an axis, on a new axis after it (coremltools 9.0).
fn sliding_windows(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let x = call.tensor("x")?;
    let axis = call.axis("axis", x.shape.len())?;
    let (size, stride) = (call.count("size")?, call.count("stride")?);
    let room = x.shape[axis].checked_sub(size);
    let room = room.ok_or_else(|| call.fail(format!("windows of {size} along an axis of {}", x.shape[axis])))?;
    let mut shape = x.shape.clone();
    shape[axis] = room / stride + 1;
    shape.insert(axis + 1, size);
    call.elements(&shape)?;
    let mut steps = strides(&x.shape);
    steps.insert(axis, steps[axis] * stride as isize);
    Ok(vec![x.walked(&shape, Walk::new(&shape, &steps, 0))])
}
