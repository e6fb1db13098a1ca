//! `ferrane top`: power, states, temperatures and load of this computer, on the terminal, as JSON,
//! for Prometheus, or while a command runs.

mod command;
mod panels;
mod screen;

use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ferrane::probe::describe_computer;
use ferrane::sensors::{self, History, Interval, Sensors};
use ferrane_host::sync::lock;
use serde::Serialize;
use serde_json::Value;

use crate::args::Top;
use crate::error::{Error, Result};
use crate::terminal::{self, FullScreen, picture_size, stop_on_signal};
use crate::{files, out, scrape};

use screen::{TopKey, TopScreen};

/// Time between two looks at the keys and at the flag of a signal.
const LOOK: Duration = Duration::from_millis(50);

/// Shows or writes what the sensors report, until the user quits, or as often as was asked.
pub fn run(args: &Top) -> Result<()> {
    if !args.command.is_empty() {
        return command::run(args);
    }
    if !io::stdout().is_terminal() && !args.once && !args.json && args.prometheus.is_none() {
        return Err(Error::new(
            "standard output is not a terminal; `ferrane top --once` prints one picture as text, `--json` a line for each \
             interval, `--prometheus PORT` answers over HTTP, and `-- COMMAND` measures a command",
        ));
    }
    let listener = args.prometheus.as_deref().map(scrape::listen).transpose()?;
    let mut meter = Meter::new(sensors::open(), args.interval, args.count);
    let history = meter.history.clone();
    let text = move || lock(&history).openmetrics();
    let server = listener.map(|listener| scrape::serve(listener, text)).transpose()?;
    let metrics = server.as_ref().map(scrape::url);
    let has_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if args.json || (metrics.is_some() && !has_terminal) {
        if let Some(metrics) = metrics {
            out::note(format_args!("metrics at {metrics}"));
        }
        return write(&mut meter, args.json);
    }
    let sources: Vec<&str> = meter.sensors.sources().collect();
    let mut screen = TopScreen::new(computer(&describe_computer(true)), sources.join(", "), args.interval);
    screen.metrics = metrics;
    if args.once {
        thread::sleep(args.interval);
        meter.read();
        let (width, height) = picture_size(args.width, args.height);
        let history = meter.history();
        return out::print(terminal::picture(width, height, |frame| screen.draw(&history, frame))?);
    }
    follow(&mut meter, &mut screen)
}

/// Reads the sensors at regular times into a history that other threads read, too.
struct Meter {
    sensors: Sensors,
    history: Arc<Mutex<History>>,
    interval: Duration,
    next: Instant,
    /// Intervals that are left; `None` is no limit.
    left: Option<u64>,
}

impl Meter {
    fn new(mut sensors: Sensors, interval: Duration, count: Option<u64>) -> Meter {
        let history = Arc::new(Mutex::new(History::new(sensors.read())));
        Meter { sensors, history, interval, next: Instant::now() + interval, left: count }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }

    /// Time until the next reading.
    fn wait(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Adds an interval. One that is late moves those after it.
    fn read(&mut self) {
        let reading = self.sensors.read();
        self.history().push(reading);
        self.next = (self.next + self.interval).max(Instant::now());
        self.left = self.left.map(|left| left.saturating_sub(1));
    }

    fn is_done(&self) -> bool {
        self.left == Some(0)
    }
}

/// A line of `--json`.
#[derive(Serialize)]
struct IntervalLine<'a> {
    /// The end of the interval, in seconds since 1970.
    unix_seconds: f64,
    #[serde(flatten)]
    interval: &'a Interval,
}

/// Reads until the count is reached or a signal comes, and writes a line for each interval if
/// `json` is set.
fn write(meter: &mut Meter, json: bool) -> Result<()> {
    let stop = files::stop_on_ctrl_c_quietly()?;
    while !meter.is_done() {
        if !waited(meter, &stop) {
            return Ok(());
        }
        meter.read();
        let history = meter.history();
        if let Some(interval) = history.latest().filter(|_| json) {
            let unix_seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            out::json(&IntervalLine { unix_seconds, interval })?;
        }
    }
    Ok(())
}

/// Waits for the next reading; false if a signal came.
fn waited(meter: &Meter, stop: &AtomicBool) -> bool {
    loop {
        let wait = meter.wait();
        if stop.load(Ordering::SeqCst) || wait.is_zero() {
            return !stop.load(Ordering::SeqCst);
        }
        thread::sleep(wait.min(LOOK));
    }
}

fn follow(meter: &mut Meter, screen: &mut TopScreen) -> Result<()> {
    let stop = stop_on_signal()?;
    let mut terminal = FullScreen::open()?;
    let mut draw = true;
    while !meter.is_done() && !stop.load(Ordering::SeqCst) {
        if draw {
            let history = meter.history().clone();
            terminal.draw(|frame| screen.draw(&history, frame))?;
        }
        draw = false;
        for key in terminal.keys(meter.wait().min(LOOK))? {
            let request = key.and_then(|key| screen.key(key, &meter.history()));
            match request {
                Some(TopKey::Quit) => return Ok(()),
                Some(TopKey::Reset) => meter.history().reset(),
                None => {}
            }
            draw = true;
        }
        if meter.wait().is_zero() {
            meter.read();
            draw |= !screen.is_paused();
        }
    }
    Ok(())
}

/// The computer in one line, from its description.
fn computer(facts: &Value) -> String {
    let text = |name: &str| facts[name].as_str();
    let mut parts = vec![text("chip").or(text("processor")).unwrap_or("unknown processor").to_string()];
    let system = match (text("os"), text("build")) {
        (Some(os), Some(build)) => Some(format!("{os} ({build})")),
        (os, _) => os.map(str::to_string),
    };
    parts.extend(system);
    parts.extend(text("arch").map(str::to_string));
    parts.extend(facts["threads"].as_u64().map(|threads| format!("{threads} threads")));
    parts.join(", ")
}

#[cfg(test)]
mod tests;
