//! The editable form of a program, on which passes work.
//!
//! [`Draft::of`] verifies a program and makes it editable; [`Draft::freeze`] builds the program
//! again and verifies and checks it, so the result of a pass is always a valid program. The ops of
//! a block form a linked list, so that an op is inserted, removed or replaced in constant time;
//! arenas only grow until `freeze`, which drops what no block holds.
//!
//! Two invariants hold for every edit. Names of inputs and outputs never change: a value that
//! replaces an output takes its name. An output of a block stays the result of an op of that block,
//! one op for each output, because engines bind outputs to memory, and a constant, an input or a
//! value of an outer block has memory of its own.

use std::collections::{HashMap, HashSet};

use super::cursor::Cursor;
use crate::error::MilError;
use crate::op;
use crate::ops;
use crate::opset::{Opset, OpsetTag};
use crate::program::{Arg, BlockId, Constant, Function, Op, OpId, Payload, Program, Type, Value, ValueDef, ValueId};
use crate::verify::{check, verify};
use crate::weights::{WeightId, Weights};

/// Links of an op in the list of its block.
#[derive(Clone, Copy, Default)]
struct Link {
    block: Option<BlockId>,
    prev: Option<OpId>,
    next: Option<OpId>,
}

/// First and last op of a block, and the opset of its ops.
#[derive(Clone, Copy)]
struct Ends {
    first: Option<OpId>,
    last: Option<OpId>,
    opset: Option<Opset>,
    /// The op that the block belongs to; `None` for a body.
    owner: Option<OpId>,
}

/// A program in editable form.
pub(crate) struct Draft {
    /// Header, attributes and weights; no functions.
    program: Program,
    functions: Vec<FunctionDraft>,
}

impl Draft {
    /// Makes a program editable.
    ///
    /// # Errors
    /// The program does not verify.
    pub(crate) fn of(program: &Program) -> Result<Draft, MilError> {
        verify(program)?;
        let functions = program.functions.iter().map(|f| FunctionDraft::of(f, &program.weights)).collect();
        let program = Program {
            version: program.version,
            dialect: program.dialect,
            attributes: program.attributes.clone(),
            functions: Vec::new(),
            weights: program.weights.clone(),
        };
        Ok(Draft { program, functions })
    }

    /// Builds the program from the draft.
    ///
    /// # Errors
    /// The result does not verify, or an op fails a check that it passed before.
    pub(crate) fn freeze(self) -> Result<Program, MilError> {
        let mut program = self.program;
        let mut excused = Vec::new();
        for function in self.functions {
            let (function, ops) = function.freeze();
            program.functions.push(function);
            excused.push(ops);
        }
        verify(&program)?;
        for (function, excused) in program.functions.iter().zip(&excused) {
            if let Some((_, error)) =
                check(function, &program.weights).into_iter().find(|(op, _)| !excused.contains(op))
            {
                return Err(error);
            }
        }
        Ok(program)
    }

