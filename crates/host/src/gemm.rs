//! Matrix products: `out = epilogue(lhs · rhs)`.
//!
//! Operands are [`View`]s of fp32, fp16 or int8 with any strides, so a transposed or interleaved
//! operand needs no copy. Sums are fp32. Where [`Epilogue::blocks`] allows it, large products on a
//! processor with AVX2 or AVX-512 VNNI are summed in block floating point, whose error is a
//! fraction of that of rounding the factors to fp16 (`bfp`). The [`Epilogue`] scales, adds a bias,
//! accumulates and rounds. NaN and infinity follow IEEE 754: no product with them is skipped
//! because the other factor is zero.
//!
//! Invariant: the order in which one element is summed depends on M, N, K and the instruction set,
//! with [`Epilogue::blocks`] also on the values, never on the thread count or the load of the pool.
//! Only rows and columns of the result are divided among threads.
//!
//! The microkernels read packed panels of fp32, of fp16 columns if the instruction set widens them
//! at no cost, or of blocks of 16-bit integers. Packing reads any element type with any strides,
//! and the epilogue runs on the tile while it is in registers. With at most 8 rows or columns no
//! factor is packed: the large factor is read once, in place. If the packed rows fit the L2 cache,
//! each task packs the columns that it multiplies, panel by panel, and its tiles prefetch the next
//! panel; otherwise both factors are packed first. Panels lie in scratch memory of the thread,
//! which grows to the largest product so far (at most a few megabytes) and is reused.
//!
//! | module | what |
//! |---|---|
//! | `view`, `error` | strided views, refusals |
//! | `drive` | blocking for the caches, and tasks for the threads |
//! | `bands` | small products of a batch, without the zeros that the lines of a factor begin with |
//! | `pack`, `halves`, `tile`, `skinny`, `finish` | packing, the microkernels and the epilogue, generic over the instruction set |
//! | `bfp` | products of fp16 factors in block floating point |
//! | `bytes` | products of two factors of 8 bits, with exact sums: 8-bit activations and weights |
//! | `coded` | products with a factor of int4 or int8 codes with scales, or of a palette |
//! | `prepacked`, `unfold`, `fir` | what convolutions of channels-first images add: rows packed once, columns read from an image, weighted sums of shifted rows |
//! | `strip`, `gather`, `taps`, `winograd` | the same of channels-last images: columns packed once, rows gathered from an image, weighted sums of pixels, transforms of 3 × 3 filters |
//! | `dispatch` | the kernels of channels-last convolutions by the processor's instruction set |
//! | `vector` | the operations that the kernels need of an instruction set |
//! | `isa` | instruction sets and their tables of kernels |

use half::f16;

use crate::pool;
use crate::sync::{self, lock};

mod bands;
// For the products of 16-bit integers of AVX2 and AVX-512 VNNI.
#[cfg(target_arch = "x86_64")]
mod bfp;
mod bytes;
mod coded;
mod columns;
mod dispatch;
mod drive;
mod error;
mod finish;
mod fir;
mod gather;
// For instruction sets that convert fp16 in parallel with multiply-adds: AVX-512.
#[cfg(target_arch = "x86_64")]
mod halves;
mod isa;
mod pack;
mod planar;
mod prepacked;
mod scratch;
mod skinny;
mod strip;
mod taps;
mod tile;
mod unfold;
mod vector;
mod view;
mod winograd;
pub(crate) use bytes::{ByteFinish, ByteProduct, ByteShape, ByteStore};
pub use bytes::{MOST_DEPTH, Requantize};
pub use coded::{CODED_BLOCK, CODED_ROWS, CodedMatrix, CodedSums, Codes, gemm_coded};
pub use columns::{BlockColumns, PackedColumns};
pub(crate) use dispatch::{panel_width, planar_rows, tile_rows};
use drive::Product;
pub use error::GemmError;
pub(crate) use finish::Store;
use finish::{Finish, StridedOutput};
pub(crate) use fir::fir;
pub use gather::Prologue;
pub(crate) use gather::{Gather, TapRun};
use isa::Kernels;
pub(crate) use planar::{PLANAR_STEPS, Planar};
pub(crate) use prepacked::{Columns, Panels};
pub(crate) use scratch::with_scratch;
pub use skinny::SKINNY;
pub(crate) use strip::{Ahead, BLOCK, Load, PITCH, Results, Runs, Strip};
pub use strip::{Gate, PointStep};
pub(crate) use taps::{PaddedTaps, Tap, Taps};
pub use unfold::Pixels;
pub(crate) use unfold::{SLACK, Unfolded};
use vector::{ElementType, Factor};
use view::Grid;
pub use view::{View, ViewMut};
pub(crate) use winograd::{SPAN, TILE, TilePixels, TileSums, VALUES, filter};

