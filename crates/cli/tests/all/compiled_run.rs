//! `ferrane run` on compiled programs of the test data.

use std::path::{Path, PathBuf};

use ferrane::hwx::Hwx;
use ferrane::hwx::container::Direction;
use ferrane_testdata::Suite;

use crate::place::{Outcome, Place};

fn compiled(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()) {
        if path.is_dir() {
            found.extend(compiled(&path));
        } else if path.extension().is_some_and(|e| e == "hwx") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Each file runs on its own names, or says which register of which task is not known.
#[test]
fn compiled_programs_run_or_say_why_not() {
    let Some(mut suite) = Suite::open("cli-run-hwx", "hwx") else { return };
    let place = Place::new();
    let mut ran = 0;
    for path in compiled(suite.folder()) {
        let id = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Ok(hwx) = Hwx::read(&std::fs::read(&path).unwrap()) else {
            suite.skip(&id, "it cannot be read");
            continue;
        };
        let inputs = hwx.tensors().into_iter().filter(|t| t.direction == Some(Direction::Input));
        let inputs: String = inputs.map(|t| format!(" --input {}=random:1", t.name)).collect();
        let Outcome { code, out, err } =
            place.run(&format!("run {}{inputs} --numerics hardware --json --output out", path.display()));
        let result = match code {
            Some(0) => {
                ran += 1;
                let json: serde_json::Value = serde_json::from_str(&out).unwrap_or_default();
                let output = &json["outputs"][0];
                let file = output["file"].as_str().unwrap_or_default();
                (output["dtype"] == "fp16" && place.path(file).exists()).then_some(()).ok_or(out)
            }
            Some(1) if err.contains("task ") && err.contains("(0x") => Ok(()),
            _ => Err(format!("status {code:?}: {err}")),
        };
        suite.case(&id, result);
        // A name that the file does not have.
        if code == Some(0) {
            place.run(&format!("run {} --input absent=zeros", path.display())).refused(1, &["no input `absent`"]);
        }
    }
    assert!(ran > 0, "no compiled program of the folder runs");
    suite.finish();
}
