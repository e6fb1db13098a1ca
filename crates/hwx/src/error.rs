//! Errors of reading, converting and building files, one code for each kind.

use std::fmt;

use ferrane_diag::Code;

/// The result of a fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One defect of a file: code, position, message and remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// E0701 to E0705, E0720 to E0722, E0730 or E0731.
    pub code: Code,
    /// The byte offset in the input, which may be a file or a single section. `None` if the error
    /// has no position in an input.
    pub offset: Option<u64>,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// What to do about it.
    pub help: &'static str,
}

impl Error {
    /// E0701: the file is shorter than its header announces, or has another format.
    pub(crate) fn header(offset: usize, message: impl Into<String>) -> Error {
        let help = "is it a compiled program, and whole? `.hwx` files begin with ce fa ef be or cf fa ed fe";
        Error { code: Code(701), offset: Some(offset as u64), message: message.into(), help }
    }

    /// E0702: a load command violates the layout of its kind.
    pub(crate) fn command(offset: usize, message: impl Into<String>) -> Error {
        let help = "the command's size or one of its offsets is wrong; compare with a file of the same compiler";
        Error { code: Code(702), offset: Some(offset as u64), message: message.into(), help }
    }

    /// E0703: a range lies outside of the file, or overlaps another.
    pub(crate) fn range(offset: u64, message: impl Into<String>) -> Error {
        let help =
            "the file is cut off or its offsets were edited: each range must lie in the file, and no two may overlap";
        Error { code: Code(703), offset: Some(offset), message: message.into(), help }
    }

    /// E0704: the chain of task descriptors is broken.
    pub(crate) fn stream(offset: usize, message: impl Into<String>) -> Error {
        let help = "the generation may be another one, or a size in a header is wrong; the text form keeps such a section as bytes";
        Error { code: Code(704), offset: Some(offset as u64), message: message.into(), help }
    }

    /// E0705: weights or a table disagree with the registers or the shape.
    pub(crate) fn kernel(offset: Option<u64>, message: impl Into<String>) -> Error {
        let help = "compare the shape with the task's registers; docs/hwx.md lists the supported layouts";
        Error { code: Code(705), offset, message: message.into(), help }
    }

    /// E0720: the requested program cannot be built.
    pub(crate) fn request(message: impl Into<String>) -> Error {
        let help = "docs/hwx.md lists what can be built; reduce the request or split the operation";
        Error { code: Code(720), offset: None, message: message.into(), help }
    }

    /// E0722: the sizes in a file for the Linux driver contradict each other.
    pub(crate) fn anec(offset: usize, message: impl Into<String>) -> Error {
        let help =
            "is it an `.anec` file, and whole? its header has 0x6a8 bytes, its payload begins at 0x1000 or 0x800";
        Error { code: Code(722), offset: Some(offset as u64), message: message.into(), help }
    }

    /// E0721: a program cannot be converted to the Linux driver's format, or a file of the driver
    /// to a container.
    pub(crate) fn driver(offset: u64, message: impl Into<String>) -> Error {
        let help = "compile it for H13, with one program and at most 28 inputs and outputs; `ferrane disasm` shows what the file has";
        Error { code: Code(721), offset: Some(offset), message: message.into(), help }
    }

    /// E0730: the bytes are not a FlatBuffer.
    pub(crate) fn flat(offset: usize, message: impl Into<String>) -> Error {
        let help = "is it a FlatBuffer, and whole? its first four bytes are the offset of its root table";
        Error { code: Code(730), offset: Some(offset as u64), message: message.into(), help }
    }

    /// E0731: a file of a bundle violates its format.
    pub(crate) fn bundle(offset: usize, message: impl Into<String>) -> Error {
        let help = "the file is truncated, or its version is unknown; compare with one of the same system";
        Error { code: Code(731), offset: Some(offset as u64), message: message.into(), help }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (", self.code, self.message)?;
        if let Some(offset) = self.offset {
            write!(f, "at {offset:#x}; ")?;
        }
        write!(f, "{})", self.help)
    }
}

impl std::error::Error for Error {}
