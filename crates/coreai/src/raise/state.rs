//! The state of a conversion into a model: what an op of MIL says, and constants.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use ferrane_mil::emit::Stop;
use ferrane_mil::emit::elements;
pub(super) use ferrane_mil::emit::{rejected, unmapped};
use ferrane_mil::ops::{InferContext, OpDef};
use ferrane_mil::program::Payload;
use ferrane_mil::{
    Arg, Constant, DataType, Dim, Evaluate, Function, Op, OpId, Opset, Type, ValueDef, ValueId as MilValue, WeightId,
    Weights,
};

use crate::build::{Builder, Graph};
use crate::bytecode::{Block, TypeId, ValueId};
use crate::dialect::{ElementType, Tensor};
use crate::error::Refusal;

/// The result of a step of a conversion.
pub(super) type Built<T = ValueId> = std::result::Result<T, Stop>;

/// Extents of a tensor; `None` is one that is known only when the program runs.
pub(super) type Extents = Vec<Option<u64>>;

/// Constants of at most this many bytes are stored with their operation, others as resources.
const INLINE: usize = 64;
/// The most elements of a table that a rule computes, and of all tables of a program.
const MAX_TABLE: usize = 1 << 22;
pub(super) const MAX_TABLES: usize = 1 << 24;
/// Operations that rules may write in loops over extents, in a whole program.
pub(super) const MAX_PARTS: usize = 1 << 16;

/// What a constant is found by, next to its type.
#[derive(PartialEq, Eq, Hash)]
pub(super) enum Contents {
    Weight(WeightId),
    Bytes(Vec<u8>),
    /// A result of an op of constants.
    Computed(MilValue),
}

/// The constants of an open block.
pub(super) type Made = HashMap<(TypeId, Contents), ValueId>;

/// A state of the function.
#[derive(Clone, Copy)]
pub(super) struct State {
    pub(super) handle: ValueId,
    /// The order of the accesses so far, once there is one.
    pub(super) token: Option<ValueId>,
    /// Whether one of them wrote.
    pub(super) written: bool,
}

/// A conversion in progress.
pub(super) struct Raise<'a> {
    pub(super) b: Builder<'a>,
    pub(super) graph: Graph,
    pub(super) function: &'a Function,
    pub(super) weights: &'a Weights,
    pub(super) opset: Opset,
    pub(super) arithmetic: &'a dyn Evaluate,
    /// The op that is being converted, and its signature.
    pub(super) op: &'a Op,
    pub(super) def: &'static OpDef,
    pub(super) values: HashMap<MilValue, ValueId>,
    pub(super) tensors: HashMap<ValueId, Tensor>,
    pub(super) states: HashMap<MilValue, State>,
    /// The ops that an output or a state depends on.
    pub(super) needed: HashSet<OpId>,
    /// Constants of each open block; the innermost is last.
    pub(super) made: Vec<Made>,
    pub(super) refusals: Vec<Refusal>,
    /// Elements of tables that may still be computed.
    pub(super) tables: usize,
    /// Operations that loops may still write.
    pub(super) left: usize,
    /// The number of the next resource.
    pub(super) resources: usize,
}

/// The type of elements of a MIL type. `None` for strings, and for integers of 3 and 6 bits.
pub(super) fn element_of(dtype: DataType) -> Option<ElementType> {
    Some(match dtype {
        DataType::Bool => ElementType::Bool,
        DataType::Fp16 => ElementType::Float16,
        DataType::Fp32 => ElementType::Float32,
        DataType::Fp64 => ElementType::Float64,
        DataType::Bf16 => ElementType::BFloat16,
        DataType::Fp8E4M3Fn => ElementType::Float8E4M3FN,
        DataType::Fp8E5M2 => ElementType::Float8E5M2,
        DataType::Int4 => ElementType::Int4,
        DataType::Int8 => ElementType::Int8,
        DataType::Int16 => ElementType::Int16,
        DataType::Int32 => ElementType::Int32,
        DataType::Int64 => ElementType::Int64,
        DataType::UInt1 => ElementType::UInt1,
        DataType::UInt2 => ElementType::UInt2,
        DataType::UInt4 => ElementType::UInt4,
        DataType::UInt8 => ElementType::UInt8,
        DataType::UInt16 => ElementType::UInt16,
        DataType::UInt32 => ElementType::UInt32,
        DataType::UInt64 => ElementType::UInt64,
        _ => return None,
    })
}

