//! Resizing, cropping and resampling of images: the last two axes are height and width.

use super::infer::{InferContext, same, show, tensor};
use super::signature::{
    FLOATS, FP32, Literal, NUMBERS, OpDef, Param, UINT32, bool_const, float_const, int_const, str_const, x_of,
};
use crate::error::MilError;
use crate::op;
use crate::opset::Opset;
use crate::program::{DataType, Dim, Type};

const X: Param = x_of(FLOATS);
const SCALES: &[DataType] = &[DataType::Fp32, DataType::Int32];
const SCALE_HEIGHT: Param = Param::new("scale_factor_height", SCALES).of("U").constant().or(Literal::Int(1));
const SCALE_WIDTH: Param = Param::new("scale_factor_width", SCALES).of("U").constant().or(Literal::Int(1));
const ALIGN: Param = bool_const("align_corners").or(Literal::Bool(true));
const SAMPLING: Param = str_const("sampling_mode").or(Literal::Str("DEFAULT"));

const UPSAMPLE: OpDef = OpDef::new(
    op::UPSAMPLE_BILINEAR,
    "x enlarged by two factors, bilinearly",
    &[X, SCALE_HEIGHT, SCALE_WIDTH, ALIGN],
    upsample_rule,
);
const RESIZE_BILINEAR: &[Param] = &[
    X,
    int_const("target_size_height").or(Literal::Int(1)),
    int_const("target_size_width").or(Literal::Int(1)),
    SAMPLING,
];
const RESIZE_NEAREST: &[Param] = &[X, int_const("target_size_height"), int_const("target_size_width")];
const RESIZE: &[Param] = &[
    x_of(NUMBERS),
    Param::new("shape", &[DataType::Int32, DataType::Int16, DataType::UInt16, DataType::UInt32]).of("U"),
    Param::new("resized_dims", UINT32).constant(),
    str_const("interpolation_mode").or(Literal::Str("LINEAR")),
    SAMPLING,
];
const HEIGHT: Param = int_const("target_height").or(Literal::Int(1));
const WIDTH: Param = int_const("target_width").or(Literal::Int(1));
const NORMALIZED: Param = bool_const("normalized_coordinates").or(Literal::Bool(false));
const SPATIAL: Param = Param::new("spatial_scale", FP32).constant().or(Literal::Float(1.0));
const BOX_MODE: Param = str_const("box_coordinate_mode").or(Literal::Str("CORNERS_HEIGHT_FIRST"));
const PAD_VALUE: Param = float_const("pad_value").or(Literal::Float(0.0));
const ROI: Param = Param::new("roi", FLOATS).of("T");
const CROP_RESIZE: OpDef = OpDef::new(
    op::CROP_RESIZE,
    "boxes of x, each resized",
    &[X, ROI, HEIGHT, WIDTH, NORMALIZED, SPATIAL, BOX_MODE, SAMPLING],
    roi_rule,
);
const CROP_RESIZE_17: &[Param] = &[
    X,
    Param::new("boxes", &[DataType::Fp16, DataType::Fp32, DataType::UInt16]).of("BOX_T"),
    Param::new("box_indices", &[DataType::Int32, DataType::UInt16]).of("BOX_INDEX_T").optional(),
    HEIGHT,
    WIDTH,
    NORMALIZED,
    SPATIAL,
    BOX_MODE,
    SAMPLING,
    PAD_VALUE,
];
const AFFINE: &[Param] = &[
    X,
    Param::new("transform_matrix", FLOATS).of("T"),
    int_const("output_height"),
    int_const("output_width"),
    str_const("sampling_mode"),
    str_const("padding_mode"),
    float_const("padding_value"),
    str_const("coordinates_mode"),
    bool_const("align_corners"),
];

const fn resample(coordinates: &'static [DataType]) -> [Param; 7] {
    [
        X,
        Param::new("coordinates", coordinates).of("U"),
        str_const("sampling_mode"),
        str_const("padding_mode"),
        float_const("padding_value"),
        str_const("coordinates_mode"),
        bool_const("align_corners"),
    ]
}
const RESAMPLE: OpDef = OpDef::new(op::RESAMPLE, "x at given coordinates", &resample(SCALES), resample_rule);

