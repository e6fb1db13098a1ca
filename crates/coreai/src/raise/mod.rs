//! Models of programs, the way back from [`lower`](crate::lower). [`state`] has what every rule
//! uses, [`emit`] the operations with their types, one file for each family of ops has their rules,
//! [`table`] names them, and [`graph`] walks the ops.

mod compress;
mod control;
mod conv;
mod elementwise;
mod emit;
mod graph;
mod index;
mod recurrent;
mod reduce;
mod resize;
mod shape;
mod state;
mod table;

use ferrane_mil::{Evaluate, Program};

use crate::bytecode::Bytecode;
use crate::error::Refusals;

pub use table::ops;

/// A MIL program as a model, with a function for each of its functions. Inputs, outputs and states
/// keep their names and types; an output is added for each state that is written, the order of the
/// accesses to it.
///
/// An op becomes the operation of Core AI that computes the same, or a few of them; layers are
/// normalized in fp32, and recurrent ones become their steps. Large constants stay where the
/// program has them until the model is written. Compressed ones keep their form; what Core AI has
/// none for, `arithmetic` computes. Ops that no output and no state depends on are left out.
///
/// # Errors
/// All ops and inputs that Core AI cannot express, each with its reason.
pub fn to_coreai<'a>(program: &'a Program, arithmetic: &'a dyn Evaluate) -> Result<Bytecode<'a>, Refusals> {
    graph::raise(program, arithmetic)
}
