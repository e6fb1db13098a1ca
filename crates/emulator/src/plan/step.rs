//! Steps: what a plan executes, one after the other.
//!
//! A step names the views it reads and writes and says what is to be done; how, and with which
//! rounding, is the table's part. Element-wise ops come as groups: a straight-line program over
//! registers, run tile by tile, so that no member's result but those somebody else wants is ever
//! stored. `round` marks the places where an fp16 value is made.

use ferrane_host::gemm::BatchOffsets;
use ferrane_host::{fused, rounded};

use super::chain::Chain;
use super::tensor_op::TensorOpStep;
use super::view::View;

/// Most views a step may read.
pub(crate) const MAX_READS: usize = 16;
/// Most views a step may write.
pub(crate) const MAX_WRITES: usize = 12;

/// One piece of work.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// The MIL op (the last one of a group; those of a chain, joined by `+`), for messages.
    pub op: String,
    /// The value it makes, for messages.
    pub value: String,
    pub reads: Vec<View>,
    pub writes: Vec<View>,
    pub kind: Kind,
}

/// What a step does.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// Element-wise ops fused.
    Group(Group),
    /// The same elements elsewhere; one storage.
    Move(Nest),
    /// One element, from its bytes, everywhere.
    Fill(Nest, [u8; 4]),
    /// Float matrix products.
    Matmul(Matmul),
    /// int32 matrix products over `[batch, m, k] · [batch, k, n]`, all views of rank 3.
    IntMatmul,
    /// Softmax along the nest's last axis.
    Softmax { nest: Nest, round: bool },
    /// One value for each place of the nest, from the elements below it.
    Reduce(Reduce),
    /// Normalization over a block of axes, with optional gamma and beta after the input among the
    /// reads.
    Norm(Norm),
    /// Convolution: reads x, weight, and a bias if `bias`.
    Conv(Conv),
    /// Pooling.
    Pool(Pool),
    /// `out[i…] = x[maps[0][i0], …]`, any storage.
    Remap(Vec<Vec<usize>>),
    /// Slices of x (read 0) at indices (read 1).
    Gather { axis: usize, batch_dims: usize },
    /// Elements of x (read 0) at indices (read 1) along an axis.
    GatherAlong { axis: usize },
    /// Several of these over the same rows.
    Chain(Box<Chain>),
    /// A routine over whole tensors.
    TensorOp(Box<TensorOpStep>),
}

/// Loops over the places of a result: extents, and strides for each operand (writes first, then
/// reads), outermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nest {
    pub extents: Vec<usize>,
    /// `strides[operand][loop]`.
    pub strides: Vec<Vec<isize>>,
    /// The writes may be cut along the outermost loop: what different indices write lies apart.
    pub divisible: bool,
}

impl Nest {
    /// Loops over `shape` in the memory order of the first operand. `row` is an axis that must stay
    /// whole and innermost. Operands have `shape` already; the first `writes` of them are written.
    pub(crate) fn new(shape: &[usize], operands: &[&View], writes: usize, row: Option<usize>) -> Nest {
        let mut axes: Vec<usize> = (0..shape.len()).filter(|&a| shape[a] != 1 && Some(a) != row).collect();
        let first = operands[0];
        axes.sort_by_key(|&a| std::cmp::Reverse(first.strides[a].unsigned_abs()));
        let mut extents: Vec<usize> = Vec::new();
        let mut strides: Vec<Vec<isize>> = vec![Vec::new(); operands.len()];
        for &axis in &axes {
            let mergeable = !extents.is_empty()
                && operands
                    .iter()
                    .zip(&strides)
                    .all(|(v, s)| s.last() == Some(&(v.strides[axis] * shape[axis] as isize)));
            if mergeable {
                if let Some(last) = extents.last_mut() {
                    *last *= shape[axis];
                }
            } else {
                extents.push(shape[axis]);
            }
            for (view, s) in operands.iter().zip(&mut strides) {
                match s.last_mut() {
                    Some(last) if mergeable => *last = view.strides[axis],
                    _ => s.push(view.strides[axis]),
                }
            }
        }
        if row.is_some() || extents.is_empty() {
            extents.push(row.map_or(1, |r| shape[r]));
            for (view, s) in operands.iter().zip(&mut strides) {
                s.push(row.map_or(1, |r| view.strides[r]));
            }
        }
        let mut nest = Nest { extents, strides, divisible: false };
        nest.divisible = (0..writes).all(|write| nest.leaves(write, 0));
        nest
    }

