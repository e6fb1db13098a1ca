//! Liveness of a function: which ops are needed, and where values are last read.

use std::collections::HashSet;

use ferrane_mil::{BlockId, Function, Op, OpId, ValueId};

use crate::plan::changes_state;

/// Liveness of the active body and the blocks in it.
pub(crate) struct Analysis {
    /// By op: an output or a state depends on it.
    live: Vec<bool>,
    /// By op: values of the op's block that no later op reads.
    dying: Vec<Vec<ValueId>>,
}

impl Analysis {
    pub(crate) fn new(function: &Function) -> Analysis {
        let count = function.ops.len();
        let mut analysis = Analysis { live: vec![false; count], dying: vec![Vec::new(); count] };
        if let Some((_, body)) = function.bodies.first() {
            let mut needed = vec![false; function.values.len()];
            analysis.mark(function, *body, &mut needed);
            analysis.end(function, *body, &mut HashSet::new());
        }
        analysis
    }

    pub(crate) fn is_live(&self, op: OpId) -> bool {
        self.live.get(op.index()).copied().unwrap_or(false)
    }

    pub(super) fn dying(&self, op: OpId) -> &[ValueId] {
        self.dying.get(op.index()).map_or(&[], |v| v)
    }

    fn mark(&mut self, function: &Function, block: BlockId, needed: &mut [bool]) {
        let block = function.block(block);
        for output in &block.outputs {
            needed[output.index()] = true;
        }
        for &id in block.ops.iter().rev() {
            let op = function.op(id);
            if !has_effects(function, op) && !op.outputs.iter().any(|v| needed[v.index()]) {
                continue;
            }
            self.live[id.index()] = true;
            for value in op.operands() {
                needed[value.index()] = true;
            }
            for &inner in &op.blocks {
                self.mark(function, inner, needed);
            }
        }
    }

    /// Finds the last reader of each value of a block. `read` collects the outer values that the
    /// block and nested blocks read.
    fn end(&mut self, function: &Function, id: BlockId, read: &mut HashSet<ValueId>) {
        let block = function.block(id);
        let mut own: HashSet<ValueId> = block.inputs.iter().copied().collect();
        if function.bodies.first().is_some_and(|(_, body)| *body == id) {
            own.extend(&function.inputs);
        }
        own.extend(block.ops.iter().flat_map(|&op| function.op(op).outputs.iter().copied()));
        let mut later: HashSet<ValueId> = block.outputs.iter().copied().collect();
        for &at in block.ops.iter().rev().filter(|op| self.live[op.index()]).collect::<Vec<_>>() {
            let op = function.op(at);
            let mut reads: HashSet<ValueId> = op.operands().collect();
            for &inner in &op.blocks {
                self.end(function, inner, &mut reads);
            }
            let unused = op.outputs.iter().filter(|v| !later.contains(v)).copied();
            let last = reads.iter().filter(|v| own.contains(v) && !later.contains(v)).copied();
            self.dying[at.index()] = unused.chain(last).collect();
            later.extend(reads);
        }
        read.extend(later.difference(&own));
    }
}

fn has_effects(function: &Function, op: &Op) -> bool {
    changes_state(&op.name)
        || op.blocks.iter().any(|&b| function.block(b).ops.iter().any(|&id| has_effects(function, function.op(id))))
}
