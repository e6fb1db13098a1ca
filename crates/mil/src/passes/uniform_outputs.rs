//! `uniform_outputs`: pads all outputs of a function to the size of the largest.
//!
//! Some engines require that the surfaces of all outputs of a request have the same size (mil-text
//! §6; constraints C146). *Pattern*: a body with several outputs of different sizes; the smaller
//! ones are padded with zeros (false, for bools) at the end of one axis, axis 1 if that can be: the
//! channels. The size is the smallest that a whole number of slices along that axis reaches for
//! every output. *Holds*: all outputs are tensors of known extents and of at least one axis; the
//! common size is no more than four times the largest output, otherwise the pass fails. The
//! output's name moves to the padded value. *Numbers*: the elements that were there have the same
//! bits; the report has the original extents ([`PaddedOutput`]).

use super::cursor::Cursor;
use super::draft::{Draft, FunctionDraft};
use super::pass::{Context, Exactness, PaddedOutput, Pass};
use crate::error::MilError;
use crate::op;
use crate::opset::OpsetTag;
use crate::program::{BlockId, Constant, ValueId};
use crate::weights::Weights;

pub(super) const PASS: Pass = Pass {
    name: "uniform_outputs",
    doc: "pads the outputs of a function to one size",
    exactness: Exactness::Padded,
    repeats: false,
    run,
};

/// The most that the common size may be, as a multiple of the largest output.
const GROWTH: usize = 4;

/// One output: where it may grow.
struct Output {
    value: ValueId,
    shape: Vec<usize>,
    axis: usize,
    /// Bytes of one slice along the axis.
    slice: usize,
}

fn run(draft: &mut Draft, context: &mut Context<'_>) -> Result<usize, MilError> {
    let mut count = 0;
    let (functions, weights) = draft.parts();
    for function in functions {
        for (opset, body) in function.bodies() {
            let padded = pad_body(function, weights, &opset, body)?;
            count += padded.len();
            context.padded.extend(padded);
        }
    }
    Ok(count)
}

fn pad_body(
    function: &mut FunctionDraft,
    weights: &mut Weights,
    opset: &OpsetTag,
    body: BlockId,
) -> Result<Vec<PaddedOutput>, MilError> {
    let f = function.function();
    let fail = |why: String| MilError::shape("uniform_outputs", format!("function `{}`: {why}", f.name));
    let values = f.block(body).outputs.clone();
    let sizes: Option<Vec<usize>> = values.iter().map(|v| f.value(*v).ty.bytes()).collect();
    let sizes = sizes.ok_or_else(|| fail("an output is not a tensor of known extents".into()))?;
    let largest = sizes.iter().copied().max().unwrap_or(0);
    if sizes.iter().all(|&s| s == largest) {
        return Ok(Vec::new());
    }
    let mut outputs = Vec::new();
    for (value, size) in values.into_iter().zip(sizes) {
        let shape = f.value(value).ty.shape().unwrap_or_default();
        let axis = usize::from(shape.len() > 1);
        let slice = shape.get(axis).and_then(|n| size.checked_div(*n)).filter(|s| *s > 0);
        let slice = slice.ok_or_else(|| fail(format!("output `{}` has no axis to grow", f.value(value).name)))?;
        outputs.push(Output { value, shape, axis, slice });
    }
    let step = outputs.iter().try_fold(1usize, |step, o| lcm(step, o.slice));
    let size = step.and_then(|step| largest.div_ceil(step).checked_mul(step));
    let size = size.filter(|s| *s <= largest.saturating_mul(GROWTH)).ok_or_else(|| {
        fail(format!("no size of at most {GROWTH} times the largest output ({largest} bytes) suits every output"))
    })?;
    let mut padded = Vec::new();
    for (place, output) in outputs.iter().enumerate() {
        let extent = size / output.slice;
        if output.shape[output.axis] == extent {
            continue;
        }
        let mut to = output.shape.clone();
        to[output.axis] = extent;
        let name = function.function().value(output.value).name.clone();
        let new = pad(function, weights, body, output, extent)
            .ok_or_else(|| MilError::shape("pad", format!("output `{name}` cannot be padded in {opset}")))?;
        function.swap_names(output.value, new);
        function.set_output(body, place, new);
        let (function, opset) = (function.function().name.clone(), opset.to_string());
        padded.push(PaddedOutput { function, opset, output: name, axis: output.axis, from: output.shape.clone(), to });
    }
    Ok(padded)
}

fn pad(
    function: &mut FunctionDraft,
    weights: &mut Weights,
    body: BlockId,
    output: &Output,
    extent: usize,
) -> Option<ValueId> {
    let mut c = Cursor::new(function, weights, body, None);
    let more = i32::try_from(extent.checked_sub(output.shape[output.axis])?).ok()?;
    let mut amounts = vec![0; 2 * (output.shape.len() - output.axis)];
    *amounts.get_mut(1)? = more;
    let dtype = c.ty(output.value).dtype()?;
    let label = c.function().value(output.value).name.clone();
    let mut args = vec![
        ("x", output.value.into()),
        ("pad", Constant::int32s(&amounts).into()),
        ("mode", Constant::string("constant").into()),
    ];
    if let Some(zero) = Cursor::scalar_of(dtype, 0.0).filter(|_| dtype.is_float()) {
        args.push(("constant_val", zero.into()));
    }
    c.insert(op::PAD, &label, args)
}

fn lcm(a: usize, b: usize) -> Option<usize> {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).checked_mul(b)
}
