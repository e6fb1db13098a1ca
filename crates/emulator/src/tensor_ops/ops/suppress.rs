//! Non-maximum suppression.

use ferrane_device::Result;
use ferrane_mil::DataType;

use super::super::{Call, HeapTensor, TensorOp};

pub(super) const FAMILY: &[(&str, TensorOp)] = &[("non_maximum_suppression", non_maximum_suppression)];

/// A box by its corners.
#[derive(Clone, Copy)]
struct Corners {
    left: f32,
    bottom: f32,
    right: f32,
    top: f32,
}

impl Corners {
    fn area(&self) -> f32 {
        (self.right - self.left) * (self.top - self.bottom)
    }

    /// Intersection over union. A box without area overlaps with no other.
    fn overlap(&self, other: &Corners) -> f32 {
        let (a, b) = (self.area(), other.area());
        if a <= 0.0 || b <= 0.0 {
            return 0.0;
        }
        let width = (self.right.min(other.right) - self.left.max(other.left)).max(0.0);
        let height = (self.top.min(other.top) - self.bottom.max(other.bottom)).max(0.0);
        let both = width * height;
        both / (a + b - both)
    }
}

/// `non_maximum_suppression` (coremltools 9.0): boxes by descending score, without those that
/// overlap a chosen one. A box counts by its best class; with `per_class_suppression` only boxes of
/// its class suppress it. Up to iOS 16, boxes below `score_threshold` are dropped; if no box
/// remains, the best one is chosen anyway, as in the reference of coremltools' tests. Unused
/// entries have boxes and scores of 0 and the index -1. From iOS 17 on the number of boxes is the
/// last axis.
fn non_maximum_suppression(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let (boxes, scores) = (call.ranked("boxes", 3)?, call.ranked("scores", 3)?);
    let (all_boxes, all_scores) = (call.reals("boxes", boxes)?, call.reals("scores", scores)?);
    let by_column = call.def.param("score_threshold").is_none();
    let split = |t: &HeapTensor| {
        if by_column { (t.shape[0], t.shape[2], t.shape[1]) } else { (t.shape[0], t.shape[1], t.shape[2]) }
    };
    let ((batch, count, sides), (score_batch, score_count, classes)) = (split(boxes), split(scores));
    if sides != 4 || classes == 0 || (batch, count) != (score_batch, score_count) {
        return Err(call.fail(format!("boxes of shape {:?} and scores of {:?}", boxes.shape, scores.shape)));
    }
    // Element `part` of item `n` of image `b`, and where it goes among `m` items.
    let at = |b: usize, n: usize, part: usize, m: usize, parts: usize| {
        if by_column { (b * parts + part) * m + n } else { (b * m + n) * parts + part }
    };
    let limit = call.float("iou_threshold")?;
    let least = if by_column { None } else { Some(call.float("score_threshold")?) };
    let per_class = call.flag("per_class_suppression")?;
    let room = call.extents(&[call.int("max_boxes")?])?[0];
    call.elements(&[batch, room, classes.max(4)])?;
    let mut out_boxes = vec![0.0f32; batch * room * 4];
    let mut out_scores = vec![0.0f32; batch * room * classes];
    let mut out_indices = vec![-1i64; batch * room];
    let mut found = Vec::with_capacity(batch);
    for b in 0..batch {
        let best: Vec<(f32, usize)> = (0..count)
            .map(|n| {
                let score = |k: usize| all_scores[at(b, n, k, count, classes)];
                (1..classes).fold((score(0), 0), |best, k| if score(k) > best.0 { (score(k), k) } else { best })
            })
            .collect();
        let corners: Vec<Corners> = (0..count)
            .map(|n| {
                let [x, y, w, h] = [0, 1, 2, 3].map(|i| all_boxes[at(b, n, i, count, 4)]);
                let (w, h) = (w.abs(), h.abs());
                Corners { left: x - 0.5 * w, bottom: y - 0.5 * h, right: x + 0.5 * w, top: y + 0.5 * h }
            })
            .collect();
        let mut order: Vec<usize> = (0..count).collect();
        // NaN comes last.
        let key = |n: usize| if best[n].0.is_nan() { f32::NEG_INFINITY } else { best[n].0 };
        order.sort_by(|&p, &q| key(q).partial_cmp(&key(p)).unwrap_or(std::cmp::Ordering::Equal));
        let mut chosen: Vec<usize> = Vec::new();
        for &n in order.iter().filter(|&&n| least.is_none_or(|least| best[n].0 >= least)) {
            if chosen.len() == room {
                break;
            }
            let rival = |&c: &usize| (!per_class || best[c].1 == best[n].1) && corners[c].overlap(&corners[n]) > limit;
            if !chosen.iter().any(rival) {
                chosen.push(n);
            }
        }
        if chosen.is_empty() {
            chosen.extend(order.first().filter(|_| room > 0));
        }
        for (place, &n) in chosen.iter().enumerate() {
            out_indices[b * room + place] = n as i64;
            for i in 0..4 {
                out_boxes[at(b, place, i, room, 4)] = all_boxes[at(b, n, i, count, 4)];
            }
            for k in 0..classes {
                out_scores[at(b, place, k, room, classes)] = all_scores[at(b, n, k, count, classes)];
            }
        }
        found.push(chosen.len() as i64);
    }
    let shape = |parts: usize| if by_column { [batch, parts, room] } else { [batch, room, parts] };
    let mut results = vec![
        HeapTensor::floats(boxes.dtype, &shape(4), out_boxes),
        HeapTensor::floats(scores.dtype, &shape(classes), out_scores),
        HeapTensor::ints(DataType::Int32, &[batch, room], out_indices),
    ];
    if !by_column {
        results.push(HeapTensor::ints(DataType::Int32, &[batch], found));
    }
    Ok(results)
}