/// The bytes of numbers as elements of a type of 8 bits or more; integers wrap.
pub(super) fn encoded(element: ElementType, values: &[f64]) -> Vec<u8> {
    match element {
        ElementType::Float32 => values.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect(),
        ElementType::Float16 => values.iter().flat_map(|&v| half::f16::from_f64(v).to_le_bytes()).collect(),
        ElementType::Bool => values.iter().map(|&v| u8::from(v != 0.0)).collect(),
        _ => values.iter().flat_map(|&v| (v as i64).to_le_bytes().into_iter().take(element.size())).collect(),
    }
}

/// The tensor that a value of MIL is.
pub(super) fn tensor_of(ty: &Type) -> Built<Tensor> {
    let (dtype, shape) = match ty {
        Type::Tensor { dtype, shape } => (*dtype, shape),
        Type::List { .. } => {
            return unmapped("Core AI has no lists: its values are tensors, images, states and tokens");
        }
        _ => return unmapped(format!("Core AI has no values of type {ty}")),
    };
    let Some(element) = element_of(dtype) else {
        return unmapped(format!("Core AI has no elements of type {dtype}"));
    };
    let known: Vec<usize> = shape.iter().map(|d| if let Dim::Fixed(n) = d { *n } else { 1 }).collect();
    if elements(&known).is_none() {
        return rejected(format!("a tensor of type {ty} is too large"));
    }
    let shape = shape.iter().map(|d| if let Dim::Fixed(n) = d { Some(*n as u64) } else { None }).collect();
    Ok(Tensor { shape, element, encoding: None })
}

