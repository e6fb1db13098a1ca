//! Quantized numbers and compressed constants.

use std::borrow::Cow;

use ferrane_mil::program::Payload;
use ferrane_mil::weights::{pack, unpack};
use ferrane_mil::{Constant, DataType};

use super::elementwise::Results;
use super::emit::known;
use super::state::{Built, Contents, Raise, element_of, rejected};
use crate::bytecode::ValueId;
use crate::dialect::ElementType::{Float32, Int4, Int8, Int16, UInt1, UInt4, UInt8};
use crate::dialect::{ElementType, Tensor};

impl<'a> Raise<'a> {
    /// A tensor of zeros with the extents of a parameter, in any type.
    fn zeros(&mut self, element: ElementType, shape: &[u64]) -> Built {
        let bits = if element == ElementType::Bool { 8 } else { element.bits() as usize };
        let bytes = vec![0; (self.table(shape)? * bits).div_ceil(8)];
        let tensor = Tensor { shape: known(shape), element, encoding: None };
        self.stored(tensor, Cow::Owned(bytes.clone()), Contents::Bytes(bytes))
    }

    /// Parameters in the shape in which they broadcast along the axis of the op.
    fn along_axis(&mut self, x: ValueId, parameters: ValueId) -> Built {
        let rank = self.rank(x)?;
        match self.rank(parameters)? {
            0 => self.reshaped(parameters, &vec![1; rank]),
            _ => {
                let axis = self.axis("axis", rank)?;
                let shape = self.shape(parameters)?;
                let mut wide = vec![1; rank];
                wide[axis] = shape.first().copied().unwrap_or(1);
                self.reshaped(parameters, &wide)
            }
        }
    }

    /// A constant of the op with its bytes.
    fn bytes_of(&self, name: &str) -> Built<(&'a Constant, &'a [u8])> {
        let found = self.cx().constant(name).and_then(|c| Some((c, c.bytes(self.weights)?)));
        found.map_or_else(|| rejected(format!("`{name}` has no bytes")), Ok)
    }
}

/// `round(x / scale) + zero_point`, held within the type of the result.
pub(super) fn quantize(r: &mut Raise<'_>) -> Results {
    let (x, scale) = (r.x("input")?, r.x("scale")?);
    let narrow = r.result(0)?.element;
    let scale = r.along_axis(x, scale)?;
    let (x, scale) = (r.cast(x, Float32)?, r.cast(scale, Float32)?);
    let scaled = r.bin("divide", x, scale)?;
    let mut y = r.un("primitive.round_v1", scaled)?;
    if r.has("zero_point") {
        let zero = r.x("zero_point")?;
        let zero = r.along_axis(x, zero)?;
        let zero = r.cast(zero, Float32)?;
        y = r.bin("add", y, zero)?;
    }
    let (low, high) = if narrow == UInt8 { (0.0, 255.0) } else { (-128.0, 127.0) };
    let y = r.with("maximum", y, low)?;
    let y = r.with("minimum", y, high)?;
    Ok(vec![r.cast(y, narrow)?])
}

/// `(data - zero_point) · scale`, for values and for constants: a block for each place of the axis.
fn dequantized(r: &mut Raise<'_>, data: &str) -> Results {
    let (x, scale) = (r.x(data)?, r.x("scale")?);
    let Tensor { shape, element: narrow, .. } = r.tensor(x)?.clone();
    let (wide, scale) = (r.element(scale)?, r.along_axis(x, scale)?);
    let parameters = r.shape(scale)?;
    let zero = match r.has("zero_point") {
        true => {
            let zero = r.x("zero_point")?;
            r.along_axis(x, zero)?
        }
        false => r.zeros(narrow, &parameters)?,
    };
    if r.element(zero)? != narrow || r.shape(zero)? != parameters {
        return r.evaluated();
    }
    let least = r.zeros(wide, &parameters)?;
    let operands = [x, scale, zero, least];
    Ok(vec![r.op("primitive.blockwise_shift_scale_v2", &operands, shape, wide)])
}

pub(super) fn dequantize(r: &mut Raise<'_>) -> Results {
    dequantized(r, "input")
}

pub(super) fn affine(r: &mut Raise<'_>) -> Results {
    dequantized(r, "quantized_data")
}

/// `(data - offset) · scale` for each block. Data and offsets of floating-point numbers are
/// computed.
pub(super) fn blockwise(r: &mut Raise<'_>) -> Results {
    let (data, scale) = (r.x("data")?, r.x("scale")?);
    let Tensor { shape, element: narrow, .. } = r.tensor(data)?.clone();
    let (wide, parameters) = (r.element(scale)?, r.shape(scale)?);
    if !matches!(narrow, Int4 | UInt4 | Int8 | UInt8) {
        return r.evaluated();
    }
    let offset = if r.has("offset") { r.x("offset")? } else { r.zeros(narrow, &parameters)? };
    if r.element(offset)? != narrow {
        return r.evaluated();
    }
    let least = r.zeros(wide, &parameters)?;
    let operands = [data, scale, offset, least];
    Ok(vec![r.op("primitive.blockwise_shift_scale_v2", &operands, shape, wide)])
}

