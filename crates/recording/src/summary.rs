//! A summary of an output, which shows whether it is poor evidence.

use ferrane_device::Tensor;

/// Counts over the elements of an output.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Number of elements, whatever their values.
    pub elements: usize,
    /// Number of NaNs and infinities.
    pub not_finite: usize,
    /// Number of zeros of either sign.
    pub zeros: usize,
    /// The largest finite magnitude.
    pub largest: f64,
    /// True if every byte is the fill pattern of [`run`](crate::run()): the machine did not write
    /// it.
    pub untouched: bool,
}

impl Summary {
    /// Summarizes a tensor, element by element.
    pub fn of(tensor: &Tensor) -> Summary {
        let mut summary = Summary { elements: tensor.len(), ..Summary::default() };
        for value in tensor.to_f64() {
            if value.is_finite() {
                summary.largest = summary.largest.max(value.abs());
            } else {
                summary.not_finite += 1;
            }
            summary.zeros += usize::from(value == 0.0);
        }
        summary.untouched = !tensor.is_empty() && tensor.bytes().iter().all(|b| *b == crate::run::POISON);
        summary
    }

    /// Why the output is poor evidence, in a few words; `None` if it is not.
    pub fn doubt(&self) -> Option<String> {
        match self {
            Summary { elements: 0, .. } => None,
            Summary { untouched: true, .. } => Some("never written".to_string()),
            Summary { elements, zeros, .. } if elements == zeros => Some("all zero".to_string()),
            Summary { not_finite: 0, .. } => None,
            Summary { not_finite, elements, .. } => Some(format!("{not_finite} of {elements} not finite")),
        }
    }
}

#[cfg(test)]
mod tests {
    use ferrane_mil::DataType;

    use super::*;

    #[test]
    fn doubts() {
        let doubt = |words: [u16; 2]| {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            Summary::of(&Tensor::new(DataType::Fp16, [2], bytes).unwrap()).doubt()
        };
        assert_eq!(doubt([0x3C00, 0]), None);
        assert_eq!(doubt([0x8000, 0]).as_deref(), Some("all zero"));
        assert_eq!(doubt([0x7C00, 0]).as_deref(), Some("1 of 2 not finite"));
        assert_eq!(doubt([0xFFFF, 0xFFFF]).as_deref(), Some("never written"));
    }
}
