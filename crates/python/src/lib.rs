//! The Python package: the façade's models, devices and language models as Python classes.
//!
//! Nothing is decided here. A method turns its arguments into those of a library call, runs it
//! without the interpreter's lock, and turns the result into arrays, or into the JSON that the
//! command prints with `--json`, which the modules under `python/ferrane` turn into data classes.
//!
//! Errors of every library become `FerraneError`, with the code and the remedy if there are any.
#![deny(missing_docs)]

mod arrays;
mod device;
mod error;
mod fork;
mod hwx;
mod model;
mod queue;
mod request;
mod text;
mod train;
mod worker;

use std::process::ExitCode;

use pyo3::prelude::*;

use error::{FerraneError, failed};
use fork::unlocked;

/// Runs the command with these arguments, the first of which is its name, and returns its exit
/// status. Where the command starts itself again, it starts `python -m ferrane`.
#[pyfunction]
fn command(py: Python<'_>, arguments: Vec<std::ffi::OsString>) -> PyResult<u8> {
    let words = [py.import("sys")?.getattr("executable")?.extract()?, "-m".into(), "ferrane".into()];
    let code = unlocked(py, || ferrane_cli::run_as(words, arguments))?;
    // An exit code is opaque.
    Ok((0..=u8::MAX).find(|&status| ExitCode::from(status) == code).unwrap_or(1))
}

/// The names of the devices that can be opened here.
#[pyfunction]
fn devices() -> Vec<&'static str> {
    ferrane::devices().into_iter().filter(|d| d.available).map(|d| d.name).collect()
}

/// The names of all machine profiles.
#[pyfunction]
fn machines() -> Vec<String> {
    ferrane::machine::Profile::names()
}

/// What a code of a finding or a diagnostic means.
#[pyfunction]
fn explain(code: &str) -> PyResult<String> {
    let found = ferrane::machine::explain::find(code);
    found.map(|found| found.text()).ok_or_else(|| failed(format!("unknown code `{code}`")))
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    error::declare(module.py())?;
    module.add("FerraneError", module.py().get_type::<FerraneError>())?;
    module.add_class::<device::Device>()?;
    module.add_class::<device::Executable>()?;
    module.add_class::<device::Arguments>()?;
    module.add_class::<request::PreparedRequest>()?;
    module.add_class::<model::OpenModel>()?;
    module.add_class::<hwx::CompiledProgram>()?;
    module.add_class::<text::LanguageModel>()?;
    module.add_class::<text::Pieces>()?;
    module.add_class::<train::Training>()?;
    module.add_function(wrap_pyfunction!(fork::forked, module)?)?;
    module.add_function(wrap_pyfunction!(command, module)?)?;
    module.add_function(wrap_pyfunction!(devices, module)?)?;
    module.add_function(wrap_pyfunction!(machines, module)?)?;
    module.add_function(wrap_pyfunction!(explain, module)?)?;
    module.add_function(wrap_pyfunction!(hwx::assemble, module)?)?;
    Ok(())
}
