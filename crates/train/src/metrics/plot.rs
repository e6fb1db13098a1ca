//! `loss.svg`: training and validation loss over updates; and the losses of several runs.

use std::path::Path;

use plotters::prelude::*;

use super::Record;

/// Colors of the curves, one after the other.
const COLORS: [RGBColor; 8] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 98, 20),
    RGBColor(44, 140, 60),
    RGBColor(178, 34, 52),
    RGBColor(120, 80, 170),
    RGBColor(120, 86, 75),
    RGBColor(200, 90, 170),
    RGBColor(90, 90, 90),
];

/// Largest number of points of the training curve, a little more than the plot has pixels.
const POINTS: usize = 1200;

/// A plot cannot be drawn or written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct Error {
    path: String,
    reason: String,
}

/// Draws the loss of every update (averaged over neighbors if there are more than the plot can
/// show) and the validation losses as an SVG file.
///
/// # Errors
/// [`Error`] if the file cannot be written.
pub fn svg(path: &Path, title: &str, records: &[Record]) -> Result<(), Error> {
    let text = draw(title, "updates", &of_run(records)).and_then(|text| Ok(std::fs::write(path, text)?));
    text.map_err(|e| Error { path: path.display().to_string(), reason: e.to_string() })
}

/// What the losses of several runs are drawn over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossAxis {
    /// Updates, skipped ones included.
    Updates,
    /// Number of tokens trained on.
    Tokens,
    /// Seconds of training; records without times have none.
    Time,
}

/// The training losses of several runs, with their validation losses as points, as an SVG document.
/// `runs` are their names with their records.
///
/// # Errors
/// [`Error`] if the plot cannot be drawn.
pub fn overlay(axis: LossAxis, runs: &[(String, Vec<Record>)]) -> Result<String, Error> {
    let mut curves = Vec::new();
    for ((name, records), color) in runs.iter().zip(COLORS.iter().cycle()) {
        let mut seconds = 0.0;
        let at: Vec<f64> = records
            .iter()
            .map(|record| {
                seconds += record.process.as_ref().map_or(0.0, |process| process.seconds);
                match axis {
                    LossAxis::Updates => record.step as f64,
                    LossAxis::Tokens => record.tokens as f64,
                    LossAxis::Time => seconds,
                }
            })
            .collect();
        let both = || records.iter().zip(&at);
        let training = both().filter_map(|(record, x)| Some((*x, record.loss?))).collect();
        let validation = both().filter_map(|(record, x)| Some((*x, record.valid_loss?))).collect();
        curves.push(LossCurve { name: name.clone(), color: *color, points: thinned(training), marked: false });
        curves.push(LossCurve { name: String::new(), color: *color, points: validation, marked: true });
    }
    let unit = match axis {
        LossAxis::Updates => "updates",
        LossAxis::Tokens => "tokens",
        LossAxis::Time => "seconds of training",
    };
    draw("", unit, &curves).map_err(|e| Error { path: "plot".into(), reason: e.to_string() })
}

/// A curve with its name in the legend, if it has one; points are marked or only connected.
struct LossCurve {
    name: String,
    color: RGBColor,
    points: Vec<(f64, f64)>,
    marked: bool,
}

/// A training curve, averaged over neighbors if it has too many points.
fn thinned(all: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let group = all.len().div_ceil(POINTS).max(1);
    let mean = |part: &[(f64, f64)]| {
        let n = part.len() as f64;
        (part.iter().map(|p| p.0).sum::<f64>() / n, part.iter().map(|p| p.1).sum::<f64>() / n)
    };
    all.chunks(group).map(mean).collect()
}

/// The curves of one run.
fn of_run(records: &[Record]) -> [LossCurve; 2] {
    let points = |loss: fn(&Record) -> Option<f64>| -> Vec<(f64, f64)> {
        records.iter().filter_map(|record| Some((record.step as f64, loss(record)?))).collect()
    };
    let (training, validation) = (thinned(points(|record| record.loss)), points(|record| record.valid_loss));
    [
        LossCurve { name: "training".into(), color: COLORS[0], points: training, marked: false },
        LossCurve { name: "validation".into(), color: COLORS[1], points: validation, marked: true },
    ]
}

fn draw(title: &str, unit: &str, curves: &[LossCurve]) -> Result<String, Box<dyn std::error::Error>> {
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let (low, high) = all().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), p| (low.min(p.1), high.max(p.1)));
    let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
    let margin = ((high - low) * 0.05).max(1e-3);
    let last = all().map(|p| p.0).fold(1.0, f64::max);
    // About ten labels, no two of them alike.
    let digits = if last >= 15.0 {
        0
    } else if last >= 1.5 {
        1
    } else {
        2
    };

    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (900, 500)).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..last, low - margin..high + margin)?;
        chart
            .configure_mesh()
            .x_desc(unit)
            .y_desc("loss (nats per token)")
            .x_label_formatter(&|x| format!("{x:.digits$}"))
            .light_line_style(RGBColor(240, 240, 240))
            .bold_line_style(RGBColor(220, 220, 220))
            .draw()?;
        for curve in curves.iter().filter(|curve| !curve.points.is_empty()) {
            let (color, points) = (curve.color, curve.points.clone());
            let drawn = match curve.marked {
                true => chart.draw_series(LineSeries::new(points, color.stroke_width(2)).point_size(3))?,
                false => chart.draw_series(LineSeries::new(points, &color))?,
            };
            if !curve.name.is_empty() {
                let key = move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(2));
                drawn.label(&curve.name).legend(key);
            }
        }
        chart.configure_series_labels().border_style(RGBColor(200, 200, 200)).background_style(WHITE).draw()?;
        root.present()?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_both_curves_and_survives_nothing() {
        let records: Vec<Record> = (1..=5000u64)
            .map(|step| Record {
                step,
                loss: (step % 7 != 0).then(|| 6.0 / (step as f64).sqrt()),
                valid_loss: (step % 1000 == 0).then_some(1.0),
                ..Record::default()
            })
            .collect();
        assert!(of_run(&records)[0].points.len() <= POINTS);
        let text = draw("a <title>", "updates", &of_run(&records)).unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        assert!(
            text.contains("validation") && text.contains("a &lt;title&gt;") && text.matches("<polyline").count() >= 2
        );
        // A single update, and no update.
        for few in [&records[..1], &[]] {
            assert!(draw("", "updates", &of_run(few)).unwrap().contains("</svg>"));
        }
        // Two runs, one without records and without times.
        let runs = [("a".to_string(), records.clone()), ("<b>".to_string(), Vec::new())];
        for axis in [LossAxis::Updates, LossAxis::Tokens, LossAxis::Time] {
            let text = overlay(axis, &runs).unwrap();
            assert!(text.contains("</svg>") && text.matches("<polyline").count() >= 2, "{axis:?}");
        }
        let error = svg(Path::new("/nonexistent/loss.svg"), "", &records).unwrap_err();
        assert!(error.to_string().starts_with("/nonexistent/loss.svg: "));
    }
}
