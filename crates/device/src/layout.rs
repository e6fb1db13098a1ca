//! The layout of a tensor's elements in a surface.

use ferrane_mil::DataType;

use crate::{Error, ErrorKind, Result};

/// Element type, extents and byte strides of a surface.
///
/// Element `(i0, …, in)` starts at byte `Σ i_k · strides[k]`. Packed row-major is the engine's
/// usual form; a compiled program may report padded rows (apple-runtime §11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The element type, of whole bytes.
    pub dtype: DataType,
    /// The extents, outermost first.
    pub shape: Vec<usize>,
    /// The distance from one index to the next on each axis, in bytes.
    pub strides: Vec<usize>,
    /// The number of bytes to allocate, at least the span of the elements.
    pub allocation: usize,
}

impl Layout {
    /// A row-major layout without gaps.
    ///
    /// # Errors
    /// [`ErrorKind::Layout`] for element types without whole bytes or sizes beyond the address
    /// space.
    pub fn packed(dtype: DataType, shape: &[usize]) -> Result<Layout> {
        Layout::with_row_alignment(dtype, shape, 1)
    }

    /// A row-major layout whose rows are padded to a multiple of `alignment` bytes.
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

    /// Checks that the layout is valid: an element type of whole bytes, a stride for each axis,
    /// adjacent elements in a row, and a size that can be addressed and is covered by the
    /// allocation. The fields are public, so surfaces check the layouts that they are given.
    ///
    /// # Errors
    /// [`ErrorKind::Layout`] with the reason.
    pub fn check(&self) -> Result<()> {
        let bad = |why: &str| {
            let Layout { dtype, shape, strides, allocation } = self;
            Err(Error::new(
                ErrorKind::Layout,
                format!("{dtype} {shape:?} strides {strides:?} in {allocation} bytes: {why}"),
            ))
        };
        let Some(element) = self.dtype.bytes() else { return bad("surfaces hold elements of whole bytes") };
        if self.shape.len() != self.strides.len() {
            return bad("a stride for each axis is needed");
        }
        if let (Some(&extent), Some(&stride)) = (self.shape.last(), self.strides.last())
            && extent > 1
            && stride != element
        {
            return bad("the elements of a row must be adjacent");
        }
        let span = self.shape.iter().zip(&self.strides).try_fold(element, |sum, (&extent, &stride)| {
            sum.checked_add(extent.saturating_sub(1).checked_mul(stride)?)
        });
        let elements = self.shape.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent));
        match (span, elements) {
            (Some(span), Some(elements)) if span <= isize::MAX as usize => {
                if elements > 0 && span > self.allocation {
                    bad("the allocation is smaller than the elements")
                } else {
                    Ok(())
                }
            }
            _ => bad("more bytes than can be addressed"),
        }
    }

    /// The byte offset of the `i`-th row, with all axes except the last flattened.
    fn row_offset(&self, mut i: usize) -> usize {
        let mut offset = 0;
        for axis in (0..self.shape.len().saturating_sub(1)).rev() {
            offset += i % self.shape[axis] * self.strides[axis];
            i /= self.shape[axis];
        }
        offset
    }

    /// The byte range of the elements in the `i`-th row, with all axes except the last flattened;
    /// `None` past the end.
    pub fn row(&self, i: usize) -> Option<std::ops::Range<usize>> {
        let rows: usize = self.shape[..self.shape.len().saturating_sub(1)].iter().product();
        let width = self.shape.last().copied().unwrap_or(1);
        let start = (i < rows).then(|| self.row_offset(i))?;
        Some(start..start + width * self.element_bytes())
    }

    /// Copies the elements out of a surface's bytes, without padding. `None` if there are fewer
    /// bytes than the layout spans.
    pub fn pack(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut packed = Vec::with_capacity(self.elements() * self.element_bytes());
        self.pack_to(bytes, |row| packed.extend_from_slice(row))?;
        Some(packed)
    }

    /// Passes the elements in a surface's bytes to `sink`, in order and without the padding between
    /// rows, in as few pieces as possible. `None` if there are fewer bytes than the layout spans.
    pub fn pack_to(&self, bytes: &[u8], mut sink: impl FnMut(&[u8])) -> Option<()> {
        if self.is_packed() {
            sink(bytes.get(..self.elements() * self.element_bytes())?);
            return Some(());
        }
        for row in (0..).map_while(|i| self.row(i)) {
            sink(bytes.get(row)?);
        }
        Some(())
    }

    /// Copies packed elements into a surface's bytes; padding is unchanged. `None` if either side
    /// is too short.
    pub fn unpack(&self, packed: &[u8], bytes: &mut [u8]) -> Option<()> {
        if self.is_packed() {
            bytes.get_mut(..packed.len())?.copy_from_slice(packed);
            return Some(());
        }
        let mut rest = packed;
        for row in (0..).map_while(|i| self.row(i)) {
            let (now, later) = rest.split_at_checked(row.len())?;
            bytes.get_mut(row)?.copy_from_slice(now);
            rest = later;
        }
        Some(())
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The size of one element in bytes.
    pub fn element_bytes(&self) -> usize {
        self.dtype.bytes().unwrap_or(1)
    }

    /// True if the elements are row-major without gaps.
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
        let layout = |shape: &[usize], strides: &[usize], allocation| {
            let (shape, strides) = (shape.to_vec(), strides.to_vec());
            Layout { dtype: DataType::Fp16, shape, strides, allocation }.check().map_err(|e| e.kind())
        };
        assert_eq!(layout(&[2, 4], &[64, 2], 128), Ok(()));
        assert_eq!(layout(&[0, 4], &[8, 2], 0), Ok(()));
        assert_eq!(layout(&[2, 1], &[64, 64], 128), Ok(()));
        let bad = Err(ErrorKind::Layout);
        assert_eq!(layout(&[2, 4], &[2], 128), bad, "a stride is missing");
        assert_eq!(layout(&[2, 4], &[64, 4], 128), bad, "gaps between elements");
        assert_eq!(layout(&[2, 4], &[64, 2], 71), bad, "one byte short");
        assert_eq!(layout(&[usize::MAX, 4], &[64, 2], 128), bad, "beyond the address space");
        assert_eq!(layout(&[1 << 40, 1 << 40, 1], &[0, 0, 2], 128), bad, "more elements than can be counted");
    }

    #[test]
    fn rows_lie_where_the_strides_say() {
        let padded = Layout::with_row_alignment(DataType::Fp16, &[2, 3, 4], 64).unwrap();
        assert_eq!(padded.row(4), Some(256..264));
        assert_eq!(padded.row(6), None);
        assert_eq!(Layout::packed(DataType::Fp32, &[]).unwrap().row(0), Some(0..4));
    }
}
