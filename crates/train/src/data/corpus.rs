//! All training data of a run: sets of ids, and the windows that are drawn from them.

use std::path::PathBuf;

use ferrane_llm::random::Rng;
use sha2::{Digest as _, Sha256};

use super::{DataEvent, DataSet, Error, Ids, Source, Split, set};

/// One or several sets of ids. Clones share the data.
#[derive(Debug, Clone)]
pub struct Corpus {
    sets: Vec<Set>,
}

#[derive(Debug, Clone)]
struct Set {
    path: PathBuf,
    ids: Ids,
    weight: Option<f64>,
}

/// Where a window is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// Index of the set.
    pub set: usize,
    /// Position of its first id in the set.
    pub start: usize,
}

impl From<Ids> for Corpus {
    fn from(ids: Ids) -> Corpus {
        Corpus { sets: vec![Set { path: PathBuf::new(), ids, weight: None }] }
    }
}

impl Corpus {
    /// Opens sets of data, each like [`Ids::open_with`].
    ///
    /// # Errors
    /// As [`Ids::open`]; [`Error::Weight`], [`Error::NoWeight`]; [`Error::NoSet`] without any set.
    pub fn open(sets: &[DataSet], source: &Source<'_>, listen: &mut dyn FnMut(&DataEvent)) -> Result<Corpus, Error> {
        set::check(sets)?;
        if sets.is_empty() {
            return Err(Error::NoSet);
        }
        let mut open = |set: &DataSet| {
            let ids = Ids::open_with(&set.path, source, listen)?;
            Ok(Set { path: set.path.clone(), ids, weight: set.weight })
        };
        Ok(Corpus { sets: sets.iter().map(&mut open).collect::<Result<_, Error>>()? })
    }

    /// The number of ids of all sets.
    pub fn len(&self) -> usize {
        self.sets.iter().map(|set| set.ids.len()).sum()
    }

    /// Whether there are no ids.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All ids, set after set.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.sets.iter().flat_map(|set| set.ids.iter())
    }

    /// The window at `position`: `seq + 1` ids.
    ///
    /// # Errors
    /// As [`Ids::window`].
    pub fn window(&self, position: Position, seq: usize) -> Result<Vec<u32>, Error> {
        self.sets.get(position.set).ok_or(Error::NoSet)?.ids.window(position.start, seq)
    }

    /// The inputs and targets of the window at `position`, `seq` of each ([`Ids::sample`]).
    ///
    /// # Errors
    /// As [`Ids::window`].
    pub fn sample(&self, position: Position, seq: usize) -> Result<(Vec<u32>, Vec<u32>), Error> {
        self.sets.get(position.set).ok_or(Error::NoSet)?.ids.sample(position.start, seq)
    }

    /// SHA-256 of all that determines what is drawn: for one set its [`Ids::digest`], for several
    /// the hashes and weights of all.
    pub fn digest(&self) -> [u8; 32] {
        if let [set] = self.sets.as_slice() {
            return set.ids.digest();
        }
        let mut hash = Sha256::new();
        for set in &self.sets {
            hash.update(set.ids.digest());
            // No weight is NaN.
            hash.update(set.weight.unwrap_or(f64::NAN).to_le_bytes());
        }
        hash.finalize().into()
    }

    /// The windows of `seq` + 1 ids, with each set split after the share `train` of it
    /// ([`Split::new`]).
    ///
    /// # Errors
    /// [`Error::TooShort`], of several sets in [`Error::InSet`].
    pub fn windows(&self, train: f64, seq: usize) -> Result<Windows, Error> {
        let split = |set: &Set| Split::new(set.ids.len(), train, seq).map_err(|e| self.in_set(set, e));
        let splits = self.sets.iter().map(split).collect::<Result<Vec<_>, Error>>()?;
        Ok(Windows { shares: self.shares(splits.iter().map(|split| split.positions(seq))), splits, seq })
    }

    /// The positions of `count` evenly spaced windows of `seq` + 1 ids; if `count` is 0, of all
    /// windows that fit without overlap. Several sets share `count` by their weights.
    ///
    /// # Errors
    /// [`Error::NoWindow`], of several sets in [`Error::InSet`].
    pub fn evaluation(&self, seq: usize, count: usize) -> Result<Vec<Position>, Error> {
        let counts = self.shares(self.sets.iter().map(|set| set.ids.len())).divide(count);
        let mut positions = Vec::new();
        for (index, (set, share)) in self.sets.iter().zip(counts).enumerate() {
            if count > 0 && share == 0 {
                continue;
            }
            let starts = Split::evaluation(set.ids.len(), seq, share).map_err(|e| self.in_set(set, e))?;
            positions.extend(starts.into_iter().map(|start| Position { set: index, start }));
        }
        Ok(positions)
    }

    fn in_set(&self, set: &Set, error: Error) -> Error {
        match self.sets.len() {
            1 => error,
            _ => Error::InSet { path: set.path.clone(), source: Box::new(error) },
        }
    }

    /// By weight if the sets have weights, else by `sizes`.
    fn shares(&self, sizes: impl Iterator<Item = usize>) -> Shares {
        let weights: Option<Vec<f64>> = self.sets.iter().map(|set| set.weight).collect();
        match weights {
            Some(weights) if weights.len() > 1 => Shares::of(&weights),
            _ => Shares { ends: ends(sizes.map(|size| size as u64)), by_size: true },
        }
    }
}

