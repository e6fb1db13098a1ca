//! A software Apple Neural Engine: a backend of `ferrane-device` that works on any computer.
//!
//! [`Emulator`] compiles MIL programs into plans and runs them on the CPU; surfaces are ordinary
//! memory.
//!
//! ```
//! use ferrane_device::{Call, Device, Tensor};
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
//! let x = Tensor::fp16(&[1, 2, 1, 2], &[1.0, 2.0, 3.0, 0.5])?;
//! let returned = device.call(&program, Call::new().input("x", x))?;
//! assert_eq!(returned.get("y")?.to_f32(), [2.0, 4.0, 6.0, 1.0]);
//! # Ok(())
//! # }
//! ```
//!
//! # Numerics
//!
//! A plan knows no numerics: it consists of views, buffers, groups and steps. A table supplies the
//! functions:
//!
//! - [`Numerics::Fast`] computes in fp32 within an op and rounds to fp16 where the engine stores a
//!   value.
//! - [`Numerics::Exact`] keeps fp32 throughout and is the oracle.
//! - [`Numerics::Hardware`] follows the arithmetic of the profile's machine as far as it is
//!   published (`ferrane_arith`); [`arithmetic`] says for which ops.
//!
//! Under every table, a fused group equals its members bit for bit, and a sum has one order for
//! each plan, whatever the number of threads. The order is not fixed for each shape: sums down
//! columns and sums along rows associate differently, and the plan's layout of the operand decides
//! which of the two it is.
//!
//! The rules of `hardware` hold for fp16 values. What a program types fp32 is computed as under
//! `fast`, because the engine has no such type. Results of ops without published rules (sin, pow,
//! layer_norm, tensor ops) are those of `fast` or `exact`, rounded as the machine rounds. Products
//! pass the machine's accumulator: exact sums of whole numbers, in vector code where no partial sum
//! can overflow (`ferrane_host::grid`), element by element where one might.
//!
//! # What is executed, and how
//!
//! [`support`] says how each op is executed; a compile refuses other ops by name and with the
//! reason.
//!
//! - A *plan* runs its own steps without allocating: evaluations reuse the arena and each thread's
//!   scratch.
//! - A *tensor op* is a routine over whole tensors, for ops that no plan step expresses. It
//!   allocates its results.
//! - Functions that no plan can express (unknown extents, computed shapes, lists, `cond`,
//!   `while_loop`) are *interpreted* op by op, with the same routines and the same numbers.
//!
//! Weights are copied at compile; input surfaces are read at every evaluation (numerics §1). A
//! state is a port of its own. A plan reads and writes a state's surface in place, so a failed
//! evaluation may leave it changed; interpreted functions write states only when they succeed.
//!
//! # Limits and faults
//!
//! [`Limits`] are independent of numerics.
//!
//! - *Off*, the default: whatever can be computed is computed, and ports are packed and in the
//!   program's order.
//! - *Enforce*: programs live as on the profile's machine. Files are staged, compiles are charged
//!   to a budget, the number of loaded programs is bounded, ports have the machine's order and
//!   rows, surfaces its sizes, and what the machine refuses fails with its words.
//! - *Warn*: nothing fails, and `Device::notes` lists what would.
//!
//! [`faults`] make chosen calls fail on purpose, with or without limits.
//!
//! # Where to look next
//!
//! [`Emulator::call`] runs any function on constants, and the emulator implements
//! `ferrane_mil::Evaluate` for single ops. [`hwx`] runs compiled programs task by task with the
//! same tables. [`audit`] reports where a function's numbers deviate from the exact ones, and why.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod audit;
mod call;
mod device;
mod events;
mod executable;
pub mod faults;
mod function;
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
