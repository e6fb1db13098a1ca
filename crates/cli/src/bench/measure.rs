//! Repeated measurements and what is told of them.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::error::{Error, Result};

/// Measured repeats at most.
pub const MOST: usize = 100_000;
/// Calls that warm up.
pub const WARM_UP: usize = 3;
/// Repeats at least where their number is not given.
pub const FEWEST: usize = 7;
/// Repeats at most where their number is not given.
pub const MANY: usize = 1000;

/// Times of one thing, or other numbers of it; at least one.
#[derive(Clone, Debug)]
pub struct Spread {
    /// In ascending order.
    sorted: Vec<f64>,
}

impl Spread {
    /// Of these numbers; of none it is 0.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        if sorted.is_empty() {
            sorted.push(0.0);
        }
        sorted.sort_by(f64::total_cmp);
        Spread { sorted }
    }

    /// Of these times, in milliseconds.
    pub fn ms(times: impl IntoIterator<Item = Duration>) -> Spread {
        Spread::of(times.into_iter().map(|t| t.as_secs_f64() * 1e3))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The smallest value that at least this part of all does not exceed: 0.5 is the median (the
    /// upper one of two in the middle).
    pub fn quantile(&self, part: f64) -> f64 {
        let last = self.sorted.len() - 1;
        self.sorted[((self.sorted.len() as f64 * part) as usize).min(last)]
    }

    /// The middle.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The smallest.
    pub fn lowest(&self) -> f64 {
        self.sorted[0]
    }

    /// The largest.
    pub fn highest(&self) -> f64 {
        self.sorted[self.sorted.len() - 1]
    }

    /// `median_ms`, `lowest_ms`, `highest_ms`, `repeats`; another unit takes the place of `ms`.
    pub fn json(&self, unit: &str) -> Map<String, Value> {
        [("median", self.median()), ("lowest", self.lowest()), ("highest", self.highest())]
            .into_iter()
            .map(|(name, value)| (format!("{name}_{unit}"), json!(round(value))))
            .chain([("repeats".to_string(), json!(self.count()))])
            .collect()
    }

    /// `12.3 ms (11.9 to 14.0)`.
    pub fn text(&self, unit: &str) -> String {
        let [median, lowest, highest] = [self.median(), self.lowest(), self.highest()].map(short);
        format!("{median} {unit} ({lowest} to {highest})")
    }
}

/// How often something is measured.
#[derive(Clone, Copy, Debug)]
pub enum Repeats {
    /// This often, at least once.
    Count(usize),
    /// As often as this time holds, within [`FEWEST`] and [`MANY`].
    For(Duration),
}

impl Repeats {
    /// A number that was asked for, else as many as a second holds.
    pub fn given(count: Option<usize>) -> Repeats {
        count.map_or(Repeats::For(Duration::from_secs(1)), Repeats::Count)
    }

    fn go_on(self, count: usize, since: Instant) -> bool {
        match self {
            Repeats::Count(n) => count < n.max(1),
            Repeats::For(time) => count < FEWEST || (count < MANY && since.elapsed() < time),
        }
    }
}

/// Calls it `warm_up` times, then as often as `repeats` says, and keeps the times of the latter.
pub fn repeat(warm_up: usize, repeats: Repeats, mut call: impl FnMut() -> Result<()>) -> Result<Spread> {
    for _ in 0..warm_up {
        call()?;
    }
    let (mut times, since) = (Vec::new(), Instant::now());
    while repeats.go_on(times.len(), since) {
        let begun = Instant::now();
        call()?;
        times.push(begun.elapsed());
    }
    Ok(Spread::ms(times))
}

/// Refuses a number of repeats that makes no measurement, or that nobody waits for.
pub fn repeats(option: &str, count: usize) -> Result<usize> {
    match count {
        0 => Err(Error::new(format!("{option} 0 measures nothing; give 1 or more"))),
        1..=MOST => Ok(count),
        _ => Err(Error::new(format!("{option} {count}: at most {MOST}"))),
    }
}

/// A number as it is written down: five significant digits.
pub fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10f64.powi(4 - value.abs().log10().floor() as i32);
    if scale.is_finite() && scale > 0.0 { (value * scale).round() / scale } else { value }
}

/// A number as it is shown: three significant digits, and no fraction from 100 on.
pub fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.9995 => format!("{value:.2}"),
        0.0 => "0".into(),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_ends() {
        let spread = Spread::of([3.0, 1.0, 2.0, 100.0, 4.0]);
        assert_eq!((spread.median(), spread.lowest(), spread.highest(), spread.count()), (3.0, 1.0, 100.0, 5));
        assert_eq!((spread.quantile(0.99), spread.quantile(1.0), spread.quantile(0.0)), (100.0, 100.0, 1.0));
        assert_eq!(Spread::of((1..=100).map(f64::from)).quantile(0.98), 99.0);
        assert_eq!(Spread::of([]).median(), 0.0);
        assert_eq!(spread.text("ms"), "3.00 ms (1.00 to 100)");
        let json = Value::Object(spread.json("us"));
        assert_eq!(json, json!({"median_us": 3.0, "lowest_us": 1.0, "highest_us": 100.0, "repeats": 5}));
    }

    #[test]
    fn numbers_keep_their_digits_at_any_size() {
        assert_eq!(
            [round(123_456.7), round(0.000_123_456_78), round(0.0), round(-9.999_96)],
            [123_460.0, 0.000_123_46, 0.0, -10.0]
        );
        assert!(round(f64::NAN).is_nan() && round(f64::INFINITY).is_infinite() && round(5e-324) >= 0.0);
        assert_eq!([short(0.12345), short(1.2345), short(12.345), short(1234.5)], ["0.123", "1.23", "12.3", "1234"]);
    }

    #[test]
    fn warm_up_is_called_and_not_kept() {
        let mut calls = 0;
        let spread = repeat(2, Repeats::Count(3), || {
            calls += 1;
            Ok(())
        });
        assert_eq!((calls, spread.unwrap().count()), (5, 3));
        assert!(repeat(0, Repeats::Count(1), || Err(Error::new("no"))).is_err());
        let slow = repeat(0, Repeats::For(Duration::ZERO), || Ok(()));
        assert_eq!(slow.unwrap().count(), FEWEST);
        assert_eq!(repeat(0, Repeats::For(Duration::from_secs(60)), || Ok(())).unwrap().count(), MANY);
        assert!(
            repeats("--repeat", 0).is_err() && repeats("--repeat", MOST + 1).is_err() && repeats("--repeat", 1).is_ok()
        );
    }
}