/// How draws are shared among sets: a number below the last end belongs to the first set whose end
/// is above it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shares {
    ends: Vec<u64>,
    /// Whether the number is also the position in all sets.
    by_size: bool,
}

/// Sum of the shares of weighted sets. It is far finer than a `f64` needs, and sums are exact.
const TICKETS: f64 = (1u64 << 48) as f64;

fn ends(sizes: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut end = 0;
    sizes
        .map(|size| {
            end += size;
            end
        })
        .collect()
}

impl Shares {
    fn of(weights: &[f64]) -> Shares {
        // Dividing by the largest first keeps the sum finite.
        let largest = weights.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let sum: f64 = weights.iter().map(|weight| weight / largest).sum();
        let tickets = |weight: &f64| ((weight / largest / sum * TICKETS) as u64).max(1);
        Shares { ends: ends(weights.iter().map(tickets)), by_size: false }
    }

    fn total(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The set that a number below the total belongs to, and where in its share it is.
    fn locate(&self, number: u64) -> (usize, u64) {
        let set = self.ends.partition_point(|end| *end <= number).min(self.ends.len().saturating_sub(1));
        let start = if set == 0 { 0 } else { self.ends[set - 1] };
        (set, number - start)
    }

    /// Divides `count` among the sets by the largest remainder; equal ones go to the first.
    fn divide(&self, count: usize) -> Vec<usize> {
        let total = u128::from(self.total().max(1));
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        let exact: Vec<u128> =
            self.ends.iter().zip(starts).map(|(end, start)| u128::from(end - start) * count as u128).collect();
        let mut counts: Vec<usize> = exact.iter().map(|n| (n / total) as usize).collect();
        let mut order: Vec<usize> = (0..exact.len()).collect();
        order.sort_by_key(|set| std::cmp::Reverse(exact[*set] % total));
        let rest = count.saturating_sub(counts.iter().sum());
        order.into_iter().take(rest).for_each(|set| counts[set] += 1);
        counts
    }
}

/// The windows of a corpus: where those of training begin, and those of validation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windows {
    splits: Vec<Split>,
    shares: Shares,
    seq: usize,
}

impl Windows {
    /// Draws a training window: with weights first its set, then its position; without weights one
    /// of all positions.
    pub(super) fn draw(&self, rng: &mut Rng) -> Position {
        let (set, offset) = self.shares.locate(rng.below(self.shares.total()));
        let split = &self.splits[set];
        let offset = if self.shares.by_size { offset } else { rng.below(split.positions(self.seq) as u64) };
        Position { set, start: split.train.start + offset as usize }
    }

    /// At most `count` evenly spaced validation windows ([`Split::windows`]). Several sets share
    /// them as they share the draws.
    pub fn validation(&self, count: usize) -> Vec<Position> {
        let of = |(set, (split, share)): (usize, (&Split, usize))| {
            split.windows(share, self.seq).into_iter().map(move |start| Position { set, start })
        };
        self.splits.iter().zip(self.shares.divide(count)).enumerate().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_divided_by_the_largest_remainder() {
        let by_size = |sizes: &[u64]| Shares { ends: ends(sizes.iter().copied()), by_size: true };
        assert_eq!(by_size(&[5, 3, 2]).divide(10), [5, 3, 2]);
        assert_eq!(by_size(&[1, 1, 1]).divide(2), [1, 1, 0]);
        assert_eq!(by_size(&[97, 3]).divide(10), [10, 0]);
        assert_eq!(by_size(&[7]).divide(64), [64]);
        let weighted = Shares::of(&[2.0, 1.0, 1.0]);
        assert_eq!((weighted.divide(8), weighted.total()), (vec![4, 2, 2], 1 << 48));
        assert_eq!(Shares::of(&[f64::MAX, f64::MAX]).divide(4), [2, 2]);
        assert_eq!(Shares::of(&[1e300, 1e-300]).divide(4), [4, 0]);
    }

    #[test]
    fn numbers_are_located() {
        let shares = Shares { ends: vec![3, 3, 5], by_size: true };
        let found: Vec<_> = (0..5).map(|number| shares.locate(number)).collect();
        assert_eq!(found, [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1)]);
    }
}
