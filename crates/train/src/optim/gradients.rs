//! The gradients of an accumulation, and the rows of embedding and classifier that training has
//! reached.
//!
//! Two rules save passes over memory. *Empty* gradients are not zeroed: the first contribution
//! overwrites instead of adding. And only some rows of the embedding and the classifier ever
//! receive a gradient (those of the compact vocabulary, and of input tokens): a set of rows records
//! which, and norm and optimizer skip the others.

use std::ops::Range;

use ferrane_host::pool;
use ferrane_llm::config::Config;
use ferrane_llm::weights::{Error, Layer, Part, Slot, Weights};

use super::shard::{Shard, TensorMoments};
use super::{CHUNK, Frozen};
use crate::lora::Adapters;

/// A set of rows of the embedding and the classifier, by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowSet(Vec<bool>);

impl RowSet {
    /// The empty set of a table of `rows` rows.
    pub fn none(rows: usize) -> RowSet {
        RowSet(vec![false; rows])
    }

    /// The set of the rows `ids` in a table of `rows` rows; ids of `rows` or more are ignored.
    pub fn of(rows: usize, ids: &[u32]) -> RowSet {
        let mut set = RowSet::none(rows);
        set.add(ids);
        set
    }

    /// The rows that have a nonzero value in either table.
    fn not_zero(config: &Config, weights: &Weights) -> RowSet {
        let mut set = RowSet::none(config.vocab);
        let tables = [Some(&weights.embed), weights.classifier.as_ref()];
        for table in tables.into_iter().flatten() {
            for (row, there) in table.chunks_exact(config.dim.max(1)).zip(&mut set.0) {
                *there |= row.iter().any(|v| *v != 0.0);
            }
        }
        set
    }

    /// Adds the rows of a range; those beyond the table are ignored.
    pub(crate) fn add_run(&mut self, run: Range<usize>) {
        let end = run.end.min(self.0.len());
        self.0[run.start.min(end)..end].fill(true);
    }

    fn add(&mut self, ids: &[u32]) {
        for &id in ids {
            if let Some(there) = self.0.get_mut(id as usize) {
                *there = true;
            }
        }
    }

    /// Adds the rows of another set.
    pub fn join(&mut self, other: &RowSet) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }

    /// Whether `row` is in the set.
    pub fn contains(&self, row: usize) -> bool {
        self.0.get(row).copied().unwrap_or(false)
    }

    /// Number of rows in the set.
    pub fn count(&self) -> usize {
        self.0.iter().filter(|there| **there).count()
    }

    /// Splits `range` into runs of rows that are all in the set or all outside it.
    pub fn runs(&self, range: Range<usize>) -> impl Iterator<Item = (Range<usize>, bool)> + '_ {
        let mut at = range.start;
        std::iter::from_fn(move || {
            let begin = at;
            let there = (begin < range.end).then(|| self.contains(begin))?;
            while at < range.end && self.contains(at) == there {
                at += 1;
            }
            Some((begin..at, there))
        })
    }
}

/// Whether a tensor has a row for each id.
pub(super) fn is_table(slot: Slot) -> bool {
    matches!(slot, Slot::Embed | Slot::Classifier)
}

/// Zeroes the rows of a table that `which` selects.
fn zero_rows(table: &mut [f32], dim: usize, which: impl Fn(usize) -> bool) {
    let rows = table.chunks_exact_mut(dim.max(1)).enumerate();
    rows.filter(|(row, _)| which(*row)).for_each(|(_, values)| values.fill(0.0));
}

/// Sums of the gradients of an accumulation.
#[derive(Debug, Clone)]
pub struct Gradients {
    values: Weights,
    /// True until the first contribution after the start or [`Gradients::clear`]; the values are
    /// stale then.
    empty: bool,
    reached: RowSet,
    /// Tensors that are not trained. The values have none of their matrices.
    frozen: Frozen,
    /// Adapters, which are trained instead of the weights; the values then have no matrices.
    adapters: Option<AdapterGradients>,
}

/// Adapters and the sums of their gradients.
#[derive(Debug, Clone)]
struct AdapterGradients {
    values: Adapters,
    sums: Adapters,
}

