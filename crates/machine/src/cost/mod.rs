//! The cost model: how long a program takes on a chip, and what bounds it.
//!
//! The time of a dispatch is a floor plus the time of its ops, one after another. An op of the
//! multiply-accumulate array takes the longest of three: its arithmetic at the engine's rate, the
//! part of its constant weights that does not fit the buffer behind the previous op's work, and, if
//! its operands do not fit on chip, their way through memory. Every other op takes the time of its
//! traffic: each operand read once, the result written once (benchmarks §15.3). Views, constants
//! and conversions at the border of the function are free, and so is an activation or a scalar
//! factor that alone reads a product.
//!
//! The one decision: *few constants, shared as widely as the data allow*. Five numbers of shape are
//! one for all chips, the arithmetic rate is one for a family, a chip has its own floor and its own
//! rate of streaming. Each constant carries its source: the fit over published kernel rows
//! (`data/cost/fitted.toml`, written by `examples/fit_cost`) or a published measurement
//! (`data/cost/published.toml`). Error and cross-validation: `docs/cost-model.md`.
//!
//! | file | content |
//! |---|---|
//! | `constants` | the constants of a chip |
//! | `demand` | what an op asks of the machine |
//! | `walk` | the demands of a function's ops, views and fused ops left out |
//! | `model` | the time of demands and of programs |
//! | `step` | a training step: kernels and CPU parts |
//! | `published` | published numbers against predicted ones |
//! | `roofline`, `chart` | pictures |

mod chart;
mod constants;
mod demand;
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
pub use step::{KernelCost, StepCost, StepShape, predict_step};
pub use walk::{CostError, OpDemand, demands};
