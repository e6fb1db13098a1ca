//! Checks of the invariants of a program.
//!
//! In a valid program every id points into its arena; inputs, outputs of ops and parameters of
//! blocks agree with their definitions; a value is used after its definition, in its own block or a
//! nested one; no two values that are visible at the same point have the same name (sibling blocks
//! may reuse names); constants agree with their types; a function has a body, and every op is in
//! exactly one block. [`check`] checks signatures and shapes.

use std::collections::HashSet;

use crate::build::check_constant;
use crate::error::MilError;
use crate::ops::{self, InferContext};
use crate::opset::Opset;
use crate::program::{Arg, BlockId, Constant, Function, Op, OpId, Program, ValueDef, ValueId};
use crate::weights::Weights;

/// The deepest nesting of blocks, in text too.
pub(crate) const MAX_DEPTH: usize = 64;

/// Checks the invariants of the IR.
///
/// # Errors
/// The first invariant that is broken, as [`MilError::Invalid`] or [`MilError::Constant`].
pub fn verify(program: &Program) -> Result<(), MilError> {
    let mut names = HashSet::new();
    for function in &program.functions {
        if !names.insert(&function.name) {
            return fail(format!("two functions are named `{}`", function.name));
        }
        Verifier::new(function, &program.weights).function()?;
    }
    Ok(())
}

/// Checks every op against the registry: it is known in its opset, its arguments fit, its results
/// have the inferred types.
///
/// # Errors
/// Every op that fails, with its id in its function; of a body whose opset is unknown, only the
/// first op. Call [`verify`] first: ids are trusted here.
pub fn check(function: &Function, weights: &Weights) -> Vec<(OpId, MilError)> {
    let opsets = opsets(function);
    let mut errors = Vec::new();
    let mut unknown = false;
    for (i, (op, opset)) in function.ops.iter().zip(opsets).enumerate() {
        let found = match opset {
            Some(opset) => check_op(function, op, opset, weights),
            None if unknown => Ok(()),
            None => {
                unknown = true;
                let reason = "the opset of a body is not known, so its ops cannot be checked".to_string();
                Err(MilError::Opset { function: function.name.clone(), reason })
            }
        };
        errors.extend(found.err().map(|e| (OpId(i as u32), e)));
    }
    errors
}

/// The opset of each op: that of the body that contains it.
fn opsets(function: &Function) -> Vec<Option<Opset>> {
    let mut opsets = vec![function.opset_tag().known(); function.ops.len()];
    for (tag, body) in function.bodies.iter().skip(1) {
        let mut open = vec![*body];
        while let Some(block) = open.pop() {
            for &op in &function.block(block).ops {
                opsets[op.index()] = tag.known();
                open.extend_from_slice(&function.op(op).blocks);
            }
        }
    }
    opsets
}

/// Checks one op of a function against the registry.
///
/// # Errors
/// It is unknown, its arguments do not fit, or a declared result type is not the inferred one.
pub fn check_op(function: &Function, op: &Op, opset: Opset, weights: &Weights) -> Result<(), MilError> {
    let def = ops::lookup(&op.name, opset)?;
    let types = ops::infer(&InferContext::of(function, weights, def, op))?;
    if types.len() != op.outputs.len() {
        return Err(MilError::shape(&op.name, format!("has {} results, {} are named", types.len(), op.outputs.len())));
    }
    for (found, output) in types.iter().zip(&op.outputs) {
        let declared = &function.value(*output).ty;
        if !ops::agree(declared, found) {
            return Err(MilError::ResultType {
                op: op.name.clone(),
                declared: declared.to_string(),
                inferred: found.to_string(),
            });
        }
    }
    Ok(())
}

fn fail<T>(reason: String) -> Result<T, MilError> {
    Err(MilError::Invalid { reason })
}

struct Verifier<'a> {
    function: &'a Function,
    weights: &'a Weights,
    /// Values that are visible at this point.
    visible: HashSet<ValueId>,
    /// Names of the visible values.
    names: HashSet<&'a str>,
    /// Ops that a block contains already.
    placed: HashSet<OpId>,
}

