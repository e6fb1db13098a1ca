//! One failed operation: kind, the machine's raw words, and what to do about it.

use std::borrow::Cow;
use std::fmt;

use crate::catalog::{self, Row};

/// Result of the seam.
pub type Result<T> = std::result::Result<T, Error>;

/// What failed. The engine's own domain, code and status are kept beside it (apple-runtime §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The program is not valid MIL (`InvalidMILProgram`).
    InvalidProgram,
    /// The machine has no way to run an op or shape (`ANECCompile() FAILED`).
    Unsupported,
    /// The compile budget of the process is spent.
    CompileBudget,
    /// A compiled program could not be loaded.
    Load,
    /// An evaluation failed (`status=0x1d` and others).
    Evaluate,
    /// A surface or port does not fit: size, type, name, missing or twice.
    Binding,
    /// A layout that cannot be.
    Layout,
    /// A surface or request is in use.
    Busy,
    /// The queue holds as many requests as it can.
    QueueFull,
    /// The executable was unloaded.
    Unloaded,
    /// The device, or an ability of it, is not here.
    Unavailable,
    /// An option that is unknown or has a wrong value.
    Option,
    /// Memory could not be had.
    OutOfMemory,
    /// The system below failed in a way of its own.
    System,
    /// The process that the device ran in has died or hung.
    Crashed,
}

impl ErrorKind {
    /// The stable code of the kind, `E06xx`.
    pub fn code(self) -> &'static str {
        match self {
            ErrorKind::InvalidProgram => "E0601",
            ErrorKind::Unsupported => "E0602",
            ErrorKind::CompileBudget => "E0603",
            ErrorKind::Load => "E0604",
            ErrorKind::Evaluate => "E0605",
            ErrorKind::Binding => "E0606",
            ErrorKind::Layout => "E0607",
            ErrorKind::Busy => "E0608",
            ErrorKind::QueueFull => "E0609",
            ErrorKind::Unloaded => "E0610",
            ErrorKind::Unavailable => "E0611",
            ErrorKind::Option => "E0612",
            ErrorKind::OutOfMemory => "E0613",
            ErrorKind::System => "E0614",
            ErrorKind::Crashed => "E0615",
        }
    }
}

/// What to do about a kind of failure, one or two sentences.
pub fn remedy(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidProgram => {
            "Read the message: it names the op or the line. `print` the program to see what was compiled."
        }
        ErrorKind::Unsupported => {
            "Replace the op or shape by one that the machine has; docs/ops.md says what the emulator runs."
        }
        ErrorKind::CompileBudget => {
            "Compile fewer programs: pass weights as inputs, share executables, or restart the process."
        }
        ErrorKind::Load => "Unload executables you no longer use, then compile and load again.",
        ErrorKind::Evaluate => "Check that every surface has the size and order that the executable's ports report.",
        ErrorKind::Binding => "Allocate surfaces from the executable's ports and bind each port once, by name.",
        ErrorKind::Layout => "Take the layout from the port (`Executable::procedures`) instead of computing it.",
        ErrorKind::Busy => "Drop guards and wait for requests that use the surface before you touch it.",
        ErrorKind::QueueFull => "Wait for a submitted request before you submit another.",
        ErrorKind::Unloaded => "Load the artifact again.",
        ErrorKind::Unavailable => "Use the emulator (`emulator`), which runs everywhere.",
        ErrorKind::Option => "See the options that the message lists.",
        ErrorKind::OutOfMemory => "Use smaller shapes, or free executables and surfaces.",
        ErrorKind::Crashed => {
            "Load or reload the program: it gets a fresh process. If it dies there too, change the program; if it was only slow, give \
             `isolate` more seconds."
        }
        ErrorKind::System => "The raw domain and code are the system's own; they may help in a search.",
    }
}

/// One failed operation.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    domain: Option<Cow<'static, str>>,
    code: Option<i64>,
    status: Option<u32>,
    row: Option<&'static Row>,
    port: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of that kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(Box::new(Inner {
            kind,
            message: message.into(),
            domain: None,
            code: None,
            status: None,
            row: None,
            port: None,
            source: None,
        }))
    }

    /// What a machine's own words mean: the kind, the meaning and the remedy come from the
    /// [`catalog`], the status word from the text. Words that the catalog does not know give
    /// [`ErrorKind::System`].
    pub fn from_raw(domain: impl Into<Cow<'static, str>>, code: i64, text: &str) -> Error {
        let domain = domain.into();
        let row = catalog::find(&domain, code, text);
        let message = match row {
            Some(row) if text.is_empty() => row.meaning.to_string(),
            Some(row) => format!("{text} ({})", row.meaning),
            None => text.to_string(),
        };
        let kind = row.map_or(ErrorKind::System, |r| r.kind);
        let mut error = Error::new(kind, message).with_raw(domain, code, catalog::status(text));
        error.0.row = row;
        error
    }

    pub(crate) fn busy(wish: &str, state: &str) -> Error {
        Error::new(ErrorKind::Busy, format!("the surface cannot be {wish} while it is {state}"))
    }

    /// Adds the machine's own domain and code.
    #[must_use]
    pub fn with_raw(mut self, domain: impl Into<Cow<'static, str>>, code: i64, status: Option<u32>) -> Error {
        self.0.domain = Some(domain.into());
        self.0.code = Some(code);
        self.0.status = status;
        self
    }

    /// Adds the words that the engine has for this failure, by the id of their row in the
    /// [`catalog`]; kind and message stay. For what is refused before the engine sees it, so that
    /// it reads as the engine's refusal does (numerics §1). Rows of the compiler without a domain
    /// of their own come with `ANECCompile() FAILED`, so they get its domain and code
    /// (apple-runtime §4).
    #[must_use]
    pub fn with_row(self, id: &str) -> Error {
        let Some(row) = catalog::named(id) else { return self };
        let domain = row.domain.unwrap_or(catalog::COMPILER);
        let mut error = self.with_raw(domain, row.code.unwrap_or(1), row.status);
        error.0.row = Some(row);
        error
    }

    /// Puts the label of a program in front of the message.
    #[must_use]
    pub fn labeled(mut self, label: &str) -> Error {
        self.0.message = format!("{label}: {}", self.0.message);
        self
    }

    /// Adds the port at fault.
    #[must_use]
    pub fn with_port(mut self, port: impl Into<String>) -> Error {
        self.0.port = Some(port.into());
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        self.0.source = Some(source.into());
        self
    }

    /// What failed.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The message without decoration.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The machine's error domain, `com.apple.appleneuralengine` for example.
    pub fn domain(&self) -> Option<&str> {
        self.0.domain.as_deref()
    }

    /// The machine's error code.
    pub fn raw_code(&self) -> Option<i64> {
        self.0.code
    }

    /// The engine's status word, `0x1d` for example.
    pub fn status(&self) -> Option<u32> {
        self.0.status
    }

    /// The port at fault.
    pub fn port(&self) -> Option<&str> {
        self.0.port.as_deref()
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        self.0.row.map_or_else(|| remedy(self.0.kind), |row| row.remedy)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.kind.code(), self.0.message)?;
        if let Some(port) = &self.0.port {
            write!(f, " (port `{port}`)")?;
        }
        if let (Some(domain), Some(code)) = (&self.0.domain, self.0.code) {
            write!(f, " [{domain} code {code}")?;
            if let Some(status) = self.0.status {
                write!(f, " status={status:#x}")?;
            }
            f.write_str("]")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|e| e as &(dyn std::error::Error + 'static))
    }
}
