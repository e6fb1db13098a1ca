//! Quantization.

use ferrane_mil::emit::Emit;
use ferrane_mil::{Arg, Constant, DataType, Opset, ValueId};

use super::state::{Built, Lower, Stop, one, unmapped};
use crate::element::ElementType;

type Results = Built<Vec<Option<ValueId>>>;

/// A scale or zero point as fp32 of a shape that broadcasts with x: scalar, along `axis`, or
/// repeated in blocks.
fn beside(l: &mut Lower<'_>, i: usize, x: &[usize]) -> Built {
    let p = l.x(i)?;
    let p = l.cast(p, DataType::Fp32)?;
    let shape = l.shape(p)?;
    if shape.iter().product::<usize>() == 1 {
        return l.reshape(p, &[]);
    }
    let axis = l.axis(1, x.len())?;
    if shape.len() == 1 && (x.len() > 1 || shape[0] == x[0]) {
        let mut wide = vec![1; x.len()];
        wide[axis] = shape[0];
        return l.reshape(p, &wide);
    }
    if shape == x {
        return Ok(p);
    }
    // Blockwise: each value applies to `block` elements along the axis.
    if shape.len() != x.len() || shape[axis] == 0 {
        return Err(Stop::Rejected(format!("scales of shape {shape:?} for {x:?}")));
    }
    let block = block_size(l, x[axis], shape[axis])?;
    let mut split = shape.clone();
    split.insert(axis + 1, 1);
    let reps: Vec<i32> = (0..split.len()).map(|i| if i == axis + 1 { block as i32 } else { 1 }).collect();
    let p = l.reshape(p, &split)?;
    let p = l.b.tile(&l.label, p, &reps)?;
    let mut wide = shape;
    wide[axis] *= block;
    let p = l.reshape(p, &wide)?;
    l.slice(p, axis, 0, x[axis])
}

/// The number of elements along the axis that share a scale.
fn block_size(l: &Lower<'_>, extent: usize, scales: usize) -> Built<usize> {
    let block = match l.number("block_size", 0, 0)? {
        0 => extent.div_ceil(scales.max(1)),
        block => block,
    };
    match extent.div_ceil(block.max(1)) == scales {
        true => Ok(block),
        false => Err(Stop::Rejected(format!("{scales} scales for blocks of {block} of {extent} elements"))),
    }
}

/// The 8-bit type of MIL for an element type.
fn byte(element: ElementType) -> Option<DataType> {
    match element {
        ElementType::Int8 => Some(DataType::Int8),
        ElementType::UInt8 => Some(DataType::UInt8),
        _ => None,
    }
}

/// Input `i`, a known scale or zero point, as a constant: a scalar if it has one element.
fn parameter(l: &Lower<'_>, i: usize, dtype: DataType) -> Built<Constant> {
    let t = l.known(i)?;
    let shape: &[usize] = if t.len() == 1 { &[] } else { t.shape() };
    l.constant(dtype, shape, t.values())
}

/// True if MIL's own ops take the scale and the zero point: known, one element or a vector.
fn plain(l: &Lower<'_>) -> bool {
    let known = |i: usize| l.known(i).is_ok_and(|t| t.shape().len() <= 1 && !t.values().contains(&0.0) || i == 2);
    let same = !l.has(2) || l.known(2).is_ok_and(|z| l.known(1).is_ok_and(|s| s.len() == z.len()));
    known(1) && same && l.target >= Opset::IOS17
}

/// The element type to store.
fn stored(l: &Lower<'_>) -> Built<ElementType> {
    if l.has(2) {
        return l.element(2);
    }
    Ok(match l.int("output_dtype", 0) {
        0 => ElementType::UInt8,
        number => ElementType::from_number(number as i32),
    })
}

pub(super) fn quantize(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.shape(x)?;
    let element = stored(l)?;
    let Some((low, high)) = element.range() else { return unmapped(format!("MIL quantizes to no {element}")) };
    l.elements = Some(element);
    if let (Some(dtype), true, true) = (byte(element), plain(l), l.is_float(x)) {
        let mut args: Vec<(&str, Arg)> = vec![
            ("input", x.into()),
            ("scale", parameter(l, 1, l.dtype(x))?.into()),
            ("output_dtype", Constant::string(dtype.name()).into()),
        ];
        if l.has(2) {
            args.push(("zero_point", parameter(l, 2, dtype)?.into()));
        }
        if l.known(1)?.len() > 1 {
            args.push(("axis", Constant::int32(l.axis(1, shape.len())? as i32).into()));
        }
        return one(l.build("quantize", args)?);
    }
    let x = l.cast(x, DataType::Fp32)?;
    let scale = beside(l, 1, &shape)?;
    let scaled = l.bin("real_div", x, scale)?;
    let mut y = l.un("round", scaled)?;
    if l.has(2) {
        let zero = beside(l, 2, &shape)?;
        y = l.bin("add", y, zero)?;
    }
    let above = l.bin("maximum", y, Constant::fp32(low as f32))?;
    let inside = l.bin("minimum", above, Constant::fp32(high as f32))?;
    one(l.cast(inside, DataType::Int32)?)
}

