//! The one door for matrix products: `out = epilogue(lhs · rhs)`.
//!
//! Operands are [`View`]s of fp32, fp16 or int8 with any strides, so a transposed or interleaved operand needs no
//! copy. Sums are fp32 whatever the operands; the [`Epilogue`] scales, adds a bias, accumulates and rounds. NaN and
//! infinity follow IEEE: nothing is skipped because a factor is zero.
//!
//! Invariant: the order in which one element is summed depends on the three sizes and the processor, never on the
//! thread count or on how busy the pool is. The work over threads is cut along rows and columns of the result only.
//!
//! The one decision: fp16 and int8 operands are first widened into fp32 scratch, in their own memory order so that
//! the widening is a contiguous pass, and then go through the fp32 kernels of the `gemm` crate. Its own fp16 path
//! reaches two thirds of that. Scratch belongs to the thread, grows to the largest product it has seen and is reused.

use half::f16;

use crate::{convert, pool};

mod error;
mod scratch;
mod view;
pub use error::GemmError;
use scratch::with_scratch;
pub use view::{View, ViewMut};

#[cfg(test)]
mod tests;

/// Products with fewer multiply-adds than this stay on the calling thread.
const PARALLEL_PRODUCT: usize = 1 << 20;

/// Elements of a widening or storing pass below which it stays on the calling thread.
const PARALLEL_PASS: usize = 1 << 17;

/// A batch whose items have fewer multiply-adds than this runs its items side by side, one thread each.
const SMALL_ITEM: usize = 1 << 25;

/// Batches with more items than this are not checked pair by pair for disjoint results.
const PAIRWISE: usize = 256;

/// A factor of a product.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// fp32, used in place.
    F32(View<'a, f32>),
    /// fp16, widened.
    F16(View<'a, f16>),
    /// int8, widened; a scale goes into the epilogue.
    I8(View<'a, i8>),
}

/// Where a product goes.
#[derive(Debug)]
pub enum Output<'a> {
    /// fp32.
    F32(ViewMut<'a, f32>),
    /// fp16, rounded once to nearest even.
    F16(ViewMut<'a, f16>),
}

/// A vector added to the product.
#[derive(Clone, Copy, Debug)]
pub enum Bias<'a> {
    /// One value for each row of the result.
    Rows(&'a [f32]),
    /// One value for each column of the result.
    Cols(&'a [f32]),
}

/// What happens to the sums: `out = round([out +] scale · (lhs · rhs) + bias)`, in this order.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue<'a> {
    /// Factor on the product.
    pub scale: f32,
    /// Adds to what the output holds. fp32 outputs only.
    pub accumulate: bool,
    /// Rounds an fp32 result to the nearest fp16 value. An fp16 output is rounded anyway.
    pub round: bool,
    /// Added before rounding.
    pub bias: Option<Bias<'a>>,
}

impl Default for Epilogue<'_> {
    /// The plain product.
    fn default() -> Self {
        Self { scale: 1.0, accumulate: false, round: false, bias: None }
    }
}

/// Where one product of a batch begins: elements added to the start of each view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchOffsets {
    /// Added to the start of `lhs`.
    pub lhs: usize,
    /// Added to the start of `rhs`.
    pub rhs: usize,
    /// Added to the start of `out`.
    pub out: usize,
}

/// `out = epilogue(lhs · rhs)`.
///
/// # Errors
/// [`GemmError`] if the shapes do not fit, or scratch cannot be had. Nothing is written then.
pub fn gemm(lhs: Operand<'_>, rhs: Operand<'_>, out: Output<'_>, epilogue: Epilogue<'_>) -> Result<(), GemmError> {
    gemm_batch(&[BatchOffsets::default()], lhs, rhs, out, epilogue)
}

/// A product for each item of `batch`: the same shapes and strides, other places. The views' data are the whole
/// memory; each item's offsets are added to the views' starts.
///
/// Small items run side by side if their results are seen to be disjoint, else one after the other in order.
///
/// # Errors
/// [`GemmError`] if the shapes do not fit, an item reaches beyond the data, or scratch cannot be had. Nothing is
/// written then (but for scratch, which may fail on the way).
pub fn gemm_batch(
    batch: &[BatchOffsets],
    lhs: Operand<'_>,
    rhs: Operand<'_>,
    out: Output<'_>,
    epilogue: Epilogue<'_>,
) -> Result<(), GemmError> {
    let (l, r, o) = (lhs.shape(), rhs.shape(), out.shape());
    if l.0 != o.0 || r.1 != o.1 || l.1 != r.0 {
        return Err(GemmError::Shape { lhs: l, rhs: r, out: o });
    }
    let bias = match epilogue.bias {
        Some(Bias::Rows(b)) => Some((b.len(), o.0)),
        Some(Bias::Cols(b)) => Some((b.len(), o.1)),
        None => None,
    };
    if let Some((found, expected)) = bias
        && found != expected
    {
        return Err(GemmError::Bias { expected, found });
    }
    if epilogue.accumulate && matches!(out, Output::F16(_)) {
        return Err(GemmError::Accumulate);
    }
    for item in batch {
        lhs.check(item.lhs)?;
        rhs.check(item.rhs)?;
        out.check(item.out)?;
    }
    let work = o.0.saturating_mul(o.1).saturating_mul(l.1.max(1));
    let job = Job { lhs, rhs, out: out.target(), epilogue, m: o.0, n: o.1, k: l.1 };
    if job.m == 0 || job.n == 0 {
        return Ok(());
    }
    let side_by_side = batch.len() > 1
        && work < SMALL_ITEM
        && work.saturating_mul(batch.len()) >= PARALLEL_PRODUCT
        && disjoint(batch, &job.out);
    if side_by_side {
        // The scratch of a thread is had before it writes; one failure is enough to report.
        let failed = std::sync::Mutex::new(None);
        pool::for_each_range(batch.len(), 1, |range| {
            for item in &batch[range] {
                // SAFETY: every item's places were checked above and the results are disjoint.
                if let Err(error) = unsafe { job.run(*item, false) } {
                    *failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(error);
                }
            }
        });
        return failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).map_or(Ok(()), Err);
    }
    for item in batch {
        // SAFETY: every item's places were checked above; items run one after the other.
        unsafe { job.run(*item, work >= PARALLEL_PRODUCT)? };
    }
    Ok(())
}

