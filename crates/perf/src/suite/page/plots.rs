//! The plots.

use std::collections::{BTreeSet, HashSet};

use ferrane_page::{Plot, PlotAxis, PlotPoint, PlotSeries, SeriesKind};
use serde_json::Value;

use super::of;
use crate::spread::short;
use crate::suite::compare::letter;
use crate::suite::fits::{is_dip, number, weight_mib};
use crate::suite::report::{SuiteReport, SuiteRow, SuiteTimes, configuration};

/// A time axis whose ends differ by more than this factor is logarithmic.
const WIDE: f64 = 30.0;

/// Rows of one report, with its index.
type ReportRows<'a> = Vec<(usize, Vec<&'a SuiteRow>)>;
/// A place on the horizontal axis.
type Across<'a> = &'a dyn Fn(&SuiteRow) -> Option<f64>;
/// A place on the vertical axis, from milliseconds.
type Upward<'a> = &'a dyn Fn(&SuiteRow, f64) -> Option<f64>;

/// The plots of these reports; those without a point are left out.
pub(super) fn plots(reports: &[SuiteReport]) -> Vec<Plot> {
    let mut all = vec![roofline(reports)];
    all.extend(sram(reports));
    all.push(width(reports));
    all.extend(depth(reports));
    all.push(gains(reports, "int8-depth", "int8 over depth", "convolutions", "depth", false));
    all.push(gains(reports, "int8-positions", "int8 over positions", "positions", "positions", true));
    let bars = [
        ("paths", "Ways of dispatching", "An evaluation on each path that the device has."),
        ("throughput", "Twelve programs", "A program of twelve in sequence, with and without copies between them."),
        ("in-flight", "Requests in flight", "The time of a request while so many are in flight."),
        ("weight-forms", "Forms of weights", "A convolution of 2048 channels whose weights are stored in these forms."),
    ];
    all.extend(bars.map(|(name, title, caption)| bar_plot(reports, name, title, caption)));
    all.retain(|plot| plot.series.iter().any(|s| s.kind != SeriesKind::Line && !s.points.is_empty()));
    all
}

/// The rows of the first of these benchmarks that a report has, for each report.
fn rows<'a>(reports: &'a [SuiteReport], names: &[&str]) -> ReportRows<'a> {
    let of = |report: &'a SuiteReport| {
        let named = names.iter().filter_map(|name| report.result(name)).find(|r| !r.rows.is_empty());
        named.map(|r| r.rows.iter().collect()).unwrap_or_default()
    };
    reports.iter().map(of).enumerate().collect()
}

/// The time of a row, with its clock.
fn timed(row: &SuiteRow) -> Option<(&SuiteTimes, &'static str)> {
    let device = row.device.as_ref().map(|t| (t, "the device's clock"));
    device.or_else(|| row.evaluation.as_ref().map(|t| (t, "the caller's clock")))
}

fn is_wrong(row: &SuiteRow) -> bool {
    row.check.as_ref().is_some_and(|check| !check.passed())
}

/// A value with its unit, and the time if that is another number.
fn quantity(value: f64, unit: &str, ms: f64) -> String {
    if unit == "ms" { format!("{} ms", short(ms)) } else { format!("{} {unit}, {} ms", short(value), short(ms)) }
}

