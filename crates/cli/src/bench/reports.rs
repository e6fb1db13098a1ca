//! `ferrane bench compare`, `report` and `convert`: what is done with reports of the suite.

use std::path::{Path, PathBuf};

use ferrane_perf::suite::{self, SUITE_MOST_BYTES, SuiteComparison, SuiteReport, WorseRow};
use serde::Serialize;

use crate::args::{BenchCompare, BenchConvert, BenchFormat, BenchReport};
use crate::error::{Error, Result};
use crate::{files, out};

/// Reads a report or a community benchmark.
fn read(path: &Path) -> Result<SuiteReport> {
    let text = files::read_bounded(path, SUITE_MOST_BYTES, "report")?;
    SuiteReport::parse(&text).map_err(|e| files::failed(path, e))
}

fn read_all(paths: &[PathBuf]) -> Result<Vec<SuiteReport>> {
    paths.iter().map(|path| read(path)).collect()
}

/// A comparison with the rows that are worse, as JSON.
#[derive(Serialize)]
struct Compared<'a> {
    #[serde(flatten)]
    comparison: &'a SuiteComparison,
    #[serde(skip_serializing_if = "Option::is_none")]
    worse: Option<&'a [WorseRow]>,
}

/// Runs `ferrane bench compare`.
pub fn compare(args: &BenchCompare) -> Result<()> {
    if let Some(percent) = args.worse_than.filter(|percent| !percent.is_finite() || *percent < 0.0) {
        return Err(Error::new(format!("--worse-than {percent}: give a percentage of 0 or more")).trouble());
    }
    let reports = read_all(&args.files).map_err(Error::trouble)?;
    let mut comparison = suite::compare(&reports, args.clock.map(Into::into));
    for (report, file) in comparison.reports.iter_mut().zip(&args.files) {
        report.name = file.display().to_string();
    }
    let worse = args.worse_than.map(|percent| comparison.worse(percent));
    if args.json {
        out::json(&Compared { comparison: &comparison, worse: worse.as_deref() })?;
    } else {
        out::print(&comparison)?;
    }
    let (Some(worse), Some(percent)) = (worse.filter(|worse| !worse.is_empty()), args.worse_than) else {
        return Ok(());
    };
    if !args.json {
        out::line(format_args!("\nworse than in {} by more than {percent} %:", args.files[0].display()))?;
        for WorseRow { report, row, why } in &worse {
            out::line(format_args!("  {}: {row}: {why}", args.files[*report].display()))?;
        }
    }
    Err(Error::told())
}

/// Runs `ferrane bench report`.
pub fn report(args: &BenchReport) -> Result<()> {
    let reports = read_all(&args.files)?;
    let name =
        |path: &PathBuf| path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into());
    let names: Vec<String> = args.files.iter().map(name).collect();
    files::replace(&args.out, suite::page(&reports, &names).as_bytes())?;
    out::line(format_args!("the page is in {}", args.out.display()))
}

/// Runs `ferrane bench convert`.
pub fn convert(args: &BenchConvert) -> Result<()> {
    if args.to == BenchFormat::Suite && args.user.is_some() {
        return Err(Error::new("--user is for --to community; reports of the suite name no user"));
    }
    let report = read(&args.file)?;
    let text = match args.to {
        BenchFormat::Suite => report.json(),
        BenchFormat::Community => {
            let file = report.community(args.user.as_deref()).map_err(|e| files::failed(&args.file, e))?;
            format!("{file:#}")
        }
    };
    match &args.out {
        Some(path) => {
            files::replace(path, format!("{text}\n").as_bytes())?;
            out::line(format_args!("written to {}", path.display()))
        }
        None => out::line(text),
    }
}
