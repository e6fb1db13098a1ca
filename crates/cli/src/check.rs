//! `ferrane check`: all that is wrong with programs, in their text, and on a machine if one is
//! named.

use std::io::IsTerminal as _;
use std::path::Path;

use ferrane::diag::{Code, Diagnostics, Kind, Severity, Source, sarif};
use ferrane::machine::placement::PlaceOptions;
use ferrane::machine::{CheckOptions, Finding, Profile, check, explain, fix};
use ferrane::mil::package::{self, Form, WriteOptions, write_as};
use ferrane::model::{origins, shaped};
use ferrane::page::NetworkPage;
use serde_json::{Value, json};

use crate::args::{Check, Format};
use crate::error::{Error, Result};
use crate::program::{self, Care};
use crate::{files, out};

/// A file that was checked.
struct Checked {
    opened: package::Checked,
    findings: Vec<Finding>,
}

/// Runs the command. The diagnostics are its result and go to standard output.
pub fn run(args: Check) -> Result<()> {
    let profile = profile(&args)?;
    if args.html.is_some() && args.files.len() > 1 {
        return Err(Error::new("--html draws one program; give it one"));
    }
    let color = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let (mut failed, mut told) = (false, Ok(()));
    let mut log: Vec<(Source, Diagnostics)> = Vec::new();
    for (i, file) in args.files.iter().enumerate() {
        // The last file stands for all that are compiled together.
        let programs = if i + 1 == args.files.len() { args.files.len() } else { 1 };
        let checked = match one(&args, file, profile.as_ref(), programs) {
            Ok(checked) => checked,
            Err(error) if args.format == Format::Json => {
                failed = true;
                let file = file.display().to_string();
                out::line(json!({"file": file, "ok": false, "error": error.to_string()}))?;
                continue;
            }
            Err(error) => {
                // The other files are looked at all the same.
                let last = std::mem::replace(&mut told, Err(error));
                if let Err(error) = last {
                    out::note(format_args!("error: {error}"));
                }
                continue;
            }
        };
        failed |= checked.opened.program.is_none() || checked.count(Severity::Error) > 0;
        if let (Some(path), Some(profile)) = (&args.html, &profile) {
            checked.write_page(&args, file, profile, path)?;
        }
        match args.format {
            Format::Json => out::line(checked.json(file, profile.as_ref()))?,
            Format::Sarif => log.push((checked.opened.source.clone(), checked.all())),
            Format::Human => checked.show(file, color)?,
        }
    }
    if args.format == Format::Sarif {
        out::line(format!("{:#}", as_sarif(&log)))?;
    }
    told.and(if failed { Err(Error::told()) } else { Ok(()) })
}

fn profile(args: &Check) -> Result<Option<Profile>> {
    let Some(name) = &args.machine else { return Ok(None) };
    let Some(path) = &args.machine_file else { return Ok(Some(Profile::find(name)?)) };
    let text = String::from_utf8(files::read_text(path)?).map_err(|e| files::failed(path, e))?;
    Ok(Some(Profile::measured(name, &text)?))
}

fn one(args: &Check, file: &Path, profile: Option<&Profile>, programs: usize) -> Result<Checked> {
    let care = match (args.no_weights, profile) {
        (true, _) => Care::Text,
        (false, Some(_)) => Care::Machine,
        (false, None) => Care::Whole,
    };
    let mut choice = program::options(None, &args.shapes);
    let mut opened = program::open(file, care, &choice)?;
    if let Some(program) = opened.program.take_if(|_| !args.shapes.is_empty()) {
        // The word alone chooses the default of every input.
        choice.shapes.retain(|shape| shape.trim() != "default");
        opened.program = Some(shaped(program, opened.form, opened.description.as_ref(), &choice, &[])?);
    }
    let Some(profile) = profile else { return Ok(Checked { opened, findings: Vec::new() }) };
    if args.fix && mend(file, profile, &opened, &options(args, &opened, programs))? {
        opened = program::open(file, care, &choice)?;
    }
    let findings =
        opened.program.as_ref().map_or_else(Vec::new, |p| check(p, profile, &options(args, &opened, programs)));
    Ok(Checked { opened, findings })
}

fn options<'a>(args: &Check, opened: &'a package::Checked, programs: usize) -> CheckOptions<'a> {
    let text = matches!(opened.form, Form::Text | Form::Compiled).then(|| opened.source.text());
    CheckOptions { strict: args.strict, bounds: args.bounds.clone(), text, programs, limit: None }
}

