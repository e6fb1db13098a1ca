//! Measurements as a page of plots and tables.

use serde_json::{Value, json};

use crate::html;
use crate::run::Facts;

const PAGE: &str = include_str!("../assets/plots.html");
const STYLE: &str = include_str!("../assets/plots.css");
const SCRIPT: &str = include_str!("../assets/plots.js");

/// Larger numbers are not drawn: no measurement has them, and the script's scales would overflow.
const LARGEST: f64 = 1e30;

/// What a page of measurements shows: sources of measurements with their facts, plots in which each
/// source has a shape and a color, and tables. Whatever is empty is left out.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PlotPage {
    /// The heading, which is the title of the document too.
    pub title: String,
    /// A few words next to it.
    pub subtitle: String,
    /// Names of the sources, such as files: the legend.
    pub sources: Vec<String>,
    /// What a reader must know before the numbers, such as wrong results.
    pub warnings: Vec<String>,
    /// Facts about the sources.
    pub facts: Vec<Facts>,
    /// The plots, in the order of the page.
    pub plots: Vec<Plot>,
    /// The tables, below the plots.
    pub tables: Vec<PlotTable>,
}

/// A plot with two axes, or with groups of bars.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    /// The heading, a few words.
    pub title: String,
    /// A sentence below it.
    pub caption: String,
    /// The horizontal axis; unused for bars.
    pub x: PlotAxis,
    /// The vertical axis; for bars, that of their lengths.
    pub y: PlotAxis,
    /// Points and lines. A point of bars has its group as `x`, counted from 0.
    pub series: Vec<PlotSeries>,
    /// Names of the groups of bars; empty for plots with two axes.
    pub groups: Vec<String>,
    /// Vertical lines: a place on the horizontal axis, the index of a source, and a label.
    pub marks: Vec<(f64, usize, String)>,
}

/// An axis of a plot; its range is that of the points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlotAxis {
    /// What it shows, with its unit.
    pub label: String,
    /// Whether it is logarithmic.
    pub logarithmic: bool,
}

/// How a series came about, which decides how it is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeriesKind {
    /// Filled shapes, joined by a line.
    #[default]
    Measured,
    /// Hollow shapes, joined by a dashed line.
    Predicted,
    /// Crosses of one color for all sources.
    Published,
    /// A thin line without shapes, such as a fit or a ceiling.
    Line,
}

impl SeriesKind {
    fn word(self) -> &'static str {
        match self {
            SeriesKind::Measured => "measured",
            SeriesKind::Predicted => "predicted",
            SeriesKind::Published => "published",
            SeriesKind::Line => "line",
        }
    }
}

/// Points of one source and kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlotSeries {
    /// The index of the source.
    pub source: usize,
    /// How they came about.
    pub kind: SeriesKind,
    /// A name for the series, such as that of a fit; empty if source and kind say all.
    pub name: String,
    /// The points, joined in this order if the kind is.
    pub points: Vec<PlotPoint>,
    /// Whether the points are joined.
    pub joined: bool,
}

/// A point of a series, or the end of a bar.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlotPoint {
    /// Its place on the horizontal axis.
    pub x: f64,
    /// Its place on the vertical axis.
    pub y: f64,
    /// The ends of its spread on the vertical axis, if known.
    pub spread: Option<(f64, f64)>,
    /// What it is, with numbers and units, and where it comes from.
    pub text: String,
    /// A word next to it; empty for most points.
    pub label: String,
    /// Whether it must not be relied on.
    pub wrong: bool,
}

/// A table below the plots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlotTable {
    /// The heading, a few words.
    pub title: String,
    /// A sentence below it.
    pub caption: String,
    /// The headings of the columns.
    pub columns: Vec<String>,
    /// Columns from this one on are numbers.
    pub numbers_from: usize,
    /// The rows, of one cell for each column.
    pub rows: Vec<Vec<PlotCell>>,
    /// Lines below the table.
    pub notes: Vec<String>,
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlotCell {
    /// The text; a cell without a value has `-`.
    pub text: String,
    /// More about it, shown on request; empty for most.
    pub more: String,
    /// Whether it must not be relied on.
    pub wrong: bool,
}

impl From<String> for PlotCell {
    fn from(text: String) -> PlotCell {
        PlotCell { text, ..PlotCell::default() }
    }
}

/// A number with six digits; `null` if it is not finite.
fn rounded(x: f64) -> Value {
    format!("{x:.5e}").parse::<f64>().map_or(Value::Null, Value::from)
}