impl Operand<'_> {
    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        match self {
            Self::F32(v) => (v.rows(), v.cols()),
            Self::F16(v) => (v.rows(), v.cols()),
            Self::I8(v) => (v.rows(), v.cols()),
        }
    }

    /// The transposed factor; nothing is moved.
    pub fn t(self) -> Self {
        match self {
            Self::F32(v) => Self::F32(v.t()),
            Self::F16(v) => Self::F16(v.t()),
            Self::I8(v) => Self::I8(v.t()),
        }
    }

    fn check(&self, offset: usize) -> Result<(), GemmError> {
        match self {
            Self::F32(v) => v.check(offset),
            Self::F16(v) => v.check(offset),
            Self::I8(v) => v.check(offset),
        }
    }

    /// Elements of scratch that widening takes.
    fn scratch(&self) -> usize {
        match self {
            Self::F32(_) => 0,
            Self::F16(_) | Self::I8(_) => self.shape().0.saturating_mul(self.shape().1),
        }
    }

    /// The factor at `offset` as fp32, through `scratch` where it is of another type.
    fn widen(&self, offset: usize, scratch: &mut [f32], parallel: bool) -> Source {
        match self {
            Self::F32(v) => {
                let grid = v.grid();
                // SAFETY: `offset` was checked: the origin lies inside the data (or the view is empty).
                let ptr = unsafe { v.data().as_ptr().add(grid.origin(offset)) };
                Source { ptr, row_stride: grid.row_stride, col_stride: grid.col_stride }
            }
            Self::F16(v) => widen(v, offset, scratch, parallel, convert::f16_to_f32, f16::to_f32),
            Self::I8(v) => widen(v, offset, scratch, parallel, convert::i8_to_f32, f32::from),
        }
    }
}

impl Output<'_> {
    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        match self {
            Self::F32(v) => (v.rows(), v.cols()),
            Self::F16(v) => (v.rows(), v.cols()),
        }
    }

    fn check(&self, offset: usize) -> Result<(), GemmError> {
        match self {
            Self::F32(v) => v.check(offset),
            Self::F16(v) => v.check(offset),
        }
    }

    fn target(self) -> Target {
        match self {
            Self::F32(v) => Target { grid: v.grid(), store: Store::F32(v.into_data().as_mut_ptr()) },
            Self::F16(v) => Target { grid: v.grid(), store: Store::F16(v.into_data().as_mut_ptr()) },
        }
    }
}