    /// Calls `rule` for every op of every block, in execution order, an op before its nested
    /// blocks. The rule edits through the cursor and returns `Some` if it applied; if it returns
    /// `None`, the ops that it inserted are removed. Returns the number of applications.
    pub(crate) fn each(&mut self, mut rule: impl FnMut(&mut Cursor<'_>) -> Option<()>) -> usize {
        let mut count = 0;
        for function in &mut self.functions {
            for (_, body) in function.function.bodies.clone() {
                count += walk(function, &mut self.program.weights, body, &mut rule);
            }
        }
        count
    }

    /// The functions, with the weights.
    pub(crate) fn parts(&mut self) -> (&mut [FunctionDraft], &mut Weights) {
        (&mut self.functions, &mut self.program.weights)
    }

    /// The store of weights, for adding records.
    pub(crate) fn weights(&self) -> &Weights {
        &self.program.weights
    }

    /// Every weight that a constant of the program names.
    pub(crate) fn used_weights(&mut self) -> HashSet<WeightId> {
        let mut used = HashSet::new();
        self.each_weight(|id| {
            used.insert(*id);
        });
        used
    }

    /// Replaces the weights; `new` maps each old record to its new id. Records that the map lacks
    /// must not be in use.
    pub(crate) fn set_weights(&mut self, weights: Weights, new: &HashMap<WeightId, WeightId>) {
        self.program.weights = weights;
        self.rename_weights(new);
    }

    /// Replaces the record of every constant, if the map has a new one.
    pub(crate) fn rename_weights(&mut self, new: &HashMap<WeightId, WeightId>) {
        self.each_weight(|id| {
            if let Some(to) = new.get(id) {
                *id = *to;
            }
        });
    }

    fn each_weight(&mut self, mut visit: impl FnMut(&mut WeightId)) {
        for (_, constant) in &mut self.program.attributes {
            weights_of(constant, &mut visit);
        }
        for draft in &mut self.functions {
            for (_, constant) in &mut draft.function.attributes {
                weights_of(constant, &mut visit);
            }
            let placed = draft.links.iter().map(|l| l.block.is_some());
            for (op, _) in draft.function.ops.iter_mut().zip(placed).filter(|(_, placed)| *placed) {
                op.attributes.iter_mut().for_each(|(_, c)| weights_of(c, &mut visit));
                for (_, arg) in &mut op.args {
                    if let Arg::Const(c) = arg {
                        weights_of(c, &mut visit);
                    }
                }
            }
        }
    }
}

fn weights_of(constant: &mut Constant, visit: &mut impl FnMut(&mut WeightId)) {
    match constant {
        Constant::Tensor { payload: Payload::Weight(id), .. } => visit(id),
        Constant::Tensor { .. } => {}
        Constant::List(_, items) | Constant::Tuple(items) => items.iter_mut().for_each(|c| weights_of(c, visit)),
        Constant::Dict(_, entries) => entries.iter_mut().for_each(|(k, v)| {
            weights_of(k, visit);
            weights_of(v, visit);
        }),
    }
}

fn walk(
    draft: &mut FunctionDraft,
    weights: &mut Weights,
    block: BlockId,
    rule: &mut impl FnMut(&mut Cursor<'_>) -> Option<()>,
) -> usize {
    let mut count = 0;
    let mut at = draft.first(block);
    while let Some(op) = at {
        // A rule removes the op at its position and ops before it, never a later one.
        at = draft.next(op);
        let mut cursor = Cursor::new(draft, weights, block, Some(op));
        match rule(&mut cursor) {
            Some(()) => count += 1,
            None => cursor.undo(),
        }
        if draft.block_of(op).is_some() {
            for inner in draft.function.op(op).blocks.clone() {
                count += walk(draft, weights, inner, rule);
            }
        }
    }
    count
}

/// A function in editable form.
pub(crate) struct FunctionDraft {
    /// The arenas. `ops` of its blocks are empty until `freeze`: the links hold the order.
    function: Function,
    links: Vec<Link>,
    ends: Vec<Ends>,
    /// How often the ops of blocks read each value.
    uses: Vec<usize>,
    /// The ops that may read each value: every reader, and ops that no longer read it.
    readers: Vec<Vec<OpId>>,
    /// The blocks that may return each value, likewise.
    returned: Vec<Vec<BlockId>>,
    /// Names in use, with the next suffix for each.
    names: HashMap<String, u32>,
    /// Ops that failed the checks in the original program: unknown ops, and wrong declared types.
    excused: HashSet<OpId>,
}

impl FunctionDraft {
    fn of(function: &Function, weights: &Weights) -> FunctionDraft {
        let excused = check(function, weights).into_iter().map(|(op, _)| op).collect();
        let mut draft = FunctionDraft {
            links: vec![Link::default(); function.ops.len()],
            ends: vec![Ends { first: None, last: None, opset: None, owner: None }; function.blocks.len()],
            uses: vec![0; function.values.len()],
            readers: vec![Vec::new(); function.values.len()],
            returned: vec![Vec::new(); function.values.len()],
            names: function.values.iter().map(|v| (v.name.clone(), 1)).collect(),
            excused,
            function: function.clone(),
        };
        for (opset, body) in function.bodies.clone() {
            draft.take_apart(body, opset.known());
        }
        draft
    }

    fn take_apart(&mut self, block: BlockId, opset: Option<Opset>) {
        self.ends[block.index()].opset = opset;
        for value in self.function.block(block).outputs.clone() {
            self.returned[value.index()].push(block);
        }
        for op in std::mem::take(&mut self.function.blocks[block.index()].ops) {
            self.link(op, block, None);
            for inner in self.function.op(op).blocks.clone() {
                self.ends[inner.index()].owner = Some(op);
                self.take_apart(inner, opset);
            }
        }
    }

    /// The function in its current form, with the ids of the ops that are exempt from checks.
    fn freeze(mut self) -> (Function, HashSet<OpId>) {
        let old = &mut self.function;
        let mut new = Freezing {
            function: Function {
                name: std::mem::take(&mut old.name),
                attributes: std::mem::take(&mut old.attributes),
                ..Function::default()
            },
            values: HashMap::new(),
            excused: HashSet::new(),
        };
        let inputs = self.function.inputs.clone();
        new.function.inputs =
            inputs.iter().enumerate().map(|(i, v)| new.value(&self.function, *v, ValueDef::Input(i as u32))).collect();
        for (opset, body) in self.function.bodies.clone() {
            let block = new.block(&self, body);
            new.function.bodies.push((opset, block));
        }
        (new.function, new.excused)
    }

    /// The arenas. They include removed ops, for which [`FunctionDraft::block_of`] is `None`.
    pub(super) fn function(&self) -> &Function {
        &self.function
    }

    /// The root blocks with their opsets.
    pub(super) fn bodies(&self) -> Vec<(OpsetTag, BlockId)> {
        self.function.bodies.clone()
    }

    /// The opset of a block; `None` if its tag names none.
    pub(super) fn opset(&self, block: BlockId) -> Option<Opset> {
        self.ends[block.index()].opset
    }

    /// The first op of a block.
    pub(super) fn first(&self, block: BlockId) -> Option<OpId> {
        self.ends[block.index()].first
    }

    /// The op after another one.
    pub(super) fn next(&self, op: OpId) -> Option<OpId> {
        self.links[op.index()].next
    }

    /// The block that contains an op; `None` if it was removed.
    pub(super) fn block_of(&self, op: OpId) -> Option<BlockId> {
        self.links[op.index()].block
    }

    /// A block and its enclosing blocks, innermost first.
    pub(super) fn blocks_around(&self, block: BlockId) -> Vec<BlockId> {
        let around = |b: &BlockId| self.ends[b.index()].owner.and_then(|op| self.block_of(op));
        std::iter::successors(Some(block), around).collect()
    }

    /// How often ops read a value.
    pub(super) fn uses(&self, value: ValueId) -> usize {
        self.uses[value.index()]
    }

    /// The blocks that return a value.
    fn returning(&self, value: ValueId) -> Vec<BlockId> {
        let blocks = self.returned[value.index()].iter().copied();
        let mut blocks: Vec<BlockId> = blocks.filter(|b| self.function.block(*b).outputs.contains(&value)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// True if a block returns the value.
    pub(super) fn is_returned(&self, value: ValueId) -> bool {
        self.returned[value.index()].iter().any(|b| self.function.block(*b).outputs.contains(&value))
    }

    /// A name that is not taken, derived from `label`.
    pub(super) fn unique(&mut self, label: &str) -> String {
        if !self.names.contains_key(label) {
            self.names.insert(label.to_string(), 1);
            return label.to_string();
        }
        let mut number = self.names.get(label).copied().unwrap_or(1);
        let name = loop {
            let candidate = format!("{label}_{number}");
            number = number.saturating_add(1);
            if !self.names.contains_key(&candidate) {
                break candidate;
            }
        };
        self.names.insert(label.to_string(), number);
        self.names.insert(name.clone(), 1);
        name
    }

    /// Adds an op before `before`, or at the end of the block. Its results get these types and
    /// names.
    pub(super) fn add(
        &mut self,
        mut op: Op,
        results: Vec<(String, Type)>,
        block: BlockId,
        before: Option<OpId>,
    ) -> (OpId, Vec<ValueId>) {
        let id = OpId(self.function.ops.len() as u32);
        for (i, (name, ty)) in results.into_iter().enumerate() {
            op.outputs.push(ValueId(self.function.values.len() as u32));
            self.function.values.push(Value { name, ty, def: ValueDef::Op(id, i as u32) });
            self.uses.push(0);
            self.readers.push(Vec::new());
            self.returned.push(Vec::new());
        }
        let outputs = op.outputs.clone();
        self.function.ops.push(op);
        self.links.push(Link::default());
        self.link(id, block, before);
        (id, outputs)
    }

    fn link(&mut self, op: OpId, block: BlockId, before: Option<OpId>) {
        let ends = &mut self.ends[block.index()];
        let prev = match before {
            Some(next) => self.links[next.index()].prev.replace(op),
            None => ends.last.replace(op),
        };
        match prev {
            Some(prev) => self.links[prev.index()].next = Some(op),
            None => ends.first = Some(op),
        }
        self.links[op.index()] = Link { block: Some(block), prev, next: before };
        let operands: Vec<ValueId> = self.function.op(op).operands().collect();
        for value in operands {
            self.uses[value.index()] += 1;
            self.readers[value.index()].push(op);
        }
    }

    fn unlink(&mut self, op: OpId) {
        let Link { block: Some(block), prev, next } = std::mem::take(&mut self.links[op.index()]) else { return };
        match prev {
            Some(prev) => self.links[prev.index()].next = next,
            None => self.ends[block.index()].first = next,
        }
        match next {
            Some(next) => self.links[next.index()].prev = prev,
            None => self.ends[block.index()].last = prev,
        }
        let operands: Vec<ValueId> = self.function.op(op).operands().collect();
        for value in operands {
            self.uses[value.index()] -= 1;
        }
    }

    /// True if no op reads and no block returns a result of the op.
    fn is_unread(&self, op: OpId) -> bool {
        self.function.op(op).outputs.iter().all(|v| self.uses(*v) == 0 && !self.is_returned(*v))
    }

    /// True if the op can be removed when its results are unused: it and its nested ops are known
    /// and have no effects.
    fn is_removable(&self, op: OpId) -> bool {
        let Some(block) = self.block_of(op) else { return false };
        let op = self.function.op(op);
        let known = self.opset(block).is_some_and(|opset| ops::find(&op.name, opset).is_some()) && !writes(&op.name);
        known
            && op.blocks.iter().all(|b| {
                let mut at = self.first(*b);
                std::iter::from_fn(|| {
                    let op = at?;
                    at = self.next(op);
                    Some(op)
                })
                .all(|op| self.is_removable(op))
            })
    }

    /// Removes an op if its results are unused and it has no effects, and then what only it read.
    /// Returns the number of ops removed.
    pub(super) fn remove_dead(&mut self, op: OpId) -> usize {
        let mut open = vec![op];
        let mut count = 0;
        while let Some(op) = open.pop() {
            if self.block_of(op).is_none() || !self.is_unread(op) || !self.is_removable(op) {
                continue;
            }
            count += 1;
            self.remove(op, &mut open);
        }
        count
    }

    /// Removes an op with its blocks; `freed` receives the ops whose results it read.
    fn remove(&mut self, op: OpId, freed: &mut Vec<OpId>) {
        let define = |f: &Function, v: ValueId| match f.value(v).def {
            ValueDef::Op(op, _) => Some(op),
            _ => None,
        };
        freed.extend(self.function.op(op).operands().filter_map(|v| define(&self.function, v)));
        self.unlink(op);
        for block in self.function.op(op).blocks.clone() {
            for value in std::mem::take(&mut self.function.blocks[block.index()].outputs) {
                freed.extend(define(&self.function, value));
            }
            while let Some(inner) = self.ends[block.index()].last {
                self.remove(inner, freed);
            }
        }
    }

    /// True if `with` can replace `old` everywhere: the types agree, and if `old` is an output of a
    /// block, `with` is computed in that block and is not an output yet.
    pub(super) fn can_replace(&self, old: ValueId, with: ValueId) -> bool {
        let (was, new) = (self.function.value(old), self.function.value(with));
        if was.ty != new.ty || old == with {
            return false;
        }
        let returning = self.returning(old);
        if returning.is_empty() {
            return true;
        }
        let (ValueDef::Op(a, _), ValueDef::Op(b, _)) = (was.def, new.def) else { return false };
        let computes = self.function.op(b);
        self.block_of(a) == self.block_of(b)
            && computes.name != op::CONST
            && !computes.name.starts_with("constexpr_")
            && !self.is_returned(with)
    }

    /// Replaces `old` by `with` everywhere; `with` takes the name of `old` if that is an output.
    /// Call [`FunctionDraft::can_replace`] first.
    pub(super) fn replace(&mut self, old: ValueId, with: ValueId) {
        for op in std::mem::take(&mut self.readers[old.index()]) {
            if self.block_of(op).is_none() {
                continue;
            }
            let mut found = 0;
            for (_, arg) in &mut self.function.ops[op.index()].args {
                let values = match arg {
                    Arg::Value(v) => std::slice::from_mut(v),
                    Arg::List(vs) => vs.as_mut_slice(),
                    Arg::Const(_) => &mut [],
                };
                for v in values.iter_mut().filter(|v| **v == old) {
                    *v = with;
                    found += 1;
                }
            }
            self.uses[old.index()] -= found;
            self.uses[with.index()] += found;
            if found > 0 {
                self.readers[with.index()].push(op);
            }
        }
        for block in self.returning(old) {
            if self.function.bodies.iter().any(|(_, b)| *b == block) {
                self.swap_names(old, with);
            }
            for i in 0..self.function.block(block).outputs.len() {
                if self.function.block(block).outputs[i] == old {
                    self.set_output(block, i, with);
                }
            }
        }
    }

    /// Replaces one output of a block.
    pub(super) fn set_output(&mut self, block: BlockId, place: usize, value: ValueId) {
        self.function.blocks[block.index()].outputs[place] = value;
        self.returned[value.index()].push(block);
    }

    /// Swaps the names of two values.
    pub(super) fn swap_names(&mut self, a: ValueId, b: ValueId) {
        let (x, y) = (self.function.value(a).name.clone(), self.function.value(b).name.clone());
        self.set_name(a, y);
        self.set_name(b, x);
    }

    fn set_name(&mut self, value: ValueId, name: String) {
        // The label of an op follows its first result.
        if let ValueDef::Op(op, 0) = self.function.value(value).def
            && let Some((_, label)) = self.function.ops[op.index()].attributes.iter_mut().find(|(n, _)| n == "name")
        {
            *label = Constant::string(&name);
        }
        self.function.values[value.index()].name = name;
    }
}

/// Ops with effects other than their results.
fn writes(op: &str) -> bool {
    matches!(op, op::WRITE_STATE | op::COREML_UPDATE_STATE)
}

/// A function that is being built from a draft.
struct Freezing {
    function: Function,
    values: HashMap<ValueId, ValueId>,
    excused: HashSet<OpId>,
}

impl Freezing {
    fn value(&mut self, old: &Function, id: ValueId, def: ValueDef) -> ValueId {
        let new = ValueId(self.function.values.len() as u32);
        self.function.values.push(Value { def, ..old.value(id).clone() });
        self.values.insert(id, new);
        new
    }

    /// The new id of a value, which exists because values are defined before they are used.
    fn at(&self, id: ValueId) -> ValueId {
        self.values.get(&id).copied().unwrap_or(id)
    }

    fn block(&mut self, draft: &FunctionDraft, id: BlockId) -> BlockId {
        let new = BlockId(self.function.blocks.len() as u32);
        self.function.blocks.push(Default::default());
        let old = draft.function.block(id);
        let inputs = old.inputs.iter().enumerate();
        let inputs =
            inputs.map(|(i, v)| self.value(&draft.function, *v, ValueDef::BlockInput(new, i as u32))).collect();
        let mut ops = Vec::new();
        let mut at = draft.first(id);
        while let Some(op) = at {
            ops.push(self.op(draft, op));
            at = draft.next(op);
        }
        let outputs = old.outputs.iter().map(|v| self.at(*v)).collect();
        let block = &mut self.function.blocks[new.index()];
        (block.inputs, block.ops, block.outputs) = (inputs, ops, outputs);
        new
    }

    fn op(&mut self, draft: &FunctionDraft, id: OpId) -> OpId {
        let mut op = draft.function.op(id).clone();
        for (_, arg) in &mut op.args {
            match arg {
                Arg::Value(v) => *v = self.at(*v),
                Arg::List(vs) => vs.iter_mut().for_each(|v| *v = self.at(*v)),
                Arg::Const(_) => {}
            }
        }
        let new = OpId(self.function.ops.len() as u32);
        self.function.ops.push(Op { name: String::new(), ..op.clone() });
        op.blocks = op.blocks.iter().map(|b| self.block(draft, *b)).collect();
        let outputs = op.outputs.iter().enumerate();
        op.outputs = outputs.map(|(i, v)| self.value(&draft.function, *v, ValueDef::Op(new, i as u32))).collect();
        if draft.excused.contains(&id) {
            self.excused.insert(new);
        }
        self.function.ops[new.index()] = op;
        new
    }
}
