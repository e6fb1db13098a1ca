//! The Neural Engine's scalar arithmetic, from measurements and from decoded compiler output.
//!
//! Everything here is a pure function of numbers and of [`Rules`], a plain struct with a switch for
//! each thing that engines do differently from IEEE arithmetic or from each other.
//! `Rules::default()` is a clean engine: fp16 between operations, wide exact sums, functions
//! rounded once, to nearest even. [`Rules::published`] reproduces the published device outputs
//! (numerics §3.1, §6.3, §11). The profile of a machine sets the switches one by one.
//!
//! Invariants:
//!
//! * An fp16 value is represented by an `f32` that holds it exactly.
//! * A function that returns an fp16 value rounds the exact result once, unless its rule is a chain
//!   of rounded steps; its documentation then lists the steps.
//! * No function panics, for any bit pattern.
//!
//! Why sums are integers: a product is a whole number of accumulator units, so a sum is exact and
//! does not depend on the order of its terms, the vector width or the number of threads. The order
//! matters only where a partial sum overflows, and then it is the order of the operands.
//!
//! ```
//! use ferrane_arith::{Function, Rules};
//! let rules = Rules::published();
//! // tanh(0.1): the device's table, not the nearest fp16 value (numerics §6.3).
//! let x = rules.rounding.f32(0.1);
//! assert_eq!(rules.function(Function::Tanh, x), Some(ferrane_arith::half(0x2e5d)));
//! // 32752 passes the accumulator's port, 32768 does not (numerics §4).
//! assert_eq!(rules.product(&[16376.0, 16376.0], &[1.0, 1.0], 0.0), 32752.0);
//! assert_eq!(rules.product(&[16384.0, 16384.0], &[1.0, 1.0], 0.0), f32::INFINITY);
//! ```
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod accumulate;
mod crop;
mod function;
mod quantize;
mod round;
mod rules;
mod softmax;
pub mod table;

pub use accumulate::{aligned_add, exact_sum};
pub use crop::CROP_LIMIT;
pub use function::Function;
pub use quantize::{dequantize, quantize};
pub use round::{Rounding, half};
pub use rules::{Accumulator, Denormals, Reduction, RoundOp, Rules, SigmoidTable};