/// What is measured, predicted and published of these rows.
fn series(rows: &ReportRows<'_>, x: Across<'_>, y: Upward<'_>, unit: &str, joined: bool) -> Vec<PlotSeries> {
    let (mut all, mut crosses, mut known) = (Vec::new(), Vec::new(), HashSet::new());
    for (source, rows) in rows {
        let (mut measured, mut predicted) = (Vec::new(), Vec::new());
        for row in rows {
            let Some(at) = x(row) else { continue };
            let named = format!("{} {}", row.kernel, configuration(&row.config));
            let point = |ms: f64, text: String| Some(PlotPoint { x: at, y: y(row, ms)?, text, ..PlotPoint::default() });
            if let Some((times, clock)) = timed(row)
                && let Some(value) = y(row, times.median_ms)
            {
                let SuiteTimes { median_ms, lowest_ms, highest_ms, repeats } = *times;
                let spread = match repeats {
                    0 | 1 => String::new(),
                    _ => format!(" ({} to {}, {repeats} evaluations)", short(lowest_ms), short(highest_ms)),
                };
                let wrong = if is_wrong(row) { "; THE RESULT IS WRONG" } else { "" };
                let text = format!("{}{spread} on {clock}; {named}{wrong}", quantity(value, unit, median_ms));
                let ends = y(row, lowest_ms).zip(y(row, highest_ms)).map(|(a, b)| (a.min(b), a.max(b)));
                measured.extend(point(median_ms, text).map(|p| PlotPoint {
                    spread: ends.filter(|_| repeats > 1),
                    wrong: is_wrong(row),
                    ..p
                }));
            }
            if let Some(ms) = row.predicted_ms {
                let value = y(row, ms).unwrap_or(f64::NAN);
                predicted.extend(point(ms, format!("{} by the cost model; {named}", quantity(value, unit, ms))));
            }
            let flops = row.rates.get("gflop").and_then(Value::as_f64).unwrap_or(f64::NAN) * 1e9;
            for published in &row.published {
                let ms = match published.metric.as_str() {
                    "ms" => published.value,
                    "tflops" => flops / published.value / 1e9,
                    _ => continue,
                };
                let from = format!("{}, {}", published.chip, published.source);
                let value = y(row, ms).unwrap_or(f64::NAN);
                if known.insert((at.to_bits(), value.to_bits(), from.clone())) {
                    crosses.extend(point(ms, format!("{}, {from}; {named}", quantity(value, unit, ms))));
                }
            }
        }
        all.push(PlotSeries { source: *source, points: measured, joined, ..PlotSeries::default() });
        let kind = SeriesKind::Predicted;
        all.push(PlotSeries { source: *source, kind, points: predicted, joined, ..PlotSeries::default() });
    }
    all.push(PlotSeries { kind: SeriesKind::Published, points: crosses, ..PlotSeries::default() });
    all.retain(|s| !s.points.is_empty());
    all
}

fn ms(_: &SuiteRow, ms: f64) -> Option<f64> {
    Some(ms)
}

fn axis(label: &str, logarithmic: bool) -> PlotAxis {
    PlotAxis { label: label.into(), logarithmic }
}

/// A time axis that is logarithmic if the points need it.
fn time_axis(series: &[PlotSeries]) -> PlotAxis {
    let values = || series.iter().flat_map(|s| s.points.iter().map(|p| p.y));
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
    axis("ms", high > WIDE * low)
}

/// Bytes that an evaluation must at least move: weights, input and output, in the types in which
/// the engine computes. Values between the convolutions of a chain stay on the chip.
fn bytes(row: &SuiteRow) -> Option<f64> {
    let n = |name: &str| number(row, name);
    match row.kernel.as_str() {
        "conv" | "w8a8" => {
            let (channels, positions, depth) = (n("channels")?, n("positions")?, n("depth")?);
            let weight = if row.kernel == "conv" { 2.0 } else { 1.0 };
            Some(weight * channels * channels * depth + 4.0 * channels * positions)
        }
        "matmul" => {
            let (inputs, outputs, positions) = (n("in")?, n("out")?, n("positions")?);
            Some(2.0 * (inputs * outputs + inputs * positions + outputs * positions))
        }
        "performance" => Some(2.0 * n("dim")? * (n("dim")? + 2.0)),
        "classifier" => {
            let (classes, dim, positions) = (n("classes")?, n("dim")?, n("positions")?);
            Some(2.0 * (classes * dim + dim * positions + classes * positions))
        }
        _ => None,
    }
}

/// TFLOP/s of a row that takes this time.
fn tflops(row: &SuiteRow, ms: f64) -> Option<f64> {
    let gflop = row.rates.get("gflop").and_then(Value::as_f64)?;
    (gflop > 0.0 && ms > 0.0).then(|| gflop / ms)
}

