//! States: tensors that outlive an evaluation, read and written in the order of the block.
//!
//! A value read from a state is a view of its surface, so that nothing is copied. Before the state
//! changes, old content that is still needed is copied. A new value overwrites the whole surface.
//! So a failed evaluation may leave states changed.

use ferrane_device::Result;
use ferrane_mil::{Op, ValueId};

use super::args::Args;
use super::build::Lowering;
use crate::ir::View;

impl<'a> Lowering<'a> {
    fn state(&self, args: &Args<'a>, name: &str) -> Result<View> {
        let value = args.value(name).and_then(|v| self.views[v.index()].clone());
        value.ok_or_else(|| args.unsupported(format!("`{name}` must be a state of the function")))
    }

    pub(super) fn read_state(&mut self, op: &'a Op, args: &Args<'a>) -> Result<()> {
        let state = self.state(args, "input")?;
        self.alias(op.outputs[0], &state, Some(state.clone()))
    }

    /// Writes the argument `new` to the state. The result, if any, is the new content of the state.
    pub(super) fn update_state(&mut self, op: &'a Op, args: &Args<'a>, new: &str) -> Result<()> {
        let state = self.state(args, if new == "data" { "input" } else { "state" })?;
        let value = self.operand(args, op, new)?;
        // Groups that are still open read the old content.
        self.flush_all()?;
        let old: Vec<ValueId> = self.read_later(state.buffer);
        for id in old {
            if let Some(view) = self.views[id.index()].clone() {
                let copy = self.fresh(view.storage, &view.shape, None);
                self.copy(&view, &copy)?;
                self.views[id.index()] = Some(copy);
            }
        }
        if !value.same_elements(&state) {
            self.copy(&value, &state)?;
        }
        self.turned.retain(|(from, _)| from.buffer != state.buffer);
        match op.outputs.first() {
            Some(&y) if self.uses[y.index()] > 0 => self.alias(y, &state, Some(state.clone())),
            _ => Ok(()),
        }
    }

    /// Values in a buffer that ops after the current one read.
    fn read_later(&self, buffer: usize) -> Vec<ValueId> {
        let body = self.function.body();
        let lies = |v: &ValueId| {
            let is_state = self.function.inputs.contains(v);
            !is_state && self.views[v.index()].as_ref().is_some_and(|view| view.buffer == buffer)
        };
        let later = body.ops.iter().skip(self.at + 1).map(|&id| self.function.op(id)).filter(|op| self.is_needed(op));
        let mut found: Vec<ValueId> =
            later.flat_map(Op::operands).chain(body.outputs.iter().copied()).filter(lies).collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}
