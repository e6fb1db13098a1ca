//! The state of a lowering, and short helpers for what lowerings do often.

use std::collections::HashMap;
use std::rc::Rc;

use ferrane_host::map::Mapped;
pub(super) use ferrane_mil::emit::{Built, Stop, rejected, unmapped};
use ferrane_mil::emit::{Emit, Made, elements, int32s};
use ferrane_mil::weights::pack;
use ferrane_mil::{Builder, Bytes, Constant, DataType, Opset, ValueId, WeightId};

use super::known::{self, Known};
use crate::bytecode::{self, AttributeId, Bytecode, BytecodeOp, TypeId};
use crate::dialect::{Decoded, ElementType, Field, Tensor, words};
use crate::error::Refusal;
use crate::options::ConversionOptions;

/// Constants of at least this many elements become records of the weight file.
const STORED_FROM: usize = 64;
/// The blob file of the weights.
const FILE: &str = "@model_path/weights/weight.bin";
/// The most elements of a table that a lowering computes, and of all tables of a program.
const MAX_TABLE: usize = 1 << 24;
pub(super) const MAX_TABLES: usize = 1 << 26;
/// The most elements of a constant that is stored although the file states one element for all of
/// them; larger ones are filled when the program runs.
const MAX_SPLAT: usize = 1 << 18;
/// Operations and parts of them that may be lowered in a whole program.
pub(super) const MAX_PARTS: usize = 1 << 18;
/// Bytes of attributes and types that may be decoded for each byte of the file: every operation of
/// a hostile file may refer to its longest attribute.
pub(super) const DECODED: usize = 64;

/// What a value of the file stands for.
#[derive(Clone, Debug)]
pub(super) struct Meaning<'a> {
    /// Number of the entry; a constant's `const` op is found by it.
    pub(super) id: usize,
    pub(super) is: Role<'a>,
    /// The element type in the model.
    pub(super) element: ElementType,
}

#[derive(Clone, Debug)]
pub(super) enum Role<'a> {
    /// A value of the program.
    Value(ValueId),
    /// A tensor whose elements are known; its `const` op is made where an op reads it.
    Known(Rc<Known<'a>>),
    /// The input of a function that is a state.
    State(ValueId),
    /// An order of accesses to states, which a program has by the order of its ops.
    Token,
    /// The elements of a tensor where its mask has ones, and the mask.
    Sparse(Rc<(Meaning<'a>, Meaning<'a>)>),
    /// The operation that computes it has no ops.
    Poisoned,
}

/// A lowering in progress.
pub(super) struct Lower<'a> {
    pub(super) b: Builder,
    pub(super) file: &'a Bytecode<'a>,
    /// The mapped file, which large constants share.
    pub(super) memory: Option<&'a Mapped>,
    /// The opset of the program.
    pub(super) target: Opset,
    pub(super) options: &'a ConversionOptions,
    /// The operation that is being lowered.
    pub(super) op: &'a BytecodeOp,
    /// The name of its MIL ops.
    pub(super) label: String,
    /// The name of the function.
    pub(super) function: String,
    pub(super) values: HashMap<bytecode::ValueId, Meaning<'a>>,
    pub(super) entries: usize,
    /// `const` ops of entries and int32 copies of values, for each open block of the program.
    pub(super) blocks: Vec<Made>,
    /// Records of the weights by the address of their bytes in the file, and element type.
    pub(super) records: HashMap<(usize, usize, DataType), WeightId>,
    /// What a transpose of the last two axes has swapped, by its result: a product swaps by itself.
    pub(super) transposed: HashMap<ValueId, ValueId>,
    pub(super) refusals: Vec<Refusal>,
    /// Values that operations computed, with the locations of these.
    pub(super) made: Vec<(ValueId, AttributeId)>,
    /// Functions that are being inlined.
    pub(super) calls: Vec<&'a str>,
    pub(super) graphs: &'a HashMap<String, &'a BytecodeOp>,
    /// Elements of tables that may still be computed.
    pub(super) tables: usize,
    /// Operations and parts that may still be lowered.
    pub(super) left: usize,
    /// Bytes of attributes and types that may still be decoded.
    pub(super) decodable: std::cell::Cell<usize>,
}

