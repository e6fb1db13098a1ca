//! Lowers each op: to a view if strides can express it, else to a copy.

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_mil::{DataType, Op, ValueDef, ValueId};

use super::args::Args;
use super::build::Lowering;
use super::elementwise::is_elementwise;
use crate::ir::{Nest, Reduce, Reduction, StepKind, View};
use crate::refusal::refusal;
use crate::tensor_ops::tensor_op;

/// The most positions along an axis of a `pad` that mirrors or repeats: the plan lists the source
/// of each.
const MAX_MAP: usize = 1 << 24;

/// A view of some of the axes.
pub(super) fn select(view: &View, axes: &[usize]) -> View {
    View {
        shape: axes.iter().map(|&a| view.shape[a]).collect(),
        strides: axes.iter().map(|&a| view.strides[a]).collect(),
        ..view.clone()
    }
}

/// The function that lowers one op.
type Lower = for<'a> fn(&mut Lowering<'a>, &'a Op, &Args<'a>) -> Result<()>;

/// The ops that a plan has steps or views for, except element-wise ops and reductions.
const OPS: &[(&str, Lower)] = &[
    ("identity", |l, op, args| {
        let x = l.operand(args, op, "x")?;
        l.alias(op.outputs[0], &x, Some(x.clone()))
    }),
    ("reshape", |l, op, args| l.reshape(op, args)),
    ("squeeze", |l, op, args| l.reshape(op, args)),
    ("expand_dims", |l, op, args| l.reshape(op, args)),
    ("transpose", |l, op, args| {
        let x = l.operand(args, op, "x")?;
        let perm = args.axes(&args.ints("perm")?, x.shape.len())?;
        let view = x.permuted(&perm);
        l.alias(op.outputs[0], &view, Some(view.clone()))
    }),
    ("slice_by_size", |l, op, args| l.slice_by_size(op, args)),
    ("slice_by_index", |l, op, args| l.slice_by_index(op, args)),
    ("split", |l, op, args| l.split(op, args)),
    ("reverse", |l, op, args| {
        let mut view = l.operand(args, op, "x")?;
        let axes = match args.ints_if("axes")? {
            Some(axes) => args.axes(&axes, view.shape.len())?,
            None => (0..view.shape.len()).collect(),
        };
        for axis in axes {
            view = view.sliced(axis, view.shape[axis] - 1, -1, view.shape[axis]);
        }
        l.alias(op.outputs[0], &view, Some(view.clone()))
    }),
    ("concat", |l, op, args| l.concat(op, args)),
    ("stack", |l, op, args| l.stack(op, args)),
    ("tile", |l, op, args| l.tile(op, args)),
    ("pad", |l, op, args| l.pad(op, args)),
    ("gather", |l, op, args| l.gather(op, args)),
    ("gather_along_axis", |l, op, args| {
        let (x, indices) = (l.operand(args, op, "x")?, l.operand(args, op, "indices")?);
        let axis = args.axis("axis", x.shape.len())?;
        l.plain(op.outputs[0], vec![x, indices], StepKind::GatherAlong { axis })
    }),
    ("constexpr_affine_dequantize", |l, op, args| l.constexpr(op, args)),
    ("constexpr_blockwise_shift_scale", |l, op, args| l.constexpr(op, args)),
    ("constexpr_lut_to_dense", |l, op, args| l.constexpr(op, args)),
    ("matmul", |l, op, args| l.matmul(op, args)),
    ("linear", |l, op, args| l.linear(op, args)),
    ("conv", |l, op, args| l.conv(op, args)),
    ("scaled_dot_product_attention", |l, op, args| l.attention(op, args)),
    ("softmax", |l, op, args| {
        let x = l.operand(args, op, "x")?;
        let axis = args.axis("axis", x.shape.len())?;
        let y = op.outputs[0];
        let to = l.result(y)?;
        let to = l.apart(&to, std::slice::from_ref(&x));
        let nest = Nest::new(&to.shape, &[&to, &x], 1, Some(axis));
        let round = l.policy.rounds(l.dtype(y)?);
        l.push(StepKind::Softmax { nest, round }, vec![x], vec![to.clone()])?;
        l.settle(y, to)
    }),
    ("layer_norm", |l, op, args| l.norm(op, args)),
    ("instance_norm", |l, op, args| l.norm(op, args)),
    ("l2_norm", |l, op, args| l.norm(op, args)),
    ("max_pool", |l, op, args| l.pool(op, args)),
    ("avg_pool", |l, op, args| l.pool(op, args)),
    ("l2_pool", |l, op, args| l.pool(op, args)),
    ("read_state", |l, op, args| l.read_state(op, args)),
    ("coreml_update_state", |l, op, args| l.update_state(op, args, "value")),
    ("write_state", |l, op, args| l.update_state(op, args, "data")),
];

