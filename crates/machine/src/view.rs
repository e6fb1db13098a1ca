//! An indexed view of a function's active body, with the lookups that rules share.
//!
//! A view never changes the function. It indexes the ops once by name, and the users of values on
//! first use, so a rule about absent ops costs no pass over the program.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use ferrane_mil::{Arg, BlockId, Constant, DataType, Dim, Function, Op, OpId, Type, ValueDef, ValueId};

use crate::profile::Profile;
use crate::select::{Selection, Unit, select};

/// The active body of a function, indexed for rules.
pub(crate) struct FunctionView<'a> {
    /// The index of the function in the program.
    pub index: usize,
    /// The function that is viewed.
    pub function: &'a Function,
    /// The selection of the ops for the profile's machine.
    pub selection: Selection,
    /// The ops in order; those of nested blocks follow the op that holds the blocks.
    order: Vec<OpId>,
    named: BTreeMap<&'a str, Vec<OpId>>,
    users: OnceLock<Users>,
}

/// The ops that read each value, as ranges of one list: a list for each value would be most of the
/// allocations of a check.
struct Users {
    /// Where the users of each value begin in `ops`, and the length of `ops`.
    starts: Vec<u32>,
    ops: Vec<OpId>,
}

impl Users {
    fn of(function: &Function, order: &[OpId]) -> Users {
        let values = function.values.len();
        let reads = || {
            let ops = order.iter().map(|&id| (id, function.op(id)));
            ops.flat_map(|(id, op)| op.operands().map(move |v| (id, v.index()))).filter(|(_, v)| *v < values)
        };
        // Each count is stored one place after its value, so that adding up gives the starts.
        let mut starts = vec![0u32; values + 1];
        reads().for_each(|(_, value)| starts[value + 1] += 1);
        for value in 0..values {
            starts[value + 1] += starts[value];
        }
        let mut next = starts.clone();
        let mut ops = vec![OpId(0); starts[values] as usize];
        for (id, value) in reads() {
            ops[next[value] as usize] = id;
            next[value] += 1;
        }
        Users { starts, ops }
    }

    fn get(&self, value: ValueId) -> &[OpId] {
        match self.starts.get(value.index()..).unwrap_or_default() {
            [start, end, ..] => &self.ops[*start as usize..*end as usize],
            _ => &[],
        }
    }
}

impl<'a> FunctionView<'a> {
    /// Views the function with this index in the program, for a profile's machine.
    pub fn new(index: usize, function: &'a Function, profile: &Profile) -> FunctionView<'a> {
        let mut order = Vec::with_capacity(function.ops.len());
        if let Some((_, root)) = function.bodies.first() {
            walk(function, *root, &mut order);
        }
        let (selection, users) = (select(function, profile), OnceLock::new());
        let mut lists: Vec<Vec<OpId>> = Vec::new();
        for &op in &order {
            let number = selection.name_number(op);
            if number >= lists.len() {
                lists.resize_with(number + 1, Vec::new);
            }
            lists[number].push(op);
        }
        let named = lists.into_iter().filter_map(|ops| Some((function.op(*ops.first()?).name.as_str(), ops)));
        let named = named.collect();
        FunctionView { index, function, selection, order, named, users }
    }

    /// Every op, in order.
    pub fn ops(&self) -> impl Iterator<Item = (OpId, &'a Op)> + '_ {
        self.order.iter().map(|&id| (id, self.function.op(id)))
    }

    /// The ops with one name, in order.
    pub fn named(&self, name: &str) -> impl Iterator<Item = (OpId, &'a Op)> + '_ {
        self.named.get(name).into_iter().flatten().map(|&id| (id, self.function.op(id)))
    }

    /// The ops with any of these names.
    pub fn any<'b>(&'b self, names: &'b [&'b str]) -> impl Iterator<Item = (OpId, &'a Op)> + 'b {
        names.iter().flat_map(|n| self.named(n))
    }

    /// The names of the function's ops, each with its ops.
    pub fn names(&self) -> impl Iterator<Item = (&'a str, &[OpId])> + '_ {
        self.named.iter().map(|(name, ops)| (*name, ops.as_slice()))
    }

    /// The number of ops that run: all except constants.
    pub fn running(&self) -> usize {
        self.order.len() - self.named.get("const").map_or(0, Vec::len)
    }

    /// The ops that read a value, once per read.
    pub fn users(&self, value: ValueId) -> &[OpId] {
        self.users.get_or_init(|| Users::of(self.function, &self.order)).get(value)
    }

    /// Type of a value.
    pub fn ty(&self, value: ValueId) -> &'a Type {
        &self.function.value(value).ty
    }

    /// The value of an argument that is a single value.
    pub fn arg(&self, op: &Op, name: &str) -> Option<ValueId> {
        self.function.arg_value(op, name)
    }

    /// The values of an argument that is a list or a single value.
    pub fn list<'b>(&self, op: &'b Op, name: &str) -> &'b [ValueId] {
        match op.arg(name) {
            Some(Arg::List(values)) => values,
            Some(Arg::Value(value)) => std::slice::from_ref(value),
            _ => &[],
        }
    }

