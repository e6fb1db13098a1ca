//! The corpora of the fuzz targets, replayed.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ferrane_suite::fuzz::TARGETS;

/// The inputs are small. One that takes this long, even without optimization, hangs.
const LONGEST: Duration = Duration::from_secs(10);

#[test]
#[allow(clippy::print_stdout)] // The harness shows the output of a failed test.
fn corpora() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    for (target, body) in TARGETS {
        let folder = root.join("corpus").join(target);
        let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
        assert!(!files.is_empty(), "{} is empty", folder.display());
        for path in files {
            let (data, begun) = (fs::read(&path).unwrap(), Instant::now());
            // A panic is not caught, so the last printed path names the input.
            println!("{}", path.display());
            body(&data);
            assert!(begun.elapsed() < LONGEST, "{}: {:?}", path.display(), begun.elapsed());
        }
        assert!(root.join(format!("fuzz_targets/{target}.rs")).is_file(), "no target {target}");
    }
    // No folder of the corpus lacks a target.
    assert_eq!(fs::read_dir(root.join("corpus")).unwrap().count(), TARGETS.len());
    assert_eq!(fs::read_dir(root.join("fuzz_targets")).unwrap().count(), TARGETS.len());
}
