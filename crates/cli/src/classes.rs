//! `ferrane classes`: the classes of a framework, and how they differ from what is called.

use std::path::Path;

use ferrane::engine::classes::{Class, Difference, bound, differences, dump, from_json, to_json};
use serde_json::json;

use crate::args::Classes;
use crate::error::{Error, Result};
use crate::{files, out};

/// Runs `ferrane classes`.
pub fn run(args: Classes) -> Result<()> {
    let Some(diff) = &args.diff else {
        let classes = dump(args.framework.as_deref())?;
        return if args.json {
            out::line(format!("{:#}", to_json(args.framework.as_deref(), &classes)))
        } else {
            show(&classes)
        };
    };
    let classes = match diff {
        Some(file) => read(file).map_err(Error::trouble)?,
        None => dump(args.framework.as_deref()).map_err(|e| Error::from(e).trouble())?,
    };
    let found = differences(&classes);
    if args.json {
        out::line(format!(
            "{:#}",
            json!({ "bound": bound().len(), "differences": found.iter().map(Difference::json).collect::<Vec<_>>() })
        ))?;
    } else {
        found.iter().try_for_each(out::line)?;
        let count = found.len();
        let plural = if count == 1 { "" } else { "s" };
        out::line(format_args!("{} classes, {count} difference{plural}", classes.len()))?;
    }
    if found.is_empty() { Ok(()) } else { Err(Error::told()) }
}

fn show(classes: &[Class]) -> Result<()> {
    for class in classes {
        let above = class.superclass.as_ref().map_or_else(String::new, |s| format!(" : {s}"));
        out::line(format_args!("{}{above}", class.name))?;
        for method in &class.methods {
            out::line(format_args!("    {}  {}", method.name, method.types))?;
        }
    }
    out::line(format_args!("{} classes", classes.len()))
}

/// A dump that was kept.
fn read(file: &Path) -> Result<Vec<Class>> {
    from_json(&files::read_text(file)?).map_err(|e| files::failed(file, e))
}
