//! The whole terminal: taken, drawn on, and given back however the process ends.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use ratatui::{DefaultTerminal, Frame};

use crate::error::{Error, Result};

/// The terminal in raw mode, on its alternate screen. Dropping it restores the terminal; so does a
/// panic of any thread, before its message is printed.
pub struct FullScreen(DefaultTerminal);

impl FullScreen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// If standard input or output is no terminal, or the system refuses.
    pub fn open() -> Result<FullScreen> {
        if !io::stdin().is_terminal() {
            return Err(Error::new("standard input is not a terminal, so no keys can be read"));
        }
        match ratatui::try_init() {
            Ok(terminal) => Ok(FullScreen(terminal)),
            Err(error) => {
                ratatui::restore();
                Err(Error::new(format!("the terminal cannot be used: {error}")))
            }
        }
    }

    /// Draws a picture.
    ///
    /// # Errors
    /// If the terminal cannot be written to.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> Result<()> {
        self.0.draw(draw).map(drop).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Error::closed(),
            _ => Error::new(format!("the terminal: {error}")),
        })
    }

    /// Waits at most `wait` for events, and returns all that are there: keys, and `None` for
    /// another event after which the screen is drawn again.
    ///
    /// # Errors
    /// If the terminal cannot be read.
    pub fn keys(&mut self, wait: Duration) -> Result<Vec<Option<KeyEvent>>> {
        let mut keys = Vec::new();
        let mut wait = wait;
        while event::poll(wait).map_err(failed)? {
            match event::read().map_err(failed)? {
                // Some terminals also report that a key was released.
                Event::Key(key) if key.kind == KeyEventKind::Release => {}
                Event::Key(key) => keys.push(Some(key)),
                _ => keys.push(None),
            }
            wait = Duration::ZERO;
        }
        Ok(keys)
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn failed(error: io::Error) -> Error {
    Error::new(format!("the terminal cannot be read: {error}"))
}

/// A flag that a signal to end sets. A second one restores the terminal and ends the process at
/// once. In raw mode Ctrl-C is a key and no signal.
pub fn stop_on_signal() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::SeqCst) {
            ratatui::restore();
            std::process::exit(130);
        }
    })
    .map_err(|e| Error::new(format!("signals cannot be handled: {e}")))?;
    Ok(stop)
}
