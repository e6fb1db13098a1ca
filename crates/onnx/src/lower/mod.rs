//! Programs of graphs. [`state`] has what every lowering uses, one file for each family of
//! operators has their lowerings, [`table`] names them, and [`graph`] walks the nodes.

mod attention;
mod contrib;
mod control;
mod conv;
mod elementwise;
mod fold;
mod graph;
mod index;
mod norm;
mod pool;
mod quantize;
mod random;
mod recurrent;
mod reduce;
mod resize;
mod roots;
mod sample;
mod sequence;
mod shape;
mod signal;
mod state;
mod table;
mod training;

pub(crate) use graph::lower;
pub use table::operators;
