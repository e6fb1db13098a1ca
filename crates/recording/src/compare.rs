//! Compares two tensors that should be equal: how many elements are, and the distance of the
//! others.

use ferrane_device::{Tensor, Tensors};

use crate::ulp;

/// The element that is furthest away.
#[derive(Clone, Debug, PartialEq)]
pub struct Worst {
    /// Its index in each extent.
    pub index: Vec<usize>,
    /// Its value in the recording.
    pub recorded: f64,
    /// Its value on the device of the replay.
    pub here: f64,
}

/// How an output here differs from the recorded one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Difference {
    /// Name of the output or state.
    pub name: String,
    /// Element type in the recording.
    pub dtype: String,
    /// Extents in the recording.
    pub shape: Vec<usize>,
    /// Why the two cannot be compared: the tensor is missing here, or has another type or other
    /// extents. All counts are 0 then.
    pub mismatch: Option<String>,
    /// Number of elements in the recording.
    pub elements: usize,
    /// Elements whose bits are equal.
    pub equal: usize,
    /// The largest distance in units in the last place of the type.
    pub max_ulp: u64,
    /// The mean distance over all elements that can be compared.
    pub mean_ulp: f64,
    /// Elements that are a NaN on one side only.
    pub unordered: usize,
    /// Elements beyond the tolerance, including those that cannot be compared.
    pub beyond: usize,
    /// The largest difference of finite values.
    pub max: f64,
    /// The largest finite magnitude in the recording.
    pub scale: f64,
    /// The element with the largest distance. One that cannot be compared counts as the furthest.
    pub worst: Option<Worst>,
}

impl Difference {
    /// The share of elements beyond the tolerance.
    pub fn share(&self) -> f64 {
        self.beyond as f64 / self.elements.max(1) as f64
    }

    /// The largest difference as a share of the recording's largest magnitude.
    pub fn relative(&self) -> f64 {
        if self.max == 0.0 { 0.0 } else { self.max / self.scale }
    }

    /// True if no element is beyond the tolerance.
    pub fn within(&self) -> bool {
        self.mismatch.is_none() && self.beyond == 0
    }
}

/// Compares every recorded tensor with the tensor of the same name here. Elements whose distance is
/// at most `tolerance` units in the last place are within the tolerance.
pub fn all(recorded: &Tensors, here: &Tensors, tolerance: u64) -> Vec<Difference> {
    let one = |(name, tensor): &(String, Tensor)| tensors(name, tensor, here.find(name), tolerance);
    let missing = |(name, tensor): &(String, Tensor)| Difference {
        mismatch: Some("not in the record".to_string()),
        ..named(name, tensor)
    };
    let more = here.iter().filter(|(name, _)| recorded.find(name).is_none());
    recorded.iter().map(one).chain(more.map(missing)).collect()
}

fn named(name: &str, tensor: &Tensor) -> Difference {
    Difference {
        name: name.to_string(),
        dtype: tensor.dtype().name().to_string(),
        shape: tensor.shape().to_vec(),
        ..Difference::default()
    }
}

