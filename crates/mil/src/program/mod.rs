//! Programs: functions, blocks, ops and values in arenas with typed ids.
//!
//! Invariants: every id in a [`Function`] points into its own arenas; the outputs of an op are
//! [`Value`]s whose definition names that op; ops of a block are in execution order; a nested
//! block may use values of the blocks around it. Names of inputs and outputs are part of the
//! interface (binding order), all others are cosmetic.

mod constant;
mod types;

pub use constant::{Constant, Payload};
pub use types::{DataType, Dim, Type};

use crate::error::MilError;
use crate::op;
use crate::opset::{Opset, OpsetTag};
use crate::weights::Weights;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
        impl $name {
            /// The position in its arena.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}
id!(/** A value of a function. */ ValueId);
id!(/** An op of a function. */ OpId);
id!(/** A block of a function. */ BlockId);

/// How text spells types and literals (mil-text §2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Dialect {
    /// `program(1.3)`: `string`, `fp16(0.5)`.
    #[default]
    Shorthand,
    /// `program(1.0)`: `tensor<string, []>`.
    Verbose,
}

/// A MIL program: functions over one store of weights.
#[derive(Clone, Debug)]
pub struct Program {
    /// `program(major.minor)`.
    pub version: (u32, u32),
    /// The spelling in which it was read, and in which it is printed.
    pub dialect: Dialect,
    /// The attribute dictionaries after the version, usually beginning with `buildInfo`.
    pub attributes: Vec<(String, Constant)>,
    /// The functions in text order; `main` is the usual one.
    pub functions: Vec<Function>,
    /// The store of the records that constants name.
    pub weights: Weights,
}

impl Program {
    /// The function of that name.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|f| f.name == name)
    }
}

/// A function: inputs, arenas, and one body block per opset specialization.
#[derive(Clone, Debug, Default)]
pub struct Function {
    /// Name by which the function is called.
    pub name: String,
    /// Attributes after the opset tag, if any.
    pub attributes: Vec<(String, Constant)>,
    /// Parameters in order; types [`Type::State`] are states.
    pub inputs: Vec<ValueId>,
    /// The root block for each opset; the first is the active one.
    pub bodies: Vec<(OpsetTag, BlockId)>,
    /// Arena of all values, indexed by [`ValueId`].
    pub values: Vec<Value>,
    /// Arena of all ops, indexed by [`OpId`].
    pub ops: Vec<Op>,
    /// Arena of all blocks, indexed by [`BlockId`].
    pub blocks: Vec<Block>,
}

/// An input of a function or block, or a result of an op.
#[derive(Clone, Debug)]
pub struct Value {
    /// Name in text, unique where it is visible.
    pub name: String,
    /// Type, as declared in text.
    pub ty: Type,
    /// Where it comes from.
    pub def: ValueDef,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueDef {
    /// Parameter `n` of the function.
    Input(u32),
    /// Output `n` of an op.
    Op(OpId, u32),
    /// Parameter `n` of a nested block.
    BlockInput(BlockId, u32),
}

/// A block: parameters, ops in order, outputs.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// Parameters of a nested block.
    pub inputs: Vec<ValueId>,
    /// Ops in execution order.
    pub ops: Vec<OpId>,
    /// Values that the block returns, in order.
    pub outputs: Vec<ValueId>,
}

/// An op: its MIL name, arguments, attributes, results.
#[derive(Clone, Debug)]
pub struct Op {
    /// Spelling of MIL, known to the registry or not.
    pub name: String,
    /// Named arguments in text order.
    pub args: Vec<(String, Arg)>,
    /// The bracketed attributes (`name`, `val`, and the data of iOS16 `constexpr_*`).
    pub attributes: Vec<(String, Constant)>,
    /// Results, in order; empty for an op without results.
    pub outputs: Vec<ValueId>,
    /// Nested blocks (`cond`, `while_loop`).
    pub blocks: Vec<BlockId>,
    /// Position in the text, if it was read from text.
    pub span: Option<ferrane_diag::Span>,
}

/// An argument of an op.
#[derive(Clone, Debug)]
pub enum Arg {
    /// A value by name.
    Value(ValueId),
    /// `(a, b, …)`.
    List(Vec<ValueId>),
    /// A literal that is written in the call.
    Const(Constant),
}

impl Op {
    /// The argument of that name.
    pub fn arg(&self, name: &str) -> Option<&Arg> {
        self.args.iter().find(|(n, _)| n == name).map(|(_, a)| a)
    }

    /// The attribute of that name.
    pub fn attribute(&self, name: &str) -> Option<&Constant> {
        self.attributes.iter().find(|(n, _)| n == name).map(|(_, a)| a)
    }

    /// Every value the op reads, in argument order (captures of nested blocks not included).
    pub fn operands(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.args.iter().flat_map(|(_, a)| match a {
            Arg::Value(v) => std::slice::from_ref(v).iter().copied(),
            Arg::List(vs) => vs.iter().copied(),
            Arg::Const(_) => [].iter().copied(),
        })
    }
}

impl Function {
    /// The value of an id.
    ///
    /// # Panics
    /// If the id is not of this function.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// The op of an id.
    ///
    /// # Panics
    /// If the id is not of this function.
    pub fn op(&self, id: OpId) -> &Op {
        &self.ops[id.index()]
    }

    /// The block of an id.
    ///
    /// # Panics
    /// If the id is not of this function.
    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.index()]
    }

    /// The active body. A function always has one; an empty block stands in for a broken one.
    pub fn body(&self) -> &Block {
        static EMPTY: Block = Block { inputs: Vec::new(), ops: Vec::new(), outputs: Vec::new() };
        self.bodies.first().map_or(&EMPTY, |(_, b)| self.block(*b))
    }

    /// The opset tag of the active body.
    pub fn opset_tag(&self) -> &OpsetTag {
        self.bodies.first().map_or(OpsetTag::NONE, |(tag, _)| tag)
    }

    /// The opset of the active body.
    ///
    /// # Errors
    /// [`MilError::UnknownOpset`] if its tag names none.
    pub fn opset(&self) -> Result<Opset, MilError> {
        self.opset_tag().require()
    }

    /// The constant a value is defined by (a `const` op), if it is.
    pub fn constant(&self, id: ValueId) -> Option<&Constant> {
        match self.value(id).def {
            ValueDef::Op(op, 0) if self.op(op).name == op::CONST => self.op(op).attribute("val"),
            _ => None,
        }
    }

    /// The compile-time value of an argument: an inline literal or a `const`.
    pub fn arg_constant<'a>(&'a self, op: &'a Op, name: &str) -> Option<&'a Constant> {
        match op.arg(name)? {
            Arg::Const(c) => Some(c),
            Arg::Value(v) => self.constant(*v),
            Arg::List(_) => None,
        }
    }

    /// The value of a single-value argument.
    pub fn arg_value(&self, op: &Op, name: &str) -> Option<ValueId> {
        match op.arg(name)? {
            Arg::Value(v) => Some(*v),
            _ => None,
        }
    }
}
