//! Tensors as a port held them: an element type, extents, and bytes, which are never converted.

use ferrane_device::{Layout, Result, Surface};
use ferrane_mil::{Bytes, DataType};
use safetensors::Dtype;

use crate::ulp;

/// Element types of MIL that a file can hold, and what it calls them.
const TYPES: [(DataType, Dtype, &str); 15] = [
    (DataType::Bool, Dtype::BOOL, "BOOL"),
    (DataType::Fp16, Dtype::F16, "F16"),
    (DataType::Fp32, Dtype::F32, "F32"),
    (DataType::Fp64, Dtype::F64, "F64"),
    (DataType::Bf16, Dtype::BF16, "BF16"),
    (DataType::Fp8E4M3Fn, Dtype::F8_E4M3, "F8_E4M3"),
    (DataType::Fp8E5M2, Dtype::F8_E5M2, "F8_E5M2"),
    (DataType::Int8, Dtype::I8, "I8"),
    (DataType::Int16, Dtype::I16, "I16"),
    (DataType::Int32, Dtype::I32, "I32"),
    (DataType::Int64, Dtype::I64, "I64"),
    (DataType::UInt8, Dtype::U8, "U8"),
    (DataType::UInt16, Dtype::U16, "U16"),
    (DataType::UInt32, Dtype::U32, "U32"),
    (DataType::UInt64, Dtype::U64, "U64"),
];

/// The word that a file has for a type.
pub(crate) fn word(dtype: DataType) -> Option<&'static str> {
    TYPES.iter().find(|(d, ..)| *d == dtype).map(|(.., word)| *word)
}

/// The type that a file means.
pub(crate) fn from_file(dtype: Dtype) -> Option<DataType> {
    TYPES.iter().find(|(_, d, _)| *d == dtype).map(|(d, ..)| *d)
}

/// Why a tensor cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes are not those of {dtype} {shape:?}")]
pub struct SizeError {
    /// Bytes there are.
    pub len: usize,
    /// Element type.
    pub dtype: DataType,
    /// Extents.
    pub shape: Vec<usize>,
}

/// A tensor: row-major, little-endian, without padding. Invariant: as many bytes as type and extents say.
#[derive(Clone, Debug)]
pub struct Tensor {
    dtype: DataType,
    shape: Vec<usize>,
    bytes: Bytes,
}

impl Tensor {
    /// From its bytes.
    ///
    /// # Errors
    /// Another number of bytes than type and extents say, or a type that a trace cannot hold.
    pub fn new(
        dtype: DataType,
        shape: impl Into<Vec<usize>>,
        bytes: impl Into<Bytes>,
    ) -> std::result::Result<Tensor, SizeError> {
        let (shape, bytes) = (shape.into(), bytes.into());
        let elements = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
        let size = elements.and_then(|n| n.checked_mul(dtype.bytes()?)).filter(|_| word(dtype).is_some());
        match size == Some(bytes.len()) {
            true => Ok(Tensor { dtype, shape, bytes }),
            false => Err(SizeError { len: bytes.len(), dtype, shape }),
        }
    }

    /// What a surface holds, without the padding of its rows.
    ///
    /// # Errors
    /// [`ferrane_device::ErrorKind::Busy`] while somebody writes; a type that a trace cannot hold.
    pub fn of(surface: &Surface) -> Result<Tensor> {
        let layout = surface.layout();
        let mut bytes = Vec::new();
        let access = surface.read()?;
        rows(layout).filter_map(|row| access.bytes().get(row)).for_each(|row| bytes.extend_from_slice(row));
        let failed = |e: SizeError| ferrane_device::Error::new(ferrane_device::ErrorKind::Layout, e.to_string());
        Tensor::new(layout.dtype, layout.shape.clone(), bytes).map_err(failed)
    }

    /// Writes it into a surface of its type and as many elements.
    ///
    /// # Errors
    /// [`ferrane_device::ErrorKind::Binding`] for another type or number, or busy.
    pub fn fill(&self, surface: &Surface) -> Result<()> {
        let layout = surface.layout();
        if layout.dtype != self.dtype || layout.elements() != self.len() {
            return Err(ferrane_device::Error::new(
                ferrane_device::ErrorKind::Binding,
                format!("{} {:?} for a surface of {} {:?}", self.dtype, self.shape, layout.dtype, layout.shape),
            ));
        }
        let mut access = surface.write()?;
        let mut rest = &*self.bytes;
        for row in rows(layout) {
            let Some((now, later)) = rest.split_at_checked(row.len()) else { break };
            if let Some(place) = access.bytes_mut().get_mut(row) {
                place.copy_from_slice(now);
            }
            rest = later;
        }
        Ok(())
    }

    /// Element type.
    pub fn dtype(&self) -> DataType {
        self.dtype
    }

    /// Extents.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// All bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes of each element.
    pub fn elements(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.dtype.bytes().unwrap_or(1).max(1))
    }

    /// The elements as floats: exact but for 64-bit integers.
    pub fn values(&self) -> impl Iterator<Item = f64> {
        self.elements().filter_map(|bytes| ulp::value(self.dtype, bytes))
    }

    /// What there is to doubt about it.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary { elements: self.len(), ..Summary::default() };
        for value in self.values() {
            match value.is_finite() {
                true => summary.largest = summary.largest.max(value.abs()),
                false => summary.not_finite += 1,
            }
            summary.zeros += usize::from(value == 0.0);
        }
        summary.untouched = !self.is_empty() && self.bytes.iter().all(|b| *b == crate::run::POISON);
        summary
    }
}

fn rows(layout: &Layout) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
    (0..).map_while(|i| layout.row(i))
}

/// What an output looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Elements.
    pub elements: usize,
    /// NaNs and infinities.
    pub not_finite: usize,
    /// Zeros.
    pub zeros: usize,
    /// The largest finite magnitude.
    pub largest: f64,
    /// Every byte is what outputs are filled with before the first run, so nothing wrote it.
    pub untouched: bool,
}

impl Summary {
    /// What makes it poor evidence, in a few words.
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
    use super::*;

    #[test]
    fn sizes_are_checked() {
        assert!(Tensor::new(DataType::Fp16, [2, 2], vec![0; 8]).is_ok());
        assert!(Tensor::new(DataType::Fp16, [], vec![0; 2]).is_ok());
        for (dtype, shape, len) in
            [(DataType::Fp16, vec![2, 2], 7), (DataType::Fp16, vec![usize::MAX, 2], 0), (DataType::Int4, vec![2], 1)]
        {
            assert!(Tensor::new(dtype, shape, vec![0; len]).is_err());
        }
    }

    #[test]
    fn doubts() {
        let doubt = |words: [u16; 2]| {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            Tensor::new(DataType::Fp16, [2], bytes).unwrap().summary().doubt()
        };
        assert_eq!(doubt([0x3C00, 0]), None);
        assert_eq!(doubt([0x8000, 0]).as_deref(), Some("all zero"));
        assert_eq!(doubt([0x7C00, 0]).as_deref(), Some("1 of 2 not finite"));
        assert_eq!(doubt([0xFFFF, 0xFFFF]).as_deref(), Some("never written"));
    }
}
