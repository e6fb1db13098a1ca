//! Control flow. The blocks of `cond` are `(true, false)`, those of `while_loop` are `(condition,
//! body)` (coremltools 9.0, coreml-containers).

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_mil::{Arg, BlockId, Op};

use super::failure::{broken, failed};
use super::machine::{Machine, Value};

impl Machine<'_> {
    fn block_of(&self, op: &Op, i: usize) -> Result<BlockId> {
        op.blocks.get(i).copied().ok_or_else(|| broken(&format!("op `{}` lacks a block", op.name)))
    }

    /// Runs the block that the predicate chooses.
    pub(super) fn cond(&mut self, op: &Op) -> Result<Vec<Value>> {
        let chosen = usize::from(self.number(op, "pred")? == 0);
        self.block(self.block_of(op, chosen)?)
    }

    /// Runs the body while the condition holds. Both blocks get the loop's variables as parameters.
    pub(super) fn while_loop(&mut self, op: &Op) -> Result<Vec<Value>> {
        let (condition, body) = (self.block_of(op, 0)?, self.block_of(op, 1)?);
        let mut variables: Vec<Value> = match op.arg("loop_vars") {
            Some(Arg::Value(v)) => vec![self.value(*v)?],
            Some(Arg::List(vs)) => vs.iter().map(|&v| self.value(v)).collect::<Result<_>>()?,
            _ => return Err(failed(op, "`loop_vars` must be values")),
        };
        loop {
            self.enter(condition, &variables)?;
            let holds = match self.block(condition)?.as_slice() {
                [Value::Tensor(t)] if t.len() == 1 => t.int(0) != 0,
                _ => return Err(failed(op, "the condition must be one bool")),
            };
            if !holds {
                return Ok(variables);
            }
            self.iterations += 1;
            if self.iterations > self.bounds.iterations {
                let limit = self.bounds.iterations;
                let message =
                    format!("op `while_loop`: the loops of an evaluation may take at most {limit} iterations");
                return Err(Error::new(ErrorKind::Evaluate, message));
            }
            self.enter(body, &variables)?;
            variables = self.block(body)?;
        }
    }

    fn enter(&mut self, block: BlockId, variables: &[Value]) -> Result<()> {
        let inputs = &self.function.block(block).inputs;
        if inputs.len() != variables.len() {
            return Err(broken("a loop has another number of variables than its blocks"));
        }
        for (&input, value) in inputs.iter().zip(variables) {
            self.bind(input, value.clone());
        }
        Ok(())
    }
}
