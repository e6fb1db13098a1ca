//! The state of a lowering, and short helpers for what lowerings do often.

use std::collections::HashMap;
use std::rc::Rc;

pub(super) use ferrane_mil::emit::{Built, Stop, unmapped};
use ferrane_mil::emit::{Emit, Made};
use ferrane_mil::{Arg, Builder, Constant, DataType, Opset, ValueId, WeightId};

use super::roots::Roots;
use crate::element::ElementType;
use crate::graph::{Attribute, Node};
use crate::options::{Options, Precision};
use crate::tensor::Tensor;

/// Constants of at least this many elements become records of the weight file.
pub(super) const STORED_FROM: usize = 64;
/// The blob file of the weights.
const FILE: &str = "@model_path/weights/weight.bin";
/// The most elements of a table that a lowering computes, such as a causal mask, and of all tables
/// of a program.
const MAX_TABLE: usize = 1 << 24;
pub(super) const MAX_TABLES: usize = 1 << 26;
/// The most elements that folding makes in a whole program; later nodes become ops.
pub(super) const MAX_FOLDED: usize = 1 << 24;
/// Parts of nodes that unrolling may make in a whole program.
pub(super) const MAX_PARTS: usize = 1 << 18;
/// Integers of attributes are clamped to this magnitude, so that sums and products of them with
/// extents fit. It is larger than any extent that a program can have.
const MAX_INT: i64 = 1 << 30;

/// What a name of the graph stands for.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Number of the entry; a constant's `const` op is found by it.
    pub(super) id: usize,
    /// The value of the program; absent for a constant that no op has used yet.
    pub(super) value: Option<ValueId>,
    /// The elements, if they are known.
    pub(super) known: Option<Rc<Tensor>>,
    /// The element type in the model.
    pub(super) element: ElementType,
    /// The elements of a sequence.
    pub(super) items: Option<Rc<Vec<Entry>>>,
    /// It is an optional without an element.
    pub(super) absent: bool,
    /// The node that computes it has no ops.
    pub(super) poisoned: bool,
}

impl Entry {
    /// True for a sequence and for an optional without an element: they are resolved when the
    /// program is made, which has no value for them.
    pub(super) fn is_resolved(&self) -> bool {
        self.items.is_some() || self.absent
    }
}

/// A lowering in progress.
pub(super) struct Lower<'a> {
    pub(super) b: Builder,
    pub(super) node: &'a Node,
    pub(super) model: &'a crate::Model,
    /// The opset of the program.
    pub(super) target: Opset,
    pub(super) options: &'a Options,
    /// Names of the graph and of the graphs around it, innermost last.
    pub(super) scopes: Vec<HashMap<&'a str, Entry>>,
    pub(super) entries: usize,
    /// `const` ops of entries and int32 copies of values, for each open block of the program.
    pub(super) blocks: Vec<Made>,
    /// Records of the weights by entry, element type.
    pub(super) records: HashMap<(usize, DataType), WeightId>,
    /// The element types of the node's integer results, where the lowering states them.
    pub(super) elements: Option<ElementType>,
    /// Results of the node that have no elements, by their position.
    pub(super) empty: Vec<(usize, Tensor)>,
    /// The name of the node's ops.
    pub(super) label: String,
    pub(super) labels: HashMap<&'a str, usize>,
    pub(super) refusals: Vec<crate::Refusal>,
    /// Outputs that MIL cannot compute: the node, its operator, the reason.
    pub(super) missing: HashMap<&'a str, (String, String, String)>,
    /// Searches for the inputs that names depend on; made at the first refusal that needs one.
    pub(super) roots: Option<Roots<'a>>,
    /// Elements of tables that may still be computed.
    pub(super) tables: std::cell::Cell<usize>,
    /// Elements that may still be folded.
    pub(super) foldable: usize,
    /// Nodes and parts that may still be lowered.
    pub(super) left: usize,
}

/// The results of a node with one output.
pub(super) fn one(value: ValueId) -> Built<Vec<Option<ValueId>>> {
    Ok(vec![Some(value)])
}

