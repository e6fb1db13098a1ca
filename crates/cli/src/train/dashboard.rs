//! `ferrane train --dashboard`: a thread that draws the run and reads keys, next to the run.
//!
//! The run emits events into a channel and never waits for the terminal. If the thread ends for
//! another reason than the end of the run, it stops the run, which saves.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ferrane::train::metrics::METRICS;
use ferrane::train::run::{Control, Event};
use ferrane::train::watch::{LogKind, RunView, Tail};

use crate::error::{Error, Result};
use crate::terminal::FullScreen;
use crate::watch::{KeyRequest, RunState, Screen};

/// Time between two looks at the events of the run; a key is met at once.
const LOOK: Duration = Duration::from_millis(125);
/// Least time between two pictures, unless a key changes them. Each takes some milliseconds from
/// the run.
const FRAME: Duration = Duration::from_millis(250);

/// The dashboard of a run of this process.
pub struct Dashboard {
    events: Sender<Event>,
    thread: JoinHandle<Result<()>>,
    /// Warnings and the end, which are also printed when the terminal is restored.
    kept: Vec<Event>,
}

impl Dashboard {
    /// Takes the terminal and shows the run in `out`; its keys set `stop` and use `control`.
    ///
    /// # Errors
    /// If the terminal cannot be used.
    pub fn open(
        out: &Path,
        control: &Control,
        stop: &Arc<AtomicBool>,
        peak: Option<(String, f64)>,
    ) -> Result<Dashboard> {
        let terminal = FullScreen::open()?;
        let screen = Screen::controlling(&out.display().to_string(), peak);
        let (events, receiver) = mpsc::channel();
        let mut ends = StopAtEnd(Some(stop.clone()));
        let mut shown = Shown { screen, view: RunView::new(), control: control.clone(), stop: stop.clone(), step: 0 };
        // Updates before a resume.
        let mut tail = Tail::new(out.join(METRICS));
        while let Ok(true) = tail.read(&mut shown.view) {}
        let thread = std::thread::Builder::new()
            .name("dashboard".into())
            .spawn(move || shown.follow(terminal, &receiver).inspect(|()| ends.disarm()))?;
        Ok(Dashboard { events, thread, kept: Vec::new() })
    }

    /// Hands an event to the thread that draws; never waits for it.
    pub fn event(&mut self, event: &Event) {
        if matches!(event, Event::Warning { .. } | Event::Stopped { .. }) {
            self.kept.push(event.clone());
        }
        // Without a receiver, the thread has stopped the run.
        let _ = self.events.send(event.clone());
    }

    /// Restores the terminal, and returns the events to print there.
    ///
    /// # Errors
    /// Why the terminal could not be used any more.
    pub fn close(self) -> Result<Vec<Event>> {
        drop(self.events);
        match self.thread.join() {
            Ok(ended) => ended.map(|()| self.kept),
            Err(_) => Err(Error::new("the dashboard failed; the run was stopped and saved")),
        }
    }
}

/// Stops the run when the thread ends by an error or a panic.
struct StopAtEnd(Option<Arc<AtomicBool>>);

impl StopAtEnd {
    fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        if let Some(stop) = &self.0 {
            stop.store(true, Ordering::SeqCst);
        }
    }
}

/// What the thread shows.
struct Shown {
    screen: Screen,
    view: RunView,
    control: Control,
    stop: Arc<AtomicBool>,
    step: u64,
}

impl Shown {
    /// Draws until the run ends.
    fn follow(&mut self, mut terminal: FullScreen, events: &Receiver<Event>) -> Result<()> {
        let mut drawn: Option<Instant> = None;
        let (mut changed, mut pressed) = (true, false);
        loop {
            loop {
                match events.try_recv() {
                    Ok(event) => self.event(event),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
                changed = true;
            }
            self.screen.state = if self.stop.load(Ordering::SeqCst) {
                RunState::Stopping
            } else if self.control.is_paused() {
                RunState::Paused
            } else {
                RunState::Running
            };
            if pressed || (changed && drawn.is_none_or(|at| at.elapsed() >= FRAME)) {
                terminal.draw(|frame| self.screen.draw(&self.view, frame))?;
                (drawn, changed, pressed) = (Some(Instant::now()), false, false);
            }
            for key in terminal.keys(LOOK)? {
                pressed = true;
                if let Some(request) = key.and_then(|key| self.screen.key(key, &self.view)) {
                    self.request(request);
                }
            }
        }
    }

    fn request(&self, request: KeyRequest) {
        match request {
            KeyRequest::Pause => self.control.pause(!self.control.is_paused()),
            KeyRequest::Save => self.control.save(),
            KeyRequest::Sample => self.control.sample(),
            KeyRequest::Quit => self.stop.store(true, Ordering::SeqCst),
            KeyRequest::QuitNow => {
                ratatui::restore();
                std::process::exit(130);
            }
        }
    }

    fn event(&mut self, event: Event) {
        if let Some(text) = event.note() {
            let kind = if matches!(event, Event::Warning { .. }) { LogKind::Warning } else { LogKind::Note };
            self.view.log(self.step, kind, &text);
        }
        match event {
            Event::Update { mut record, .. } => {
                self.step = record.step;
                // The log has them already.
                if let Some(process) = &mut record.process {
                    process.notes.clear();
                }
                self.view.push(*record);
                self.screen.windows = None;
            }
            Event::Window { done, of, .. } => self.screen.windows = Some((done, of)),
            Event::Sampled { step, text } => self.view.sample(step, &text),
            _ => {}
        }
    }
}
