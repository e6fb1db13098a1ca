//! Plots of the report as inline SVG: errors along the program, and a histogram of each value.

use std::fmt::Write as _;

use ferrane_diag::escape_xml;

use super::{Audit, AuditRow, BINS, Deviation, short};

/// The plot of errors: height of its field, and the left margin.
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 64.0;
/// The smallest width of a value, and of the field.
const STEP: f64 = 7.0;
const WIDTH: f64 = 820.0;
/// The powers of two at the lower and the upper end of the field. Values that are not finite are
/// drawn above it.
const LOW: f64 = -6.0;
const HIGH: f64 = 12.0;

/// The y coordinate of an error in ulps; `None` is not finite.
fn height(ulps: Option<f64>) -> f64 {
    let place = match ulps {
        None => HIGH + 1.0,
        Some(ulps) => ulps.log2().clamp(LOW, HIGH),
    };
    12.0 + HEIGHT * (HIGH + 1.0 - place) / (HIGH + 1.0 - LOW)
}

/// Ulps of the largest magnitude; `None` if an element is not finite on one side only.
fn ulps(d: &Deviation) -> Option<f64> {
    (d.overflow + d.special == 0).then_some(d.peak_ulps)
}

/// Errors of all values in program order, on a scale of powers of two: full marks for the op alone,
/// rings for the run.
pub(super) fn errors(found: &Audit) -> String {
    let count = found.rows.len().max(1) as f64;
    let step = (WIDTH / count).max(STEP);
    let (right, bottom) = (LEFT + step * count, 12.0 + HEIGHT);
    let (width, total) = (right + 16.0, bottom + 28.0);
    let mut svg = format!(
        "<svg class=\"errors\" role=\"img\" width=\"{width:.0}\" height=\"{total:.0}\" viewBox=\"0 0 {width:.0} {total:.0}\">\n\
         <title>Error of each value in ulps of its largest magnitude, in program order</title>\n"
    );
    let mut line = |class: &str, y: f64, text: &str| {
        let _ = writeln!(
            svg,
            "<line class=\"{class}\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            LEFT - 6.0,
            y + 4.0
        );
    };
    for (at, text) in [(-6.0, "0"), (-4.0, "1/16"), (-1.0, "½"), (0.0, "1"), (4.0, "16"), (8.0, "256"), (12.0, "4096")]
    {
        line("grid", height(Some(2f64.powf(at))), text);
    }
    line("grid", height(None), "not finite");
    line("limit", height(Some(found.threshold.max(1e-9))), "");
    for (i, row) in found.rows.iter().enumerate() {
        let x = LEFT + step * (i as f64 + 0.5);
        for (n, reading) in row.readings.iter().enumerate() {
            // One arithmetic next to the other.
            let x = x + (n as f64 - (row.readings.len() as f64 - 1.0) / 2.0) * (step * 0.4).min(8.0);
            let numerics = found.numerics.get(n).map_or("", |n| n.name());
            let mut dot = |class: &str, radius: f64, d: &Deviation, what: &str| {
                let (label, y) = match ulps(d) {
                    Some(ulps) => (format!("{} ulps", short(ulps)), height(Some(ulps))),
                    None => ("not finite".to_string(), height(None)),
                };
                let title = escape_xml(&format!("{} {}, {numerics} {what}: {label}", row.op, row.value));
                let _ = writeln!(
                    svg,
                    "<circle class=\"{class} n{n}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"><title>{title}</title></circle>"
                );
            };
            if let Some(d) = &reading.accumulated {
                dot("run", 3.4, d, "run");
            }
            if let Some(d) = &reading.local {
                dot(if reading.cause.is_some() { "alone parts" } else { "alone" }, 2.2, d, "alone");
            }
        }
    }
    let _ = writeln!(
        svg,
        "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} values in program order</text>\n</svg>",
        (LEFT + right) / 2.0,
        bottom + 20.0,
        found.rows.len()
    );
    svg
}

/// The upper end of a bin.
fn bin(i: usize) -> String {
    match BINS.get(i) {
        Some(0.0) => "exact".into(),
        Some(end) => format!("to {} ulps", short(*end)),
        None if i == BINS.len() => format!("above {} ulps", short(BINS.last().copied().unwrap_or(0.0))),
        None => "not finite".into(),
    }
}

/// The histogram of a value's elements by their own ulps, counts on a scale of powers of ten.
pub(super) fn histogram(row: &AuditRow, numerics: usize, d: &Deviation) -> String {
    const BAR: f64 = 8.0;
    const TALL: f64 = 30.0;
    let most = (d.elements.max(2) as f64).ln();
    let width = BAR * d.histogram.len() as f64;
    let mut svg = format!(
        "<svg class=\"histogram\" role=\"img\" width=\"{width}\" height=\"{:.0}\" viewBox=\"0 0 {width} {:.0}\">\
         <title>Elements of {} by their error</title>",
        TALL + 1.0,
        TALL + 1.0,
        escape_xml(&row.value)
    );
    for (i, &count) in d.histogram.iter().enumerate() {
        // A single element is visible, too.
        let tall = if count == 0 { 0.0 } else { TALL * (0.12 + 0.88 * (count as f64).ln() / most) };
        let x = BAR * i as f64;
        let _ = write!(
            svg,
            "<rect class=\"n{numerics}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{tall:.1}\"><title>{}: {count}</title></rect>",
            x + 0.5,
            TALL - tall,
            BAR - 1.0,
            bin(i)
        );
    }
    let _ = write!(svg, "<line class=\"grid\" x1=\"0\" x2=\"{width}\" y1=\"{TALL}\" y2=\"{TALL}\"/></svg>");
    svg
}
