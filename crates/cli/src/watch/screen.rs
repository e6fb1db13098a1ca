//! The state of a screen, and its keys.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ferrane::train::watch::RunView;

/// Largest number of halvings of the updates that the curves show.
const MOST_ZOOM: u32 = 16;
/// Lines that Page Up and Page Down move the log by.
const PAGE: usize = 10;

/// What the run does, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunState {
    /// A run of this process trains.
    Running,
    /// A run of this process waits.
    Paused,
    /// A run of this process ends after its micro-step.
    Stopping,
    /// The file is being read.
    Reading,
    /// The file cannot be read, for this reason.
    Missing(String),
    /// All planned updates are done.
    Complete,
    /// The file has not changed for so long.
    Unchanged(Duration),
    /// The file was read once.
    Unknown,
}

/// What a key requests of the run or of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRequest {
    /// Pause a run that trains, or let a paused one continue.
    Pause,
    /// Write a checkpoint of the last update.
    Save,
    /// Write a text by the model.
    Sample,
    /// End: a run saves a checkpoint first.
    Quit,
    /// End at once: updates since the last checkpoint are lost.
    QuitNow,
}

/// What the user sees of a run: which part of the curves, the log and the samples.
pub struct Screen {
    /// The run's folder, as the user named it.
    pub title: String,
    /// What the run does.
    pub state: RunState,
    /// Whether the keys control the run.
    pub controls: bool,
    /// The peak of a machine in GFLOP/s, with its name.
    pub peak: Option<(String, f64)>,
    /// Windows of the current update that are done, and those of an update.
    pub windows: Option<(usize, usize)>,
    /// The curves show the last of the updates, halved so many times.
    pub zoom: u32,
    /// Number of lines that the log is scrolled up by.
    pub scroll: usize,
    /// The number of texts before the one that is shown, from the last.
    pub sample: usize,
    /// Lines of the log and texts that there had been when these were last counted.
    counted: (u64, u64),
    /// Whether the list of keys is shown.
    pub help: bool,
    /// The answer to the last key, until the next one.
    pub answer: Option<String>,
}

impl Screen {
    /// A screen of a run of another process, or of one that has ended.
    pub fn attached(title: &str, peak: Option<(String, f64)>) -> Screen {
        Screen {
            title: title.to_string(),
            state: RunState::Unknown,
            controls: false,
            peak,
            windows: None,
            zoom: 0,
            scroll: 0,
            sample: 0,
            counted: (0, 0),
            help: false,
            answer: None,
        }
    }

    /// A screen whose keys control the run.
    pub fn controlling(title: &str, peak: Option<(String, f64)>) -> Screen {
        Screen { controls: true, state: RunState::Running, ..Screen::attached(title, peak) }
    }

    /// The steps that the curves show.
    pub fn shown(&self, view: &RunView) -> (u64, u64) {
        let (first, last) = view.steps().unwrap_or((0, 0));
        let span = (last - first) >> self.zoom;
        (last - span.max(8).min(last - first), last)
    }

    /// Handles a key, and returns what it requests.
    pub fn key(&mut self, key: KeyEvent, view: &RunView) -> Option<KeyRequest> {
        self.answer = None;
        self.keep_place(view);
        if std::mem::take(&mut self.help) {
            return None;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Some(self.quit()),
            KeyCode::Char('q') => return Some(self.quit()),
            _ if control => {}
            KeyCode::Char('p' | ' ') => return self.request(KeyRequest::Pause),
            KeyCode::Char('c') => return self.request(KeyRequest::Save),
            KeyCode::Char('s' | 'g') => return self.request(KeyRequest::Sample),
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Char('+' | '=') | KeyCode::Right => self.zoom = (self.zoom + 1).min(MOST_ZOOM),
            KeyCode::Char('-') | KeyCode::Left => self.zoom = self.zoom.saturating_sub(1),
            KeyCode::Char('0') => self.zoom = 0,
            KeyCode::Up => self.scroll_by(1, view),
            KeyCode::PageUp => self.scroll_by(PAGE, view),
            KeyCode::Home => self.scroll_by(usize::MAX, view),
            KeyCode::Down => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_sub(PAGE),
            KeyCode::End => self.scroll = 0,
            KeyCode::Char('[') => self.sample = (self.sample + 1).min(view.samples().len().saturating_sub(1)),
            KeyCode::Char(']') => self.sample = self.sample.saturating_sub(1),
            _ => {}
        }
        None
    }

    /// Keeps the lines of a log that is scrolled up, and a text that is not the last one, although
    /// others follow.
    pub fn keep_place(&mut self, view: &RunView) {
        let now = (view.lines_ever(), view.samples_ever());
        let (lines, samples) = self.counted;
        let new = |now: u64, before: u64| usize::try_from(now.saturating_sub(before)).unwrap_or(usize::MAX);
        if self.scroll > 0 {
            self.scroll = self.scroll.saturating_add(new(now.0, lines)).min(view.lines().len().saturating_sub(1));
        }
        if self.sample > 0 {
            let last = view.samples().len().saturating_sub(1);
            self.sample = self.sample.saturating_add(new(now.1, samples)).min(last);
        }
        self.counted = now;
    }

    fn scroll_by(&mut self, lines: usize, view: &RunView) {
        self.scroll = self.scroll.saturating_add(lines).min(view.lines().len().saturating_sub(1));
    }

    fn quit(&mut self) -> KeyRequest {
        if self.controls && self.state != RunState::Stopping { KeyRequest::Quit } else { KeyRequest::QuitNow }
    }

    fn request(&mut self, request: KeyRequest) -> Option<KeyRequest> {
        if !self.controls {
            self.answer = Some("this run belongs to another process, which `ferrane watch` does not control".into());
            return None;
        }
        if request != KeyRequest::Pause {
            let what = if request == KeyRequest::Save { "checkpoint" } else { "sample" };
            self.answer = Some(format!("{what} requested; it is written before the next micro-step"));
        }
        Some(request)
    }
}