/// The sums of gradients, for an engine that adds to them.
pub(crate) struct Sums<'a> {
    /// Tensors without values get no gradient.
    pub weights: &'a mut Weights,
    /// Adapters and the sums of their gradients, if adapters are trained.
    pub adapters: Option<(&'a Adapters, &'a mut Adapters)>,
}

impl Gradients {
    /// Empty gradients of adapters. Of the model they hold only norms and biases, whose gradients
    /// the backward pass computes in passing; no optimizer reads them.
    pub fn of_adapters(config: &Config, values: Adapters) -> Gradients {
        let mut sums = values.clone();
        sums.values_mut().for_each(|values| values.fill(0.0));
        let mut gradients = Gradients::new(config);
        let Weights { embed, layers, classifier, .. } = &mut gradients.values;
        for layer in layers {
            let Layer { wq, wk, wv, wo, w1, w3, w2, .. } = layer;
            [wq, wk, wv, wo, w1, w3, w2].into_iter().for_each(|matrix| *matrix = Vec::new());
        }
        [Some(embed), classifier.as_mut()].into_iter().flatten().for_each(|table| *table = Vec::new());
        Gradients { adapters: Some(AdapterGradients { values, sums }), ..gradients }
    }

    /// The adapters that are trained, if any.
    pub fn adapters(&self) -> Option<&Adapters> {
        self.adapters.as_ref().map(|of| &of.values)
    }

    /// The sums of the adapters' gradients; `None` while they are empty, and without adapters.
    pub fn adapter_sums(&self) -> Option<&Adapters> {
        self.adapters.as_ref().filter(|_| !self.empty).map(|of| &of.sums)
    }

    /// The adapters, for an update, with the sums of their gradients; without any contribution
    /// these are zero.
    pub(crate) fn update_adapters(&mut self) -> Option<(&mut Adapters, &Adapters)> {
        let empty = self.empty;
        self.adapters.as_mut().map(|AdapterGradients { values, sums }| {
            if empty {
                sums.values_mut().for_each(|values| values.fill(0.0));
            }
            (values, &*sums)
        })
    }

    /// Adapters and their sums, for adding to them, and whether this is the first contribution.
    pub(crate) fn begin_adapters(&mut self) -> Option<(&Adapters, &mut Adapters, bool)> {
        let AdapterGradients { values, sums } = self.adapters.as_mut()?;
        Some((values, sums, std::mem::replace(&mut self.empty, false)))
    }

    /// Empty gradients of a model.
    pub fn new(config: &Config) -> Gradients {
        let (values, reached) = (Weights::zeros(config), RowSet::none(config.vocab));
        Gradients { values, empty: true, reached, frozen: Frozen::default(), adapters: None }
    }

    /// Empty gradients of a model whose frozen matrices and tables have none. Norms and biases have
    /// a gradient in any case, because the backward pass computes it in passing; of frozen ones no
    /// optimizer reads it.
    pub fn without(config: &Config, frozen: Frozen) -> Gradients {
        let mut gradients = Gradients::new(config);
        let slots = Slot::list(config).into_iter().enumerate().filter(|(index, _)| frozen.contains(*index));
        for (_, slot) in slots {
            let Weights { embed, layers, classifier, .. } = &mut gradients.values;
            let matrix = match slot {
                Slot::Embed => Some(embed),
                Slot::Classifier => classifier.as_mut(),
                Slot::Norm => None,
                Slot::Layer(index, part) => layers.get_mut(index).and_then(|layer| match part {
                    Part::Wq => Some(&mut layer.wq),
                    Part::Wk => Some(&mut layer.wk),
                    Part::Wv => Some(&mut layer.wv),
                    Part::Wo => Some(&mut layer.wo),
                    Part::W1 => Some(&mut layer.w1),
                    Part::W3 => Some(&mut layer.w3),
                    Part::W2 => Some(&mut layer.w2),
                    _ => None,
                }),
            };
            matrix.into_iter().for_each(|matrix| *matrix = Vec::new());
        }
        Gradients { frozen, ..gradients }
    }

