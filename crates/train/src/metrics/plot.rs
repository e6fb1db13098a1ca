//! `loss.svg`: training and validation loss over updates.

use std::path::Path;

use plotters::prelude::*;

use super::Record;

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
    let text = draw(title, records).and_then(|text| Ok(std::fs::write(path, text)?));
    text.map_err(|e| Error { path: path.display().to_string(), reason: e.to_string() })
}

/// The points of the training curve, averaged if there are too many.
fn thinned(records: &[Record]) -> Vec<(f64, f64)> {
    let all: Vec<(f64, f64)> = records.iter().filter_map(|r| Some((r.step as f64, r.loss?))).collect();
    let group = all.len().div_ceil(POINTS).max(1);
    let mean = |part: &[(f64, f64)]| {
        let n = part.len() as f64;
        (part.iter().map(|p| p.0).sum::<f64>() / n, part.iter().map(|p| p.1).sum::<f64>() / n)
    };
    all.chunks(group).map(mean).collect()
}

fn draw(title: &str, records: &[Record]) -> Result<String, Box<dyn std::error::Error>> {
    let train = thinned(records);
    let valid: Vec<(f64, f64)> = records.iter().filter_map(|r| Some((r.step as f64, r.valid_loss?))).collect();
    let both = || train.iter().chain(&valid);
    let (low, high) = both().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), p| (low.min(p.1), high.max(p.1)));
    let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
    let margin = ((high - low) * 0.05).max(1e-3);
    let last = both().map(|p| p.0).fold(1.0, f64::max);

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
            .x_desc("updates")
            .y_desc("loss (nats per token)")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .light_line_style(RGBColor(240, 240, 240))
            .bold_line_style(RGBColor(220, 220, 220))
            .draw()?;
        let blue = RGBColor(31, 119, 180);
        let orange = RGBColor(214, 98, 20);
        let key = |color: RGBColor| move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(2));
        chart.draw_series(LineSeries::new(train, &blue))?.label("training").legend(key(blue));
        if !valid.is_empty() {
            chart
                .draw_series(LineSeries::new(valid, orange.stroke_width(2)).point_size(3))?
                .label("validation")
                .legend(key(orange));
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
        assert!(thinned(&records).len() <= POINTS);
        let text = draw("a <title>", &records).unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        assert!(
            text.contains("validation") && text.contains("a &lt;title&gt;") && text.matches("<polyline").count() >= 2
        );
        // A single update, and no update.
        for few in [&records[..1], &[]] {
            assert!(draw("", few).unwrap().contains("</svg>"));
        }
        let error = svg(Path::new("/nonexistent/loss.svg"), "", &records).unwrap_err();
        assert!(error.to_string().starts_with("/nonexistent/loss.svg: "));
    }
}
