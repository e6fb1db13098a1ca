//! `ferrane watch`, and the screen of `ferrane train --dashboard`.

mod panels;
mod screen;

use std::io::{ErrorKind, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ferrane::train::metrics::METRICS;
use ferrane::train::watch::{RunView, Tail, run_page};

pub use screen::{KeyRequest, RunState, Screen};

use crate::args::Watch;
use crate::error::{Error, Result};
use crate::terminal::{FullScreen, picture_size, stop_on_signal};
use crate::{cost, files, out, terminal};

/// Time between two looks at the file.
const LOOK: Duration = Duration::from_millis(100);
/// Time after which the screen is drawn although nothing has changed, for the clock.
const REDRAW: Duration = Duration::from_secs(1);

/// Shows a run until the user quits, or once.
pub fn run(args: Watch) -> Result<()> {
    if let Some(path) = &args.html {
        let file = metrics_of(&args.run)?;
        let page = run_page(&args.run).map_err(|e| files::failed(&file, e))?;
        return files::replace(path, page.html().as_bytes());
    }
    if !args.once && !std::io::stdout().is_terminal() {
        return Err(Error::new(
            "standard output is not a terminal; `ferrane watch --once` prints one picture as text, `--html` writes a page",
        ));
    }
    let file = metrics_of(&args.run)?;
    let peak = args.machine.as_deref().map(peak).transpose()?;
    let mut screen = Screen::attached(&args.run.display().to_string(), peak);
    let (mut tail, mut view) = (Tail::new(&file), RunView::new());
    if args.once {
        while tail.read(&mut view).map_err(|e| files::failed(&file, e))? {}
        screen.state = if view.is_complete() { RunState::Complete } else { RunState::Unknown };
        let (width, height) = picture_size(args.width, args.height);
        return out::print(picture(&mut screen, &view, width, height)?);
    }
    follow(&mut screen, &mut tail, &mut view)
}

/// The peak of a machine in GFLOP/s, with its name.
pub fn peak(machine: &str) -> Result<(String, f64)> {
    Ok((machine.to_string(), 1e3 * cost::model(machine)?.constants.rate_tflops.value))
}

/// The `metrics.jsonl` of a run. A folder that exists may get one later.
fn metrics_of(run: &Path) -> Result<PathBuf> {
    match std::fs::metadata(run) {
        Ok(found) if found.is_dir() => Ok(run.join(METRICS)),
        Ok(_) => Ok(run.to_path_buf()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(files::failed(run, "no run is here; give the folder that `ferrane train --out` names"))
        }
        Err(error) => Err(files::failed(run, error)),
    }
}

/// One picture as text.
fn picture(screen: &mut Screen, view: &RunView, width: u16, height: u16) -> Result<String> {
    terminal::picture(width, height, |frame| screen.draw(view, frame))
}

fn follow(screen: &mut Screen, tail: &mut Tail, view: &mut RunView) -> Result<()> {
    let stop = stop_on_signal()?;
    let mut terminal = FullScreen::open()?;
    let (mut drawn, mut before) = (Instant::now(), None);
    let mut changed = Instant::now();
    loop {
        let (more, problem) = match tail.read(view) {
            Ok(more) => (more, None),
            Err(error) if error.kind() == ErrorKind::NotFound => (false, Some("metrics.jsonl is not here".to_string())),
            Err(error) => (false, Some(format!("metrics.jsonl: {error}"))),
        };
        let now = Some((view.records(), view.bad_lines(), problem.clone()));
        let is_new = before != now;
        if is_new {
            (before, changed) = (now, Instant::now());
        }
        screen.state = match problem {
            _ if more => RunState::Reading,
            Some(problem) => RunState::Missing(problem),
            None if view.is_complete() => RunState::Complete,
            None => RunState::Unchanged(changed.elapsed()),
        };
        let mut draw = if more { drawn.elapsed() >= LOOK } else { is_new || drawn.elapsed() >= REDRAW };
        for key in terminal.keys(if more { Duration::ZERO } else { LOOK })? {
            if let Some(KeyRequest::Quit | KeyRequest::QuitNow) = key.and_then(|key| screen.key(key, view)) {
                return Ok(());
            }
            draw = true;
        }
        if stop.load(Ordering::SeqCst) {
            return Ok(());
        }
        if draw {
            terminal.draw(|frame| screen.draw(view, frame))?;
            drawn = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests;
