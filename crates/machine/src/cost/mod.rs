//! The cost model: the time of a program on a chip, and its bottleneck.
//!
//! The time of a dispatch is a fixed cost plus the time of its ops in sequence. An op of the
//! multiply-accumulate array takes the longest of three: its arithmetic at the engine's rate; the
//! streaming of those constant weights that are not loaded during the previous op; and, if its
//! operands do not fit on chip, their transfer through memory. Every other op takes the time of its
//! traffic: each operand read once, the result written once (benchmarks §15.3). Views, constants
//! and conversions at the border of the function are free, and so is an activation or a scalar
//! factor that is the only reader of a product.
//!
//! # Few constants
//!
//! There are few constants, shared as widely as the data allow. Five constants of shape are common
//! to all chips, the arithmetic rate belongs to a family, and each chip has its own dispatch cost
//! and its own streaming rate. Each constant carries its source: the fit over published kernel rows
//! (`data/cost/fitted.toml`, written by `examples/fit_cost`) or a published measurement
//! (`data/cost/published.toml`). Error and cross-validation: `docs/cost-model.md`.
//!
//! | file | content |
//! |---|---|
//! | `constants` | the constants of a chip |
//! | `demand` | arithmetic and bytes of an op |
//! | `walk` | the demands of a function's ops, without views and fused ops |
//! | `model` | the time of demands and of programs |
//! | `life` | times around an evaluation: loads, first evaluations, several requests |
//! | `step` | a training step: kernels and CPU parts |
//! | `published` | published numbers compared with predictions |
//! | `roofline`, `chart` | charts |

mod chart;
mod constants;
mod demand;
mod life;
mod model;
pub mod published;
mod report;
mod roofline;
mod step;
mod walk;

pub use constants::{Constant, Constants, ConstantsError};
pub use demand::{Demand, DemandKind};
pub use model::{Bottleneck, Cost, CostModel, OpCost, predict, predict_function};
pub use roofline::roofline_svg;
pub use step::{KernelCost, StepCost, StepParts, StepShape, predict_step};
pub use walk::{CostError, OpDemand, demands};
