//! Control flow, and the ops through which no cotangent passes.

use super::error::GradError;
use super::pullback::Pullback;
use super::rule::{Rule, RuleTable};
use super::tape::reads;
use crate::op;
use crate::program::{BlockId, ValueId};

const LIST: Rule = Rule::No("lists carry no cotangents");
const RECURRENT: Rule = Rule::No("unroll a recurrent op into its steps to differentiate it");
const INTEGERS: Rule = Rule::Zero("its operands or results are integers");
const STATE: Rule = Rule::No("a state outlives the evaluation; take it as an input");
const DRAW: Rule = Rule::Zero("draws numbers");

pub(super) const RULES: RuleTable = &[
    (op::CONST, Rule::Zero("is constant")),
    (op::COND, Rule::Vjp(cond)),
    (op::WHILE_LOOP, Rule::No("its number of rounds is not known; unroll it")),
    (op::MAKE_LIST, LIST),
    (op::LIST_LENGTH, LIST),
    (op::LIST_READ, LIST),
    (op::LIST_WRITE, LIST),
    (op::LIST_GATHER, LIST),
    (op::LIST_SCATTER, LIST),
    (op::GRU, RECURRENT),
    (op::LSTM, RECURRENT),
    (op::RNN, RECURRENT),
    (op::QUANTIZE, INTEGERS),
    (op::DEQUANTIZE, INTEGERS),
    (op::READ_STATE, STATE),
    (op::WRITE_STATE, STATE),
    (op::COREML_UPDATE_STATE, STATE),
    (op::CLASSIFY, Rule::No("returns a dictionary")),
    (op::RANDOM_BERNOULLI, DRAW),
    (op::RANDOM_CATEGORICAL, DRAW),
    (op::RANDOM_NORMAL, DRAW),
    (op::RANDOM_UNIFORM, DRAW),
];

/// A `cond` over the reverse passes of both branches, with the same predicate. Each branch returns
/// a cotangent for every captured value that a chosen input reaches: zeros if the branch does not
/// use it.
fn cond(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let captured: Vec<ValueId> = reads(p.tape.source, p.op).into_iter().filter(|v| p.tape.is_active(*v)).collect();
    let pred = p.x("pred")?;
    let branches: Vec<BlockId> = p.op.blocks.clone();
    let [yes, no] = branches[..] else { return Err(p.refuse("does not have two branches")) };
    let cotangents: Vec<Option<ValueId>> = (0..p.op.outputs.len()).map(|i| p.cotangent(i)).collect();
    // The cotangents of captured values so far are set aside: a branch starts without any.
    let before: Vec<Option<ValueId>> = captured.iter().map(|v| p.tape.take_adjoint(*v)).collect();
    let blocks = [branch(p, yes, &captured, &cotangents)?, branch(p, no, &captured, &cotangents)?];
    captured.iter().zip(before).for_each(|(v, d)| p.tape.set_adjoint(*v, d));
    let name = p.name.clone();
    let found = p.tape.b.cond(&name, pred, blocks)?;
    for (value, d) in captured.into_iter().zip(found) {
        p.give_value(value, d)?;
    }
    Ok(())
}

fn branch(
    p: &mut Pullback<'_, '_>,
    block: BlockId,
    captured: &[ValueId],
    cotangents: &[Option<ValueId>],
) -> Result<BlockId, GradError> {
    let source = p.tape.source;
    let block = source.block(block);
    let open = p.tape.b.open_block();
    let copies = p.tape.copies();
    for (&output, d) in block.outputs.iter().zip(cotangents) {
        if let Some(d) = d
            && p.tape.is_active(output)
        {
            p.tape.accumulate(output, *d)?;
        }
    }
    p.tape.reverse(&block.ops)?;
    let mut outputs = Vec::with_capacity(captured.len());
    for &value in captured {
        let d = p.tape.adjoint_or_zeros(value)?;
        p.tape.set_adjoint(value, None);
        // A block may only return values that it computes itself.
        outputs.push(p.tape.b.identity(&p.name, d)?);
    }
    p.tape.forget(copies);
    Ok(p.tape.b.close_block(open, outputs))
}
