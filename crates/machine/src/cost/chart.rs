//! Charts with two logarithmic axes, as SVG.

use std::fmt::Write as _;

use ferrane_diag::escape_xml;

/// A chart: series of marks, and lines.
#[derive(Clone, Debug, Default)]
pub(super) struct Chart {
    /// The heading of the chart.
    pub title: String,
    /// The label of the horizontal axis.
    pub x: String,
    /// The label of the vertical axis.
    pub y: String,
    /// The series, each in its own color.
    pub series: Vec<Series>,
    /// Polylines through points in axis units.
    pub lines: Vec<Vec<(f64, f64)>>,
}

/// Marks of one color.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    /// The name in the legend.
    pub name: String,
    /// The marks: x, y and a tooltip.
    pub marks: Vec<(f64, f64, String)>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 520.0;
/// The margins for axis labels and legend (left, top, right, bottom) in pixels.
const MARGIN: (f64, f64, f64, f64) = (70.0, 40.0, 150.0, 55.0);
const COLORS: [&str; 10] =
    ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22"];

/// The powers of ten around the values, or `None` if no value fits on a logarithmic axis.
fn decades(values: impl Iterator<Item = f64>) -> Option<(i32, i32)> {
    let usable = values.filter(|v| v.is_finite() && *v > 0.0).map(f64::log10);
    let (low, high) = usable.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
    (low <= high).then(|| (low.floor() as i32, (high.ceil() as i32).max(low.floor() as i32 + 1)))
}

impl Chart {
    /// Renders the chart as SVG. Marks that do not fit on logarithmic axes are omitted.
    pub(super) fn svg(&self) -> String {
        let marks = || self.series.iter().flat_map(|s| s.marks.iter().map(|(x, y, _)| (*x, *y)));
        let points = || marks().chain(self.lines.iter().flatten().copied());
        let across = decades(points().map(|p| p.0)).unwrap_or((0, 1));
        let up = decades(points().map(|p| p.1)).unwrap_or((0, 1));
        let (left, top, right, bottom) = MARGIN;
        let place = |value: f64, (low, high): (i32, i32)| (value.log10() - f64::from(low)) / f64::from(high - low);
        let px = |x: f64| left + place(x, across) * (WIDTH - left - right);
        let py = |y: f64| HEIGHT - bottom - place(y, up) * (HEIGHT - top - bottom);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        let mut text = |x: f64, y: f64, more: &str, words: &str| {
            // Writing to a string does not fail.
            let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {more}>{}</text>", escape_xml(words));
        };
        text(left, 22.0, "font-size=\"15\"", &self.title);
        text((left + WIDTH - right) / 2.0, HEIGHT - 14.0, "text-anchor=\"middle\"", &self.x);
        text(
            16.0,
            HEIGHT / 2.0,
            &format!("text-anchor=\"middle\" transform=\"rotate(-90 16 {})\"", HEIGHT / 2.0),
            &self.y,
        );
        let mut grid = String::new();
        for decade in across.0..=across.1 {
            let x = px(10f64.powi(decade));
            let _ = writeln!(grid, "<path d=\"M{x:.1} {top:.1}V{:.1}\" stroke=\"#ddd\"/>", HEIGHT - bottom);
            text(x, HEIGHT - bottom + 18.0, "text-anchor=\"middle\"", &number(decade));
        }
        for decade in up.0..=up.1 {
            let y = py(10f64.powi(decade));
            let _ = writeln!(grid, "<path d=\"M{left:.1} {y:.1}H{:.1}\" stroke=\"#ddd\"/>", WIDTH - right);
            text(left - 6.0, y + 4.0, "text-anchor=\"end\"", &number(decade));
        }
        for (i, series) in self.series.iter().enumerate() {
            let y = top + 14.0 + 18.0 * i as f64;
            text(WIDTH - right + 26.0, y, "", &series.name);
            let color = COLORS[i % COLORS.len()];
            let _ = writeln!(
                grid,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{color}\"/>",
                WIDTH - right + 16.0,
                y - 4.0
            );
        }
        svg.push_str(&grid);
        for line in &self.lines {
            let path: Vec<String> = line.iter().map(|(x, y)| format!("{:.1} {:.1}", px(*x), py(*y))).collect();
            let _ = writeln!(svg, "<path d=\"M{}\" fill=\"none\" stroke=\"#333\"/>", path.join("L"));
        }
        for (i, series) in self.series.iter().enumerate() {
            let color = COLORS[i % COLORS.len()];
            for (x, y, word) in
                series.marks.iter().filter(|(x, y, _)| [x, y].iter().all(|v| v.is_finite() && **v > 0.0))
            {
                let _ = writeln!(
                    svg,
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{color}\" fill-opacity=\"0.65\"><title>{}</title></circle>",
                    px(*x),
                    py(*y),
                    escape_xml(word)
                );
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn number(decade: i32) -> String {
    if (-3..=4).contains(&decade) { format!("{}", 10f64.powi(decade)) } else { format!("1e{decade}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_lie_where_their_logarithms_say() {
        let marks = vec![(10.0, 1.0, "a<b".to_string()), (0.0, 1.0, "unplaced".to_string())];
        let series = vec![Series { name: "s".into(), marks }];
        let chart = Chart { series, lines: vec![vec![(1.0, 1.0), (100.0, 10.0)]], ..Chart::default() };
        let svg = chart.svg();
        // Half way between 1 and 100, at the bottom.
        let x = 70.0 + (760.0 - 70.0 - 150.0) / 2.0;
        assert!(svg.contains(&format!("cx=\"{x:.1}\" cy=\"465.0\"")), "{svg}");
        assert!(svg.contains("a&lt;b") && !svg.contains("unplaced"), "{svg}");
        assert!(Chart::default().svg().ends_with("</svg>\n"));
    }
}
