//! Quantized numbers and compressed constants: MIL's own forms where the operands are constants,
//! arithmetic otherwise.

use std::rc::Rc;

use ferrane_mil::emit::Emit;
use ferrane_mil::{Constant, DataType};

use super::elementwise::Results;
use super::known::{self, Known, is_float};
use super::state::{Built, Lower, Meaning, Role, Stop, rejected, unmapped};
use crate::dialect::ElementType;

/// The type in which a compressed constant keeps its elements, if MIL has it.
fn compressed(element: ElementType) -> Option<DataType> {
    Some(match element {
        ElementType::Int8 => DataType::Int8,
        ElementType::UInt8 => DataType::UInt8,
        ElementType::Int4 => DataType::Int4,
        ElementType::UInt4 => DataType::UInt4,
        _ => return None,
    })
}

/// The type in which a palette's indices are kept, if MIL has it.
fn indexed(element: ElementType) -> Option<DataType> {
    Some(match element {
        ElementType::UInt1 => DataType::UInt1,
        ElementType::UInt2 => DataType::UInt2,
        ElementType::UInt3 => DataType::UInt3,
        ElementType::UInt6 => DataType::UInt6,
        ElementType::UInt4 => DataType::UInt4,
        ElementType::UInt8 => DataType::UInt8,
        _ => return None,
    })
}

impl<'a> Lower<'a> {
    /// The element type of the result, which has to be fp16 or fp32 in MIL.
    fn float_result(&self) -> Built<DataType> {
        match self.result(0).and_then(|t| known::mil(t.element)).filter(|d| d.is_float()) {
            Some(dtype) => Ok(dtype),
            None => unmapped("MIL quantizes fp16 and fp32 only"),
        }
    }

    fn is_zero(&self, i: usize) -> bool {
        self.known(i).is_ok_and(|k| k.splat().map_or_else(|| k.values().iter().all(|&v| v == 0.0), |v| v == 0.0))
    }

    /// A known operand with another shape, as a constant of a type.
    fn reshaped(&mut self, i: usize, shape: &[usize], dtype: DataType) -> Built {
        let known = self.known(i)?;
        if known.len() != shape.iter().product::<usize>() {
            return rejected(format!("operand {i} of shape {:?} where {shape:?} is needed", known.shape));
        }
        self.table(shape)?;
        let copy = Known::new(known.element, shape.to_vec(), known.values().to_vec());
        let entry = self.known_entry(copy);
        match entry.is {
            Role::Known(copy) => self.stored(entry.id, &copy, dtype),
            _ => Err(Stop::Needs(i)),
        }
    }

    /// Vectors of one number for each place along an axis: the shape in which they broadcast. The
    /// axis is that of operand 4.
    fn along(&self, x: &[usize]) -> Built<Vec<usize>> {
        let vector = self.extents(1)?;
        if vector.is_empty() {
            return Ok(vec![1; x.len()]);
        }
        let axis = self.axis(4, x.len())?;
        let mut wide = vec![1; x.len()];
        wide[axis] = x[axis];
        match vector[..] == [x[axis]] {
            true => Ok(wide),
            false => rejected(format!("{vector:?} numbers for an axis of {}", x[axis])),
        }
    }

    /// A parameter of quantization in fp32, in the shape in which it broadcasts.
    fn parameter(&mut self, i: usize, wide: &[usize]) -> Built {
        let value = self.x(i)?;
        let value = self.cast(value, DataType::Fp32)?;
        self.reshape(value, wide)
    }

    /// Arguments that MIL's `quantize` and `dequantize` share, if the parameters are constants.
    fn native(&mut self, dtype: DataType, narrow: DataType) -> Built<Option<Vec<(&'static str, ferrane_mil::Arg)>>> {
        let (scale, zero) = (self.known(1), self.known(2));
        let (Ok(scale), Ok(zero)) = (scale, zero) else { return Ok(None) };
        if !self.is_zero(3) || scale.shape.len() > 1 || scale.shape != zero.shape {
            return Ok(None);
        }
        let shape = scale.shape.clone();
        let mut args = vec![("scale", self.reshaped(1, &shape, dtype)?.into())];
        args.push(("zero_point", self.reshaped(2, &shape, narrow)?.into()));
        if !shape.is_empty() {
            let rank = self.extents(0)?.len();
            args.push(("axis", Constant::int32(self.axis(4, rank)? as i32).into()));
        }
        Ok(Some(args))
    }
}

