//! Positions of elements in dense tensors.

use ferrane_device::Result;

use super::{Call, Data, HeapTensor};

/// The most elements of a result whose extents come from values: 2²⁸ fp32 elements are 1 GiB.
pub(crate) const MAX_ELEMENTS: usize = 1 << 28;

/// Row-major strides of a shape, in elements.
pub(crate) fn strides(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis] as isize;
    }
    strides
}

/// The number of elements before an axis, along it, and after it: a tensor as `[outer, axis,
/// inner]`.
pub(crate) fn around(shape: &[usize], axis: usize) -> (usize, usize, usize) {
    (shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product())
}

/// The positions of a strided view, row-major.
pub(crate) struct Walk {
    shape: Vec<usize>,
    strides: Vec<isize>,
    index: Vec<usize>,
    at: isize,
    left: usize,
}

impl Walk {
    /// A walk from `start`. Every position must lie in the tensor that is walked.
    pub(crate) fn new(shape: &[usize], strides: &[isize], start: isize) -> Walk {
        let left = shape.iter().product();
        Walk { shape: shape.to_vec(), strides: strides.to_vec(), index: vec![0; shape.len()], at: start, left }
    }

    /// A walk of a dense tensor of shape `from` with its axes in the order `perm`.
    pub(crate) fn permuted(from: &[usize], perm: &[usize]) -> Walk {
        let strides = strides(from);
        let pick = |axis: &usize| (from[*axis], strides[*axis]);
        let (shape, strides): (Vec<_>, Vec<_>) = perm.iter().map(pick).unzip();
        Walk::new(&shape, &strides, 0)
    }
}

impl Iterator for Walk {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let at = self.at;
        for axis in (0..self.shape.len()).rev() {
            self.index[axis] += 1;
            self.at += self.strides[axis];
            if self.index[axis] < self.shape[axis] {
                break;
            }
            self.at -= self.strides[axis] * self.shape[axis] as isize;
            self.index[axis] = 0;
        }
        Some(at as usize)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// The elements at the positions of a walk: its two innermost axes are plain loops.
fn walked<T: Clone>(values: &[T], mut walk: Walk) -> Vec<T> {
    let mut out = Vec::with_capacity(walk.left);
    let Some(last) = walk.shape.len().checked_sub(1) else {
        out.extend(walk.map(|i| values[i].clone()));
        return out;
    };
    let (row, stride) = (walk.shape[last], walk.strides[last]);
    let (rows, pitch) = match last.checked_sub(1) {
        Some(axis) => (walk.shape[axis], walk.strides[axis]),
        None => (1, 0),
    };
    if walk.left == 0 {
        return out;
    }
    walk.shape[last] = 1;
    if last > 0 {
        walk.shape[last - 1] = 1;
    }
    walk.left = walk.shape.iter().product();
    for at in walk {
        for r in 0..rows as isize {
            let at = at as isize + r * pitch;
            if stride == 1 {
                out.extend_from_slice(&values[at as usize..at as usize + row]);
            } else {
                out.extend((0..row as isize).map(|i| values[(at + i * stride) as usize].clone()));
            }
        }
    }
    out
}

impl HeapTensor {
    /// [`HeapTensor::pick`] of the positions of a walk.
    pub(crate) fn walked(&self, shape: &[usize], walk: Walk) -> HeapTensor {
        let data = match &self.data {
            Data::Floats(v) => Data::Floats(walked(v, walk)),
            Data::Ints(v) => Data::Ints(walked(v, walk)),
            Data::Strings(v) => Data::Strings(walked(v, walk)),
        };
        HeapTensor { dtype: self.dtype, shape: shape.to_vec(), data }
    }

    /// Like [`HeapTensor::pick`]; `None` gives zero.
    pub(crate) fn pick_or_zero(&self, shape: &[usize], from: impl Iterator<Item = Option<usize>>) -> HeapTensor {
        let data = match &self.data {
            Data::Floats(v) => Data::Floats(from.map(|i| i.map_or(0.0, |i| v[i])).collect()),
            Data::Ints(v) => Data::Ints(from.map(|i| i.map_or(0, |i| v[i])).collect()),
            Data::Strings(v) => Data::Strings(from.map(|i| i.map_or_else(String::new, |i| v[i].clone())).collect()),
        };
        HeapTensor { dtype: self.dtype, shape: shape.to_vec(), data }
    }