pub(super) fn dequantize(l: &mut Lower<'_>) -> Results {
    let (element, scale) = (l.element(0)?, l.element(1)?);
    let wanted = match l.int("output_dtype", 0) {
        0 => scale,
        number => ElementType::from_number(number as i32),
    };
    let float = l.mil(wanted)?;
    if !float.is_float() {
        return unmapped(format!("MIL dequantizes to no {wanted}"));
    }
    let constant = l.is_known(0) && l.is_known(1) && (!l.has(2) || l.is_known(2));
    if constant && let Some(y) = compressed(l, element, float)? {
        return one(y);
    }
    let mut x = l.narrow(0)?;
    let shape = l.shape(x)?;
    if let (Some(dtype), true) = (byte(element), plain(l))
        && l.dtype(x) == dtype
        && l.mil(scale)? == float
    {
        let mut args: Vec<(&str, Arg)> = vec![("input", x.into()), ("scale", parameter(l, 1, float)?.into())];
        if l.has(2) {
            args.push(("zero_point", parameter(l, 2, dtype)?.into()));
        }
        if l.known(1)?.len() > 1 {
            args.push(("axis", Constant::int32(l.axis(1, shape.len())? as i32).into()));
        }
        return one(l.build("dequantize", args)?);
    }
    x = l.cast(x, DataType::Fp32)?;
    if l.has(2) {
        let zero = beside(l, 2, &shape)?;
        x = l.bin("sub", x, zero)?;
    }
    let scale = beside(l, 1, &shape)?;
    let y = l.bin("mul", x, scale)?;
    one(l.cast(y, float)?)
}

/// A constant that stays compressed in the program; `None` if no `constexpr` op says what it is.
fn compressed(l: &mut Lower<'_>, element: ElementType, float: DataType) -> Built<Option<ValueId>> {
    let (data, scale) = (l.known(0)?, l.known(1)?);
    let rank = data.shape().len();
    let dtype = match element {
        ElementType::Int8 => DataType::Int8,
        ElementType::UInt8 => DataType::UInt8,
        ElementType::Int4 => DataType::Int4,
        ElementType::UInt4 => DataType::UInt4,
        _ => return Ok(None),
    };
    if rank == 0 || data.len() < super::state::STORED_FROM || !l.target_has_blocks() && byte(element).is_none() {
        return Ok(None);
    }
    // The scale with the rank of the data, one for each block.
    let mut blocks = vec![1; rank];
    if scale.len() > 1 {
        let axis = l.axis(1, rank)?;
        match scale.shape() {
            [n] if rank > 1 || *n == data.shape()[0] => blocks[axis] = *n,
            shape if shape.len() == rank => blocks = shape.to_vec(),
            shape => return Err(Stop::Rejected(format!("scales of shape {shape:?} for {:?}", data.shape()))),
        }
    }
    let divides = data.shape().iter().zip(&blocks).all(|(&n, &b)| b > 0 && n.is_multiple_of(b));
    if !divides || l.has(2) && l.known(2)?.len() != scale.len() {
        return Ok(None);
    }
    if l.target_has_blocks() {
        let data = l.typed(0, dtype)?;
        let mut args: Vec<(&str, Arg)> =
            vec![("data", data.into()), ("scale", l.constant(float, &blocks, scale.values())?.into())];
        if l.has(2) {
            let zero = l.known(2)?;
            let offset = match dtype {
                DataType::Int8 | DataType::UInt8 => l.constant(dtype, &blocks, zero.values())?,
                _ => l.constant(float, &blocks, zero.values())?,
            };
            args.push(("offset", offset.into()));
        }
        return l.build("constexpr_blockwise_shift_scale", args).map(Some);
    }
    let along: Vec<usize> = (0..rank).filter(|&a| blocks[a] > 1).collect();
    if l.target < Opset::IOS16 || along.len() > 1 || along.iter().any(|&a| blocks[a] != data.shape()[a]) {
        return Ok(None);
    }
    let axis = along.first().copied().unwrap_or(0);
    let zero = match l.has(2) {
        true => parameter(l, 2, dtype)?,
        false => {
            l.constant(dtype, if along.is_empty() { &[] } else { &blocks[axis..=axis] }, &vec![0.0; scale.len()])?
        }
    };
    let args = vec![
        ("quantized_data", l.typed(0, dtype)?.into()),
        ("zero_point", zero.into()),
        ("scale", parameter(l, 1, float)?.into()),
        ("axis", Constant::int32(axis as i32).into()),
    ];
    l.build("constexpr_affine_dequantize", args).map(Some)
}

/// Computes scale and zero point from the extremes of x and 0, then quantizes.
pub(super) fn dynamic(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let x = l.cast(x, DataType::Fp32)?;
    l.elements = Some(ElementType::UInt8);
    let axes: Vec<usize> = (0..l.shape(x)?.len()).collect();
    let mut edge = |op: &str, other: &str| -> Built {
        let v = l.reduce(op, x, &axes, false)?;
        l.bin(other, v, Constant::fp32(0.0))
    };
    let (low, high) = (edge("reduce_min", "minimum")?, edge("reduce_max", "maximum")?);
    let span = l.bin("sub", high, low)?;
    let scale = l.bin("real_div", span, Constant::fp32(255.0))?;
    let ratio = l.bin("real_div", low, scale)?;
    let point = l.bin("sub", Constant::fp32(0.0), ratio)?;
    let clamp = |l: &mut Lower<'_>, v: ValueId| -> Built {
        let above = l.bin("maximum", v, Constant::fp32(0.0))?;
        l.bin("minimum", above, Constant::fp32(255.0))
    };
    let point = clamp(l, point)?;
    let point = l.un("round", point)?;
    let scaled = l.bin("real_div", x, scale)?;
    let rounded = l.un("round", scaled)?;
    let moved = l.bin("add", rounded, point)?;
    let inside = clamp(l, moved)?;
    let (y, zero) = (l.cast(inside, DataType::Int32)?, l.cast(point, DataType::Int32)?);
    Ok(vec![Some(y), Some(scale), Some(zero)])
}
