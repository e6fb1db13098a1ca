//! Specializations of a function. Text has no form of its own for them: functions with the same
//! name and signature in different opsets become one [`Function`] with several bodies.

use crate::program::{Arg, BlockId, Function, OpId, ValueDef, ValueId};

/// Inputs of the same names and types, and the same attributes.
pub(super) fn same_signature(a: &Function, b: &Function) -> bool {
    let input = |f: &Function, i: usize| f.inputs.get(i).map(|v| (f.value(*v).name.clone(), f.value(*v).ty.clone()));
    a.inputs.len() == b.inputs.len()
        && (0..a.inputs.len()).all(|i| input(a, i) == input(b, i))
        && a.attributes == b.attributes
}

/// Appends the body of `other`, a function of the same signature, to those of `first`. The inputs
/// are the first values of a function that was read, so they keep their ids and all other ids are
/// shifted.
pub(super) fn add_body(first: &mut Function, other: Function) {
    let inputs = other.inputs.len();
    let (values, ops, blocks) = (first.values.len(), first.ops.len(), first.blocks.len());
    let value = |v: ValueId| if v.index() < inputs { v } else { ValueId((v.index() - inputs + values) as u32) };
    let op = |o: OpId| OpId((o.index() + ops) as u32);
    let block = |b: BlockId| BlockId((b.index() + blocks) as u32);
    let shift = |list: &mut Vec<ValueId>| list.iter_mut().for_each(|v| *v = value(*v));
    first.values.extend(other.values.into_iter().skip(inputs).map(|mut v| {
        v.def = match v.def {
            ValueDef::Input(n) => ValueDef::Input(n),
            ValueDef::Op(o, n) => ValueDef::Op(op(o), n),
            ValueDef::BlockInput(b, n) => ValueDef::BlockInput(block(b), n),
        };
        v
    }));
    first.ops.extend(other.ops.into_iter().map(|mut o| {
        for (_, arg) in &mut o.args {
            match arg {
                Arg::Value(v) => *v = value(*v),
                Arg::List(vs) => shift(vs),
                Arg::Const(_) => {}
            }
        }
        shift(&mut o.outputs);
        o.blocks.iter_mut().for_each(|b| *b = block(*b));
        o
    }));
    first.blocks.extend(other.blocks.into_iter().map(|mut b| {
        shift(&mut b.inputs);
        shift(&mut b.outputs);
        b.ops.iter_mut().for_each(|o| *o = op(*o));
        b
    }));
    first.bodies.extend(other.bodies.into_iter().map(|(opset, b)| (opset, block(b))));
}