    /// The type of an argument.
    pub fn arg_ty(&self, op: &Op, name: &str) -> Option<Type> {
        match op.arg(name)? {
            Arg::Value(v) => Some(self.ty(*v).clone()),
            Arg::Const(c) => Some(c.ty()),
            Arg::List(_) => None,
        }
    }

    /// The extents of an argument, if all are known.
    pub fn shape(&self, op: &Op, name: &str) -> Option<Vec<usize>> {
        match op.arg(name)? {
            Arg::Value(v) => self.ty(*v).shape(),
            Arg::Const(c) => c.ty().shape(),
            Arg::List(_) => None,
        }
    }

    /// The extents of the first result, if all are known.
    pub fn result(&self, op: &Op) -> Option<Vec<usize>> {
        self.ty(*op.outputs.first()?).shape()
    }

    /// The integers of a constant argument or attribute.
    pub fn ints(&self, op: &Op, name: &str) -> Option<Vec<i64>> {
        self.function.arg_constant(op, name).or_else(|| op.attribute(name))?.as_ints()
    }

    /// The integer of a constant argument.
    pub fn int(&self, op: &Op, name: &str) -> Option<i64> {
        self.function.arg_constant(op, name).or_else(|| op.attribute(name))?.as_int()
    }

    /// An axis argument as a nonnegative index below the rank.
    pub fn axis(&self, op: &Op, name: &str, rank: usize) -> Option<usize> {
        let axis = self.int(op, name)?;
        let axis = if axis < 0 { axis.checked_add(rank as i64)? } else { axis };
        usize::try_from(axis).ok().filter(|a| *a < rank)
    }

    /// A constant flag, or `false`.
    pub fn flag(&self, op: &Op, name: &str) -> bool {
        self.function.arg_constant(op, name).and_then(Constant::as_bool).unwrap_or(false)
    }

    /// The op that computes a value.
    pub fn def(&self, value: ValueId) -> Option<(OpId, &'a Op)> {
        match self.function.value(value).def {
            ValueDef::Op(id, _) => Some((id, self.function.op(id))),
            _ => None,
        }
    }

    /// The op that computes a value, looking through reshapes and similar ops that keep the
    /// elements of a row together.
    pub fn source(&self, value: ValueId) -> ValueId {
        let mut value = value;
        for _ in 0..64 {
            match self.def(value) {
                Some((_, op)) if matches!(op.name.as_str(), "reshape" | "expand_dims" | "squeeze" | "identity") => {
                    match self.arg(op, "x") {
                        Some(x) => value = x,
                        None => return value,
                    }
                }
                _ => return value,
            }
        }
        value
    }

    /// True for a value known at compile time: a constant, or the result of a `constexpr_*` of
    /// constants.
    pub fn constant(&self, value: ValueId) -> bool {
        let ValueDef::Op(op, _) = self.function.value(value).def else { return false };
        self.selection.unit(op) == Some(Unit::Folded)
    }

    /// True for an argument known at compile time.
    pub fn constant_arg(&self, op: &Op, name: &str) -> bool {
        match op.arg(name) {
            Some(Arg::Const(_)) => true,
            Some(Arg::Value(v)) => self.constant(*v),
            _ => false,
        }
    }

    /// The inputs that are not states.
    pub fn inputs(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.function.inputs.iter().copied().filter(|v| !matches!(self.ty(*v), Type::State(_)))
    }

    /// Bytes of a port's values without padding.
    pub fn bytes(&self, value: ValueId) -> Option<usize> {
        self.ty(value).bytes()
    }
}

/// The extents of a tensor, including unknown ones.
pub(crate) fn dims(ty: &Type) -> &[Dim] {
    match ty {
        Type::Tensor { shape, .. } => shape,
        Type::State(inner) => dims(inner),
        _ => &[],
    }
}

/// The last extent, if it is known.
pub(crate) fn width(ty: &Type) -> Option<usize> {
    match dims(ty).last()? {
        Dim::Fixed(n) => Some(*n),
        Dim::Unknown => None,
    }
}

/// True for fp16 tensors and scalars.
pub(crate) fn is_fp16(ty: &Type) -> bool {
    ty.dtype() == Some(DataType::Fp16)
}

/// The ops of a block in order, with nested ones in place. Iterative, because the program
/// determines the nesting depth.
fn walk(function: &Function, root: BlockId, order: &mut Vec<OpId>) {
    let mut open = vec![function.block(root).ops.iter()];
    while let Some(ops) = open.last_mut() {
        match ops.next() {
            None => drop(open.pop()),
            Some(&id) => {
                order.push(id);
                open.extend(function.op(id).blocks.iter().rev().map(|b| function.block(*b).ops.iter()));
            }
        }
    }
}
