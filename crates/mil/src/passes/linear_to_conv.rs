//! `linear_to_conv`: rewrites `linear` as a 1×1 convolution, which engines run fastest.
//!
//! *Pattern*: `linear(x [B, S, D], w [O, D], b)` becomes a transpose to `[B, D, 1, S]`, a
//! convolution with w as `[O, D, 1, 1]`, and the way back; x of rank 1 or 2 gets leading axes of 1
//! for it. *Holds*: the elements are floats, weight and bias are plain constants (one record serves
//! both spellings). `transposes` and `reshapes` then remove what two neighbors undo. *Numbers*: the
//! same products are summed, perhaps in another order: fp32 accumulation moves the result by (D −
//! 1) · 2⁻²⁴ of Σ|w·x|.

use super::compute::reshaped;
use super::cursor::Cursor;
use super::draft::Draft;
use super::pass::{Context, Exactness, Pass};
use crate::error::MilError;
use crate::op;
use crate::program::{Arg, Constant};

pub(super) const PASS: Pass = Pass {
    name: "linear_to_conv",
    doc: "writes linear as a 1x1 convolution",
    exactness: Exactness::Rounding,
    repeats: false,
    run,
};

fn run(draft: &mut Draft, _: &mut Context<'_>) -> Result<usize, MilError> {
    Ok(draft.each(rule))
}

fn rule(c: &mut Cursor<'_>) -> Option<()> {
    let op = c.is(op::LINEAR)?.clone();
    let mut x = c.arg(&op, "x")?;
    let shape = c.shape(x)?;
    if !c.ty(x).dtype()?.is_float() {
        return None;
    }
    let weight = c.constant_arg(&op, "weight")?.clone();
    let [o, d] = weight.ty().shape()?[..] else { return None };
    let leading: Vec<i32> = (0..3usize.checked_sub(shape.len())? as i32).collect();
    let label = c.label();
    let name = |part: &str| format!("{label}_{part}");
    let ints = |v: &[i32]| Arg::Const(Constant::int32s(v));
    if !leading.is_empty() {
        x = c.insert(op::EXPAND_DIMS, &name("rows"), [("x", x.into()), ("axes", ints(&leading))])?;
    }
    let t = c.insert(op::TRANSPOSE, &name("t"), [("x", x.into()), ("perm", ints(&[0, 2, 1]))])?;
    let wide = c.insert(op::EXPAND_DIMS, &name("columns"), [("x", t.into()), ("axes", ints(&[2]))])?;
    let kernel = c.constant(&name("weight"), reshaped(&weight, &[o, d, 1, 1])?)?;
    let mut args = vec![
        ("dilations", ints(&[1, 1])),
        ("groups", Constant::int32(1).into()),
        ("pad", ints(&[0; 4])),
        ("pad_type", Constant::string("valid").into()),
        ("strides", ints(&[1, 1])),
        ("weight", kernel.into()),
        ("x", wide.into()),
    ];
    if let Some(bias) = op.arg("bias") {
        c.constant_arg(&op, "bias")?;
        args.push(("bias", bias.clone()));
    }
    let y = c.insert(op::CONV, &name("conv"), args)?;
    let y = c.insert(op::SQUEEZE, &name("flat"), [("x", y.into()), ("axes", ints(&[2]))])?;
    let mut y = c.insert(op::TRANSPOSE, &label, [("x", y.into()), ("perm", ints(&[0, 2, 1]))])?;
    if !leading.is_empty() {
        y = c.insert(op::SQUEEZE, &label, [("x", y.into()), ("axes", ints(&leading))])?;
    }
    c.replace(y)
}
