//! One method for each op that kernels use often: typed arguments instead of a list of pairs.

use super::Builder;
use crate::error::MilError;
use crate::op;
use crate::program::{Arg, Constant, DataType, ValueId};

type Built = Result<ValueId, MilError>;

/// Which operands of [`Builder::matmul`] are transposed in their last two axes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transpose {
    /// `x · y`.
    #[default]
    Neither,
    /// `xᵀ · y`.
    X,
    /// `x · yᵀ`.
    Y,
    /// `xᵀ · yᵀ`.
    Both,
}

impl Transpose {
    /// From the flags `transpose_x` and `transpose_y`.
    pub fn from_flags(x: bool, y: bool) -> Transpose {
        match (x, y) {
            (false, false) => Transpose::Neither,
            (true, false) => Transpose::X,
            (false, true) => Transpose::Y,
            (true, true) => Transpose::Both,
        }
    }

    /// The flag `transpose_x`.
    pub fn x(self) -> bool {
        matches!(self, Transpose::X | Transpose::Both)
    }

    /// The flag `transpose_y`.
    pub fn y(self) -> bool {
        matches!(self, Transpose::Y | Transpose::Both)
    }
}

/// Whether the axes of a reduction stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReducedDims {
    /// They stay, with extent 1.
    Keep,
    /// They are removed, so the rank falls by their number.
    Drop,
}

/// The options of [`Builder::conv`], one entry for each spatial axis (two for `pad`). The default
/// is a plain 2-D convolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conv {
    /// `valid`, `same`, `same_lower` or `custom`.
    pub pad_type: &'static str,
    /// Stride of the filter along each axis.
    pub strides: Vec<i32>,
    /// Padding before and after each axis; read if `pad_type` is `custom`.
    pub pad: Vec<i32>,
    /// Dilation of the filter along each axis.
    pub dilations: Vec<i32>,
    /// Number of channel groups, at least 1.
    pub groups: i32,
}

impl Default for Conv {
    fn default() -> Conv {
        Conv { pad_type: "valid", strides: vec![1; 2], pad: vec![0; 4], dilations: vec![1; 2], groups: 1 }
    }
}