pub(super) fn dequantize(l: &mut Lower<'_>) -> Results {
    let dtype = l.float_result()?;
    let shape = l.extents(0)?;
    let wide = l.along(&shape)?;
    let entry = l.entry(0)?;
    if let (Role::Known(_), Some(narrow)) = (&entry.is, compressed(entry.element))
        && l.is_zero(3)
        && l.known(1).is_ok()
    {
        return constant_blocks(l, narrow, &wide, dtype);
    }
    if let Role::Value(value) = entry.is
        && let Some(narrow) = compressed(entry.element).filter(|n| *n == l.dtype(value))
        && let Some(mut args) = l.native(dtype, narrow)?
    {
        args.push(("input", value.into()));
        return Ok(vec![l.build("dequantize", args)?]);
    }
    let x = l.x(0)?;
    let x = l.cast(x, DataType::Fp32)?;
    let (scale, zero, least) = (l.parameter(1, &wide)?, l.parameter(2, &wide)?, l.parameter(3, &wide)?);
    let centered = l.bin("sub", x, zero)?;
    let scaled = l.bin("mul", centered, scale)?;
    Ok(vec![l.bin("add", scaled, least)?])
}

pub(super) fn quantize(l: &mut Lower<'_>) -> Results {
    let Some(element) = l.result(0).map(|t| t.element) else { return rejected("its result is no tensor") };
    let Some((low, high)) = known::range(element) else {
        return unmapped(format!(
            "MIL has no numbers of type {}, to which the elements would be rounded",
            element.name()
        ));
    };
    let shape = l.extents(0)?;
    let wide = l.along(&shape)?;
    let x = l.x(0)?;
    let narrow = compressed(element).filter(|n| matches!(n, DataType::Int8 | DataType::UInt8));
    if let Some(narrow) = narrow.filter(|_| l.is_float(x))
        && let Some(mut args) = l.native(l.dtype(x), narrow)?
    {
        args.push(("input", x.into()));
        args.push(("output_dtype", Constant::string(narrow.name()).into()));
        return Ok(vec![l.build("quantize", args)?]);
    }
    let x = l.cast(x, DataType::Fp32)?;
    let (scale, zero, least) = (l.parameter(1, &wide)?, l.parameter(2, &wide)?, l.parameter(3, &wide)?);
    let centered = l.bin("sub", x, least)?;
    let scaled = l.bin("real_div", centered, scale)?;
    let round = l.un("round", scaled)?;
    let moved = l.bin("add", round, zero)?;
    let above = l.bin("maximum", moved, Constant::fp32(low as f32))?;
    let inside = l.bin("minimum", above, Constant::fp32(high as f32))?;
    Ok(vec![l.cast(inside, DataType::Int32)?])
}

/// A constant of operands 0 to 2: elements, and a scale and a zero point for each block.
fn constant_blocks(l: &mut Lower<'_>, narrow: DataType, blocks: &[usize], dtype: DataType) -> Results {
    let data = l.typed(0, narrow)?;
    let scale = l.reshaped(1, blocks, dtype)?;
    let mut args = vec![("data", data.into()), ("scale", scale.into())];
    if !l.is_zero(2) {
        args.push(("offset", l.reshaped(2, blocks, narrow)?.into()));
    }
    Ok(vec![l.build("constexpr_blockwise_shift_scale", args)?])
}

/// For each element of a tensor, the place of its block in a tensor of blocks.
fn block_places(shape: &[usize], blocks: &[usize]) -> impl Iterator<Item = usize> {
    let (shape, blocks) = (shape.to_vec(), blocks.to_vec());
    (0..shape.iter().product::<usize>()).map(move |mut flat| {
        let (mut place, mut stride) = (0, 1);
        for axis in (0..shape.len()).rev() {
            let index = flat % shape[axis];
            flat /= shape[axis];
            place += index / (shape[axis] / blocks[axis]) * stride;
            stride *= blocks[axis];
        }
        place
    })
}

