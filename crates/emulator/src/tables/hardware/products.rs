//! Matrix products through the machine's accumulator.

use ferrane_arith::{Accumulator, Rounding, Rules, exact_sum};
use ferrane_device::{Error, ErrorKind, Result};
use ferrane_host::gemm::Bias;
use ferrane_host::grid::{self, Grid};
use ferrane_host::sync::{self, lock};
use ferrane_host::{convert, pool, vectorize};

use super::{Hardware, exact};
use crate::ir::Matmul;
use crate::tables::memory::{Reads, Slice, SliceMut};
use crate::tables::rows::{load_row, store_row};
use crate::tables::scratch;

/// The most elements of the results of products that run in parallel.
const TOGETHER: usize = 4 << 20;
/// The most multiply-adds of products that run in parallel, one thread each.
const SMALL: usize = 1 << 21;
/// Elements of the epilogue of one task.
const FINISH: usize = 1 << 15;
/// The most taps for which fp32 sums of squares are accurate to 1 %.
const BOUNDED: usize = 1 << 16;

/// What follows a product: `r(scale · r(sum + bias))`.
#[derive(Clone, Copy)]
struct After<'a> {
    scale: f32,
    bias: Option<Bias<'a>>,
}

impl After<'_> {
    fn bias_at(&self, row: usize, col: usize) -> f32 {
        match self.bias {
            Some(Bias::Rows(b)) => b[row],
            Some(Bias::Cols(b)) => b[col],
            None => 0.0,
        }
    }
}

/// A matrix in memory: offset of element (0, 0), extents and strides.
#[derive(Clone, Copy)]
struct Matrix<'a, 'b> {
    slice: &'b Slice<'a>,
    at: isize,
    rows: usize,
    cols: usize,
    strides: (isize, isize),
}

impl<'a, 'b> Matrix<'a, 'b> {
    /// The view whose lowest element lies at `lowest`.
    fn new(slice: &'b Slice<'a>, lowest: usize, rows: usize, cols: usize, strides: (isize, isize)) -> Matrix<'a, 'b> {
        let at = lowest as isize + origin(rows, cols, strides);
        Matrix { slice, at, rows, cols, strides }
    }

    fn t(self) -> Matrix<'a, 'b> {
        Matrix { rows: self.cols, cols: self.rows, strides: (self.strides.1, self.strides.0), ..self }
    }

    /// All elements, dense and row-major.
    fn pack(&self, to: &mut [f32]) {
        let (row, col) = self.strides;
        if row == 1 && col >= self.rows as isize && col != 1 {
            let at = self.at as usize;
            match self.slice {
                Slice::F16(s) => {
                    return convert::f16_to_f32_transposed(&s[at..], col as usize, to, self.cols, self.cols, self.rows);
                }
                Slice::F32(s) => {
                    for (c, line) in s[at..].chunks(col as usize).take(self.cols).enumerate() {
                        for (r, v) in line[..self.rows].iter().enumerate() {
                            to[r * self.cols + c] = *v;
                        }
                    }
                    return;
                }
                _ => {}
            }
        }
        for (r, line) in to.chunks_mut(self.cols).enumerate() {
            load_row(self.slice, self.at + r as isize * row, col, line);
        }
    }
}

/// Offset of element (0, 0) from the lowest one.
fn origin(rows: usize, cols: usize, strides: (isize, isize)) -> isize {
    let back = |n: usize, s: isize| if s < 0 { (n as isize - 1) * -s } else { 0 };
    back(rows, strides.0) + back(cols, strides.1)
}

fn missing(error: ferrane_host::buffer::AllocError) -> Error {
    Error::new(ErrorKind::OutOfMemory, error.to_string())
}

