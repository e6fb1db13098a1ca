//! Classifier and cross-entropy, tile by tile over the vocabulary.
//!
//! A tile is a range of rows of the classifier. Its logits, their maximum and the sum of their
//! exponentials are computed while they are in the cache, and so are its gradient and the two
//! products with the gradient. Between the passes only the exponentials are kept, each relative to
//! the largest logit of its tile; the loss needs only the sums.
//!
//! Tiles are combined into groups, each of which sums one part of the gradient of the stream. Tiles
//! and groups are split by size, and parts are added in order, so the result has the same bits on
//! any number of threads.

use std::sync::atomic::{AtomicU32, Ordering};

use ferrane_host::gemm::{BlockColumns, Epilogue, GemmError, Operand, Output, View, ViewMut, gemm, gemm_blocks};
use ferrane_host::{pool, simd};

use ferrane_llm::compaction::Compaction;

use super::{IGNORED, counted};

/// Number of logits in a tile.
const TILE: usize = 64 * 1024;
/// Products of values that need no more precision than fp16 has, which the activations have
/// elsewhere in the step.
const BLOCKS: Epilogue<'static> =
    Epilogue { scale: 1.0, scales: None, accumulate: false, round: false, bias: None, blocks: true, of_depth: None };
/// The smallest normal number of fp16: below it a probability has fewer digits.
const SMALLEST: f32 = 6.103_515_6e-5;
/// Largest number of groups of tiles.
const GROUPS: usize = 8;
/// Elements in one task of adding the groups' parts.
const GRAIN: usize = 16 * 1024;

/// Buffers for windows of `s` tokens over `rows` classes.
pub struct Classifier {
    s: usize,
    dim: usize,
    rows: usize,
    /// Number of rows in a tile.
    tile: usize,
    /// Number of tiles in a group.
    per_group: usize,
    /// Logits, then exponentials, then gradients, `[rows, s]`.
    values: Vec<f32>,
    /// For each tile and token: the largest logit.
    max: Vec<f32>,
    /// For each tile and token: the sum of exponentials relative to `max`; in the backward pass the
    /// factor that turns exponentials into gradients.
    sum: Vec<f32>,
    /// Each token's target logit, as bits of an `f32`.
    wanted: Vec<AtomicU32>,
    /// For each token: the largest logit, and the sum of exponentials relative to it.
    whole: Vec<(f32, f64)>,
    groups: Vec<TileGroup>,
    /// The output of the final norm, packed for the products of all tiles.
    panels: Vec<f32>,
}

/// Buffers of a group of tiles.
struct TileGroup {
    /// The group's part of the gradient of the stream, `[dim, s]`.
    dx: Vec<f32>,
    /// Gradient of a tile's rows, if the rows are not contiguous in the model.
    dw: Vec<f32>,
}

/// A tile's operands in the forward pass.
struct Forward<'a> {
    first: usize,
    values: &'a mut [f32],
    max: &'a mut [f32],
    sum: &'a mut [f32],
}

/// A group's operands in the backward pass.
struct Backward<'a> {
    /// Index of the group's first row.
    first: usize,
    values: &'a mut [f32],
    factors: &'a [f32],
    group: &'a mut TileGroup,
    /// Rows of the model's gradient, beginning with row `base`; `None` for a frozen classifier.
    gradient: Option<&'a mut [f32]>,
    base: usize,
}

/// Operands of loss and gradient.
#[derive(Clone, Copy)]
pub struct Operands<'a> {
    /// Rows of the active vocabulary, `[rows, dim]`.
    pub weights: &'a [f32],
    /// Output of the final norm, `[dim, s]`.
    pub normed: &'a [f32],
    /// Target of each token, as a row of `weights`, or [`IGNORED`], `[s]`.
    pub targets: &'a [u32],
}

