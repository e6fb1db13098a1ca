//! `common_subexpressions`: computes equal expressions once.
//!
//! *Pattern*: two ops of one name with the same arguments and attributes (but for `name`), the
//! earlier one in the same block or in one around it; constants with the same type and bytes are
//! such ops. *Holds*: the op is known, gives the same result each time (it is not random, reads no
//! state, has no blocks and makes no list), and the results are not both outputs. *Numbers*: none
//! change.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::cursor::Cursor;
use super::draft::Draft;
use super::pass::{Context, Exactness, Pass};
use crate::error::MilError;
use crate::op;
use crate::ops;
use crate::program::{Arg, BlockId, Constant, Op, OpId, Payload, Type};

pub(super) const PASS: Pass = Pass {
    name: "common_subexpressions",
    doc: "computes what is computed twice once",
    exactness: Exactness::Bits,
    repeats: true,
    run,
};

fn run(draft: &mut Draft, _: &mut Context<'_>) -> Result<usize, MilError> {
    let mut scopes = Scopes::default();
    Ok(draft.each(|c| scopes.visit(c)))
}

/// The ops seen in the blocks that are open, innermost last.
#[derive(Default)]
struct Scopes {
    open: Vec<(BlockId, HashMap<u64, Vec<OpId>>)>,
    /// The function: ids of another one mean other ops.
    function: Option<String>,
}

impl Scopes {
    fn visit(&mut self, c: &mut Cursor<'_>) -> Option<()> {
        self.enter(c);
        let op = c.op()?;
        if !is_repeatable(c, op) {
            return None;
        }
        let hash = hash(op);
        for (_, seen) in self.open.iter().rev() {
            for &other in seen.get(&hash).into_iter().flatten() {
                let twin = c.function().op(other);
                if c.block_of(other).is_some() && same(c, op, twin) {
                    let with = twin.outputs.clone();
                    return c.replace_all(&with);
                }
            }
        }
        let id = c.id()?;
        self.open.last_mut()?.1.entry(hash).or_default().push(id);
        None
    }

    /// Opens the block of the cursor, and closes those that are not around it.
    fn enter(&mut self, c: &Cursor<'_>) {
        if self.function.as_ref() != Some(&c.function().name) {
            self.open.clear();
            self.function = Some(c.function().name.clone());
        }
        let block = c.block();
        if self.open.last().is_none_or(|(b, _)| *b != block) {
            let around = c.blocks_around();
            self.open.retain(|(b, _)| around.contains(b));
            if self.open.last().is_none_or(|(b, _)| *b != block) {
                self.open.push((block, HashMap::new()));
            }
        }
    }
}

fn is_repeatable(c: &Cursor<'_>, op: &Op) -> bool {
    let tensors = |t: &Type| matches!(t, Type::Tensor { .. });
    let known = op.name == op::CONST || c.opset().is_some_and(|opset| ops::find(&op.name, opset).is_some());
    known
        && op.blocks.is_empty()
        && !op.name.starts_with("random_")
        && op.operands().chain(op.outputs.iter().copied()).all(|v| tensors(c.ty(v)))
}

fn hash(op: &Op) -> u64 {
    // Arguments may stand in any order: the sum of their hashes does not know it.
    let one = |(name, arg): &(String, Arg)| {
        let mut h = DefaultHasher::new();
        name.hash(&mut h);
        match arg {
            Arg::Value(v) => v.hash(&mut h),
            Arg::List(vs) => vs.hash(&mut h),
            Arg::Const(c) => hash_constant(c, &mut h),
        }
        h.finish()
    };
    let mut h = DefaultHasher::new();
    op.name.hash(&mut h);
    op.args.iter().map(one).fold(0, u64::wrapping_add).hash(&mut h);
    for (name, value) in attributes(op) {
        name.hash(&mut h);
        hash_constant(value, &mut h);
    }
    h.finish()
}

fn hash_constant(c: &Constant, h: &mut DefaultHasher) {
    c.ty().hash(h);
    match c {
        Constant::Tensor { payload: Payload::Bytes(b), .. } => b.hash(h),
        Constant::Tensor { payload: Payload::Strings(s), .. } => s.hash(h),
        Constant::Tensor { payload: Payload::Weight(id), .. } => id.hash(h),
        _ => {}
    }
}

fn attributes(op: &Op) -> impl Iterator<Item = &(String, Constant)> {
    op.attributes.iter().filter(|(n, _)| n != "name")
}

fn same(c: &Cursor<'_>, a: &Op, b: &Op) -> bool {
    let args = |a: &Op, b: &Op| {
        a.args.iter().all(|(name, arg)| match (arg, b.arg(name)) {
            (Arg::Value(x), Some(Arg::Value(y))) => x == y,
            (Arg::List(x), Some(Arg::List(y))) => x == y,
            (Arg::Const(x), Some(Arg::Const(y))) => x == y,
            _ => false,
        })
    };
    let types = a.outputs.iter().zip(&b.outputs).all(|(x, y)| c.ty(*x) == c.ty(*y));
    a.name == b.name
        && a.args.len() == b.args.len()
        && a.outputs.len() == b.outputs.len()
        && types
        && args(a, b)
        && attributes(a).eq(attributes(b))
}
