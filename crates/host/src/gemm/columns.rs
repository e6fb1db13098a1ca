//! Right factors that are packed once and multiplied many times: the keys and values of attention,
//! by which every tile of queries is multiplied.

use super::drive::MOST_DEPTH;
use super::error::GemmError;
use super::isa;
use super::pack::Pack;
use super::skinny::SKINNY;
use super::vector::{ElementType, Factor};
use super::{Operand, View};

/// A packed right factor of `depth` × `columns`.
#[derive(Clone, Copy, Debug)]
pub struct PackedColumns<'a> {
    data: &'a [f32],
    depth: usize,
    columns: usize,
}

impl<'a> PackedColumns<'a> {
    /// Number of values that a packed factor takes; `None` if it is too deep to be packed at once,
    /// or so narrow that a product is faster without packing.
    pub fn len(depth: usize, columns: usize) -> Option<usize> {
        if depth == 0 || columns <= SKINNY || depth > MOST_DEPTH {
            return None;
        }
        columns.checked_next_multiple_of(isa::best().lanes)?.checked_mul(depth)
    }

    /// Packs a factor.
    ///
    /// # Errors
    /// [`GemmError::OutOfBounds`] if `to` has fewer values than [`PackedColumns::len`], or the
    /// factor has no such length.
    pub fn pack(from: Operand<'_>, to: &'a mut [f32]) -> Result<PackedColumns<'a>, GemmError> {
        let (kernels, (depth, columns)) = (isa::best(), from.shape());
        from.check(0)?;
        let len = Self::len(depth, columns).unwrap_or(usize::MAX);
        View::row_major(to, 1, len)?;
        let job = Pack {
            factor: from.t().factor(0),
            first: 0,
            lines: columns,
            from: 0,
            depth,
            width: kernels.cols,
            last: (columns % kernels.cols).next_multiple_of(kernels.lanes),
            to: to.as_mut_ptr().cast(),
            found: std::ptr::null(),
        };
        // SAFETY: the factor was checked, and there is room for whole vectors of columns.
        unsafe { (kernels.pack)(job) };
        Ok(PackedColumns { data: to, depth, columns })
    }

    pub(super) fn shape(&self) -> (usize, usize) {
        (self.depth, self.columns)
    }

    pub(super) fn factor(&self) -> Factor {
        Factor { address: self.data.as_ptr().cast(), kind: ElementType::F32, line: 1, depth: 1, tables: None }
    }
}