impl Classifier {
    /// Allocates the buffers for windows of `s` tokens over `rows` classes.
    pub fn new(rows: usize, dim: usize, s: usize) -> Classifier {
        let tile = (TILE / s.max(1)).clamp(8, rows.max(8));
        let tiles = rows.div_ceil(tile);
        let per_group = tiles.div_ceil(GROUPS).max(1);
        let group = |_| TileGroup { dx: vec![0.0; dim * s], dw: Vec::new() };
        Classifier {
            s,
            dim,
            rows,
            tile,
            per_group,
            values: vec![0.0; rows * s],
            max: vec![0.0; tiles * s],
            sum: vec![0.0; tiles * s],
            wanted: (0..s).map(|_| AtomicU32::new(0)).collect(),
            whole: vec![(0.0, 0.0); s],
            groups: (0..tiles.div_ceil(per_group)).map(group).collect(),
            panels: vec![0.0; BlockColumns::len(dim, s).max(BlockColumns::len(s, dim))],
        }
    }

    /// Size of the buffers in bytes.
    pub fn bytes(&self) -> usize {
        let groups: usize = self.groups.iter().map(|g| g.dx.len() + g.dw.len()).sum();
        let buffers = self.values.len() + self.max.len() + self.sum.len() + self.panels.len();
        (buffers + self.s + groups) * size_of::<f32>() + 16 * self.s
    }

    /// Mean cross-entropy of a window over the targets that count, in nats per token. The loss of a
    /// token is log Σexp − logit; the sum over tokens is in f64.
    ///
    /// # Errors
    /// The operands have inconsistent sizes.
    pub fn loss(&mut self, of: Operands<'_>) -> Result<f32, GemmError> {
        let Classifier { s, dim, tile, values, max, sum, wanted, whole, panels, .. } = self;
        let (s, dim, tile, wanted) = (*s, *dim, *tile, &*wanted);
        let normed = BlockColumns::pack(Operand::F32(View::row_major(of.normed, dim, s)?), panels)?;
        let parts = values.chunks_mut(tile * s).zip(max.chunks_mut(s).zip(sum.chunks_mut(s)));
        let mut tasks: Vec<_> = parts
            .enumerate()
            .map(|(i, (values, (max, sum)))| (Forward { first: i * tile, values, max, sum }, Ok(())))
            .collect();
        pool::for_each_task(&mut tasks, |(task, result)| *result = task.run(of, &normed, (dim, s), wanted));
        tasks.into_iter().try_for_each(|(_, result)| result)?;
        let mut loss = 0.0;
        for (t, (top, total)) in whole.iter_mut().enumerate() {
            let column = || max[t..].iter().step_by(s).zip(sum[t..].iter().step_by(s));
            *top = column().fold(f32::NEG_INFINITY, |top, (max, _)| top.max(*max));
            *total = column().map(|(max, sum)| f64::from(*sum) * f64::from(max - *top).exp()).sum();
            // No number is hidden: a total that is not finite counts everywhere.
            if of.targets.get(t) == Some(&IGNORED) && total.is_finite() {
                continue;
            }
            let logit = f32::from_bits(wanted[t].load(Ordering::Relaxed));
            loss += total.ln() + f64::from(*top) - f64::from(logit);
        }
        Ok((loss / counted(of.targets).max(1) as f64) as f32)
    }

