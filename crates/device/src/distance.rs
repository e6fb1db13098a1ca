//! How far one tensor is from another.

use crate::Tensor;

/// How far the elements of one tensor are from those of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorDistance {
    /// The largest absolute difference; infinite if an element is finite in one tensor only, and if
    /// types or shapes differ. Equal infinities, and NaNs, have the difference 0.
    pub max: f64,
    /// The mean absolute difference.
    pub mean: f64,
    /// The largest finite magnitude of the first tensor.
    pub scale: f64,
}

impl TensorDistance {
    /// The distance of `other` from `tensor`, element by element.
    pub fn of(tensor: &Tensor, other: &Tensor) -> TensorDistance {
        let (a, b): (Vec<f64>, Vec<f64>) = (tensor.to_f64().collect(), other.to_f64().collect());
        let difference = |(a, b): (&f64, &f64)| match a == b || (a.is_nan() && b.is_nan()) {
            true => 0.0,
            false if a.is_finite() && b.is_finite() => (a - b).abs(),
            false => f64::INFINITY,
        };
        let max = a.iter().zip(&b).map(difference).fold(0f64, f64::max);
        let comparable = tensor.shape() == other.shape() && tensor.dtype() == other.dtype();
        TensorDistance {
            max: if comparable { max } else { f64::INFINITY },
            mean: a.iter().zip(&b).map(difference).sum::<f64>() / a.len().max(1) as f64,
            scale: a.iter().filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(v.abs())),
        }
    }

    /// True if no element differs by more than `share` of the first tensor's largest magnitude.
    pub fn is_within(&self, share: f64) -> bool {
        self.max.is_finite() && self.max <= share * self.scale
    }
}

#[cfg(test)]
mod tests {
    use ferrane_mil::DataType;

    use super::*;

    fn tensor(values: &[f32]) -> Tensor {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        Tensor::new(DataType::Fp32, [values.len()], bytes).unwrap()
    }

    #[test]
    fn infinities_are_near_themselves_only() {
        let a = tensor(&[1.0, f32::INFINITY, f32::NAN, -4.0]);
        let distance = TensorDistance::of(&a, &tensor(&[1.5, f32::INFINITY, f32::NAN, -4.0]));
        assert_eq!(distance, TensorDistance { max: 0.5, mean: 0.125, scale: 4.0 });
        assert!(distance.is_within(0.125) && !distance.is_within(0.1));
        let distance = TensorDistance::of(&a, &tensor(&[1.0, 2.0, f32::NAN, -4.0]));
        assert!(distance.max.is_infinite() && !distance.is_within(1e9));
        assert!(TensorDistance::of(&a, &tensor(&[1.0])).max.is_infinite());
    }
}
