//! Repeated measurements, and what is reported of them.

use std::fmt;
use std::time::{Duration, Instant};

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::error::{Error, Result};

/// The most repeats that a measurement takes.
pub const MOST: usize = 100_000;
/// Calls that warm up before a measurement.
pub const WARM_UP: usize = 3;
/// The fewest repeats of [`Repeats::For`].
pub const FEWEST: usize = 7;
/// The most repeats of [`Repeats::For`].
pub const MANY: usize = 1000;

/// What the numbers of a [`Spread`] count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Durations in thousandths of a second.
    Milliseconds,
    /// Durations in millionths of a second.
    Microseconds,
    /// Rates in tokens per second.
    TokensPerSecond,
    /// 10⁹ bytes per second.
    GigabytesPerSecond,
    /// A ratio without a unit.
    Ratio,
}

impl Unit {
    /// The unit in text: `ms`.
    pub fn symbol(self) -> &'static str {
        match self {
            Unit::Milliseconds => "ms",
            Unit::Microseconds => "µs",
            Unit::TokensPerSecond => "tokens/s",
            Unit::GigabytesPerSecond => "GB/s",
            Unit::Ratio => "",
        }
    }

    /// The suffix of a field in JSON: `median_ms`.
    fn suffix(self) -> &'static str {
        match self {
            Unit::Milliseconds => "_ms",
            Unit::Microseconds => "_us",
            Unit::TokensPerSecond => "_tokens_per_second",
            Unit::GigabytesPerSecond => "_gb_per_second",
            Unit::Ratio => "",
        }
    }
}

/// Repeated measurements of one thing; at least one.
///
/// Prints as `12.3 ms (11.9 to 14.0)`: the median, the lowest and the highest. Serializes as
/// `median_ms`, `lowest_ms`, `highest_ms` and `repeats`, in its own unit.
#[derive(Clone, Debug)]
pub struct Spread {
    unit: Unit,
    /// In ascending order and never empty.
    sorted: Vec<f64>,
}

impl Spread {
    /// The spread of these numbers; without any it is a single 0.
    pub fn new(unit: Unit, values: impl IntoIterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        if sorted.is_empty() {
            sorted.push(0.0);
        }
        sorted.sort_by(f64::total_cmp);
        Spread { unit, sorted }
    }

    /// The spread of these times, in milliseconds.
    pub fn ms(times: impl IntoIterator<Item = Duration>) -> Spread {
        Spread::new(Unit::Milliseconds, times.into_iter().map(|t| t.as_secs_f64() * 1e3))
    }

    /// The unit of the numbers.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// The number of measurements.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The value that `part` of all measurements do not exceed: 0.5 is the median, and of two
    /// values in the middle the upper one.
    pub fn quantile(&self, part: f64) -> f64 {
        let last = self.sorted.len() - 1;
        self.sorted[((self.sorted.len() as f64 * part) as usize).min(last)]
    }

    /// The value in the middle.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The smallest of the measurements.
    pub fn lowest(&self) -> f64 {
        self.sorted[0]
    }

    /// The largest of the measurements.
    pub fn highest(&self) -> f64 {
        self.sorted[self.sorted.len() - 1]
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, lowest, highest] = [self.median(), self.lowest(), self.highest()].map(short);
        write!(f, "{median} {} ({lowest} to {highest})", self.unit.symbol())
    }
}

impl Serialize for Spread {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let suffix = self.unit.suffix();
        let mut map = serializer.serialize_map(Some(4))?;
        for (name, value) in [("median", self.median()), ("lowest", self.lowest()), ("highest", self.highest())] {
            map.serialize_entry(&format!("{name}{suffix}"), &round(value))?;
        }
        map.serialize_entry("repeats", &self.count())?;
        map.end()
    }
}

/// How often something is measured.
#[derive(Clone, Copy, Debug)]
pub enum Repeats {
    /// Exactly this often; 0 counts as 1.
    Count(usize),
    /// As often as this time holds, from [`FEWEST`] to [`MANY`] times.
    For(Duration),
}