/// The bytes of numbers as elements of a MIL type. Integers must be in range.
fn encode(dtype: DataType, values: &[f64]) -> Built<Vec<u8>> {
    Ok(match dtype {
        DataType::Fp32 => values.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect(),
        DataType::Fp16 => values.iter().flat_map(|&v| half::f16::from_f64(v).to_le_bytes()).collect(),
        DataType::Bool => values.iter().map(|&v| u8::from(v != 0.0)).collect(),
        DataType::Int8 | DataType::UInt8 => values.iter().map(|&v| v as i64 as u8).collect(),
        DataType::Int32 => {
            if let Some(v) = values.iter().find(|&&v| v < f64::from(i32::MIN) || v > f64::from(i32::MAX)) {
                return unmapped(format!("the number {v} does not fit int32, MIL's widest integer"));
            }
            values.iter().flat_map(|&v| (v as i32).to_le_bytes()).collect()
        }
        _ => pack(dtype, &values.iter().map(|&v| v as i64).collect::<Vec<_>>()),
    })
}

impl Emit for Lower<'_> {
    fn builder(&self) -> &Builder {
        &self.b
    }

    fn emitter(&mut self) -> (&mut Builder, &str) {
        (&mut self.b, &self.label)
    }

    fn made(&mut self) -> &mut Vec<Made> {
        &mut self.blocks
    }

    fn shape(&self, x: ValueId) -> Built<Vec<usize>> {
        let Ok(shape) = self.b.shape(x) else {
            return unmapped("an extent of its operand is known only when the program runs");
        };
        match elements(&shape) {
            Some(_) => Ok(shape),
            None => unmapped(format!("a tensor of shape {shape:?} is too large")),
        }
    }
}

/// What the file says about the operation.
impl<'a> Lower<'a> {
    /// Charges an entry of the file that is decoded; `false` if there were too many. Bytes of a
    /// dense constant are not copied, so they are free.
    fn decoding(&self, bytes: &[u8]) -> bool {
        /// The numbers of the kinds of dense constants, as varints.
        const DENSE: [u8; 2] = [6 << 1 | 1, 7 << 1 | 1];
        let cost = if bytes.first().is_some_and(|b| DENSE.contains(b)) { 8 } else { bytes.len() };
        match self.decodable.get().checked_sub(cost) {
            Some(left) => {
                self.decodable.set(left);
                true
            }
            None => false,
        }
    }

    pub(super) fn attribute(&self, id: AttributeId) -> Option<Decoded<'a>> {
        let entry = self.file.attributes.get(id.0 as usize)?;
        self.decoding(&entry.bytes).then(|| self.file.attribute(id)).flatten()
    }

    pub(super) fn ty(&self, id: TypeId) -> Option<Decoded<'a>> {
        let entry = self.file.types.get(id.0 as usize)?;
        self.decoding(&entry.bytes).then(|| self.file.ty(id)).flatten()
    }

    pub(super) fn tensor_type(&self, id: TypeId) -> Option<Tensor> {
        let entry = self.file.types.get(id.0 as usize)?;
        self.decoding(&entry.bytes).then(|| self.file.tensor(id)).flatten()
    }

    /// A property of the operation, if it has it.
    pub(super) fn property(&self, name: &str) -> Option<Decoded<'a>> {
        self.attribute(self.file.property(self.op, name)?)
    }

    /// The word of a property that is a choice of a few.
    pub(super) fn word(&self, name: &str) -> Built<&'static str> {
        let found = self.property(name).and_then(|p| match p.fields.as_slice() {
            [Field::Unsigned(number)] => words(p.kind.name, *number),
            _ => None,
        });
        found.map_or_else(|| unmapped(format!("its `{name}` is not known")), Ok)
    }

    /// The type of result `i` that the file states.
    pub(super) fn result(&self, i: usize) -> Option<Tensor> {
        self.tensor_type(self.op.results.get(i)?.ty)
    }

    /// The extents of result `i` that the file states, if all are known.
    pub(super) fn result_shape(&self, i: usize) -> Option<Vec<usize>> {
        self.result(i)?.shape.iter().map(|n| usize::try_from((*n)?).ok()).collect()
    }

    pub(super) fn count(&self) -> usize {
        self.op.operands.len()
    }
}

impl<'a> Lower<'a> {
    pub(super) fn make(&mut self, is: Role<'a>, element: ElementType) -> Meaning<'a> {
        self.entries += 1;
        Meaning { id: self.entries, is, element }
    }

    pub(super) fn lookup(&self, name: bytecode::ValueId) -> Built<Meaning<'a>> {
        match self.values.get(&name) {
            Some(Meaning { is: Role::Poisoned, .. }) => Err(Stop::Poisoned),
            Some(entry) => Ok(entry.clone()),
            None => rejected("it reads a value that is not defined before it"),
        }
    }

