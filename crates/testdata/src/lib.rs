//! Finds the test data, writes the data report, and counts allocations ([`heap`]).
//!
//! The data are in the folder that `FERRANE_DATA` names, or in `../shared/data`, next to the
//! workspace. A suite whose folder is absent says so and passes, unless `FERRANE_REQUIRE_DATA=1`
//! turns absence into a failure. A suite takes all cases of its folder and never lists them by
//! name.
#![deny(missing_docs)]
#![deny(unsafe_code)]

pub mod heap;
pub mod tokenizer;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// The root of the test data; `None` if it is not a folder.
pub fn root() -> Option<PathBuf> {
    let root = match std::env::var_os("FERRANE_DATA") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    };
    root.is_dir().then_some(root)
}

/// Prints a line to standard error. The harness swallows what the print macros of a passing test
/// write, and a skipped suite must be seen.
fn say(text: &str) {
    // A closed standard error loses a message, which is no reason to fail.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// One data suite: counts its cases and writes one line to the report when it ends.
pub struct Suite {
    name: String,
    folder: PathBuf,
    cases: usize,
    passed: usize,
    skipped: Vec<Skipped>,
    failures: Vec<String>,
}

#[derive(Serialize)]
struct Skipped {
    id: String,
    reason: String,
}

#[derive(Serialize)]
struct Line<'a> {
    suite: &'a str,
    cases: usize,
    passed: usize,
    skipped: &'a [Skipped],
}

impl Suite {
    /// Opens the suite `name` over `folder`, which is relative to the root of the data. Returns
    /// `None`, and says so on standard error, if the folder is absent.
    ///
    /// # Panics
    /// If the folder is absent and `FERRANE_REQUIRE_DATA=1`.
    pub fn open(name: &str, folder: &str) -> Option<Suite> {
        let found = root().map(|root| root.join(folder)).filter(|path| path.exists());
        if found.is_none() {
            let required = std::env::var("FERRANE_REQUIRE_DATA").is_ok_and(|v| v == "1");
            assert!(!required, "suite {name}: test data `{folder}` not found and FERRANE_REQUIRE_DATA=1");
            say(&format!("skipped: suite {name} needs test data `{folder}` (set FERRANE_DATA)"));
        }
        Some(Suite::at(name, &found?))
    }

    /// The suite `name` over a folder that exists.
    pub fn at(name: &str, folder: &Path) -> Suite {
        let (name, folder) = (name.to_string(), folder.to_path_buf());
        Suite { name, folder, cases: 0, passed: 0, skipped: Vec::new(), failures: Vec::new() }
    }

    /// The folder with the cases, which exists.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Counts one case. An error is kept and fails the suite in [`finish`](Suite::finish), so that
    /// one run shows all of them.
    pub fn case(&mut self, id: &str, result: Result<(), String>) {
        self.cases += 1;
        match result {
            Ok(()) => self.passed += 1,
            Err(why) => self.failures.push(format!("{id}: {why}")),
        }
    }

    /// Counts a case that was not run, with the reason.
    pub fn skip(&mut self, id: &str, reason: &str) {
        self.cases += 1;
        self.skipped.push(Skipped { id: id.to_string(), reason: reason.to_string() });
    }

    /// Writes the report line and fails if a case failed.
    ///
    /// # Panics
    /// If a case failed, or the report cannot be written.
    pub fn finish(self) {
        let line = Line { suite: &self.name, cases: self.cases, passed: self.passed, skipped: &self.skipped };
        let text = serde_json::to_string(&line).expect("plain data");
        say(&text);
        if let Some(report) = std::env::var_os("FERRANE_DATA_REPORT") {
            let mut file = std::fs::OpenOptions::new().create(true).append(true).open(report).expect("data report");
            file.write_all(format!("{text}\n").as_bytes()).expect("data report");
        }
        assert!(self.failures.is_empty(), "suite {}:\n{}", self.name, self.failures.join("\n"));
    }
}