/// Shape and strides of a view. With a negative stride, element (0, 0) is not the lowest in memory; `origin` is
/// where it lies.
#[derive(Clone, Copy, Debug)]
struct Grid {
    rows: usize,
    cols: usize,
    row_stride: isize,
    col_stride: isize,
}

impl Grid {
    /// Index of element (0, 0) of a view whose lowest element is at `offset`.
    fn origin(&self, offset: usize) -> usize {
        if self.rows == 0 || self.cols == 0 {
            return offset;
        }
        let back = |count: usize, stride: isize| if stride < 0 { (count - 1) * stride.unsigned_abs() } else { 0 };
        offset + back(self.rows, self.row_stride) + back(self.cols, self.col_stride)
    }

    /// Whether consecutive columns lie closer together than consecutive rows.
    fn row_major(&self) -> bool {
        self.rows <= 1 || (self.cols > 1 && self.col_stride.unsigned_abs() <= self.row_stride.unsigned_abs())
    }

    /// The lines along the closer dimension: (lines, stride between lines, elements of a line, stride in a line).
    fn lines(&self) -> (usize, isize, usize, isize) {
        if self.row_major() {
            (self.rows, self.row_stride, self.cols, self.col_stride)
        } else {
            (self.cols, self.col_stride, self.rows, self.row_stride)
        }
    }
}

/// A factor as the kernels read it: the address of element (0, 0), and strides in elements.
#[derive(Clone, Copy)]
struct Source {
    ptr: *const f32,
    row_stride: isize,
    col_stride: isize,
}

#[derive(Clone, Copy)]
enum Store {
    F32(*mut f32),
    F16(*mut f16),
}

/// The output with its borrow turned into an address, so that several threads can fill disjoint parts.
struct Target {
    grid: Grid,
    store: Store,
}

// SAFETY: the address comes from an exclusive borrow that outlives the call, and threads write disjoint elements
// (checked by `disjoint`, or one thread at a time).
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

/// An address that may cross threads; who sends it argues why.
#[derive(Clone, Copy)]
struct Address<T>(*mut T);
// SAFETY: a bare address; every use is argued where it happens.
unsafe impl<T> Send for Address<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Address<T> {}

impl<T> Address<T> {
    /// The address; a method, so that closures capture the whole wrapper.
    fn get(self) -> *mut T {
        self.0
    }
}

/// Widens a view line by line into `scratch`, keeping its memory order.
fn widen<T: Copy + Sync>(
    view: &View<'_, T>,
    offset: usize,
    scratch: &mut [f32],
    parallel: bool,
    convert: fn(&[T], &mut [f32]),
    one: fn(T) -> f32,
) -> Source {
    let grid = view.grid();
    let (lines, line_stride, len, stride) = grid.lines();
    let origin = grid.origin(offset) as isize;
    let data = view.data();
    let line = |i: usize, dst: &mut [f32]| {
        let first = origin + i as isize * line_stride;
        if stride == 1 {
            convert(&data[first as usize..][..len], dst);
        } else {
            for (j, d) in dst.iter_mut().enumerate() {
                *d = one(data[(first + j as isize * stride) as usize]);
            }
        }
    };
    let scratch = &mut scratch[..lines * len];
    if !scratch.is_empty() {
        if stride == 1 && line_stride == len as isize {
            let data = &data[origin as usize..][..scratch.len()];
            let chunk = if parallel { PARALLEL_PASS / 2 } else { scratch.len() };
            pool::for_each_chunk_mut(scratch, chunk, |i, dst| convert(&data[i * chunk..][..dst.len()], dst));
        } else {
            let per_task = if parallel { (PARALLEL_PASS / 2).div_ceil(len) } else { lines };
            pool::for_each_chunk_mut(scratch, per_task * len, |i, dst| {
                for (j, dst) in dst.chunks_mut(len).enumerate() {
                    line(i * per_task + j, dst);
                }
            });
        }
    }
    let (outer, inner) = (len as isize, 1);
    let (row_stride, col_stride) = if grid.row_major() { (outer, inner) } else { (inner, outer) };
    Source { ptr: scratch.as_ptr(), row_stride, col_stride }
}

