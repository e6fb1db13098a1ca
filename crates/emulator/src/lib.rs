//! A software Apple Neural Engine behind the seam of `ferrane-device`.
//!
//! [`Emulator`] compiles MIL programs into plans and runs them on the CPU; surfaces are plain
//! memory. A plan knows no numerics: it is views, buffers, groups and steps. A table gives the
//! functions: [`Numerics::Fast`] rounds to fp16 where the engine stores a value,
//! [`Numerics::Exact`] keeps fp32 and is the oracle, [`Numerics::Hardware`] has the arithmetic of
//! the profile's machine as far as it is published (`ferrane_arith`; [`arithmetic`] says for which
//! ops). The law between them: a fused group equals its members bit for bit, and a sum has one
//! order for each plan, whatever the number of threads. (Not for each shape: sums down columns and
//! sums along rows associate differently, and which it is depends on how the plan laid the operand
//! out.)
//!
//! Under `hardware` the rules hold for fp16 values. What a program types fp32 is computed as `fast`
//! does: the engine has no such type. Results of ops without published rules (sin, pow, layer_norm,
//! tensor ops) are those of `fast` or `exact`, rounded as the machine rounds. Products pass the
//! machine's accumulator: exact sums of whole numbers, in vector code where no partial sum can
//! overflow (`ferrane_host::grid`), element by element where one might.
//!
//! An evaluation of a plan's own steps reuses its memory: the arena, and the scratch of each
//! thread; it takes nothing from the heap. Tensor ops and interpreted functions (below) allocate their
//! values.
//!
//! An op that a plan has no steps for is a *tensor op*: one routine over whole tensors. Functions
//! that no plan can express (unknown extents, computed shapes, lists, `cond`, `while_loop`) are
//! interpreted op by op with the same functions and the same numbers. [`support`] says which op is
//! executed how; what is not executed is refused at compile, by name and with the reason.
//!
//! Weights are snapshotted at compile; input surfaces are read at every evaluation (numerics §1). A
//! state is a port of its own: a plan reads and writes its surface in place, so a failed evaluation
//! may leave it changed; interpreted functions write states only when they succeed.
//!
//! [`Limits`] are apart from numerics. Off, which is the default, whatever can be computed is, and
//! ports are packed and in the program's order. Enforced, programs live as on the profile's
//! machine: files are staged, compiles are charged to a budget, so many programs are loaded at a
//! time, ports have the machine's order and rows, surfaces its sizes, and what it refuses fails
//! with its words. Warned of, nothing fails and `Device::notes` says what would. [`faults`] make
//! calls fail on purpose, with or without limits.
//!
//! [`Emulator::call`] runs any function on constants; single ops are evaluated through
//! `ferrane_mil::Evaluate`. [`hwx`] runs compiled programs, task by task, with the same tables.
//! [`audit`] says where a function's numbers leave the exact ones, and why.
//!
//! ```
//! use ferrane_device::{Bindings, Device};
//! use ferrane_emulator::{Emulator, EmulatorOptions};
//! use ferrane_mil::{Builder, DataType, Opset, Type};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut b = Builder::new("main", Opset::IOS18);
//! let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 2, 1, 2]))?;
//! let y = b.add("double", x, x)?;
//! let program = b.finish(&[("y", y)])?;
//!
//! let device = Device::new(Emulator::new(EmulatorOptions::default()));
//! let executable = device.load(&program, "double")?;
//! let x = device.surface(&executable.port("x")?.layout)?;
//! let y = device.surface(&executable.port("y")?.layout)?;
//! x.write_f32(&[1.0, 2.0, 3.0, 0.5])?;
//! executable.prepare(Bindings::new().bind("x", &x).bind("y", &y))?.evaluate()?;
//! assert_eq!(y.read_f32()?, [2.0, 4.0, 6.0, 1.0]);
//! # Ok(())
//! # }
//! ```
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod audit;
mod body;
mod call;
mod device;
mod events;
mod executable;
pub mod faults;
pub mod hwx;
mod interpret;
mod ir;
mod life;
mod pace;
mod plan;
mod refusal;
mod support;
mod tables;
mod tensor_ops;
mod timing;

pub use device::{Emulator, EmulatorOptions, Numerics};
pub use faults::Faults;
pub use ferrane_arith::Rules;
pub use life::{Limits, ProcessCounts};
pub use support::{Arithmetic, Support, arithmetic, support};
pub use timing::StepTime;

/// The examples of the README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;