impl<'a> Verifier<'a> {
    fn new(function: &'a Function, weights: &'a Weights) -> Verifier<'a> {
        Verifier { function, weights, visible: HashSet::new(), names: HashSet::new(), placed: HashSet::new() }
    }

    fn function(&mut self) -> Result<(), MilError> {
        let f = self.function;
        if f.bodies.is_empty() {
            return fail(format!("function `{}` has no body", f.name));
        }
        for (_, body) in &f.bodies {
            // New sets: clearing a set costs as much as the largest body filled, and many small
            // bodies may follow.
            (self.visible, self.names) = (HashSet::new(), HashSet::new());
            for (i, &input) in f.inputs.iter().enumerate() {
                self.define(input, ValueDef::Input(i as u32))?;
            }
            self.block(*body, 0)?;
        }
        Ok(())
    }

    fn define(&mut self, id: ValueId, def: ValueDef) -> Result<(), MilError> {
        let Some(value) = self.function.values.get(id.index()) else { return fail(format!("no value {}", id.0)) };
        if value.def != def {
            return fail(format!("`{}` does not have the definition that it names", value.name));
        }
        if !self.names.insert(&value.name) {
            return fail(format!("two values are named `{}`", value.name));
        }
        self.visible.insert(id);
        Ok(())
    }

    fn used(&self, id: ValueId, by: &str) -> Result<(), MilError> {
        if self.visible.contains(&id) {
            return Ok(());
        }
        let name = self.function.values.get(id.index()).map_or("?", |v| v.name.as_str());
        fail(format!("{by} uses `{name}`, which is not defined before it"))
    }

    fn block(&mut self, id: BlockId, depth: usize) -> Result<(), MilError> {
        let Some(block) = self.function.blocks.get(id.index()) else { return fail(format!("no block {}", id.0)) };
        if depth > MAX_DEPTH {
            return fail(format!("blocks nest deeper than {MAX_DEPTH}"));
        }
        let mut local = Vec::new();
        for (i, &input) in block.inputs.iter().enumerate() {
            self.define(input, ValueDef::BlockInput(id, i as u32))?;
            local.push(input);
        }
        for &op in &block.ops {
            self.op(op, depth)?;
            local.extend_from_slice(&self.function.op(op).outputs);
        }
        for &output in &block.outputs {
            self.used(output, "a block's result")?;
        }
        if depth > 0 {
            for value in local {
                self.visible.remove(&value);
                self.names.remove(self.function.value(value).name.as_str());
            }
        }
        Ok(())
    }

    fn op(&mut self, id: OpId, depth: usize) -> Result<(), MilError> {
        let Some(op) = self.function.ops.get(id.index()) else { return fail(format!("no op {}", id.0)) };
        if !self.placed.insert(id) {
            return fail(format!("op {} (`{}`) is in two blocks", id.0, op.name));
        }
        for value in op.operands() {
            self.used(value, &op.name)?;
        }
        let label = op.outputs.first().and_then(|v| self.function.values.get(v.index())).map_or("", |v| &v.name);
        let literals = op.args.iter().filter_map(|(n, a)| if let Arg::Const(c) = a { Some((n, c)) } else { None });
        for (name, constant) in literals.chain(op.attributes.iter().map(|(n, c)| (n, c))) {
            self.constant(if name == "val" { label } else { name }, constant)?;
        }
        for &block in &op.blocks {
            self.block(block, depth + 1)?;
        }
        for (i, &output) in op.outputs.iter().enumerate() {
            self.define(output, ValueDef::Op(id, i as u32))?;
        }
        Ok(())
    }

    fn constant(&self, name: &str, constant: &Constant) -> Result<(), MilError> {
        match constant {
            Constant::Tensor { .. } => check_constant(name, constant, self.weights),
            Constant::List(_, items) | Constant::Tuple(items) => items.iter().try_for_each(|c| self.constant(name, c)),
            Constant::Dict(_, entries) => {
                entries.iter().try_for_each(|(k, v)| self.constant(name, k).and_then(|()| self.constant(name, v)))
            }
        }
    }
}