/// One call's parameters, checked.
struct Job<'a> {
    lhs: Operand<'a>,
    rhs: Operand<'a>,
    out: Target,
    epilogue: Epilogue<'a>,
    m: usize,
    n: usize,
    k: usize,
}

impl Job<'_> {
    /// Computes one item of the batch.
    ///
    /// # Safety
    /// The item's offsets were checked against the views, `m` and `n` are not zero, and nothing else accesses the
    /// item's output elements during the call.
    unsafe fn run(&self, item: BatchOffsets, parallel: bool) -> Result<(), GemmError> {
        let grid = self.out.grid;
        let staged = match self.out.store {
            Store::F16(_) => self.m.saturating_mul(self.n),
            Store::F32(_) => 0,
        };
        let sizes = [self.lhs.scratch(), self.rhs.scratch(), staged];
        with_scratch(sizes, |[a, b, c]| {
            let lhs = self.lhs.widen(item.lhs, a, parallel);
            let rhs = self.rhs.widen(item.rhs, b, parallel);
            match self.out.store {
                Store::F32(base) => {
                    // SAFETY: the origin lies inside the output's data.
                    let dst = unsafe { base.add(grid.origin(item.out)) };
                    // SAFETY: `dst` and the strides describe the checked output, which is ours alone.
                    unsafe { self.multiply(lhs, rhs, dst, grid.row_stride, grid.col_stride, parallel) };
                    if self.epilogue.bias.is_some() || self.epilogue.round {
                        let dst = Address(dst);
                        self.each_line(parallel, |i, line_stride, len, stride| {
                            // SAFETY: line `i` of the checked output; tasks have different lines.
                            unsafe { self.finish(dst.get().offset(i as isize * line_stride), i, len, stride) }
                        });
                    }
                }
                Store::F16(base) => {
                    // SAFETY: the origin lies inside the output's data.
                    let dst = Address(unsafe { base.add(grid.origin(item.out)) });
                    let (_, _, line, _) = grid.lines();
                    let (rs, cs) = if grid.row_major() { (line as isize, 1) } else { (1, line as isize) };
                    // SAFETY: the staging area has `m * n` elements and these strides are dense in it.
                    unsafe { self.multiply(lhs, rhs, c.as_mut_ptr(), rs, cs, parallel) };
                    let staged = Address(c.as_mut_ptr());
                    self.each_line(parallel, |i, line_stride, len, stride| {
                        // SAFETY: line `i` of the staging area; tasks have different lines.
                        let sums = unsafe { std::slice::from_raw_parts_mut(staged.get().add(i * len), len) };
                        self.add_bias(sums, i);
                        // SAFETY: line `i` of the checked output; tasks have different lines.
                        unsafe { store(sums, dst.get().offset(i as isize * line_stride), stride) }
                    });
                }
            }
        })
    }

    /// `dst = [dst +] scale · lhs · rhs` in fp32.
    ///
    /// # Safety
    /// `lhs` and `rhs` are readable as `m × k` and `k × n`, `dst` is writable as `m × n` with these strides and
    /// without overlap, none else accesses it, and it does not alias the factors.
    unsafe fn multiply(
        &self,
        lhs: Source,
        rhs: Source,
        dst: *mut f32,
        row_stride: isize,
        col_stride: isize,
        parallel: bool,
    ) {
        let parallelism = if parallel { gemm::Parallelism::Rayon(0) } else { gemm::Parallelism::None };
        // SAFETY: the caller's promise is what the kernel asks for.
        unsafe {
            gemm::gemm::<f32>(
                self.m,
                self.n,
                self.k,
                dst,
                col_stride,
                row_stride,
                self.epilogue.accumulate,
                lhs.ptr,
                lhs.col_stride,
                lhs.row_stride,
                rhs.ptr,
                rhs.col_stride,
                rhs.row_stride,
                1.0,
                self.epilogue.scale,
                false,
                false,
                false,
                parallelism,
            );
        }
    }

    /// Calls `pass(line, stride between lines, elements of a line, stride in a line)` for each line of the output.
    fn each_line(&self, parallel: bool, pass: impl Fn(usize, isize, usize, isize) + Sync) {
        let (lines, line_stride, len, stride) = self.out.grid.lines();
        let per_task = if parallel { (PARALLEL_PASS / 2).div_ceil(len.max(1)) } else { lines };
        pool::for_each_range(lines, per_task, |range| {
            for i in range {
                pass(i, line_stride, len, stride);
            }
        });
    }

    /// Adds the bias to line `i` of the result.
    fn add_bias(&self, line: &mut [f32], i: usize) {
        let along = match (self.epilogue.bias, self.out.grid.row_major()) {
            (None, _) => return,
            (Some(Bias::Rows(b)), true) | (Some(Bias::Cols(b)), false) => Err(b[i]),
            (Some(Bias::Rows(b)), false) | (Some(Bias::Cols(b)), true) => Ok(b),
        };
        match along {
            Ok(bias) => line.iter_mut().zip(bias).for_each(|(v, b)| *v += b),
            Err(value) => line.iter_mut().for_each(|v| *v += value),
        }
    }

    /// Bias and rounding of line `i` of an fp32 output, in place.
    ///
    /// # Safety
    /// `len` elements from `ptr` on, `stride` apart, are initialised and nobody else's.
    unsafe fn finish(&self, ptr: *mut f32, i: usize, len: usize, stride: isize) {
        let end = |line: &mut [f32]| {
            self.add_bias(line, i);
            if self.epilogue.round {
                convert::round_f16(line);
            }
        };
        if stride == 1 {
            // SAFETY: the caller's promise, with stride 1.
            return end(unsafe { std::slice::from_raw_parts_mut(ptr, len) });
        }
        for j in 0..len {
            // SAFETY: element `j` of the line.
            let place = unsafe { &mut *ptr.offset(j as isize * stride) };
            match (self.epilogue.bias, self.out.grid.row_major()) {
                (None, _) => {}
                (Some(Bias::Rows(b)), true) | (Some(Bias::Cols(b)), false) => *place += b[i],
                (Some(Bias::Rows(b)), false) | (Some(Bias::Cols(b)), true) => *place += b[j],
            }
            if self.epilogue.round {
                *place = f16::from_f32(*place).to_f32();
            }
        }
    }
}

