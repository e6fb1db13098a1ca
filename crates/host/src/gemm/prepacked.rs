//! Left factors that are packed once and multiplied many times: the weights of convolutions.

use super::drive::Product;
use super::error::GemmError;
use super::finish::{Finish, Store, StridedOutput};
use super::isa::{self, Kernels};
use super::pack::Pack;
use super::unfold::Unfolded;
use super::vector::{ElementType, Factor};
use super::{Operand, Output, View};
use crate::pool;

/// Elements that a task packs.
const TASK_PACKS: usize = 64 << 10;

/// Height of the panels of `m` packed rows: tiles of nearly equal height, because a tile of few
/// rows is slow.
fn height(kernels: &Kernels, m: usize) -> usize {
    m.div_ceil(m.div_ceil(kernels.rows).max(1)).max(1)
}

/// A packed left factor of `rows` × `depth`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Panels<'a> {
    data: &'a [f32],
    rows: usize,
    depth: usize,
}

/// The right factor of a product with packed rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Columns<'a> {
    /// A matrix in memory, with any strides.
    Matrix(Operand<'a>),
    /// An image that is unfolded while it is packed.
    Unfolded(Unfolded<'a>),
}

impl<'a> Panels<'a> {
    /// Panels that [`Panels::pack`] wrote.
    ///
    /// # Errors
    /// [`GemmError::OutOfBounds`] if there are fewer than `rows · depth` values.
    pub fn new(data: &'a [f32], rows: usize, depth: usize) -> Result<Panels<'a>, GemmError> {
        View::row_major(data, rows, depth)?;
        Ok(Panels { data, rows, depth })
    }

    /// Packs a factor into `rows · depth` values.
    ///
    /// # Errors
    /// [`GemmError::OutOfBounds`] if `to` has fewer values.
    pub fn pack(from: Operand<'_>, to: &mut [f32]) -> Result<(), GemmError> {
        let kernels = isa::best();
        let (rows, depth) = from.shape();
        View::row_major(to, rows, depth)?;
        if rows == 0 || depth == 0 {
            return Ok(());
        }
        let (height, factor) = (height(kernels, rows), from.factor(0));
        let panels = (TASK_PACKS / (height * depth)).max(1);
        pool::for_each_chunk_mut(&mut to[..rows * depth], panels * height * depth, |task, to| {
            let first = task * panels * height;
            let lines = (panels * height).min(rows - first);
            let job = Pack {
                factor,
                first,
                lines,
                from: 0,
                depth,
                width: height,
                last: lines % height,
                to: to.as_mut_ptr().cast(),
                found: std::ptr::null(),
            };
            // SAFETY: the lines are inside the factor, and `to` has `lines · depth` values; no step
            // of a panel is padded.
            unsafe { (kernels.pack)(job) };
        });
        Ok(())
    }

    /// `out = packed rows · columns`, plus one bias for each row, rounded to fp16 if `round`.
    ///
    /// # Errors
    /// [`GemmError`] if the shapes do not fit, or scratch memory cannot be allocated.
    pub fn multiply(
        &self,
        columns: Columns<'_>,
        out: Output<'_>,
        bias: Option<&[f32]>,
        round: bool,
        parallel: bool,
    ) -> Result<(), GemmError> {
        let kernels = isa::best();
        let (rhs, shape) = match columns {
            Columns::Matrix(matrix) => {
                matrix.check(0)?;
                (matrix.t().factor(0), matrix.shape())
            }
            Columns::Unfolded(image) => (image.factor(), image.shape()),
        };
        let (m, n, k) = (self.rows, shape.1, self.depth);
        if shape.0 != k || out.shape() != (m, n) {
            return Err(GemmError::Shape { lhs: (m, k), rhs: shape, out: out.shape() });
        }
        if let Some(bias) = bias.filter(|b| b.len() != m) {
            return Err(GemmError::Bias { expected: m, found: bias.len() });
        }
        out.check(0)?;
        if m == 0 || n == 0 {
            return Ok(());
        }
        let target = out.target();
        let origin = target.grid.origin(0);
        let store = match target.store {
            Store::F32(base) => Store::F32(base.wrapping_add(origin)),
            Store::F16(base) => Store::F16(base.wrapping_add(origin)),
        };
        let address = self.data.as_ptr().cast();
        let product = Product {
            blocks: false,
            kernels,
            lhs: Factor { address, kind: ElementType::F32, line: 1, depth: 1, tables: None },
            packed: Some(height(kernels, m)),
            rhs,
            packed_columns: None,
            out: StridedOutput { store, row: target.grid.row_stride, col: target.grid.col_stride },
            finish: Finish {
                scale: 1.0,
                row_scales: None,
                col_scales: None,
                accumulate: false,
                round,
                row_bias: bias,
                col_bias: None,
            },
            m,
            n,
            k,
            of_depth: k,
        };
        // SAFETY: the views and tables were checked, the output is borrowed exclusively, and
        // `isa::best` returns kernels that this processor supports.
        unsafe { product.run(parallel) }
    }
}
