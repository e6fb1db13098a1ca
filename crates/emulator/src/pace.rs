//! Pacing: an evaluation that is faster than the machine waits until the predicted time has passed.

use std::time::{Duration, Instant};

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_machine::Profile;
use ferrane_machine::cost::{CostModel, predict_function};
use ferrane_mil::Program;

/// The predicted time of an evaluation of each function on the profile's machine; zero if it
/// depends on the arguments.
///
/// # Errors
/// The profile's chip has no cost model.
pub(crate) fn least(program: &Program, profile: &Profile) -> Result<Vec<Duration>> {
    let model = CostModel::for_profile(profile).map_err(|e| Error::new(ErrorKind::Option, format!("pace: {e}")))?;
    let time = |function| predict_function(function, &model).map_or(0.0, |cost| cost.total_us / 1e6);
    // A time that no `Duration` can hold is not worth waiting for.
    Ok(program.functions.iter().map(|f| Duration::try_from_secs_f64(time(f)).unwrap_or_default()).collect())
}

/// What a sleep may take longer than it should: the timer slack of Linux is 50 µs.
const SLACK: Duration = Duration::from_micros(150);

/// Waits until `least` has passed since `begun`: it sleeps, and spins for the rest, because the
/// times of small programs are as short as the error of a sleep.
pub(crate) fn hold(begun: Instant, least: Duration) {
    if let Some(rest) = least.saturating_sub(begun.elapsed()).checked_sub(SLACK) {
        std::thread::sleep(rest);
    }
    while begun.elapsed() < least {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrane_mil::{Weights, parse};

    fn times(extent: &str) -> Vec<Duration> {
        let ty = format!("tensor<fp16, [1, {extent}, 1, 64]>");
        let text = format!(
            "program(1.3)\n{{\n    func main<ios18>({ty} x) {{\n        {ty} y = exp(x = x)[name = string(\"y\")];\n    }} -> (y);\n}}\n"
        );
        let program = parse(text.as_bytes(), &Weights::new()).unwrap_or_else(|e| panic!("{e}"));
        least(&program, &Profile::named(Profile::DEFAULT).unwrap()).unwrap()
    }

    #[test]
    fn a_function_takes_its_floor_and_more_and_one_of_unknown_size_nothing() {
        let (small, large) = (times("4")[0], times("65536")[0]);
        // The floor of an M4 is 0.07 to 0.1 ms (benchmarks §15); the first microseconds of the
        // traffic pass during it.
        assert!(small > Duration::from_micros(60) && small < Duration::from_micros(120), "{small:?}");
        assert!(large > small + Duration::from_micros(2), "{large:?}");
        assert_eq!(times("?"), [Duration::ZERO]);
    }

    #[test]
    fn waiting_ends_when_the_time_has_gone_by() {
        let begun = Instant::now();
        hold(begun, Duration::from_millis(3));
        assert!(begun.elapsed() >= Duration::from_millis(3));
    }
}
