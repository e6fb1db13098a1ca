//! Views: where the elements of a value are in a buffer.
//!
//! Invariant: a view's elements lie inside its buffer. Reshapes, transposes, slices and broadcasts
//! change only the view. If strides cannot express the result, the function returns `None` and the
//! plan copies.

use ferrane_mil::DataType;

/// How an element is stored. fp16 values are stored as fp16 or fp32, as the policy says; every
/// other type is stored as itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Storage {
    F16,
    F32,
    I32,
    U32,
    I16,
    U16,
    I8,
    /// One byte, unsigned; also for bools (0 or 1).
    U8,
}

impl Storage {
    /// The storage of a data type as surfaces hold it. `None` for types whose elements no step
    /// handles.
    pub(crate) fn of(dtype: DataType) -> Option<Storage> {
        Some(match dtype {
            DataType::Fp16 => Storage::F16,
            DataType::Fp32 => Storage::F32,
            DataType::Int32 => Storage::I32,
            DataType::UInt32 => Storage::U32,
            DataType::Int16 => Storage::I16,
            DataType::UInt16 => Storage::U16,
            DataType::Int8 => Storage::I8,
            DataType::UInt8 | DataType::Bool => Storage::U8,
            _ => return None,
        })
    }

    pub(crate) fn bytes(self) -> usize {
        match self {
            Storage::F32 | Storage::I32 | Storage::U32 => 4,
            Storage::F16 | Storage::I16 | Storage::U16 => 2,
            Storage::I8 | Storage::U8 => 1,
        }
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Storage::F16 | Storage::F32)
    }
}

/// An index into the plan's buffers.
pub(crate) type BufferId = usize;

/// A strided view of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub buffer: BufferId,
    pub storage: Storage,
    /// Element (0, …, 0), counted in elements from the buffer's start.
    pub offset: usize,
    pub shape: Vec<usize>,
    pub strides: Vec<isize>,
}

impl View {
    /// The stride of an axis; 0 if that has one element.
    pub(crate) fn stride(&self, axis: usize) -> isize {
        if self.shape[axis] == 1 { 0 } else { self.strides[axis] }
    }

    /// True if an image has one value for each channel, the same at all positions.
    pub(crate) fn is_constant_over_positions(&self) -> bool {
        (2..self.shape.len()).all(|axis| self.stride(axis) == 0)
    }
}

/// Strides of a dense row-major tensor.
pub(crate) fn row_major(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![0; shape.len()];
    let mut span = 1isize;
    for axis in (0..shape.len()).rev() {
        strides[axis] = span;
        span = span.saturating_mul(shape[axis] as isize);
    }
    strides
}

/// Strides of the same elements in another shape, if there are any.
pub(crate) fn reshape_strides(shape: &[usize], strides: &[isize], wanted: &[usize]) -> Option<Vec<isize>> {
    let old: Vec<(usize, isize)> =
        shape.iter().copied().zip(strides.iter().copied()).filter(|&(n, _)| n != 1).collect();
    let mut found = vec![0isize; wanted.len()];
    let mut next = 0;
    let mut axis = 0;
    while axis < wanted.len() {
        if wanted[axis] == 1 {
            axis += 1;
            continue;
        }
        // A run of old axes and a run of new axes with the same number of elements.
        let (first_old, first_new) = (next, axis);
        let (mut have, mut want) = (old.get(next)?.0, wanted[axis]);
        next += 1;
        axis += 1;
        while have != want {
            if have < want {
                have *= old.get(next)?.0;
                next += 1;
            } else {
                want *= *wanted.get(axis)?;
                axis += 1;
            }
        }
        // The old run must have a single stride.
        for pair in old[first_old..next].windows(2) {
            if pair[0].1 != pair[1].1 * pair[1].0 as isize {
                return None;
            }
        }
        let mut stride = old[next - 1].1;
        for i in (first_new..axis).rev() {
            found[i] = stride;
            stride *= wanted[i] as isize;
        }
    }
    (next == old.len()).then_some(found)
}

