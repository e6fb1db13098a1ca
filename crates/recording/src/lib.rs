//! Recordings: what a machine computed for a program, in a file, to replay and compare elsewhere.
//!
//! Few people have every chip. A recording holds a program with its weights, the inputs, the
//! outputs bit for bit, the times and the machine, or the error with which the machine refused, in
//! one file ([`Recording`], docs/recordings.md). It is replayed on any device ([`replay`]), and
//! each output is compared in units in the last place of its type ([`ulp`], [`compare`]).
//!
//! A recording is a `.safetensors` file, because that format is documented, widely read, bounded (a
//! header, then bytes that it accounts for exactly) and can be mapped. This crate defines only
//! which tensors there are, and one JSON text.
//!
//! This crate knows the seam and no backend.
//!
//! ```
//! use ferrane_device::{Device, Tensor, Tensors};
//! use ferrane_emulator::{Emulator, EmulatorOptions};
//! use ferrane_mil::{Builder, DataType, Opset, Type};
//! use ferrane_recording::{Job, Recording, read, replay, write_to};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut b = Builder::new("main", Opset::IOS18);
//! let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 4]))?;
//! let y = b.op("sigmoid", "y", [("x", x.into())])?;
//! let program = b.finish(&[("y", y)])?;
//!
//! let device = Device::new(Emulator::new(EmulatorOptions::default()));
//! let inputs = Tensors::from([("x", Tensor::fp16(&[1, 4], &[0.0, 1.0, 2.0, 3.0])?)]);
//! let states = Tensors::new();
//! let job = Job { program: &program, function: "main", label: "sigmoid", inputs: &inputs, states: &states, runs: 1 };
//! let mut file = Vec::new();
//! write_to(&Recording::record(&device, "emulator", &job)?, &mut file)?;
//!
//! // Elsewhere, from the file alone; with a tolerance of 0 the bits must agree.
//! let recording = read(file)?;
//! assert!(replay(&recording, &recording.program()?, &device, 0, 1).agrees());
//! # Ok(())
//! # }
//! ```
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod compare;
mod extract;
mod file;
mod header;
mod recording;
mod replay;
mod report;
mod run;
pub mod suite;
mod summary;
pub mod ulp;

pub use extract::{ExtractError, extract};
pub use file::{RecordingError, open, read, write, write_to};
pub use header::{Header, Machine, Origin, Outcome, VERSION};
pub use recording::Recording;
pub use replay::{Answer, Replay, replay};
pub use report::{Expectation, ReplayReport, ReplayRow, ReplayTable};
pub use run::{Failure, Job, Ran, Stage, run};
pub use summary::Summary;
