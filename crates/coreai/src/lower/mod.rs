//! Programs of models. [`state`] has what every lowering uses, one file for each family of
//! operations has their lowerings, [`table`] names them, and [`graph`] walks the operations.

mod composite;
mod control;
mod conv;
mod elementwise;
mod fold;
mod graph;
mod index;
mod known;
mod origin;
mod quantize;
mod reduce;
mod resize;
mod shape;
mod state;
mod table;

use ferrane_mil::Program;

use crate::asset::Asset;
use crate::bytecode::Bytecode;
use crate::error::{Refusals, Result};
use crate::options::ConversionOptions;

pub use origin::Origins;
pub use table::operations;

impl Bytecode<'_> {
    /// The model as a MIL program with a function for each function that callers see; private ones
    /// are inlined. Inputs and outputs keep their order; their names are those of the model where
    /// these are identifiers (see [`port_names`](ferrane_mil::port_names)).
    ///
    /// An operation becomes the op of MIL that computes the same, or a few of them. One that is not
    /// known is replaced by the expansion that the file has for it. What can be computed from
    /// constants and extents is computed here, as far as it is small, and operations that no output
    /// depends on are left out.
    ///
    /// # Errors
    /// All operations that MIL cannot express and all extents that have no number, each with its
    /// reason.
    pub fn to_mil(&self, options: &ConversionOptions) -> Result<Program, Refusals> {
        graph::lower(self, None, options).map(|(program, _)| program)
    }
}

impl Asset {
    /// As [`Bytecode::to_mil`], for a program whose weights share the mapped file.
    ///
    /// # Errors
    /// As [`Asset::program`]; inside of it, as [`Bytecode::to_mil`].
    pub fn to_mil(&self, options: &ConversionOptions) -> Result<Result<Program, Refusals>> {
        Ok(graph::lower(&self.program()?, Some(self.mapped()), options).map(|(program, _)| program))
    }

    /// Where the ops of the program that [`Asset::to_mil`] makes come from, as far as the file
    /// says: `Model › Linear (model.py:12)`, the modules of PyTorch and the line. Empty if there is
    /// no program.
    ///
    /// # Errors
    /// As [`Asset::program`].
    pub fn origins(&self, options: &ConversionOptions) -> Result<Origins> {
        let file = self.program()?;
        let Ok((_, made)) = graph::lower(&file, Some(self.mapped()), options) else { return Ok(Origins::new()) };
        let mut reader = origin::Reader::new(&file);
        let all = made.into_iter().filter_map(|(function, name, at)| Some(((function, name), reader.origin(at)?)));
        Ok(all.collect())
    }
}
