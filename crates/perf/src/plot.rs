//! SVG plots: a sweep's points on their line, and products under the roofs of the computer.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::error::{Error, Result};
use crate::fit::Line;
use crate::spread::{Spread, short};

type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

const BLUE: RGBColor = RGBColor(31, 119, 180);
const ORANGE: RGBColor = RGBColor(214, 98, 20);
const GREEN: RGBColor = RGBColor(44, 130, 60);
const GRAY: RGBColor = RGBColor(110, 110, 110);

/// A measured routine on a roofline plot.
#[derive(Clone, Debug)]
pub struct RooflinePoint {
    /// The label next to the point.
    pub name: String,
    /// Index into the plot's groups, which have a color each.
    pub group: usize,
    /// Operations for each byte that must be moved.
    pub intensity: f64,
    /// GFLOP/s that the routine reached.
    pub gflops: f64,
}

/// The ceilings of a roofline plot.
#[derive(Clone, Debug)]
pub struct Roofs {
    /// GFLOP/s of multiply-adds from registers.
    pub gflops: f64,
    /// GB/s of memory of several sizes, each with the name of its size.
    pub bandwidths: Vec<(String, f64)>,
}

/// The SVG text of what `draw` draws.
fn svg(draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Drawn) -> Result<String> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (900, 520)).into_drawing_area();
        let drawn = root.fill(&WHITE).map_err(Into::into).and_then(|()| draw(&root));
        drawn.and_then(|()| Ok(root.present()?)).map_err(|e| Error::Plot(e.to_string()))?;
    }
    Ok(text)
}

/// Draws times over `axis` with their lowest and highest values, and the line through the medians.
///
/// # Errors
/// [`Error::Plot`] if the plot cannot be drawn.
pub fn sweep_svg(title: &str, axis: &str, points: &[(f64, Spread)], line: Option<Line>) -> Result<String> {
    let right = points.iter().map(|p| p.0).fold(1.0, f64::max) * 1.05;
    let top = points.iter().map(|p| p.1.highest()).fold(0.001, f64::max) * 1.08;
    svg(|root| {
        let mut chart = ChartBuilder::on(root)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..right, 0.0..top)?;
        chart
            .configure_mesh()
            .x_desc(axis)
            .y_desc("milliseconds")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| short(*y))
            .light_line_style(RGBColor(240, 240, 240))
            .bold_line_style(RGBColor(220, 220, 220))
            .draw()?;
        if let Some(line) = line {
            let label = format!(
                "{} ms + {} ms each, R² {:.4}, worst {:.1} %",
                short(line.fixed),
                short(line.slope),
                line.r2,
                100.0 * line.worst
            );
            chart
                .draw_series([PathElement::new(
                    vec![(0.0, line.at(0.0)), (right, line.at(right))],
                    ORANGE.stroke_width(2),
                )])?
                .label(label)
                .legend(|(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], ORANGE.stroke_width(2)));
        }
        let bars = points
            .iter()
            .map(|p| PathElement::new(vec![(p.0, p.1.lowest()), (p.0, p.1.highest())], BLUE.stroke_width(1)));
        chart.draw_series(bars)?;
        let dots = points.iter().map(|p| Circle::new((p.0, p.1.median()), 4, BLUE.filled()));
        chart
            .draw_series(dots)?
            .label("median, lowest to highest")
            .legend(|(x, y)| Circle::new((x + 9, y), 4, BLUE.filled()));
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .border_style(RGBColor(200, 200, 200))
            .background_style(WHITE)
            .draw()?;
        Ok(())
    })
}

/// The extent of a label, as a share of the axes.
const NAME_WIDTH: f64 = 0.16;
const NAME_HEIGHT: f64 = 0.03;

/// The height of each label: that of its point, or below another label that is in the way. `width`
/// and `height` are the extent of a label as factors along the axes.
fn label_heights(points: &[RooflinePoint], width: f64, height: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|&a, &b| points[b].gflops.total_cmp(&points[a].gflops));
    let mut heights: Vec<f64> = points.iter().map(|k| k.gflops).collect();
    let near = |a: f64, b: f64, factor: f64| a < b * factor && b < a * factor;
    for (done, &i) in order.iter().enumerate() {
        // Each move goes down, so the loop ends.
        let in_the_way = |y: f64, other: &&usize| {
            near(points[i].intensity, points[**other].intensity, width) && near(y, heights[**other], height * 0.999)
        };
        let mut y = heights[i];
        while let Some(&other) = order[..done].iter().find(|other| in_the_way(y, other)) {
            y = heights[other] / height;
        }
        heights[i] = y;
    }
    heights
}

