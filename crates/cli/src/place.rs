//! `ferrane place`: where each op of a program probably runs, and what changed since a record.

use std::path::Path;

use ferrane::engine;
use ferrane::machine::Profile;
use ferrane::machine::placement::{
    Framework, PlaceOptions, Placement, PlacementDiff, core_ml_profile, place, place_planned,
};

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
    let placement = predict(&args, file)?;
    if let Some(record) = &args.record {
        files::replace(record, placement.write().as_bytes())?;
    }
    if args.json { out::json(&placement) } else { out::print(placement) }
}

fn predict(args: &PlaceArgs, file: &Path) -> Result<Placement> {
    let found = Profile::find(&args.machine).map_err(|e| Error::new(format!("--machine: {e}")))?;
    // The path of a short name is the in-memory one, which no framework takes.
    let profile = core_ml_profile(&found)?;
    let mut choice = program::options(args.function.as_deref(), &args.shapes);
    choice.shapes.retain(|shape| shape.trim() != "default");
    let program = program::load(file, Care::Text, &choice)?.shaped(&choice, &[])?.program;
    let options = PlaceOptions { framework: args.framework, units: args.units, function: args.function.clone() };
    let placement = if args.plan {
        if args.framework != Framework::CoreMl {
            return Err(Error::new("--plan asks Core ML; Core AI publishes no plan"));
        }
        let function = args.function.as_deref().unwrap_or("main");
        let plan = engine::compute_plan(file, function, args.units).map_err(|e| files::failed(file, e))?;
        place_planned(&program, &plan, &profile, &options)
    } else {
        place(&program, &profile, &options)
    };
    match &args.function {
        Some(name) if placement.function != *name => {
            Err(files::failed(file, format_args!("the program has no function `{name}`")))
        }
        _ => Ok(placement),
    }
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
