//! A straight line through measured points.

use crate::spread::short;

/// The line `y = fixed + slope · x` through measured points, found by least squares.
///
/// ```
/// use ferrane_perf::Line;
///
/// let line = Line::fit(&[(1.0, 5.0), (2.0, 7.0), (4.0, 11.0)]).unwrap();
/// assert_eq!((line.fixed.round(), line.slope.round()), (3.0, 2.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// The value at x = 0.
    pub fixed: f64,
    /// The growth for each step of x.
    pub slope: f64,
    /// The share of the points' variance that the line explains, R²; 1 if they do not vary.
    pub r2: f64,
    /// The largest distance of a point from the line, as a share of the line's value there.
    pub worst: f64,
}

impl Line {
    /// The line's value at `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.fixed + self.slope * x
    }

    /// How well the line explains the points: `R² 0.9991, worst deviation 1.2 %`.
    pub fn quality(&self) -> String {
        format!("R² {:.4}, worst deviation {:.1} %", self.r2, 100.0 * self.worst)
    }

    /// The line in milliseconds: `3.00 ms + 2.00 ms a layer`.
    pub fn equation(&self, unit: &str) -> String {
        format!("{} ms + {} ms a {unit}", short(self.fixed), short(self.slope))
    }

    /// The line through these points; `None` if they have fewer than two different x.
    pub fn fit(points: &[(f64, f64)]) -> Option<Line> {
        let n = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (mx, my) = (mean(|p| p.0), mean(|p| p.1));
        let over = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
        let (xx, xy) = (over(&|p| (p.0 - mx).powi(2)), over(&|p| (p.0 - mx) * (p.1 - my)));
        if points.len() < 2 || xx <= 0.0 {
            return None;
        }
        let slope = xy / xx;
        let mut found = Line { fixed: my - slope * mx, slope, r2: 1.0, worst: 0.0 };
        let (left, all) = (over(&|p| (p.1 - found.at(p.0)).powi(2)), over(&|p| (p.1 - my).powi(2)));
        if all > 0.0 {
            found.r2 = 1.0 - left / all;
        }
        let off = |p: &(f64, f64)| ((p.1 - found.at(p.0)) / found.at(p.0)).abs();
        found.worst = points.iter().map(off).fold(0.0, f64::max);
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_and_judged() {
        let exact = Line::fit(&[(1.0, 5.0), (2.0, 7.0), (4.0, 11.0)]).unwrap();
        assert!((exact.fixed - 3.0).abs() < 1e-12 && (exact.slope - 2.0).abs() < 1e-12);
        assert!((exact.r2 - 1.0).abs() < 1e-12 && exact.worst < 1e-12);
        // x² from 1 to 3: by hand, slope 4, fixed -10/3, residuals 1/3, -2/3, 1/3.
        let bent = Line::fit(&[(1.0, 1.0), (2.0, 4.0), (3.0, 9.0)]).unwrap();
        assert!((bent.slope - 4.0).abs() < 1e-12 && (bent.fixed + 10.0 / 3.0).abs() < 1e-12);
        assert!((bent.r2 - (1.0 - (6.0 / 9.0) / (98.0 / 3.0))).abs() < 1e-12);
        assert!((bent.worst - 0.5).abs() < 1e-12, "{bent:?}");
        assert_eq!(
            (Line::fit(&[(1.0, 2.0)]), Line::fit(&[(1.0, 2.0), (1.0, 3.0)]), Line::fit(&[])),
            (None, None, None)
        );
        assert_eq!(Line::fit(&[(1.0, 2.0), (2.0, 2.0)]).unwrap().r2, 1.0);
    }
}
