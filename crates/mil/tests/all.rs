//! Tests of the language against outside truth (the data folder) and against random programs and
//! bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "all/blobs.rs"]
mod blobs;
#[path = "all/boundary.rs"]
mod boundary;
#[path = "all/golden.rs"]
mod golden;
#[path = "all/hostile.rs"]
mod hostile;
#[path = "all/inference.rs"]
mod inference;
#[path = "all/ops.rs"]
mod ops;
#[path = "all/package.rs"]
mod package;
#[path = "all/passes.rs"]
mod passes;
#[path = "all/random.rs"]
mod random;
#[path = "all/text.rs"]
mod text;

use std::path::{Path, PathBuf};

/// Every file below a folder whose name ends like this, in order.
fn files(folder: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().ends_with(suffix) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A path relative to the suite's folder, as the id of a case.
fn id(folder: &Path, path: &Path) -> String {
    path.strip_prefix(folder).unwrap_or(path).to_string_lossy().into_owned()
}

/// Random cases; a failing one is printed, not stored next to the sources.
fn cases(n: u32) -> proptest::test_runner::Config {
    proptest::test_runner::Config { cases: n, failure_persistence: None, ..Default::default() }
}
