//! Convolutions, and the sliding window that pools share.

use super::infer::{InferContext, fits, same, show, show_ints, tensor};
use super::signature::{FLOATS, Literal, OpDef, Param, int_const, str_const, x_of};
use crate::error::MilError;
use crate::op;
use crate::opset::Opset;
use crate::program::{Dim, Type};

const STRIDES: Param = int_const("strides").optional();
const PAD_TYPE: Param = str_const("pad_type").or(Literal::Str("valid"));
const PAD: Param = int_const("pad").optional();
const DILATIONS: Param = int_const("dilations").optional();
const GROUPS: Param = int_const("groups").or(Literal::Int(1));
const OUTPUT_SHAPE: Param = int_const("output_shape").optional();

const fn weight(domain: &'static str) -> Param {
    Param::new("weight", FLOATS).of(domain)
}

const fn bias(domain: &'static str) -> Param {
    Param::new("bias", FLOATS).of(domain).optional()
}

const CONV: OpDef = OpDef::new(
    op::CONV,
    "a convolution over one to three spatial axes",
    &[x_of(FLOATS), weight("T"), bias("T").constant(), STRIDES, PAD_TYPE, PAD, DILATIONS, GROUPS],
    conv_rule,
);
const CONV_17: &[Param] = &[x_of(FLOATS), weight("U"), bias("U"), STRIDES, PAD_TYPE, PAD, DILATIONS, GROUPS];
const TRANSPOSE: OpDef = OpDef::new(
    op::CONV_TRANSPOSE,
    "the transpose of a convolution",
    &[
        x_of(FLOATS),
        weight("T").constant(),
        bias("T").constant(),
        PAD,
        OUTPUT_SHAPE,
        PAD_TYPE,
        STRIDES,
        DILATIONS,
        GROUPS,
    ],
    transpose_rule,
);
const TRANSPOSE_17: &[Param] =
    &[x_of(FLOATS), weight("U"), bias("U"), PAD, OUTPUT_SHAPE, PAD_TYPE, STRIDES, DILATIONS, GROUPS];

pub(super) const OPS: &[OpDef] = &[
    CONV,
    CONV.again(Opset::IOS16, CONV.params),
    CONV.again(Opset::IOS17, CONV_17),
    TRANSPOSE,
    TRANSPOSE.again(Opset::IOS17, TRANSPOSE_17),
];

/// x `[N, C, spatial…]`, weight `[out, C/groups, kernel…]`, one to three spatial axes.
fn conv_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, x), (_, weight)) = (c.tensor("x")?, c.tensor("weight")?);
    let spatial = x.len().saturating_sub(2);
    if !(1..=3).contains(&spatial) || weight.len() != x.len() {
        return Err(c.fail(format!("x {} and weight {} must both have rank 3 to 5", show(&x), show(&weight))));
    }
    let groups = c.int("groups")?;
    let group_count =
        usize::try_from(groups).ok().filter(|&g| g > 0).ok_or_else(|| c.fail("groups must be positive"))?;
    if let (Dim::Fixed(channels), Dim::Fixed(per_group)) = (&x[1], &weight[1])
        && per_group.checked_mul(group_count) != Some(*channels)
    {
        return Err(c.fail(format!("x has {channels} channels, weight {per_group} × {groups} groups")));
    }
    if let Dim::Fixed(out) = weight[0] {
        if out % group_count != 0 {
            return Err(c.fail(format!("{out} output channels do not divide into {groups} groups")));
        }
        if c.has("bias") {
            let (_, bias) = c.tensor("bias")?;
            if bias != [Dim::Fixed(out)] {
                return Err(c.fail(format!("bias {} must be [{out}]", show(&bias))));
            }
        }
    }
    let dilated = c.ints_if("dilations")?.is_some_and(|d| d.iter().any(|&d| d > 1));
    if dilated && !c.is_constant("weight") {
        return Err(c.fail("a weight known at run time only goes without dilations"));
    }
    let mut shape = vec![x[0].clone(), weight[0].clone()];
    shape.extend(window(c, &x[2..], &weight[2..], false)?);
    Ok(tensor(dtype, shape))
}

