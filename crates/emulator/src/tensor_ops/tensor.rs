//! Tensors on the heap: dense, row-major, with elements widened to fp32 or `i64`.

use ferrane_mil::DataType;

/// The elements of a tensor, row-major, widened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Data {
    /// Elements of any float type.
    Floats(Vec<f32>),
    /// Elements of any integer type, or bools (0 or 1).
    Ints(Vec<i64>),
    /// Elements of type string.
    Strings(Vec<String>),
}

/// A tensor. Invariant: the number of elements matches the shape, and their kind matches the type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeapTensor {
    pub dtype: DataType,
    pub shape: Vec<usize>,
    pub data: Data,
}

impl HeapTensor {
    /// A tensor of floats.
    pub(crate) fn floats(dtype: DataType, shape: &[usize], values: Vec<f32>) -> HeapTensor {
        debug_assert_eq!(shape.iter().product::<usize>(), values.len());
        HeapTensor { dtype, shape: shape.to_vec(), data: Data::Floats(values) }
    }

    /// A tensor of integers or bools.
    pub(crate) fn ints(dtype: DataType, shape: &[usize], values: Vec<i64>) -> HeapTensor {
        debug_assert_eq!(shape.iter().product::<usize>(), values.len());
        HeapTensor { dtype, shape: shape.to_vec(), data: Data::Ints(values) }
    }

    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        match &self.data {
            Data::Floats(v) => v.len(),
            Data::Ints(v) => v.len(),
            Data::Strings(v) => v.len(),
        }
    }

    /// Element `i` as a float.
    pub(crate) fn float(&self, i: usize) -> f32 {
        match &self.data {
            Data::Floats(v) => v[i],
            Data::Ints(v) => v[i] as f32,
            Data::Strings(_) => 0.0,
        }
    }

    /// Element `i` as an integer; floats are truncated.
    pub(crate) fn int(&self, i: usize) -> i64 {
        match &self.data {
            Data::Floats(v) => v[i] as i64,
            Data::Ints(v) => v[i],
            Data::Strings(_) => 0,
        }
    }

    /// The elements at the given positions, bit for bit: how ops move elements of any type.
    pub(crate) fn pick(&self, shape: &[usize], from: impl Iterator<Item = usize>) -> HeapTensor {
        let data = match &self.data {
            Data::Floats(v) => Data::Floats(from.map(|i| v[i]).collect()),
            Data::Ints(v) => Data::Ints(from.map(|i| v[i]).collect()),
            Data::Strings(v) => Data::Strings(from.map(|i| v[i].clone()).collect()),
        };
        HeapTensor { dtype: self.dtype, shape: shape.to_vec(), data }
    }
}
