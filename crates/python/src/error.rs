//! Failures as one exception, whose attributes are the code, the remedy and the diagnostics.

use std::fmt::Display;

use ferrane::diag::{Diagnostics, Severity, Source};
use ferrane::{ErrorKind, ModelError, OpenError, hwx};
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

create_exception!(
    ferrane,
    FerraneError,
    PyException,
    "What a library of Ferrane refuses or cannot do. `code` is a stable code such as E0606 or None, `remedy` what to \
     do about it or None, `diagnostics` the errors and warnings of a program, dictionaries with `code`, `severity`, `message` and `span`."
);

/// An error without a code.
pub fn failed(message: impl Display) -> PyErr {
    with(message.to_string(), None, None, "[]")
}

/// The error of a device.
pub fn device(error: &ferrane::Error) -> PyErr {
    let remedy = match error.kind() {
        // The library's remedies are about surfaces, which Python does not see.
        ErrorKind::Binding | ErrorKind::Layout => {
            "The model's `inputs` and `states` list the names, types and shapes that it takes."
        }
        _ => error.remedy(),
    };
    with(error.to_string(), Some(error.kind().code()), Some(remedy), "[]")
}

/// The error of a device, or of a name that is none.
pub fn open(error: &OpenError) -> PyErr {
    match error {
        OpenError::Device(error) => device(error),
        error => with(error.to_string(), Some(ErrorKind::Option.code()), None, "[]"),
    }
}

/// The error with the name of an input before its message.
pub fn of_input(py: Python<'_>, name: &str, error: PyErr) -> PyErr {
    let code: Option<String> = attribute(py, &error, "code");
    let remedy: Option<String> = attribute(py, &error, "remedy");
    with(format!("`{name}`: {}", error.value(py)), code.as_deref(), remedy.as_deref(), "[]")
}

fn attribute(py: Python<'_>, error: &PyErr, name: &str) -> Option<String> {
    error.value(py).getattr(name).and_then(|value| value.extract()).ok().flatten()
}

/// Gives errors that Python raises itself the attributes, too.
pub fn declare(py: Python<'_>) -> PyResult<()> {
    let error = py.get_type::<FerraneError>();
    error.setattr("code", py.None())?;
    error.setattr("remedy", py.None())?;
    error.setattr("diagnostics", PyTuple::empty(py))
}

/// The error of a model file.
pub fn model(error: &ModelError) -> PyErr {
    match error {
        ModelError::Device(error) => device(error),
        ModelError::Program { text, diagnostics } => diagnosed(error.to_string(), diagnostics, text),
        error => failed(error),
    }
}

/// The error of a text, with what is wrong in it.
pub fn diagnosed(message: String, diagnostics: &Diagnostics, text: &Source) -> PyErr {
    let first = diagnostics.iter().find(|d| d.severity == Severity::Error).map(|d| d.code.to_string());
    with(message, first.as_deref(), None, &diagnostics.json(text).to_string())
}

/// The error of a compiled program.
pub fn compiled(error: &hwx::Error) -> PyErr {
    with(error.to_string(), Some(&error.code.to_string()), Some(error.help), "[]")
}

fn with(message: String, code: Option<&str>, remedy: Option<&str>, diagnostics: &str) -> PyErr {
    Python::attach(|py| {
        let error = FerraneError::new_err(message);
        let value = error.value(py);
        let set = || {
            value.setattr("code", code)?;
            value.setattr("remedy", remedy)?;
            // Tracebacks show notes, from Python 3.11 on.
            if let Some(remedy) = remedy.filter(|_| value.hasattr("add_note").unwrap_or(false)) {
                value.call_method1("add_note", (remedy,))?;
            }
            value.setattr("diagnostics", py.import("json")?.call_method1("loads", (diagnostics,))?)
        };
        match set() {
            Ok(()) => error,
            Err(other) => other,
        }
    })
}
