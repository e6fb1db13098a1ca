//! Single 1 × 1 convolutions and chains of them.

use serde_json::{Value, json};

use super::super::context::{Context, Drawn};
use super::super::kernels::{Chain, Halves};
use super::super::report::{SuiteCheck, SuiteRow};
use crate::error::Result;
use crate::fit::Line;

const MIB: f64 = 1048576.0;

/// The row of a chain, with the keys of published records.
pub(super) fn chain_row(chain: &Chain) -> SuiteRow {
    let [height, width] = chain.extents;
    SuiteRow::new(
        if chain.int8 { "w8a8" } else { "conv" },
        &[("channels", json!(chain.channels)), ("positions", json!(height * width)), ("depth", json!(chain.depth))],
    )
}

/// Measures a chain and compares two of its positions with the reference.
pub(super) fn chain(cx: &mut Context<'_, '_>, chain: &Chain) -> Result<()> {
    let taps = (chain.channels * chain.channels * chain.depth) as f64;
    let positions = chain.extents[0] * chain.extents[1];
    if cx.too_large(2.0 * taps * positions as f64) {
        return Ok(());
    }
    let (kernel, weights) = chain.build(&mut cx.rng)?;
    let Some(ran) = cx.kernel(chain_row(chain), &kernel)? else { return Ok(()) };
    let output = ran.output()?;
    let chosen = [0, positions - 1];
    let found: Vec<f32> = chosen.iter().flat_map(|p| chain.column(&output, *p)).collect();
    let input = kernel.inputs.get("x")?;
    let compared = |halves: Halves, name: &str| {
        let wanted: Vec<f32> = chosen.iter().flat_map(|p| chain.reference(input, &weights, *p, halves)).collect();
        SuiteCheck::new(name, &found, &wanted, chain.tolerance())
    };
    let check = match chain.int8 {
        false => compared(Halves::Even, "plain loops"),
        true => {
            let [away, even] = [
                compared(Halves::Away, "plain loops that round halves away from zero"),
                compared(Halves::Even, "plain loops that round halves to even"),
            ];
            if even.error < away.error { even } else { away }
        }
    };
    if let Some(row) = cx.result.rows.last_mut() {
        row.check = Some(check);
        let streamed = row.ms().map(|ms| kernel.weights / ms / 1e6);
        if let Some(rate) = streamed.filter(|_| chain.depth == 1) {
            row.rate("weights_gb_s", rate);
        }
    }
    Ok(())
}

/// A chain over one row of positions, with the ports that the machine takes.
fn row(cx: &mut Context<'_, '_>, channels: usize, positions: usize, depth: usize) -> Result<()> {
    let port = cx.port()?;
    chain(cx, &Chain { channels, extents: [1, positions], depth, int8: false, port })
}

pub(super) fn inmem(cx: &mut Context<'_, '_>) -> Result<()> {
    for channels in [256, 512, 1024, 2048, 3072, 4096] {
        row(cx, channels, 64, 1)?;
    }
    cx.draw(floor);
    Ok(())
}

/// The shortest evaluation of all rows: what a dispatch costs at least.
fn floor(rows: &[(&SuiteRow, f64)]) -> Vec<Drawn> {
    let value = rows.iter().map(|(_, ms)| *ms).fold(f64::INFINITY, f64::min);
    let from = "the shortest median";
    vec![Drawn { name: "floor_ms", value, unit: "ms", constant: Some("dispatch_us"), from }]
}

pub(super) fn peak(cx: &mut Context<'_, '_>) -> Result<()> {
    for (channels, depths) in [(512, &[32, 48, 64, 96, 128][..]), (256, &[64, 128, 256]), (384, &[64, 128])] {
        for depth in depths {
            row(cx, channels, 64, *depth)?;
        }
    }
    cx.draw(rates);
    Ok(())
}

