//! `--timeline`: the file of a timeline of training steps.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use ferrane::train::metrics::Timeline;

use crate::error::{Error, Result};

/// Micro-steps that are recorded: enough to see what repeats, and some 100,000 spans of the largest
/// preset at most.
pub const STEPS: u64 = 64;

/// The opened file of `--timeline`.
pub struct TimelineFile {
    path: PathBuf,
    file: File,
}

/// Makes the file, so that a wrong path is reported before any work is done, and an empty timeline.
pub fn open(path: &Path) -> Result<(TimelineFile, Timeline)> {
    let file = File::create(path).map_err(|e| Error::new(format!("--timeline {}: {e}", path.display())))?;
    Ok((TimelineFile { path: path.to_path_buf(), file }, Timeline::new(STEPS)))
}

/// Writes the timeline into the file.
pub fn write(file: TimelineFile, timeline: &Timeline) -> Result<()> {
    let TimelineFile { path, file } = file;
    timeline.write(BufWriter::new(file)).map_err(|e| Error::new(format!("--timeline {}: {e}", path.display())))
}
