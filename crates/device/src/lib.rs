//! The seam between programs and the machines that run them.
//!
//! A safe front ([`Device`], [`Artifact`], [`Executable`], [`Request`], [`Surface`], [`Event`])
//! stands over thin backends ([`backend`]). What is the same for every machine is done once in
//! front: names, layouts, completeness of bindings, and the access state of surfaces. The stages
//! are those of the engine, because each has a cost of its own there: *compile* spends a budget,
//! *load* takes memory, *prepare* binds surfaces once, *submit* runs.
//!
//! The one decision: each stage's trait object makes the next one (`Compiled::load`,
//! `Loaded::prepare`, `Prepared::submit`), so neither callers nor backends ever downcast.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod backend;
mod bindings;
mod call;
pub mod catalog;
mod error;
mod executable;
mod layout;
#[cfg(all(test, loom))]
mod models;
mod options;
pub mod queue;
mod recorder;
mod request;
#[cfg(feature = "scripted")]
pub mod scripted;
pub mod staging;
mod submission;
mod surface;
mod sync;
mod tensor;

pub use backend::{
    Accesses, Backend, CompileOptions, Completion, Computer, Done, Event, Footprint, ProgramSource, ProgramState, Stats,
};
pub use bindings::Bindings;
pub use call::{BoundProcedure, Call, Returned, fits_surfaces};
pub use error::{Error, ErrorKind, Result, remedy};
pub use executable::{Artifact, Device, Executable, Port, Procedure};
pub use layout::Layout;
pub use options::OpenOptions;
pub use recorder::CallRecord;
pub use request::Request;
pub use submission::Submission;
pub use surface::{Foreign, Memory, ReadAccess, Surface, WriteAccess};
pub use tensor::{Tensor, Tensors};

/// The examples of the README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;
