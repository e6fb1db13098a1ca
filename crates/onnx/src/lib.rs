//! ONNX models as MIL programs.
//!
//! [`Model::open`] reads a `.onnx` file with its external data and checks it; [`Model::to_mil`]
//! makes a [`Program`](ferrane_mil::Program) of it, which runs on every device and is written as a
//! package like any other.
//!
//! ```
//! use ferrane_onnx::{Model, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let bytes = include_bytes!("../tests/models/mlp.onnx");
//! let model = Model::from_bytes(bytes, None)?;
//! for input in model.inputs() {
//!     println!("{}: {:?}", input.name, input.shape);
//! }
//! let program = model.to_mil(&Options::default().dimension("batch", 1))?;
//! assert_eq!(program.functions[0].name, "main");
//! # Ok(())
//! # }
//! ```
//!
//! # What becomes of a model
//!
//! - **Operators.** Each operator of `ai.onnx` from opset 7 to 27, and the common ones of
//!   `com.microsoft`, is one op of MIL or a short composition of ops. [`operators`] lists them with
//!   the reasons why some have none. What a model has of those is reported at once, node by node
//!   ([`Refusals`]). Functions of the model are inlined.
//! - **Extents.** A program has fixed extents. Named extents get their numbers from
//!   [`Options::dimensions`]; arithmetic on shapes is then computed when the program is made.
//! - **Types.** INT64 and the narrow integers are int32, DOUBLE and BFLOAT16 are fp32, because MIL
//!   computes with no others; FLOAT stays fp32 unless [`Options::precision`] says otherwise. A
//!   constant that does not fit is refused.
//! - **Quantized models.** Constant weights stay compressed as `constexpr_*` ops where MIL can say
//!   it. Other quantization is computed: `quantize` and `dequantize` for 8 bits, arithmetic for the
//!   rest.
//! - **Control flow.** `If` becomes `cond`, or one of its branches if the condition is known.
//!   `Loop` and `Scan` are unrolled if their counts are known and small; a `Loop` without scan
//!   outputs otherwise becomes `while_loop`.
//!
//! # Hostile files
//!
//! Sizes are checked before anything is allocated, nesting and the growth by functions and loops
//! are bounded, external data stay in the model's folder. A model that breaks a rule is an
//! [`Error`] or a [`Refusal`], never a panic.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod codes;
mod element;
mod error;
mod external;
mod graph;
mod inline;
mod lower;
mod model;
mod opened;
mod options;
pub mod proto;
mod tensor;

pub use element::ElementType;
pub use error::{Error, Refusal, Refusals};
pub use ferrane_mil::port_names;
pub use graph::{Dimension, Port};
pub use lower::operators;
pub use model::Model;
pub use opened::{is_model, open_checked};
pub use options::{Options, Precision};
pub use tensor::Tensor;