    /// What operand `i` stands for.
    pub(super) fn entry(&self, i: usize) -> Built<Meaning<'a>> {
        match self.op.operands.get(i) {
            Some(name) => self.lookup(*name),
            None => rejected(format!("operand {i} is missing")),
        }
    }

    /// Operand `i` as a value; integers of fewer than 32 bits are widened to int32.
    pub(super) fn x(&mut self, i: usize) -> Built {
        let entry = self.entry(i)?;
        self.value_of(&entry)
    }

    /// The value of an entry, widened.
    pub(super) fn value_of(&mut self, entry: &Meaning<'a>) -> Built {
        match &entry.is {
            Role::Value(value) => self.widened(*value),
            Role::Known(known) => {
                let Some(dtype) = known::mil(known.element) else {
                    return unmapped(format!("MIL has no numbers of type {}", known.element.name()));
                };
                let dtype = if dtype.is_int() { DataType::Int32 } else { dtype };
                self.stored(entry.id, known, dtype)
            }
            Role::Poisoned => Err(Stop::Poisoned),
            Role::State(_) | Role::Token | Role::Sparse(_) => unmapped("it reads what is no tensor of numbers"),
        }
    }

    /// The `const` op of a tensor, made once for each block.
    pub(super) fn stored(&mut self, id: usize, tensor: &Known<'a>, dtype: DataType) -> Built {
        if let Some(value) = self.blocks.iter().find_map(|b| b.constants.get(&(id, dtype))) {
            return Ok(*value);
        }
        let value = if tensor.len() < STORED_FROM {
            let bytes = encode(dtype, tensor.values())?;
            self.b.constant(&self.label, Constant::raw(dtype, &tensor.shape, &bytes))?
        } else if let Some(value) = tensor.splat().filter(|_| tensor.len() > MAX_SPLAT) {
            let shape: Vec<i64> = tensor.shape.iter().map(|&n| n as i64).collect();
            let value = Constant::raw(dtype, &[], &encode(dtype, &[value])?);
            self.op("fill", [("shape", int32s(&shape).into()), ("value", value.into())])?
        } else {
            let record = self.record(tensor, dtype)?;
            self.b.weight_record(&self.label, dtype, &tensor.shape, record)?
        };
        if let Some(block) = self.blocks.last_mut() {
            block.constants.insert((id, dtype), value);
        }
        Ok(value)
    }

    /// The record of a constant in the weights, made once for the same bytes of the file.
    fn record(&mut self, tensor: &Known<'a>, dtype: DataType) -> Built<WeightId> {
        let Some(bytes) = tensor.bytes_as(dtype) else {
            if tensor.splat().is_some() {
                self.table(&tensor.shape)?;
            }
            let bytes = encode(dtype, tensor.values())?;
            return Ok(self.b.weights_mut().add_packed(FILE, dtype, tensor.len(), bytes));
        };
        let key = (bytes.as_ptr() as usize, bytes.len(), dtype);
        if let Some(record) = self.records.get(&key) {
            return Ok(*record);
        }
        // The place of the bytes in the mapped file, whose pages the program then shares.
        let mapped = self.memory.and_then(|memory| {
            let start = key.0.checked_sub(memory.as_ptr() as usize)?;
            memory.slice(start..start.checked_add(bytes.len())?)
        });
        let record = match mapped {
            Some(part) => self.b.weights_mut().add_shared(FILE, dtype, tensor.len(), Bytes::Mapped(part)),
            None => self.b.weights_mut().add_packed(FILE, dtype, tensor.len(), bytes),
        };
        self.records.insert(key, record);
        Ok(record)
    }

    /// Operand `i` as a `const` of this type, for ops over compressed constants.
    pub(super) fn typed(&mut self, i: usize, dtype: DataType) -> Built {
        let (entry, known) = (self.entry(i)?, self.known(i)?);
        self.stored(entry.id, &known, dtype)
    }

    /// The elements of operand `i`, for what MIL requires when the program is made.
    pub(super) fn known(&self, i: usize) -> Built<Rc<Known<'a>>> {
        match self.entry(i)?.is {
            Role::Known(known) => Ok(known),
            _ => Err(Stop::Needs(i)),
        }
    }

    /// The integers of operand `i`, which must be known.
    pub(super) fn ints(&self, i: usize) -> Built<Vec<i64>> {
        let known = self.known(i)?;
        if known.len() > 1 << 20 {
            return rejected(format!("operand {i} has {} elements", known.len()));
        }
        Ok(known.ints())
    }

    /// The integers of operand `i`, which must be `count` numbers of at least `least`. One that is
    /// larger than any extent is rejected, so that sums and products of them fit.
    pub(super) fn counts(&self, i: usize, count: usize, least: i64) -> Built<Vec<i64>> {
        let list = self.ints(i)?;
        if list.len() != count || list.iter().any(|&n| n < least || n > 1 << 30) {
            return rejected(format!("operand {i} is {list:?}, not {count} numbers from {least}"));
        }
        Ok(list)
    }

    /// The only integer of operand `i`, which must be known.
    pub(super) fn int(&self, i: usize) -> Built<i64> {
        match self.ints(i)?.as_slice() {
            [one] => Ok(*one),
            list => rejected(format!("operand {i} has {} elements, not one", list.len())),
        }
    }

    /// The extents of operand `i`.
    pub(super) fn extents(&self, i: usize) -> Built<Vec<usize>> {
        match &self.entry(i)?.is {
            Role::Known(known) => Ok(known.shape.clone()),
            Role::Value(value) => self.shape(*value),
            _ => rejected(format!("operand {i} is no tensor")),
        }
    }

    /// The element type of operand `i` in the model.
    pub(super) fn element(&self, i: usize) -> Built<ElementType> {
        Ok(self.entry(i)?.element)
    }

    /// Operand `i` as an axis of a tensor of this rank; negative ones count from the end.
    pub(super) fn axis(&self, i: usize, rank: usize) -> Built<usize> {
        normal(self.int(i)?, rank)
    }

    /// Operand `i` as distinct axes of a tensor of this rank.
    pub(super) fn axes(&self, i: usize, rank: usize) -> Built<Vec<usize>> {
        let mut axes = self.ints(i)?.iter().map(|&a| normal(a, rank)).collect::<Built<Vec<_>>>()?;
        axes.sort_unstable();
        match axes.windows(2).all(|pair| pair[0] != pair[1]) {
            true => Ok(axes),
            false => rejected(format!("the axes {axes:?} occur twice")),
        }
    }
}

