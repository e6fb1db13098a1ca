//! Matrix products of tensor ops.

use ferrane_device::Result;
use ferrane_host::gemm::{Epilogue, Operand, Output, View, ViewMut, gemm};

use super::Call;

/// A matrix in a slice: extents and strides.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    strides: (usize, usize),
}

impl<'a> Matrix<'a> {
    /// A matrix with element `(r, c)` at `r · strides.0 + c · strides.1`.
    pub(crate) fn new(data: &'a [f32], rows: usize, cols: usize, strides: (usize, usize)) -> Matrix<'a> {
        Matrix { data, rows, cols, strides }
    }

    /// A dense row-major matrix.
    pub(crate) fn dense(data: &'a [f32], rows: usize, cols: usize) -> Matrix<'a> {
        Matrix::new(data, rows, cols, (cols, 1))
    }

    /// The transposed matrix, by its strides.
    pub(crate) fn t(self) -> Matrix<'a> {
        Matrix { rows: self.cols, cols: self.rows, strides: (self.strides.1, self.strides.0), ..self }
    }
}

impl Call<'_> {
    /// `a · b` into dense rows. Sums accumulate in fp64 if [`Call::wide`] is set.
    pub(crate) fn product(&self, a: Matrix<'_>, b: Matrix<'_>, out: &mut [f32]) -> Result<()> {
        let (m, n, k) = (a.rows, b.cols, a.cols);
        if m == 0 || n == 0 || k == 0 {
            out.fill(0.0);
            return Ok(());
        }
        if self.wide {
            let mut sums = vec![0.0f64; n];
            for (row, to) in out.chunks_exact_mut(n).enumerate() {
                sums.fill(0.0);
                for i in 0..k {
                    let factor = f64::from(a.data[row * a.strides.0 + i * a.strides.1]);
                    for (col, sum) in sums.iter_mut().enumerate() {
                        *sum += factor * f64::from(b.data[i * b.strides.0 + col * b.strides.1]);
                    }
                }
                for (to, sum) in to.iter_mut().zip(&sums) {
                    *to = *sum as f32;
                }
            }
            return Ok(());
        }
        let wrong = |e| self.fail(format!("a product failed: {e}"));
        let view = |x: Matrix<'_>| (x.rows, x.cols, x.strides.0 as isize, x.strides.1 as isize);
        let ((ar, ac, ars, acs), (br, bc, brs, bcs)) = (view(a), view(b));
        let lhs = Operand::F32(View::new(a.data, ar, ac, ars, acs).map_err(wrong)?);
        let rhs = Operand::F32(View::new(b.data, br, bc, brs, bcs).map_err(wrong)?);
        let out = Output::F32(ViewMut::row_major(out, m, n).map_err(wrong)?);
        gemm(lhs, rhs, out, Epilogue::default()).map_err(wrong)
    }
}
