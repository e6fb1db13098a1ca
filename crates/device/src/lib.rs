//! The interface between programs and the machines that run them.
//!
//! # Stages
//!
//! Each stage has a cost of its own on the engine, so each is a type of its own here:
//!
//! | stage | from | to | cost |
//! |---|---|---|---|
//! | compile | [`ProgramSource`] | [`Artifact`] | compile budget |
//! | load | [`Artifact`] | [`Executable`] | memory of the engine |
//! | prepare | [`Executable`], [`Bindings`] | [`Request`] | binds surfaces, once |
//! | evaluate, submit | [`Request`] | [`Stats`], [`Submission`] | one run |
//!
//! [`Device::call`] and [`Executable::call`] take the stages in one step and exchange [`Tensor`]s;
//! [`Executable::bind`] keeps the surfaces between runs.
//!
//! ```
//! use ferrane_device::{Call, Device, Result, Tensor};
//! use ferrane_mil::Program;
//!
//! /// Runs a program of one input `x` and one output `y`, on any device.
//! fn run(device: &Device, program: &Program, values: &[f32]) -> Result<Vec<f32>> {
//!     let x = Tensor::fp16(&[1, values.len()], values)?;
//!     Ok(device.call(program, Call::new().input("x", x))?.get("y")?.to_f32())
//! }
//! ```
//!
//! # Front and backends
//!
//! A safe front ([`Device`], [`Artifact`], [`Executable`], [`Request`], [`Surface`], [`Event`])
//! stands over thin backends ([`backend`]). The front does once what is the same for every machine:
//! it checks names, layouts, completeness and aliasing of bindings, and tracks the access state of
//! surfaces.
//!
//! Each stage's trait object makes the next one (`Compiled::load`, `Loaded::prepare`,
//! `Prepared::submit`), so neither callers nor backends downcast.
//!
//! # Errors
//!
//! [`Error`] has an [`ErrorKind`] with a stable code, the raw domain, code and status of the
//! machine, the port, and the cause. [`remedy`] gives the advice for a kind; [`catalog`] maps the
//! machines' raw errors to kinds.
//!
//! # Where to look next
//!
//! To write a backend, implement the traits of [`backend`]; [`queue`] and [`staging`] are parts
//! that backends share. `ferrane-scripted` has a backend for tests of callers.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod backend;
mod bindings;
mod call;
pub mod catalog;
mod distance;
mod error;
mod executable;
mod layout;
mod log;
#[cfg(all(test, loom))]
mod models;
mod options;
pub mod queue;
mod recorder;
mod request;
pub mod staging;
mod submission;
mod summary;
mod surface;
mod sync;
mod tensor;

pub use backend::{
    Accesses, Backend, CompileOptions, Completion, Computer, Done, Event, Footprint, ProgramSource, ProgramState, Stats,
};
pub use bindings::Bindings;
pub use call::{BoundProcedure, Call, Returned, fits_surfaces};
pub use distance::TensorDistance;
pub use error::{Error, ErrorKind, Result, remedy};
pub use executable::{Artifact, Device, Executable, Port, Procedure};
pub use layout::Layout;
pub use options::OpenOptions;
pub use recorder::CallRecord;
pub use request::Request;
pub use submission::Submission;
pub use summary::TensorSummary;
pub use surface::{Foreign, Memory, ReadAccess, Surface, WriteAccess};
pub use tensor::{Tensor, Tensors};