impl Hardware {
    /// Computes the products of one step, rounded.
    pub(crate) fn matmul(
        &self,
        step: &Matmul,
        bias: Option<Bias<'_>>,
        reads: &Reads<'_>,
        write: &mut SliceMut<'_>,
    ) -> Result<()> {
        let Matmul { k, strides: [left, right, out], .. } = *step;
        // A column-major result is computed as its transpose, so that rows are stored as rows.
        let turned = out.1 != 1 && out.0 == 1;
        let (m, n, out) = if turned { (step.n, step.m, (out.1, out.0)) } else { (step.m, step.n, out) };
        let after = After {
            scale: step.scale,
            bias: match bias {
                Some(Bias::Rows(b)) if turned => Some(Bias::Cols(b)),
                Some(Bias::Cols(b)) if turned => Some(Bias::Rows(b)),
                other => other,
            },
        };
        let each = m * n;
        let group = (TOGETHER / each.max(1)).clamp(1, step.batch.len().max(1));
        let side_by_side = group > 1 && each.saturating_mul(k) <= SMALL;
        for items in step.batch.chunks(group) {
            scratch::with(each * items.len(), |results| {
                let tasks = scratch::Tasks::default();
                let failed = std::sync::Mutex::new(None);
                let per_task = if side_by_side { (SMALL / (each * k).max(1)).max(1) } else { items.len() };
                pool::for_each_chunk_mut(results, per_task * each, |task, results| {
                    tasks.with(m * k + k * n, |factors| {
                        let (lhs, rhs) = factors.split_at_mut(m * k);
                        for (item, to) in items[task * per_task..].iter().zip(results.chunks_mut(each)) {
                            let x = Matrix::new(&reads[0], item.lhs, step.m, k, left);
                            let y = Matrix::new(&reads[1], item.rhs, k, step.n, right);
                            let (x, y) = if turned { (y.t(), x.t()) } else { (x, y) };
                            x.pack(lhs);
                            y.pack(rhs);
                            if let Err(error) = self.product(lhs, rhs, to, [m, k, n], after) {
                                *lock(&failed) = Some(error);
                            }
                        }
                    });
                });
                tasks.end()?;
                if let Some(error) = sync::into_inner(failed) {
                    return Err(error);
                }
                for (item, results) in items.iter().zip(results.chunks(each)) {
                    let at = item.out as isize + origin(m, n, out);
                    for (r, row) in results.chunks(n).enumerate() {
                        store_row(write, at + r as isize * out.0, out.1, row);
                    }
                }
                Ok(())
            })??;
        }
        Ok(())
    }

    /// Dense weights `[m, k]` times unfolded input `[k, n]`.
    pub(crate) fn conv(
        &self,
        weights: &Slice<'_>,
        columns: &mut [f32],
        to: &mut [f32],
        sizes: [usize; 3],
        bias: Option<Bias<'_>>,
    ) -> Result<()> {
        let [m, k, _] = sizes;
        scratch::with(m * k, |lhs| {
            load_row(weights, 0, 1, lhs);
            self.product(lhs, columns, to, sizes, After { scale: 1.0, bias })
        })?
    }

    /// `to = after(lhs · rhs)`, `m × k` times `k × n`, dense and row-major.
    fn product(
        &self,
        lhs: &mut [f32],
        rhs: &mut [f32],
        to: &mut [f32],
        [m, k, n]: [usize; 3],
        after: After<'_>,
    ) -> Result<()> {
        let rules = &self.rules;
        for factor in [&mut *lhs, &mut *rhs] {
            vectorize!({
                for v in factor {
                    *v = rules.operand(*v);
                }
            });
        }
        let (lhs, rhs) = (&*lhs, &*rhs);
        if k < 2 {
            for (i, row) in to.chunks_mut(n).enumerate() {
                for (j, v) in row.iter_mut().enumerate() {
                    *v = one(rules, lhs, rhs, [i, k, j, n], after);
                }
            }
            return Ok(());
        }
        if rules.accumulator == Accumulator::Grid {
            self.on_grid(lhs, rhs, to, [m, k, n], after)
        } else {
            self.exact(lhs, rhs, to, [m, k, n], after)
        }
    }

    /// `product` for accumulators without a grid.
    fn exact(&self, lhs: &[f32], rhs: &[f32], to: &mut [f32], [m, k, n]: [usize; 3], after: After<'_>) -> Result<()> {
        let rules = &self.rules;
        let is_tiled = rules.accumulator == Accumulator::Tiles;
        scratch::with(m + n, |squares| {
            let (rows, cols) = squares.split_at_mut(m);
            norms(lhs, rhs, rows, cols, k, n);
            let per_task = FINISH.div_ceil(k * n);
            pool::for_each_chunk_mut(to, per_task * n, |task, piece| {
                for (i, to) in piece.chunks_mut(n).enumerate() {
                    let i = task * per_task + i;
                    exact::row(is_tiled, &lhs[i * k..][..k], rhs, n, |j, sum| {
                        to[j] = if sure(rules, k, rows[i], cols[j]) {
                            stored(rules, k, exact_sum(sum), after.bias_at(i, j), after.scale)
                        } else {
                            one(rules, lhs, rhs, [i, k, j, n], after)
                        };
                    });
                }
            });
        })
    }