pub(super) const OPS: &[OpDef] = &[
    UPSAMPLE,
    UPSAMPLE.again(Opset::IOS16, &[X, SCALE_HEIGHT, SCALE_WIDTH, ALIGN, bool_const("half_pixel_centers").optional()]),
    OpDef::new(
        op::UPSAMPLE_NEAREST_NEIGHBOR,
        "x enlarged by two factors, each element repeated",
        &[X, SCALE_HEIGHT, SCALE_WIDTH],
        upsample_rule,
    ),
    OpDef::new(op::RESIZE_BILINEAR, "x resized to a height and width, bilinearly", RESIZE_BILINEAR, target_rule),
    OpDef::new(
        op::RESIZE_NEAREST_NEIGHBOR,
        "x resized to a height and width by the nearest element",
        RESIZE_NEAREST,
        target_rule,
    ),
    OpDef::new(op::RESIZE, "x with its last axes resized", RESIZE, resize_rule).since(Opset::IOS17),
    OpDef::new(op::CROP, "x without margins", &[X, int_const("crop_height"), int_const("crop_width")], crop_rule),
    CROP_RESIZE,
    CROP_RESIZE.again(Opset::IOS16, &[X, ROI, HEIGHT, WIDTH, NORMALIZED, SPATIAL, BOX_MODE, SAMPLING, PAD_VALUE]),
    OpDef { infer: boxes_rule, ..CROP_RESIZE.again(Opset::IOS17, CROP_RESIZE_17) },
    OpDef::new(op::AFFINE, "x under an affine map for each image", AFFINE, affine_rule).since(Opset::IOS15),
    RESAMPLE.since(Opset::IOS15),
    RESAMPLE.again(Opset::IOS16, &resample(NUMBERS)),
    RESAMPLE.again(Opset::IOS17, &resample(super::tensor::SORTABLE)),
];

const SAMPLING_MODES: &[&str] =
    &["STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "UNALIGN_CORNERS", "DEFAULT", "OFFSET_CORNERS"];
const BOX_MODES: &[&str] =
    &["CORNERS_HEIGHT_FIRST", "CORNERS_WIDTH_FIRST", "CENTER_SIZE_HEIGHT_FIRST", "CENTER_SIZE_WIDTH_FIRST"];

/// The shape of x, of rank 3 or more, and the index of its height.
fn image(c: &InferContext<'_>) -> Result<(DataType, Vec<Dim>, usize), MilError> {
    let (dtype, x) = c.tensor("x")?;
    if x.len() < 3 {
        return Err(c.fail(format!("x {} must have at least rank 3", show(&x))));
    }
    let height = x.len() - 2;
    Ok((dtype, x, height))
}

fn upsample_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, mut x, height) = image(c)?;
    for (at, name) in [(height, "scale_factor_height"), (height + 1, "scale_factor_width")] {
        let Some(factor) = c.number_known(name)? else { return Err(c.fail(format!("`{name}` must be known"))) };
        x[at] = c.map(&x[at], |n| {
            let scaled = (factor * n as f64).floor();
            (scaled >= 0.0 && scaled <= f64::from(i32::MAX)).then_some(scaled as i64)
        })?;
    }
    Ok(tensor(dtype, x))
}

fn target_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, mut x, height) = image(c)?;
    if c.def.param("sampling_mode").is_some() {
        c.one_of("sampling_mode", SAMPLING_MODES)?;
    }
    x[height] = Dim::Fixed(c.count("target_size_height", 1)?);
    x[height + 1] = Dim::Fixed(c.count("target_size_width", 1)?);
    Ok(tensor(dtype, x))
}

/// The last `resized_dims` entries of `shape` are the last extents of the result; 0 keeps that of
/// x.
fn resize_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, mut x) = c.tensor("x")?;
    let (_, length) = c.ranked("shape", 1)?;
    let resized = c.count("resized_dims", 0)?;
    c.one_of("interpolation_mode", &["LINEAR", "NEAREST_NEIGHBOR"])?;
    c.one_of("sampling_mode", SAMPLING_MODES)?;
    let too_long = matches!(length[0], Dim::Fixed(n) if n < resized || n > x.len());
    if too_long || resized > x.len() {
        let reason = format!("{resized} resized axes, a shape of {} and x {} do not fit", show(&length), show(&x));
        return Err(c.fail(reason));
    }
    let target = c.ints_known("shape")?;
    let first = x.len() - resized;
    for i in 0..resized {
        let wanted = target.as_ref().map(|t| t.get(t.len().saturating_sub(resized) + i).copied().unwrap_or(-1));
        x[first + i] = match wanted {
            None => Dim::Unknown,
            Some(0) => continue,
            Some(n) => Dim::Fixed(usize::try_from(n).map_err(|_| c.fail(format!("`shape` holds the extent {n}")))?),
        };
    }
    Ok(tensor(dtype, x))
}

fn crop_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, mut x, height) = image(c)?;
    for (at, name) in [(height, "crop_height"), (height + 1, "crop_width")] {
        let margins = c.ints(name)?;
        let &[before, after] = margins.as_slice() else {
            return Err(c.fail(format!("`{name}` must hold two numbers")));
        };
        if before < 0 || after < 0 {
            return Err(c.fail(format!("`{name}` must hold numbers ≥ 0")));
        }
        x[at] = c.map(&x[at], |n| n.checked_sub(before)?.checked_sub(after))?;
    }
    Ok(tensor(dtype, x))
}

