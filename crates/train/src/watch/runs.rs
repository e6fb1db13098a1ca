//! Several runs side by side: what each has done, and which settings differ.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ferrane_llm::run_folder::{step_name, steps};
use serde::Serialize;
use serde_json::Value;

use super::page::stored;
use super::{RunView, Tail};
use crate::checkpoint::{LOCK, folder_size};
use crate::metrics::METRICS;

/// Settings that say where a run is, not what it does.
const PLACES: [&str; 2] = ["out", "data_cache"];

/// Whether a run trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunStatus {
    /// A process holds the lock of its folder.
    Training,
    /// The last planned update is done.
    Complete,
    /// It was stopped or ended early, and can be resumed if there is a checkpoint.
    Stopped,
}

/// What the folder of a run says about it.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct RunSummary {
    /// Folder with the records and checkpoints, as it was given or found.
    pub folder: PathBuf,
    /// Whether it trains now, is complete, or was stopped.
    pub status: RunStatus,
    /// Number of updates done, skipped ones included.
    pub updates: u64,
    /// Number of updates of the whole run, if a record or a checkpoint states it.
    pub planned: Option<u64>,
    /// Number of tokens trained on.
    pub tokens: u64,
    /// Mean training loss of the last updates, in nats per token.
    pub loss: Option<f64>,
    /// The last validation loss, in nats per token.
    pub validation: Option<f64>,
    /// The smallest validation loss.
    pub best_validation: Option<f64>,
    /// Seconds of training until the newest checkpoint.
    pub seconds: Option<f64>,
    /// Steps of the checkpoints, in ascending order.
    pub checkpoints: Vec<u64>,
    /// Size of the files of the checkpoints in bytes.
    pub checkpoint_bytes: u64,
    /// Milliseconds since 1970 at which the last record was written.
    pub last_record_ms: Option<u64>,
    /// The settings of the newest checkpoint; empty if none can be read.
    pub settings: BTreeMap<String, Value>,
}

impl RunSummary {
    /// Reads the records and the newest checkpoint of a run. `None` if the folder has neither.
    ///
    /// # Errors
    /// The folder or its `metrics.jsonl` cannot be read.
    pub fn read(folder: &Path) -> io::Result<Option<RunSummary>> {
        let checkpoints = steps(folder)?;
        let file = folder.join(METRICS);
        let (mut tail, mut view) = (Tail::new(&file), RunView::new());
        let read = loop {
            match tail.read(&mut view) {
                Ok(true) => {}
                Ok(false) => break true,
                Err(error) if error.kind() == ErrorKind::NotFound => break false,
                Err(error) => return Err(error),
            }
        };
        if !read && checkpoints.is_empty() {
            return Ok(None);
        }
        let (_, state) = stored(folder).unwrap_or_default();
        let settings: BTreeMap<String, Value> = state["options"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let planned = settings.get("steps").and_then(Value::as_u64).or(view.planned());
        let updates = view.last().map_or(0, |last| last.step).max(checkpoints.last().copied().unwrap_or(0));
        let status = match planned {
            _ if is_locked(&folder.join(LOCK)) => RunStatus::Training,
            Some(planned) if updates >= planned => RunStatus::Complete,
            _ => RunStatus::Stopped,
        };
        let since_1970 = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).ok();
        let last_record_ms = fs::metadata(&file).and_then(|found| found.modified()).ok().and_then(since_1970);
        Ok(Some(RunSummary {
            folder: folder.to_path_buf(),
            status,
            updates,
            planned,
            tokens: view.last().map_or(state["tokens"].as_u64().unwrap_or(0), |last| last.tokens),
            loss: view.mean_loss(),
            validation: view.validation.last().map(|(_, loss)| loss).or(state["validation"][1].as_f64()),
            best_validation: view.best_validation().map(|(_, loss)| loss).or(state["validation"][1].as_f64()),
            seconds: state["seconds"].as_f64(),
            checkpoint_bytes: checkpoints.iter().map(|step| folder_size(&folder.join(step_name(*step)))).sum(),
            checkpoints,
            last_record_ms: last_record_ms.map(|time| time.as_millis() as u64),
            settings,
        }))
    }
}

/// The run in this folder, or else the runs in the folders directly below it, by name.
///
/// # Errors
/// The folder, or the records of a run, cannot be read.
pub fn runs(place: &Path) -> io::Result<Vec<RunSummary>> {
    if let Some(run) = RunSummary::read(place)? {
        return Ok(vec![run]);
    }
    let mut folders: Vec<PathBuf> = fs::read_dir(place)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    folders.retain(|path| path.is_dir());
    folders.sort();
    let found: Vec<Option<RunSummary>> =
        folders.iter().map(|path| RunSummary::read(path)).collect::<io::Result<_>>()?;
    Ok(found.into_iter().flatten().collect())
}

