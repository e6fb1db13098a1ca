//! Whether the cost of a step grows in a straight line.
//!
//! The same step is measured at eighths of the window or of the model's layers, and a line is
//! fitted to the medians. Attention grows faster than the window, because its scores are as many as
//! the square of it; the line's worst deviation shows how much.

use std::fmt;

use ferrane_llm::config::Config;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::{Measured, StepOptions, measured};
use crate::computer::Computer;
use crate::error::Result;
use crate::fit::Line;
use crate::plot::sweep_svg;
use crate::spread::{Spread, round};

/// What grows in a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// The window: eighths of [`StepOptions::seq`].
    Tokens,
    /// The model: eighths of its layers.
    Layers,
}

impl Axis {
    /// The name of the axis: `tokens`.
    pub fn name(self) -> &'static str {
        match self {
            Axis::Tokens => "tokens",
            Axis::Layers => "layers",
        }
    }

    /// One of the things that the axis counts.
    fn unit(self) -> &'static str {
        match self {
            Axis::Tokens => "token",
            Axis::Layers => "layer",
        }
    }
}

/// A step of one size. Prints as one line.
#[derive(Clone, Debug)]
pub struct SweepPoint {
    /// The axis of the sweep.
    pub axis: Axis,
    /// The tokens or layers of the step.
    pub size: usize,
    /// Forward and backward pass.
    pub micro_step: Spread,
    /// Gradient norm, AdamW and transfer of the weights.
    pub update: Spread,
}

impl fmt::Display for SweepPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SweepPoint { axis, size, micro_step, update } = self;
        write!(f, "{size:6} {}: micro-step {micro_step}, update {update}", axis.name())
    }
}

impl Serialize for SweepPoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry(self.axis.name(), &self.size)?;
        map.serialize_entry("micro_step", &self.micro_step)?;
        map.serialize_entry("update", &self.update)?;
        map.end()
    }
}

/// The line through the medians of a sweep.
#[derive(Clone, Copy, Debug)]
pub struct SweepFit {
    /// The axis of the sweep.
    pub axis: Axis,
    /// The line, in milliseconds.
    pub line: Line,
}

impl Serialize for SweepFit {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("fixed_ms", &round(self.line.fixed))?;
        map.serialize_entry(&format!("ms_per_{}", self.axis.unit()), &round(self.line.slope))?;
        map.serialize_entry("r2", &self.line.r2)?;
        map.serialize_entry("worst_deviation", &round(self.line.worst))?;
        map.end()
    }
}

/// What [`sweep`] measured. Prints the fitted lines; the points print one by one.
#[derive(Clone, Debug, Serialize)]
pub struct SweepReport {
    /// The preset, or whatever the caller calls the model.
    pub model: String,
    /// The device as it was opened.
    pub device: String,
    /// Entries of the vocabulary that are in use.
    pub vocab: usize,
    /// What grew from point to point.
    #[serde(rename = "sweep")]
    pub axis: Axis,
    /// What stayed: `12 layers`.
    #[serde(skip)]
    pub fixed: String,
    /// The measured sizes, ascending.
    pub points: Vec<SweepPoint>,
    /// The line through the micro-steps; `None` for a single point.
    pub micro_step_fit: Option<SweepFit>,
    /// The line through the updates; `None` for a single point.
    pub update_fit: Option<SweepFit>,
    /// The computer that the times come from.
    #[serde(rename = "machine")]
    pub computer: Computer,
}

/// Measures steps of growing size; `progress` receives each point as soon as it is there.
///
/// # Errors
/// Those of [`step`](super::step), and those of `progress`.
pub fn sweep<E: From<crate::Error>>(
    options: &StepOptions<'_>,
    axis: Axis,
    mut progress: impl FnMut(&SweepPoint) -> std::result::Result<(), E>,
) -> std::result::Result<SweepReport, E> {
    let (config, active) = options.checked()?;
    let (most, fixed) = match axis {
        Axis::Tokens => (options.seq, format!("{} layers", config.layers)),
        Axis::Layers => (config.layers, format!("{} tokens", options.seq)),
    };
    let mut points = Vec::new();
    for size in eighths(most) {
        let (layers, seq) = match axis {
            Axis::Tokens => (config.layers, size),
            Axis::Layers => (size, options.seq),
        };
        let options = StepOptions { seq, ..options.clone() };
        let Measured { micro, update, .. } = measured(&options, &Config { layers, ..config.clone() }, active, None)?;
        let point = SweepPoint { axis, size, micro_step: micro, update };
        progress(&point)?;
        points.push(point);
    }
    let fit = |of: fn(&SweepPoint) -> &Spread| {
        let medians: Vec<(f64, f64)> = points.iter().map(|p| (p.size as f64, of(p).median())).collect();
        Line::fit(&medians).map(|line| SweepFit { axis, line })
    };
    Ok(SweepReport {
        model: options.model.clone(),
        device: options.device_name.clone(),
        vocab: active,
        axis,
        fixed,
        micro_step_fit: fit(|p| &p.micro_step),
        update_fit: fit(|p| &p.update),
        points,
        computer: Computer::detect(),
    })
}

impl SweepReport {
    /// A plot of the micro-steps and their line, as SVG.
    ///
    /// # Errors
    /// [`Error::Plot`](crate::Error::Plot) if the plot cannot be drawn.
    pub fn plot(&self) -> Result<String> {
        let title = format!("Forward and backward of {}, {}, on {}", self.model, self.fixed, self.device);
        let points: Vec<_> = self.points.iter().map(|p| (p.size as f64, p.micro_step.clone())).collect();
        sweep_svg(&title, self.axis.name(), &points, self.micro_step_fit.map(|fit| fit.line))
    }
}

impl fmt::Display for SweepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, fit) in [("micro-step", &self.micro_step_fit), ("update", &self.update_fit)] {
            let Some(SweepFit { axis, line }) = fit else { continue };
            writeln!(f, "{what}: {}, {}", line.equation(axis.unit()), line.quality())?;
        }
        Ok(())
    }
}

/// Up to eight sizes, evenly spaced, ending with `most`.
fn eighths(most: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> = (1..=8).map(|i| (most * i).div_ceil(8)).collect();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::eighths;

    #[test]
    fn sizes_end_with_all() {
        assert_eq!(eighths(256), [32, 64, 96, 128, 160, 192, 224, 256]);
        assert_eq!(eighths(12), [2, 3, 5, 6, 8, 9, 11, 12]);
        assert_eq!((eighths(5), eighths(1)), (vec![1, 2, 3, 4, 5], vec![1]));
    }
}