/// What the op says.
impl<'a> Raise<'a> {
    /// The arguments of the op as the rules of its signature see them.
    pub(super) fn cx(&self) -> InferContext<'a> {
        InferContext::of(self.function, self.weights, self.def, self.op)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.cx().has(name)
    }

    pub(super) fn ints(&self, name: &str) -> Built<Vec<i64>> {
        Ok(self.cx().ints(name)?)
    }

    /// Integers, one for each of `count` axes, of which none is below `least`; `default` for each
    /// if they are absent.
    pub(super) fn counts(&self, name: &str, count: usize, default: i64, least: i64) -> Built<Vec<i64>> {
        let found = if self.has(name) { self.ints(name)? } else { vec![default; count] };
        match found.len() == count && found.iter().all(|v| (least..=i64::from(i32::MAX)).contains(v)) {
            true => Ok(found),
            false => rejected(format!("`{name}` is {found:?}, where {count} numbers from {least} on are needed")),
        }
    }

    pub(super) fn int(&self, name: &str) -> Built<i64> {
        Ok(self.cx().int(name)?)
    }

    pub(super) fn flag(&self, name: &str) -> Built<bool> {
        Ok(self.cx().flag(name)?)
    }

    pub(super) fn text(&self, name: &str) -> Built<String> {
        Ok(self.cx().text(name)?)
    }

    pub(super) fn axis(&self, name: &str, rank: usize) -> Built<usize> {
        Ok(self.cx().axis(name, rank)?)
    }

    /// Axes of a tensor of this rank; all of them if they are absent.
    pub(super) fn axes(&self, name: &str, rank: usize) -> Built<Vec<usize>> {
        match self.has(name) {
            true => Ok(self.cx().normal_axes(&self.ints(name)?, rank)?),
            false => Ok((0..rank).collect()),
        }
    }

    /// A number that is known.
    pub(super) fn number(&self, name: &str) -> Built<f64> {
        match self.cx().number_known(name)? {
            Some(number) => Ok(number),
            None => unmapped(format!("`{name}` has to be known when the model is made")),
        }
    }

    /// An argument as a value.
    pub(super) fn x(&mut self, name: &str) -> Built {
        match self.op.arg(name) {
            Some(Arg::Value(value)) => self.value(*value),
            Some(Arg::Const(constant)) => self.constant(constant),
            Some(Arg::List(_)) => rejected(format!("`{name}` is a list of values")),
            None => match self.cx().constant(name) {
                Some(constant) => self.constant(constant),
                None => rejected(format!("`{name}` is missing")),
            },
        }
    }

    /// An argument of several values.
    pub(super) fn list(&mut self, name: &str) -> Built<Vec<ValueId>> {
        match self.op.arg(name) {
            Some(Arg::List(values)) => values.iter().map(|&value| self.value(value)).collect(),
            Some(Arg::Value(value)) => Ok(vec![self.value(*value)?]),
            Some(Arg::Const(Constant::List(_, items) | Constant::Tuple(items))) => {
                items.iter().map(|item| self.constant(item)).collect()
            }
            _ => rejected(format!("`{name}` is no list of values")),
        }
    }

    /// The type of a result.
    pub(super) fn result(&self, i: usize) -> Built<Tensor> {
        match self.op.outputs.get(i) {
            Some(&value) => tensor_of(&self.function.value(value).ty),
            None => rejected(format!("it has no result {i}")),
        }
    }

    /// A value of MIL. Constants are made where an op reads them.
    pub(super) fn value(&mut self, value: MilValue) -> Built {
        if let Some(found) = self.values.get(&value) {
            return Ok(*found);
        }
        if let Some(constant) = self.function.constant(value) {
            return self.constant(constant);
        }
        match self.function.value(value).def {
            ValueDef::Op(op, i) if self.function.op(op).name.starts_with("constexpr_") => self.computed(value, op, i),
            _ => Err(Stop::Poisoned),
        }
    }

    /// Charges a table with a number for each element of a tensor of these extents; their number.
    pub(super) fn table(&mut self, shape: &[u64]) -> Built<usize> {
        let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
        let left = self.tables;
        match elements(&shape).filter(|&n| n <= MAX_TABLE.min(left)) {
            Some(n) => {
                self.tables -= n;
                Ok(n)
            }
            None => unmapped(format!("a table of extents {shape:?} would have to be computed, which is too large")),
        }
    }

    /// Charges operations that a loop writes.
    pub(super) fn spend(&mut self, parts: usize) -> Built<()> {
        match self.left.checked_sub(parts) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => unmapped(format!("it would become {parts} operations or more, which are too many")),
        }
    }
}

impl<'a> Raise<'a> {
    /// A constant of the program; large ones stay where they are.
    pub(super) fn constant(&mut self, constant: &'a Constant) -> Built {
        let Constant::Tensor { ty, payload } = constant else {
            return unmapped(format!("Core AI has no values of type {}", constant.ty()));
        };
        let tensor = tensor_of(ty)?;
        let Some(bytes) = constant.bytes(self.weights) else {
            return unmapped("the bytes of its weight file are not there");
        };
        let contents = match payload {
            Payload::Weight(id) => Contents::Weight(*id),
            _ => Contents::Bytes(bytes.to_vec()),
        };
        self.stored(tensor, Cow::Borrowed(bytes), contents)
    }

    /// A constant of numbers.
    pub(super) fn numbers(&mut self, element: ElementType, shape: &[u64], values: &[f64]) -> Built {
        let bytes = encoded(element, values);
        let shape = shape.iter().map(|&n| Some(n)).collect();
        self.stored(Tensor { shape, element, encoding: None }, Cow::Owned(bytes.clone()), Contents::Bytes(bytes))
    }

    /// A vector of integers.
    pub(super) fn vector(&mut self, element: ElementType, values: &[i64]) -> Built {
        let numbers: Vec<f64> = values.iter().map(|&v| v as f64).collect();
        self.numbers(element, &[values.len() as u64], &numbers)
    }

    pub(super) fn scalar(&mut self, element: ElementType, value: f64) -> Built {
        self.numbers(element, &[], &[value])
    }

    /// A scalar of the element type of `like`.
    pub(super) fn num(&mut self, like: ValueId, value: f64) -> Built {
        let element = self.element(like)?;
        self.scalar(element, value)
    }

