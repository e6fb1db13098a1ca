//! Loop nests: how a step visits the elements of its operands.

use super::view::View;

/// Loops over the elements of a result: extents, and strides for each operand (writes first, then
/// reads), outermost loop first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nest {
    pub extents: Vec<usize>,
    /// `strides[operand][loop]`.
    pub strides: Vec<Vec<isize>>,
    /// The writes may be cut along the outermost loop: different indices write disjoint ranges.
    pub divisible: bool,
}

impl Nest {
    /// The axes of `shape` over which there are loops, the outermost first: those longer than 1, in
    /// the memory order of a view.
    pub(crate) fn axes(shape: &[usize], view: &View) -> Vec<usize> {
        let mut axes: Vec<usize> = (0..shape.len()).filter(|&axis| shape[axis] != 1).collect();
        axes.sort_by_key(|&axis| std::cmp::Reverse(view.strides[axis].unsigned_abs()));
        axes
    }

    /// Loops over `shape` in the memory order of the first operand. `row` is an axis that must stay
    /// whole and innermost. Operands have `shape` already; the first `writes` of them are written.
    pub(crate) fn new(shape: &[usize], operands: &[&View], writes: usize, row: Option<usize>) -> Nest {
        let mut axes = Self::axes(shape, operands[0]);
        axes.retain(|&axis| Some(axis) != row);
        let mut extents: Vec<usize> = Vec::new();
        let mut strides: Vec<Vec<isize>> = vec![Vec::new(); operands.len()];
        for &axis in &axes {
            let mergeable = !extents.is_empty()
                && operands
                    .iter()
                    .zip(&strides)
                    .all(|(v, s)| s.last() == Some(&(v.strides[axis] * shape[axis] as isize)));
            if mergeable {
                if let Some(last) = extents.last_mut() {
                    *last *= shape[axis];
                }
            } else {
                extents.push(shape[axis]);
            }
            for (view, s) in operands.iter().zip(&mut strides) {
                match s.last_mut() {
                    Some(last) if mergeable => *last = view.strides[axis],
                    _ => s.push(view.strides[axis]),
                }
            }
        }
        if row.is_some() || extents.is_empty() {
            extents.push(row.map_or(1, |r| shape[r]));
            for (view, s) in operands.iter().zip(&mut strides) {
                s.push(row.map_or(1, |r| view.strides[r]));
            }
        }
        let mut nest = Nest { extents, strides, divisible: false };
        nest.divisible = (0..writes).all(|write| nest.leaves(write, 0));
        nest
    }

    /// Whether all that an operand has at one index of the outermost loop, and as much `behind` it,
    /// lies before the next index's.
    pub(crate) fn leaves(&self, operand: usize, behind: usize) -> bool {
        let strides = &self.strides[operand];
        let inner: isize = self.extents.iter().zip(strides).skip(1).map(|(&n, &s)| (n as isize - 1) * s).sum();
        strides.iter().all(|&s| s > 0) && strides[0] > inner + behind as isize
    }

    /// The number of loops.
    pub(crate) fn depth(&self) -> usize {
        self.extents.len()
    }
}
