//! `metrics.jsonl`: one JSON object per line, one line per update, steps ascending.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use ferrane_host::fs::{AtomicFile, Durability};

use super::{Record, Sink};

/// Name of the file with the records of a run, in its folder.
pub const METRICS: &str = "metrics.jsonl";

/// Appends records to a file. Every line is written to the system immediately, so a kill loses
/// none.
pub struct JsonLines {
    file: File,
}

impl JsonLines {
    /// Creates an empty file, or empties an existing one.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(JsonLines { file: File::create(path)? })
    }

    /// Continues after `step`: drops later lines, and everything after the first line that is not a
    /// record, so that no step occurs twice. A missing file is created.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn resume(path: &Path, step: u64) -> io::Result<Self> {
        let kept = if path.exists() { read(path)? } else { Vec::new() };
        // The file is replaced atomically, so a kill loses nothing.
        let mut out = AtomicFile::create(path)?;
        for record in kept.iter().filter(|r| r.step <= step) {
            write_line(&mut out, record)?;
        }
        out.commit(Durability::Synced)?;
        Ok(JsonLines { file: OpenOptions::new().append(true).open(path)? })
    }
}

impl Sink for JsonLines {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        write_line(&mut self.file, record)
    }
}

fn write_line(out: &mut impl Write, record: &Record) -> io::Result<()> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    out.write_all(&line)
}

/// The records of a file, up to the first line that is not one. Such a line is the last if a kill
/// cut it short.
///
/// # Errors
/// Errors of the system.
pub fn read(path: &Path) -> io::Result<Vec<Record>> {
    let mut records: Vec<Record> = Vec::new();
    for line in BufReader::new(File::open(path)?).split(b'\n') {
        match serde_json::from_slice::<Record>(&line?) {
            Ok(record) if records.last().is_none_or(|last| last.step < record.step) => records.push(record),
            _ => break,
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn record(step: u64) -> Record {
        Record {
            step,
            loss: Some(1.0 / step as f64),
            valid_loss: step.is_multiple_of(2).then_some(0.1),
            ..Record::default()
        }
    }

    #[test]
    fn resuming_leaves_no_step_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(METRICS);
        let mut lines = JsonLines::create(&path).unwrap();
        (1..=5).for_each(|step| lines.record(&record(step)).unwrap());
        lines.file.write_all(b"{\"step\": 6, \"lo").unwrap();
        assert_eq!(read(&path).unwrap().len(), 5);
        let mut lines = JsonLines::resume(&path, 3).unwrap();
        lines.record(&record(4)).unwrap();
        assert_eq!(read(&path).unwrap(), (1..=4).map(record).collect::<Vec<_>>());
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 4);
        let other = folder.path().join("none.jsonl");
        JsonLines::resume(&other, 9).unwrap().record(&record(10)).unwrap();
        assert_eq!(read(&other).unwrap(), [record(10)]);
    }

    #[test]
    fn what_is_not_finite_is_null() {
        let record = Record { step: 1, loss: super::super::finite(f64::NAN), skipped: true, ..Record::default() };
        let text = serde_json::to_string(&record).unwrap();
        assert!(text.contains("\"loss\":null") && !text.contains("valid_loss"), "{text}");
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    }
}
