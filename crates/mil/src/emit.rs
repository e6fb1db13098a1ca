//! What conversions of other formats do again and again with a builder.

use std::collections::HashMap;

use crate::build::{Builder, OpenBlock};
use crate::error::MilError;
use crate::program::{Arg, BlockId, Constant, DataType, ValueId};

/// Why an operation of a model has no ops.
#[derive(Debug)]
pub enum Stop {
    /// MIL has no op for the operation, or none for this form of it.
    Unmapped(String),
    /// This operand has to be known when the program is made.
    Needs(usize),
    /// The operation contradicts itself, or the registry rejects its ops.
    Rejected(String),
    /// It depends on an operation that has no ops.
    Poisoned,
}

impl From<MilError> for Stop {
    fn from(error: MilError) -> Stop {
        Stop::Rejected(error.to_string())
    }
}

/// The result of a step of a conversion.
pub type Built<T = ValueId> = Result<T, Stop>;

/// MIL cannot express the operation.
///
/// # Errors
/// Always [`Stop::Unmapped`].
pub fn unmapped<T>(reason: impl Into<String>) -> Built<T> {
    Err(Stop::Unmapped(reason.into()))
}

/// The operation contradicts itself.
///
/// # Errors
/// Always [`Stop::Rejected`].
pub fn rejected<T>(reason: impl Into<String>) -> Built<T> {
    Err(Stop::Rejected(reason.into()))
}

/// The most elements of any tensor of a model. Their number, and the number along any selection of
/// axes, fits all arithmetic on shapes.
pub const MAX_ELEMENTS: usize = 1 << 36;
/// The most axes of a tensor; MIL has at most 5 in most ops.
const MAX_RANK: usize = 16;

/// The number of elements of a tensor of a model, if it is within limits.
pub fn elements(shape: &[usize]) -> Option<usize> {
    if shape.len() > MAX_RANK {
        return None;
    }
    // Extents of zero do not hide large ones.
    let extent = |e: usize| Some(e.max(1)).filter(|&e| e <= i32::MAX as usize);
    let most = shape.iter().try_fold(1usize, |n, &e| n.checked_mul(extent(e)?).filter(|&n| n <= MAX_ELEMENTS))?;
    Some(if shape.contains(&0) { 0 } else { most })
}

/// What an open block of a program has made for later use.
#[derive(Debug, Default)]
pub struct Made {
    /// `const` ops by what they stand for, and their element type.
    pub constants: HashMap<(usize, DataType), ValueId>,
    /// int32 copies of narrower integers.
    pub wide: HashMap<ValueId, ValueId>,
}

/// A conversion of a model into a program, op by op. New ops are named after the operation that is
/// being converted.
///
/// Every method fails as the op that it adds does, and otherwise as it says.
pub trait Emit {
    /// The program so far.
    fn builder(&self) -> &Builder;

    /// The builder, and the name of new ops.
    fn emitter(&mut self) -> (&mut Builder, &str);

    /// What each open block has made; the innermost is last.
    fn made(&mut self) -> &mut Vec<Made>;

    /// The extents of a value, outermost first.
    ///
    /// # Errors
    /// They are not known, or too large.
    fn shape(&self, x: ValueId) -> Built<Vec<usize>>;

    /// The extents of a value of rank `least` or more.
    ///
    /// # Errors
    /// The rank is smaller, or as [`Emit::shape`].
    fn ranked(&self, x: ValueId, least: usize) -> Built<Vec<usize>> {
        let shape = self.shape(x)?;
        match shape.len() < least {
            true => rejected(format!("a tensor of shape {shape:?} where rank {least} or more is needed")),
            false => Ok(shape),
        }
    }

    /// The element type of a value.
    fn dtype(&self, x: ValueId) -> DataType {
        self.builder().ty(x).dtype().unwrap_or(DataType::Fp32)
    }

    /// True for fp16 and fp32.
    fn is_float(&self, x: ValueId) -> bool {
        self.dtype(x).is_float()
    }

