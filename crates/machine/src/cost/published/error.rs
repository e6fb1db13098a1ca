//! Errors over kernel rows: one metric per measurement, medians, and the noise between replicates.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::CostModel;
use super::super::chart::{Chart, Series};
use super::kernel::{ConvChain, MeasuredKernel};
use super::record::{PublishedRecord, chip_name};

/// A published measurement of one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelRow {
    /// The chip, such as `m4-max`.
    pub chip: String,
    /// The chain of convolutions that was evaluated.
    pub shape: ConvChain,
    /// The measured time in milliseconds.
    pub ms: f64,
    /// The name of the benchmark.
    pub what: String,
    /// True if the configuration has channels and positions as separate numbers.
    pub structured: bool,
}

/// The error of the predictions for one chip.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ChipError {
    /// The number of rows.
    pub rows: usize,
    /// The median of the absolute relative errors.
    pub median: f64,
    /// Their 90th percentile.
    pub p90: f64,
    /// The number of configurations.
    pub configurations: usize,
    /// The median of the absolute errors relative to the typical time of a configuration, the lower
    /// quartile of its replicates.
    pub typical_median: f64,
    /// Their 90th percentile.
    pub typical_p90: f64,
    /// The noise between replicates ([`noise`]); `None` without replicates.
    pub noise: Option<f64>,
    /// The 90th percentile of the absolute difference between a row and the median of its
    /// configuration, relative to the row: about the least `p90` of any model that knows chip and
    /// configuration.
    pub spread_p90: f64,
}

/// The errors over all rows and for each chip.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ErrorSummary {
    /// The error over the rows of all chips.
    pub pooled: ChipError,
    /// The error for each chip, by name.
    pub chips: BTreeMap<String, ChipError>,
}

/// The measured kernels of a file: every record with channels and positions (depth 1 unless it
/// states another) and a metric of an evaluation on a known chip by the standard path. If a
/// measurement has several metrics, its times count, or else the first metric.
pub fn kernel_rows(records: &[Value]) -> Vec<KernelRow> {
    let mut groups: BTreeMap<String, Vec<(MeasuredKernel, &str, KernelRow)>> = BTreeMap::new();
    for value in records {
        let record = PublishedRecord::new(value);
        let Some((kernel, chip)) = MeasuredKernel::of(&record).zip(chip_name(record.chip)) else { continue };
        // Other paths to the engine have their own dispatch cost.
        if record.text("path").is_some_and(|path| path != "standard") {
            continue;
        }
        let Some(ms) = record.value.and_then(|v| kernel.published_ms(v)) else { continue };
        let structured = record.count("channels").is_some();
        let row = KernelRow { chip, shape: kernel.shape, ms, what: record.what.to_string(), structured };
        groups.entry(record.measurement()).or_default().push((kernel, record.metric, row));
    }
    let mut rows = Vec::new();
    for group in groups.into_values() {
        let best = group.iter().find(|(k, ..)| k.is_time()).or(group.first()).map(|(_, metric, _)| *metric);
        rows.extend(group.into_iter().filter(|(_, metric, _)| Some(*metric) == best).map(|(.., row)| row));
    }
    rows
}

/// The median; zero for no values.
pub fn median(values: Vec<f64>) -> f64 {
    quantile(values, 0.5)
}

