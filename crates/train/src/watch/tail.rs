//! Reads a file of records as it grows.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use super::RunView;
use crate::metrics::Record;

/// Number of bytes that one call reads.
const BLOCK: usize = 4 << 20;
/// A longer line is no record.
const LONGEST: usize = 1 << 20;
/// Number of bytes before the position that must not change between two calls.
const KNOWN: usize = 256;

/// Reads the lines that a `metrics.jsonl` has gained since the last call.
///
/// A line counts when its end is there, so a half-written one is read later. A file that was
/// shortened or replaced by another, as a resumed run does, is read again from its beginning: the
/// bytes before the position are compared on every call.
pub struct Tail {
    path: PathBuf,
    /// Number of bytes that were read, whole lines only.
    offset: u64,
    /// The last of these bytes.
    known: Vec<u8>,
    /// Inside of a line that is too long.
    skipping: bool,
}

impl Tail {
    /// A reader at the beginning of a file, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Tail {
        Tail { path: path.into(), offset: 0, known: Vec::new(), skipping: false }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds new records to the view, which begins again if the file was replaced. Returns true if
    /// there may be more to read at once.
    ///
    /// # Errors
    /// Errors of the system, `NotFound` for a file that does not exist; `InvalidInput` for a path
    /// that is no regular file. The view is unchanged then.
    pub fn read(&mut self, view: &mut RunView) -> io::Result<bool> {
        // Opening a pipe would wait for its writer.
        if !std::fs::metadata(&self.path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file"));
        }
        let mut file = File::open(&self.path)?;
        let mut before = vec![0; self.known.len()];
        file.seek(SeekFrom::Start(self.offset - before.len() as u64))?;
        let same = file.read_exact(&mut before).is_ok() && before == self.known;
        if !same {
            (self.offset, self.known, self.skipping) = (0, Vec::new(), false);
            *view = RunView::new();
            file.rewind()?;
        }
        let mut block = Vec::new();
        file.take(BLOCK as u64).read_to_end(&mut block)?;
        let mut rest = &block[..];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line = &rest[..end];
            rest = &rest[end + 1..];
            if std::mem::take(&mut self.skipping) || line.trim_ascii().is_empty() {
                continue;
            }
            match serde_json::from_slice::<Record>(line) {
                Ok(record) if line.len() <= LONGEST => view.push(record),
                _ => view.push_bad(),
            }
        }
        if rest.len() > LONGEST {
            if !std::mem::replace(&mut self.skipping, true) {
                view.push_bad();
            }
            rest = &[];
        }
        let used = &block[..block.len() - rest.len()];
        self.offset += used.len() as u64;
        self.known.extend_from_slice(&used[used.len().saturating_sub(KNOWN)..]);
        self.known.drain(..self.known.len().saturating_sub(KNOWN));
        Ok(block.len() == BLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};
    use std::io::Write as _;

    fn line(step: u64) -> String {
        let record = Record { step, loss: Some(step as f64), ..Record::default() };
        serde_json::to_string(&record).unwrap() + "\n"
    }

    struct Case {
        folder: tempfile::TempDir,
        tail: Tail,
        view: RunView,
    }

    impl Case {
        fn new() -> Case {
            let folder = tempfile::tempdir().unwrap();
            let tail = Tail::new(folder.path().join("metrics.jsonl"));
            Case { folder, tail, view: RunView::new() }
        }

        fn append(&self, bytes: impl AsRef<[u8]>) {
            let mut file = OpenOptions::new().append(true).create(true).open(self.tail.path()).unwrap();
            file.write_all(bytes.as_ref()).unwrap();
        }

        /// Reads everything and returns the number of records, of lines that are none, and the last
        /// step.
        fn read(&mut self) -> (u64, u64, u64) {
            while self.tail.read(&mut self.view).unwrap() {}
            (self.view.records(), self.view.bad_lines(), self.view.last().map_or(0, |r| r.step))
        }
    }

    #[test]
    fn lines_count_when_they_are_whole() {
        let mut case = Case::new();
        assert_eq!(case.tail.read(&mut case.view).unwrap_err().kind(), io::ErrorKind::NotFound);
        let text: String = (1..=3).map(line).collect();
        // Every way to cut the text in two.
        for at in 0..=text.len() {
            let mut case = Case::new();
            case.append(&text[..at]);
            let first = case.read();
            assert_eq!(first, (text[..at].matches('\n').count() as u64, 0, first.0));
            case.append(&text[at..]);
            assert_eq!(case.read(), (3, 0, 3), "cut at {at}");
        }
        case.append(line(1));
        assert_eq!((case.read(), case.read()), ((1, 0, 1), (1, 0, 1)));
    }

    #[test]
    fn what_is_no_record_is_counted_and_left_out() {
        let mut case = Case::new();
        case.append(line(1));
        for bad in ["{\"step\": 2", "null", "[]", "{}", "\u{feff}{}", "{\"step\":-1}", "{\"step\":1e999}", "\0\0\0"] {
            case.append(format!("{bad}\n"));
        }
        case.append(b"\xff\xfe\xfd\n\r\n\n");
        case.append("[".repeat(200_000) + "\n");
        // Steps that do not ascend.
        case.append(line(1) + &line(5) + &line(4));
        assert_eq!(case.read(), (2, 12, 5));
    }

    #[test]
    fn lines_without_end_use_no_memory() {
        let mut case = Case::new();
        let part = vec![b'x'; BLOCK];
        case.append(line(1));
        for _ in 0..5 {
            case.append(&part);
            assert_eq!(case.read(), (1, 1, 1));
            assert!(case.tail.known.len() <= KNOWN);
        }
        case.append("\n".to_string() + &line(2));
        assert_eq!(case.read(), (2, 1, 2));
        // Long, but with an end: one line that is no record.
        case.append(vec![b'y'; LONGEST + 1]);
        case.append("\n".to_string() + &line(3));
        assert_eq!(case.read(), (3, 2, 3));
    }

    #[test]
    fn a_file_that_was_shortened_or_replaced_is_read_again() {
        let mut case = Case::new();
        case.append((1..=100).map(line).collect::<String>());
        assert_eq!(case.read(), (100, 0, 100));
        // A resumed run drops the records after its checkpoint.
        fs::write(case.tail.path(), (1..=50).map(line).collect::<String>()).unwrap();
        assert_eq!(case.read(), (50, 0, 50));
        // Another run, longer than the one before, between two calls.
        let other = |step| line(step).replace("\"lr\":0.0", "\"lr\":1.0");
        let next = case.folder.path().join("next");
        fs::write(&next, (1..=80).map(other).collect::<String>()).unwrap();
        fs::rename(&next, case.tail.path()).unwrap();
        assert_eq!(case.read(), (80, 0, 80));
        assert_eq!(case.view.last().unwrap().lr, 1.0);
        fs::write(case.tail.path(), "").unwrap();
        assert_eq!(case.read(), (0, 0, 0));
        fs::remove_file(case.tail.path()).unwrap();
        fs::create_dir(case.tail.path()).unwrap();
        assert_eq!(case.tail.read(&mut case.view).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
