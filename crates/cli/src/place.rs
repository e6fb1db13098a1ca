//! `ferrane place`: where each op of a program probably runs, and what changed since a record.

use std::path::Path;

use ferrane::diag::Source;
use ferrane::engine;
use ferrane::machine::placement::{
    Framework, PlaceOptions, Placement, PlacementDiff, core_ml_profile, place, place_planned,
};
use ferrane::machine::{CheckOptions, Profile};
use ferrane::mil::package::Form;
use ferrane::model::origins;
use ferrane::page::NetworkPage;

use crate::args::PlaceArgs;
use crate::error::{Error, Result};
use crate::program::{self, Care};
use crate::{files, out};

/// Runs `ferrane place`.
pub fn run(args: PlaceArgs) -> Result<()> {
    if let [before, after] = args.diff.as_slice() {
        return match compare(before, after, args.json) {
            Ok(true) => Err(Error::told()),
            Ok(false) => Ok(()),
            Err(error) => Err(error.trouble()),
        };
    }
    let Some(file) = &args.program else {
        return Err(Error::new("name a program, or two recorded placements with --diff"));
    };
    let (placement, page) = predict(&args, file)?;
    if let Some(record) = &args.record {
        files::replace(record, placement.write().as_bytes())?;
    }
    if let (Some(path), Some(page)) = (&args.html, page) {
        files::replace(path, page.as_bytes())?;
        out::note(format_args!("written to {}", path.display()));
    }
    if args.json { out::json(&placement) } else { out::print(placement) }
}

/// The placement, and the page if one is asked for.
fn predict(args: &PlaceArgs, file: &Path) -> Result<(Placement, Option<String>)> {
    let found = Profile::find(&args.machine).map_err(|e| Error::new(format!("--machine: {e}")))?;
    // The path of a short name is the in-memory one, which no framework takes.
    let profile = core_ml_profile(&found)?;
    let mut choice = program::options(args.function.as_deref(), &args.shapes);
    choice.shapes.retain(|shape| shape.trim() != "default");
    let model = program::load(file, Care::Text, &choice)?.shaped(&choice, &[])?;
    let options = PlaceOptions { framework: args.framework, units: args.units, function: args.function.clone() };
    let placement = if args.plan {
        if args.framework != Framework::CoreMl {
            return Err(Error::new("--plan asks Core ML; Core AI publishes no plan"));
        }
        let function = args.function.as_deref().unwrap_or("main");
        let plan = engine::compute_plan(file, function, args.units).map_err(|e| files::failed(file, e))?;
        place_planned(&model.program, &plan, &profile, &options)
    } else {
        place(&model.program, &profile, &options)
    };
    if let Some(name) = args.function.as_ref().filter(|name| placement.function != **name) {
        return Err(files::failed(file, format_args!("the program has no function `{name}`")));
    }
    let page = args.html.as_ref().map(|_| {
        // The text was not kept if the reader had nothing to say about it.
        let is_text = matches!(model.form, Form::Text) && !files::is_stdin(file);
        let text = is_text.then(|| files::read_text(file).ok()).flatten();
        let source = text.map(|text| Source::new(file.display().to_string(), text));
        let mut page = NetworkPage::new(file.display().to_string(), &model.program);
        (page.source, page.diagnostics) = (source.as_ref(), Some(&model.warnings));
        page.origins = origins(file, &choice);
        page.examine(&profile, &CheckOptions::default(), &options);
        // The page shows the placement that the command prints.
        page.placements.retain(|p| p.function != placement.function);
        page.placements.push(placement.clone());
        page.html()
    });
    Ok((placement, page))
}

/// Prints what differs between two records. True if the second one is worse.
fn compare(before: &Path, after: &Path, json: bool) -> Result<bool> {
    let read = |path: &Path| {
        let text = files::read_text(path)?;
        Placement::read(&String::from_utf8_lossy(&text)).map_err(|e| files::failed(path, e))
    };
    let diff = PlacementDiff::between(&read(before)?, &read(after)?);
    out::report(json, &diff)?;
    Ok(diff.is_regression())
}
