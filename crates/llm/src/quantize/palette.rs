//! Palettes by k-means over the values of a group of rows, rounded to fp16.
//!
//! With a table of the weights of all 65,536 values of fp16, a step of k-means costs no more for a
//! large matrix than for a small one.

use half::f16;

/// Most steps of k-means.
const ROUNDS: usize = 40;

/// The palette of exactly the values that occur, if fp16 holds them and there are few enough.
pub(super) fn exact(values: &[f32], bits: u32) -> Option<Vec<f16>> {
    let (count, mut found) = (1usize << bits, Vec::<f16>::new());
    for value in values {
        // Zero has two forms of bits and one value.
        let half = f16::from_f32(value + 0.0);
        if half.to_f32() != *value {
            return None;
        }
        if let Err(at) = found.binary_search_by(|known| known.total_cmp(&half)) {
            if found.len() == count {
                return None;
            }
            found.insert(at, half);
        }
    }
    Some(filled(found, count))
}

/// A palette with its last entry repeated; codes are those of the first of equal entries.
fn filled(mut palette: Vec<f16>, count: usize) -> Vec<f16> {
    let last = palette.last().copied().unwrap_or(f16::ZERO);
    palette.resize(count, last);
    palette
}

/// A palette for values in rows of `cols`, whose columns have these factors on their squared
/// errors.
pub(super) fn fit(values: &[f32], cols: usize, importance: Option<&[f32]>, bits: u32) -> Vec<f16> {
    let mut weights = vec![0.0f64; 1 << 16];
    for row in values.chunks(cols) {
        for (col, value) in row.iter().enumerate() {
            let weight = importance.map_or(1.0, |all| f64::from(all[col]).max(0.0));
            weights[usize::from(f16::from_f32(*value + 0.0).to_bits())] += weight;
        }
    }
    let mut points: Vec<(f32, f64)> = (0..=u16::MAX)
        .zip(&weights)
        .filter(|(_, weight)| **weight > 0.0)
        .map(|(bits, weight)| (f16::from_bits(bits).to_f32(), *weight))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut palette: Vec<f16> = k_means(&points, 1 << bits).into_iter().map(f16::from_f32).collect();
    palette.dedup();
    filled(palette, 1 << bits)
}

/// The first entry of an ascending palette that is nearest to a value.
#[inline]
pub(super) fn nearest(palette: &[f32], value: f32) -> usize {
    let above = palette.partition_point(|entry| *entry < value);
    match (above.checked_sub(1).map(|i| value - palette[i]), palette.get(above).map(|entry| entry - value)) {
        (Some(below), Some(over)) if over < below => above,
        // Of equal entries the first.
        (Some(_), _) => palette.partition_point(|entry| *entry < palette[above - 1]),
        (None, _) => 0,
    }
}

/// `count` means, ascending, of points that are ascending values with their weights. The first
/// means are the values at equal shares of the weights.
fn k_means(points: &[(f32, f64)], count: usize) -> Vec<f32> {
    // Sums over the first points: of their weights, and of their weighted values.
    let mut sums = vec![(0.0f64, 0.0f64)];
    for (value, n) in points {
        let (weight, sum) = sums[sums.len() - 1];
        sums.push((weight + n, sum + n * f64::from(*value)));
    }
    let total = sums[sums.len() - 1].0;
    let mut means: Vec<f32> = (0..count)
        .map(|i| {
            // The middle of the share.
            let wanted = total * (2 * i + 1) as f64 / (2 * count) as f64;
            let at = sums[1..].partition_point(|(weight, _)| *weight <= wanted);
            points.get(at.min(points.len().saturating_sub(1))).map_or(0.0, |point| point.0)
        })
        .collect();
    for _ in 0..ROUNDS {
        let before = means.clone();
        let mut start = 0;
        for i in 0..count {
            let end = match before.get(i + 1) {
                Some(next) => points.partition_point(|(value, _)| *value <= (before[i] + next) / 2.0).max(start),
                None => points.len(),
            };
            let (weight, sum) = (sums[end].0 - sums[start].0, sums[end].1 - sums[start].1);
            if weight > 0.0 {
                means[i] = f16::from_f64(sum / weight).to_f32();
            }
            start = end;
        }
        means.sort_by(f32::total_cmp);
        if means == before {
            break;
        }
    }
    means
}
