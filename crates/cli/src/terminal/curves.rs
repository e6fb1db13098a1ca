//! Curves in braille.

use ferrane::train::watch::Series;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, LegendPosition, Paragraph};

use super::number;

/// A curve over updates, with its name, its color and the factor from its values to the unit of the
/// axis.
pub struct Curve<'a> {
    pub name: &'a str,
    pub color: Color,
    pub series: &'a Series,
    pub unit: f64,
}

/// A line through points `(x, y)`, with its name and its color.
pub struct Polyline<'a> {
    pub name: &'a str,
    pub color: Color,
    pub points: Vec<(f64, f64)>,
}

/// The axes that lines are drawn over.
pub struct Axes {
    /// The values at the ends of the horizontal axis, and their labels.
    pub across: [(f64, String); 2],
    /// The values at the ends of the vertical axis; `None` fits them to the points.
    pub up: Option<[f64; 2]>,
}

/// Draws curves over the same updates, from `first` to `last`.
pub fn draw(frame: &mut Frame<'_>, area: Rect, title: Line<'_>, curves: &[Curve<'_>], first: u64, last: u64) {
    let most = columns(area);
    let points = curves.iter().map(|curve| {
        let points = curve.series.points(first, last, most).into_iter();
        points.map(|(step, value)| (step, value * curve.unit)).collect()
    });
    let lines = curves.iter().zip(points);
    let lines: Vec<_> = lines.map(|(c, points)| Polyline { name: c.name, color: c.color, points }).collect();
    let end = (last as f64).max(first as f64 + 1.0);
    let axes = Axes { across: [(first as f64, first.to_string()), (end, last.to_string())], up: None };
    draw_lines(frame, area, title, &lines, axes);
}

/// The columns of dots in an area: a cell has two.
pub fn columns(area: Rect) -> usize {
    2 * usize::from(area.width.max(1))
}

/// Draws lines over the same axes.
pub fn draw_lines(frame: &mut Frame<'_>, area: Rect, title: Line<'_>, lines: &[Polyline<'_>], axes: Axes) {
    let block = Block::bordered().title(title);
    let values = || lines.iter().flat_map(|line| &line.points).map(|p| p.1);
    let (low, high) = values().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low > high {
        frame.render_widget(Paragraph::new("no values yet").block(block), area);
        return;
    }
    let margin = ((high - low) * 0.05).max(high.abs().max(low.abs()) * 1e-6).max(1e-12);
    // Rates and sizes do not become negative for the sake of a margin.
    let bottom = if low >= 0.0 { (low - margin).max(0.0) } else { low - margin };
    let [bottom, top] = axes.up.unwrap_or([bottom, high + margin]);
    let heights = [bottom, (bottom + top) / 2.0, top].map(|value| format!("{:>7}", number(value)));
    let [(begin, left), (end, right)] = axes.across;
    let datasets = lines.iter().filter(|line| !line.points.is_empty()).map(|line| {
        let data = Dataset::default().marker(Marker::Braille).style(Style::new().fg(line.color)).data(&line.points);
        let data = if lines.len() > 1 { data.name(line.name) } else { data };
        data.graph_type(if line.points.len() == 1 { GraphType::Scatter } else { GraphType::Line })
    });
    let chart = Chart::new(datasets.collect())
        .block(block)
        .legend_position(Some(LegendPosition::TopRight))
        .x_axis(Axis::default().bounds([begin, end]).labels([left, right]))
        .y_axis(Axis::default().bounds([bottom, top]).labels(heights));
    frame.render_widget(chart, area);
}