#[cfg(test)]
mod tests;

/// Products with fewer multiply-adds than this stay on the calling thread.
const PARALLEL_PRODUCT: usize = 1 << 21;

/// As above for products with few rows or columns, which are bound by memory bandwidth.
const PARALLEL_SKINNY: usize = 1 << 18;

/// A batch whose items have fewer multiply-adds than this runs its items in parallel, each on one
/// thread.
const SMALL_ITEM: usize = 1 << 25;

/// In batches with more items than this, results are not compared pair by pair for overlap.
const PAIRWISE: usize = 256;

/// A factor of a product.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// fp32, used in place.
    F32(View<'a, f32>),
    /// fp16, widened.
    F16(View<'a, f16>),
    /// int8, widened; scales are part of the epilogue.
    I8(View<'a, i8>),
}

/// The destination of a product.
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

/// Scales of quantized weights, which multiply the product.
#[derive(Clone, Copy, Debug)]
pub enum Scales<'a> {
    /// One factor for each row of the result.
    Rows(&'a [f32]),
    /// One factor for each column of the result.
    Cols(&'a [f32]),
}

/// What happens to the sums: `out = round([out +] scale · scales · (lhs · rhs) + bias)`, in this
/// order.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue<'a> {
    /// Multiplies the product; 1 changes nothing.
    pub scale: f32,
    /// Scales for each row or column, if any.
    pub scales: Option<Scales<'a>>,
    /// Adds to what the output holds. fp32 outputs only.
    pub accumulate: bool,
    /// Rounds an fp32 result to the nearest fp16 value. An fp16 output is rounded anyway.
    pub round: bool,
    /// Added before rounding, if any.
    pub bias: Option<Bias<'a>>,
    /// The factors need no more precision than fp16 has: large products of fp16 and fp32 may be
    /// summed in block floating point (`bfp`).
    pub blocks: bool,
    /// The K of the product that this one is the beginning of, if it is: its other terms are zero
    /// and left out, and the sums have the order that they have in the whole product.
    pub of_depth: Option<usize>,
}

impl Default for Epilogue<'_> {
    /// The product alone: scale 1, nothing added, no rounding.
    fn default() -> Self {
        Self { scale: 1.0, scales: None, accumulate: false, round: false, bias: None, blocks: false, of_depth: None }
    }
}

/// Position of one product of a batch, in elements from the start of each view.
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
/// [`GemmError`] if the shapes do not fit, or scratch memory cannot be allocated. Nothing is
/// written then.
pub fn gemm(lhs: Operand<'_>, rhs: Operand<'_>, out: Output<'_>, epilogue: Epilogue<'_>) -> Result<(), GemmError> {
    gemm_batch(&[BatchOffsets::default()], lhs, rhs, out, epilogue)
}

/// [`gemm`] with a right factor that was packed before. The bits are the same if there are more
/// than eight rows; fewer are multiplied another way by [`gemm`].
///
/// # Errors
/// As [`gemm`].
pub fn gemm_packed(
    lhs: Operand<'_>,
    rhs: PackedColumns<'_>,
    out: Output<'_>,
    epilogue: Epilogue<'_>,
) -> Result<(), GemmError> {
    check_shapes(&lhs, rhs.shape(), &out, &epilogue)?;
    lhs.check(0)?;
    run_one(lhs, Right::Packed(rhs), out, Epilogue { blocks: false, ..epilogue })
}

/// A product with a packed right factor, whose factors were checked.
fn run_one(lhs: Operand<'_>, rhs: Right<'_>, out: Output<'_>, epilogue: Epilogue<'_>) -> Result<(), GemmError> {
    let ((m, n), k) = (out.shape(), lhs.shape().1);
    out.check(0)?;
    if m == 0 || n == 0 {
        return Ok(());
    }
    let work = m.saturating_mul(n).saturating_mul(k.max(1));
    let job = GemmJob { kernels: isa::best(), lhs, rhs, out: out.target(), epilogue, m, n, k };
    // SAFETY: the factors were checked by the caller, and the output above.
    unsafe { job.product(BatchOffsets::default()).run(work >= PARALLEL_PRODUCT) }
}

/// [`gemm`] in block floating point, as with [`Epilogue::blocks`], with a right factor that was
/// packed before. The bits are the same, except for an epilogue that accumulates if the factor has
/// more than 2²⁰ elements: [`gemm`] cannot look at all of it first and sums in fp32 then.
///
/// # Errors
/// As [`gemm`].
pub fn gemm_blocks(
    lhs: Operand<'_>,
    rhs: &BlockColumns<'_>,
    out: Output<'_>,
    epilogue: Epilogue<'_>,
) -> Result<(), GemmError> {
    let matrix = rhs.matrix();
    check_shapes(&lhs, matrix.shape(), &out, &epilogue)?;
    lhs.check(0)?;
    matrix.check(0)?;
    run_one(lhs, Right::Blocks(matrix, rhs.panels()), out, Epilogue { blocks: true, ..epilogue })
}

/// A product for each item of `batch`, with the same shapes and strides at different offsets. The
/// data of each view is the whole memory; the offsets of each item are added to the start of the
/// view.
///
/// Small items run in parallel if their results are known to be disjoint, otherwise one after the
/// other in order.
///
/// # Errors
/// [`GemmError`] if the shapes do not fit, an item lies outside the data, or scratch memory cannot
/// be allocated. Nothing is written then, except if scratch memory runs out after some items.
pub fn gemm_batch(
    batch: &[BatchOffsets],
    lhs: Operand<'_>,
    rhs: Operand<'_>,
    out: Output<'_>,
    epilogue: Epilogue<'_>,
) -> Result<(), GemmError> {
    run(isa::best(), batch, lhs, rhs, out, epilogue)
}

/// [`gemm_batch`] with the kernels of one instruction set, which the processor must have.
fn run(
    kernels: &'static Kernels,
    batch: &[BatchOffsets],
    lhs: Operand<'_>,
    rhs: Operand<'_>,
    out: Output<'_>,
    epilogue: Epilogue<'_>,
) -> Result<(), GemmError> {
    check_shapes(&lhs, rhs.shape(), &out, &epilogue)?;
    let (o, l) = (out.shape(), lhs.shape());
    for item in batch {
        lhs.check(item.lhs)?;
        rhs.check(item.rhs)?;
        out.check(item.out)?;
    }
    let work = o.0.saturating_mul(o.1).saturating_mul(l.1.max(1));
    let (m, n, k) = (o.0, o.1, l.1);
    let job = GemmJob { kernels, lhs, rhs: Right::Matrix(rhs), out: out.target(), epilogue, m, n, k };
    if job.m == 0 || job.n == 0 {
        return Ok(());
    }
    let parallel = if m.min(n) <= skinny::SKINNY { PARALLEL_SKINNY } else { PARALLEL_PRODUCT };
    let side_by_side = batch.len() > 1
        && work < SMALL_ITEM
        && work.saturating_mul(batch.len()) >= parallel
        && disjoint(batch, &job.out);
    if side_by_side {
        // A thread allocates scratch before it writes; one failure is reported.
        let failed = std::sync::Mutex::new(None);
        pool::for_each_range(batch.len(), 1, |range| {
            for item in &batch[range] {
                // SAFETY: every item was checked against the views above, and the results are
                // disjoint.
                if let Err(error) = unsafe { job.product(*item).run_in_bands() } {
                    *lock(&failed) = Some(error);
                }
            }
        });
        return sync::into_inner(failed).map_or(Ok(()), Err);
    }
    for item in batch {
        // SAFETY: every item was checked against the views above; items run one after the other.
        unsafe { job.product(*item).run(work >= parallel)? };
    }
    Ok(())
}

/// Fails if the factors, the output and the epilogue do not fit together.
fn check_shapes(
    lhs: &Operand<'_>,
    r: (usize, usize),
    out: &Output<'_>,
    epilogue: &Epilogue<'_>,
) -> Result<(), GemmError> {
    let (l, o) = (lhs.shape(), out.shape());
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
    let scales = match epilogue.scales {
        Some(Scales::Rows(s)) => Some((s.len(), o.0)),
        Some(Scales::Cols(s)) => Some((s.len(), o.1)),
        None => None,
    };
    if let Some((found, expected)) = scales
        && found != expected
    {
        return Err(GemmError::Scales { expected, found });
    }
    if epilogue.accumulate && matches!(out, Output::F16(_)) {
        return Err(GemmError::Accumulate);
    }
    Ok(())
}

impl Operand<'_> {
    /// Number of rows and of columns.
    pub fn shape(&self) -> (usize, usize) {
        match self {
            Self::F32(v) => (v.rows(), v.cols()),
            Self::F16(v) => (v.rows(), v.cols()),
            Self::I8(v) => (v.rows(), v.cols()),
        }
    }

    /// The transposed factor, a view of the same data.
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

    /// The factor at `offset`, whose lines are its rows.
    fn factor(&self, offset: usize) -> Factor {
        let (kind, data, grid) = match self {
            Self::F32(v) => (ElementType::F32, v.data().as_ptr().cast::<u8>(), v.grid()),
            Self::F16(v) => (ElementType::F16, v.data().as_ptr().cast(), v.grid()),
            Self::I8(v) => (ElementType::I8, v.data().as_ptr().cast(), v.grid()),
        };
        let factor = Factor { address: data, kind, line: grid.row_stride, depth: grid.col_stride, tables: None };
        Factor { address: data.wrapping_add(grid.origin(offset) * factor.size()), ..factor }
    }
}