impl Plot {
    fn json(&self) -> Value {
        let axis = |axis: &PlotAxis| json!({"label": axis.label, "log": axis.logarithmic});
        // What cannot be drawn on a logarithmic axis, or at all, is left out.
        let drawn = |value: f64, axis: &PlotAxis| value.abs() < LARGEST && (value > 1.0 / LARGEST || !axis.logarithmic);
        let bars = !self.groups.is_empty();
        let point = |p: &PlotPoint| {
            let inside = (bars || drawn(p.x, &self.x)) && drawn(p.y, &self.y);
            let spread = p.spread.filter(|(low, high)| drawn(*low, &self.y) && drawn(*high, &self.y));
            inside.then(|| {
                let mut json = json!({"x": rounded(p.x), "y": rounded(p.y), "text": p.text});
                if let Some((low, high)) = spread {
                    json["spread"] = json!([rounded(low), rounded(high)]);
                }
                if !p.label.is_empty() {
                    json["label"] = p.label.as_str().into();
                }
                if p.wrong {
                    json["wrong"] = true.into();
                }
                json
            })
        };
        let series = |s: &PlotSeries| {
            let points: Vec<Value> = s.points.iter().filter_map(point).collect();
            json!({"source": s.source, "kind": s.kind.word(), "name": s.name, "joined": s.joined, "points": points})
        };
        let marks = self.marks.iter().filter(|(x, ..)| drawn(*x, &self.x));
        let marks = marks.map(|(x, source, label)| json!({"x": rounded(*x), "source": source, "label": label}));
        json!({
            "title": self.title,
            "caption": self.caption,
            "x": axis(&self.x),
            "y": axis(&self.y),
            "series": self.series.iter().map(series).collect::<Vec<_>>(),
            "groups": self.groups,
            "marks": marks.collect::<Vec<_>>(),
        })
    }
}

impl PlotTable {
    fn json(&self) -> Value {
        let cell = |c: &PlotCell| match (c.more.is_empty(), c.wrong) {
            (true, false) => c.text.as_str().into(),
            _ => json!({"text": c.text, "more": c.more, "wrong": c.wrong}),
        };
        let rows: Vec<Vec<Value>> = self.rows.iter().map(|row| row.iter().map(cell).collect()).collect();
        json!({
            "title": self.title,
            "caption": self.caption,
            "columns": self.columns,
            "numbers": self.numbers_from,
            "rows": rows,
            "notes": self.notes,
        })
    }
}

impl PlotPage {
    /// The data of the page.
    pub fn json(&self) -> Value {
        json!({
            "title": self.title,
            "subtitle": self.subtitle,
            "sources": self.sources,
            "warnings": self.warnings,
            "facts": self.facts.iter().map(|f| json!({"title": f.title, "rows": f.rows})).collect::<Vec<_>>(),
            "plots": self.plots.iter().map(Plot::json).collect::<Vec<_>>(),
            "tables": self.tables.iter().map(PlotTable::json).collect::<Vec<_>>(),
        })
    }

    /// The page, complete HTML. It loads nothing, and its policy allows only its own script and
    /// style.
    pub fn html(&self) -> String {
        html::fill(PAGE, STYLE, SCRIPT, &self.title, &self.json())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_fit_into_elements() {
        html::check_parts(PAGE, STYLE, &[SCRIPT]);
        // The policy allows no style but the page's own, so an attribute `style` does nothing.
        assert!(!SCRIPT.contains(".style.") && !SCRIPT.contains("innerHTML"));
    }

    #[test]
    fn names_stay_in_their_place() {
        let hostile = "</script><script>alert(1)</script><b title=\"x\">&{{data}}";
        let mut page = PlotPage { title: hostile.into(), sources: vec![hostile.into()], ..PlotPage::default() };
        page.warnings.push(hostile.into());
        let points = vec![PlotPoint { x: 1.0, y: 1.0, text: hostile.into(), ..PlotPoint::default() }];
        let series = vec![PlotSeries { name: hostile.into(), points, ..PlotSeries::default() }];
        page.plots.push(Plot { title: hostile.into(), groups: vec![hostile.into()], series, ..Plot::default() });
        let rows = vec![vec![PlotCell { text: hostile.into(), more: hostile.into(), wrong: true }]];
        page.tables.push(PlotTable {
            title: hostile.into(),
            columns: vec![hostile.into()],
            rows,
            ..PlotTable::default()
        });
        let html = page.html();
        assert_eq!((html.matches("<script").count(), html.matches("</script").count()), (2, 2));
        assert!(!html.contains("<b title"), "a name became an element");
        let data = html.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["plots"][0]["series"][0]["points"][0]["text"], hostile);
        assert_eq!(data["tables"][0]["rows"][0][0]["more"], hostile);
    }

    #[test]
    fn points_that_no_axis_has_are_left_out() {
        let at = |x: f64, y: f64| PlotPoint { x, y, spread: Some((0.0, y * 2.0)), ..PlotPoint::default() };
        let points =
            vec![at(0.0, 1.0), at(1.0, 0.0), at(2.0, f64::NAN), at(f64::INFINITY, 1.0), at(3.0, 4.0), at(3.0, 1e40)];
        let series = vec![PlotSeries { points, ..PlotSeries::default() }];
        let axis = |logarithmic| PlotAxis { label: String::new(), logarithmic };
        let marks = vec![(0.0, 0, String::new()), (2.0, 0, String::new())];
        let mut plot = Plot { series, x: axis(true), y: axis(true), marks, ..Plot::default() };
        let drawn = |plot: &Plot| {
            let json = plot.json();
            let points = json["series"][0]["points"].as_array().unwrap().clone();
            (points, json["marks"].as_array().unwrap().len())
        };
        let (points, marks) = drawn(&plot);
        assert_eq!((points.len(), marks, &points[0]["y"]), (1, 1, &json!(4.0)));
        assert!(points[0].get("spread").is_none(), "one end is not on the axis");
        (plot.x, plot.y) = (axis(false), axis(false));
        let (points, marks) = drawn(&plot);
        assert_eq!((points.len(), marks, &points[2]["spread"]), (3, 2, &json!([0.0, 8.0])));
    }
}