    /// Whether all that an operand has at one index of the outermost loop, and as much `behind` it,
    /// lies before the next index's.
    pub(crate) fn leaves(&self, operand: usize, behind: usize) -> bool {
        let strides = &self.strides[operand];
        let inner: isize = self.extents.iter().zip(strides).skip(1).map(|(&n, &s)| (n as isize - 1) * s).sum();
        strides.iter().all(|&s| s > 0) && strides[0] > inner + behind as isize
    }

    /// The number of loops.
    pub(crate) fn depth(&self) -> usize {
        self.extents.len()
    }
}

/// A register of a group.
pub(crate) type Reg = u8;

/// A group: load, compute, store, for each tile.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Operands: writes, then reads.
    pub nest: Nest,
    /// Registers that the reads are loaded into.
    pub loads: Vec<Reg>,
    /// Registers that hold one value throughout, by its bits.
    pub constants: Vec<(Reg, u32)>,
    pub instructions: Vec<Instruction>,
    /// Registers that results are stored from: one for each write, then those of `joined`.
    pub stores: Vec<Reg>,
    /// Results that lie between the elements of a write: which one, and how far behind its first
    /// element theirs is.
    pub joined: Vec<(usize, usize)>,
    /// How many registers there are.
    pub registers: usize,
    /// What the instructions amount to, if it is something for which there is a shorter way.
    pub form: Option<Form>,
}

/// A group that is made in one pass over fp16 memory, without registers. All rows are of neighbors;
/// its reads go by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A function of the first, times the second.
    Gate(fused::Gate, [usize; 2]),
    /// Pairs `(a, b)`, turned by the angles whose cosine and sine come next, or back. The two
    /// results are joined.
    Rotation { back: bool, from: [usize; 4] },
}

/// One element-wise operation over registers. Unused operands repeat the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Instruction {
    pub op: Elementwise,
    pub to: Reg,
    pub from: [Reg; 3],
    /// The result is an fp16 value.
    pub round: bool,
}

/// Element-wise operations. Registers hold fp32, or int32 for every integer and bool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Elementwise {
    /// One float.
    Unary(Unary),
    /// Two floats.
    Binary(Binary),
    /// Two floats to a bool.
    Compare(Compare),
    /// `a · b + c`: product and sum in fp32, rounded to fp16 once, at the end.
    MulAdd,
    /// `(a first b) second c`, a sum, difference or product each, rounded after each; with the flag
    /// `a` is rounded before.
    Pair([rounded::Binary; 2], bool),
    /// `(a - c) · b` of an integer a, rounded once.
    Dequantize,
    /// `round(a / b) + c` saturated to the range.
    Quantize(i32, i32),
    /// A float or integer where the first register is not 0, else the other.
    Select,
    IntUnary(IntUnary),
    IntBinary(Binary),
    IntCompare(Compare),
    /// Toward zero, saturated to the range; NaN is 0.
    FloatToInt(i32, i32),
    /// 1 unless zero.
    FloatToBool,
    IntToFloat,
    /// Wraps to so many bits, signed or not.
    IntToInt(u8, bool),
    IntToBool,
    And,
    Or,
    Xor,
    Not,
}