    /// The tensors that are not trained.
    pub fn frozen(&self) -> &Frozen {
        &self.frozen
    }

    /// Adds gradients of all tensors to those that are not frozen.
    pub(crate) fn add(&mut self, config: &Config, whole: &Weights) {
        let sums = self.sums(config).tensors_mut(config);
        for (sum, part) in sums.into_iter().zip(whole.tensors(config)) {
            // Frozen matrices have no values.
            sum.data.iter_mut().zip(part.data).for_each(|(sum, part)| *sum += part);
        }
    }

    /// Empty gradients of the same tensors or adapters.
    pub(crate) fn another(&self) -> Gradients {
        Gradients { empty: true, ..self.clone() }
    }

    /// Makes the gradients empty for another part of the sum whose adapters are those of `first`.
    pub(crate) fn restart(&mut self, first: &Gradients) {
        self.empty = true;
        if let (Some(own), Some(first)) = (&mut self.adapters, &first.adapters) {
            own.values.clone_from(&first.values);
        }
    }

    /// Rows of the tables that have a gradient; none while the gradients are empty and the rows are
    /// stale.
    pub(crate) fn rows(&self) -> RowSet {
        if self.empty { RowSet::none(self.reached.0.len()) } else { self.reached.clone() }
    }

    /// Gives every trained value its meaning, zero if there is none, of the tables only in `rows`,
    /// to which those with a gradient must belong.
    pub(crate) fn settle(&mut self, config: &Config, rows: &RowSet) {
        let own = self.rows();
        if self.empty {
            self.values_mut(config, rows).into_iter().for_each(|values| values.fill(0.0));
            self.empty = false;
        } else {
            let new = RowSet(rows.0.iter().zip(&own.0).map(|(wanted, own)| *wanted && !own).collect());
            let Weights { embed, classifier, .. } = &mut self.values;
            for table in [Some(embed), classifier.as_mut()].into_iter().flatten() {
                zero_rows(table, config.dim, |row| new.contains(row));
            }
        }
        self.reached = rows.clone();
    }

    /// The sums of all trained values, of the tables only `rows`, in an order that depends on these
    /// alone.
    pub(crate) fn values_mut(&mut self, config: &Config, rows: &RowSet) -> Vec<&mut [f32]> {
        if let Some(adapters) = &mut self.adapters {
            return adapters.sums.values_mut().map(|values| &mut values[..]).collect();
        }
        let mut found: Vec<&mut [f32]> = Vec::new();
        let tensors = self.values.tensors_mut(config).into_iter().zip(Slot::list(config)).enumerate();
        for (_, (tensor, slot)) in tensors.filter(|(index, _)| !self.frozen.contains(*index)) {
            if !is_table(slot) {
                found.push(tensor.data);
                continue;
            }
            let (row, mut rest) = (config.dim.max(1), tensor.data);
            for (run, there) in rows.runs(0..rest.len() / row) {
                let (values, after) = rest.split_at_mut(run.len() * row);
                rest = after;
                if there {
                    found.push(values);
                }
            }
        }
        found
    }

    /// Adds the sums of another part; both may be empty.
    pub(crate) fn join(&mut self, config: &Config, other: &mut Gradients) {
        let mut rows = self.rows();
        rows.join(&other.rows());
        self.settle(config, &rows);
        other.settle(config, &rows);
        let (own, other) = (self.values_mut(config, &rows), other.values_mut(config, &rows));
        for (own, other) in own.into_iter().zip(other) {
            pool::for_each_chunk_mut(own, CHUNK, |task, own| {
                let other = &other[task * CHUNK..];
                own.iter_mut().zip(other).for_each(|(own, other)| *own += other);
            });
        }
    }

