//! Control flow, calls, expansions and states. A branch whose condition is known is taken; others
//! become blocks.

use std::rc::Rc;

use ferrane_mil::emit::Emit;
use ferrane_mil::{OpenBlock, Type, ValueId};

use super::composite;
use super::graph::body;
use super::state::{Built, Lower, Meaning, Role, Stop, rejected, unmapped};
use crate::bytecode::{Block, BytecodeOp};
use crate::dialect::{ElementType, Field};

/// How deep functions may call each other.
const MAX_CALLS: usize = 32;

type Entries<'a> = Built<Vec<Meaning<'a>>>;

impl<'a> Lower<'a> {
    /// The results of the expansion that the file has for the operation, put in its place. `None`
    /// if there is none.
    pub(super) fn expansion(&mut self) -> Option<Entries<'a>> {
        let op = self.op;
        let block = body(op)?;
        let last = block.operations.last()?;
        let fits = block.arguments.len() == op.operands.len()
            && last.operands.len() == op.results.len()
            && self.file.op(last.name).is_some_and(|o| o.name == "dataflow.yield_v1");
        fits.then(|| {
            let inputs = op.operands.iter().map(|name| self.lookup(*name)).collect::<Built<Vec<_>>>()?;
            self.inline(block, inputs)
        })
    }

    /// Lowers a block with these arguments.
    pub(super) fn inline(&mut self, block: &'a Block, inputs: Vec<Meaning<'a>>) -> Entries<'a> {
        if block.arguments.len() != inputs.len() {
            let (takes, given) = (block.arguments.len(), inputs.len());
            return rejected(format!("its block takes {takes} values, not {given}"));
        }
        for (argument, entry) in block.arguments.iter().zip(inputs) {
            self.values.insert(argument.definition.value, entry);
        }
        let found = self.block(block)?;
        match found.iter().any(|e| matches!(e.is, Role::Poisoned)) {
            true => Err(Stop::Poisoned),
            false => Ok(found),
        }
    }

    /// The values of entries as results of a block: copies, so that none is defined outside of it.
    fn returned(&mut self, entries: &[Meaning<'a>]) -> Built<Vec<ValueId>> {
        let mut values = Vec::with_capacity(entries.len());
        for entry in entries {
            let value = self.value_of(entry)?;
            values.push(self.un("identity", value)?);
        }
        Ok(values)
    }

    fn block_of(&self, op: &'a BytecodeOp, region: usize) -> Built<&'a Block> {
        match op.regions.get(region).map(|r| r.blocks.as_slice()) {
            Some([block]) => Ok(block),
            _ => rejected(format!("it has no single block as region {region}")),
        }
    }
}

/// The body of a group that a delegate runs by itself, in place of the group.
pub(super) fn group<'a>(l: &mut Lower<'a>) -> Entries<'a> {
    let inputs = l.op.operands.iter().map(|name| l.lookup(*name)).collect::<Built<Vec<_>>>()?;
    let block = l.block_of(l.op, 0)?;
    l.inline(block, inputs)
}

/// A function in place of its call.
pub(super) fn invoke<'a>(l: &mut Lower<'a>) -> Entries<'a> {
    let op = l.op;
    let Some(mut callee) = l.property("callee") else { return rejected("it names no function") };
    if let [Field::Attribute(inner), Field::Type(_)] = callee.fields[..] {
        let Some(inner) = l.attribute(inner) else { return rejected("it names no function") };
        callee = inner;
    }
    let name = match callee.fields.as_slice() {
        [Field::Strings(names)] if names.len() == 1 => l.file.string(names[0]),
        _ => return rejected("it names no function"),
    };
    let Some((name, graph)) = l.graphs.get_key_value(name.as_ref()) else {
        return rejected(format!("the model has no function `{name}`"));
    };
    let Some(block) = body(graph) else { return rejected(format!("`{name}` has no body")) };
    if l.calls.contains(&name.as_str()) {
        return unmapped(format!("`{name}` calls itself, and MIL has no calls"));
    }
    if l.calls.len() == MAX_CALLS {
        return unmapped(format!("calls nest deeper than {MAX_CALLS}, and MIL has no calls"));
    }
    if let Some((composite, declared)) = composite::find(l, graph) {
        match composite(l, &declared) {
            Ok(values) => return values.into_iter().enumerate().map(|(i, v)| l.computed(i, v)).collect(),
            Err(Stop::Poisoned) => return Err(Stop::Poisoned),
            // The body computes what MIL's op does not.
            Err(_) => {}
        }
    }
    let inputs = op.operands.iter().map(|name| l.lookup(*name)).collect::<Built<Vec<_>>>()?;
    l.calls.push(name);
    let found = l.inline(block, inputs);
    l.calls.pop();
    found
}

