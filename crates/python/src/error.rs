//! Failures as one exception, whose attributes are the code, the remedy and the diagnostics.

use std::fmt::Display;

use ferrane::ModelError;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

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
    with(error.to_string(), Some(error.kind().code()), Some(error.remedy()), "[]")
}

/// The error of a model file.
pub fn model(error: &ModelError) -> PyErr {
    match error {
        ModelError::Device(error) => device(error),
        ModelError::Program { text, diagnostics } => {
            let found = diagnostics.json(text).to_string();
            let first = diagnostics.iter().next().map(|d| d.code.to_string());
            with(error.to_string(), first.as_deref(), None, &found)
        }
        error => failed(error),
    }
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
