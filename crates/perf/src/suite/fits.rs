//! What follows from the rows of single convolutions and of chains: floor, knee, streaming rate and
//! peak. Rows that were measured here and rows that were read are fitted by the same rules.

use serde_json::Value;

use super::report::{SuiteFinding, SuiteRow};
use crate::fit::Line;
use crate::spread::round;

/// Bytes of a MiB.
pub(super) const MIB: f64 = 1_048_576.0;
/// Channels of the smallest width whose power of two is slow on every published machine
/// (benchmarks §4).
const DIP: u64 = 4096;

/// A number of a row's configuration.
pub(super) fn number(row: &SuiteRow, name: &str) -> Option<f64> {
    row.config.get(name).and_then(Value::as_f64)
}

/// MiB of fp16 weights of a single convolution.
pub(super) fn weight_mib(row: &SuiteRow) -> Option<f64> {
    number(row, "channels").map(|n| 2.0 * n * n / MIB)
}

/// True for widths that are powers of two of 4096 and more, which have a regime of their own.
pub(super) fn is_dip(row: &SuiteRow) -> bool {
    number(row, "channels").is_some_and(|n| n >= DIP as f64 && (n as u64).is_power_of_two())
}

/// A number that follows from the times of rows.
pub(super) struct Drawn {
    pub name: &'static str,
    pub value: f64,
    pub unit: &'static str,
    /// The constant of the cost model that it depends on most.
    pub constant: Option<&'static str>,
    pub from: &'static str,
}

/// Rows with a time of each, in milliseconds.
pub(super) type Timed<'r> = [(&'r SuiteRow, f64)];

