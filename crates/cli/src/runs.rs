//! `ferrane runs`: a table of runs, what they have in common and what not, and the removal of their
//! old checkpoints.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use ferrane::diag::printable;
use ferrane::train::checkpoint::{self, Store};
use ferrane::train::metrics::{METRICS, plot, read};
use ferrane::train::watch::{RunStatus, RunSummary, differences, runs};
use serde_json::{Value, json};

use crate::args::Runs;
use crate::error::{Error, Result};
use crate::terminal::{count, duration};
use crate::{files, out};

/// Lists the runs, compares and draws them.
pub fn run(args: &Runs) -> Result<()> {
    let mut found = list(&args.folders)?;
    let mut pruned = Vec::new();
    if let Some(keep) = args.prune.and_then(|keep| NonZeroUsize::new(keep as usize)) {
        pruned = prune(&found, keep)?;
        found = list(&args.folders)?;
    }
    if let Some(path) = &args.plot {
        let records = |run: &RunSummary| {
            let file = run.folder.join(METRICS);
            let records = if file.exists() { read(&file).map_err(|e| files::failed(&file, e))? } else { Vec::new() };
            Ok((run.folder.display().to_string(), records))
        };
        let named = found.iter().map(records).collect::<Result<Vec<_>>>()?;
        let svg = plot::overlay(args.over.into(), &named).map_err(|e| Error::new(e.to_string()))?;
        files::replace(path, svg.as_bytes())?;
    }
    let differ = differences(&found);
    if args.json {
        let differ: serde_json::Map<String, Value> =
            differ.into_iter().map(|(name, values)| (name, values.into())).collect();
        let mut object = json!({"runs": found, "differences": differ});
        if args.prune.is_some() {
            object["pruned"] = pruned.into_iter().map(|(run, steps)| json!({"folder": run, "steps": steps})).collect();
        }
        return out::json(&object);
    }
    for (run, steps) in &pruned {
        let run = printable(&name(run)).replace('\n', " ");
        let steps = steps.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        out::line(format_args!("{run}: checkpoints removed: {steps}"))?;
    }
    let head = ["run", "status", "updates", "tokens", "loss", "validation", "best", "time"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(found.iter().map(row));
    out::print(table(&rows))?;
    if args.compare {
        let mut rows = vec![vec!["setting".to_string()]];
        rows[0].extend(found.iter().map(|run| name(&run.folder)));
        rows.extend(differ.iter().map(|(name, values)| {
            let shown = values.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), String::from));
            std::iter::once(name.clone()).chain(shown).collect()
        }));
        out::print(match rows.len() {
            1 => "\nThe settings are the same.\n".to_string(),
            _ => format!("\n{}", table(&rows)),
        })?;
    }
    Ok(())
}

/// The runs in these folders.
fn list(folders: &[PathBuf]) -> Result<Vec<RunSummary>> {
    let mut found = Vec::new();
    for folder in folders {
        let here = runs(folder).map_err(|e| files::failed(folder, e))?;
        if here.is_empty() {
            let text = "no run is here; `ferrane train --out` names the folder of a run";
            return Err(files::failed(folder, text));
        }
        found.extend(here);
    }
    Ok(found)
}

/// Removes old checkpoints of the runs that do not train. Returns the steps of those that are gone,
/// for each run that had any.
fn prune(found: &[RunSummary], keep: NonZeroUsize) -> Result<Vec<(PathBuf, Vec<u64>)>> {
    let mut pruned = Vec::new();
    for run in found.iter().filter(|run| run.checkpoints.len() > keep.get()) {
        let store = match Store::open(&run.folder) {
            Err(checkpoint::Error::Locked(_)) => continue,
            store => store.map_err(|e| Error::new(e.to_string()))?,
        };
        let steps = store.prune(keep).map_err(|e| Error::new(e.to_string()))?;
        if !steps.is_empty() {
            pruned.push((run.folder.clone(), steps));
        }
    }
    Ok(pruned)
}

fn name(folder: &Path) -> String {
    folder.display().to_string()
}

fn row(run: &RunSummary) -> Vec<String> {
    let loss = |value: Option<f64>| value.map_or("–".into(), |value| format!("{value:.4}"));
    let status = match run.status {
        RunStatus::Training => "training",
        RunStatus::Complete => "complete",
        RunStatus::Stopped => "stopped",
    };
    vec![
        name(&run.folder),
        status.into(),
        run.planned.map_or(run.updates.to_string(), |planned| format!("{} of {planned}", run.updates)),
        count(run.tokens as f64),
        loss(run.loss),
        loss(run.validation),
        loss(run.best_validation),
        run.seconds.map_or("–".into(), duration),
    ]
}

/// Rows with columns of equal width, without spaces at the ends of lines. Settings and names of
/// folders come from files, so their control characters are replaced.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| Some(row.get(column)?.chars().count())).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let cell = printable(cell).replace('\n', " ");
            format!("{cell:width$}  ")
        });
        cells.collect::<String>().trim_end().to_string() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_cannot_steer_a_terminal_or_break_a_line() {
        let rows = [vec!["a\u{1b}[2Jb".to_string(), "c".into()], vec!["d\ne".into(), "\u{9b}".into()]];
        assert_eq!(table(&rows), "a\u{FFFD}[2Jb  c\nd e     \u{FFFD}\n");
    }
}