    /// The place of probabilities `[rows, s]` that a device computed, for
    /// [`Classifier::loss_of_probabilities`].
    pub fn probabilities(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// As [`Classifier::loss`], from [`Classifier::probabilities`]. The probability of a target may
    /// be too small for fp16; its loss then follows from logits, which `logits` writes to
    /// `[rows, s]`: `log Σexp` is the logit of the most probable class less the logarithm of its
    /// probability.
    ///
    /// # Errors
    /// Those of `logits`.
    pub fn loss_of_probabilities<E>(
        &mut self,
        targets: &[u32],
        logits: impl FnOnce(&mut [f32]) -> Result<(), E>,
    ) -> Result<f32, E> {
        let Classifier { s, values, max, whole, .. } = self;
        let s = *s;
        // To the backward pass they are exponentials of one tile whose sum is 1.
        max.fill(0.0);
        whole.fill((0.0, 1.0));
        let of = |t: usize, target: u32| values.get(target as usize * s + t).copied().unwrap_or(f32::NAN);
        let (mut loss, mut small) = (0.0, Vec::new());
        for (t, &target) in targets.iter().enumerate().take(s) {
            let p = of(t, if target == IGNORED { 0 } else { target });
            // No number is hidden: one that is not finite counts everywhere.
            if target == IGNORED && p.is_finite() {
                continue;
            }
            if p < SMALLEST {
                small.push((t, target));
            } else {
                loss -= f64::from(p).ln();
            }
        }
        if !small.is_empty() {
            let mut all = vec![0.0; values.len()];
            logits(&mut all)?;
            for (t, target) in small {
                let column = values[t..].iter().step_by(s).enumerate();
                let (top, p) = column.fold((0, 0.0), |best, (row, p)| if *p > best.1 { (row, *p) } else { best });
                let logit = |row: usize| f64::from(all[row * s + t]);
                loss += logit(top) - f64::from(p).ln() - logit(target as usize);
            }
        }
        Ok((loss / counted(targets).max(1) as f64) as f32)
    }

    /// Gradients of the loss of the preceding [`Classifier::loss`], times `scale` and the share of
    /// the targets that count. Overwrites `dx` `[dim, s]`. Adds to the rows of the vocabulary in
    /// `gradient`, if any, or overwrites them for the first window of an accumulation.
    ///
    /// # Errors
    /// As [`Classifier::loss`].
    pub fn backward(
        &mut self,
        of: Operands<'_>,
        scale: f32,
        dx: &mut [f32],
        gradient: Option<&mut [f32]>,
        vocabulary: &Compaction,
        first: bool,
    ) -> Result<(), GemmError> {
        let Classifier { s, dim, rows, tile, per_group, values, max, sum, whole, groups, panels, .. } = self;
        let (s, dim, rows, tile, per_group) = (*s, *dim, *rows, *tile, *per_group);
        for (max, sum) in max.chunks_exact(s).zip(sum.chunks_exact_mut(s)) {
            for (((factor, max), (top, total)), target) in sum.iter_mut().zip(max).zip(&*whole).zip(of.targets) {
                if *target == IGNORED {
                    *factor = 0.0;
                    continue;
                }
                *factor = (f64::from(max - top).exp() * f64::from(scale) / (total * s as f64)) as f32;
            }
        }
        let normed = BlockColumns::pack(Operand::F32(View::row_major(of.normed, dim, s)?).t(), panels)?;
        let ids = (!vocabulary.is_identity()).then(|| vocabulary.compact_to_full());
        let mut tasks = Vec::with_capacity(groups.len());
        let (mut rest, mut base) = (gradient, 0);
        let parts = values.chunks_mut(per_group * tile * s).zip(sum.chunks(per_group * s)).zip(groups.iter_mut());
        for (i, ((values, factors), group)) in parts.enumerate() {
            let (from, to) = (i * per_group * tile, rows.min((i + 1) * per_group * tile));
            // Ids ascend, so the groups own consecutive parts of the gradient.
            let (begin, end) = match ids {
                None => (from, to),
                Some(ids) => (ids[from] as usize, ids[to - 1] as usize + 1),
            };
            let mine = rest.take().map(|all| {
                let (mine, others) = all[(begin - base) * dim..].split_at_mut((end - begin) * dim);
                (rest, base) = (Some(others), end);
                mine
            });
            if ids.is_some() && mine.is_some() {
                group.dw.resize(tile * dim, 0.0);
            }
            tasks.push((Backward { first: from, values, factors, group, gradient: mine, base: begin }, Ok(())));
        }
        pool::for_each_task(&mut tasks, |(task, result)| {
            *result = task.run(of, &normed, (dim, s, tile), scale / s as f32, ids, first);
        });
        tasks.into_iter().try_for_each(|(_, result)| result)?;
        pool::for_each_chunk_mut(dx, GRAIN, |task, dx| {
            for (i, group) in groups.iter().enumerate() {
                let part = &group.dx[task * GRAIN..][..dx.len()];
                simd::dispatch(
                    #[inline(always)]
                    || match i {
                        0 => dx.copy_from_slice(part),
                        _ => dx.iter_mut().zip(part).for_each(|(a, b)| *a += b),
                    },
                );
            }
        });
        Ok(())
    }
}

impl Forward<'_> {
    fn run(
        &mut self,
        of: Operands<'_>,
        normed: &BlockColumns<'_>,
        (dim, s): (usize, usize),
        wanted: &[AtomicU32],
    ) -> Result<(), GemmError> {
        let rows = self.values.len() / s;
        let weights = of.weights.get(self.first * dim..).unwrap_or_default();
        let lhs = Operand::F32(View::row_major(weights, rows, dim)?);
        gemm_blocks(lhs, normed, Output::F32(ViewMut::row_major(self.values, rows, s)?), BLOCKS)?;
        for (t, wanted) in wanted.iter().enumerate().take(of.targets.len()) {
            let row = (of.targets[t] as usize).wrapping_sub(self.first);
            if row < rows {
                wanted.store(self.values[row * s + t].to_bits(), Ordering::Relaxed);
            }
        }
        let (values, max, sum) = (&mut *self.values, &mut self.max[..s], &mut self.sum[..s]);
        simd::dispatch(
            #[inline(always)]
            || {
                max.fill(f32::NEG_INFINITY);
                sum.fill(0.0);
                for row in values.chunks_exact(s) {
                    for (max, v) in max.iter_mut().zip(row) {
                        *max = if *v > *max { *v } else { *max };
                    }
                }
                for row in values.chunks_exact_mut(s) {
                    for ((v, max), sum) in row.iter_mut().zip(&*max).zip(&mut *sum) {
                        *v = simd::exp(*v - max);
                        *sum += *v;
                    }
                }
            },
        );
        Ok(())
    }
}