impl Output<'_> {
    /// Number of rows and of columns.
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

/// The output as an address instead of a borrow, so that several threads can write disjoint parts.
struct Target {
    grid: Grid,
    store: Store,
}

// SAFETY: the address comes from an exclusive borrow that outlives the call, and threads write
// disjoint elements (checked by `disjoint`, or one thread at a time).
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl Target {
    /// The output of the item of a batch that begins at this element.
    fn item(&self, offset: usize) -> StridedOutput {
        let origin = self.grid.origin(offset);
        let store = match self.store {
            Store::F32(base) => Store::F32(base.wrapping_add(origin)),
            Store::F16(base) => Store::F16(base.wrapping_add(origin)),
        };
        StridedOutput { store, row: self.grid.row_stride, col: self.grid.col_stride }
    }
}

impl<'a> Epilogue<'a> {
    /// The epilogue as kernels take it.
    fn finish(&self) -> Finish<'a> {
        let (row_scales, col_scales) = match self.scales {
            Some(Scales::Rows(s)) => (Some(s), None),
            Some(Scales::Cols(s)) => (None, Some(s)),
            None => (None, None),
        };
        let (row_bias, col_bias) = match self.bias {
            Some(Bias::Rows(b)) => (Some(b), None),
            Some(Bias::Cols(b)) => (None, Some(b)),
            None => (None, None),
        };
        let Epilogue { scale, accumulate, round, .. } = *self;
        Finish { scale, row_scales, col_scales, accumulate, round, row_bias, col_bias }
    }
}

