//! The state of the screen of `ferrane top`, and its keys.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ferrane::sensors::{CURVE, History};

/// Time that the curves show at first, in seconds.
const SPAN: f64 = 300.0;
/// Least number of intervals that the curves show.
const LEAST: f64 = 10.0;

/// What a key requests of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopKey {
    /// Quit: the command ends with status 0.
    Quit,
    /// Begin sums and peaks again.
    Reset,
}

/// What the user sees.
pub struct TopScreen {
    /// The computer in one line.
    pub computer: String,
    /// The names of the sources.
    pub sources: String,
    /// Where metrics are served, if they are.
    pub metrics: Option<String>,
    /// Whether the list of keys is shown.
    pub help: bool,
    /// Time between two readings in seconds.
    interval: f64,
    /// Time that the curves show, in seconds.
    span: f64,
    /// What is shown instead of the live history.
    paused: Option<Box<History>>,
}

impl TopScreen {
    /// A screen that shows the last five minutes, or ten intervals if these are longer.
    pub fn new(computer: String, sources: String, interval: Duration) -> TopScreen {
        let interval = interval.as_secs_f64();
        let span = TopScreen::limited(SPAN, interval);
        TopScreen { computer, sources, metrics: None, help: false, interval, span, paused: None }
    }

    fn limited(span: f64, interval: f64) -> f64 {
        span.clamp(LEAST * interval, CURVE as f64 * interval)
    }

    /// Time between two readings in seconds.
    pub fn interval(&self) -> f64 {
        self.interval
    }

    /// Time that the curves show, in seconds.
    pub fn span(&self) -> f64 {
        self.span
    }

    /// Whether the picture stands still. Readings continue.
    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// The history that is shown: the live one, or the one when the picture was paused.
    pub fn shown<'a>(&'a self, live: &'a History) -> &'a History {
        self.paused.as_deref().unwrap_or(live)
    }

    /// Handles a key, and returns what it requests.
    pub fn key(&mut self, key: KeyEvent, live: &History) -> Option<TopKey> {
        if std::mem::take(&mut self.help) {
            return None;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Some(TopKey::Quit),
            KeyCode::Char('q') => return Some(TopKey::Quit),
            _ if control => {}
            KeyCode::Char('p' | ' ') => {
                self.paused = match self.paused {
                    Some(_) => None,
                    None => Some(Box::new(live.clone())),
                }
            }
            KeyCode::Char('r') => {
                self.paused = None;
                return Some(TopKey::Reset);
            }
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Char('+' | '=') | KeyCode::Right => self.zoom(0.5),
            KeyCode::Char('-') | KeyCode::Left => self.zoom(2.0),
            KeyCode::Char('0') => self.span = TopScreen::limited(SPAN, self.interval),
            _ => {}
        }
        None
    }

    fn zoom(&mut self, factor: f64) {
        self.span = TopScreen::limited(self.span * factor, self.interval);
    }
}