    /// Checks that every trained tensor has its size, and every frozen one its size or none.
    pub(super) fn check(&self, config: &Config) -> Result<(), Error> {
        if self.frozen.is_empty() {
            return self.values.check(config);
        }
        let tensors = self.values.tensors(config);
        let count = Slot::list(config).len();
        if tensors.len() != count {
            return Err(Error::Mismatch { name: "tensors".into(), expected: count, found: tensors.len() });
        }
        for (index, tensor) in tensors.into_iter().enumerate() {
            let (expected, found) = (tensor.shape.iter().product(), tensor.data.len());
            if found != expected && !(found == 0 && self.frozen.contains(index)) {
                return Err(Error::Mismatch { name: tensor.name, expected, found });
            }
        }
        Ok(())
    }

    /// Gradients with the given values.
    pub fn from_values(config: &Config, values: Weights) -> Gradients {
        let reached = RowSet::not_zero(config, &values);
        Gradients { values, empty: false, reached, frozen: Frozen::default(), adapters: None }
    }

    /// Whether there is no contribution yet.
    pub fn is_empty(&self) -> bool {
        self.empty
    }

    /// The sums; `None` while the gradients are empty.
    pub fn values(&self) -> Option<&Weights> {
        (!self.empty).then_some(&self.values)
    }

    /// Rows of the tables that may be nonzero.
    pub fn reached(&self) -> &RowSet {
        &self.reached
    }

    /// Makes the gradients empty, in constant time.
    pub fn clear(&mut self) {
        self.empty = true;
    }

    /// The sums, for adding to any value; zeroed if the gradients were empty.
    pub fn sums(&mut self, config: &Config) -> &mut Weights {
        if self.empty {
            let tensors = self.values.tensors_mut(config);
            let mut pieces: Vec<_> = tensors.into_iter().flat_map(|t| t.data.chunks_mut(CHUNK)).collect();
            pool::for_each_chunk_mut(&mut pieces, 1, |_, piece| piece[0].fill(0.0));
            self.empty = false;
        }
        self.reached.0.fill(true);
        &mut self.values
    }

    /// The sums, for an engine that contributes to every tensor, and whether this is the first
    /// contribution. If it is, the caller must overwrite all tensors except the tables; of the
    /// classifier's table it must overwrite the rows `overwritten`. All other rows that may be
    /// nonzero are zeroed here. The caller adds to the rows `inputs` of the embedding. After an
    /// error the sums are incomplete and must be cleared.
    pub(crate) fn begin(&mut self, dim: usize, inputs: &[u32], overwritten: &RowSet) -> (Sums<'_>, bool) {
        let first = std::mem::replace(&mut self.empty, false);
        self.reached.join(overwritten);
        self.reached.add(inputs);
        if first {
            let Weights { embed, classifier, .. } = &mut self.values;
            let zero = |table: &mut [f32], but: Option<&RowSet>| {
                let stale = |row: usize| self.reached.contains(row) && !but.is_some_and(|rows| rows.contains(row));
                zero_rows(table, dim, stale);
            };
            match classifier {
                Some(classifier) => {
                    zero(classifier, Some(overwritten));
                    zero(embed, None);
                }
                None => zero(embed, Some(overwritten)),
            }
        }
        let adapters = self.adapters.as_mut().map(|of| (&of.values, &mut of.sums));
        (Sums { weights: &mut self.values, adapters }, first)
    }
}

/// The optimizer's first and second moment of every weight, or, on one of several ranks, of a part
/// of them.
#[derive(Debug, Clone)]
pub struct Moments {
    m: Weights,
    v: Weights,
    /// Rows of the tables whose moments may be nonzero.
    reached: RowSet,
    /// The moments of a part of the weights, in place of `m` and `v`.
    shard: Option<Shard>,
}

/// Compares the values only.
impl PartialEq for Moments {
    fn eq(&self, other: &Self) -> bool {
        (&self.m, &self.v, &self.shard) == (&other.m, &other.v, &other.shard)
    }
}

impl Moments {
    /// Moments of zero, as before the first update.
    pub fn zeros(config: &Config) -> Self {
        Moments::of(Weights::zeros(config), Weights::zeros(config), RowSet::none(config.vocab))
    }

    /// Moments without tensors, for a run that trains no weights.
    pub fn none() -> Self {
        Moments::of(Weights::default(), Weights::default(), RowSet::default())
    }