impl Repeats {
    /// `count` repeats, or without a count as many as `time` holds.
    ///
    /// # Errors
    /// [`Error::Option`] for a count of 0 or of more than [`MOST`].
    pub fn new(count: Option<usize>, time: Duration) -> Result<Repeats> {
        match count {
            Some(count) => Ok(Repeats::Count(checked_count("repeat", count)?)),
            None => Ok(Repeats::For(time)),
        }
    }

    pub(crate) fn wants_more(self, count: usize, since: Instant) -> bool {
        match self {
            Repeats::Count(n) => count < n.max(1),
            Repeats::For(time) => count < FEWEST || (count < MANY && since.elapsed() < time),
        }
    }
}

/// Calls `call` `warm_up` times, then as often as `repeats` says, and keeps the times of the
/// latter.
///
/// # Errors
/// The first error of `call`.
pub fn measure(warm_up: usize, repeats: Repeats, mut call: impl FnMut() -> Result<()>) -> Result<Spread> {
    for _ in 0..warm_up {
        call()?;
    }
    let (mut times, since) = (Vec::new(), Instant::now());
    while repeats.wants_more(times.len(), since) {
        let begun = Instant::now();
        call()?;
        times.push(begun.elapsed());
    }
    Ok(Spread::ms(times))
}

/// The count of `option`, from 1 to [`MOST`].
pub(crate) fn checked_count(option: &'static str, count: usize) -> Result<usize> {
    match count {
        0 => Err(Error::option(option, count, "measures nothing; give 1 or more")),
        1..=MOST => Ok(count),
        _ => Err(Error::option(option, count, format!("at most {MOST}"))),
    }
}

/// A number as reports serialize it: five significant digits.
pub(crate) fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10f64.powi(4 - value.abs().log10().floor() as i32);
    if scale.is_finite() && scale > 0.0 { (value * scale).round() / scale } else { value }
}

/// Serializes a number with five significant digits.
pub(crate) fn rounded<S: Serializer>(value: &f64, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_f64(round(*value))
}

/// A number as reports print it: three significant digits, and no fraction from 100 on.
pub(crate) fn short(value: f64) -> String {
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
    use serde_json::json;

    use super::*;

    #[test]
    fn the_middle_and_the_ends() {
        let spread = Spread::new(Unit::Microseconds, [3.0, 1.0, 2.0, 100.0, 4.0]);
        assert_eq!((spread.median(), spread.lowest(), spread.highest(), spread.count()), (3.0, 1.0, 100.0, 5));
        assert_eq!((spread.quantile(0.99), spread.quantile(1.0), spread.quantile(0.0)), (100.0, 100.0, 1.0));
        assert_eq!(Spread::new(Unit::Ratio, (1..=100).map(f64::from)).quantile(0.98), 99.0);
        assert_eq!(Spread::new(Unit::Ratio, []).median(), 0.0);
        assert_eq!(spread.to_string(), "3.00 µs (1.00 to 100)");
        let json = serde_json::to_value(&spread).unwrap();
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
        let spread = measure(2, Repeats::Count(3), || {
            calls += 1;
            Ok(())
        });
        assert_eq!((calls, spread.unwrap().count()), (5, 3));
        assert!(measure(0, Repeats::Count(1), || Err(Error::WrongResult("no".into()))).is_err());
        let slow = measure(0, Repeats::For(Duration::ZERO), || Ok(()));
        assert_eq!(slow.unwrap().count(), FEWEST);
        assert_eq!(measure(0, Repeats::For(Duration::from_secs(60)), || Ok(())).unwrap().count(), MANY);
        assert!(
            [0, MOST + 1].iter().all(|n| Repeats::new(Some(*n), Duration::ZERO).is_err())
                && Repeats::new(Some(1), Duration::ZERO).is_ok()
        );
    }
}