/// The bytes of numbers as elements of a MIL type. Integers must be in range.
fn encode(dtype: DataType, values: &[f64], precision: Precision) -> Built<Vec<u8>> {
    // A mask's most negative fp32 number must not become infinite: NaN would come of it.
    let fp16 = |v: f64| match precision {
        Precision::Fp16 if v.is_finite() => v.clamp(-65504.0, 65504.0),
        _ => v,
    };
    Ok(match dtype {
        DataType::Fp32 => values.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect(),
        DataType::Fp16 => values.iter().flat_map(|&v| ferrane_host::f16::from_f64(fp16(v)).to_le_bytes()).collect(),
        DataType::Bool => values.iter().map(|&v| u8::from(v != 0.0)).collect(),
        DataType::Int8 | DataType::UInt8 => values.iter().map(|&v| v as i64 as u8).collect(),
        _ => {
            if let Some(v) = values.iter().find(|&&v| v < f64::from(i32::MIN) || v > f64::from(i32::MAX)) {
                return unmapped(format!("the number {v} does not fit int32, MIL's widest integer"));
            }
            values.iter().flat_map(|&v| (v as i32).to_le_bytes()).collect()
        }
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
        let shape = self.b.shape(x)?;
        match crate::tensor::elements(&shape) {
            Some(_) => Ok(shape),
            None => unmapped(format!("a tensor of shape {shape:?} is too large")),
        }
    }
}

impl<'a> Lower<'a> {
    fn name(&self, i: usize) -> &'a str {
        self.node.inputs.get(i).map_or("", String::as_str)
    }

    /// True if input `i` of the node is given.
    pub fn has(&self, i: usize) -> bool {
        !self.name(i).is_empty()
    }

    /// Number of inputs that the node lists, left-out ones included.
    pub fn count(&self) -> usize {
        self.node.inputs.len()
    }

    /// True if output `i` of the node is used.
    pub fn wants(&self, i: usize) -> bool {
        self.node.outputs.get(i).is_some_and(|n| !n.is_empty())
    }

    pub(super) fn lookup(&self, name: &str) -> Option<&Entry> {
        self.scopes.iter().rev().find_map(|s| s.get(name))
    }

    /// What input `i` stands for.
    pub fn entry(&self, i: usize) -> Built<Entry> {
        let name = self.name(i);
        if name.is_empty() {
            return Err(Stop::Rejected(format!("input {i} is missing")));
        }
        match self.lookup(name) {
            Some(entry) if entry.poisoned => Err(Stop::Poisoned),
            Some(entry) => Ok(entry.clone()),
            None => Err(Stop::Rejected(format!("`{name}` is not defined"))),
        }
    }

    pub(super) fn make(&mut self, value: Option<ValueId>, known: Option<Rc<Tensor>>, element: ElementType) -> Entry {
        self.entries += 1;
        Entry { id: self.entries, value, known, element, items: None, absent: false, poisoned: false }
    }

    pub(super) fn bind(&mut self, name: &'a str, entry: Entry) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, entry);
        }
    }

    /// Counts parts that a node is unrolled into.
    ///
    /// # Errors
    /// There are too many.
    pub fn spend(&mut self, parts: usize) -> Built<()> {
        match self.left.checked_sub(parts) {
            Some(left) => self.left = left,
            None => {
                return unmapped(format!(
                    "with it the model unrolls into more than {MAX_PARTS} parts, the most that a program may have"
                ));
            }
        }
        Ok(())
    }

    /// Checks the number of elements of a table that is computed for a node.
    ///
    /// # Errors
    /// There are too many.
    pub fn table(&self, extents: &[usize]) -> Built<usize> {
        let total = extents.iter().try_fold(1usize, |n, &e| n.checked_mul(e)).filter(|&n| n <= MAX_TABLE);
        let left = total.and_then(|n| self.tables.get().checked_sub(n));
        let (Some(total), Some(left)) = (total, left) else {
            return unmapped(format!("it needs a table of {extents:?} elements, which is too large"));
        };
        self.tables.set(left);
        Ok(total)
    }

    /// The MIL type of an element type.
    pub fn mil(&self, element: ElementType) -> Built<DataType> {
        match element.mil() {
            Some(DataType::Fp32) if self.options.precision == Precision::Fp16 => Ok(DataType::Fp16),
            Some(dtype) => Ok(dtype),
            None => unmapped(format!("MIL programs have no values of type {element}")),
        }
    }

    /// Input `i` as a value; integers of 8 bits are widened to int32.
    pub fn x(&mut self, i: usize) -> Built {
        let value = self.narrow(i)?;
        self.widened(value)
    }

    /// True if compressed constants may have a scale for each block: from iOS 18 on.
    pub fn target_has_blocks(&self) -> bool {
        self.target >= Opset::IOS18
    }

    /// Input `i` as a value of whatever type it has.
    pub fn narrow(&mut self, i: usize) -> Built {
        let entry = self.entry(i)?;
        self.value_of(self.name(i), &entry)
    }

    pub(super) fn value_of(&mut self, name: &str, entry: &Entry) -> Built {
        match (entry.value, &entry.known) {
            (Some(value), _) => Ok(value),
            (None, Some(tensor)) => {
                let dtype = self.mil(tensor.element())?;
                self.stored(name, entry.id, tensor, dtype)
            }
            (None, None) if entry.poisoned => Err(Stop::Poisoned),
            (None, None) => unmapped("MIL has no sequences or optionals where tensors are needed"),
        }
    }

    /// Input `i`, which must be known, as a `const` of this type.
    pub fn typed(&mut self, i: usize, dtype: DataType) -> Built {
        let tensor = self.known(i)?;
        let entry = self.entry(i)?;
        self.stored(self.name(i), entry.id, &tensor, dtype)
    }

    /// The `const` op of a tensor, made once for each block.
    pub(super) fn stored(&mut self, name: &str, id: usize, tensor: &Tensor, dtype: DataType) -> Built {
        if let Some(value) = self.blocks.iter().find_map(|b| b.constants.get(&(id, dtype))) {
            return Ok(*value);
        }
        let shape = tensor.shape();
        let value = if tensor.len() < STORED_FROM {
            let constant = self.constant(dtype, shape, tensor.values())?;
            self.b.constant(name, constant)?
        } else {
            let record = match self.records.get(&(id, dtype)) {
                Some(record) => *record,
                None => {
                    let bytes = self.bytes(tensor, dtype)?;
                    let record = self.b.weights_mut().add_packed(FILE, dtype, tensor.len(), bytes);
                    self.records.insert((id, dtype), record);
                    record
                }
            };
            self.b.weight_record(name, dtype, shape, record)?
        };
        if let Some(block) = self.blocks.last_mut() {
            block.constants.insert((id, dtype), value);
        }
        Ok(value)
    }

    /// The elements of a tensor in a MIL type, without a detour if they have it already.
    fn bytes(&self, tensor: &Tensor, dtype: DataType) -> Built<std::sync::Arc<[u8]>> {
        let same = match tensor.element() {
            ElementType::Float => dtype == DataType::Fp32,
            ElementType::Float16 => dtype == DataType::Fp16,
            ElementType::Int32 => dtype == DataType::Int32,
            ElementType::Int8 => dtype == DataType::Int8,
            ElementType::UInt8 => dtype == DataType::UInt8,
            ElementType::Int4 => dtype == DataType::Int4,
            ElementType::UInt4 => dtype == DataType::UInt4,
            _ => false,
        };
        match tensor.raw().filter(|_| same) {
            Some(raw) => Ok(raw[..].into()),
            None => Ok(encode(dtype, tensor.values(), self.options.precision)?.into()),
        }
    }

    /// A constant from numbers.
    pub fn constant(&self, dtype: DataType, shape: &[usize], values: &[f64]) -> Built<Constant> {
        Ok(Constant::raw(dtype, shape, &encode(dtype, values, self.options.precision)?))
    }

    /// Input `i` as a value, or `None` if it is left out.
    pub fn maybe(&mut self, i: usize) -> Built<Option<ValueId>> {
        if self.has(i) { self.x(i).map(Some) } else { Ok(None) }
    }

    /// The elements of input `i`, for what MIL requires at compile time.
    pub fn known(&self, i: usize) -> Built<Rc<Tensor>> {
        self.entry(i)?.known.ok_or(Stop::Needs(i))
    }

    /// True if the elements of input `i` are known.
    pub fn is_known(&self, i: usize) -> bool {
        self.entry(i).is_ok_and(|e| e.known.is_some())
    }

    /// The element type of input `i` in the model.
    pub fn element(&self, i: usize) -> Built<ElementType> {
        Ok(self.entry(i)?.element)
    }

    /// The extents of input `i`.
    pub fn extents(&self, i: usize) -> Built<Vec<usize>> {
        let entry = self.entry(i)?;
        match (&entry.known, entry.value) {
            (Some(tensor), _) => Ok(tensor.shape().to_vec()),
            (None, Some(value)) => self.shape(value),
            (None, None) => Err(Stop::Poisoned),
        }
    }

    /// Input `i`, which must be known, as a constant of the MIL type that replaces its own.
    pub fn fixed(&mut self, i: usize) -> Built {
        self.known(i)?;
        self.x(i)
    }

    /// The integers of input `i`, known at compile time.
    pub fn ints(&self, i: usize) -> Built<Vec<i64>> {
        Ok(self.known(i)?.ints())
    }

    /// The integers of input `i`, known at compile time, or `None` if it is left out.
    pub fn ints_if(&self, i: usize) -> Built<Option<Vec<i64>>> {
        if self.has(i) { self.ints(i).map(Some) } else { Ok(None) }
    }

    /// The floats of input `i`, known at compile time.
    pub fn floats(&self, i: usize) -> Built<Vec<f64>> {
        Ok(self.known(i)?.values().to_vec())
    }

    /// True if the node has the attribute.
    pub fn given(&self, name: &str) -> bool {
        self.node.attribute(name).is_some()
    }

    /// The integer attribute `name` of the node, or `default`, clamped (see `MAX_INT`).
    pub fn int(&self, name: &str, default: i64) -> i64 {
        match self.node.attribute(name) {
            Some(Attribute::Int(v)) => (*v).clamp(-MAX_INT, MAX_INT),
            _ => default,
        }
    }

    /// As [`Lower::int`], for a number of things: at least `least`.
    ///
    /// # Errors
    /// The attribute is smaller.
    pub fn number(&self, name: &str, default: i64, least: i64) -> Built<usize> {
        let value = self.int(name, default);
        if value < least {
            return Err(Stop::Rejected(format!("the attribute `{name}` is {value}")));
        }
        Ok(value as usize)
    }

    /// The float attribute `name` of the node, or `default`.
    pub fn float(&self, name: &str, default: f32) -> f32 {
        match self.node.attribute(name) {
            Some(Attribute::Float(v)) => *v,
            Some(Attribute::Int(v)) => *v as f32,
            _ => default,
        }
    }

    /// The string attribute `name` of the node, or `default`.
    pub fn text(&self, name: &str, default: &'static str) -> &'a str {
        match self.node.attribute(name) {
            Some(Attribute::Text(v)) => v,
            _ => default,
        }
    }

    /// The attribute `name` as a list of strings, if the node has it.
    pub fn texts(&self, name: &str) -> Option<&'a [String]> {
        match self.node.attribute(name) {
            Some(Attribute::Texts(v)) => Some(v),
            _ => None,
        }
    }

    /// The attribute `name` as a list of integers, if the node has it; clamped (see `MAX_INT`).
    pub fn list(&self, name: &str) -> Option<Vec<i64>> {
        match self.node.attribute(name)? {
            Attribute::Ints(v) => Some(v.iter().map(|n| (*n).clamp(-MAX_INT, MAX_INT)).collect()),
            _ => None,
        }
    }

    /// The attribute `name` as `count` integers of at least `least`, or `count` times the default.
    ///
    /// # Errors
    /// The list has another length, or smaller numbers.
    pub fn counts(&self, name: &str, count: usize, default: i64, least: i64) -> Built<Vec<i64>> {
        let list = self.list(name).unwrap_or_else(|| vec![default; count]);
        if list.len() != count || list.iter().any(|&n| n < least) {
            return Err(Stop::Rejected(format!(
                "the attribute `{name}` is {list:?}, not {count} numbers from {least}"
            )));
        }
        Ok(list)
    }

    /// A constant tensor with the element type of `like`.
    pub fn tensor(&mut self, like: ValueId, shape: &[usize], values: &[f64]) -> Built {
        let constant = self.constant(self.dtype(like), shape, values)?;
        Ok(self.b.constant(&self.label, constant)?)
    }

    /// A constant tensor of int32.
    pub fn indices(&mut self, shape: &[usize], values: &[i64]) -> Built {
        let bytes: Vec<u8> = values.iter().flat_map(|&v| (v as i32).to_le_bytes()).collect();
        Ok(self.b.constant(&self.label, Constant::raw(DataType::Int32, shape, &bytes))?)
    }

    /// Adds an op with several results.
    pub fn several(&mut self, op: &str, args: Vec<(&str, Arg)>) -> Built<Vec<ValueId>> {
        Ok(self.b.ops(op, &self.label, args)?)
    }

    /// Adds a transpose; axis `i` of the result is axis `perm[i]` of `x`.
    pub fn transpose(&mut self, x: ValueId, perm: &[usize]) -> Built {
        if perm.iter().enumerate().all(|(i, &p)| i == p) {
            return Ok(x);
        }
        let perm: Vec<i32> = perm.iter().map(|&n| n as i32).collect();
        Ok(self.b.transpose(&self.label, x, &perm)?)
    }

    /// An axis from 0 to `rank - 1`; negative ones count from the end.
    pub fn normal(&self, axis: i64, rank: usize) -> Built<usize> {
        let at = if axis < 0 { axis + rank as i64 } else { axis };
        usize::try_from(at)
            .ok()
            .filter(|&a| a < rank)
            .ok_or_else(|| Stop::Rejected(format!("axis {axis} of rank {rank}")))
    }

    /// The attribute `axis`, or `default`, from 0 to `rank - 1`.
    pub fn axis(&self, default: i64, rank: usize) -> Built<usize> {
        self.normal(self.int("axis", default), rank)
    }
}