/// How a plan lowers an op. `None` for ops that it has no steps for.
fn lowering(name: &str) -> Option<Lower> {
    if let Some((_, lower)) = OPS.iter().find(|(n, _)| *n == name) {
        return Some(*lower);
    }
    if is_elementwise(name) {
        return Some(|l, op, args| l.elementwise(op, args));
    }
    reduction(name).map(|_| -> Lower { |l, op, args| l.reduce(op, args) })
}

/// True for ops that a plan has steps for.
pub(crate) fn has_steps(name: &str) -> bool {
    lowering(name).is_some()
}

impl<'a> Lowering<'a> {
    /// Lowers one op: by steps of the plan, else as a tensor op.
    pub(super) fn lower(&mut self, op: &'a Op) -> Result<()> {
        let args = self.args(op)?;
        // Tensor ops that most programs use in a form which steps or views express.
        let lowered = match op.name.as_str() {
            "conv_transpose" => self.conv_transpose(op, &args)?,
            _ => self.pixels(op, &args)?,
        };
        if lowered {
            return Ok(());
        }
        match (lowering(&op.name), tensor_op(&op.name)) {
            (Some(lower), _) => lower(self, op, &args),
            (None, Some(routine)) => self.tensor_op(op, &args, routine),
            (None, None) => Err(refusal(&op.name)),
        }
    }

    fn reshape(&mut self, op: &'a Op, args: &Args<'a>) -> Result<()> {
        let x = self.operand(args, op, "x")?;
        let view = x.reshaped(&self.shape(op.outputs[0])?);
        self.alias(op.outputs[0], &x, view)
    }

    /// A step that writes the result as a whole.
    pub(super) fn plain(&mut self, y: ValueId, reads: Vec<View>, kind: StepKind) -> Result<()> {
        let to = self.result(y)?;
        let to = self.apart(&to, &reads);
        self.push(kind, reads, vec![to.clone()])?;
        self.settle(y, to)
    }

    fn slice_by_size(&mut self, op: &'a Op, args: &Args<'a>) -> Result<()> {
        let y = op.outputs[0];
        for name in ["begin", "size"] {
            if args.constant(name).is_none() {
                return Err(args.unsupported(format!("argument `{name}` is known at run time only")));
            }
        }
        let mut view = self.operand(args, op, "x")?;
        let (begin, shape) = (args.ints("begin")?, self.shape(y)?);
        for axis in 0..shape.len() {
            let extent = view.shape[axis] as i64;
            let at = if begin[axis] < 0 { begin[axis] + extent } else { begin[axis] };
            let at = usize::try_from(at).ok().filter(|at| at + shape[axis] <= view.shape[axis]);
            let at = at.ok_or_else(|| args.unsupported("the slice leaves its operand"))?;
            view = view.sliced(axis, at, 1, shape[axis]);
        }
        self.slice(op, y, view)
    }

    fn slice_by_index(&mut self, op: &'a Op, args: &Args<'a>) -> Result<()> {
        let y = op.outputs[0];
        for name in ["begin", "end"] {
            if args.constant(name).is_none() {
                return Err(args.unsupported(format!("argument `{name}` is known at run time only")));
            }
        }
        let mut view = self.operand(args, op, "x")?;
        let rank = view.shape.len();
        let (begin, end) = (args.ints("begin")?, args.ints("end")?);
        let stride = args.ints_if("stride")?.unwrap_or_else(|| vec![1; rank]);
        let mask = |name: &str| -> Result<Vec<bool>> {
            Ok(args.ints_if(name)?.map_or(vec![false; rank], |m| m.iter().map(|&v| v != 0).collect()))
        };
        let (begin_mask, end_mask, squeeze) = (mask("begin_mask")?, mask("end_mask")?, mask("squeeze_mask")?);
        for axis in 0..rank {
            let extent = view.shape[axis] as i64;
            let wrap = |v: i64| if v < 0 { v.saturating_add(extent) } else { v };
            let step = if squeeze[axis] { 1 } else { stride[axis] };
            let (low, high) = if step > 0 { (0, extent) } else { (-1, extent - 1) };
            let (first, last) = if step > 0 { (0, extent) } else { (extent - 1, -1) };
            let from = if begin_mask[axis] && !squeeze[axis] { first } else { wrap(begin[axis]).clamp(low, high) };
            let to = if squeeze[axis] {
                from + 1
            } else if end_mask[axis] {
                last
            } else {
                wrap(end[axis]).clamp(low, high)
            };
            let span = if step > 0 { to - from } else { from - to };
            if span <= 0 || step == 0 {
                return Err(args.unsupported(format!("the slice of axis {axis} is empty")));
            }
            let count = (span + step.abs() - 1) / step.abs();
            view = view.sliced(axis, from as usize, step as isize, count as usize);
        }
        let kept: Vec<usize> = (0..rank).filter(|&a| !squeeze[a]).collect();
        let view = select(&view, &kept);
        self.slice(op, y, view)
    }

