//! Pools. Each channel is a batch of its own, so that one convolution serves all.

use super::conv::{Map, map, short_to_long};
use super::error::GradError;
use super::pullback::{Expr, Pullback};
use super::rule::{Rule, RuleTable};
use crate::build::Transpose;
use crate::op;
use crate::program::{DataType, ValueId};

pub(super) const RULES: RuleTable =
    &[(op::AVG_POOL, Rule::Vjp(avg_pool)), (op::MAX_POOL, Rule::Vjp(max_pool)), (op::L2_POOL, Rule::Vjp(l2_pool))];

/// The window of a pool, with the extents of both sides.
struct Pool {
    map: Map,
    long: Vec<usize>,
    short: Vec<usize>,
    /// Batch size times channels.
    rows: usize,
}

fn pool(p: &Pullback<'_, '_>) -> Result<Pool, GradError> {
    let (xs, ys) = (p.shape_of("x")?, p.result_shape(0)?);
    let kernel: Vec<usize> = p.c.ints("kernel_sizes")?.iter().map(|&k| usize::try_from(k).unwrap_or(0)).collect();
    let (long, short) = (xs[2..].to_vec(), ys[2..].to_vec());
    let map = map(p, &kernel, &long, &short)?;
    Ok(Pool { map, long, short, rows: xs[0] * xs[1] })
}

impl Pool {
    /// `[rows, channels, spatial…]`.
    fn shape(&self, channels: usize, spatial: &[usize]) -> Vec<usize> {
        [&[self.rows, channels], spatial].concat()
    }

    fn elements(&self) -> usize {
        self.map.kernel.iter().product()
    }

    /// A value `[N, C, short…]` with a channel axis of one element.
    fn short_rows(&self, p: &mut Pullback<'_, '_>, v: ValueId) -> Expr {
        p.reshape(v, &self.shape(1, &self.short))
    }

    /// Distributes a value to every element of its window: short to long with a kernel of ones.
    fn spread(&self, p: &mut Pullback<'_, '_>, short: ValueId) -> Expr {
        let ones = vec![1.0; self.elements()];
        let ones = p.tensor_like(short, &[&[1, 1], &self.map.kernel[..]].concat(), &ones)?;
        let long = short_to_long(p, &self.map, short, ones, &self.long)?;
        let shape = p.shape_of("x")?;
        p.reshape(long, &shape)
    }

    /// The number of elements of each window in `[low, high)` of the long side, for each axis.
    fn count(&self, axis: usize, at: usize, low: usize, high: usize) -> usize {
        let first = at * self.map.strides[axis];
        (first..first + self.map.kernel[axis]).filter(|&i| i >= low && i < high).count()
    }
}

/// Each element of a window gets an equal share, divided by the number of window elements inside of
/// `x`, or inside of the padding too. A window that `ceil_mode` adds may reach beyond both.
fn avg_pool(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let pool = pool(p)?;
    let exclude = p.c.flag("exclude_padding_from_average")?;
    let dy = p.dy()?;
    let mut d = pool.short_rows(p, dy)?;
    // The count of a window is the product of its counts along the axes, so reciprocals are
    // multiplied axis by axis.
    for axis in 0..pool.long.len() {
        let (before, after) = (pool.map.before[axis], pool.map.after[axis]);
        let inner = before + pool.long[axis];
        let (low, high) = if exclude { (before, inner) } else { (0, inner + after) };
        let counts: Vec<usize> = (0..pool.short[axis]).map(|i| pool.count(axis, i, low, high).max(1)).collect();
        let shares: Vec<f32> = counts.iter().map(|&n| 1.0 / n as f32).collect();
        let [first, ..] = shares[..] else { continue };
        if counts.iter().all(|n| *n == counts[0]) {
            d = p.scale(d, first)?;
            continue;
        }
        let mut shape = vec![1; pool.long.len() + 2];
        shape[axis + 2] = shares.len();
        let shares = p.tensor_like(d, &shape, &shares)?;
        d = p.mul(d, shares)?;
    }
    let dx = pool.spread(p, d)?;
    p.give("x", dx)
}

/// The first maximum of a window gets the whole cotangent. A convolution with one kernel for each
/// window position unfolds the windows.
fn max_pool(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    const MOST: usize = 1024;
    let pool = pool(p)?;
    let n = pool.elements();
    if n > MOST {
        return Err(p.refuse(format!("windows of {n} elements are too large to unfold")));
    }
    let (x, y, dy) = (p.x("x")?, p.y(0)?, p.dy()?);
    // Padding is never the maximum: it is below any result of a pool.
    let lowest = if p.dtype(x) == Some(DataType::Fp16) { -65504.0 } else { f32::MIN };
    let mut long = p.reshape(x, &pool.shape(1, &pool.long))?;
    for axis in 0..pool.long.len() {
        let before = pool.map.before[axis];
        let reach = (pool.short[axis] - 1) * pool.map.strides[axis] + pool.map.kernel[axis];
        let kept = pool.long[axis].min(reach.saturating_sub(before));
        long = p.slice_axis(long, axis + 2, 0, kept)?;
        let mut pads = vec![(0, 0); pool.long.len() + 2];
        pads[axis + 2] = (before, reach.saturating_sub(before + kept));
        long = p.pad_with(long, &pads, lowest)?;
    }
    let mut places = vec![0.0; n * n];
    (0..n).for_each(|i| places[i * n + i] = 1.0);
    let places = p.tensor_like(x, &[&[n, 1], &pool.map.kernel[..]].concat(), &places)?;
    let windows = p.emit(
        op::CONV,
        [
            ("x", long.into()),
            ("weight", places.into()),
            ("strides", super::constants::ints(&pool.map.strides).into()),
            ("pad_type", crate::program::Constant::string("valid").into()),
        ],
    )?;
    let y = pool.short_rows(p, y)?;
    let largest = p.binary(op::EQUAL, windows, y)?;
    let largest = p.indicator(largest, x)?;
    // The number of earlier maxima, as a product with a triangular matrix.
    let points: usize = pool.short.iter().product();
    let flat = p.reshape(largest, &[pool.rows, n, points])?;
    let triangle: Vec<f32> = (0..n * n).map(|i| f32::from(u8::from(i % n < i / n))).collect();
    let triangle = p.tensor_like(x, &[1, n, n], &triangle)?;
    let earlier = p.matmul(triangle, flat, Transpose::Neither)?;
    let earlier = p.reshape(earlier, &pool.shape(n, &pool.short))?;
    let first = p.with(op::EQUAL, earlier, 0.0)?;
    let first = p.keep(first, largest)?;
    let dy = pool.short_rows(p, dy)?;
    let taken = p.mul(first, dy)?;
    let d = short_to_long(p, &pool.map, taken, places, &pool.long)?;
    let shape = p.shape_of("x")?;
    let dx = p.reshape(d, &shape)?;
    p.give("x", dx)
}

/// `√Σ x²`: each element gets `x / y` of its windows' cotangents; 0 where a window is all zeros.
fn l2_pool(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let pool = pool(p)?;
    let (x, y, dy) = (p.x("x")?, p.y(0)?, p.dy()?);
    let zero = p.with(op::EQUAL, y, 0.0)?;
    let one = p.tape.b.scalar_like(y, 1.0)?;
    let divisor = p.select(zero, one, y)?;
    let ratio = p.div(dy, divisor)?;
    let ratio = pool.short_rows(p, ratio)?;
    let spread = pool.spread(p, ratio)?;
    let dx = p.mul(x, spread)?;
    p.give("x", dx)
}
