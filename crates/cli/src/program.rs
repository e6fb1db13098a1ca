//! Programs named on the command line.

use std::io::IsTerminal as _;
use std::path::Path;

use ferrane::mil::package::{Checked, read_checked};

pub use ferrane::mil::package::Care;
pub use ferrane::model::{ModelOptions, ModelProgram, function};

use crate::error::{Error, Result};
use crate::files;

/// Opens a file, or standard input for `-`.
pub fn open(path: &Path, care: Care, options: &ModelOptions) -> Result<Checked> {
    if files::is_stdin(path) {
        return Ok(read_checked("-", &files::read_text(path)?, care));
    }
    Ok(ferrane::model::open_checked(path, care, options)?)
}

/// What `--function` and `--shape` choose.
pub fn options(function: Option<&str>, shapes: &[String]) -> ModelOptions {
    let mut options = ModelOptions::default();
    (options.function, options.shapes) = (function.map(str::to_string), shapes.to_vec());
    options
}

/// As [`options`], for commands that choose the extents of ONNX and Core AI models, but no shapes
/// of other files.
pub fn named_extents(path: &Path, shapes: &[String]) -> Result<ModelOptions> {
    match shapes.first().filter(|_| !ferrane::model::chooses_extents(path)) {
        Some(list) => {
            Err(files::failed(path, format_args!("--shape {list}: the file is neither an ONNX nor a Core AI model")))
        }
        None => Ok(options(None, shapes)),
    }
}

/// Opens a file that must hold a program; prints warnings to standard error.
pub fn load(path: &Path, care: Care, options: &ModelOptions) -> Result<ModelProgram> {
    let opened = open(path, care, options)?;
    let shown = opened.diagnostics.render(&opened.source, std::io::stderr().is_terminal());
    if opened.program.is_none() {
        return Err(Error::new(format!("{}: the program is not right:\n{}", path.display(), shown.trim_end())));
    }
    if !shown.is_empty() {
        crate::out::note(shown.trim_end());
    }
    Ok(ModelProgram::new(opened)?)
}
