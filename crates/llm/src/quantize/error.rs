//! Why a model cannot be quantized or written.

use crate::{reference, save, weights};

/// Why a model cannot be quantized or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The weights do not fit the configuration.
    #[error(transparent)]
    Weights(#[from] weights::Error),
    /// A token of the calibration text does not fit the model.
    #[error(transparent)]
    Reference(#[from] reference::Error),
    /// The GGUF file cannot be read or written.
    #[error(transparent)]
    Gguf(#[from] ferrane_gguf::Error),
    /// Memory for a product cannot be allocated.
    #[error(transparent)]
    Product(#[from] ferrane_host::gemm::GemmError),
    /// A weight exceeds the range of fp16, or is not finite.
    #[error("`{name}` has the value {value}, which fp16 does not hold")]
    Range {
        /// The tensor, as [`weights::Slot::name`] names it.
        name: String,
        /// The first such value.
        value: f32,
    },
    /// The file format cannot hold the model in this form.
    #[error("{reason}")]
    Unwritable {
        /// What the format lacks, and what to do.
        reason: String,
    },
    /// The target may not be replaced, or the files cannot be written.
    #[error(transparent)]
    Save(#[from] save::Error),
    /// The caller's `progress` returned false; nothing was written.
    #[error("stopped; nothing is written")]
    Cancelled,
}