/// Draws GFLOP/s over operations per byte, on logarithmic scales, under the roofs. `groups` names
/// the groups of the points.
///
/// # Errors
/// [`Error::Plot`] if the plot cannot be drawn.
pub fn roofline_svg(title: &str, roofs: &Roofs, groups: &[&str], points: &[RooflinePoint]) -> Result<String> {
    let intensities = || points.iter().map(|k| k.intensity);
    let left = intensities().fold(0.25, f64::min) / 1.5;
    let right = intensities().fold(256.0, f64::max) * 4.0;
    let top = points.iter().map(|k| k.gflops).fold(roofs.gflops, f64::max) * 1.6;
    let bottom = points.iter().map(|k| k.gflops).fold(roofs.gflops / 50.0, f64::min) / 1.6;
    let colors = [BLUE, ORANGE, GREEN];
    svg(|root| {
        let mut chart = ChartBuilder::on(root)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d((left..right).log_scale(), (bottom..top).log_scale())?;
        chart
            .configure_mesh()
            .x_desc("operations for each byte that must be moved")
            .y_desc("GFLOP/s")
            .x_label_formatter(&|x| short(*x))
            .y_label_formatter(&|y| short(*y))
            .light_line_style(WHITE)
            .bold_line_style(RGBColor(225, 225, 225))
            .draw()?;
        let words = ("sans-serif", 13).into_font().color(&GRAY);
        for (name, rate) in &roofs.bandwidths {
            let (from, knee) = (left.max(bottom / rate), (roofs.gflops / rate).min(right));
            if from >= knee {
                continue;
            }
            chart.draw_series([PathElement::new(
                vec![(from, from * rate), (knee, knee * rate)],
                GRAY.stroke_width(2),
            )])?;
            let label = format!("{name} {rate:.0} GB/s");
            chart.draw_series([Text::new(label, (from * 1.05, from * rate * 1.35), words.clone())])?;
        }
        let knee = roofs.bandwidths.iter().map(|b| roofs.gflops / b.1).fold(right, f64::min).max(left);
        chart
            .draw_series([PathElement::new(vec![(knee, roofs.gflops), (right, roofs.gflops)], GRAY.stroke_width(2))])?;
        let label = format!("fp32 multiply-adds from registers, {:.0} GFLOP/s", roofs.gflops);
        chart.draw_series([Text::new(label, (knee * 1.1, roofs.gflops * 1.35), words.clone())])?;
        let small = ("sans-serif", 11).into_font().color(&BLACK);
        for (group, name) in groups.iter().enumerate() {
            let color = colors[group % colors.len()];
            let of = || points.iter().filter(move |k| k.group == group);
            chart
                .draw_series(of().map(|k| Circle::new((k.intensity, k.gflops), 4, color.filled())))?
                .label(*name)
                .legend(move |(x, y)| Circle::new((x + 9, y), 4, color.filled()));
        }
        let heights = label_heights(points, (right / left).powf(NAME_WIDTH), (top / bottom).powf(NAME_HEIGHT));
        chart.draw_series(
            points.iter().zip(heights).map(|(k, y)| Text::new(k.name.clone(), (k.intensity * 1.06, y), small.clone())),
        )?;
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .border_style(RGBColor(200, 200, 200))
            .background_style(WHITE)
            .draw()?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spread::Unit;

    fn point(group: usize, intensity: f64, gflops: f64) -> RooflinePoint {
        RooflinePoint { name: "1x2x3".into(), group, intensity, gflops }
    }

    #[test]
    fn labels_do_not_overlap() {
        let points = [(10.0, 100.0), (11.0, 101.0), (10.0, 99.0), (1000.0, 100.0), (10.0, 10.0)];
        let points = points.map(|(intensity, gflops)| point(0, intensity, gflops));
        let heights = label_heights(&points, 2.0, 1.1);
        assert_eq!((heights[1], heights[3], heights[4]), (101.0, 100.0, 10.0), "nothing is in their way");
        assert!(heights[0] * 1.099 < 101.0 && heights[2] * 1.099 < heights[0], "{heights:?}");
    }

    #[test]
    fn plots_are_drawn_and_survive_odd_numbers() {
        let points = [[1.0, 2.0, 1.5, 3.0], [2.0, 4.0, 3.5, 5.0], [3.0, 6.5, 6.0, 7.0]]
            .map(|[x, times @ ..]| (x, Spread::new(Unit::Milliseconds, times)));
        let medians: Vec<(f64, f64)> = points.iter().map(|p| (p.0, p.1.median())).collect();
        let text = sweep_svg("a <title>", "layers", &points, Line::fit(&medians)).unwrap();
        assert!(text.starts_with("<svg") && text.contains("a &lt;title&gt;") && text.contains("R²"), "{text}");
        assert_eq!(text.matches("<circle").count(), 4, "three points and the legend");
        sweep_svg("", "", &[], None).unwrap();

        let roofs = Roofs { gflops: 300.0, bandwidths: vec![("16 MiB".into(), 60.0), ("256 MiB".into(), 20.0)] };
        let text = roofline_svg("t", &roofs, &["fp32", "int8"], &[point(0, 40.0, 250.0), point(1, 0.5, 9.0)]).unwrap();
        assert!(
            text.contains("256 MiB 20 GB/s") && text.contains("int8") && text.matches("1x2x3").count() == 2,
            "{text}"
        );
        let odd = Roofs { gflops: 1e-3, bandwidths: vec![("x".into(), 1e9)] };
        roofline_svg("", &odd, &[], &[]).unwrap();
    }
}
