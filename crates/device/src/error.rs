//! A failed operation: kind, the machine's raw error, and a remedy.

use std::borrow::Cow;
use std::fmt;

use crate::catalog::{self, Row};

/// The result of an operation on a device.
pub type Result<T> = std::result::Result<T, Error>;

macro_rules! error_kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident = $code:literal,)+) => {
        /// The kind of a failure. The engine's own domain, code and status are kept in addition
        /// (apple-runtime §4).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[doc = $doc])+ $kind,)+
        }

        impl ErrorKind {
            /// Every kind, in the order of the codes.
            pub const ALL: &[ErrorKind] = &[$(ErrorKind::$kind),+];

            /// The stable code of the kind, from `E0601` to `E0615`.
            pub fn code(self) -> &'static str {
                match self {
                    $(ErrorKind::$kind => $code,)+
                }
            }
        }
    };
}

error_kinds! {
    /// The program is not valid MIL (`InvalidMILProgram`).
    InvalidProgram = "E0601",
    /// The machine has no way to run an op or shape (`ANECCompile() FAILED`).
    Unsupported = "E0602",
    /// The compile budget of the process is spent.
    CompileBudget = "E0603",
    /// A compiled program could not be loaded.
    Load = "E0604",
    /// An evaluation failed (`status=0x1d` and others).
    Evaluate = "E0605",
    /// A surface or port does not match: size, type, name, missing or bound twice.
    Binding = "E0606",
    /// A layout is invalid.
    Layout = "E0607",
    /// A surface or request is in use.
    Busy = "E0608",
    /// The queue holds as many requests as it can.
    QueueFull = "E0609",
    /// The executable was unloaded.
    Unloaded = "E0610",
    /// The device, or a feature of it, is not available here.
    Unavailable = "E0611",
    /// An option is unknown or has an invalid value.
    Option = "E0612",
    /// Memory could not be allocated.
    OutOfMemory = "E0613",
    /// The underlying system failed with an error of its own.
    System = "E0614",
    /// The process that the device runs in has died or hung.
    Crashed = "E0615",
}

/// The remedy for a kind of failure, in one or two sentences.
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
            "Load or reload the program: it gets a new process. If it dies there too, change the program; if it was only slow, give \
             `isolate` more seconds."
        }
        ErrorKind::System => "The raw domain and code are the system's own; they may help in a search.",
    }
}

/// A failed operation: kind, message, raw error, port and cause.
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
    /// An error with a kind and a message.
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

    /// Classifies a machine's raw error: kind, meaning and remedy come from the [`catalog`], the
    /// status word from the text. An error that the catalog does not contain is
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

    /// Adds the machine's raw domain and code.
    #[must_use]
    pub fn with_raw(mut self, domain: impl Into<Cow<'static, str>>, code: i64, status: Option<u32>) -> Error {
        self.0.domain = Some(domain.into());
        self.0.code = Some(code);
        self.0.status = status;
        self
    }

    /// Adds the engine's raw error for this failure, by the id of its row in the [`catalog`]; kind
    /// and message are unchanged. It is for requests that are refused before the engine sees them,
    /// so the refusal looks like the engine's (numerics §1). Compiler rows without their own domain
    /// appear with `ANECCompile() FAILED`, so they get its domain and code (apple-runtime §4).
    #[must_use]
    pub fn with_row(self, id: &str) -> Error {
        let Some(row) = catalog::named(id) else { return self };
        let domain = row.domain.unwrap_or(catalog::COMPILER);
        let mut error = self.with_raw(domain, row.code.unwrap_or(1), row.status);
        error.0.row = Some(row);
        error
    }

    /// Prefixes the message with the label of a program.
    #[must_use]
    pub fn labeled(mut self, label: &str) -> Error {
        self.0.message = format!("{label}: {}", self.0.message);
        self
    }

    /// Adds the name of the port at fault.
    #[must_use]
    pub fn with_port(mut self, port: impl Into<String>) -> Error {
        self.0.port = Some(port.into());
        self
    }

    /// Adds the underlying cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        self.0.source = Some(source.into());
        self
    }

    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The message without decoration.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The machine's error domain, such as `com.apple.appleneuralengine`.
    pub fn domain(&self) -> Option<&str> {
        self.0.domain.as_deref()
    }

    /// The machine's error code.
    pub fn raw_code(&self) -> Option<i64> {
        self.0.code
    }

    /// The engine's status word, such as `0x1d`.
    pub fn status(&self) -> Option<u32> {
        self.0.status
    }

    /// The port at fault, if the failure is about one.
    pub fn port(&self) -> Option<&str> {
        self.0.port.as_deref()
    }

    /// What to do about it: the catalog's remedy, or that of the kind.
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