/// One float to one float.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Unary {
    Identity,
    Abs,
    Sign,
    Square,
    Floor,
    Ceil,
    Round,
    Exp,
    Exp2,
    Sqrt,
    Erf,
    Sin,
    Cos,
    Atan,
    Tan,
    Asin,
    Acos,
    Sinh,
    Cosh,
    Atanh,
    Log(f32),
    Rsqrt(f32),
    Inverse(f32),
    Clip(f32, f32),
    Threshold(f32),
    Sigmoid,
    Relu,
    Relu6,
    Tanh,
    Silu,
    Softplus,
    Softsign,
    LeakyRelu(f32),
    Elu(f32),
    ThresholdedRelu(f32),
    ClampedRelu(f32, f32),
    Linear(f32, f32),
    ScaledTanh(f32, f32),
    SigmoidHard(f32, f32),
    GeluExact,
    GeluTanh,
    GeluSigmoid,
    /// Through the crop of width slices, under the rules of a machine.
    Crop,
}

impl Unary {
    /// Of an fp16 value the result is one too, so that rounding changes nothing.
    pub(crate) fn exact(self) -> bool {
        use Unary::*;
        matches!(self, Identity | Abs | Sign | Floor | Ceil | Relu)
    }
}

/// Two values to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
    Max,
    Min,
}

/// Comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// One integer to one integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntUnary {
    Identity,
    Abs,
    Sign,
    Square,
    Relu,
    Exp2,
}

/// Matrix products of one shape: reads lhs, rhs and perhaps a bias vector.
#[derive(Clone, Debug)]
pub(crate) struct Matmul {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Row and column stride of lhs, rhs, out.
    pub strides: [(isize, isize); 3],
    /// From the lowest element of each operand.
    pub batch: Vec<BatchOffsets>,
    pub scale: f32,
    /// Read 2 is a dense fp32 bias: one value for each row, or each column.
    pub bias: Option<Along>,
    pub round: bool,
}

/// Rows or columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Along {
    Rows,
    Cols,
}

/// What a reduction computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    Sum,
    Mean,
    Max,
    Min,
    Prod,
    SumSquare,
    L1,
    L2,
    LogSum,
    LogSumExp,
    ArgMax,
    ArgMin,
}

/// A reduction: write 0 over `kept`, read 0 over `kept` and, at each place, over `reduced`.
#[derive(Clone, Debug)]
pub(crate) struct Reduce {
    pub reduction: Reduction,
    /// Operands: write, read.
    pub kept: Nest,
    /// Extents and strides of the reduced axes of the read, in its memory order.
    pub reduced: Vec<(usize, isize)>,
    pub round: bool,
    /// The operand is a product made for this sum only: together they are a matrix product against
    /// ones.
    pub of_product: bool,
}

/// A normalization.
#[derive(Clone, Debug)]
pub(crate) struct Norm {
    pub form: NormForm,
    /// The axes that are not normalized: write, then reads.
    pub outer: Nest,
    /// The normalized axes, every one: extents and strides for write and reads.
    pub inner: Nest,
    pub epsilon: f32,
    pub gamma: bool,
    pub beta: bool,
    pub round: bool,
}

/// Which normalization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NormForm {
    /// `(x - mean) / sqrt(variance + epsilon)`.
    Layer,
    /// `x / sqrt(sum of squares + epsilon)`.
    L2,
}

/// A convolution. Views are of rank 2 + spatial.
#[derive(Clone, Debug)]
pub(crate) struct Conv {
    pub groups: usize,
    pub window: Window,
    pub bias: bool,
    pub round: bool,
}

/// A sliding window over one to three spatial axes.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub kernel: Vec<usize>,
    pub strides: Vec<usize>,
    pub dilations: Vec<usize>,
    /// Before each axis.
    pub pad: Vec<usize>,
    /// Before plus after each axis plus extent.
    pub padded: Vec<usize>,
}

/// A pooling.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub form: PoolForm,
    pub window: Window,
    pub round: bool,
}

/// Which pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolForm {
    Max,
    /// Whether padding is left out of the count.
    Average(bool),
    L2,
}