/// An axis from 0 to `rank - 1`; negative ones count from the end.
pub(super) fn normal(axis: i64, rank: usize) -> Built<usize> {
    let at = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
    match usize::try_from(at).ok().filter(|&a| a < rank) {
        Some(at) => Ok(at),
        None => rejected(format!("axis {axis} of rank {rank}")),
    }
}

impl Lower<'_> {
    /// Counts parts that an operation is unrolled into.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn spend(&mut self, parts: usize) -> Built<()> {
        match self.left.checked_sub(parts) {
            Some(left) => self.left = left,
            None => return unmapped(format!("it would add {parts} parts to a program that is too large then")),
        }
        Ok(())
    }

    /// Checks the number of elements of a table that is computed for an operation.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn table(&mut self, extents: &[usize]) -> Built<usize> {
        let total = extents.iter().try_fold(1usize, |n, &e| n.checked_mul(e)).filter(|&n| n <= MAX_TABLE);
        let left = total.and_then(|n| self.tables.checked_sub(n));
        let (Some(total), Some(left)) = (total, left) else {
            return unmapped(format!("it needs a table of {extents:?} elements, which is too large"));
        };
        self.tables = left;
        Ok(total)
    }

    /// A constant tensor of numbers.
    pub(super) fn tensor(&mut self, dtype: DataType, shape: &[usize], values: &[f64]) -> Built {
        let bytes = encode(dtype, values)?;
        if values.len() < STORED_FROM {
            return Ok(self.b.constant(&self.label, Constant::raw(dtype, shape, &bytes))?);
        }
        let record = self.b.weights_mut().add_packed(FILE, dtype, values.len(), bytes);
        Ok(self.b.weight_record(&self.label, dtype, shape, record)?)
    }

    /// A constant tensor of int32.
    pub(super) fn indices(&mut self, shape: &[usize], values: &[i64]) -> Built {
        self.tensor(DataType::Int32, shape, &values.iter().map(|&v| v as f64).collect::<Vec<_>>())
    }

    /// Integers wrapped to the range of a type of fewer than 32 bits, as Core AI's arithmetic does.
    pub(super) fn wrapped(&mut self, x: ValueId, element: ElementType) -> Built {
        let Some((low, high)) = known::range(element).filter(|_| element.bits() < 32) else { return Ok(x) };
        let (low, size) = (low as i32, (high - low) as i32 + 1);
        let above = self.bin("sub", x, Constant::int32(low))?;
        let inside = self.bin("mod", above, Constant::int32(size))?;
        self.bin("add", inside, Constant::int32(low))
    }

    /// Integers of 32 bits without a sign moved by half their range, so that MIL's integers, which
    /// have one, are in the same order. Moved again they are the same as before. Others stay.
    pub(super) fn moved(&mut self, x: ValueId, element: ElementType) -> Built {
        match element {
            ElementType::UInt32 => self.bin("sub", x, Constant::int32(i32::MIN)),
            _ => Ok(x),
        }
    }
}