/// Checks that blocks divide a tensor evenly.
fn check_blocks(shape: &[usize], blocks: &[usize]) -> Built<()> {
    let fit = shape.len() == blocks.len() && shape.iter().zip(blocks).all(|(n, b)| *b > 0 && *n > 0 && n % b == 0);
    if fit { Ok(()) } else { rejected(format!("blocks of {blocks:?} in a tensor of {shape:?}")) }
}

pub(super) fn blockwise_shift_scale(l: &mut Lower<'_>) -> Results {
    let dtype = l.float_result()?;
    let (shape, blocks, entry) = (l.extents(0)?, l.extents(1)?, l.entry(0)?);
    check_blocks(&shape, &blocks)?;
    let parameters = [l.known(1), l.known(2), l.known(3)];
    if let (Role::Known(data), [Ok(scale), Ok(zero), Ok(least)]) = (&entry.is, &parameters) {
        if let Some(narrow) = compressed(entry.element).filter(|_| l.is_zero(3) && l.target_has_blocks()) {
            return constant_blocks(l, narrow, &blocks, dtype);
        }
        // MIL keeps no constants of the other formats, nor of those that are moved after scaling.
        let count = blocks.iter().product::<usize>();
        if [scale, zero, least].iter().any(|k| k.len() != count) {
            return rejected("its scales and offsets differ in shape");
        }
        l.table(&shape)?;
        let (scale, zero, least) = (scale.values(), zero.values(), least.values());
        let dense = data.values().iter().zip(block_places(&shape, &blocks));
        let dense: Vec<f64> = dense.map(|(v, at)| (v - zero[at]) * scale[at] + least[at]).collect();
        return Ok(vec![l.tensor(dtype, &shape, &dense)?]);
    }
    let x = l.x(0)?;
    let x = l.cast(x, DataType::Fp32)?;
    let mut wide = Vec::new();
    for i in 1..4 {
        let value = l.x(i)?;
        let mut value = l.cast(value, DataType::Fp32)?;
        for axis in 0..shape.len() {
            if blocks[axis] > 1 && blocks[axis] < shape[axis] {
                l.table(&shape[axis..=axis])?;
                let size = shape[axis] / blocks[axis];
                let places: Vec<i64> = (0..shape[axis]).map(|i| (i / size) as i64).collect();
                let places = l.indices(&[shape[axis]], &places)?;
                value = l.b.gather(&l.label, value, places, axis as i32)?;
            }
        }
        wide.push(value);
    }
    let centered = l.bin("sub", x, wide[1])?;
    let scaled = l.bin("mul", centered, wide[0])?;
    Ok(vec![l.bin("add", scaled, wide[2])?])
}

impl Lower<'_> {
    /// True if compressed constants may have a scale for each block: from iOS 18 on.
    fn target_has_blocks(&self) -> bool {
        self.target >= ferrane_mil::Opset::IOS18
    }
}

/// A palette's shape: blocks, entries, and numbers of an entry.
fn palette(l: &Lower<'_>, shape: &[usize]) -> Built<(Vec<usize>, usize, usize)> {
    let lut = l.extents(1)?;
    match lut.as_slice() {
        [blocks @ .., entries, vector] if blocks.len() == shape.len() => Ok((blocks.to_vec(), *entries, *vector)),
        _ => rejected(format!("a palette of shape {lut:?} for indices of {shape:?}")),
    }
}

pub(super) fn lut_to_dense(l: &mut Lower<'_>) -> Results {
    let (shape, entry) = (l.extents(0)?, l.entry(0)?);
    let (blocks, entries, vector) = palette(l, &shape)?;
    check_blocks(&shape, &blocks)?;
    if let (Role::Known(_), Some(narrow), Ok(lut)) = (&entry.is, indexed(entry.element), l.known(1)) {
        let indices = l.typed(0, narrow)?;
        let dtype = match (compressed(lut.element), known::mil(lut.element)) {
            (Some(narrow @ (DataType::Int8 | DataType::UInt8)), _) => narrow,
            (_, Some(dtype)) if dtype.is_float() => dtype,
            _ => return unmapped("MIL has palettes of 8-bit integers and floating-point numbers only"),
        };
        let mut args = vec![("indices", indices.into()), ("lut", l.typed(1, dtype)?.into())];
        if vector > 1 {
            args.push(("vector_axis", Constant::int32(l.axis(2, shape.len())? as i32).into()));
        }
        return Ok(vec![l.build("constexpr_lut_to_dense", args)?]);
    }
    if vector != 1 {
        return unmapped("MIL looks up vectors in constants only");
    }
    // The place of each element's palette is known, only the index in it is not.
    let lut = l.x(1)?;
    let lut = l.reshape(lut, &[blocks.iter().product::<usize>().saturating_mul(entries)])?;
    let mut indices = l.x(0)?;
    if blocks.iter().any(|&b| b > 1) {
        l.table(&shape)?;
        let places: Vec<i64> = block_places(&shape, &blocks).map(|at| (at * entries) as i64).collect();
        let places = l.indices(&shape, &places)?;
        indices = l.bin("add", indices, places)?;
    }
    Ok(vec![l.b.gather(&l.label, lut, indices, 0)?])
}

