//! The roofline of a chip with the ops of a program.

use super::chart::{Chart, Series};
use super::model::{Bottleneck, Cost, CostModel};

/// The roofline of the model's chip as SVG: operations per byte moved against the rate. Each op
/// with arithmetic is a mark in the color of its bottleneck; the program as a whole is one more.
pub fn roofline_svg(cost: &Cost, model: &CostModel) -> String {
    let c = &model.constants;
    let (peak, bandwidth) = (c.rate_tflops.value, c.stream_gb_s.value / 1e3);
    let mut series: Vec<Series> = Vec::new();
    for bound in Bottleneck::ALL {
        let marks: Vec<_> = cost
            .ops
            .iter()
            .filter(|op| op.bound == Some(bound) && op.flops > 0 && op.us > 0.0)
            .map(|op| {
                let bytes = op.bytes_weights.saturating_add(op.bytes_in).saturating_add(op.bytes_out).max(1);
                let (intensity, rate) = (op.flops as f64 / bytes as f64, op.flops as f64 / op.us / 1e6);
                (intensity, rate, format!("{} {}: {:.1} us", op.op, op.name, op.us))
            })
            .collect();
        if !marks.is_empty() {
            series.push(Series { name: bound.name().to_string(), marks });
        }
    }
    let whole = cost.flops as f64 / cost.bytes.max(1) as f64;
    let rate = cost.flops as f64 / cost.total_us / 1e6;
    series.push(Series { name: "program".into(), marks: vec![(whole, rate, format!("{:.1} us", cost.total_us))] });
    let ridge = peak / bandwidth;
    let lines = vec![vec![(ridge / 1e3, peak / 1e3), (ridge, peak), (ridge * 1e2, peak)]];
    let title = format!("{}: {peak:.1} TFLOPS, {:.0} GB/s", c.chip, bandwidth * 1e3);
    Chart { title, x: "FLOP per byte".into(), y: "TFLOPS".into(), series, lines }.svg()
}
