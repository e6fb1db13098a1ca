//! Moments that ranks divide among themselves, which is called ZeRO stage 1.
//!
//! AdamW computes every value on its own, so a rank that holds the moments of some values can
//! update these, and gets the others from the ranks that hold theirs. The values of a model, in the
//! order of [`Slot::list`], are cut into one range for each rank; cuts are between rows.

use std::ops::Range;

use ferrane_llm::config::Config;
use ferrane_llm::weights::{Slot, Weights};

use super::row_size;

/// The moments of a part of a model's values.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shard {
    /// The values of each tensor whose moments are here.
    tensors: Vec<Range<usize>>,
    m: Vec<f32>,
    v: Vec<f32>,
}

/// Both moments of the values of a tensor in a range.
pub(super) type TensorMoments<'a> = (Range<usize>, &'a mut [f32], &'a mut [f32]);

impl Shard {
    /// Copies the moments of the values in `range`.
    pub(super) fn of(config: &Config, m: &Weights, v: &Weights, range: Range<usize>) -> Shard {
        let (mut tensors, mut at) = (Vec::new(), 0);
        for size in sizes(config).map(|(size, _)| size) {
            let clip = |end: usize| end.clamp(at, at + size) - at;
            tensors.push(clip(range.start)..clip(range.end));
            at += size;
        }
        let copy = |all: &Weights| {
            let (mut values, mut at) = (vec![0.0; range.len()], 0);
            for (tensor, part) in all.tensors(config).into_iter().zip(&tensors) {
                let (from, to) = (&tensor.data[part.clone()], &mut values[at..at + part.len()]);
                // Memory of zeros that nothing was written to takes no pages.
                if from.iter().any(|value| *value != 0.0) {
                    to.copy_from_slice(from);
                }
                at += part.len();
            }
            values
        };
        let (m, v) = (copy(m), copy(v));
        Shard { tensors, m, v }
    }

    /// First and second moments, in the order of the values.
    pub(super) fn values(&self) -> [&[f32]; 2] {
        [&self.m, &self.v]
    }

    /// For each tensor the values that this part has, and their moments.
    pub(super) fn tensors_mut(&mut self) -> Vec<TensorMoments<'_>> {
        let (mut m, mut v) = (self.m.as_mut_slice(), self.v.as_mut_slice());
        let cut = |range: &Range<usize>| {
            let (of_m, of_v) = (m.split_off_mut(..range.len()), v.split_off_mut(..range.len()));
            (range.clone(), of_m.unwrap_or_default(), of_v.unwrap_or_default())
        };
        self.tensors.iter().map(cut).collect()
    }
}

/// Size of each tensor and of its rows.
fn sizes(config: &Config) -> impl Iterator<Item = (usize, usize)> {
    Slot::list(config).into_iter().map(|slot| {
        let shape = slot.shape(config);
        (shape.iter().product(), row_size(&shape))
    })
}

/// Cuts the values of a model into `parts` ranges of nearly equal size, which begin and end between
/// rows of matrices.
pub(crate) fn cuts(config: &Config, parts: usize) -> Vec<Range<usize>> {
    let whole: usize = sizes(config).map(|(size, _)| size).sum();
    let cut = |index: usize| {
        let (wanted, mut at) = ((whole as u128 * index as u128 / parts as u128) as usize, 0);
        for (size, row) in sizes(config) {
            if wanted < at + size {
                return at + (wanted - at) / row * row;
            }
            at += size;
        }
        whole
    };
    (0..parts).map(|index| cut(index)..cut(index + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrane_llm::config::preset;
    use ferrane_llm::weights::Init;

    #[test]
    fn parts_cover_all_values_once_and_cut_between_rows() {
        let config = Config { qkv_bias: true, tied: false, ..preset("stories260k").unwrap() };
        let draw = |seed| Weights::init(&config, Init::Normal { std: 0.1 }, seed);
        let (m, v) = (draw(1), draw(2));
        let flat = |w: &Weights| w.tensors(&config).into_iter().flat_map(|t| t.data.to_vec()).collect::<Vec<f32>>();
        let (all_m, all_v) = (flat(&m), flat(&v));
        for parts in [1, 2, 3, 7, 64, 5000] {
            let (cuts, mut at) = (cuts(&config, parts), 0);
            for range in &cuts {
                assert_eq!(range.start, at);
                at = range.end;
                // A row of the largest matrix at most is moved to another part.
                assert!(range.len().abs_diff(all_m.len() / parts) <= 2 * 512, "{parts}: {range:?}");
            }
            assert_eq!((at, cuts.len()), (all_m.len(), parts));
            for range in cuts.iter().step_by(parts.div_ceil(7)) {
                let mut shard = Shard::of(&config, &m, &v, range.clone());
                assert_eq!(shard.values(), [&all_m[range.clone()], &all_v[range.clone()]]);
                let (tensors, mut length) = (shard.tensors_mut(), 0);
                for ((part, of_m, of_v), (tensor, row)) in
                    tensors.iter().zip(m.tensors(&config).iter().zip(sizes(&config).map(|s| s.1)))
                {
                    assert!(part.start % row == 0 && part.end % row == 0);
                    assert_eq!((&tensor.data[part.clone()], part.len()), (&**of_m, of_v.len()));
                    length += part.len();
                }
                assert_eq!((tensors.len(), length), (Slot::list(&config).len(), range.len()));
            }
        }
    }
}
