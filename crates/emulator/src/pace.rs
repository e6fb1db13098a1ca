//! Pacing: what is faster here than on the machine waits until the predicted time has passed.
//!
//! The engine of a machine runs one evaluation at a time. [`Engine`] books them one after the
//! other, whatever thread they come from; one that arrives while another runs overlaps with it by
//! the share that was measured of requests in flight.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_host::sync::lock;
use ferrane_machine::Profile;
use ferrane_machine::cost::{CostModel, predict_function};
use ferrane_mil::Program;

/// What a sleep may take longer than it should: the timer slack of Linux is 50 µs.
const SLACK: Duration = Duration::from_micros(150);

/// What a program takes on the profile's machine.
pub(crate) struct Times {
    model: CostModel,
    /// The microseconds of an evaluation of each function; zero if it depends on the arguments.
    functions: Vec<f64>,
    compile_ms: f64,
}

impl Times {
    /// # Errors
    /// The profile's chip has no cost model.
    pub(crate) fn of(program: &Program, profile: &Profile) -> Result<Times> {
        let model = CostModel::for_profile(profile).map_err(|e| Error::new(ErrorKind::Option, format!("pace: {e}")))?;
        let costs = program.functions.iter().map(|function| predict_function(function, &model).ok());
        let costs: Vec<_> = costs.collect();
        let functions = costs.iter().map(|cost| cost.as_ref().map_or(0.0, |c| c.total_us)).collect();
        let compile_ms = costs.iter().flatten().map(|cost| cost.compile_ms).sum();
        Ok(Times { model, functions, compile_ms })
    }

    /// A compile, of a program that was compiled before if `cached`.
    pub(crate) fn compile(&self, cached: bool) -> Duration {
        milliseconds(if cached { self.model.cached_compile_ms(self.compile_ms) } else { self.compile_ms })
    }

    /// A load, the first of the process if `first`.
    pub(crate) fn load(&self, first: bool) -> Duration {
        milliseconds(self.model.load_ms(first))
    }
}

/// A time that no `Duration` can hold is not worth waiting for.
fn milliseconds(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()
}

/// The engine of a modeled machine.
#[derive(Default)]
pub(crate) struct Engine(Mutex<EngineState>);

#[derive(Default)]
struct EngineState {
    /// When the last evaluation that was booked ends.
    free: Option<Instant>,
    /// The program of that evaluation.
    last: Option<usize>,
    /// Whether a program has been loaded.
    loaded: bool,
}

/// An evaluation on the engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Booking {
    pub ends: Instant,
    pub takes: Duration,
}

impl Engine {
    /// Whether the load that asks is the first.
    pub(crate) fn is_first_load(&self) -> bool {
        !std::mem::replace(&mut lock(&self.0).loaded, true)
    }

    /// Books an evaluation that arrived at one moment and starts at another, of a program that a
    /// number identifies; `first` if it was not evaluated before. `None` for a function whose
    /// time is unknown.
    pub(crate) fn book(
        &self,
        times: &Times,
        (program, function): (usize, usize),
        first: bool,
        (arrived, now): (Instant, Instant),
    ) -> Option<Booking> {
        let total_us = times.functions.get(function).copied().filter(|us| *us > 0.0)?;
        let mut engine = lock(&self.0);
        let model = &times.model;
        let us = match engine.last {
            _ if first => model.first_evaluation_us(total_us),
            Some(last) if last != program => model.alternating_us(total_us),
            _ => total_us,
        };
        let busy = engine.free.filter(|free| *free > arrived);
        let takes = milliseconds(model.in_flight_us(us, if busy.is_some() { 2 } else { 1 }) / 1e3);
        let ends = busy.map_or(now, |free| free.max(now)) + takes;
        (engine.free, engine.last) = (Some(ends), Some(program));
        Some(Booking { ends, takes })
    }
}

/// Waits until a moment: it sleeps, and spins for the rest, because the times of small programs are
/// as short as the error of a sleep.
pub(crate) fn wait(until: Instant) {
    if let Some(rest) = until.saturating_duration_since(Instant::now()).checked_sub(SLACK) {
        std::thread::sleep(rest);
    }
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrane_mil::{Weights, parse};

    fn times(extent: &str) -> Times {
        let ty = format!("tensor<fp16, [1, {extent}, 1, 64]>");
        let text = format!(
            "program(1.3)\n{{\n    func main<ios18>({ty} x) {{\n        {ty} y = exp(x = x)[name = string(\"y\")];\n    }} -> (y);\n}}\n"
        );
        let program = parse(text.as_bytes(), &Weights::new()).unwrap_or_else(|e| panic!("{e}"));
        Times::of(&program, &Profile::named(Profile::DEFAULT).unwrap()).unwrap()
    }

    #[test]
    fn a_function_takes_its_floor_and_more_and_one_of_unknown_size_nothing() {
        let (small, large) = (times("4").functions[0], times("65536").functions[0]);
        // The floor of an M4 is 0.07 to 0.1 ms (benchmarks §15); the first microseconds of the
        // traffic pass during it.
        assert!(small > 60.0 && small < 120.0, "{small}");
        assert!(large > small + 2.0, "{large}");
        assert_eq!(times("?").functions, [0.0]);
        let now = Instant::now();
        assert_eq!(Engine::default().book(&times("?"), (0, 0), true, (now, now)), None);
    }

    #[test]
    fn evaluations_follow_one_another_and_overlap_with_the_one_before() {
        let (engine, times, start) = (Engine::default(), times("4"), Instant::now());
        let us = |booking: Option<Booking>| booking.unwrap().takes.as_secs_f64() * 1e6;
        let book = |program, first, arrived: Instant| engine.book(&times, (program, 0), first, (arrived, arrived));
        let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 0.01, "{found} and not {wanted}");
        let total = times.functions[0];
        let first = book(1, true, start);
        near(us(first), times.model.first_evaluation_us(total));
        // It arrives while the first runs, and ends after it.
        let second = book(1, false, start);
        near(us(second), times.model.in_flight_us(total, 2));
        assert_eq!(second.unwrap().ends, first.unwrap().ends + second.unwrap().takes);
        // These arrive when the engine is idle.
        let later = start + Duration::from_secs(1);
        near(us(book(1, false, later)), total);
        near(us(book(2, false, later + Duration::from_secs(1))), times.model.alternating_us(total));
    }

    #[test]
    fn compiles_and_loads_take_what_the_machine_takes() {
        let (engine, times) = (Engine::default(), times("4"));
        assert!(times.compile(true) < times.compile(false) && times.compile(true) > Duration::ZERO);
        let loads = [engine.is_first_load(), engine.is_first_load()];
        assert_eq!(loads, [true, false]);
        assert!(times.load(true) > times.load(false) && times.load(false) > Duration::ZERO);
    }

    #[test]
    fn waiting_ends_when_the_time_has_gone_by() {
        let until = Instant::now() + Duration::from_millis(3);
        wait(until);
        assert!(Instant::now() >= until);
    }
}