    /// A scalar constant of the element type of `like`.
    fn num(&self, like: ValueId, value: f32) -> Constant {
        match self.dtype(like) {
            DataType::Fp16 => Constant::fp16(value),
            DataType::Fp32 => Constant::fp32(value),
            DataType::Bool => Constant::bool(value != 0.0),
            _ => Constant::int32(value as i32),
        }
    }

    /// Adds an op with one result.
    fn build(&mut self, op: &str, args: Vec<(&str, Arg)>) -> Built {
        let (b, label) = self.emitter();
        Ok(b.op(op, label, args)?)
    }

    /// Adds an op with one result.
    fn op<const N: usize>(&mut self, op: &str, args: [(&str, Arg); N]) -> Built {
        let (b, label) = self.emitter();
        Ok(b.op(op, label, args)?)
    }

    /// Adds an op whose only argument is `x`.
    fn un(&mut self, op: &str, x: ValueId) -> Built {
        self.op(op, [("x", x.into())])
    }

    /// Adds an op with the arguments `x` and `y`.
    fn bin(&mut self, op: &str, x: impl Into<Arg>, y: impl Into<Arg>) -> Built {
        self.op(op, [("x", x.into()), ("y", y.into())])
    }

    /// Adds `select(cond, a, b)`; `a` and `b` have the same type.
    fn select(&mut self, cond: ValueId, a: impl Into<Arg>, b: impl Into<Arg>) -> Built {
        self.op("select", [("cond", cond.into()), ("a", a.into()), ("b", b.into())])
    }

    /// Adds a cast, unless the value has the type already.
    fn cast(&mut self, x: ValueId, dtype: DataType) -> Built {
        if self.dtype(x) == dtype {
            return Ok(x);
        }
        let (b, label) = self.emitter();
        Ok(b.cast(label, x, dtype)?)
    }

    /// A value whose integers have 32 bits: a cast of narrower ones, made once for each block.
    fn widened(&mut self, value: ValueId) -> Built {
        if !matches!(self.dtype(value), DataType::Int8 | DataType::UInt8 | DataType::Int16 | DataType::UInt16) {
            return Ok(value);
        }
        if let Some(wide) = self.made().iter().find_map(|block| block.wide.get(&value)) {
            return Ok(*wide);
        }
        let wide = self.cast(value, DataType::Int32)?;
        if let Some(block) = self.made().last_mut() {
            block.wide.insert(value, wide);
        }
        Ok(wide)
    }

    /// Adds a reshape to constant extents.
    ///
    /// # Errors
    /// The number of elements differs.
    fn reshape(&mut self, x: ValueId, shape: &[usize]) -> Built {
        let from = self.shape(x)?;
        if from == shape {
            return Ok(x);
        }
        if from.iter().product::<usize>() != shape.iter().product::<usize>() {
            return rejected(format!("{from:?} has other elements than {shape:?}"));
        }
        let (b, label) = self.emitter();
        if shape.is_empty() {
            return Ok(b.squeeze(label, x, &(0..from.len() as i32).collect::<Vec<_>>())?);
        }
        let wanted: Vec<i32> = shape.iter().map(|&n| n as i32).collect();
        Ok(b.reshape(label, x, &wanted)?)
    }

    /// Adds a slice `x[…, begin..begin+size, …]` along one axis.
    ///
    /// # Errors
    /// There are no such elements.
    fn slice(&mut self, x: ValueId, axis: usize, begin: usize, size: usize) -> Built {
        let mut extents = self.ranked(x, axis + 1)?;
        if begin == 0 && size == extents[axis] {
            return Ok(x);
        }
        if begin.checked_add(size).is_none_or(|end| end > extents[axis]) || size == 0 {
            return rejected(format!("elements {begin} to {begin}+{size} of {}", extents[axis]));
        }
        let mut from = vec![0i32; extents.len()];
        from[axis] = begin as i32;
        extents[axis] = size;
        let size: Vec<i32> = extents.iter().map(|&n| n as i32).collect();
        let (b, label) = self.emitter();
        Ok(b.slice_by_size(label, x, &from, &size)?)
    }