/// The right factor of a product.
enum Right<'a> {
    Matrix(Operand<'a>),
    Packed(PackedColumns<'a>),
    /// A matrix, and its panels in blocks, if any.
    Blocks(Operand<'a>, Option<&'a [f32]>),
}

/// The checked parameters of one call.
struct GemmJob<'a> {
    kernels: &'static Kernels,
    lhs: Operand<'a>,
    rhs: Right<'a>,
    out: Target,
    epilogue: Epilogue<'a>,
    m: usize,
    n: usize,
    k: usize,
}

impl GemmJob<'_> {
    /// The product of one item of the batch. It may run if the item's offsets were checked against
    /// the views, so that all addresses are inside their borrows, `m` and `n` are not zero, and
    /// nothing else accesses the item's output elements meanwhile.
    fn product(&self, item: BatchOffsets) -> Product<'_> {
        Product {
            kernels: self.kernels,
            blocks: self.epilogue.blocks,
            lhs: self.lhs.factor(item.lhs),
            packed: None,
            rhs: match &self.rhs {
                Right::Matrix(rhs) | Right::Blocks(rhs, _) => rhs.t().factor(item.rhs),
                Right::Packed(columns) => columns.factor(),
            },
            packed_columns: match &self.rhs {
                Right::Matrix(_) | Right::Blocks(_, None) => None,
                Right::Packed(columns) => Some(columns.factor().address),
                Right::Blocks(_, Some(panels)) => Some(panels.as_ptr().cast()),
            },
            out: self.out.item(item.out),
            finish: self.epilogue.finish(),
            m: self.m,
            n: self.n,
            k: self.k,
            of_depth: self.epilogue.of_depth.map_or(self.k, |depth| depth.max(self.k)),
        }
    }
}

/// Whether the results of all items are known to be disjoint; `false` also if it is not known.
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
    // Interleaved blocks, such as attention heads next to each other in one row: divide memory into
    // rows of one pitch. Two blocks that stay within their rows are disjoint if their columns or
    // their rows are.
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
