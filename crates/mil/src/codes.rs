//! The diagnostic codes of the language: 01xx about the text, 02xx about names and types, 03xx
//! about weights.
//!
//! A code is stable: scripts match on it, and `ferrane explain` gives its long answer. Errors and
//! warnings share the numbering; a code that is always a warning says so here.

use ferrane_diag::Code;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        $($(#[$doc])* pub const $name: Code = Code($number);)*

        /// Every code of the language, in ascending order.
        pub const ALL: &[Code] = &[$($name),*];
    };
}

codes! {
    /// The bytes are not UTF-8 text, or begin with a byte order mark.
    NOT_TEXT = 101;
    /// The grammar expects another token here.
    UNEXPECTED_TOKEN = 102;
    /// The header `program(MAJOR.MINOR)` is malformed, or its version is not known.
    PROGRAM_HEADER = 103;
    /// The text, an extent, a rank or the nesting of types, literals or blocks is over a limit.
    TOO_LARGE = 104;
    /// A string has an escape that the format does not have.
    MALFORMED_STRING = 105;
    /// An argument is given by position; MIL has named arguments only.
    POSITIONAL_ARGUMENT = 106;
    /// A literal has no type in front of its value.
    UNTYPED_LITERAL = 107;
    /// A number is malformed or outside the range of its type.
    MALFORMED_NUMBER = 108;
    /// The file is in a format other than MIL text.
    FOREIGN_FORMAT = 109;
    /// Warning: version, opset and spelling contradict each other.
    MIXED_DIALECTS = 110;
    /// The opset tag is not known. A warning about a text, whose ops are then not checked; an error
    /// where a program is built or compiled.
    UNKNOWN_OPSET = 111;
    /// A name is not an identifier, or is defined twice.
    INVALID_NAME = 201;
    /// A value is used where it is not defined.
    UNDEFINED_VALUE = 202;
    /// A type does not exist, or a literal does not have its type.
    INVALID_TYPE = 203;
    /// The registry has no such op in this opset. A warning about a text.
    UNKNOWN_OP = 204;
    /// The op has no such argument in this opset.
    UNKNOWN_ARGUMENT = 205;
    /// A required argument is absent.
    MISSING_ARGUMENT = 206;
    /// An argument is given twice.
    DUPLICATE_ARGUMENT = 207;
    /// An argument has an element type, rank or kind that the signature does not accept.
    ARGUMENT_TYPE = 208;
    /// An argument must be known at compile time and is not.
    NOT_CONSTANT = 209;
    /// The extents or values of the arguments do not fit together.
    SHAPE_MISMATCH = 210;
    /// A result is declared with a type other than the one the op computes.
    RESULT_TYPE = 211;
    /// The bytes of a constant disagree with its type, or its weight is missing.
    INVALID_CONSTANT = 212;
    /// A function uses something that another opset or dialect does not have.
    NOT_IN_OPSET = 213;
    /// The program breaks an invariant of its data structure.
    INVALID_PROGRAM = 290;
    /// A blob file that the program names was not found.
    MISSING_BLOB_FILE = 301;
    /// A blob file has no record at the offset that fits the constant.
    INVALID_BLOB_RECORD = 302;
    /// Warning: a record is readable but contradicts itself.
    ODD_BLOB_RECORD = 303;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_ascend_and_are_in_the_ranges_of_the_language() {
        assert!(ALL.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(ALL.iter().all(|code| (100..400).contains(&code.0)));
    }
}
