//! `ferrane classes`: the classes of a framework, and how they differ from what is called.

use std::path::Path;

use ferrane::engine::classes::{Class, Difference, Method, bound, differences, dump};
use serde_json::{Value, json};

use crate::args::Classes;
use crate::error::{Error, Result};
use crate::{files, out};

/// The word that a dump begins with, and the version of its form.
const FORMAT: &str = "ferrane-classes";
const VERSION: u64 = 1;

/// Runs `ferrane classes`.
pub fn run(args: Classes) -> Result<()> {
    let Some(diff) = &args.diff else {
        let classes = dump(args.framework.as_deref())?;
        return if args.json { out::line(format!("{:#}", written(&args, &classes))) } else { show(&classes) };
    };
    let classes = match diff {
        Some(file) => read(file).map_err(Error::trouble)?,
        None => dump(args.framework.as_deref()).map_err(|e| Error::from(e).trouble())?,
    };
    let found = differences(&classes);
    if args.json {
        out::line(format!(
            "{:#}",
            json!({ "bound": bound().len(), "differences": found.iter().map(object).collect::<Vec<_>>() })
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

fn object(difference: &Difference) -> Value {
    match difference {
        Difference::Class(name) => json!({ "missing": name }),
        Difference::Method(bound) => json!({ "missing": bound.words() }),
        Difference::Types(bound, found) => json!({ "other": bound.words(), "found": found, "bound": bound.types }),
    }
}

fn written(args: &Classes, classes: &[Class]) -> Value {
    let method = |m: &Method| json!({ "name": m.name, "types": m.types });
    let class = |c: &Class| json!({ "name": c.name, "superclass": c.superclass, "methods": c.methods.iter().map(method).collect::<Vec<_>>() });
    let facts = ferrane::engine::facts().ok();
    json!({
        "format": FORMAT, "version": VERSION, "framework": args.framework.as_deref().unwrap_or("AppleNeuralEngine"),
        "os": facts.as_ref().map(|f| f.os.clone()), "build": facts.as_ref().map(|f| f.build.clone()),
        "classes": classes.iter().map(class).collect::<Vec<_>>(),
    })
}

/// A dump that was kept.
fn read(file: &Path) -> Result<Vec<Class>> {
    let bad = |why: &str| files::failed(file, why);
    let value: Value = serde_json::from_slice(&files::read_text(file)?).map_err(|e| files::failed(file, e))?;
    if value.get("format").and_then(Value::as_str) != Some(FORMAT) {
        return Err(bad(&format!("it does not begin with \"format\": \"{FORMAT}\"")));
    }
    if value.get("version").and_then(Value::as_u64) != Some(VERSION) {
        return Err(bad(&format!("another version; this Ferrane reads version {VERSION}")));
    }
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_string);
    let method = |value: &Value| Some(Method { name: text(value, "name")?, types: text(value, "types")? });
    let class = |value: &Value| {
        let methods = value.get("methods")?.as_array()?.iter().map(method).collect::<Option<Vec<_>>>()?;
        Some(Class { name: text(value, "name")?, superclass: text(value, "superclass"), methods })
    };
    let classes = value.get("classes").and_then(Value::as_array).ok_or_else(|| bad("it has no classes"))?;
    classes.iter().map(|c| class(c).ok_or_else(|| bad("a class without a name or methods"))).collect()
}