macro_rules! binary {
    ($($(#[$doc:meta])* $method:ident = $op:ident;)*) => {
        $($(#[$doc])*
        ///
        /// # Errors
        /// The element types differ or the shapes do not broadcast.
        pub fn $method(&mut self, name: &str, x: impl Into<Arg>, y: impl Into<Arg>) -> Built {
            self.op(op::$op, name, [("x", x.into()), ("y", y.into())])
        })*
    };
}

macro_rules! unary {
    ($($(#[$doc:meta])* $method:ident = $op:ident;)*) => {
        $($(#[$doc])*
        ///
        /// # Errors
        /// The op does not take the element type of `x`.
        pub fn $method(&mut self, name: &str, x: ValueId) -> Built {
            self.op(op::$op, name, [("x", x.into())])
        })*
    };
}

macro_rules! reduce {
    ($($(#[$doc:meta])* $method:ident = $op:ident;)*) => {
        $($(#[$doc])*
        ///
        /// # Errors
        /// An axis is out of range or occurs twice.
        pub fn $method(&mut self, name: &str, x: ValueId, axes: &[i32], dims: ReducedDims) -> Built {
            self.op(op::$op, name, [
                ("x", x.into()),
                ("axes", Constant::int32s(axes).into()),
                ("keep_dims", Constant::bool(dims == ReducedDims::Keep).into()),
            ])
        })*
    };
}

/// Element-wise ops; operands are values or constants, shapes broadcast.
impl Builder {
    binary! {
        /// `x + y`.
        add = ADD;
        /// `x - y`.
        sub = SUB;
        /// `x * y`.
        mul = MUL;
        /// `x / y`.
        real_div = REAL_DIV;
        /// `x` to the power `y`.
        pow = POW;
        /// The larger.
        maximum = MAXIMUM;
        /// The smaller.
        minimum = MINIMUM;
    }

    unary! {
        /// `1 / (1 + exp(-x))`.
        sigmoid = SIGMOID;
        /// `max(x, 0)`.
        relu = RELU;
        /// The hyperbolic tangent.
        tanh = TANH;
        /// `x * sigmoid(x)`; engines accept it only decomposed (mil-text §4).
        silu = SILU;
        /// The exponential.
        exp = EXP;
        /// The square root.
        sqrt = SQRT;
        /// `x * x`.
        square = SQUARE;
        /// The magnitude.
        abs = ABS;
        /// A copy.
        identity = IDENTITY;
        /// `1 / sqrt(x + 1e-12)`.
        rsqrt = RSQRT;
        /// `ln(x + 1e-45)`.
        log = LOG;
    }

    reduce! {
        /// The sum.
        reduce_sum = REDUCE_SUM;
        /// The mean.
        reduce_mean = REDUCE_MEAN;
        /// The largest.
        reduce_max = REDUCE_MAX;
        /// The smallest.
        reduce_min = REDUCE_MIN;
    }

    /// `x` times a scalar of its element type.
    ///
    /// # Errors
    /// As [`Builder::scalar_like`].
    pub fn scale(&mut self, name: &str, x: ValueId, factor: f32) -> Built {
        let factor = self.scalar_like(x, factor)?;
        self.mul(name, x, factor)
    }

    /// `a` where `cond`, else `b`.
    ///
    /// # Errors
    /// The element types differ or the shapes do not broadcast.
    pub fn select(&mut self, name: &str, cond: ValueId, a: impl Into<Arg>, b: impl Into<Arg>) -> Built {
        self.op(op::SELECT, name, [("cond", cond.into()), ("a", a.into()), ("b", b.into())])
    }

    /// The element type changed.
    ///
    /// # Errors
    /// `cast` does not know the type.
    pub fn cast(&mut self, name: &str, x: ValueId, dtype: DataType) -> Built {
        self.op(op::CAST, name, [("dtype", Constant::string(dtype.name()).into()), ("x", x.into())])
    }

    /// The exponential of each element over their sum along `axis`.
    ///
    /// # Errors
    /// The axis is out of range.
    pub fn softmax(&mut self, name: &str, x: ValueId, axis: i32) -> Built {
        self.op(op::SOFTMAX, name, [("axis", Constant::int32(axis).into()), ("x", x.into())])
    }

    /// `x` normalized over `axes`, then scaled by `gamma` and shifted by `beta` (constants of the
    /// shape of those axes).
    ///
    /// # Errors
    /// The axes, or the shapes of `gamma` and `beta`, do not fit.
    pub fn layer_norm(
        &mut self,
        name: &str,
        x: ValueId,
        axes: &[i32],
        gamma: Option<ValueId>,
        beta: Option<ValueId>,
        epsilon: f32,
    ) -> Built {
        let epsilon = self.scalar_like(x, epsilon)?;
        let mut args = vec![("x", x.into()), ("axes", Constant::int32s(axes).into())];
        args.extend(gamma.map(|g| ("gamma", g.into())));
        args.extend(beta.map(|b| ("beta", b.into())));
        args.push(("epsilon", epsilon.into()));
        self.op(op::LAYER_NORM, name, args)
    }
}

/// Matrix products and convolutions.
impl Builder {
    /// `x · y` over the last two axes; the axes before them broadcast.
    ///
    /// # Errors
    /// The inner extents differ.
    pub fn matmul(&mut self, name: &str, x: ValueId, y: ValueId, transpose: Transpose) -> Built {
        self.op(
            op::MATMUL,
            name,
            [
                ("transpose_x", Constant::bool(transpose.x()).into()),
                ("transpose_y", Constant::bool(transpose.y()).into()),
                ("x", x.into()),
                ("y", y.into()),
            ],
        )
    }

    /// `x · weightᵀ + bias` with a constant weight `[out, in]` and bias `[out]`.
    ///
    /// # Errors
    /// The shapes do not fit, or weight or bias is no constant.
    pub fn linear(&mut self, name: &str, x: ValueId, weight: ValueId, bias: Option<ValueId>) -> Built {
        let mut args = vec![("x", x.into()), ("weight", weight.into())];
        args.extend(bias.map(|b| ("bias", b.into())));
        self.op(op::LINEAR, name, args)
    }

    /// A convolution of `x` `[N, C, H, W]` with `weight` `[out, C/groups, kH, kW]` (or one or three
    /// spatial axes, with options of that length). Every option is written.
    ///
    /// # Errors
    /// The shapes or options do not fit.
    pub fn conv(&mut self, name: &str, x: ValueId, weight: ValueId, bias: Option<ValueId>, options: &Conv) -> Built {
        let mut args = vec![
            ("dilations", Constant::int32s(&options.dilations).into()),
            ("groups", Constant::int32(options.groups).into()),
            ("pad", Constant::int32s(&options.pad).into()),
            ("pad_type", Constant::string(options.pad_type).into()),
            ("strides", Constant::int32s(&options.strides).into()),
            ("weight", weight.into()),
        ];
        args.extend(bias.map(|b| ("bias", b.into())));
        args.push(("x", x.into()));
        self.op(op::CONV, name, args)
    }

    /// Attention over `[…, length, head_dim]`; the scale 1/√head_dim is implicit.
    ///
    /// # Errors
    /// The shapes do not fit, or the opset is older than ios18.
    pub fn scaled_dot_product_attention(
        &mut self,
        name: &str,
        query: ValueId,
        key: ValueId,
        value: ValueId,
        mask: Option<ValueId>,
    ) -> Built {
        let mut args = vec![("query", query.into()), ("key", key.into()), ("value", value.into())];
        args.extend(mask.map(|m| ("attn_mask", m.into())));
        self.op(op::SCALED_DOT_PRODUCT_ATTENTION, name, args)
    }
}

/// Ops that rearrange or select elements.
impl Builder {
    /// The same elements in another shape; one extent may be -1, 0 keeps that of `x`.
    ///
    /// # Errors
    /// The numbers of elements differ.
    pub fn reshape(&mut self, name: &str, x: ValueId, shape: &[i32]) -> Built {
        self.op(op::RESHAPE, name, [("shape", Constant::int32s(shape).into()), ("x", x.into())])
    }

    /// Axis `i` of the result is axis `perm[i]` of `x`.
    ///
    /// # Errors
    /// `perm` is no permutation.
    pub fn transpose(&mut self, name: &str, x: ValueId, perm: &[i32]) -> Built {
        self.op(op::TRANSPOSE, name, [("perm", Constant::int32s(perm).into()), ("x", x.into())])
    }

    /// The values one after the other along `axis`.
    ///
    /// # Errors
    /// They differ in an axis other than `axis`, or there are none.
    pub fn concat(&mut self, name: &str, values: &[ValueId], axis: i32) -> Built {
        self.op(
            op::CONCAT,
            name,
            [
                ("axis", Constant::int32(axis).into()),
                ("interleave", Constant::bool(false).into()),
                ("values", values.into()),
            ],
        )
    }

    /// `x` from `begin`, `size` elements along each axis (-1: to the end).
    ///
    /// # Errors
    /// The slice leaves `x`.
    pub fn slice_by_size(&mut self, name: &str, x: ValueId, begin: &[i32], size: &[i32]) -> Built {
        self.op(
            op::SLICE_BY_SIZE,
            name,
            [("x", x.into()), ("begin", Constant::int32s(begin).into()), ("size", Constant::int32s(size).into())],
        )
    }

    /// `x` in parts of these sizes along `axis`.
    ///
    /// # Errors
    /// The sizes do not add up.
    pub fn split(&mut self, name: &str, x: ValueId, sizes: &[i32], axis: i32) -> Result<Vec<ValueId>, MilError> {
        self.ops(
            op::SPLIT,
            name,
            [("x", x.into()), ("split_sizes", Constant::int32s(sizes).into()), ("axis", Constant::int32(axis).into())],
        )
    }

    /// Axes of extent 1 inserted at these positions of the result.
    ///
    /// # Errors
    /// An axis is out of range or occurs twice.
    pub fn expand_dims(&mut self, name: &str, x: ValueId, axes: &[i32]) -> Built {
        self.op(op::EXPAND_DIMS, name, [("x", x.into()), ("axes", Constant::int32s(axes).into())])
    }

    /// Axes of extent 1 removed.
    ///
    /// # Errors
    /// One is not of extent 1.
    pub fn squeeze(&mut self, name: &str, x: ValueId, axes: &[i32]) -> Built {
        self.op(op::SQUEEZE, name, [("x", x.into()), ("axes", Constant::int32s(axes).into())])
    }

    /// `x` repeated along each axis.
    ///
    /// # Errors
    /// `reps` does not have one positive number for each axis.
    pub fn tile(&mut self, name: &str, x: ValueId, reps: &[i32]) -> Built {
        self.op(op::TILE, name, [("x", x.into()), ("reps", Constant::int32s(reps).into())])
    }

    /// The slices of `x` at `indices` along `axis`.
    ///
    /// # Errors
    /// The axis is out of range, or the indices are no integers.
    pub fn gather(&mut self, name: &str, x: ValueId, indices: ValueId, axis: i32) -> Built {
        self.op(
            op::GATHER,
            name,
            [("x", x.into()), ("indices", indices.into()), ("axis", Constant::int32(axis).into())],
        )
    }
}
