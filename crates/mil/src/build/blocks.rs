//! Nested blocks, and copies of ops of another function.

use super::Builder;
use crate::error::MilError;
use crate::op;
use crate::ops::{self, InferContext};
use crate::program::{Arg, Block, BlockId, Constant, Function, Op, OpId, Type, ValueDef, ValueId};

/// A nested block that is being built (see [`Builder::open_block`]).
#[derive(Debug)]
pub struct OpenBlock {
    block: BlockId,
    outer: BlockId,
}

impl Builder {
    /// Begins a nested block: ops are added to it until [`Builder::close_block`]. Blocks are closed
    /// in the reverse order.
    pub fn open_block(&mut self) -> OpenBlock {
        let block = BlockId(self.function.blocks.len() as u32);
        self.function.blocks.push(Block::default());
        OpenBlock { block, outer: std::mem::replace(&mut self.block, block) }
    }

    /// Adds a parameter to an open block.
    pub fn block_input(&mut self, open: &OpenBlock, name: &str, ty: Type) -> ValueId {
        let name = self.unique(name);
        let position = self.function.block(open.block).inputs.len() as u32;
        let value = self.value(name, ty, ValueDef::BlockInput(open.block, position));
        self.function.blocks[open.block.index()].inputs.push(value);
        value
    }

    /// Ends a nested block. It must become one of the blocks of the next op with blocks.
    pub fn close_block(&mut self, open: OpenBlock, outputs: Vec<ValueId>) -> BlockId {
        self.function.blocks[open.block.index()].outputs = outputs;
        self.block = open.outer;
        open.block
    }

    /// Adds `cond`: the outputs of one of two blocks without parameters, which give the same types.
    ///
    /// # Errors
    /// `pred` is no scalar bool, or the blocks give different numbers or types of values.
    pub fn cond(&mut self, name: &str, pred: ValueId, blocks: [BlockId; 2]) -> Result<Vec<ValueId>, MilError> {
        self.with_blocks(op::COND, name, vec![("pred".to_string(), Arg::Value(pred))], blocks)
    }

    /// Adds `while_loop`: the variables after the second block has run for as long as the first one
    /// gives true. Both take a parameter for each variable; the second gives their next values.
    ///
    /// # Errors
    /// The first block does not give one scalar bool, or the types of parameters, variables and
    /// next values differ.
    pub fn while_loop(
        &mut self,
        name: &str,
        variables: &[ValueId],
        blocks: [BlockId; 2],
    ) -> Result<Vec<ValueId>, MilError> {
        self.with_blocks(op::WHILE_LOOP, name, vec![("loop_vars".to_string(), Arg::List(variables.to_vec()))], blocks)
    }

    fn with_blocks(
        &mut self,
        op: &str,
        name: &str,
        args: Vec<(String, Arg)>,
        blocks: [BlockId; 2],
    ) -> Result<Vec<ValueId>, MilError> {
        let def = ops::lookup(op, self.opset)?;
        let (function, weights) = (&self.function, &self.weights);
        let types =
            ops::infer(&InferContext { function, weights, def, args: &args, attributes: &[], blocks: &blocks })?;
        let label = self.unique(name);
        let id = OpId(self.function.ops.len() as u32);
        let name = |b: &mut Builder, i: usize| if i == 0 { label.clone() } else { b.unique(&format!("{label}_{i}")) };
        let mut outputs = Vec::with_capacity(types.len());
        for (i, ty) in types.into_iter().enumerate() {
            let name = name(self, i);
            outputs.push(self.value(name, ty, ValueDef::Op(id, i as u32)));
        }
        self.push_op(Op {
            name: op.to_string(),
            args,
            attributes: vec![("name".to_string(), Constant::string(&label))],
            outputs: outputs.clone(),
            blocks: blocks.to_vec(),
            span: None,
        });
        Ok(outputs)
    }

    /// Adds a copy of an op of another function over the same weights, its blocks included. `map`
    /// says what the function's values are here; what the op and its blocks define is entered there
    /// and appended to `entered`.
    ///
    /// # Errors
    /// [`MilError::Invalid`] when an operand has no entry.
    pub(crate) fn copy(
        &mut self,
        from: &Function,
        op: &Op,
        map: &mut [Option<ValueId>],
        entered: &mut Vec<ValueId>,
    ) -> Result<(), MilError> {
        let mut blocks = Vec::with_capacity(op.blocks.len());
        for &block in &op.blocks {
            blocks.push(self.copy_block(from, block, map, entered)?);
        }
        let mut args = Vec::with_capacity(op.args.len());
        for (name, arg) in &op.args {
            let arg = match arg {
                Arg::Value(v) => Arg::Value(entry(from, map, *v)?),
                Arg::List(vs) => Arg::List(vs.iter().map(|v| entry(from, map, *v)).collect::<Result<_, _>>()?),
                Arg::Const(c) => Arg::Const(c.clone()),
            };
            args.push((name.clone(), arg));
        }
        let id = OpId(self.function.ops.len() as u32);
        let mut outputs = Vec::with_capacity(op.outputs.len());
        for (i, &output) in op.outputs.iter().enumerate() {
            let name = self.unique(&from.value(output).name);
            let here = self.value(name, from.value(output).ty.clone(), ValueDef::Op(id, i as u32));
            map[output.index()] = Some(here);
            entered.push(output);
            outputs.push(here);
        }
        let mut attributes = op.attributes.clone();
        if let (Some((_, label)), Some(&first)) = (attributes.iter_mut().find(|(n, _)| n == "name"), outputs.first()) {
            *label = Constant::string(&self.function.value(first).name);
        }
        self.push_op(Op { name: op.name.clone(), args, attributes, outputs, blocks, span: None });
        Ok(())
    }

    fn copy_block(
        &mut self,
        from: &Function,
        block: BlockId,
        map: &mut [Option<ValueId>],
        entered: &mut Vec<ValueId>,
    ) -> Result<BlockId, MilError> {
        let open = self.open_block();
        let source = from.block(block);
        for (i, &input) in source.inputs.iter().enumerate() {
            let name = self.unique(&from.value(input).name);
            let here = self.value(name, from.value(input).ty.clone(), ValueDef::BlockInput(open.block, i as u32));
            map[input.index()] = Some(here);
            entered.push(input);
            self.function.blocks[open.block.index()].inputs.push(here);
        }
        for &op in &source.ops {
            self.copy(from, from.op(op), map, entered)?;
        }
        let outputs = source.outputs.iter().map(|v| entry(from, map, *v)).collect::<Result<_, _>>()?;
        Ok(self.close_block(open, outputs))
    }
}

fn entry(from: &Function, map: &[Option<ValueId>], value: ValueId) -> Result<ValueId, MilError> {
    map[value.index()].ok_or_else(|| MilError::Invalid {
        reason: format!("`{}` is copied before what it reads", from.value(value).name),
    })
}