fn roofline(reports: &[SuiteReport]) -> Plot {
    let once = |report: &SuiteReport| -> Vec<SuiteRow> {
        let mut known = HashSet::new();
        let rows = report.results.iter().flat_map(|r| &r.rows);
        let rows = rows.filter(|row| bytes(row).is_some() && timed(row).is_some());
        // Several benchmarks have the same convolution.
        rows.filter(|row| known.insert(format!("{} {:?}", row.kernel, row.config))).cloned().collect()
    };
    let owned: Vec<Vec<SuiteRow>> = reports.iter().map(once).collect();
    let rows: ReportRows<'_> = owned.iter().map(|rows| rows.iter().collect()).enumerate().collect();
    let intensity = |row: &SuiteRow| Some(1e9 * row.rates.get("gflop").and_then(Value::as_f64)? / bytes(row)?);
    let mut series = series(&rows, &intensity, &tflops, "TFLOP/s", false);
    let places = || series.iter().flat_map(|s| s.points.iter().map(|p| p.x)).filter(|x| *x > 0.0);
    let (left, right) = (places().fold(f64::MAX, f64::min), places().fold(0.0, f64::max));
    let mut caption = "Operations for each byte of weights, input and output.".to_string();
    for (source, report) in reports.iter().enumerate() {
        let finding = |benchmark: &str, name: &str| report.result(benchmark)?.finding(name);
        let stream = finding("sram-probe", "stream_gb_s").or_else(|| finding("sram", "stream_gb_s"));
        let peak = finding("peak", "slope_tflops").filter(|v| *v > 0.0).or_else(|| finding("peak", "peak_tflops"));
        let (Some(stream), Some(peak)) = (stream, peak) else { continue };
        caption += &format!(
            " {}the line is the rate of streamed weights, {} GB/s, up to that of a layer in a chain, {} TFLOP/s.",
            of(source, reports),
            short(stream),
            short(peak)
        );
        let ridge = (peak * 1e3 / stream).clamp(left, right.max(left));
        let points =
            [left, ridge, right].map(|x| PlotPoint { x, y: peak.min(x * stream / 1e3), ..PlotPoint::default() });
        let kind = SeriesKind::Line;
        series.push(PlotSeries { source, kind, name: "ceiling".into(), points: points.into(), joined: true });
    }
    let (x, y) = (axis("operations per byte", true), axis("TFLOP/s", true));
    Plot { title: "Roofline".into(), caption, x, y, series, ..Plot::default() }
}

fn sram(reports: &[SuiteReport]) -> [Plot; 2] {
    let names = ["sram-probe", "sram"];
    let rows = rows(reports, &names);
    let streamed = |row: &SuiteRow, ms: f64| Some(weight_mib(row)? * 1.048_576 / ms).filter(|v| v.is_finite());
    let label = |mut all: Vec<PlotSeries>| {
        let dips: Vec<(f64, String)> = rows
            .iter()
            .flat_map(|(_, rows)| rows)
            .filter(|row| is_dip(row))
            .filter_map(|row| Some((weight_mib(row)?, number(row, "channels")?.to_string())))
            .collect();
        // One label for a width is enough.
        if let Some(first) = all.iter_mut().find(|s| s.kind == SeriesKind::Measured) {
            for point in &mut first.points {
                point.label =
                    dips.iter().find(|(x, _)| *x == point.x).map(|(_, name)| name.clone()).unwrap_or_default();
            }
        }
        all
    };
    let knee = |(i, report): (usize, &SuiteReport)| {
        let found =
            names.iter().filter_map(|name| report.result(name)).find(|r| !r.rows.is_empty())?.finding("knee_mb")?;
        Some((found, i, format!("{}knee {} MiB", of(i, reports), short(found))))
    };
    let marks: Vec<_> = reports.iter().enumerate().filter_map(knee).collect();
    let x = || axis("MiB of weights", true);
    let times = series(&rows, &weight_mib, &ms, "ms", true);
    let rates = series(&rows, &weight_mib, &streamed, "GB/s", true);
    [
        Plot {
            title: "Weights: time of a convolution".into(),
            caption:
                "Below the knee a dispatch costs the same. Powers of two from 4096 channels on (labeled) are slow."
                    .into(),
            x: x(),
            y: axis("ms", true),
            series: label(times),
            marks: marks.clone(),
            ..Plot::default()
        },
        Plot {
            title: "Weights: effective streaming rate".into(),
            caption: "Bytes of weights over the time of an evaluation, its dispatch included.".into(),
            x: x(),
            y: axis("GB/s", true),
            series: label(rates),
            marks,
            ..Plot::default()
        },
    ]
}

fn width(reports: &[SuiteReport]) -> Plot {
    let series = series(&rows(reports, &["inmem"]), &|row| number(row, "channels"), &ms, "ms", true);
    Plot {
        title: "Dispatch over width".into(),
        caption: "One convolution over 64 positions.".into(),
        x: axis("channels", true),
        y: time_axis(&series),
        series,
        ..Plot::default()
    }
}