impl View {
    /// A dense row-major view of a whole buffer.
    pub(crate) fn dense(buffer: BufferId, storage: Storage, shape: &[usize]) -> View {
        View { buffer, storage, offset: 0, shape: shape.to_vec(), strides: row_major(shape) }
    }

    pub(crate) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The same elements in another shape, if strides allow.
    pub(crate) fn reshaped(&self, shape: &[usize]) -> Option<View> {
        let strides = reshape_strides(&self.shape, &self.strides, shape)?;
        Some(View { shape: shape.to_vec(), strides, ..self.clone() })
    }

    /// The same elements as an image of one row, `[1, C, positions]`: the last axis has the
    /// channels of a pixel. `None` if the other axes have no common stride.
    pub(crate) fn row_of_pixels(&self) -> Option<View> {
        let (&channels, lead) = self.shape.split_last()?;
        let positions = lead.iter().product();
        let rows = self.reshaped(&[positions, channels])?;
        let strides = vec![0, rows.strides[1], rows.strides[0]];
        Some(View { shape: vec![1, channels, positions], strides, ..rows })
    }

    /// Axis `i` of the result is axis `perm[i]`.
    pub(crate) fn permuted(&self, perm: &[usize]) -> View {
        View {
            shape: perm.iter().map(|&p| self.shape[p]).collect(),
            strides: perm.iter().map(|&p| self.strides[p]).collect(),
            ..self.clone()
        }
    }

    /// `count` indices of an axis, from `begin` on in steps of `step`.
    pub(crate) fn sliced(&self, axis: usize, begin: usize, step: isize, count: usize) -> View {
        let mut view = self.clone();
        view.offset = view.offset.wrapping_add_signed(begin as isize * self.strides[axis]);
        view.shape[axis] = count;
        view.strides[axis] = self.strides[axis] * step;
        view
    }

    /// The first element, as a scalar.
    pub(crate) fn element(&self) -> View {
        View { shape: Vec::new(), strides: Vec::new(), ..self.clone() }
    }

    /// Broadcast to a shape by numpy's rules. The caller has checked that they allow it.
    pub(crate) fn broadcast(&self, shape: &[usize]) -> View {
        let lead = shape.len() - self.shape.len();
        let strides = (0..shape.len())
            .map(|i| match i.checked_sub(lead) {
                Some(j) if self.shape[j] == shape[i] => self.strides[j],
                _ => 0,
            })
            .collect();
        View { shape: shape.to_vec(), strides, ..self.clone() }
    }

    /// True if a range of the buffer has elements of both views, or lies between their elements.
    pub(crate) fn overlaps(&self, other: &View) -> bool {
        let (a, b) = (self.span(), other.span());
        self.buffer == other.buffer && a.0.max(b.0) < a.1.min(b.1)
    }

    /// True if the two certainly have no element in common: they do not overlap, or are images of
    /// different channels of one channels-last image.
    pub(crate) fn is_apart_from(&self, other: &View) -> bool {
        let channels = |view: &View| {
            let count = *view.shape.get(1)?;
            let axes = || (0..view.shape.len()).filter(|&axis| axis != 1 && view.shape[axis] > 1);
            let pitch = axes().map(|axis| view.strides[axis]).min().filter(|&pitch| pitch > 0)? as usize;
            let first = view.offset % pitch;
            let even = axes().all(|axis| (view.strides[axis] as usize).is_multiple_of(pitch));
            let neighbors = matches!(view.stride(1), 0 | 1) && first + count <= pitch;
            (even && neighbors).then_some((pitch, first..first + count))
        };
        !self.overlaps(other)
            || match (channels(self), channels(other)) {
                (Some((a, one)), Some((b, two))) => a == b && (one.end <= two.start || two.end <= one.start),
                _ => false,
            }
    }

