//! Tests over samples of coreai-core, and over damaged files.

mod build;
mod edge_values;
mod hostile;
mod page;
mod program;
mod raise;
mod samples;