    /// `product` on the grid.
    fn on_grid(&self, lhs: &[f32], rhs: &[f32], to: &mut [f32], [m, k, n]: [usize; 3], after: After<'_>) -> Result<()> {
        let rules = &self.rules;
        let grid = Grid { scale: rules.grid_scale(), flush: rules.grid_flush, away: rules.rounding == Rounding::Away };
        grid::multiply(grid, lhs, rhs, bytemuck::cast_slice_mut(to), m, k, n).map_err(missing)?;
        scratch::with(m + n, |squares| {
            let (rows, cols) = squares.split_at_mut(m);
            norms(lhs, rhs, rows, cols, k, n);
            let most = |v: &[f32]| v.iter().copied().fold(0.0f32, |m, v| if v > m || v.is_nan() { v } else { m });
            let all = sure(rules, k, most(rows), most(cols));
            let per_task = FINISH.div_ceil(n);
            pool::for_each_chunk_mut(to, per_task * n, |task, piece| {
                for (i, row) in piece.chunks_mut(n).enumerate() {
                    let i = task * per_task + i;
                    finish(rules, row, i, k, after);
                    if all || sure(rules, k, rows[i], most(cols)) {
                        continue;
                    }
                    for (j, v) in row.iter_mut().enumerate() {
                        if !sure(rules, k, rows[i], cols[j]) {
                            *v = one(rules, lhs, rhs, [i, k, j, n], after);
                        }
                    }
                }
            });
        })
    }
}

/// Turns the sums of a row, in grid units, into stored values.
fn finish(rules: &Rules, row: &mut [f32], i: usize, k: usize, after: After<'_>) {
    let unit = 1.0 / f64::from(rules.grid_scale());
    let stored = |units: f32, bias: f32| stored(rules, k, f64::from(units.to_bits() as i32) * unit, bias, after.scale);
    match after.bias {
        Some(Bias::Cols(bias)) => vectorize!({
            for (v, &b) in row.iter_mut().zip(bias) {
                *v = stored(*v, b);
            }
        }),
        other => {
            let bias = if let Some(Bias::Rows(b)) = other { b[i] } else { 0.0 };
            vectorize!({
                for v in row {
                    *v = stored(*v, bias);
                }
            });
        }
    }
}

/// One element by the scalar rules: row `i` times column `j` of `n`.
fn one(rules: &Rules, lhs: &[f32], rhs: &[f32], [i, k, j, n]: [usize; 4], after: After<'_>) -> f32 {
    let sum = rules.dot(k, |c| (lhs[i * k + c], rhs[c * n + j]));
    stored(rules, k, sum, after.bias_at(i, j), after.scale)
}

/// What is stored for a sum.
#[inline(always)]
fn stored(rules: &Rules, k: usize, sum: f64, bias: f32, scale: f32) -> f32 {
    let value = rules.output(k, sum, bias);
    if scale == 1.0 { value } else { rules.result(value * rules.rounding.f32(scale)) }
}

/// True if sums of squares in fp32 show that no partial sum can overflow.
fn sure(rules: &Rules, k: usize, row: f32, col: f32) -> bool {
    k <= BOUNDED && rules.cannot_overflow(k, (f64::from(row) * 1.01, f64::from(col) * 1.01))
}

/// Sums of squares of the rows of `lhs` and of the columns of `rhs`.
fn norms(lhs: &[f32], rhs: &[f32], rows: &mut [f32], cols: &mut [f32], k: usize, n: usize) {
    vectorize!({
        for (sum, row) in rows.iter_mut().zip(lhs.chunks_exact(k)) {
            let mut lanes = [0.0f32; 16];
            let whole = k / 16 * 16;
            for chunk in row[..whole].chunks_exact(16) {
                for (lane, v) in lanes.iter_mut().zip(chunk) {
                    *lane += v * v;
                }
            }
            for (lane, v) in lanes.iter_mut().zip(&row[whole..]) {
                *lane += v * v;
            }
            *sum = lanes.iter().sum();
        }
        cols.fill(0.0);
        for line in rhs.chunks_exact(n) {
            for (sum, v) in cols.iter_mut().zip(line) {
                *sum += v * v;
            }
        }
    });
}
