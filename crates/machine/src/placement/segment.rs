//! Segments: runs of ops on one processor, as the data dependences allow them.
//!
//! An op belongs to the first stage in which all its operands are available; stages alternate
//! between the processors. So ops of parallel branches share a segment although other ops stand
//! between them in the text.

use std::collections::HashMap;

use ferrane_mil::{Function, OpId, ValueId};

/// The ops of a function that run, in order, and what each reads.
pub(super) struct OpGraph {
    /// The ops, without constants.
    pub ops: Vec<OpId>,
    /// For each op the positions of the ops that produce its operands.
    pub producers: Vec<Vec<usize>>,
    /// For each value that an op produces: the position of that op.
    pub made: HashMap<ValueId, usize>,
}

impl OpGraph {
    /// The graph of the function's active body. Ops of nested blocks belong to the op that holds
    /// them.
    pub fn of(function: &Function) -> OpGraph {
        let runs = |id: &OpId| {
            let name = &function.op(*id).name;
            name != "const" && !name.starts_with("constexpr_")
        };
        let ops: Vec<OpId> = function.body().ops.iter().copied().filter(runs).collect();
        let mut made = HashMap::new();
        for (i, id) in ops.iter().enumerate() {
            made.extend(function.op(*id).outputs.iter().map(|v| (*v, i)));
        }
        let producers = ops
            .iter()
            .map(|id| {
                let mut from: Vec<usize> = function.op(*id).operands().filter_map(|v| made.get(&v).copied()).collect();
                from.sort_unstable();
                from.dedup();
                from
            })
            .collect();
        OpGraph { ops, producers, made }
    }

    /// The stage of each op: even off the engine, odd on it. `on` says which ops are on the engine.
    pub fn stages(&self, on: &[bool]) -> Vec<usize> {
        let mut stages = vec![0; self.ops.len()];
        for i in 0..self.ops.len() {
            let least = usize::from(on[i]);
            let from = self.producers[i].iter().filter(|&&p| p < i);
            stages[i] = from.fold(least, |at, &p| at.max(stages[p] + usize::from(on[p] != on[i])));
        }
        stages
    }

    /// The members of each stage that has any, in order.
    pub fn groups(stages: &[usize]) -> Vec<(usize, Vec<usize>)> {
        let mut groups: std::collections::BTreeMap<usize, Vec<usize>> = Default::default();
        for (i, stage) in stages.iter().enumerate() {
            groups.entry(*stage).or_default().push(i);
        }
        groups.into_iter().collect()
    }
}
