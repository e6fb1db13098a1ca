//! `ferrane inspect`: what is in a program.

use ferrane::mil::contents::Contents;
use ferrane::mil::package::{Form, annotate};
use ferrane::mil::{Dialect, Program};
use serde_json::json;

use crate::args::Inspect;
use crate::error::Result;
use crate::program::{self, Care};
use crate::{about, out};

/// Runs `ferrane inspect`.
pub fn run(args: Inspect) -> Result<()> {
    if about::inspect(&args)? {
        return Ok(());
    }
    let program::ModelProgram { form, program, description, .. } =
        program::load(&args.file, Care::Form, &program::named_extents(&args.file, &args.shapes)?)?;
    let (mut contents, name) = (Contents::of(&program), args.file.display().to_string());
    annotate(&mut contents, &program, description.as_ref());
    let ((major, minor), spelling) = (program.version, spelling(form, &program));
    if args.json {
        let mut object = contents.json();
        object["file"] = name.into();
        object["kind"] = form.name().into();
        object["version"] = format!("{major}.{minor}").into();
        object["dialect"] = json!(spelling);
        return out::line(object);
    }
    let spelling = spelling.map(|s| format!(", {s} spelling")).unwrap_or_default();
    out::line(format_args!("{name}: {}, program({major}.{minor}){spelling}", form.title()))?;
    if args.weights { out::print(contents.full()) } else { out::print(contents.summary()) }
}

/// How the text of a program is spelled; `None` for packages and models.
fn spelling(form: Form, program: &Program) -> Option<&'static str> {
    matches!(form, Form::Text | Form::Compiled).then_some(match program.dialect {
        Dialect::Shorthand => "shorthand",
        Dialect::Verbose => "verbose",
    })
}
