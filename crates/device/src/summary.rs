//! What a person wants to see of a tensor that is too large to print.

use std::fmt;

use crate::Tensor;

/// Extremes, mean and first elements of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSummary {
    /// The least finite element; +∞ without any.
    pub min: f64,
    /// The largest finite element; −∞ without any.
    pub max: f64,
    /// The mean of the finite elements; NaN without any.
    pub mean: f64,
    /// Number of elements that are infinite or NaN.
    pub not_finite: usize,
    /// Number of elements of the tensor, of which `first` may hold fewer.
    pub len: usize,
    /// The first elements, row-major.
    pub first: Vec<f64>,
}

impl TensorSummary {
    /// The summary of a tensor, with at most `first` elements.
    pub fn of(tensor: &Tensor, first: usize) -> TensorSummary {
        let values: Vec<f64> = tensor.to_f64().collect();
        let finite = || values.iter().copied().filter(|v| v.is_finite());
        let count = finite().count();
        TensorSummary {
            min: finite().fold(f64::INFINITY, f64::min),
            max: finite().fold(f64::NEG_INFINITY, f64::max),
            mean: finite().sum::<f64>() / count as f64,
            not_finite: values.len() - count,
            len: values.len(),
            first: values.into_iter().take(first).collect(),
        }
    }
}

/// Two lines, indented by two spaces: statistics, and the first elements.
impl fmt::Display for TensorSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  min {}  max {}  mean {}", self.min, self.max, self.mean)?;
        if self.not_finite > 0 {
            write!(f, "  not finite {}", self.not_finite)?;
        }
        let first: Vec<String> = self.first.iter().map(f64::to_string).collect();
        let more = if self.len > self.first.len() { ", …" } else { "" };
        write!(f, "\n  [{}{more}]", first.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_finite_elements_are_counted() {
        let x = Tensor::fp32(&[5], &[1.0, f32::NAN, -2.0, f32::INFINITY, 4.0]).unwrap();
        let summary = TensorSummary::of(&x, 2);
        assert_eq!((summary.min, summary.max, summary.mean, summary.not_finite), (-2.0, 4.0, 1.0, 2));
        assert_eq!(summary.to_string(), "  min -2  max 4  mean 1  not finite 2\n  [1, NaN, …]");
        let whole = TensorSummary::of(&Tensor::fp32(&[2], &[0.5, 1.5]).unwrap(), 8);
        assert_eq!(whole.to_string(), "  min 0.5  max 1.5  mean 1\n  [0.5, 1.5]");
    }
}
