//! Models opened like other containers of programs.

use std::path::Path;

use ferrane_diag::{Diagnostics, Source};
use ferrane_mil::package::{Checked, Form};

use crate::asset::Asset;
use crate::error::Error;
use crate::options::ConversionOptions;

/// True for a path that ends in `.aimodel`.
pub fn is_model(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("aimodel"))
}

/// Opens a model and makes its program, as
/// [`package::open_checked`](ferrane_mil::package::open_checked) does for packages and text. What
/// MIL cannot express is among the diagnostics, and the program is then absent.
///
/// # Errors
/// As [`Asset::open`] and [`Asset::program`].
pub fn open_checked(path: impl AsRef<Path>, options: &ConversionOptions) -> Result<Checked, Error> {
    let path = path.as_ref();
    let asset = Asset::open(path)?;
    let (program, diagnostics) = match asset.to_mil(options)? {
        Ok(program) => (Some(program), Diagnostics::new()),
        Err(refusals) => (None, refusals.diagnostics()),
    };
    let source = Source::new(path.display().to_string(), Vec::new());
    Ok(Checked { form: Form::CoreAi, program, description: None, diagnostics, source })
}
