//! The diagnostic codes of Core AI models, 09xx.

use ferrane_diag::Code;

/// The bytes are not MLIR bytecode of a known version.
pub const NOT_BYTECODE: Code = Code(901);
/// The file ends before what it announces.
pub const TRUNCATED: Code = Code(902);
/// A part of the file violates the format.
pub const MALFORMED: Code = Code(903);
/// An index names nothing.
pub const DANGLING: Code = Code(904);
/// The folder is not a Core AI model, or one of its files cannot be read.
pub const NOT_A_FOLDER: Code = Code(905);
/// The hash of the folder is not that of the program.
pub const WRONG_HASH: Code = Code(906);

/// An extent of an input has no number.
pub const OPEN_EXTENT: Code = Code(907);
/// MIL cannot express an operation.
pub const UNMAPPED: Code = Code(908);
/// A value has to be known when the program is made.
pub const UNKNOWN_VALUE: Code = Code(909);
/// An operation contradicts itself.
pub const INVALID: Code = Code(910);

/// Core AI cannot express an op of MIL.
pub const NO_COUNTERPART: Code = Code(911);

/// Every code of the crate, in ascending order.
pub const ALL: &[Code] = &[
    NOT_BYTECODE,
    TRUNCATED,
    MALFORMED,
    DANGLING,
    NOT_A_FOLDER,
    WRONG_HASH,
    OPEN_EXTENT,
    UNMAPPED,
    UNKNOWN_VALUE,
    INVALID,
    NO_COUNTERPART,
];