/// The type of indices of so many bits, and the next one that Core AI has.
fn indices_of(bits: usize) -> Option<(DataType, DataType)> {
    Some(match bits {
        1 => (DataType::UInt1, DataType::UInt1),
        2 => (DataType::UInt2, DataType::UInt2),
        3 => (DataType::UInt3, DataType::UInt4),
        4 => (DataType::UInt4, DataType::UInt4),
        6 => (DataType::UInt6, DataType::UInt8),
        8 => (DataType::UInt8, DataType::UInt8),
        _ => return None,
    })
}

/// Entries of a palette at indices. Those of 3 and 6 bits become wider, with palettes that have as
/// many entries.
pub(super) fn lut_to_dense(r: &mut Raise<'_>) -> Results {
    let (indices, packed) = r.bytes_of("indices")?;
    let (lut, lut_bytes) = r.bytes_of("lut")?;
    let (Some(given), Some(entry)) = (lut.ty().shape(), lut.ty().dtype().and_then(element_of)) else {
        return rejected("a palette without extents");
    };
    let result = r.result(0)?;
    let old = r.has("shape");
    let shape: Vec<u64> = match old {
        true => r.ints("shape")?.iter().map(|&n| n.max(0) as u64).collect(),
        false => indices.ty().shape().unwrap_or_default().iter().map(|&n| n as u64).collect(),
    };
    let lut_shape: Vec<usize> = match (old, &given[..]) {
        (true, &[entries]) => shape.iter().map(|_| 1).chain([entries, 1]).collect(),
        _ => given,
    };
    let [blocks @ .., entries, vector] = &lut_shape[..] else { return rejected("a palette without entries") };
    let bits = entries.checked_ilog2().unwrap_or(0) as usize;
    let Some((from, to)) = indices_of(bits).filter(|_| entries.is_power_of_two()) else {
        return r.evaluated();
    };
    let count = shape.iter().try_fold(1usize, |n, &e| n.checked_mul(e as usize));
    let Some(count) = count.filter(|n| n.checked_mul(bits).map(|b| b.div_ceil(8)) == Some(packed.len())) else {
        return rejected("indices that do not fill their extents");
    };
    let Some(narrow) = element_of(to) else { return rejected("indices of an unknown type") };
    let tensor = Tensor { shape: known(&shape), element: narrow, encoding: None };
    let wanted = 1usize << to.bits().unwrap_or(8);
    let (indices, palette) = if from == to {
        let contents = match indices {
            Constant::Tensor { payload: Payload::Weight(id), .. } => Contents::Weight(*id),
            _ => Contents::Bytes(packed.to_vec()),
        };
        (r.stored(tensor, Cow::Borrowed(packed), contents)?, Cow::Borrowed(lut_bytes))
    } else {
        r.table(&[count as u64])?;
        let wide = pack(to, &unpack(from, packed, count));
        let row = lut_bytes.len() / blocks.iter().product::<usize>().max(1);
        let longer = lut_bytes.chunks_exact(row.max(1)).flat_map(|row| {
            row.iter().copied().chain(std::iter::repeat_n(0, row.len() / entries * (wanted - entries)))
        });
        (r.stored(tensor, Cow::Owned(wide.clone()), Contents::Bytes(wide))?, Cow::Owned(longer.collect::<Vec<u8>>()))
    };
    let extents: Vec<u64> = blocks.iter().map(|&b| b as u64).chain([wanted as u64, *vector as u64]).collect();
    let contents = Contents::Bytes(palette.to_vec());
    let lut = r.stored(Tensor { shape: known(&extents), element: entry, encoding: None }, palette, contents)?;
    let axis = if r.def.param("vector_axis").is_some() && r.has("vector_axis") {
        r.axis("vector_axis", shape.len())?
    } else {
        0
    };
    let axis = r.scalar(Int16, axis as f64)?;
    Ok(vec![r.op("primitive.lut_to_dense_v1", &[indices, lut, axis], result.shape, result.element)])
}

/// Elements where a mask has ones.
pub(super) fn sparse_to_dense(r: &mut Raise<'_>) -> Results {
    let data = r.x("nonzero_data")?;
    let Tensor { element, shape: values, .. } = r.tensor(data)?.clone();
    let [Some(count)] = values[..] else { return rejected("elements that are no vector") };
    let result = r.result(0)?.shape;
    let Some(shape) = result.iter().copied().collect::<Option<Vec<u64>>>() else {
        return rejected("a constant without extents");
    };
    let mask = if r.has("shape") {
        // Eight elements of the mask in each byte, as Core AI has them.
        let (_, bits) = r.bytes_of("mask")?;
        let tensor = Tensor { shape: result.clone(), element: UInt1, encoding: None };
        r.stored(tensor, Cow::Borrowed(bits), Contents::Bytes(bits.to_vec()))?
    } else {
        r.x("mask")?
    };
    let ty = r.b.sparse(&shape, element, count);
    let sparse = r.b.op(&mut r.graph, "primitive.build_sparse_with_bitmask_v1", &[data, mask], &[], ty);
    Ok(vec![r.op("primitive.sparse_with_bitmask_to_dense_v1", &[sparse], result, element)])
}
