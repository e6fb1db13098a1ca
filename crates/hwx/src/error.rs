//! What can be wrong with a file.

use std::fmt;

use ferrane_diag::Code;

/// The result of reading.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One thing that is wrong with a file: what, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Its kind.
    pub code: Code,
    /// The byte of what was read: a file, or a section alone. `None` where nothing was read, but
    /// something is wanted.
    pub offset: Option<u64>,
    /// What, in one sentence without a full stop.
    pub message: String,
    /// The way out.
    pub help: &'static str,
}

impl Error {
    /// The file is shorter than what it says, or is something else.
    pub(crate) fn header(offset: usize, message: impl Into<String>) -> Error {
        let help = "is it a compiled program, and whole? `.hwx` files begin with ce fa ef be or cf fa ed fe";
        Error { code: Code(701), offset: Some(offset as u64), message: message.into(), help }
    }

    /// A load command is not what its kind promises.
    pub(crate) fn command(offset: usize, message: impl Into<String>) -> Error {
        let help = "the command's size or one of its offsets is wrong; compare with a file of the same compiler";
        Error { code: Code(702), offset: Some(offset as u64), message: message.into(), help }
    }

    /// A range of the file is outside of it, or taken twice.
    pub(crate) fn range(offset: u64, message: impl Into<String>) -> Error {
        let help =
            "the file is cut off or its offsets were edited: each range must lie in the file, and no two may overlap";
        Error { code: Code(703), offset: Some(offset), message: message.into(), help }
    }

    /// The stream of task descriptors cannot be followed.
    pub(crate) fn stream(offset: usize, message: impl Into<String>) -> Error {
        let help = "the generation may be another one, or a size in a header is wrong; `raw` words in the text keep such a stream";
        Error { code: Code(704), offset: Some(offset as u64), message: message.into(), help }
    }

    /// Weights or a table are not what the registers or the shape say.
    pub(crate) fn kernel(offset: Option<u64>, message: impl Into<String>) -> Error {
        let help = "compare the shape with the task's registers; what is read and written stands in docs/hwx.md";
        Error { code: Code(705), offset, message: message.into(), help }
    }

    /// A program that was asked for cannot be made.
    pub(crate) fn request(message: impl Into<String>) -> Error {
        let help = "what can be made stands in docs/hwx.md; ask for less, or split the operation";
        Error { code: Code(720), offset: None, message: message.into(), help }
    }

    /// A file for the Linux driver says sizes that do not go together.
    pub(crate) fn anec(offset: usize, message: impl Into<String>) -> Error {
        let help =
            "is it an `.anec` file, and whole? its header has 0x6a8 bytes, its payload begins at 0x1000 or 0x800";
        Error { code: Code(722), offset: Some(offset as u64), message: message.into(), help }
    }

    /// A program cannot be written for the Linux driver, or a file of the driver as a container.
    pub(crate) fn driver(offset: u64, message: impl Into<String>) -> Error {
        let help = "compile it for H13, with one program and 28 inputs and outputs at most; `ferrane disasm` shows what the file has";
        Error { code: Code(721), offset: Some(offset), message: message.into(), help }
    }

    /// What should be a FlatBuffer is none.
    pub(crate) fn flat(offset: usize, message: impl Into<String>) -> Error {
        let help = "is it a FlatBuffer, and whole? its first four bytes are the place of its root table";
        Error { code: Code(730), offset: Some(offset as u64), message: message.into(), help }
    }

    /// A part of a bundle is not what its kind promises.
    pub(crate) fn bundle(offset: usize, message: impl Into<String>) -> Error {
        let help =
            "the file is cut off, or of a version that nobody has described; compare with one of the same system";
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
