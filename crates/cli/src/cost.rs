//! `ferrane cost`: what a program costs on a chip, and published numbers next to predicted ones.

use std::path::Path;

pub use ferrane::llm::cost::training_step as step;

use ferrane::llm::cost::PublishedRuns;
use ferrane::machine::Profile;
use ferrane::machine::cost::published::compare;
use ferrane::machine::cost::{CostModel, predict_function, roofline_svg};
use serde_json::json;

use crate::args::Cost;
use crate::error::{Error, Result};
use crate::program::{self, Care};
use crate::{files, out};

/// Runs `ferrane cost`.
pub fn run(args: Cost) -> Result<()> {
    match (&args.published, &args.program) {
        (Some(file), _) => published(file, args.json),
        (None, Some(file)) => program(&args, file),
        (None, None) => Err(Error::new("name a program, or a file of published numbers with --published")),
    }
}

/// The profile that `--machine` names (`m4-macos15-inmem`), or that of a chip (`m4`).
pub fn profile(machine: &str) -> Result<Profile> {
    Profile::find(machine).map_err(|e| Error::new(format!("--machine: {e}")))
}

/// The cost model of a profile (`m4-macos15-inmem`) or a chip (`m4`).
pub fn model(machine: &str) -> Result<CostModel> {
    let profile = profile(machine)?;
    CostModel::for_profile(&profile).map_err(|e| Error::new(format!("--machine {machine}: {e}")))
}

fn program(args: &Cost, file: &Path) -> Result<()> {
    let model = model(&args.machine)?;
    let options = program::options(args.function.as_deref(), &args.shapes);
    let program = program::load(file, Care::Text, &options)?.shaped(&options, &[])?.program;
    let function = ferrane::model::function(&program, args.function.as_deref()).map_err(|e| files::failed(file, e))?;
    let cost = predict_function(function, &model).map_err(|e| files::failed(file, e))?;
    if let Some(picture) = &args.svg {
        files::replace(picture, roofline_svg(&cost, &model).as_bytes())?;
    }
    if !args.json {
        return out::print(cost);
    }
    let mut object = cost.json(&model);
    object["target"] = json!(args.machine);
    out::line(object)
}

fn published(file: &Path, as_json: bool) -> Result<()> {
    let text = files::read_text(file)?;
    let report = compare(&String::from_utf8_lossy(&text), &PublishedRuns).map_err(|e| files::failed(file, e))?;
    if as_json { out::line(report.json()) } else { out::print(report) }
}
