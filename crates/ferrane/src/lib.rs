//! Program the Apple Neural Engine from Rust.
//!
//! A program is written in Core ML's Model Intermediate Language ([`mil`]); a [`Device`] compiles
//! and runs it. The default device is the emulator, a software Neural Engine that works on any
//! computer; on a Mac the same program goes to the engine.
//!
//! ```
//! use ferrane::mil::{Builder, DataType, Opset, Type};
//! use ferrane::{Call, Tensor};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut b = Builder::new("main", Opset::IOS18);
//! let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 4, 1, 8]))?;
//! let y = b.op("sigmoid", "y", [("x", x.into())])?;
//! let program = b.finish(&[("y", y)])?;
//!
//! let device = ferrane::open("emulator")?;
//! let x = Tensor::fp16(&[1, 4, 1, 8], &[0.0; 32])?;
//! let returned = device.call(&program, Call::new().input("x", x))?;
//! assert_eq!(returned.get("y")?.to_f32(), [0.5; 32]);
//! # Ok(())
//! # }
//! ```
//!
//! # Programs
//!
//! [`mil::Builder`] builds a program, [`mil::parse`] reads MIL text, [`mil::package::open`] reads
//! `.mlpackage`, `.mlmodel` and `.mlmodelc`, [`onnx::Model`] reads `.onnx`. [`mil::passes`]
//! transforms a program, [`mil::grad::vjp`] derives its backward program, [`machine::check()`]
//! reports what an engine refuses, computes wrongly or runs slowly, and
//! [`machine::placement::place`] predicts which ops Core ML runs on it.
//!
//! # Models
//!
//! A [`Model`] is a file of any of these kinds, opened so that it can be called: the shapes of its
//! inputs are chosen, images are read and written as it describes them, and a classifier's labels
//! are put back. [`compare`](compare()) measures how far two programs are from each other.
//!
//! # Running
//!
//! [`open`](open()) opens a device by name and options: `emulator?numerics=exact`,
//! `emulator?machine=m4-macos15-inmem`, `ane`, `ane-or-emulator`. [`Device::call`] runs a program
//! once. [`Device::load`] keeps it loaded for [`Executable::call`]; [`Executable::bind`] also keeps
//! its surfaces; [`Executable::prepare`] binds surfaces of your own, and [`Request::submit`] runs
//! without waiting.
//!
//! # More
//!
//! - [`page`]: a network with its findings and placement as one HTML page.
//! - [`audit`]: which op of a program loses precision, and why.
//! - [`recording`]: what one machine computed, replayed on another.
//! - [`llm`] and [`train`]: transformers, generation, training. [`gguf`]: the files of llama.cpp.
//! - [`hwx`]: the files that Apple's compiler writes; [`Interpreter`] runs them.
//! - [`probe`]: measures what a machine allows.
//! - [`sensors`]: power, states, temperatures and load of this computer.
//!
//! The folder `examples` of this crate has a short program for most of these. The crates below this
//! one may change between versions; a backend of your own implements the traits of
//! `ferrane_device::backend`.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

/// The engine's frameworks on this computer: what they report about themselves, their classes, the
/// compiler, and Core ML's plan of a model.
pub mod engine {
    pub use ferrane_ane::{Facts, aot, classes, compute_plan, facts};
}
mod audited;
mod compare;
mod compiled;
pub mod model;
mod open;
pub mod proof;
pub mod sensors;

pub use audited::put_errors;
pub use compare::{CompareError, OutputDistance, compare};
pub use compiled::read_compiled;
pub use model::{Model, ModelError, ModelOptions};
pub use open::{DeviceInfo, OpenError, REFERENCE, devices, emulator, open, open_or_reference};

// The seam: devices, and every type that their methods take or return.
pub use ferrane_device::backend::Events;
pub use ferrane_device::{
    Artifact, Bindings, BoundProcedure, Call, CallRecord, CompileOptions, Computer, Device, Error, ErrorKind, Event,
    Executable, Footprint, Foreign, Layout, Memory, Port, Procedure, ProgramSource, ProgramState, ReadAccess, Request,
    Result, Returned, Stats, Submission, Surface, Tensor, TensorDistance, TensorSummary, Tensors, WriteAccess,
    fits_surfaces, remedy,
};
/// IEEE half precision, the elements of [`ReadAccess::f16s`].
pub use ferrane_host::f16;

// The backends.
pub use ferrane_ane::isolate;
pub use ferrane_emulator::hwx::{Interpreter, Port as InterpreterPort};
pub use ferrane_emulator::{
    Arithmetic, Emulator, EmulatorOptions, Faults, Limits, Numerics, ProcessCounts, Rules, StepTime, Support,
    arithmetic, audit, faults, support,
};

// The libraries, each under its name.
pub use ferrane_coreai as coreai;
pub use ferrane_diag as diag;
pub use ferrane_gguf as gguf;
pub use ferrane_hwx as hwx;
pub use ferrane_llm as llm;
pub use ferrane_machine as machine;
pub use ferrane_mil as mil;
pub use ferrane_onnx as onnx;
pub use ferrane_page as page;
pub use ferrane_probe as probe;
pub use ferrane_recording as recording;
pub use ferrane_tensor_io as tensor_io;
pub use ferrane_train as train;