/// What `draw` draws from the times of all rows, next to what it draws from the predicted times of
/// the same rows. Numbers that are not finite are left out.
pub(super) fn findings(rows: &[SuiteRow], draw: fn(&Timed<'_>) -> Vec<Drawn>) -> Vec<SuiteFinding> {
    let of = |time: fn(&SuiteRow) -> Option<f64>| {
        let timed: Vec<(&SuiteRow, f64)> = rows.iter().filter_map(|row| Some((row, time(row)?))).collect();
        draw(&timed)
    };
    let predicted = of(|row| row.predicted_ms.filter(|_| row.ms().is_some()));
    let finding = |drawn: Drawn| SuiteFinding {
        name: drawn.name.into(),
        value: round(drawn.value),
        predicted: predicted.iter().find(|p| p.name == drawn.name).map(|p| round(p.value)).filter(|p| p.is_finite()),
        constant: drawn.constant.map(String::from),
        unit: drawn.unit.into(),
        from: drawn.from.into(),
    };
    of(SuiteRow::ms).into_iter().filter(|drawn| drawn.value.is_finite()).map(finding).collect()
}

/// The shortest evaluation of all rows: what a dispatch costs at least.
pub(super) fn floor(rows: &Timed<'_>) -> Vec<Drawn> {
    let value = rows.iter().map(|(_, ms)| *ms).fold(f64::INFINITY, f64::min);
    let from = "the shortest median";
    vec![Drawn { name: "floor_ms", value, unit: "ms", constant: Some("dispatch_us"), from }]
}

/// Fits the two regimes of single convolutions: a floor, and weights that stream at a constant
/// rate. They meet at the knee. The widths of [`is_dip`] are left out and compared with the line.
/// Nothing if too few widths ran.
pub(super) fn streaming(rows: &Timed<'_>) -> Vec<Drawn> {
    let point = |(row, ms): &(&SuiteRow, f64)| Some((weight_mib(row)?, *ms));
    let mut list: Vec<(f64, f64)> = rows.iter().filter(|(row, _)| !is_dip(row)).filter_map(point).collect();
    list.sort_by(|a, b| a.0.total_cmp(&b.0));
    let Some((floor, line)) = two_regimes(&list) else { return Vec::new() };
    let of = |name, value, unit, constant, from| Drawn { name, value, unit, constant: Some(constant), from };
    // A line that is above the floor everywhere has no knee.
    let knee = Some((floor - line.fixed) / line.slope).filter(|knee| *knee > 0.0).unwrap_or(f64::NAN);
    let knee_from = "where the line of the widths above it meets the floor";
    let mut drawn = vec![
        of("floor_ms", floor, "ms", "dispatch_us", "the median of the widths below the knee"),
        of("knee_mb", knee, "MiB of weights", "buffer_mb", knee_from),
        of("stream_gb_s", MIB / line.slope / 1e6, "GB/s", "stream_gb_s", "the slope of that line"),
    ];
    for (megabytes, ms) in rows.iter().filter(|(row, _)| number(row, "channels") == Some(DIP as f64)).filter_map(point)
    {
        let rate = megabytes * MIB / (ms - floor) / 1e6;
        drawn.push(of("aliased_gb_s", rate, "GB/s", "alias_gb_s", "the rate of 4096 channels above the floor"));
        let (value, from) = (ms / line.at(megabytes), "the time at 4096 channels over that line");
        drawn.push(Drawn { name: "dip_4096", value, unit: "", constant: None, from });
    }
    drawn
}

/// The peak of chains of convolutions, and the line over the depths of 512 channels: its slope is
/// the time of a layer by itself, its value at 0 the dispatch.
pub(super) fn peak(rows: &Timed<'_>) -> Vec<Drawn> {
    let rate = |(row, ms): &(&SuiteRow, f64)| {
        let channels = number(row, "channels").unwrap_or(0.0);
        let count = number(row, "positions").unwrap_or(0.0) * number(row, "depth").unwrap_or(0.0);
        2.0 * channels * channels * count / ms / 1e9
    };
    let best = rows.iter().map(rate).fold(f64::NAN, f64::max);
    let of = |name, value, constant, from| Drawn { name, value, unit: "TFLOP/s", constant: Some(constant), from };
    let mut drawn = vec![of("peak_tflops", best, "rate_tflops", "the fastest chain, its dispatch included")];
    let narrow = rows.iter().filter(|(row, _)| number(row, "channels") == Some(512.0));
    let points: Vec<(f64, f64)> = narrow.filter_map(|(row, ms)| Some((number(row, "depth")?, *ms))).collect();
    if let Some(line) = Line::fit(&points) {
        let gflop = 2.0 * 512.0 * 512.0 * 64.0 / 1e9;
        let slope = gflop / line.slope;
        drawn.push(of("slope_tflops", slope, "rate_tflops", "the slope over the depths of 512 channels"));
        drawn.push(Drawn { unit: "ms", ..of("dispatch_ms", line.fixed, "dispatch_us", "the same line at depth 0") });
    }
    drawn
}

/// The split of the points into a floor and a rising line that leaves the least relative error.
/// `None` with fewer than two points on either side, or without a rise.
fn two_regimes(points: &[(f64, f64)]) -> Option<(f64, Line)> {
    let error = |at: f64, ms: f64| ((at - ms) / ms).powi(2);
    let split = |first: usize| {
        let (low, high) = points.split_at(first);
        let mut times: Vec<f64> = low.iter().map(|p| p.1).collect();
        times.sort_by(f64::total_cmp);
        let floor = times[times.len() / 2];
        let line = Line::fit(high)?;
        let all = low.iter().map(|p| error(floor, p.1)).sum::<f64>()
            + high.iter().map(|p| error(line.at(p.0), p.1)).sum::<f64>();
        (line.slope > 0.0).then_some((all, floor, line))
    };
    let splits = (2..points.len().saturating_sub(1)).filter_map(split);
    let (_, floor, line) = splits.min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some((floor, line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::SuiteTimes;

    #[test]
    fn the_knee_is_where_a_line_meets_the_floor() {
        // A floor of 0.1 ms; 0.02 ms a MiB beyond 10 MiB.
        let ms = |mb: f64| 0.1 + (mb - 10.0).max(0.0) * 0.02;
        let points: Vec<(f64, f64)> = [1.0, 2.0, 4.0, 8.0, 18.0, 24.0, 40.0, 72.0].map(|mb| (mb, ms(mb))).to_vec();
        let (floor, line) = two_regimes(&points).unwrap();
        assert!((floor - 0.1).abs() < 1e-9 && (line.slope - 0.02).abs() < 1e-9);
        assert!(((floor - line.fixed) / line.slope - 10.0).abs() < 1e-6);
        assert!(two_regimes(&points[..3]).is_none());
    }

    /// Single convolutions of these widths, each with the time of its MiB.
    fn rows(ms: impl Fn(f64) -> f64, widths: &[u32]) -> Vec<SuiteRow> {
        let row = |width: &u32| {
            let mut row = SuiteRow::new("conv", &[("channels", serde_json::json!(width))]);
            let ms = ms(weight_mib(&row).unwrap());
            row.evaluation = Some(SuiteTimes { median_ms: ms, lowest_ms: ms, highest_ms: ms, repeats: 1 });
            row
        };
        widths.iter().map(row).collect()
    }

    #[test]
    fn rows_have_findings_in_any_order() {
        let found = |rows: &[SuiteRow]| -> Vec<(String, f64)> {
            findings(rows, streaming).into_iter().map(|f| (f.name, f.value)).collect()
        };
        let ms = |mb: f64| 0.1 + (mb - 10.0).max(0.0) * 0.02;
        let mut all = rows(ms, &[6144, 512, 1024, 5120, 1536, 4608, 2048]);
        // Twice the line's 0.54 ms.
        all.extend(rows(|_| 1.08, &[4096]));
        let wanted = [
            ("floor_ms", 0.1),
            ("knee_mb", 10.0),
            ("stream_gb_s", 52.429),
            ("aliased_gb_s", 34.239),
            ("dip_4096", 2.0),
        ];
        assert_eq!(found(&all), wanted.map(|(name, value)| (name.to_string(), value)));
        // Every width is on one line through 0.05 ms: there is no floor for it to meet.
        let steep = rows(|mb| 0.05 + mb, &[512, 1024, 1536, 2048, 3072]);
        assert!(found(&steep).iter().all(|(name, value)| name != "knee_mb" || *value > 0.0));
    }
}
