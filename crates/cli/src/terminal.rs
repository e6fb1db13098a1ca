//! The whole terminal: taken, drawn on, and given back however the process ends; pictures as text,
//! and what all screens have in common.

pub mod curves;
#[cfg(test)]
pub mod pictures;

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use ferrane::sensors::Domain;
use ratatui::backend::TestBackend;
use ratatui::layout::Rect;
use ratatui::style::{Color, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};
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

/// Signals within this time after the first are the same wish: a terminal that is closed can send
/// several.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// A flag that a signal to end sets. A second one, at least half a second later, restores the
/// terminal and ends the process at once. In raw mode Ctrl-C is a key and no signal.
pub fn stop_on_signal() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let mut first = None;
    ctrlc::set_handler(move || {
        let first = *first.get_or_insert_with(Instant::now);
        if flag.swap(true, Ordering::SeqCst) && first.elapsed() >= SAME_SIGNAL {
            ratatui::restore();
            std::process::exit(130);
        }
    })
    .map_err(|e| Error::new(format!("signals cannot be handled: {e}")))?;
    Ok(stop)
}

/// The columns and lines of a picture as text: what was given, or the size that a shell's variables
/// name, or 120 x 40.
pub fn picture_size(width: Option<u16>, height: Option<u16>) -> (u16, u16) {
    let size = |given: Option<u16>, name: &str, most: u16, otherwise: u16| {
        let variable = std::env::var(name).ok().and_then(|text| text.parse().ok());
        given.or(variable.filter(|size| (1..=most).contains(size))).unwrap_or(otherwise)
    };
    (size(width, "COLUMNS", 500, 120), size(height, "LINES", 200, 40))
}

/// One picture as text, without spaces at the ends of lines.
pub fn picture(width: u16, height: u16, draw: impl FnOnce(&mut Frame<'_>)) -> Result<String> {
    let mut terminal = ratatui::Terminal::new(TestBackend::new(width, height))?;
    terminal.draw(draw)?;
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for row in buffer.content().chunks(usize::from(width)) {
        let mut line = String::new();
        let mut cells = row.iter();
        while let Some(cell) = cells.next() {
            line.push_str(cell.symbol());
            // A wide character takes the cells after it, too.
            for _ in 1..Span::raw(cell.symbol()).width() {
                cells.next();
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    Ok(text)
}

/// On a terminal below the smallest size, draws this line only and returns true.
pub fn is_too_small(frame: &mut Frame<'_>, line: &str, smallest: (u16, u16)) -> bool {
    let area = frame.area();
    let small = area.width < smallest.0 || area.height < smallest.1;
    if small {
        let text = format!("{line} - a terminal of {} x {} shows the curves", smallest.0, smallest.1);
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
    }
    small
}

/// Draws the list of keys, with what they do, over the middle of the area.
pub fn list_of_keys(frame: &mut Frame<'_>, area: Rect, keys: &[(&str, &str)]) {
    let height = (keys.len() as u16 + 2).min(area.height);
    let width = 86.min(area.width);
    let place = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    let line = |(key, what): &(&str, &str)| Line::from(vec![format!(" {key:<12}").bold(), what.to_string().into()]);
    frame.render_widget(Clear, place);
    let lines: Vec<Line<'_>> = keys.iter().map(line).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" keys; any key closes this ")), place);
}

/// A number in at most seven characters or so.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        "0".into()
    } else if !(1e-2..1e5).contains(&size) {
        format!("{value:.1e}")
    } else if size < 10.0 {
        format!("{value:.3}")
    } else if size < 1000.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// A count with its thousands as k, M or G.
pub fn count(value: f64) -> String {
    match value.abs() {
        size if size >= 1e9 => format!("{:.2} G", value / 1e9),
        size if size >= 1e6 => format!("{:.2} M", value / 1e6),
        size if size >= 1e4 => format!("{:.1} k", value / 1e3),
        _ => format!("{value:.0}"),
    }
}

/// The color of a domain of power on every screen.
pub fn domain_color(domain: Domain) -> Color {
    match domain {
        Domain::Ane => Color::Cyan,
        Domain::Cpu => Color::Yellow,
        Domain::Gpu => Color::Magenta,
        Domain::Dram => Color::Blue,
        Domain::Package => Color::LightRed,
        Domain::System => Color::Reset,
    }
}

/// Seconds as hours, minutes and seconds.
pub fn duration(seconds: f64) -> String {
    let seconds = seconds.clamp(0.0, 1e9) as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        _ => format!("{}:{:02}:{:02} h", seconds / 3600, seconds / 60 % 60, seconds % 60),
    }
}
