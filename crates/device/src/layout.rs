//! How the elements of a tensor lie in a surface.

use ferrane_mil::DataType;

use crate::{Error, ErrorKind, Result};

/// Element type, extents and byte strides of a surface.
///
/// Element `(i0, …, in)` starts at byte `Σ i_k · strides[k]`. Packed row-major is the engine's usual form; a compiled program may
/// report padded rows (apple-runtime §11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Element type, of whole bytes.
    pub dtype: DataType,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// Bytes from one index to the next, per axis.
    pub strides: Vec<usize>,
    /// Bytes to allocate, at least what the elements span.
    pub allocation: usize,
}

impl Layout {
    /// Packed row-major.
    ///
    /// # Errors
    /// [`ErrorKind::Layout`] for element types without whole bytes or sizes beyond the address space.
    pub fn packed(dtype: DataType, shape: &[usize]) -> Result<Layout> {
        Layout::with_row_alignment(dtype, shape, 1)
    }

    /// Row-major with the last axis padded to a multiple of `alignment` bytes.
    ///
    /// # Errors
    /// As [`Layout::packed`]; `alignment` 0 counts as 1.
    pub fn with_row_alignment(dtype: DataType, shape: &[usize], alignment: usize) -> Result<Layout> {
        let bad = |why: &str| Error::new(ErrorKind::Layout, format!("{dtype} {shape:?}: {why}"));
        let element = dtype.bytes().ok_or_else(|| bad("surfaces hold elements of whole bytes"))?;
        let mut strides = vec![element; shape.len()];
        let mut span = element;
        for axis in (0..shape.len()).rev() {
            strides[axis] = span;
            span = span.checked_mul(shape[axis]).ok_or_else(|| bad("more bytes than can be addressed"))?;
            if axis + 1 == shape.len() {
                span = span.checked_next_multiple_of(alignment.max(1)).ok_or_else(|| bad("too large"))?;
            }
        }
        if span > isize::MAX as usize {
            return Err(bad("more bytes than can be addressed"));
        }
        Ok(Layout { dtype, shape: shape.to_vec(), strides, allocation: span })
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes of one element.
    pub fn element_bytes(&self) -> usize {
        self.dtype.bytes().unwrap_or(1)
    }

    /// True if the elements lie row-major without gaps.
    pub fn is_packed(&self) -> bool {
        let mut span = self.element_bytes();
        for (&extent, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if extent != 1 && stride != span {
                return false;
            }
            span *= extent;
        }
        true
    }

    /// Bytes from the first element to the end of the last.
    pub fn span(&self) -> usize {
        if self.shape.contains(&0) {
            return 0;
        }
        self.shape.iter().zip(&self.strides).map(|(&e, &s)| (e - 1) * s).sum::<usize>() + self.element_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_and_padded_rows() {
        let packed = Layout::packed(DataType::Fp16, &[1, 4, 1, 4]).unwrap();
        assert_eq!((packed.allocation, packed.is_packed()), (32, true));
        // The published case of 64-byte rows: BatchStride 256 (apple-runtime §11).
        let padded = Layout::with_row_alignment(DataType::Fp16, &[1, 4, 1, 4], 64).unwrap();
        assert_eq!((padded.allocation, padded.strides.clone(), padded.is_packed()), (256, vec![256, 64, 64, 2], false));
        assert_eq!(padded.span(), 3 * 64 + 8);
    }

    #[test]
    fn what_cannot_be_laid_out_is_an_error() {
        assert_eq!(Layout::packed(DataType::Int4, &[8]).unwrap_err().kind(), ErrorKind::Layout);
        assert_eq!(Layout::packed(DataType::Fp16, &[usize::MAX, 2]).unwrap_err().kind(), ErrorKind::Layout);
    }
}
