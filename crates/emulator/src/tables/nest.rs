//! Walks a loop nest: in parallel along its outermost loop, element by element inside.
//!
//! The writes are cut where the outermost loop is cut, so each task owns what it writes. The cuts
//! depend only on the shape.

use ferrane_host::pool;

use crate::ir::{MAX_WRITES, Nest};

use super::memory::{Writes, no_writes};

/// The most operands of a nest.
pub(crate) const MAX_OPERANDS: usize = 28;
/// The most loops of a nest; the plan refuses higher ranks.
pub(crate) const MAX_LOOPS: usize = 16;

/// Calls `task(first, last, writes)` for equal pieces of the outermost loop, of at most about
/// `grain` elements. The slices of a piece start at its first index.
pub(crate) fn divide(
    nest: &Nest,
    writes: usize,
    slices: Writes<'_>,
    grain: usize,
    task: &(dyn Fn(usize, usize, Writes<'_>) + Sync),
) {
    let inner: usize = nest.extents[1..].iter().product();
    let all = nest.extents[0];
    let per_task = if nest.divisible { even(all, grain.div_ceil(inner.max(1))) } else { all };
    halve(nest, writes, slices, 0, all, per_task, task);
}

/// The size of equal pieces of `0..all`, at most `most` each. If there are several, their number is
/// even: two threads have the same share.
fn even(all: usize, most: usize) -> usize {
    match all.div_ceil(most.max(1)) {
        0 | 1 => all.max(1),
        pieces => all.div_ceil(pieces.next_multiple_of(2)),
    }
}

fn halve(
    nest: &Nest,
    writes: usize,
    slices: Writes<'_>,
    first: usize,
    last: usize,
    per_task: usize,
    task: &(dyn Fn(usize, usize, Writes<'_>) + Sync),
) {
    let tasks = (last - first).div_ceil(per_task);
    if tasks <= 1 {
        return task(first, last, slices);
    }
    let middle = first + tasks / 2 * per_task;
    let (mut low, mut high) = (no_writes(), no_writes());
    for (i, slice) in slices.into_iter().enumerate().take(writes.min(MAX_WRITES)) {
        let at = (middle - first) * nest.strides[i][0].unsigned_abs();
        (low[i], high[i]) = slice.split_at(at);
    }
    pool::join(
        || halve(nest, writes, low, first, middle, per_task, task),
        || halve(nest, writes, high, middle, last, per_task, task),
    );
}

/// How often a piece of the outermost loop runs loop `at`, and how many indices that loop has in
/// the piece.
pub(crate) fn runs(nest: &Nest, at: usize, first: usize, last: usize) -> (usize, usize) {
    match at {
        // The piece itself.
        0 => (1, last - first),
        _ => ((last - first) * nest.extents[1..at].iter().product::<usize>(), nest.extents[at]),
    }
}

/// A position in the outer loops of a nest, with the offset of each operand.
///
/// Writes count from the piece's first index, reads from the buffer's lowest element (`base`).
#[derive(Clone, Copy)]
pub(crate) struct Odometer {
    index: [usize; MAX_LOOPS],
    pub offsets: [isize; MAX_OPERANDS],
}

impl Odometer {
    /// At index `first` of the outermost loop. `bases` are the offsets of element 0 for each
    /// operand.
    pub(crate) fn new(nest: &Nest, writes: usize, first: usize, bases: &[usize]) -> Odometer {
        let mut offsets = [0; MAX_OPERANDS];
        for (i, strides) in nest.strides.iter().enumerate() {
            offsets[i] = if i < writes { 0 } else { bases[i - writes] as isize + first as isize * strides[0] };
        }
        let mut index = [0; MAX_LOOPS];
        index[0] = first;
        Odometer { index, offsets }
    }

    /// The number of positions from this one on that differ only in the last of the first `loops`
    /// loops.
    pub(crate) fn run(&self, nest: &Nest, loops: usize) -> usize {
        match loops {
            // The outermost loop never wraps.
            0 | 1 => usize::MAX,
            _ => nest.extents[loops - 1] - self.index[loops - 1],
        }
    }

    /// Advances by `count` positions, at most [`run`](Self::run) of them.
    pub(crate) fn skip(&mut self, nest: &Nest, loops: usize, count: usize) {
        if loops == 0 || count == 0 {
            return;
        }
        let before = count - 1;
        self.index[loops - 1] += before;
        for (offset, strides) in self.offsets.iter_mut().zip(&nest.strides) {
            *offset += before as isize * strides[loops - 1];
        }
        self.advance(nest, loops);
    }

    /// Advances to the next position of the first `loops` loops.
    pub(crate) fn advance(&mut self, nest: &Nest, loops: usize) {
        for axis in (0..loops).rev() {
            self.index[axis] += 1;
            // The outermost loop never wraps: the caller knows where the piece ends.
            if axis == 0 || self.index[axis] < nest.extents[axis] {
                for (offset, strides) in self.offsets.iter_mut().zip(&nest.strides) {
                    *offset += strides[axis];
                }
                return;
            }
            let back = nest.extents[axis] as isize - 1;
            self.index[axis] = 0;
            for (offset, strides) in self.offsets.iter_mut().zip(&nest.strides) {
                *offset -= back * strides[axis];
            }
        }
    }
}