    /// The same elements with another shape of the same size.
    pub(crate) fn reshaped(&self, shape: &[usize]) -> HeapTensor {
        HeapTensor { dtype: self.dtype, shape: shape.to_vec(), data: self.data.clone() }
    }
}

impl Call<'_> {
    /// The number of elements of a result, if it may be allocated.
    pub(crate) fn elements(&self, shape: &[usize]) -> Result<usize> {
        let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        // An extent of 0 does not lift the limit for the others: positions are counted along each
        // axis.
        let reach = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d.max(1)));
        match (count, reach) {
            (Some(count), Some(reach)) if reach <= MAX_ELEMENTS => Ok(count),
            _ => Err(self.fail(format!("a result of shape {shape:?} is too large"))),
        }
    }

    /// Converts integers to extents, within the limit of [`elements`](Self::elements).
    pub(crate) fn extents(&self, values: &[i64]) -> Result<Vec<usize>> {
        let extents = values.iter().map(|&v| usize::try_from(v).ok()).collect::<Option<Vec<_>>>();
        let extents = extents.ok_or_else(|| self.fail(format!("{values:?} is not a shape")))?;
        self.elements(&extents)?;
        Ok(extents)
    }

    /// An integer argument from 1 to [`MAX_ELEMENTS`].
    pub(crate) fn count(&self, name: &str) -> Result<usize> {
        let value = self.int(name)?;
        usize::try_from(value)
            .ok()
            .filter(|&v| (1..=MAX_ELEMENTS).contains(&v))
            .ok_or_else(|| self.fail(format!("`{name}` cannot be {value}")))
    }

    /// An operand of the given rank.
    pub(crate) fn ranked(&self, name: &str, rank: usize) -> Result<&HeapTensor> {
        let tensor = self.tensor(name)?;
        if tensor.shape.len() != rank {
            return Err(self.fail(format!("`{name}` must have rank {rank}, not {}", tensor.shape.len())));
        }
        Ok(tensor)
    }

    /// The elements of a float operand.
    pub(crate) fn reals<'t>(&self, name: &str, tensor: &'t HeapTensor) -> Result<&'t [f32]> {
        match &tensor.data {
            Data::Floats(v) => Ok(v),
            _ => Err(self.fail(format!("`{name}` must have float elements"))),
        }
    }

    /// A float argument, or `default` if this opset's signature has no such argument.
    pub(crate) fn float_or(&self, name: &str, default: f32) -> Result<f32> {
        if self.maybe(name).is_none() && self.def.param(name).is_none() { Ok(default) } else { self.float(name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_walked_as_they_are_picked() {
        let x = HeapTensor::ints(ferrane_mil::DataType::Int32, &[2, 3, 4], (0..24).collect());
        for perm in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1], [2, 0, 1]] {
            let shape = perm.map(|a| x.shape[a]);
            let walk = || Walk::permuted(&x.shape, &perm);
            assert_eq!(x.walked(&shape, walk()), x.pick(&shape, walk()));
        }
        for (shape, strides, start) in [(vec![], vec![], 5), (vec![3], vec![-2], 9), (vec![2, 0], vec![1, 1], 0)] {
            let walk = || Walk::new(&shape, &strides, start);
            assert_eq!(x.walked(&shape, walk()), x.pick(&shape, walk()));
        }
    }

    #[test]
    fn walks_go_through_permutations_and_backwards() {
        assert_eq!(Walk::permuted(&[2, 3], &[1, 0]).collect::<Vec<_>>(), [0, 3, 1, 4, 2, 5]);
        assert_eq!(Walk::new(&[2, 2], &[3, -1], 1).collect::<Vec<_>>(), [1, 0, 4, 3]);
        assert_eq!(Walk::new(&[], &[], 7).collect::<Vec<_>>(), [7]);
        assert_eq!(Walk::new(&[2, 0], &[1, 1], 0).count(), 0);
    }
}