/// Rounds a line of sums into fp16 places `stride` apart.
///
/// # Safety
/// The places are inside one allocation and nobody else's.
unsafe fn store(sums: &[f32], ptr: *mut f16, stride: isize) {
    if stride == 1 {
        // SAFETY: the caller's promise, with stride 1.
        return convert::f32_to_f16(sums, unsafe { std::slice::from_raw_parts_mut(ptr, sums.len()) });
    }
    for (j, &sum) in sums.iter().enumerate() {
        // SAFETY: element `j` of the line.
        unsafe { ptr.offset(j as isize * stride).write(f16::from_f32(sum)) }
    }
}

/// Whether the results of all items are seen to be disjoint. `false` may also mean "not known".
fn disjoint(batch: &[BatchOffsets], out: &Target) -> bool {
    let (lines, line_stride, len, stride) = out.grid.lines();
    let width = (len - 1) * stride.unsigned_abs() + 1;
    let pitch = line_stride.unsigned_abs();
    let extent = (lines - 1) * pitch + width;
    // The common case: one block after the other.
    if batch.windows(2).all(|w| w[0].out.checked_add(extent).is_some_and(|end| end <= w[1].out)) {
        return true;
    }
    if batch.len() > PAIRWISE {
        return false;
    }
    // Interleaved blocks (heads side by side in one row): cut memory into rows of one pitch. Two blocks that stay
    // inside their rows are apart if their columns or their rows are.
    let apart = |a: usize, b: usize| {
        if a.abs_diff(b) >= extent {
            return true;
        }
        if lines < 2 {
            return false;
        }
        let ((ra, ca), (rb, cb)) = ((a / pitch, a % pitch), (b / pitch, b % pitch));
        ca + width <= pitch && cb + width <= pitch && (ca + width <= cb || cb + width <= ca || ra.abs_diff(rb) >= lines)
    };
    batch.iter().enumerate().all(|(i, a)| batch[..i].iter().all(|b| apart(a.out, b.out)))
}