    /// Moments with these values.
    pub fn new(config: &Config, m: Weights, v: Weights) -> Self {
        let mut reached = RowSet::not_zero(config, &m);
        reached.join(&RowSet::not_zero(config, &v));
        Moments::of(m, v, reached)
    }

    fn of(m: Weights, v: Weights, reached: RowSet) -> Self {
        Moments { m, v, reached, shard: None }
    }

    /// Keeps the moments of the values in `range` only, of all values in the order of
    /// [`Slot::list`]; the range begins and ends between rows.
    pub(crate) fn keep(&mut self, config: &Config, range: Range<usize>) {
        self.shard = Some(Shard::of(config, &self.m, &self.v, range));
        (self.m, self.v) = (Weights::default(), Weights::default());
    }

    /// First and second moments of a part of the weights, in the order of [`Slot::list`], if only
    /// these are here.
    pub fn part(&self) -> Option<[&[f32]; 2]> {
        self.shard.as_ref().map(Shard::values)
    }

    /// Checks that there are moments for the tensors of `config`.
    ///
    /// # Errors
    /// [`Error::Mismatch`].
    pub(crate) fn check(&self, config: &Config) -> Result<(), Error> {
        match &self.shard {
            Some(_) => Ok(()),
            None => self.m.check(config).and_then(|()| self.v.check(config)),
        }
    }

    /// First moment: the moving mean of the gradients. Without tensors if there is only a
    /// [part](Moments::part).
    pub fn m(&self) -> &Weights {
        &self.m
    }

    /// Second moment: the moving mean of their squares. Without tensors, likewise.
    pub fn v(&self) -> &Weights {
        &self.v
    }

    /// For each tensor the range of values whose moments are here, and these, mutable; and the rows
    /// reached so far, to which `rows` are added.
    pub(super) fn open(&mut self, config: &Config, rows: &RowSet) -> (Vec<TensorMoments<'_>>, &RowSet) {
        self.reached.join(rows);
        let tensors = match &mut self.shard {
            Some(shard) => shard.tensors_mut(),
            None => {
                let tensors = self.m.tensors_mut(config).into_iter().zip(self.v.tensors_mut(config));
                tensors.map(|(m, v)| (0..m.data.len(), m.data, v.data)).collect()
            }
        };
        (tensors, &self.reached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrane_llm::config::preset;

    #[test]
    fn runs_cut_a_range() {
        let rows = RowSet::of(8, &[1, 2, 6, 9]);
        let runs = |range| rows.runs(range).collect::<Vec<_>>();
        assert_eq!(runs(0..8), [(0..1, false), (1..3, true), (3..6, false), (6..7, true), (7..8, false)]);
        assert_eq!(runs(2..6), [(2..3, true), (3..6, false)]);
        assert_eq!((runs(3..3), rows.count()), (vec![], 3));
    }

    #[test]
    fn what_is_empty_means_nothing_and_reached_rows_begin_at_zero() {
        let config = Config { vocab: 6, dim: 2, heads: 1, kv_heads: 1, head_dim: 2, ..preset("stories260k").unwrap() };
        let mut gradients = Gradients::new(&config);
        assert!(gradients.values().is_none());
        let vocabulary = RowSet::of(6, &[1, 4]);
        // Row 3 is reached only as an input; the caller overwrites the vocabulary's rows.
        let (sums, first) = gradients.begin(2, &[3], &vocabulary);
        assert!(first);
        sums.weights.embed.fill(7.0);
        gradients.clear();
        assert!(gradients.values().is_none());
        let (sums, first) = gradients.begin(2, &[4], &vocabulary);
        assert!(first);
        assert_eq!(sums.weights.embed, [7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 0.0, 0.0, 7.0, 7.0, 7.0, 7.0]);
        let (_, first) = gradients.begin(2, &[4], &vocabulary);
        assert!(!first && gradients.values().is_some() && gradients.reached().count() == 3);
        gradients.clear();
        assert!(gradients.sums(&config).embed.iter().all(|v| *v == 0.0));
        assert_eq!(gradients.reached().count(), 6);
    }
}