/// A plot for each number of channels of the chains.
fn depth(reports: &[SuiteReport]) -> Vec<Plot> {
    let all = rows(reports, &["peak"]);
    let channels = |row: &SuiteRow| number(row, "channels").map(|n| n as u64);
    let widths: BTreeSet<u64> = all.iter().flat_map(|(_, rows)| rows).filter_map(|row| channels(row)).collect();
    // A hostile report may have any number of them.
    let widths = widths.into_iter().rev().take(8);
    widths
        .map(|width| {
            let of_width = |rows: &Vec<&'_ SuiteRow>| -> Vec<SuiteRow> {
                rows.iter().filter(|row| channels(row) == Some(width)).map(|row| (*row).clone()).collect()
            };
            let owned: Vec<Vec<SuiteRow>> = all.iter().map(|(_, rows)| of_width(rows)).collect();
            let rows: ReportRows<'_> = owned.iter().map(|rows| rows.iter().collect()).enumerate().collect();
            let mut series = series(&rows, &|row| number(row, "depth"), &ms, "ms", true);
            let mut caption = "Convolutions one after the other, over 64 positions.".to_string();
            let places = || series.iter().flat_map(|s| s.points.iter().map(|p| p.x));
            let ends = [places().fold(f64::MAX, f64::min), places().fold(0.0, f64::max)];
            for (source, report) in reports.iter().enumerate().filter(|_| width == 512) {
                let finding = |name: &str| report.result("peak")?.finding(name);
                let (Some(slope), Some(dispatch)) = (finding("slope_tflops"), finding("dispatch_ms")) else { continue };
                let layer = 2.0 * 512.0 * 512.0 * 64.0 / 1e9 / slope;
                caption += &format!(
                    " {}{} ms + {} µs a layer, {} TFLOP/s.",
                    of(source, reports),
                    short(dispatch),
                    short(layer * 1e3),
                    short(slope)
                );
                let points = ends.map(|x| PlotPoint { x, y: dispatch + layer * x, ..PlotPoint::default() });
                let kind = SeriesKind::Line;
                series.push(PlotSeries { source, kind, name: "fit".into(), points: points.into(), joined: true });
            }
            let (x, y) = (axis("convolutions", false), time_axis(&series));
            Plot { title: format!("Chains of {width} channels"), caption, x, y, series, ..Plot::default() }
        })
        .collect()
}

/// The gain of int8 over fp16.
fn gains(reports: &[SuiteReport], benchmark: &str, title: &str, label: &str, x: &str, logarithmic: bool) -> Plot {
    let mut series = Vec::new();
    for (source, rows) in rows(reports, &[benchmark]) {
        let kinds = [(SeriesKind::Measured, "gain"), (SeriesKind::Predicted, "predicted_gain")];
        for (kind, rate) in kinds {
            let point = |row: &&SuiteRow| {
                let gain = row.rates.get(rate).and_then(Value::as_f64)?;
                let text = format!("{} times as fast; {}", short(gain), configuration(&row.config));
                let wrong = kind == SeriesKind::Measured && is_wrong(row);
                Some(PlotPoint { x: number(row, x)?, y: gain, text, wrong, ..PlotPoint::default() })
            };
            let points: Vec<PlotPoint> = rows.iter().filter_map(point).collect();
            if !points.is_empty() {
                series.push(PlotSeries { source, kind, points, joined: true, ..PlotSeries::default() });
            }
        }
        let gained = |row: &SuiteRow, p: &crate::suite::PublishedValue| {
            let text = format!("{} times as fast, {}, {}", short(p.value), p.chip, p.source);
            Some(PlotPoint { x: number(row, x)?, y: p.value, text, ..PlotPoint::default() })
        };
        let published =
            rows.iter().flat_map(|row| row.published.iter().filter(|p| p.metric == "gain").map(|p| (*row, p)));
        let points: Vec<PlotPoint> = published.filter_map(|(row, p)| gained(row, p)).collect();
        if !points.is_empty() {
            series.push(PlotSeries { source, kind: SeriesKind::Published, points, ..PlotSeries::default() });
        }
    }
    Plot {
        title: title.into(),
        caption: "The time in fp16 over the time with int8 weights and activations, 512 channels.".into(),
        x: axis(label, logarithmic),
        y: axis("fp16 / int8", false),
        series,
        ..Plot::default()
    }
}

/// Bars for the configurations of a benchmark.
fn bar_plot(reports: &[SuiteReport], benchmark: &str, title: &str, caption: &str) -> Plot {
    let rows = rows(reports, &[benchmark]);
    let mut groups: Vec<String> = Vec::new();
    for row in rows.iter().flat_map(|(_, rows)| rows) {
        let name = configuration(&row.config);
        if timed(row).is_some() && !groups.contains(&name) && groups.len() < 64 {
            groups.push(name);
        }
    }
    let group = |row: &SuiteRow| groups.iter().position(|g| *g == configuration(&row.config)).map(|at| at as f64);
    let series = series(&rows, &group, &ms, "ms", false);
    let source = reports.iter().enumerate().filter(|(_, r)| r.result(benchmark).is_some_and(|r| !r.rows.is_empty()));
    let from: Vec<String> = source.map(|(i, _)| letter(i)).collect();
    let caption =
        if reports.len() > from.len() { format!("{caption} Of {}.", from.join(", ")) } else { caption.into() };
    Plot { title: title.into(), caption, y: axis("ms", false), series, groups, ..Plot::default() }
}
