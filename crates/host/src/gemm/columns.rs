//! Right factors that are packed once and multiplied many times: the keys and values of attention,
//! by which every tile of queries is multiplied, and the activations by which every tile of a
//! classifier is multiplied.

use super::drive::{LEAST_BLOCKS, MOST_DEPTH, has_blocks};
use super::error::GemmError;
use super::isa;
use super::pack::{Found, Pack};
use super::skinny::SKINNY;
use super::vector::{ElementType, Factor};
use super::{Operand, View};

/// The job of packing a whole factor into panels of a width, whose last one has whole vectors.
fn whole(factor: Factor, (depth, columns): (usize, usize), (width, lanes): (usize, usize), to: &mut [f32]) -> Pack {
    Pack {
        factor,
        first: 0,
        lines: columns,
        from: 0,
        depth,
        width,
        last: (columns % width).next_multiple_of(lanes),
        to: to.as_mut_ptr().cast(),
        found: std::ptr::null(),
    }
}

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
        let job = whole(from.t().factor(0), (depth, columns), (kernels.cols, kernels.lanes), to);
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

/// A right factor for products in block floating point. Its panels are packed once if the
/// processor, its shape and its values allow such products; otherwise every product reads the
/// matrix, as [`gemm`](super::gemm()) does.
#[derive(Clone, Copy, Debug)]
pub struct BlockColumns<'a> {
    matrix: Operand<'a>,
    panels: Option<&'a [f32]>,
}

impl<'a> BlockColumns<'a> {
    /// Number of values that the panels of a factor of this shape take; 0 if it has none.
    pub fn len(depth: usize, columns: usize) -> usize {
        let Some(format) = isa::best().blocks() else { return 0 };
        if depth > MOST_DEPTH || columns < LEAST_BLOCKS {
            return 0;
        }
        let elements = columns.next_multiple_of(format.lanes).saturating_mul(depth);
        format.place(1, elements).div_ceil(size_of::<f32>())
    }

    /// Packs a factor into `to`, or, if that is empty, leaves it to the products.
    ///
    /// # Errors
    /// [`GemmError::OutOfBounds`] if `to` is not empty and has fewer values than
    /// [`BlockColumns::len`].
    pub fn pack(matrix: Operand<'a>, to: &'a mut [f32]) -> Result<BlockColumns<'a>, GemmError> {
        let (depth, columns) = matrix.shape();
        matrix.check(0)?;
        let (len, factor) = (Self::len(depth, columns), matrix.t().factor(0));
        let format = isa::best().blocks().filter(|format| has_blocks(format, &factor, depth));
        let Some(format) = format.filter(|_| len > 0 && !to.is_empty()) else {
            return Ok(BlockColumns { matrix, panels: None });
        };
        View::row_major(to, 1, len)?;
        let found = Found::default();
        let job = Pack { found: &found, ..whole(factor, (depth, columns), (format.cols, format.lanes), to) };
        // SAFETY: the factor was checked and consists of whole blocks, and there is room for whole
        // vectors of columns.
        unsafe { (format.pack[1])(job) };
        Ok(BlockColumns { matrix, panels: found.suits().then_some(to) })
    }

    pub(super) fn matrix(&self) -> Operand<'a> {
        self.matrix
    }

    pub(super) fn panels(&self) -> Option<&'a [f32]> {
        self.panels
    }
}