pub(super) fn branch<'a>(l: &mut Lower<'a>) -> Entries<'a> {
    let op = l.op;
    let (yes, no) = (l.block_of(op, 0)?, l.block_of(op, 1)?);
    if let Role::Known(known) = l.entry(0)?.is {
        let taken = if known.first().is_some_and(|v| v != 0.0) { yes } else { no };
        return l.inline(taken, Vec::new());
    }
    let pred = l.x(0)?;
    let pred = l.reshape(pred, &[])?;
    let label = l.label.clone();
    let mut elements: Vec<ElementType> = Vec::new();
    let mut blocks = Vec::new();
    for block in [yes, no] {
        blocks.push(l.nested(|l, _| {
            let found = l.inline(block, Vec::new())?;
            elements = found.iter().map(|e| e.element).collect();
            l.returned(&found)
        })?);
    }
    let values = l.b.cond(&label, pred, [blocks[0], blocks[1]])?;
    Ok(values.into_iter().zip(elements).map(|(v, e)| l.make(Role::Value(v), e)).collect())
}

/// MIL's loop tests its variables before each turn, and they are its results. Here the block that
/// tests also computes what the body gets and what the loop returns, so it is copied into the body
/// and after the loop.
pub(super) fn repeat<'a>(l: &mut Lower<'a>) -> Entries<'a> {
    let op = l.op;
    let (before, after) = (l.block_of(op, 0)?, l.block_of(op, 1)?);
    let state = op.operands.iter().map(|name| l.lookup(*name)).collect::<Built<Vec<_>>>()?;
    let elements: Vec<ElementType> = state.iter().map(|e| e.element).collect();
    let label = l.label.clone();
    // Loop variables are not constants: the loop changes them.
    let start = l.returned(&state)?;
    let types: Vec<Type> = start.iter().map(|&v| l.b.ty(v).clone()).collect();
    let entries = |l: &mut Lower<'a>, values: &[ValueId]| -> Vec<Meaning<'a>> {
        values.iter().zip(&elements).map(|(&v, &e)| l.make(Role::Value(v), e)).collect()
    };
    let opened = |l: &mut Lower<'a>, open: &OpenBlock| -> Vec<Meaning<'a>> {
        let values: Vec<ValueId> = types.iter().map(|ty| l.b.block_input(open, &label, ty.clone())).collect();
        entries(l, &values)
    };
    let tested = |l: &mut Lower<'a>, variables: Vec<Meaning<'a>>| -> Built<(Meaning<'a>, Vec<Meaning<'a>>)> {
        let mut found = l.inline(before, variables)?.into_iter();
        match found.next() {
            Some(go) => Ok((go, found.collect())),
            None => rejected("its first block gives no condition"),
        }
    };
    let condition = l.nested(|l, open| {
        let variables = opened(l, open);
        let (go, _) = tested(l, variables)?;
        let go = l.returned(&[go])?;
        Ok(vec![l.reshape(go[0], &[])?])
    })?;
    let step = l.nested(|l, open| {
        let variables = opened(l, open);
        let (_, forwarded) = tested(l, variables)?;
        let found = l.inline(after, forwarded)?;
        l.returned(&found)
    })?;
    let values = l.b.while_loop(&label, &start, [condition, step])?;
    let last = entries(l, &values);
    Ok(tested(l, last)?.1)
}

/// A state that an operation reads or writes.
fn state(l: &Lower<'_>, i: usize) -> Built<(ValueId, ElementType)> {
    match l.entry(i)? {
        Meaning { is: Role::State(value), element, .. } => Ok((value, element)),
        _ => rejected(format!("operand {i} is no state of the function")),
    }
}

pub(super) fn read_handle<'a>(l: &mut Lower<'a>) -> Entries<'a> {
    let (state, element) = state(l, 0)?;
    let mut value = l.op("read_state", [("input", state.into())])?;
    if element == ElementType::Bool {
        value = l.cast(value, ferrane_mil::DataType::Bool)?;
    }
    Ok(vec![l.make(Role::Value(value), element), l.make(Role::Token, ElementType::Bool)])
}

pub(super) fn write_handle<'a>(l: &mut Lower<'a>) -> Entries<'a> {
    let (state, _) = state(l, 0)?;
    let value = l.x(1)?;
    let dtype = l.dtype(state);
    let value = l.cast(value, dtype)?;
    l.op("coreml_update_state", [("state", state.into()), ("value", value.into())])?;
    Ok(vec![l.make(Role::Token, ElementType::Bool)])
}

pub(super) fn token<'a>(l: &mut Lower<'a>) -> Entries<'a> {
    Ok(vec![l.make(Role::Token, ElementType::Bool)])
}

/// Constraints on memory change no number.
pub(super) fn same<'a>(l: &mut Lower<'a>) -> Entries<'a> {
    Ok(vec![l.entry(0)?])
}

/// Elements and the mask of their places.
pub(super) fn sparse<'a>(l: &mut Lower<'a>) -> Entries<'a> {
    let (values, mask) = (l.entry(0)?, l.entry(1)?);
    let element = values.element;
    Ok(vec![l.make(Role::Sparse(Rc::new((values, mask))), element)])
}