fn crop_modes(c: &InferContext<'_>) -> Result<[Dim; 2], MilError> {
    c.one_of("box_coordinate_mode", BOX_MODES)?;
    c.one_of("sampling_mode", SAMPLING_MODES)?;
    Ok([Dim::Fixed(c.count("target_height", 1)?), Dim::Fixed(c.count("target_width", 1)?)])
}

/// x `[B, C, H, W]`, roi `[N, 1, 4, 1, 1]` → `[N, B, C, h, w]`: every box of every image. A roi of
/// 5 numbers names its image and gives `[N, 1, C, h, w]`, as coremltools 9.0 describes it (its type
/// inference says `B` there too).
fn roi_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, x), (_, roi)) = (c.ranked("x", 4)?, c.ranked("roi", 5)?);
    let [height, width] = crop_modes(c)?;
    let one = Dim::Fixed(1);
    let images = match &roi[2] {
        Dim::Fixed(4) => x[0].clone(),
        Dim::Fixed(5) => one.clone(),
        // The same either way.
        Dim::Unknown if x[0] == one => one.clone(),
        Dim::Unknown => Dim::Unknown,
        _ => return Err(c.fail(format!("roi {} must be [N, 1, 4 or 5, 1, 1]", show(&roi)))),
    };
    if [1, 3, 4].into_iter().any(|axis| same(&roi[axis], &one).is_none()) {
        return Err(c.fail(format!("roi {} must be [N, 1, 4 or 5, 1, 1]", show(&roi))));
    }
    Ok(tensor(dtype, vec![roi[0].clone(), images, x[1].clone(), height, width]))
}

/// x `[B, C, H, W]`, boxes `[N, 4]`, box_indices `[N]` → `[N, C, h, w]`.
fn boxes_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, x), (of, boxes)) = (c.ranked("x", 4)?, c.ranked("boxes", 2)?);
    if same(&boxes[1], &Dim::Fixed(4)).is_none() {
        return Err(c.fail(format!("boxes {} must be [N, 4]", show(&boxes))));
    }
    if c.has("box_indices") {
        let (_, indices) = c.ranked("box_indices", 1)?;
        if same(&indices[0], &boxes[0]).is_none() {
            return Err(c.fail(format!(
                "box_indices {} must name an image for each of {}",
                show(&indices),
                show(&boxes)
            )));
        }
        let known = c.ints_known("box_indices")?.unwrap_or_default();
        if let (Some(most), Dim::Fixed(images)) = (known.iter().max(), &x[0])
            && *most >= *images as i64
        {
            return Err(c.fail(format!("box_indices name image {most} of {images}")));
        }
    } else if let (Dim::Fixed(boxes), Dim::Fixed(images)) = (&boxes[0], &x[0])
        && boxes > images
    {
        return Err(c.fail(format!("without box_indices, {boxes} boxes need as many images, not {images}")));
    }
    if c.flag("normalized_coordinates")? && !of.is_float() {
        return Err(c.fail(format!("normalized coordinates must be floats, not {of}")));
    }
    let [height, width] = crop_modes(c)?;
    Ok(tensor(dtype, vec![boxes[0].clone(), x[1].clone(), height, width]))
}

/// One row of six numbers for each image.
fn affine_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, x), (_, matrix)) = (c.ranked("x", 4)?, c.ranked("transform_matrix", 2)?);
    for (name, only) in [
        ("sampling_mode", "bilinear"),
        ("coordinates_mode", "normalized_minus_one_to_one"),
        ("padding_mode", "constant"),
    ] {
        let mode = c.text(name)?;
        if !mode.eq_ignore_ascii_case(only) {
            return Err(c.fail(format!("`{name}` is \"{mode}\", must be \"{only}\"")));
        }
    }
    if c.number_known("padding_value")?.is_some_and(|v| v != 0.0) {
        return Err(c.fail("padding_value must be 0"));
    }
    if same(&matrix[1], &Dim::Fixed(6)).is_none() {
        return Err(c.fail(format!("transform_matrix {} must have rows of 6", show(&matrix))));
    }
    let (height, width) = (c.count("output_height", 1)?, c.count("output_width", 1)?);
    Ok(tensor(dtype, vec![x[0].clone(), x[1].clone(), Dim::Fixed(height), Dim::Fixed(width)]))
}

/// x `[B, C, H, W]`, coordinates `[B, h, w, 2]` → `[B, C, h, w]`.
fn resample_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, x), (_, at)) = (c.ranked("x", 4)?, c.ranked("coordinates", 4)?);
    if same(&x[0], &at[0]).is_none() || same(&at[3], &Dim::Fixed(2)).is_none() {
        return Err(c.fail(format!("coordinates {} must be [batch, height, width, 2] for x {}", show(&at), show(&x))));
    }
    Ok(tensor(dtype, vec![x[0].clone(), x[1].clone(), at[1].clone(), at[2].clone()]))
}