/// The elements and the mask of a sparse operand.
fn parts<'a>(l: &Lower<'a>) -> Built<Rc<(Meaning<'a>, Meaning<'a>)>> {
    match l.entry(0)?.is {
        Role::Sparse(parts) => Ok(parts),
        _ => unmapped("MIL has no sparse tensors outside of constants"),
    }
}

/// Indices that are looked up where the mask has ones; the mask stays.
pub(super) fn lut_to_sparse<'a>(l: &mut Lower<'a>) -> Built<Vec<Meaning<'a>>> {
    let parts = parts(l)?;
    let Some(element) = l.result(0).map(|t| t.element) else { return rejected("its result is no tensor") };
    let lut = l.extents(1)?;
    let entries: usize = lut.iter().product();
    if lut.last() != Some(&1) || lut.iter().rev().nth(1) != Some(&entries) {
        return unmapped("MIL looks up sparse elements in a single palette of numbers only");
    }
    let found = match (&parts.0.is, l.known(1)) {
        (Role::Known(indices), Ok(lut)) => {
            l.table(&indices.shape)?;
            l.table(&lut.shape)?;
            let values: Option<Vec<f64>> =
                indices.values().iter().map(|&i| lut.values().get(i as usize).copied()).collect();
            let Some(values) = values else { return rejected("an index beyond the palette") };
            l.known_entry(Known::new(element, indices.shape.clone(), values))
        }
        _ => {
            let lut = l.x(1)?;
            let lut = l.reshape(lut, &[entries])?;
            let indices = l.value_of(&parts.0)?;
            let value = l.b.gather(&l.label, lut, indices, 0)?;
            l.make(Role::Value(value), element)
        }
    };
    let mask = parts.1.clone();
    Ok(vec![l.make(Role::Sparse(Rc::new((found, mask))), element)])
}

/// A constant is MIL's own form; otherwise each element is gathered from its place, which is the
/// number of ones before it.
pub(super) fn sparse_to_dense(l: &mut Lower<'_>) -> Results {
    let parts = parts(l)?;
    let (values, mask) = (&parts.0, &parts.1);
    if let (Role::Known(data), Role::Known(bits)) = (&values.is, &mask.is) {
        let dtype = match known::mil(data.element) {
            Some(dtype) if is_float(data.element) => dtype,
            _ => match compressed(data.element) {
                Some(dtype) => dtype,
                None => return unmapped("MIL has sparse constants of 4- and 8-bit integers and floats only"),
            },
        };
        let data = l.stored(values.id, data, dtype)?;
        let bits = l.stored(mask.id, bits, DataType::UInt1)?;
        return Ok(vec![l.op("constexpr_sparse_to_dense", [("nonzero_data", data.into()), ("mask", bits.into())])?]);
    }
    let (data, mask) = (l.value_of(values)?, l.value_of(mask)?);
    let shape = l.shape(mask)?;
    let count: usize = shape.iter().product();
    let flat = l.reshape(mask, &[count])?;
    let ones = l.cast(flat, DataType::Int32)?;
    let before = l.op("cumsum", [("x", ones.into()), ("axis", Constant::int32(0).into())])?;
    let place = l.bin("sub", before, Constant::int32(1))?;
    let place = l.bin("maximum", place, Constant::int32(0))?;
    let found = l.b.gather(&l.label, data, place, 0)?;
    let is_one = l.bin("greater", ones, Constant::int32(0))?;
    let zero = l.num(found, 0.0);
    let dense = l.select(is_one, found, zero)?;
    Ok(vec![l.reshape(dense, &shape)?])
}