    /// A constant of these bytes, which other tensors of the block share.
    pub(super) fn stored(&mut self, tensor: Tensor, bytes: Cow<'a, [u8]>, contents: Contents) -> Built {
        let count = tensor.count().unwrap_or(0);
        let bits = if tensor.element == ElementType::Bool { 8 } else { tensor.element.bits() as usize };
        if count.checked_mul(bits).map(|n| n.div_ceil(8)) != Some(bytes.len()) {
            return rejected(format!("{} bytes for a constant of {count} {}", bytes.len(), tensor.element.name()));
        }
        let ty = self.b.tensor(&tensor.shape, tensor.element);
        let key = (ty, contents);
        if let Some(found) = self.made.iter().find_map(|block| block.get(&key)) {
            return Ok(*found);
        }
        let packed = tensor.element.is_packed();
        let value = if !packed && bytes.len() <= INLINE {
            let one = bytes.get(..tensor.element.size()).unwrap_or_default();
            let same = !bytes.is_empty() && bytes.chunks_exact(tensor.element.size()).all(|b| b == one);
            let elements = self.b.elements(if same { one } else { &bytes }, same);
            self.b.op(&mut self.graph, "primitive.constant_v1", &[], &[("value", elements)], ty)
        } else {
            self.resources += 1;
            let name = format!("resource_{}", self.resources);
            self.b.weight(&mut self.graph, &name, ty, bytes)
        };
        self.tensors.insert(value, tensor);
        if let Some(block) = self.made.last_mut() {
            block.insert(key, value);
        }
        Ok(value)
    }

    /// A result of an op of constants, which Core AI has no form for.
    fn computed(&mut self, value: MilValue, op: OpId, i: u32) -> Built {
        let tensor = tensor_of(&self.function.value(value).ty)?;
        let op = self.function.op(op);
        let found = self.arithmetic.evaluate(self.function, op, self.opset, self.weights);
        let found = match found {
            Ok(found) => found,
            Err(reason) => return unmapped(format!("it has to be computed when the model is made: {reason}")),
        };
        let Some(constant) = found.into_iter().nth(i as usize) else { return rejected("it gives too few results") };
        let Some(bytes) = constant.bytes(self.weights) else { return rejected("it gives no elements") };
        self.stored(tensor, Cow::Owned(bytes.to_vec()), Contents::Computed(value))
    }

    /// The results of the op, computed when the model is made.
    pub(super) fn evaluated(&mut self) -> Built<Vec<ValueId>> {
        let op = self.op;
        op.outputs
            .iter()
            .map(|&value| match self.function.value(value).def {
                ValueDef::Op(id, i) => self.computed(value, id, i),
                _ => rejected("its result is no result of an op"),
            })
            .collect()
    }

    /// Runs `work` in a new block of the model with these arguments; it gives the values that the
    /// block returns.
    pub(super) fn nested(
        &mut self,
        arguments: &[Tensor],
        terminator: &str,
        work: impl FnOnce(&mut Self, &[ValueId]) -> Built<Vec<ValueId>>,
    ) -> Built<Block> {
        let types: Vec<TypeId> = arguments.iter().map(|t| self.b.tensor(&t.shape, t.element)).collect();
        let values = self.b.open_block(&mut self.graph, &types);
        self.tensors.extend(values.iter().copied().zip(arguments.iter().cloned()));
        self.made.push(Made::new());
        let found = work(self, &values);
        self.made.pop();
        // The block is closed in any case, so that the graph stays in order.
        let returned = found.as_deref().unwrap_or_default().to_vec();
        let block = self.b.close_block(&mut self.graph, terminator, &returned);
        found.map(|_| block)
    }

    /// As [`Raise::nested`], for a block that sees no values around it and returns one.
    pub(super) fn isolated(
        &mut self,
        arguments: &[Tensor],
        work: impl FnOnce(&mut Self, &[ValueId]) -> Built,
    ) -> Built<Block> {
        let around = std::mem::take(&mut self.made);
        let block = self.nested(arguments, "dataflow.yield_v1", |r, values| Ok(vec![work(r, values)?]));
        self.made = around;
        block
    }
}