    fn split(&mut self, op: &'a Op, args: &Args<'a>) -> Result<()> {
        let x = self.operand(args, op, "x")?;
        let axis = args.axis("axis", x.shape.len())?;
        let mut at = 0;
        for &y in &op.outputs {
            let extent = self.shape(y)?[axis];
            if self.uses[y.index()] > 0 {
                let view = x.sliced(axis, at, 1, extent);
                self.alias(y, &view, Some(view.clone()))?;
            }
            at += extent;
        }
        Ok(())
    }

    fn concat(&mut self, op: &'a Op, args: &Args<'a>) -> Result<()> {
        let (y, values) = (op.outputs[0], args.values("values"));
        if let [one] = values.as_slice() {
            let x = self.view(*one)?;
            let seen = x.reshaped(&self.shape(y)?);
            return self.alias(y, &x, seen);
        }
        let axis = args.axis("axis", self.shape(y)?.len())?;
        let to = self.result(y)?;
        self.buffers[to.buffer].sole = false;
        let slots = self.concat_slots(&to, &values, axis, args.flag("interleave")?)?;
        self.fill_slots(&values, &slots)?;
        self.settle(y, to)
    }

    /// Copies values to their slots, except those that are already there.
    fn fill_slots(&mut self, values: &[ValueId], slots: &[View]) -> Result<()> {
        for (&value, slot) in values.iter().zip(slots) {
            let view = self.view(value)?;
            if !view.same_elements(slot) {
                self.copy(&view, slot)?;
            }
        }
        Ok(())
    }

    fn stack(&mut self, op: &'a Op, args: &Args<'a>) -> Result<()> {
        let (y, values) = (op.outputs[0], args.values("values"));
        let shape = self.shape(y)?;
        let axis = args.axis("axis", shape.len())?;
        let to = self.result(y)?;
        self.buffers[to.buffer].sole = false;
        let kept: Vec<usize> = (0..shape.len()).filter(|&a| a != axis).collect();
        let slots: Vec<View> = (0..values.len()).map(|i| select(&to.sliced(axis, i, 1, 1), &kept)).collect();
        self.fill_slots(&values, &slots)?;
        self.settle(y, to)
    }

    /// A copy from a view that is repeated along new axes.
    fn tile(&mut self, op: &'a Op, args: &Args<'a>) -> Result<()> {
        let y = op.outputs[0];
        let x = self.operand(args, op, "x")?;
        let shape = self.shape(y)?;
        let mut from = View { shape: Vec::new(), strides: Vec::new(), ..x.clone() };
        for axis in 0..shape.len() {
            from.shape.extend([shape[axis] / x.shape[axis], x.shape[axis]]);
            from.strides.extend([0, x.strides[axis]]);
        }
        let wanted = self.result(y)?;
        let target = match wanted.reshaped(&from.shape) {
            Some(split) if wanted.storage == x.storage => (wanted, split),
            _ => {
                let dense = self.fresh(x.storage, &shape, None);
                let split =
                    View { strides: crate::ir::row_major(&from.shape), shape: from.shape.clone(), ..dense.clone() };
                (dense, split)
            }
        };
        let (to, split) = target;
        self.copy(&from, &split)?;
        self.settle(y, to)
    }