/// x `[N, C, spatial…]`, weight `[C, out/groups, kernel…]`.
fn transpose_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, x), (_, weight)) = (c.tensor("x")?, c.tensor("weight")?);
    let spatial = x.len().saturating_sub(2);
    if !(1..=3).contains(&spatial) || weight.len() != x.len() || same(&x[1], &weight[0]).is_none() {
        return Err(c.fail(format!("x {} and weight {} do not fit", show(&x), show(&weight))));
    }
    let groups = c.count("groups", 1)? as i64;
    let out = c.map(&weight[1], |n| n.checked_mul(groups))?;
    if matches!(x[1], Dim::Fixed(n) if n as i64 % groups != 0) {
        return Err(c.fail(format!("the channels of x {} do not divide into {groups} groups", show(&x))));
    }
    if c.has("bias") {
        let (_, bias) = c.ranked("bias", 1)?;
        if same(&bias[0], &out).is_none() {
            return Err(c.fail(format!(
                "bias {} must have one number for each of {} channels",
                show(&bias),
                show(&[out])
            )));
        }
    }
    let mut shape = vec![x[0].clone(), out];
    let strides = spatial_ints(c, "strides", spatial, 1, 1)?;
    let dilations = spatial_ints(c, "dilations", spatial, 1, 1)?;
    let pad_type = c.one_of("pad_type", &["valid", "same", "custom"])?;
    let pad = match pad_type.as_str() {
        "custom" => spatial_ints(c, "pad", 2 * spatial, 0, 0)?,
        _ => vec![0; 2 * spatial],
    };
    if let Some(wanted) = c.ints_if("output_shape")? {
        let wanted: Option<Vec<Dim>> = wanted.iter().map(|&n| usize::try_from(n).ok().map(Dim::Fixed)).collect();
        return match wanted {
            Some(wanted) if wanted.len() == x.len() && fits(&wanted[..2], &shape) => Ok(tensor(dtype, wanted)),
            _ => Err(c.fail(format!(
                "output_shape must be a shape of rank {} that begins with {}",
                x.len(),
                show(&shape)
            ))),
        };
    }
    for i in 0..spatial {
        let (stride, dilation) = (strides[i], dilations[i]);
        if pad_type == "same" {
            shape.push(c.map(&x[2 + i], |n| n.checked_mul(stride))?);
            continue;
        }
        let Dim::Fixed(kernel) = weight[2 + i] else {
            shape.push(Dim::Unknown);
            continue;
        };
        shape.push(c.map(&x[2 + i], |n| {
            let reach = (kernel as i64).checked_sub(1)?.checked_mul(dilation)?.checked_add(1)?;
            let full = n.checked_sub(1)?.checked_mul(stride)?.checked_add(reach)?;
            full.checked_sub(pad[2 * i])?.checked_sub(pad[2 * i + 1])
        })?);
    }
    Ok(tensor(dtype, shape))
}

fn spatial_ints(
    c: &InferContext<'_>,
    name: &str,
    count: usize,
    default: i64,
    least: i64,
) -> Result<Vec<i64>, MilError> {
    let known = if c.def.param(name).is_some() { c.ints_if(name)? } else { None };
    let values = known.unwrap_or_else(|| vec![default; count]);
    if values.len() != count || values.iter().any(|&v| v < least || v > i64::from(i32::MAX)) {
        return Err(c.fail(format!("`{name}` must be {count} values of at least {least}, is {}", show_ints(&values))));
    }
    Ok(values)
}

/// The extents after sliding a kernel over the spatial axes with `strides`, `dilations`, `pad_type`
/// and `pad`.
pub(super) fn window(c: &InferContext<'_>, x: &[Dim], kernel: &[Dim], ceil: bool) -> Result<Vec<Dim>, MilError> {
    let n = x.len();
    let strides = spatial_ints(c, "strides", n, 1, 1)?;
    let dilations = spatial_ints(c, "dilations", n, 1, 1)?;
    let pad_types = ["valid", "same", "custom", "same_lower"];
    // `same_lower` exists from iOS 16 on.
    let known = if c.def.since < Opset::IOS16 { &pad_types[..3] } else { &pad_types[..] };
    let pad_type = c.one_of("pad_type", known)?;
    let pad = match pad_type.as_str() {
        "custom" => spatial_ints(c, "pad", 2 * n, 0, 0)?,
        _ => vec![0; 2 * n],
    };
    let mut shape = Vec::with_capacity(n);
    for i in 0..n {
        let (Dim::Fixed(extent), Dim::Fixed(k)) = (&x[i], &kernel[i]) else {
            shape.push(Dim::Unknown);
            continue;
        };
        let (extent, k, stride) = (*extent as i64, *k as i64, strides[i]);
        if pad_type.starts_with("same") {
            shape.push(Dim::Fixed(((extent + stride - 1) / stride) as usize));
            continue;
        }
        let reach = (k - 1).saturating_mul(dilations[i]) + 1;
        let free = extent + pad[2 * i] + pad[2 * i + 1] - reach;
        if free < 0 || k < 1 {
            return Err(
                c.fail(format!("a kernel that reaches {reach} does not fit an extent of {extent} with its padding"))
            );
        }
        let mut steps = if ceil { (free + stride - 1) / stride } else { free / stride };
        // A last window that would start in the padding at the end is dropped.
        let padding = pad[2 * i] + pad[2 * i + 1];
        if ceil && padding > 0 && 2 * (steps * stride) >= 2 * extent + padding {
            steps -= 1;
        }
        shape.push(Dim::Fixed((steps + 1) as usize));
    }
    Ok(shape)
}
