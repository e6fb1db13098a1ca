//! Affine quantization: `quantize`, `dequantize` and `constexpr_affine_dequantize` (attribute and
//! argument form).

use super::infer::{InferContext, same, show, tensor};
use super::signature::{BYTES, FLOATS, OpDef, Param, int_const, str_const};
use crate::error::MilError;
use crate::op;
use crate::opset::Opset;
use crate::program::{DataType, Dim, Type};

const QUANTIZE: &[Param] = &[
    Param::new("input", FLOATS).of("SrcT"),
    Param::new("zero_point", BYTES).of("DstT").constant().optional(),
    Param::new("scale", FLOATS).of("SrcT").constant(),
    int_const("axis").optional(),
    str_const("output_dtype"),
];
const DEQUANTIZE: &[Param] = &[
    Param::new("input", BYTES).of("SrcT"),
    Param::new("zero_point", BYTES).of("SrcT").constant().optional(),
    Param::new("scale", FLOATS).of("DstT").constant(),
    int_const("axis").optional(),
];
const CONSTEXPR: &[Param] = &[
    Param::new("quantized_data", BYTES).of("SrcT").constant(),
    Param::new("zero_point", &[DataType::Int8, DataType::UInt8, DataType::Fp32]).of("ZeroPointT").constant(),
    Param::new("scale", FLOATS).of("DstT").constant(),
    int_const("axis"),
];

pub(super) const OPS: &[OpDef] = &[
    OpDef::new(
        op::QUANTIZE,
        "input / scale, rounded, shifted by zero_point and held within bytes",
        QUANTIZE,
        quantize_rule,
    )
    .since(Opset::IOS17),
    OpDef::new(op::DEQUANTIZE, "(input - zero_point) · scale", DEQUANTIZE, dequantize_rule).since(Opset::IOS17),
    OpDef::new(
        op::CONSTEXPR_AFFINE_DEQUANTIZE,
        "the constant (quantized_data - zero_point) · scale",
        CONSTEXPR,
        constexpr_rule,
    )
    .since(Opset::IOS16),
];

/// `scale` and `zero_point` are scalars, or vectors of the extent of `axis`.
fn check_parameters(c: &InferContext<'_>, data: &[Dim], alone: bool) -> Result<(), MilError> {
    for name in ["scale", "zero_point"] {
        if !c.has(name) {
            continue;
        }
        let (_, shape) = c.tensor(name)?;
        match shape.as_slice() {
            [] => {}
            [extent] => {
                let axis = c.axis("axis", data.len())?;
                if same(extent, &data[axis]).is_none() {
                    return Err(c.fail(format!(
                        "`{name}` {} does not fit axis {axis} of {}",
                        show(&shape),
                        show(data)
                    )));
                }
            }
            _ => return Err(c.fail(format!("`{name}` {} must be a scalar or a vector", show(&shape)))),
        }
    }
    if alone && c.has("axis") && c.tensor("scale")?.1.is_empty() {
        return Err(c.fail("a scalar scale goes without axis"));
    }
    if alone && c.has("zero_point") {
        let ranks = (c.tensor("scale")?.1.len(), c.tensor("zero_point")?.1.len());
        if ranks.0 != ranks.1 {
            return Err(c.fail("scale and zero_point must both be scalars or both vectors"));
        }
    }
    Ok(())
}

fn quantize_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (_, shape) = c.tensor("input")?;
    check_parameters(c, &shape, true)?;
    if c.nonzero("scale") == Some(0) {
        return Err(c.fail("scale must not be 0"));
    }
    let name = c.one_of("output_dtype", &["int8", "uint8"])?;
    let dtype = if name == "int8" { DataType::Int8 } else { DataType::UInt8 };
    if c.has("zero_point") && c.tensor("zero_point")?.0 != dtype {
        return Err(c.fail(format!("zero_point must be of output_dtype {name}")));
    }
    Ok(tensor(dtype, shape))
}

fn dequantize_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((_, shape), (dtype, _)) = (c.tensor("input")?, c.tensor("scale")?);
    check_parameters(c, &shape, true)?;
    Ok(tensor(dtype, shape))
}

fn constexpr_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((_, shape), (dtype, _)) = (c.tensor("quantized_data")?, c.tensor("scale")?);
    c.axis("axis", shape.len())?;
    check_parameters(c, &shape, false)?;
    Ok(tensor(dtype, shape))
}
