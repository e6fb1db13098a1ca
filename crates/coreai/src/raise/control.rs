//! Blocks and states.

use ferrane_mil::{Arg, BlockId, ValueId as MilValue};

use super::elementwise::Results;
use super::state::{Built, Raise, State, rejected, tensor_of, unmapped};
use crate::bytecode::{TypeId, ValueId};
use crate::dialect::Tensor;

impl Raise<'_> {
    /// The types of all results of the op.
    fn results(&mut self) -> Built<(Vec<Tensor>, Vec<TypeId>)> {
        let mut tensors = Vec::new();
        for i in 0..self.op.outputs.len() {
            tensors.push(self.result(i)?);
        }
        let types = tensors.iter().map(|t| self.b.tensor(&t.shape, t.element)).collect();
        Ok((tensors, types))
    }

    /// One of the blocks of the op.
    fn block_id(&self, i: usize) -> Built<BlockId> {
        self.op.blocks.get(i).map_or_else(|| rejected(format!("it has no block {i}")), |&id| Ok(id))
    }

    /// The types of the inputs of a block.
    fn inputs_of(&self, id: BlockId) -> Built<Vec<Tensor>> {
        self.function.block(id).inputs.iter().map(|&v| tensor_of(&self.function.value(v).ty)).collect()
    }

    /// A predicate, which is one truth value of any rank.
    fn predicate(&mut self, pred: ValueId) -> Built {
        let rank = self.rank(pred)?;
        self.shrink(pred, &(0..rank).collect::<Vec<_>>())
    }

    fn state(&self, name: &str) -> Built<(MilValue, State)> {
        if self.made.len() > 1 {
            return unmapped("the order of accesses to a state, a token, does not pass through blocks");
        }
        match self.op.arg(name) {
            Some(Arg::Value(value)) => match self.states.get(value) {
                Some(state) => Ok((*value, *state)),
                None => rejected(format!("`{name}` is no state of the function")),
            },
            _ => rejected(format!("`{name}` is no state")),
        }
    }

    /// The order of the accesses so far.
    fn token_of(&mut self, state: State) -> (ValueId, TypeId) {
        let ty = self.b.token();
        match state.token {
            Some(token) => (token, ty),
            None => (self.b.op(&mut self.graph, "dataflow.create_token_v1", &[], &[], ty), ty),
        }
    }

    fn write(&mut self, name: &str, value: ValueId) -> Built<()> {
        let (id, state) = self.state(name)?;
        let tensor = tensor_of_state(self, id)?;
        let value = self.cast(value, tensor.element)?;
        let (token, ty) = self.token_of(state);
        let operands = [state.handle, value, token];
        let token = self.b.op(&mut self.graph, "dataflow.write_handle_v1", &operands, &[], ty);
        self.states.insert(id, State { token: Some(token), written: true, ..state });
        Ok(())
    }
}

/// The tensor in a state.
fn tensor_of_state(r: &Raise<'_>, id: MilValue) -> Built<Tensor> {
    match &r.function.value(id).ty {
        ferrane_mil::Type::State(inner) => tensor_of(inner),
        other => rejected(format!("a state of type {other}")),
    }
}

pub(super) fn read_state(r: &mut Raise<'_>) -> Results {
    let (id, state) = r.state("input")?;
    let tensor = tensor_of_state(r, id)?;
    let (token, token_type) = r.token_of(state);
    let ty = r.b.tensor(&tensor.shape, tensor.element);
    let found =
        r.b.ops(&mut r.graph, "dataflow.read_handle_v1", &[state.handle, token], &[], &[ty, token_type], Vec::new());
    r.tensors.insert(found[0], tensor);
    r.states.insert(id, State { token: Some(found[1]), ..state });
    Ok(vec![found[0]])
}

pub(super) fn write_state(r: &mut Raise<'_>) -> Results {
    let value = r.x("data")?;
    r.write("input", value)?;
    Ok(Vec::new())
}

/// The result is what was written.
pub(super) fn update_state(r: &mut Raise<'_>) -> Results {
    let value = r.x("value")?;
    r.write("state", value)?;
    Ok(vec![value])
}

pub(super) fn cond(r: &mut Raise<'_>) -> Results {
    let pred = r.x("pred")?;
    let pred = r.predicate(pred)?;
    let (tensors, types) = r.results()?;
    let mut blocks = Vec::new();
    for i in 0..2 {
        let id = r.block_id(i)?;
        blocks.push(r.nested(&[], "dataflow.yield_v1", |r, _| r.block(id))?);
    }
    let values = r.b.ops(&mut r.graph, "controlflow.if_v1", &[pred], &[], &types, blocks);
    r.tensors.extend(values.iter().copied().zip(tensors));
    Ok(values)
}

pub(super) fn while_loop(r: &mut Raise<'_>) -> Results {
    let start = r.list("loop_vars")?;
    let (tensors, types) = r.results()?;
    let (test, body) = (r.block_id(0)?, r.block_id(1)?);
    let mut blocks = Vec::new();
    for (id, terminator) in [(test, "controlflow.condition_v1"), (body, "dataflow.yield_v1")] {
        let inputs = r.inputs_of(id)?;
        if inputs.len() != start.len() {
            return rejected("its blocks take other values than it has loop variables");
        }
        blocks.push(r.nested(&inputs, terminator, |r, values| {
            let names = &r.function.block(id).inputs;
            r.values.extend(names.iter().copied().zip(values.iter().copied()));
            let mut found = r.block(id)?;
            if id == test {
                let Some(&go) = found.first() else { return rejected("its first block gives no condition") };
                found = vec![r.predicate(go)?];
                found.extend(values);
            }
            Ok(found)
        })?);
    }
    let values = r.b.ops(&mut r.graph, "controlflow.while_v1", &start, &[], &types, blocks);
    r.tensors.extend(values.iter().copied().zip(tensors));
    Ok(values)
}
