//! Program the Apple Neural Engine from Rust.
//!
//! You write a program in Core ML's Model Intermediate Language ([`mil`]), open a [`Device`] by
//! name and run it. The default device is the emulator, a software Neural Engine that works on any
//! computer; on a Mac the same program goes to the engine.
//!
//! ```
//! use ferrane::mil::{Builder, DataType, Opset, Type};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut b = Builder::new("main", Opset::IOS18);
//! let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 4, 1, 8]))?;
//! let y = b.op("sigmoid", "y", [("x", x.into())])?;
//! let program = b.finish(&[("y", y)])?;
//!
//! let device = ferrane::open("emulator")?;
//! let executable = device.load(&program, "sigmoid")?;
//! let input = device.surface(&executable.port("x")?.layout)?;
//! let output = device.surface(&executable.port("y")?.layout)?;
//! input.write_f32(&[0.0; 32])?;
//! executable.prepare(ferrane::Bindings::new().bind("x", &input).bind("y", &output))?.evaluate()?;
//! assert_eq!(output.read_f32()?, [0.5; 32]);
//! # Ok(())
//! # }
//! ```
//!
//! This crate is the curated surface; the crates below it may change between versions.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

/// The engine's frameworks on this computer: what they say of themselves, their classes, the
/// compiler.
pub mod engine {
    pub use ferrane_ane::{Facts, aot, classes, facts};
}
mod open;

pub use ferrane_ane::isolate;
pub use ferrane_device::{
    Artifact, Bindings, BoundProcedure, Call, CompileOptions, Device, Error, ErrorKind, Executable, Layout, Port,
    Procedure, ProgramSource, Request, Result, Returned, Stats, Submission, Surface, Tensor, Tensors, fits_surfaces,
};
pub use ferrane_diag as diag;
pub use ferrane_emulator::hwx::Interpreter;
pub use ferrane_emulator::{Emulator, Numerics, StepTime, audit, faults};
pub use ferrane_host as host;
pub use ferrane_hwx as hwx;
pub use ferrane_llm as llm;
pub use ferrane_machine as machine;
pub use ferrane_mil as mil;
pub use ferrane_probe as probe;
pub use ferrane_recording as recording;
pub use ferrane_tensor_io as tensor_io;
pub use ferrane_train as train;
pub use open::{DeviceInfo, devices, emulator, open};

/// The examples of the README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;