/// Applies fixes and writes the program back. True if something was changed.
fn mend(file: &Path, profile: &Profile, opened: &package::Checked, options: &CheckOptions<'_>) -> Result<bool> {
    let Some(program) = &opened.program else { return Ok(false) };
    if files::is_stdin(file) || matches!(opened.form, Form::Compiled | Form::Onnx | Form::CoreAi) {
        return Err(files::failed(file, "--fix writes back texts, packages and models; give it such a file"));
    }
    let fixed = fix::fix(program, profile, options, &ferrane::emulator("emulator")?);
    for (fix, findings) in &fixed.applied {
        let plural = if *findings == 1 { "" } else { "s" };
        out::note(format_args!("{}: fixed: {} ({findings} finding{plural} less)", file.display(), fix));
    }
    if fixed.applied.is_empty() {
        out::note(format_args!("{}: not changed: no pass makes it check better", file.display()));
        return Ok(false);
    }
    let description = opened.description.as_ref();
    let options = WriteOptions { overwrite: true, description, ..WriteOptions::default() };
    write_as(&fixed.program, file, opened.form, &options)?;
    Ok(true)
}

impl Checked {
    fn count(&self, severity: Severity) -> usize {
        let language = self.opened.diagnostics.iter().filter(|d| d.severity == severity).count();
        language + self.findings.iter().filter(|f| f.severity == severity).count()
    }

    /// What is wrong with the program and what the machine does with it, in the order of the text.
    fn all(&self) -> Diagnostics {
        let mut all = Diagnostics::new();
        self.opened.diagnostics.iter().for_each(|d| all.push(d.clone()));
        self.findings.iter().for_each(|f| all.push(f.diagnostic()));
        if !self.findings.is_empty() {
            all.sort();
        }
        all
    }

    fn json(&self, file: &Path, profile: Option<&Profile>) -> Value {
        let Checked { opened, findings } = self;
        let mut found = json!({
            "file": file.display().to_string(), "kind": opened.form.name(), "ok": opened.program.is_some(),
            "errors": self.count(Severity::Error), "warnings": self.count(Severity::Warning),
            "left_out": opened.diagnostics.left_out(), "diagnostics": opened.diagnostics.json(&opened.source),
        });
        if let (Some(profile), Some(program)) = (profile, &opened.program) {
            let span = |f: &Finding| {
                let place = opened.source.position(f.span?.start);
                Some(json!({ "line": place.line, "column": place.column, "start": f.span?.start, "end": f.span?.end }))
            };
            let one = |f: &Finding| {
                let mut value = f.json(program);
                value["span"] = span(f).into();
                value
            };
            found["ok"] = json!(self.count(Severity::Error) == 0);
            found["target"] = json!(profile.subject.name);
            found["findings"] = findings.iter().map(one).collect();
        }
        found
    }

    /// Writes the page, unless there is no program to draw.
    fn write_page(&self, args: &Check, file: &Path, profile: &Profile, path: &Path) -> Result<()> {
        let Some(program) = &self.opened.program else {
            out::note(format_args!("{}: not written, because the program has errors", path.display()));
            return Ok(());
        };
        let mut page = NetworkPage::new(file.display().to_string(), program);
        (page.source, page.diagnostics) = (Some(&self.opened.source), Some(&self.opened.diagnostics));
        page.origins = origins(file, &program::options(None, &args.shapes));
        page.examine(profile, &options(args, &self.opened, args.files.len()), &PlaceOptions::default());
        files::replace(path, page.html().as_bytes())?;
        out::note(format_args!("written to {}", path.display()));
        Ok(())
    }

    fn show(&self, file: &Path, color: bool) -> Result<()> {
        let (errors, warnings) = (self.count(Severity::Error), self.count(Severity::Warning));
        out::print(self.all().render(&self.opened.source, color))?;
        let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let name = file.display();
        match self.opened.program.as_ref().filter(|_| errors == 0) {
            Some(p) => {
                let ops: usize = p.functions.iter().map(|f| f.ops.len()).sum();
                let (functions, ops) = (plural(p.functions.len(), "function"), plural(ops, "op"));
                let doubts = if warnings > 0 { format!(", {}", plural(warnings, "warning")) } else { String::new() };
                out::line(format_args!("{name}: ok ({functions}, {ops}{doubts})"))
            }
            None => out::line(format_args!("{name}: {}, {}", plural(errors, "error"), plural(warnings, "warning"))),
        }
    }
}

fn as_sarif(log: &[(Source, Diagnostics)]) -> Value {
    let known: Vec<_> = explain::all().into_iter().map(|e| (explain::address(e.code), e)).collect();
    let kinds: Vec<Kind<'_>> = known
        .iter()
        .map(|(address, e)| Kind { code: Code(e.code.0), title: e.title, text: e.text, address: address.as_deref() })
        .collect();
    let files: Vec<(&Source, &Diagnostics)> = log.iter().map(|(s, d)| (s, d)).collect();
    sarif("ferrane", env!("CARGO_PKG_VERSION"), &kinds, &files)
}