/// The settings in which the runs differ, with the value of each run; `Value::Null` for one that
/// does not have it. Folders of a run itself are left out.
pub fn differences(runs: &[RunSummary]) -> Vec<(String, Vec<Value>)> {
    let names: std::collections::BTreeSet<&String> = runs.iter().flat_map(|run| run.settings.keys()).collect();
    let of = |name: &String| runs.iter().map(|run| run.settings.get(name).cloned().unwrap_or_default()).collect();
    let all = names.into_iter().filter(|name| !PLACES.contains(&name.as_str())).map(|name| (name.clone(), of(name)));
    all.filter(|(_, values): &(_, Vec<Value>)| values.windows(2).any(|pair| pair[0] != pair[1])).collect()
}

/// Whether a process holds the lock. A run that starts at this very moment may find it taken.
fn is_locked(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(_)) => false,
        Ok(()) => {
            // Closing the file unlocks it, too, unless a child process has it open.
            let _ = file.unlock();
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Store;
    use crate::metrics::{ProcessRecord, Record};
    use ferrane_llm::run_folder::STATE;

    fn write_run(folder: &Path, updates: u64, lr: f64) {
        let step = folder.join(step_name(updates));
        fs::create_dir_all(&step).unwrap();
        let state = format!(
            "{{\"seconds\": 2.5, \"tokens\": 640, \"validation\": [10, 1.5],
              \"options\": {{\"steps\": 20, \"lr\": {lr}, \"out\": \"{lr}\", \"lora\": null}}}}"
        );
        fs::write(step.join(STATE), state).unwrap();
        let record = |step: u64| Record {
            step,
            loss: Some(2.0),
            tokens: 64 * step,
            valid_loss: step.is_multiple_of(10).then_some(15.0 / step as f64),
            process: Some(ProcessRecord { steps: 30, ..ProcessRecord::default() }),
            ..Record::default()
        };
        let lines: Vec<String> = (1..=updates).map(|step| serde_json::to_string(&record(step)).unwrap()).collect();
        fs::write(folder.join(METRICS), lines.join("\n") + "\n").unwrap();
    }

    #[test]
    fn runs_are_found_and_compared() {
        let place = tempfile::tempdir().unwrap();
        assert!(runs(place.path()).unwrap().is_empty());
        assert_eq!(runs(&place.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
        write_run(&place.path().join("b"), 20, 0.5);
        write_run(&place.path().join("a"), 10, 0.25);
        fs::create_dir(place.path().join("other")).unwrap();
        fs::write(place.path().join("file"), "x").unwrap();
        let found = runs(place.path()).unwrap();
        let names: Vec<_> = found.iter().map(|run| run.folder.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["a", "b"]);
        // The newest checkpoint knows better than the records: a resumed run may have other
        // options.
        let [a, b] = &found[..] else { panic!() };
        assert_eq!((a.status, a.updates, a.planned, a.tokens), (RunStatus::Stopped, 10, Some(20), 640));
        assert_eq!((b.status, b.validation, b.best_validation), (RunStatus::Complete, Some(0.75), Some(0.75)));
        assert!((a.loss.unwrap() - 2.0).abs() < 1e-12);
        assert_eq!((a.seconds, &a.checkpoints[..]), (Some(2.5), &[10][..]));
        assert!(a.checkpoint_bytes > 50 && a.last_record_ms > Some(1_600_000_000_000));
        assert_eq!(differences(&found), [("lr".to_string(), vec![0.25.into(), 0.5.into()])]);
        assert_eq!(runs(&place.path().join("a")).unwrap().len(), 1);
    }

    #[test]
    fn a_run_that_trains_and_runs_with_parts_missing() {
        let place = tempfile::tempdir().unwrap();
        write_run(place.path(), 20, 0.5);
        let store = Store::open(place.path()).unwrap();
        assert_eq!(runs(place.path()).unwrap()[0].status, RunStatus::Training);
        assert!(matches!(Store::open(place.path()), Err(crate::checkpoint::Error::Locked(_))), "the lock is kept");
        drop(store);
        fs::write(place.path().join(step_name(20)).join(STATE), "{").unwrap();
        let found = &runs(place.path()).unwrap()[0];
        assert_eq!((found.status, found.planned, found.settings.len()), (RunStatus::Stopped, Some(30), 0));
        fs::remove_file(place.path().join(METRICS)).unwrap();
        let found = &runs(place.path()).unwrap()[0];
        assert_eq!((found.updates, found.loss, found.last_record_ms), (20, None, None));
    }
}