    /// Adds a concat along an axis.
    fn concat(&mut self, values: &[ValueId], axis: usize) -> Built {
        if let [one] = values {
            return Ok(*one);
        }
        let (b, label) = self.emitter();
        Ok(b.concat(label, values, axis as i32)?)
    }

    /// Adds a reduction over `axes`; `keep` keeps them with extent 1.
    fn reduce(&mut self, op: &str, x: ValueId, axes: &[usize], keep: bool) -> Built {
        let axes: Vec<i32> = axes.iter().map(|&a| a as i32).collect();
        self.op(
            op,
            [("x", x.into()), ("axes", Constant::int32s(&axes).into()), ("keep_dims", Constant::bool(keep).into())],
        )
    }

    /// Adds a `conv` or `conv_transpose` without padding and bias.
    fn unpadded_conv(
        &mut self,
        op: &str,
        [x, weight]: [ValueId; 2],
        strides: &[i64],
        dilations: &[i64],
        groups: i64,
    ) -> Built {
        self.op(
            op,
            [
                ("x", x.into()),
                ("weight", weight.into()),
                ("strides", int32s(strides).into()),
                ("pad_type", Constant::string("valid").into()),
                ("dilations", int32s(dilations).into()),
                ("groups", Constant::int32(groups as i32).into()),
            ],
        )
    }

    /// The bits of two int32 values combined, where the integers have `width` bits, at most 32:
    /// each is split into its bits along a new axis, which is summed again. Bit 31 is the sign;
    /// with a smaller width the sum has no sign.
    fn combined_bits(
        &mut self,
        operands: [ValueId; 2],
        width: usize,
        combine: fn(&mut Self, ValueId, ValueId) -> Built,
    ) -> Built {
        let powers: Vec<i32> = (0..width.min(31)).map(|i| 1 << i).collect();
        let (b, label) = self.emitter();
        let powers = b.constant(label, Constant::int32s(&powers))?;
        let (mut bits, mut signs) = (Vec::new(), Vec::new());
        for x in operands {
            let rank = self.shape(x)?.len() as i32;
            let (b, label) = self.emitter();
            let wide = b.expand_dims(label, x, &[rank])?;
            let shifted = self.bin("floor_div", wide, powers)?;
            bits.push(self.bin("mod", shifted, Constant::int32(2))?);
            let negative = self.bin("less", x, Constant::int32(0))?;
            signs.push(self.cast(negative, DataType::Int32)?);
        }
        let both = combine(self, bits[0], bits[1])?;
        let weighted = self.bin("mul", both, powers)?;
        let last = self.shape(weighted)?.len() - 1;
        let sum = self.reduce("reduce_sum", weighted, &[last], false)?;
        if width < 32 {
            return Ok(sum);
        }
        let sign = combine(self, signs[0], signs[1])?;
        let top = self.bin("mul", sign, Constant::int32(i32::MIN))?;
        self.bin("add", sum, top)
    }

    /// Adds a nested block; `work` gives the values that it returns.
    fn nested(&mut self, work: impl FnOnce(&mut Self, &OpenBlock) -> Built<Vec<ValueId>>) -> Built<BlockId> {
        let open = self.emitter().0.open_block();
        self.made().push(Made::default());
        let outputs = work(self, &open);
        self.made().pop();
        // The block is closed in any case, so that the builder stays in order.
        let b = self.emitter().0;
        match outputs {
            Ok(outputs) => Ok(b.close_block(open, outputs)),
            Err(stop) => {
                b.close_block(open, Vec::new());
                Err(stop)
            }
        }
    }
}

/// A constant list of int32, of numbers that fit.
pub fn int32s(values: &[i64]) -> Constant {
    Constant::int32s(&values.iter().map(|&v| v as i32).collect::<Vec<_>>())
}