/// Compares a recorded tensor with the one computed here, element by element.
pub fn tensors(name: &str, recorded: &Tensor, here: Option<&Tensor>, tolerance: u64) -> Difference {
    let mut found = named(name, recorded);
    let Some(here) = here else {
        found.mismatch = Some("missing here".to_string());
        return found;
    };
    if (recorded.dtype(), recorded.shape()) != (here.dtype(), here.shape()) {
        found.mismatch = Some(format!("{} {:?} here", here.dtype(), here.shape()));
        return found;
    }
    let dtype = recorded.dtype();
    found.elements = recorded.len();
    let (mut total, mut worst) = (0f64, None::<(usize, Option<u64>)>);
    for (i, (a, b)) in recorded.elements().zip(here.elements()).enumerate() {
        found.equal += usize::from(a == b);
        let places = ulp::place(dtype, a).zip(ulp::place(dtype, b));
        let distance = places.and_then(|(a, b)| ulp::distance(a, b));
        match distance {
            Some(ulps) => {
                found.max_ulp = found.max_ulp.max(ulps);
                total += ulps as f64;
                found.beyond += usize::from(ulps > tolerance);
            }
            None => {
                found.unordered += 1;
                found.beyond += 1;
            }
        }
        // No distance counts as the largest.
        let further = |ulps: Option<u64>| ulps.map_or(u128::MAX, u128::from);
        if distance != Some(0) && worst.is_none_or(|(_, w)| further(distance) > further(w)) {
            worst = Some((i, distance));
        }
        if let Some((a, b)) = ulp::value(dtype, a).zip(ulp::value(dtype, b)) {
            if a.is_finite() {
                found.scale = found.scale.max(a.abs());
            }
            if a.is_finite() && b.is_finite() {
                found.max = found.max.max((a - b).abs());
            }
        }
    }
    found.mean_ulp = total / (found.elements - found.unordered).max(1) as f64;
    found.worst = worst.and_then(|(i, _)| {
        let value = |t: &Tensor| t.to_f64().nth(i);
        Some(Worst { index: index(i, recorded.shape()), recorded: value(recorded)?, here: value(here)? })
    });
    found
}

/// The index in each extent of the i-th element.
fn index(mut i: usize, shape: &[usize]) -> Vec<usize> {
    let mut index: Vec<usize> = shape
        .iter()
        .rev()
        .map(|extent| {
            let here = i % extent.max(&1);
            i /= extent.max(&1);
            here
        })
        .collect();
    index.reverse();
    index
}

#[cfg(test)]
mod tests {
    use ferrane_mil::DataType;

    use super::*;

    fn halves(words: &[u16]) -> Tensor {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        Tensor::new(DataType::Fp16, [2, words.len() / 2], bytes).unwrap()
    }

    #[test]
    fn differences_are_counted_and_placed() {
        // 1, -0, 65504, NaN against 1 + 3 ulp, +0, infinity, NaN of another pattern.
        let a = halves(&[0x3C00, 0x8000, 0x7BFF, 0x7E00]);
        let b = halves(&[0x3C03, 0x0000, 0x7C00, 0x7E01]);
        let found = tensors("y", &a, Some(&b), 1);
        assert_eq!((found.elements, found.equal, found.max_ulp, found.beyond), (4, 0, 3, 1));
        assert_eq!((found.mean_ulp, found.unordered, found.share()), (1.0, 0, 0.25));
        assert_eq!(found.worst.as_ref().unwrap().index, [0, 0]);
        // Infinity is one unit away and no finite difference.
        assert_eq!((found.max, found.scale), (3.0 * 2f64.powi(-10), 65504.0));
        assert!(!found.within() && tensors("y", &a, Some(&b), 3).within());
    }

    #[test]
    fn a_nan_on_one_side_is_beyond_every_tolerance() {
        let a = halves(&[0x3C00, 0x4000, 0, 0x3C00]);
        let b = halves(&[0x3C09, 0x4000, 0, 0x7E00]);
        let found = tensors("y", &a, Some(&b), u64::MAX);
        assert_eq!((found.unordered, found.beyond, found.max_ulp, found.mean_ulp), (1, 1, 9, 3.0));
        let worst = found.worst.unwrap();
        assert_eq!((worst.index, worst.recorded), (vec![1, 1], 1.0));
        assert!(worst.here.is_nan());
    }

    #[test]
    fn other_tensors_are_no_differences_in_ulp() {
        let (a, b) = (halves(&[0; 4]), halves(&[0; 6]));
        let of = |name: &str, t: &Tensor| Tensors::from([(name, t.clone())]);
        let found = all(&of("y", &a), &of("y", &b), 0);
        assert_eq!(found[0].mismatch.as_deref(), Some("fp16 [2, 3] here"));
        let found = all(&of("y", &a), &of("z", &a), 0);
        let told: Vec<_> = found.iter().map(|d| (d.name.as_str(), d.mismatch.as_deref().unwrap())).collect();
        assert_eq!(told, [("y", "missing here"), ("z", "not in the record")]);
        assert!(all(&of("y", &a), &of("y", &a), 0).iter().all(Difference::within));
    }
}
