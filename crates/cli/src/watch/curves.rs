//! Curves in braille.

use ferrane::train::watch::Series;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, LegendPosition, Paragraph};

/// A curve with its name, its color and the factor from its values to the unit of the axis.
pub struct Curve<'a> {
    pub name: &'a str,
    pub color: Color,
    pub series: &'a Series,
    pub unit: f64,
}

/// Draws curves over the same updates, from `first` to `last`.
pub fn draw(frame: &mut Frame<'_>, area: Rect, title: Line<'_>, curves: &[Curve<'_>], first: u64, last: u64) {
    // A cell has two columns of dots.
    let most = 2 * usize::from(area.width.max(1));
    let points: Vec<Vec<(f64, f64)>> = curves
        .iter()
        .map(|curve| {
            let points = curve.series.points(first, last, most);
            points.into_iter().map(|(step, value)| (step, value * curve.unit)).collect()
        })
        .collect();
    let block = Block::bordered().title(title);
    let values = || points.iter().flatten().map(|p| p.1);
    let (low, high) = values().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low > high {
        frame.render_widget(Paragraph::new("no values yet").block(block), area);
        return;
    }
    let margin = ((high - low) * 0.05).max(high.abs().max(low.abs()) * 1e-6).max(1e-12);
    // Rates and sizes do not become negative for the sake of a margin.
    let bottom = if low >= 0.0 { (low - margin).max(0.0) } else { low - margin };
    let top = high + margin;
    let labels = [bottom, (bottom + top) / 2.0, top].map(|value| format!("{:>7}", number(value)));
    let datasets = curves.iter().zip(&points).filter(|(_, points)| !points.is_empty()).map(|(curve, points)| {
        let data = Dataset::default().marker(Marker::Braille).style(Style::new().fg(curve.color)).data(points);
        let data = if curves.len() > 1 { data.name(curve.name) } else { data };
        data.graph_type(if points.len() == 1 { GraphType::Scatter } else { GraphType::Line })
    });
    let chart = Chart::new(datasets.collect())
        .block(block)
        .legend_position(Some(LegendPosition::TopRight))
        .x_axis(
            Axis::default()
                .bounds([first as f64, (last as f64).max(first as f64 + 1.0)])
                .labels([first.to_string(), last.to_string()]),
        )
        .y_axis(Axis::default().bounds([bottom, top]).labels(labels));
    frame.render_widget(chart, area);
}

/// A number in at most seven characters or so.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        "0".into()
    } else if !(1e-2..1e5).contains(&size) {
        format!("{value:.1e}")
    } else if size < 10.0 {
        format!("{value:.3}")
    } else if size < 1000.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}