    pub(super) fn pad(&mut self, op: &'a Op, args: &Args<'a>) -> Result<()> {
        let y = op.outputs[0];
        if self.padding[y.index()] {
            return Ok(());
        }
        let x = self.operand(args, op, "x")?;
        let (shape, pad) = (self.shape(y)?, args.ints("pad")?);
        let first = shape.len() - pad.len() / 2;
        let before = |axis: usize| if axis < first { 0 } else { pad[2 * (axis - first)] as usize };
        let mode = args.text("mode")?;
        if mode == "constant" {
            let value = args.float("constant_val", DataType::Fp32)?;
            let bits = if x.storage.is_float() { value.to_le_bytes() } else { (value as i32).to_le_bytes() };
            let to = self.result(y)?;
            self.buffers[to.buffer].sole = false;
            let nest = Nest::new(&to.shape, &[&to], 1, None);
            self.push(StepKind::Fill(nest, bits), Vec::new(), vec![to.clone()])?;
            let mut inside = to.clone();
            for axis in 0..shape.len() {
                inside = inside.sliced(axis, before(axis), 1, x.shape[axis]);
            }
            self.copy(&x, &inside)?;
            return self.settle(y, to);
        }
        let mut maps = Vec::new();
        for axis in 0..shape.len() {
            if shape[axis] > MAX_MAP {
                let message = format!("op `pad`: {} positions along axis {axis} are too many", shape[axis]);
                return Err(Error::new(ErrorKind::OutOfMemory, message));
            }
            let extent = x.shape[axis] as i64;
            let source = |i: usize| {
                let at = i as i64 - before(axis) as i64;
                match mode.as_str() {
                    "replicate" => at.clamp(0, extent - 1),
                    // Mirrors without repeating the edge.
                    _ if at < 0 => -at,
                    _ if at >= extent => 2 * (extent - 1) - at,
                    _ => at,
                }
            };
            let map: Vec<i64> = (0..shape[axis]).map(source).collect();
            if map.iter().any(|&i| i < 0 || i >= extent) {
                return Err(args.unsupported(format!("pad {pad:?} reflects beyond the operand {:?}", x.shape)));
            }
            maps.push(map.into_iter().map(|i| i as usize).collect());
        }
        self.plain(y, vec![x], StepKind::Remap(maps))
    }

    fn gather(&mut self, op: &'a Op, args: &Args<'a>) -> Result<()> {
        let y = op.outputs[0];
        let (x, indices) = (self.operand(args, op, "x")?, self.operand(args, op, "indices")?);
        let axis = args.axis("axis", x.shape.len())?;
        let batch_dims = match args.ints_if("batch_dims")? {
            Some(dims) => dims.first().copied().unwrap_or(0) as usize,
            None => 0,
        };
        self.plain(y, vec![x, indices], StepKind::Gather { axis, batch_dims })
    }

    fn reduce(&mut self, op: &'a Op, args: &Args<'a>) -> Result<()> {
        let Some(reduction) = reduction(&op.name) else { return Err(refusal(&op.name)) };
        let y = op.outputs[0];
        let x = self.operand(args, op, "x")?;
        let rank = x.shape.len();
        let arg = matches!(reduction, Reduction::ArgMax | Reduction::ArgMin);
        let axes = if arg {
            vec![args.axis("axis", rank)?]
        } else {
            match args.ints_if("axes")? {
                Some(axes) => args.axes(&axes, rank)?,
                None => (0..rank).collect(),
            }
        };
        let kept: Vec<usize> = (0..rank).filter(|a| !axes.contains(a)).collect();
        let to = self.result(y)?;
        let to = self.apart(&to, std::slice::from_ref(&x));
        let places = if args.flag("keep_dims")? { select(&to, &kept) } else { to.clone() };
        let nest = Nest::new(&places.shape, &[&places, &select(&x, &kept)], 1, None);
        let mut reduced: Vec<(usize, isize)> =
            axes.iter().map(|&a| (x.shape[a], x.strides[a])).filter(|r| r.0 != 1).collect();
        if !arg {
            reduced.sort_by_key(|r| std::cmp::Reverse(r.1.unsigned_abs()));
        }
        let round = self.policy.rounds(self.dtype(y)?);
        let maker = args.value("x").map(|v| self.function.value(v).def);
        let of_product = match maker {
            Some(ValueDef::Op(op, _)) => matches!(self.function.op(op).name.as_str(), "mul" | "square"),
            _ => false,
        };
        let step = Reduce { reduction, kept: nest, reduced, round, of_product };
        self.push(StepKind::Reduce(step), vec![x], vec![to.clone()])?;
        self.settle(y, to)
    }
}

fn reduction(name: &str) -> Option<Reduction> {
    Some(match name {
        "reduce_sum" => Reduction::Sum,
        "reduce_mean" => Reduction::Mean,
        "reduce_max" => Reduction::Max,
        "reduce_min" => Reduction::Min,
        "reduce_prod" => Reduction::Prod,
        "reduce_sum_square" => Reduction::SumSquare,
        "reduce_l1_norm" => Reduction::L1,
        "reduce_l2_norm" => Reduction::L2,
        "reduce_log_sum" => Reduction::LogSum,
        "reduce_log_sum_exp" => Reduction::LogSumExp,
        "reduce_argmax" => Reduction::ArgMax,
        "reduce_argmin" => Reduction::ArgMin,
        _ => return None,
    })
}