impl Backward<'_> {
    fn run(
        &mut self,
        of: Operands<'_>,
        normed: &BlockColumns<'_>,
        (dim, s, tile): (usize, usize, usize),
        target: f32,
        ids: Option<&[u32]>,
        first: bool,
    ) -> Result<(), GemmError> {
        let Backward { first: begin, values, factors, group, gradient, base } = self;
        for (i, (values, factor)) in values.chunks_mut(tile * s).zip(factors.chunks(s)).enumerate() {
            let (row, rows) = (*begin + i * tile, values.len() / s);
            simd::dispatch(
                #[inline(always)]
                || {
                    for row in values.chunks_exact_mut(s) {
                        row.iter_mut().zip(factor).for_each(|(v, factor)| *v *= factor);
                    }
                },
            );
            for (t, &id) in of.targets.iter().enumerate() {
                let place = (id as usize).wrapping_sub(row);
                if place < rows {
                    values[place * s + t] -= target;
                }
            }
            let weights = of.weights.get(row * dim..).unwrap_or_default();
            let weights = Operand::F32(View::row_major(weights, rows, dim)?).t();
            let d = Operand::F32(View::row_major(values, rows, s)?);
            let dx = Output::F32(ViewMut::row_major(&mut group.dx, dim, s)?);
            gemm(weights, d, dx, Epilogue { accumulate: i > 0, ..BLOCKS })?;
            let Some(gradient) = gradient.as_deref_mut() else { continue };
            let Some(ids) = ids else {
                let rows_of = &mut gradient[i * tile * dim..];
                let out = Output::F32(ViewMut::row_major(rows_of, rows, dim)?);
                gemm_blocks(d, normed, out, Epilogue { accumulate: !first, ..BLOCKS })?;
                continue;
            };
            gemm_blocks(d, normed, Output::F32(ViewMut::row_major(&mut group.dw, rows, dim)?), BLOCKS)?;
            for (&id, from) in ids[row..row + rows].iter().zip(group.dw.chunks_exact(dim)) {
                let to = &mut gradient[(id as usize - *base) * dim..][..dim];
                simd::dispatch(
                    #[inline(always)]
                    || match first {
                        true => to.copy_from_slice(from),
                        false => to.iter_mut().zip(from).for_each(|(a, b)| *a += b),
                    },
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(n: usize, seed: u64) -> Vec<f32> {
        let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..n).map(|_| next()).collect()
    }

    /// Loss, gradient of the stream and gradient of the rows, in f64 from the definition.
    fn exact(of: Operands<'_>, rows: usize, dim: usize, scale: f64) -> (f64, Vec<f64>, Vec<f64>) {
        let s = of.targets.len();
        let (mut loss, mut dx, mut dw) = (0.0, vec![0.0; dim * s], vec![0.0; rows * dim]);
        for t in 0..s {
            let x = |c: usize| f64::from(of.normed[c * s + t]);
            let logits: Vec<f64> =
                (0..rows).map(|r| (0..dim).map(|c| f64::from(of.weights[r * dim + c]) * x(c)).sum()).collect();
            let top = logits.iter().fold(f64::MIN, |a, b| a.max(*b));
            let z: f64 = logits.iter().map(|l| (l - top).exp()).sum();
            let target = of.targets[t] as usize;
            loss += z.ln() + top - logits[target];
            for r in 0..rows {
                let d = ((logits[r] - top).exp() / z - f64::from(u8::from(r == target))) * scale / s as f64;
                for c in 0..dim {
                    dx[c * s + t] += d * f64::from(of.weights[r * dim + c]);
                    dw[r * dim + c] += d * x(c);
                }
            }
        }
        (loss / s as f64, dx, dw)
    }

    fn near(found: &[f32], want: &[f64], what: &str) {
        // Sums of some hundred fp32 products; the tolerance is relative to the largest value.
        let size = want.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        for (i, (f, w)) in found.iter().zip(want).enumerate() {
            assert!((f64::from(*f) - w).abs() < 2e-5 * size, "{what} {i}: {f} and {w} of {size}");
        }
    }

    #[test]
    fn loss_and_gradients_match_f64_over_tiles_and_groups() {
        // 700 rows of 37 tokens are one tile; 4000 of 37 five tiles; 5000 of 300 many tiles and
        // full groups.
        for (rows, dim, s) in [(700, 24, 37), (4000, 8, 37), (5000, 8, 300), (3, 8, 1)] {
            let (weights, normed) =
                (noise(rows * dim, 3), noise(dim * s, 4).iter().map(|x| 9.0 * x).collect::<Vec<_>>());
            let targets: Vec<u32> = (0..s as u32).map(|t| t * 1717 % rows as u32).collect();
            let of = Operands { weights: &weights, normed: &normed, targets: &targets };
            let (loss, want_dx, want_dw) = exact(of, rows, dim, 64.0);
            // Compact: rows 2, 5, 8, … of a model of a little more than three times the size.
            for vocabulary in
                [Compaction::disabled(rows), Compaction::used((0..rows as u32).map(|i| 3 * i + 2), 3 * rows + 2)]
            {
                let mut classifier = Classifier::new(rows, dim, s);
                let (mut dx, mut dw) = (vec![9.0; dim * s], vec![5.0; vocabulary.vocabulary() * dim]);
                for first in [true, false] {
                    let found = classifier.loss(of).unwrap();
                    assert!((f64::from(found) - loss).abs() < 1e-5 * loss, "{found} and {loss}");
                    classifier.backward(of, 64.0, &mut dx, Some(&mut dw), &vocabulary, first).unwrap();
                    near(&dx, &want_dx, "dx");
                    let times = if first { 1.0 } else { 2.0 };
                    let want: Vec<f64> = want_dw.iter().map(|w| times * w).collect();
                    let compact = vocabulary.compact_to_full().iter();
                    let found: Vec<f32> = compact.flat_map(|&id| &dw[id as usize * dim..][..dim]).copied().collect();
                    near(&found, &want, "dw");
                }
                // Rows outside the vocabulary are unchanged.
                if !vocabulary.is_identity() {
                    assert!(dw[..2 * dim].iter().all(|v| *v == 5.0) && dw[3 * dim..5 * dim].iter().all(|v| *v == 5.0));
                }
            }
        }
    }

    /// Probabilities as a device returns them, some of which fp16 cannot hold.
    #[test]
    fn probabilities_of_a_device_give_loss_and_gradients() {
        use ferrane_host::f16;
        let (rows, dim, s) = (700, 24, 37);
        let weights = noise(rows * dim, 3);
        let normed: Vec<f32> = noise(dim * s, 4).iter().map(|x| 9.0 * x).collect();
        let mut targets: Vec<u32> = (0..s as u32).map(|t| t * 171 % rows as u32).collect();
        let full = Compaction::disabled(rows);
        let mut exact = Classifier::new(rows, dim, s);
        let logits: Vec<f32> =
            (0..rows * s).map(|i| (0..dim).map(|c| weights[i / s * dim + c] * normed[c * s + i % s]).sum()).collect();
        let mut probs = vec![0.0; rows * s];
        for t in 0..s {
            let column = |r: usize| f64::from(logits[r * s + t]);
            let sum: f64 = (0..rows).map(|r| column(r).exp()).sum();
            (0..rows).for_each(|r| probs[r * s + t] = f16::from_f64(column(r).exp() / sum).to_f32());
        }
        assert!(targets.iter().enumerate().any(|(t, target)| probs[*target as usize * s + t] == 0.0));
        for ignored in [None, Some(3)] {
            if let Some(t) = ignored {
                targets[t] = IGNORED;
            }
            let of = Operands { weights: &weights, normed: &normed, targets: &targets };
            let mut found = Classifier::new(rows, dim, s);
            let run = |classifier: &mut Classifier, probs: Option<&[f32]>| {
                let loss = match probs {
                    None => classifier.loss(of).unwrap(),
                    Some(probs) => {
                        classifier.probabilities().copy_from_slice(probs);
                        let write = |to: &mut [f32]| {
                            to.copy_from_slice(&logits);
                            Ok::<_, ()>(())
                        };
                        classifier.loss_of_probabilities(&targets, write).unwrap()
                    }
                };
                let (mut dx, mut dw) = (vec![0.0; dim * s], vec![0.0; rows * dim]);
                classifier.backward(of, 64.0, &mut dx, Some(&mut dw), &full, true).unwrap();
                (loss, dx, dw)
            };
            let want = run(&mut exact, None);
            let got = run(&mut found, Some(&probs));
            assert!((got.0 / want.0 - 1.0).abs() < 1e-3, "{} and {}", got.0, want.0);
            for (got, want) in [(&got.1, &want.1), (&got.2, &want.2)] {
                let size = want.iter().fold(0.0f32, |m, v| m.max(v.abs()));
                // Probabilities are rounded by up to 2⁻¹¹ of themselves.
                assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 2e-3 * size));
            }
            // The softmax of numbers that are not finite shows, even where the target does not
            // count.
            let mut bad = probs.clone();
            bad[3..].iter_mut().step_by(s).for_each(|p| *p = f32::NAN);
            assert!(run(&mut found, Some(&bad)).0.is_nan());
        }
    }

    #[test]
    fn the_same_bits_on_any_number_of_threads_and_no_number_is_hidden() {
        let (rows, dim, s) = (3000, 16, 128);
        let (weights, mut normed) = (noise(rows * dim, 3), noise(dim * s, 4));
        let targets: Vec<u32> = (0..s as u32).map(|t| t * 17).collect();
        let full = Compaction::disabled(rows);
        let run = |normed: &[f32], threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let (mut dx, mut dw) = (vec![0.0; dim * s], vec![0.0; rows * dim]);
            let of = Operands { weights: &weights, normed, targets: &targets };
            let loss = pool.install(|| {
                let mut classifier = Classifier::new(rows, dim, s);
                let loss = classifier.loss(of).unwrap();
                classifier.backward(of, 8.0, &mut dx, Some(&mut dw), &full, true).unwrap();
                loss
            });
            (loss, dx, dw)
        };
        let one = run(&normed, 1);
        assert!(one == run(&normed, 2) && one == run(&normed, 3));
        for bad in [f32::NAN, f32::INFINITY] {
            normed[5] = bad;
            assert!(!run(&normed, 2).0.is_finite());
        }
    }
}
