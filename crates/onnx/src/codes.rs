//! The diagnostic codes of ONNX models, 08xx.

use ferrane_diag::Code;

/// The bytes are not an ONNX model.
pub const NOT_A_MODEL: Code = Code(801);
/// The model contradicts itself.
pub const INVALID_MODEL: Code = Code(802);
/// The model's format or opset is of a version that is not known.
pub const UNKNOWN_VERSION: Code = Code(803);
/// A file of the model cannot be read.
pub const EXTERNAL_DATA: Code = Code(804);
/// An extent of an input has no number.
pub const OPEN_DIMENSION: Code = Code(805);
/// MIL cannot express a node.
pub const UNMAPPED_NODE: Code = Code(806);
/// A value has to be known when the program is made.
pub const NOT_KNOWN: Code = Code(807);

/// Every code of the crate, in ascending order.
pub const ALL: &[Code] =
    &[NOT_A_MODEL, INVALID_MODEL, UNKNOWN_VERSION, EXTERNAL_DATA, OPEN_DIMENSION, UNMAPPED_NODE, NOT_KNOWN];
