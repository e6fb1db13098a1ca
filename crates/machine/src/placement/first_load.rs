//! The time of the first load of a program, in which the engine's compiler runs.
//!
//! The prediction is a power of the megabytes of weights, fitted by least squares of logarithms to
//! the published loads. Those differ by an order of magnitude for the same size, so the range that
//! comes with the prediction is part of the answer.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// The share of loads that the range of a prediction is meant to hold, in standard deviations of a
/// normal distribution: 80 %.
const RANGE: f64 = 1.2816;

/// A published first load.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedLoad {
    /// The program and the machine.
    pub what: String,
    /// Where it was published.
    pub source: String,
    /// The megabytes of weights.
    pub mb: f64,
    /// The time in seconds.
    pub seconds: f64,
}

/// The predicted time of a first load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstLoad {
    /// The megabytes of weights on the engine.
    pub mb: f64,
    /// The predicted time in seconds.
    pub seconds: f64,
    /// The range that is meant to hold four of five loads, in seconds.
    pub range: [f64; 2],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadFile {
    load: Vec<PublishedLoad>,
}

static LOADS: LazyLock<Vec<PublishedLoad>> = LazyLock::new(|| {
    // The data are embedded and a test reads them, so parsing succeeds.
    toml::from_str(include_str!("../../data/placement/first_load.toml"))
        .map_or_else(|_| Vec::new(), |f: LoadFile| f.load)
});

static LAW: LazyLock<Option<PowerLaw>> = LazyLock::new(|| PowerLaw::fit(&LOADS));

/// Every published first load.
pub fn published_loads() -> &'static [PublishedLoad] {
    &LOADS
}

/// Time as a power of size, with the spread around it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PowerLaw {
    intercept: f64,
    power: f64,
    /// The standard deviation of the logarithm of the time, with the uncertainty of the fit.
    spread: f64,
}

impl PowerLaw {
    fn fit(loads: &[PublishedLoad]) -> Option<PowerLaw> {
        let n = loads.len() as f64;
        if loads.len() < 3 {
            return None;
        }
        let points: Vec<(f64, f64)> = loads.iter().map(|l| (l.mb.ln(), l.seconds.ln())).collect();
        let (mx, my) = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
        let sxx: f64 = points.iter().map(|p| (p.0 - mx).powi(2)).sum();
        let sxy: f64 = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum();
        let power = sxy / sxx;
        let intercept = my - power * mx;
        let rest: f64 = points.iter().map(|p| (p.1 - intercept - power * p.0).powi(2)).sum();
        let spread = (rest / (n - 2.0) * (1.0 + 1.0 / n)).sqrt();
        [power, intercept, spread].iter().all(|v| v.is_finite()).then_some(PowerLaw { intercept, power, spread })
    }

    fn predict(&self, mb: f64) -> FirstLoad {
        let log = self.intercept + self.power * mb.ln();
        let at = |deviations: f64| (log + deviations * self.spread).exp();
        FirstLoad { mb, seconds: at(0.0), range: [at(-RANGE), at(RANGE)] }
    }
}

impl FirstLoad {
    /// Predicts the first load of this many bytes of weights; `None` outside of the published
    /// sizes.
    pub fn of(bytes: u64) -> Option<FirstLoad> {
        let mb = bytes as f64 / 1e6;
        let sizes = || LOADS.iter().map(|l| l.mb);
        let (least, most) = (sizes().fold(f64::MAX, f64::min), sizes().fold(0.0, f64::max));
        // Half and twice the published sizes are near enough for an error of this size.
        (mb >= least / 2.0 && mb <= most * 2.0).then(|| LAW.as_ref().map(|law| law.predict(mb)))?
    }

    /// The prediction for each published load from all loads of other sources.
    pub fn left_out() -> Vec<(&'static PublishedLoad, FirstLoad)> {
        let other = |load: &PublishedLoad| -> Vec<PublishedLoad> {
            LOADS.iter().filter(|l| l.source != load.source).cloned().collect()
        };
        LOADS.iter().filter_map(|l| Some((l, PowerLaw::fit(&other(l))?.predict(l.mb)))).collect()
    }
}