    /// The range of elements that the view touches, from the first to one past the last, counted
    /// from the buffer's start. Empty views touch `(0, 0)`.
    pub(crate) fn span(&self) -> (usize, usize) {
        if self.elements() == 0 {
            return (0, 0);
        }
        let (mut low, mut high) = (self.offset as isize, self.offset as isize);
        for (&n, &s) in self.shape.iter().zip(&self.strides) {
            let reach = (n as isize - 1) * s;
            if reach < 0 {
                low += reach;
            } else {
                high += reach;
            }
        }
        (low as usize, high as usize + 1)
    }

    /// True if both views have the same elements in the same order.
    pub(crate) fn same_elements(&self, other: &View) -> bool {
        self.buffer == other.buffer
            && self.storage == other.storage
            && self.offset == other.offset
            && self.shape == other.shape
            && (0..self.shape.len()).all(|i| self.shape[i] == 1 || self.strides[i] == other.strides[i])
    }
}

/// True if `strides` arrange `shape` densely, in any order of the axes.
pub(crate) fn is_dense(shape: &[usize], strides: &[isize]) -> bool {
    let mut axes: Vec<(isize, usize)> =
        strides.iter().copied().zip(shape.iter().copied()).filter(|&(_, n)| n != 1).collect();
    axes.sort_unstable();
    let mut span = 1;
    for (stride, extent) in axes {
        if stride != span {
            return false;
        }
        span *= extent as isize;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reshapes_keep_lines_only() {
        assert_eq!(reshape_strides(&[2, 3, 4], &[12, 4, 1], &[6, 4]), Some(vec![4, 1]));
        assert_eq!(reshape_strides(&[2, 3, 4], &[12, 4, 1], &[1, 24]), Some(vec![0, 1]));
        // A transposed matrix has no single stride.
        assert_eq!(reshape_strides(&[3, 4], &[1, 3], &[12]), None);
        // Splitting an axis always works.
        assert_eq!(reshape_strides(&[12, 5], &[1, 12], &[3, 4, 5]), Some(vec![4, 1, 12]));
        assert_eq!(reshape_strides(&[1, 768, 1, 256], &[9, 512, 7, 1], &[1, 1, 768, 256]), Some(vec![0, 0, 512, 1]));
        assert_eq!(reshape_strides(&[1, 1], &[1, 1], &[]), Some(vec![]));
    }

    #[test]
    fn spans_count_negative_strides() {
        let view = View::dense(0, Storage::F32, &[2, 5]).sliced(1, 4, -2, 3);
        assert_eq!((view.offset, view.span()), (4, (0, 10)));
        assert!(is_dense(&[3, 1, 4], &[1, 77, 3]) && !is_dense(&[3, 4], &[1, 4]));
    }

    #[test]
    fn channels_of_one_image_are_apart() {
        let all = View { strides: vec![120, 1, 24, 8], ..View::dense(0, Storage::F16, &[2, 8, 5, 3]) };
        let part = |first, count| all.sliced(1, first, 1, count);
        assert!(part(0, 5).overlaps(&part(5, 3)) && part(0, 5).is_apart_from(&part(5, 3)));
        assert!(!part(0, 5).is_apart_from(&part(4, 4)) && !part(0, 5).is_apart_from(&all));
        assert!(View { buffer: 1, ..all.clone() }.is_apart_from(&all));
        // Not of another pitch, and not if channels are in each other's positions.
        let other = View { strides: vec![105, 1, 21, 7], ..part(5, 2) };
        assert!(!part(0, 5).is_apart_from(&other));
        let beyond = View { offset: 6, ..part(0, 5) };
        assert!(!part(2, 1).is_apart_from(&beyond));
        let scalar = View { shape: vec![], strides: vec![], ..all.clone() };
        assert!(!scalar.is_apart_from(&all));
    }
}
