//! Why a measurement failed.

use ferrane_host::gemm::GemmError;
use ferrane_llm::forward::Error as DecodeError;
use ferrane_mil::MilError;
use ferrane_train::step::StepError;

/// Result of a measurement.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option has a value that cannot be measured.
    #[error("`{option}` {value}: {reason}")]
    Option {
        /// The option's name, as the field of the options is called: `repeat`.
        option: &'static str,
        /// The refused value, as text.
        value: String,
        /// Why, and what to give instead.
        reason: String,
    },
    /// The system has no memory for the operands.
    #[error("cannot allocate {} MiB for {purpose}", .bytes >> 20)]
    OutOfMemory {
        /// Bytes that were requested.
        bytes: usize,
        /// What they were for.
        purpose: &'static str,
    },
    /// A result is wrong or not finite, so that its time means nothing.
    #[error("{0}")]
    WrongResult(String),
    /// The device failed to compile, load, prepare or evaluate.
    #[error("{0}")]
    Device(#[from] ferrane_device::Error),
    /// A matrix product failed.
    #[error("{0}")]
    Gemm(#[from] GemmError),
    /// The measured program could not be built.
    #[error("{0}")]
    Build(#[from] MilError),
    /// The inputs of the measured function could not be made.
    #[error("{0}")]
    Arguments(#[from] ferrane_tensor_io::Error),
    /// A training step failed.
    #[error("{0}")]
    Step(#[from] StepError),
    /// The decoder failed to compile its programs or to feed a token.
    #[error("{0}")]
    Decode(#[from] DecodeError),
    /// The measurement was stopped.
    #[error("it was stopped")]
    Stopped,
    /// A plot could not be drawn.
    #[error("plot: {0}")]
    Plot(String),
}

impl Error {
    /// An option that cannot be measured.
    pub(crate) fn option(option: &'static str, value: impl ToString, reason: impl Into<String>) -> Error {
        Error::Option { option, value: value.to_string(), reason: reason.into() }
    }
}