/// The best rate, and the time of a layer by itself: the dispatch is the line's value at depth 0.
fn rates(rows: &[(&SuiteRow, f64)]) -> Vec<Drawn> {
    if rows.is_empty() {
        return Vec::new();
    }
    let rate = |(row, ms): &(&SuiteRow, f64)| row.rates.get("gflop").and_then(Value::as_f64).unwrap_or(0.0) / ms;
    let mut drawn = vec![Drawn {
        name: "peak_tflops",
        value: rows.iter().map(rate).fold(0.0, f64::max),
        unit: "TFLOP/s",
        constant: Some("rate_tflops"),
        from: "the fastest chain, its dispatch included",
    }];
    let points: Vec<(f64, f64)> =
        rows.iter().filter(|(row, _)| row.config["channels"] == 512).map(depth_point).collect();
    if let Some(line) = Line::fit(&points) {
        let gflop = 2.0 * 512.0 * 512.0 * 64.0 / 1e9;
        drawn.push(Drawn {
            name: "slope_tflops",
            value: gflop / line.slope,
            unit: "TFLOP/s",
            constant: Some("rate_tflops"),
            from: "the slope over the depths of 512 channels",
        });
        let from = "the same line at depth 0";
        drawn.push(Drawn { name: "dispatch_ms", value: line.fixed, unit: "ms", constant: Some("dispatch_us"), from });
    }
    drawn
}

fn depth_point((row, ms): &(&SuiteRow, f64)) -> (f64, f64) {
    (row.config["depth"].as_f64().unwrap_or(0.0), *ms)
}

pub(super) fn sram(cx: &mut Context<'_, '_>) -> Result<()> {
    for channels in [256, 512, 1024, 2048, 3072, 4096, 5120, 6144] {
        row(cx, channels, 64, 1)?;
    }
    row(cx, 8192, 32, 1)?;
    cx.draw(streaming);
    Ok(())
}

pub(super) fn sram_probe(cx: &mut Context<'_, '_>) -> Result<()> {
    for channels in [256, 512, 1024, 1536, 2048, 2560, 3072, 3584, 4096, 4608, 5120, 6144] {
        row(cx, channels, 64, 1)?;
    }
    row(cx, 8192, 32, 1)?;
    cx.draw(streaming);
    Ok(())
}

/// Fits the two regimes of single convolutions: a floor, and weights that stream at a constant
/// rate. They meet at the knee. Widths that are powers of two of 4096 and more have a regime of
/// their own on every published machine (§4), so they are left out and compared with the line.
fn streaming(rows: &[(&SuiteRow, f64)]) -> Vec<Drawn> {
    let power = |row: &SuiteRow| row.config["channels"].as_u64().is_some_and(|n| n >= 4096 && n.is_power_of_two());
    let point =
        |(row, ms): &(&SuiteRow, f64)| (row.config["channels"].as_f64().map_or(0.0, |n| 2.0 * n * n / MIB), *ms);
    let points: Vec<(f64, f64)> = rows.iter().filter(|(row, _)| !power(row)).map(point).collect();
    let Some((floor, line)) = two_regimes(&points) else { return Vec::new() };
    let of = |name, value, unit, constant, from| Drawn { name, value, unit, constant: Some(constant), from };
    let mut drawn = vec![
        of("floor_ms", floor, "ms", "dispatch_us", "the median of the widths below the knee"),
        of(
            "knee_mb",
            (floor - line.fixed) / line.slope,
            "MiB of weights",
            "buffer_mb",
            "where the line of the widths above it meets the floor",
        ),
        of("stream_gb_s", MIB / line.slope / 1e6, "GB/s", "stream_gb_s", "the slope of that line"),
    ];
    for (megabytes, ms) in rows.iter().filter(|(row, _)| row.config["channels"] == 4096).map(point) {
        let rate = megabytes * MIB / (ms - floor) / 1e6;
        drawn.push(of("aliased_gb_s", rate, "GB/s", "alias_gb_s", "the rate of 4096 channels above the floor"));
        let dip = Drawn {
            constant: None,
            ..of("dip_4096", ms / line.at(megabytes), "", "", "the time at 4096 channels over that line")
        };
        drawn.push(dip);
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
}
