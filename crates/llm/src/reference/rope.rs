//! Rotary position encoding: each pair of a head is rotated by an angle proportional to the
//! position.

use super::Real;
use crate::config::{AttentionKind, Config, Rotation};

/// Cosines and sines of the first positions, each `[positions, head_dim / 2]`. Angles are computed
/// in `f64`.
pub(super) struct Table<T> {
    rotation: Rotation,
    /// The elements of each rotated pair.
    pairs: Vec<(usize, usize)>,
    head_dim: usize,
    cos: Vec<T>,
    sin: Vec<T>,
}

impl<T: Real> Table<T> {
    /// The table of positions below `positions`, for layers of a kind.
    fn new(config: &Config, kind: AttentionKind, positions: usize) -> Self {
        let rotation = config.rotation(kind, config.max_seq);
        let pairs = (0..rotation.pairs()).map(|i| config.rope.pair(config.head_dim, i)).collect();
        let mut table = Table { rotation, pairs, head_dim: config.head_dim, cos: vec![], sin: vec![] };
        (0..positions).for_each(|p| table.push(p));
        table
    }

    /// Appends a row for `position`, which must be the next one.
    fn push(&mut self, position: usize) {
        for i in 0..self.pairs.len() {
            let (cos, sin) = self.rotation.at(i, position);
            self.cos.push(T::from_f64(cos));
            self.sin.push(T::from_f64(sin));
        }
    }

    /// Keeps the rows of the first `positions` positions.
    fn truncate(&mut self, positions: usize) {
        self.cos.truncate(positions * self.pairs.len());
        self.sin.truncate(positions * self.pairs.len());
    }

    /// Rotates the heads of the row at `position` forward (`direction` 1) or back (−1: the
    /// transpose, and so the gradient).
    pub(super) fn turn(&self, row: &mut [T], position: usize, direction: T) {
        let range = position * self.pairs.len()..(position + 1) * self.pairs.len();
        let (cos, sin) = (&self.cos[range.clone()], &self.sin[range]);
        for head in row.chunks_exact_mut(self.head_dim) {
            for ((&(a, b), &cos), &sin) in self.pairs.iter().zip(cos).zip(sin) {
                let (x, y, s) = (head[a], head[b], direction * sin);
                head[a] = x * cos - y * s;
                head[b] = x * s + y * cos;
            }
        }
    }
}

/// A table for each kind of attention in a model.
pub(super) struct Tables<T>(Vec<(AttentionKind, Table<T>)>);

impl<T: Real> Tables<T> {
    /// The tables of positions below `positions`.
    pub(super) fn new(config: &Config, positions: usize) -> Self {
        Tables(config.attention_kinds().into_iter().map(|kind| (kind, Table::new(config, kind, positions))).collect())
    }

    /// Appends a row for `position`, which must be the next one.
    pub(super) fn push(&mut self, position: usize) {
        self.0.iter_mut().for_each(|(_, table)| table.push(position));
    }

    /// Keeps the rows of the first `positions` positions.
    pub(super) fn truncate(&mut self, positions: usize) {
        self.0.iter_mut().for_each(|(_, table)| table.truncate(positions));
    }

    /// The table of a kind. Every kind of the model's layers has one, and a model has a layer.
    pub(super) fn of(&self, kind: AttentionKind) -> &Table<T> {
        let found = self.0.iter().position(|(known, _)| *known == kind).unwrap_or(0);
        &self.0[found].1
    }
}
