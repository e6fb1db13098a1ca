//! Quantization.

use ferrane_mil::{Arg, Constant, DataType, Type, ValueId};

use super::lower::{Built, Lower, one, unmapped};

type Results = Built<Vec<Option<ValueId>>>;

/// The smallest and the largest value of an integer type.
pub(super) fn range(bits: u32, signed: bool) -> (f64, f64) {
    let span = 2f64.powi(bits as i32);
    if signed { (-span / 2.0, span / 2.0 - 1.0) } else { (0.0, span - 1.0) }
}

/// A scale or zero point as fp32 of a shape that broadcasts with x: scalar, along `axis`, or
/// repeated in blocks.
fn beside(l: &mut Lower<'_>, i: usize, x: &[usize]) -> Built {
    let p = l.x(i)?;
    let p = l.cast(p, DataType::Fp32)?;
    let shape = l.shape(p)?;
    let block = l.int("block_size", 0) as usize;
    if shape.iter().product::<usize>() == 1 {
        return l.reshape(p, &[]);
    }
    let axis = l.axis(1, x.len())?;
    if shape.len() == 1 && block == 0 {
        let mut wide = vec![1; x.len()];
        wide[axis] = shape[0];
        return l.reshape(p, &wide);
    }
    if shape == x {
        return Ok(p);
    }
    // Blockwise: each value applies to `block` elements along the axis.
    let mut split = shape.clone();
    split.insert(axis + 1, 1);
    let reps: Vec<i32> = (0..split.len()).map(|i| if i == axis + 1 { block as i32 } else { 1 }).collect();
    let p = l.reshape(p, &split)?;
    let p = l.b.tile("blocks", p, &reps)?;
    let mut wide = shape;
    wide[axis] *= block;
    let p = l.reshape(p, &wide)?;
    l.slice(p, axis, 0, x[axis])
}

/// The name of the integer type to store, and whether MIL's own ops support it.
fn stored(l: &Lower<'_>) -> Built<(String, bool)> {
    let name = if l.has(2) {
        l.known(2)?.element.name.clone()
    } else {
        match l.int("output_dtype", 0) {
            0 => "UINT8".to_string(),
            number => super::Element::of_number(number).name,
        }
    };
    let native = matches!(name.as_str(), "INT8" | "UINT8");
    Ok((name, native))
}

fn parameter(l: &Lower<'_>, i: usize, dtype: DataType) -> Built<Constant> {
    let t = l.known(i)?;
    let bytes: Vec<u8> = match dtype {
        DataType::Fp32 => t.values.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect(),
        DataType::Fp16 => t.values.iter().flat_map(|&v| ferrane_host::f16::from_f64(v).to_le_bytes()).collect(),
        _ => t.values.iter().map(|&v| v as i64 as u8).collect(),
    };
    let shape: &[usize] = if t.values.len() == 1 { &[] } else { &t.shape };
    Ok(Constant::raw(dtype, shape, &bytes))
}

pub(super) fn quantize(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.shape(x)?;
    let (name, native) = stored(l)?;
    let element = super::Element { name: name.clone() };
    let Some((bits, signed)) = element.integer() else { return unmapped(format!("MIL quantizes to no {name}")) };
    let scale_rank = l.known(1)?.shape.len();
    if native && scale_rank <= 1 && l.is_float(x) {
        let dtype = if signed { DataType::Int8 } else { DataType::UInt8 };
        let mut args: Vec<(&str, Arg)> = vec![
            ("input", x.into()),
            ("scale", parameter(l, 1, l.dtype(x))?.into()),
            ("output_dtype", Constant::string(if signed { "int8" } else { "uint8" }).into()),
        ];
        if l.has(2) {
            args.push(("zero_point", parameter(l, 2, dtype)?.into()));
        }
        if l.known(1)?.values.len() > 1 {
            args.push(("axis", Constant::int32(l.axis(1, shape.len())? as i32).into()));
        }
        return one(l.b.op("quantize", "quantize", args)?);
    }
    let x = l.cast(x, DataType::Fp32)?;
    let scale = beside(l, 1, &shape)?;
    let scaled = l.bin("real_div", x, scale)?;
    let mut y = l.un("round", scaled)?;
    if l.has(2) {
        let zero = beside(l, 2, &shape)?;
        y = l.bin("add", y, zero)?;
    }
    let (low, high) = range(bits, signed);
    let above = l.bin("maximum", y, Constant::fp32(low as f32))?;
    let inside = l.bin("minimum", above, Constant::fp32(high as f32))?;
    one(l.cast(inside, DataType::Int32)?)
}

pub(super) fn dequantize(l: &mut Lower<'_>) -> Results {
    let tensor = l.known(0)?;
    let scale = l.known(1)?;
    let Some(float) = scale.element.mil().filter(|d| d.is_float()) else {
        return unmapped(format!("scales of type {}", scale.element.name));
    };
    let native = matches!(tensor.element.name.as_str(), "INT8" | "UINT8") && scale.shape.len() <= 1;
    if native {
        let dtype = if tensor.element.name == "INT8" { DataType::Int8 } else { DataType::UInt8 };
        let bytes: Vec<u8> = tensor.values.iter().map(|&v| v as i64 as u8).collect();
        let x = l.given(Type::tensor(dtype, &tensor.shape), Constant::raw(dtype, &tensor.shape, &bytes))?;
        let mut args: Vec<(&str, Arg)> = vec![("input", x.into()), ("scale", parameter(l, 1, float)?.into())];
        if l.has(2) {
            args.push(("zero_point", parameter(l, 2, dtype)?.into()));
        }
        if scale.values.len() > 1 {
            args.push(("axis", Constant::int32(l.axis(1, tensor.shape.len())? as i32).into()));
        }
        return one(l.b.op("dequantize", "dequantize", args)?);
    }
    let mut x = l.x(0)?;
    let shape = l.shape(x)?;
    x = l.cast(x, DataType::Fp32)?;
    if l.has(2) {
        let zero = beside(l, 2, &shape)?;
        x = l.bin("sub", x, zero)?;
    }
    let scale = beside(l, 1, &shape)?;
    let y = l.bin("mul", x, scale)?;
    one(l.cast(y, float)?)
}

/// Computes scale and zero point from the extremes of x and 0, then quantizes.
pub(super) fn dynamic(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
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