/// The value below which a share of the values lies, between the two next to it by their distance;
/// zero for no values.
pub fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return 0.0 };
    let at = last as f64 * share.clamp(0.0, 1.0);
    let (low, high) = (values[at.floor() as usize], values[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

/// The noise between replicates: over the configurations with more than one row, the median of
/// standard deviation divided by mean. `None` without replicates.
pub fn noise(rows: &[&KernelRow]) -> Option<f64> {
    let mut same: BTreeMap<(&str, ConvChain), Vec<f64>> = BTreeMap::new();
    for row in rows {
        same.entry((&row.chip, row.shape)).or_default().push(row.ms);
    }
    let spread = |times: &Vec<f64>| {
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let squares: f64 = times.iter().map(|t| (t - mean).powi(2)).sum();
        (squares / (times.len() - 1) as f64).sqrt() / mean
    };
    let spreads: Vec<f64> = same.values().filter(|t| t.len() > 1).map(spread).collect();
    (!spreads.is_empty()).then(|| median(spreads))
}

/// The errors of the predictions for the rows; a prediction depends on chip and shape only.
pub fn summarize(rows: &[KernelRow], predicted: impl Fn(&KernelRow) -> Option<f64>) -> ErrorSummary {
    let error = |rows: &[&KernelRow]| {
        let mut same: BTreeMap<(&str, ConvChain), Vec<&KernelRow>> = BTreeMap::new();
        for row in rows {
            same.entry((&row.chip, row.shape)).or_default().push(row);
        }
        let (mut errors, mut typical, mut spread) = (Vec::new(), Vec::new(), Vec::new());
        for replicates in same.values() {
            let Some(ms) = replicates.first().and_then(|row| predicted(row)) else { continue };
            let times: Vec<f64> = replicates.iter().map(|r| r.ms).collect();
            let middle = median(times.clone());
            errors.extend(times.iter().map(|t| (ms / t - 1.0).abs()));
            spread.extend(times.iter().map(|t| (middle / t - 1.0).abs()));
            typical.push((ms / quantile(times, 0.25) - 1.0).abs());
        }
        let both = |values: Vec<f64>| (median(values.clone()), quantile(values, 0.9));
        let (rows_of, configurations) = (errors.len(), typical.len());
        let ((median, p90), (typical_median, typical_p90)) = (both(errors), both(typical));
        let spread_p90 = quantile(spread, 0.9);
        let noise = noise(rows);
        ChipError { rows: rows_of, median, p90, configurations, typical_median, typical_p90, noise, spread_p90 }
    };
    let all: Vec<&KernelRow> = rows.iter().collect();
    let names: BTreeSet<&str> = rows.iter().map(|r| r.chip.as_str()).collect();
    let chips = names.into_iter().map(|chip| {
        let own: Vec<&KernelRow> = rows.iter().filter(|r| r.chip == chip).collect();
        (chip.to_string(), error(&own))
    });
    ErrorSummary { pooled: error(&all), chips: chips.collect() }
}

/// Published times in ms plotted against predicted ones, as SVG: a mark for each
/// `(chip, published, predicted)`, and the diagonal.
pub fn scatter_svg(points: &[(&str, f64, f64)]) -> String {
    let mut series: BTreeMap<&str, Vec<(f64, f64, String)>> = BTreeMap::new();
    for (chip, published, predicted) in points {
        let word = format!("{chip}: {published:.3} ms, predicted {predicted:.3}");
        series.entry(chip).or_default().push((*published, *predicted, word));
    }
    let all = || points.iter().flat_map(|(_, a, b)| [*a, *b]).filter(|v| v.is_finite() && *v > 0.0);
    let (low, high) = (all().fold(f64::MAX, f64::min), all().fold(f64::MIN, f64::max));
    let lines = if low < high { vec![vec![(low, low), (high, high)]] } else { Vec::new() };
    let series = series.into_iter().map(|(name, marks)| Series { name: name.to_string(), marks }).collect();
    let (title, x, y) = ("Time of an evaluation".into(), "published, ms".into(), "predicted, ms".into());
    Chart { title, x, y, series, lines }.svg()
}

impl ErrorSummary {
    /// The errors of the built-in models.
    pub fn of(rows: &[KernelRow]) -> ErrorSummary {
        let models: BTreeMap<&str, CostModel> =
            rows.iter().filter_map(|r| Some((r.chip.as_str(), CostModel::for_chip(&r.chip).ok()?))).collect();
        summarize(rows, |row| row.shape.ms(models.get(row.chip.as_str())?))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_measurement_counts_once_and_by_its_time() {
        let row = |metric: &str, unit: &str, value: f64| json!({"source": "s", "chip": "M4", "what": "sram_probe", "config": {"channels": 512, "spatial": 64}, "metric": metric, "value": value, "unit": unit});
        let rows = kernel_rows(&[row("tflops", "TFLOPS", 0.4), row("ms_per_eval", "ms", 0.084)]);
        assert_eq!(rows.iter().map(|r| r.ms).collect::<Vec<_>>(), [0.084]);
        let rows = kernel_rows(&[row("tflops", "TFLOPS", 0.4)]);
        // 2·512²·64 operations.
        assert!((rows[0].ms - 0.033554432 / 0.4).abs() < 1e-12);
    }

    #[test]
    fn noise_is_between_replicates() {
        let shape = ConvChain { inputs: 1, outputs: 1, positions: 1, depth: 1, int8: false };
        let row = |ms: f64| KernelRow { chip: "m4".into(), shape, ms, what: String::new(), structured: true };
        let (a, b) = (row(1.0), row(3.0));
        assert_eq!(noise(&[&a]), None);
        // Standard deviation √2 around a mean of 2.
        assert_eq!(noise(&[&a, &b]), Some(2f64.sqrt() / 2.0));
        assert_eq!((median(vec![]), median(vec![3.0, 1.0, 2.0]), median(vec![4.0, 1.0])), (0.0, 2.0, 2.5));
        assert_eq!((quantile(vec![4.0, 1.0, 3.0, 2.0, 5.0], 0.25), quantile(vec![1.0, 2.0], 0.9)), (2.0, 1.9));
    }

    #[test]
    fn errors_are_of_rows_and_of_typical_times() {
        let shape = |inputs| ConvChain { inputs, outputs: 1, positions: 1, depth: 1, int8: false };
        let row =
            |n, ms: f64| KernelRow { chip: "m4".into(), shape: shape(n), ms, what: String::new(), structured: true };
        // Five replicates with a lower quartile of 2 and a median of 4, and one row of another
        // shape.
        let rows: Vec<_> = [1.0, 2.0, 4.0, 4.0, 8.0].map(|ms| row(1, ms)).into_iter().chain([row(2, 10.0)]).collect();
        let e = summarize(&rows, |r| Some(if r.shape.inputs == 1 { 2.0 } else { 5.0 })).pooled;
        // Errors of 1, 0, 1/2, 1/2, 3/4 and 1/2; against the typical times 0 and 1/2.
        assert_eq!((e.rows, e.median, e.p90), (6, 0.5, 0.875));
        assert_eq!((e.configurations, e.typical_median, e.typical_p90), (2, 0.25, 0.45));
        // The median of the replicates is off by 3, 1, 0, 0, 1/2, and that of the single row by 0.
        assert_eq!(e.spread_p90, 2.0);
    }
}
