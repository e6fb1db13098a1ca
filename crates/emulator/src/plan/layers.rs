//! Lowers products, attention, normalizations, and the windows of convolutions and poolings.

use ferrane_device::Result;
use ferrane_host::gemm::{BatchOffsets, SKINNY};
use ferrane_mil::Op;

use super::args::{Args, floats};
use super::build::Lowering;
use super::ops::select;
use crate::ir::{Along, Binary, Elementwise, Group, Matmul, Nest, Norm, NormForm, StepKind, Storage, View, Window};

/// The most products of one step. A larger batch is refused, because its list of offsets would
/// outgrow its data.
const MAX_BATCH: usize = 1 << 22;

/// The most taps of a window, and the largest padded extent: sums and differences of positions do
/// not wrap.
const MAX_REACH: usize = isize::MAX as usize / 16;

/// What follows a product.
#[derive(Clone, Default)]
pub(super) struct After {
    pub scale: Option<f32>,
    pub bias: Option<(View, Along)>,
    pub round: bool,
}

impl<'a> Lowering<'a> {
    pub(super) fn matmul(&mut self, op: &'a Op, args: &Args<'a>) -> Result<()> {
        if self.byte_layer(op, args)? {
            return Ok(());
        }
        if let Some(weight) = self.coded(args, "y") {
            return self.coded_product(op, args, weight);
        }
        let y = op.outputs[0];
        let (mut x, mut z) = (self.operand(args, op, "x")?, self.operand(args, op, "y")?);
        x = self.beside_int8(x, args.value("y"))?;
        z = self.beside_int8(z, args.value("x"))?;
        let mut shape = self.shape(y)?;
        let (x_vector, z_vector) = (x.shape.len() == 1, z.shape.len() == 1);
        if x_vector {
            x.shape.insert(0, 1);
            x.strides.insert(0, 0);
        } else if args.flag("transpose_x")? {
            x = swapped(&x);
        }
        if z_vector {
            z.shape.push(1);
            z.strides.push(0);
        } else if args.flag("transpose_y")? {
            z = swapped(&z);
        }
        if x_vector {
            shape.insert(shape.len() - usize::from(!z_vector), 1);
        }
        if z_vector {
            shape.push(1);
        }
        let wanted = self.result(y)?;
        // Adding or removing axes of extent 1 moves no elements.
        let Some(to) = wanted.reshaped(&shape) else {
            return Err(args.unsupported("a result of this layout"));
        };
        let to = self.apart(&to, &[x.clone(), z.clone()]);
        let to = if self.dtype(y)?.is_float() {
            let round = self.policy.rounds(self.dtype(y)?);
            // The second factor may be int8: `host::gemm` widens it.
            let z = if z.storage == Storage::I8 && self.policy.rules.is_none() { z } else { self.float(z)? };
            let x = self.float(x)?;
            self.product(&x, &z, to, After { round, ..After::default() })?
        } else {
            self.int_product(&x, &z, to)?
        };
        let real = self.shape(y)?;
        let Some(at) = to.reshaped(&real) else { return Err(args.unsupported("a result of this layout")) };
        self.settle(y, at)
    }

    /// `to = x · z` over the last two axes; the others are broadcast. Returns the view of the
    /// product: `to`, or a new buffer if `to` has no two strides that keep the product's rows or
    /// columns disjoint.
    pub(super) fn product(&mut self, x: &View, z: &View, to: View, after: After) -> Result<View> {
        let rank = to.shape.len();
        let (m, n) = (to.shape[rank - 2], to.shape[rank - 1]);
        // With few rows, the time is that of reading the other factor.
        let z = if to.elements() / n.max(1) <= SKINNY { z.clone() } else { self.widened(z)? };
        let x = self.widened(x)?;
        let k = x.shape[x.shape.len() - 1];
        let to = if separate(&to) { to } else { self.fresh(to.storage, &to.shape.clone(), None) };
        let lead = &to.shape[..rank - 2];
        let over = |v: &View, rows: usize, cols: usize| {
            let mut shape = lead.to_vec();
            shape.extend([rows, cols]);
            v.broadcast(&shape)
        };
        let (x, z) = (over(&x, m, k), over(&z, k, n));
        // A batch that multiplies by the same matrix is one tall product.
        let batch: usize = lead.iter().product();
        let shared = batch > 1 && lead.iter().zip(&z.strides).all(|(&d, &s)| d == 1 || s == 0);
        if shared
            && let (Some(tall), Some(out)) = (x.reshaped(&[batch * m, k]), to.reshaped(&[batch * m, n]))
            && after.bias.as_ref().is_none_or(|(_, along)| *along == Along::Cols)
            && separate(&out)
        {
            let flat = select(&z, &[rank - 2, rank - 1]);
            self.product_step(&tall, &flat, &out, batch * m, n, k, after)?;
        } else {
            self.product_step(&x, &z, &to, m, n, k, after)?;
        }
        Ok(to)
    }

    fn product_step(
        &mut self,
        x: &View,
        z: &View,
        to: &View,
        m: usize,
        n: usize,
        k: usize,
        after: After,
    ) -> Result<()> {
        let rank = to.shape.len();
        let lead = &to.shape[..rank - 2];
        let count: usize = lead.iter().product();
        if count > MAX_BATCH {
            return Err(self.fail(format!("a batch of {count} products is too large")));
        }
        let mut batch = Vec::with_capacity(count);
        for item in 0..count {
            let lowest = |v: &View| {
                let mut one = v.clone();
                let mut rest = item;
                for axis in (0..lead.len()).rev() {
                    one = one.sliced(axis, rest % lead[axis], 1, 1);
                    rest /= lead[axis];
                }
                one.span().0 - v.span().0
            };
            batch.push(BatchOffsets { lhs: lowest(x), rhs: lowest(z), out: lowest(to) });
        }
        let strides = [x, z, to].map(|v| {
            let r = v.shape.len();
            (v.strides[r - 2], v.strides[r - 1])
        });
        let mut reads = vec![x.clone(), z.clone()];
        let bias = after.bias.map(|(view, along)| {
            reads.push(view);
            along
        });
        let step = Matmul { m, n, k, strides, batch, scale: after.scale.unwrap_or(1.0), bias, round: after.round };
        self.push(StepKind::Matmul(step), reads, vec![to.clone()])
    }

    /// The view, with integers converted to floats: from iOS 17 on, a constant factor of a product
    /// may have another element type.
    pub(super) fn float(&mut self, view: View) -> Result<View> {
        if view.storage.is_float() {
            return Ok(view);
        }
        let to = self.fresh(Storage::F32, &view.shape, None);
        let convert = Group::single(Elementwise::IntToFloat, &to, &[&view], false);
        self.push(StepKind::Group(convert), vec![view], vec![to.clone()])?;
        Ok(to)
    }

    /// Like `product`, for integers: a new buffer if the leading axes of `to` do not merge into one
    /// batch.
    fn int_product(&mut self, x: &View, z: &View, to: View) -> Result<View> {
        let rank = to.shape.len();
        let (m, n, k) = (to.shape[rank - 2], to.shape[rank - 1], x.shape[x.shape.len() - 1]);
        let lead = to.shape[..rank - 2].to_vec();
        let batch: usize = lead.iter().product();
        let flat = |low: &mut Self, v: &View, rows: usize, cols: usize| -> Result<View> {
            let mut shape = lead.clone();
            shape.extend([rows, cols]);
            let wide = v.broadcast(&shape);
            match wide.reshaped(&[batch, rows, cols]) {
                Some(view) => Ok(view),
                None => {
                    let dense = low.fresh(v.storage, &shape, None);
                    low.copy(&wide, &dense)?;
                    dense.reshaped(&[batch, rows, cols]).ok_or_else(|| low.fail("a batch of this layout"))
                }
            }
        };
        let (x, z) = (flat(self, x, m, k)?, flat(self, z, k, n)?);
        let (to, out) = match to.reshaped(&[batch, m, n]) {
            Some(out) => (to, out),
            None => {
                let plain = self.fresh(to.storage, &to.shape.clone(), None);
                let out = plain.reshaped(&[batch, m, n]).ok_or_else(|| self.fail("a result of this layout"))?;
                (plain, out)
            }
        };
        self.push(StepKind::IntMatmul, vec![x, z], vec![out])?;
        Ok(to)
    }

    /// A bias vector as dense fp32.
    pub(super) fn bias(&mut self, op: &'a Op, args: &Args<'a>) -> Result<Option<View>> {
        if !args.has("bias") {
            return Ok(None);
        }
        if let Some(values) = args.constant("bias").and_then(|c| floats(c, self.weights)) {
            return Ok(Some(self.constant_floats(&[values.len()], &values)));
        }
        let view = self.operand(args, op, "bias")?;
        self.dense(&view, Storage::F32).map(Some)
    }

    pub(super) fn linear(&mut self, op: &'a Op, args: &Args<'a>) -> Result<()> {
        if self.byte_layer(op, args)? {
            return Ok(());
        }
        if let Some(weight) = self.coded(args, "weight") {
            return self.coded_product(op, args, weight);
        }
        let y = op.outputs[0];
        let (mut x, weight) = (self.operand(args, op, "x")?, self.operand(args, op, "weight")?);
        x = self.beside_int8(x, args.value("weight"))?;
        let mut shape = self.shape(y)?;
        if x.shape.len() == 1 {
            x = View { shape: vec![1, x.shape[0]], strides: vec![0, x.strides[0]], ..x };
            shape.insert(0, 1);
        }
        let wanted = self.result(y)?;
        let Some(to) = wanted.reshaped(&shape) else { return Err(args.unsupported("a result of this layout")) };
        let to = self.apart(&to, &[x.clone(), weight.clone()]);
        let to = if let Some(to) = self.packed_linear(op, args, &x, &to)? {
            to
        } else if self.dtype(y)?.is_float() {
            let bias = self.bias(op, args)?.map(|b| (b, Along::Cols));
            let round = self.policy.rounds(self.dtype(y)?);
            self.product(&x, &swapped(&weight), to, After { bias, round, ..After::default() })?
        } else {
            let product = self.int_product(&x, &swapped(&weight), to)?;
            if args.has("bias") {
                let bias = self.operand(args, op, "bias")?.broadcast(&shape);
                let sum = self.fresh(product.storage, &shape, None);
                let add = Group::single(Elementwise::IntBinary(Binary::Add), &sum, &[&product, &bias], false);
                self.push(StepKind::Group(add), vec![product, bias], vec![sum.clone()])?;
                sum
            } else {
                product
            }
        };
        let real = self.shape(y)?;
        let Some(at) = to.reshaped(&real) else { return Err(args.unsupported("a result of this layout")) };
        self.settle(y, at)
    }

    pub(super) fn window(&self, args: &Args<'a>, x: &[usize], out: &[usize], kernel: Vec<usize>) -> Result<Window> {
        let n = kernel.len();
        let large = || args.unsupported(format!("a window of {kernel:?} is too large"));
        // The number of taps must fit a `usize`.
        kernel.iter().try_fold(1usize, |taps, &k| taps.checked_mul(k)).filter(|&t| t <= MAX_REACH).ok_or_else(large)?;
        let read = |name: &str, default: usize, count: usize| -> Result<Vec<usize>> {
            let given = args.ints_if(name)?.unwrap_or_else(|| vec![default as i64; count]);
            Ok(given.into_iter().map(|v| v.max(0) as usize).collect())
        };
        let (strides, dilations) = (read("strides", 1, n)?, read("dilations", 1, n)?);
        let pad_type = args.text("pad_type")?;
        let mut pad = vec![0; n];
        let mut padded = x.to_vec();
        for axis in 0..n {
            match pad_type.as_str() {
                "custom" => {
                    let given = read("pad", 0, 2 * n)?;
                    pad[axis] = given[2 * axis];
                    let total = given[2 * axis].saturating_add(given[2 * axis + 1]);
                    padded[axis] = padded[axis].saturating_add(total);
                }
                "same" | "same_lower" => {
                    let reach = (kernel[axis] - 1).saturating_mul(dilations[axis]).saturating_add(1);
                    let first = (out[axis] - 1).saturating_mul(strides[axis]);
                    let total = first.saturating_add(reach).saturating_sub(x[axis]);
                    // An odd element of padding goes at the end, or at the start with `same_lower`.
                    pad[axis] = if pad_type == "same" { total / 2 } else { total - total / 2 };
                    padded[axis] = padded[axis].saturating_add(total);
                }
                _ => {}
            }
            if padded[axis] > MAX_REACH {
                return Err(large());
            }
        }
        Ok(Window { kernel, strides, dilations, pad, padded })
    }

    /// Scores, mask, softmax and the weighted sum in fp32; rounded once, at the end. Under the
    /// rules of a machine each is a step of its own, with fp16 values between them.
    pub(super) fn attention(&mut self, op: &'a Op, args: &Args<'a>) -> Result<()> {
        let y = op.outputs[0];
        let query = self.operand(args, op, "query")?;
        let key = self.operand(args, op, "key")?;
        let value = self.operand(args, op, "value")?;
        let (shape, query_type) = (self.shape(y)?, self.dtype(y)?);
        let rank = shape.len();
        let mut wide = shape[..rank - 2].to_vec();
        wide.extend([query.shape[rank - 2], key.shape[rank - 2]]);
        let scale = 1.0 / (query.shape[rank - 1] as f32).sqrt();
        // A machine stores scores and weights as fp16, like all values.
        let rules = self.policy.rules.filter(|_| self.policy.rounds(query_type));
        let (storage, stored) = if rules.is_some() { (Storage::F16, true) } else { (Storage::F32, false) };
        let masked = args.has("attn_mask") && rules.is_none_or(|rules| !rules.attn_mask_ignored);
        let scores = self.fresh(storage, &wide, None);
        let after = After { scale: Some(scale), round: stored, ..After::default() };
        let mut scores = self.product(&query, &swapped(&key), scores, after)?;
        if masked {
            let mask = self.operand(args, op, "attn_mask")?.broadcast(&wide);
            let masked = self.fresh(storage, &wide, None);
            let (instruction, reads) = if mask.storage.is_float() {
                (Elementwise::Binary(Binary::Add), vec![scores, mask])
            } else {
                // Where the mask is false, the key is hidden.
                let never = self.constant_floats(&[], &[f32::NEG_INFINITY]).broadcast(&wide);
                (Elementwise::Select, vec![mask, scores, never])
            };
            let views: Vec<&View> = reads.iter().collect();
            let group = Group::single(instruction, &masked, &views, stored);
            self.push(StepKind::Group(group), reads, vec![masked.clone()])?;
            scores = masked;
        }
        let weights = self.fresh(storage, &wide, None);
        let nest = Nest::new(&wide, &[&weights, &scores], 1, Some(rank - 1));
        self.push(StepKind::Softmax { nest, round: stored }, vec![scores], vec![weights.clone()])?;
        let to = self.result(y)?;
        let to = self.apart(&to, std::slice::from_ref(&value));
        let round = self.policy.rounds(self.dtype(y)?);
        let to = self.product(&weights, &value, to, After { round, ..After::default() })?;
        self.settle(y, to)
    }

    /// gamma or beta broadcast to the shape of x: its axes at `axes`, repeated along the others.
    fn spread(&mut self, op: &'a Op, args: &Args<'a>, name: &str, axes: &[usize], shape: &[usize]) -> Result<View> {
        let view = self.operand(args, op, name)?;
        let mut strides = vec![0; shape.len()];
        for (i, &axis) in axes.iter().enumerate() {
            strides[axis] = view.strides[i];
        }
        Ok(View { shape: shape.to_vec(), strides, ..view })
    }

    pub(super) fn norm(&mut self, op: &'a Op, args: &Args<'a>) -> Result<()> {
        let y = op.outputs[0];
        let x = self.operand(args, op, "x")?;
        let rank = x.shape.len();
        let dtype = self.dtype(y)?;
        let (form, axes, along) = match op.name.as_str() {
            "layer_norm" => {
                let axes = match args.ints_if("axes")? {
                    Some(axes) => args.axes(&axes, rank)?,
                    None => (0..rank).collect(),
                };
                (NormForm::Layer, axes.clone(), axes)
            }
            "instance_norm" => (NormForm::Layer, (2..rank).collect(), vec![1]),
            // Over the last three axes, as in Core ML.
            _ => (NormForm::L2, (rank - 3..rank).collect(), Vec::new()),
        };
        let epsilon = args.float("epsilon", dtype)?;
        let mut reads = vec![x.clone()];
        let (gamma, beta) = (args.has("gamma"), args.has("beta"));
        for name in ["gamma", "beta"] {
            if args.has(name) {
                reads.push(self.spread(op, args, name, &along, &x.shape)?);
            }
        }
        let to = self.result(y)?;
        let to = self.apart(&to, &reads);
        let nest = |axes: &[usize]| {
            let views: Vec<View> = std::iter::once(&to).chain(&reads).map(|v| select(v, axes)).collect();
            let shape: Vec<usize> = axes.iter().map(|&a| x.shape[a]).collect();
            Nest::new(&shape, &views.iter().collect::<Vec<_>>(), 1, None)
        };
        let kept: Vec<usize> = (0..rank).filter(|a| !axes.contains(a)).collect();
        let (mut outer, inner) = (nest(&kept), nest(&axes));
        // Blocks that interleave in memory cannot be divided among threads.
        let reach: isize = inner.extents.iter().zip(&inner.strides[0]).map(|(&n, &s)| (n as isize - 1) * s).sum();
        let rest: isize =
            outer.extents.iter().zip(&outer.strides[0]).skip(1).map(|(&n, &s)| (n as isize - 1) * s).sum();
        outer.divisible &= outer.strides[0][0] > reach + rest;
        let step = Norm { form, outer, inner, epsilon, gamma, beta, round: self.policy.rounds(dtype) };
        self.push(StepKind::Norm(step), reads, vec![to.clone()])?;
        self.settle(y, to)
    }
}

/// The last two axes exchanged.
pub(super) fn swapped(view: &View) -> View {
    let rank = view.shape.len();
    let mut view = view.clone();
    view.shape.swap(rank - 1, rank - 2);
    view.strides.swap(rank - 1, rank - 2);
    view
}

/// True if the last two axes are a matrix whose rows or columns are disjoint, as products require
/// of their output.
pub(super) fn separate(view: &View) -> bool {
    let rank = view.shape.len();
    let (m, n) = (view.shape[rank - 2] as isize, view.shape[rank - 1] as isize);
    let (r, c) = (view.strides[rank - 2], view.strides[rank - 1]);
    (n == 1 && r != 0)
        || (m == 1 && c != 0)
        || (m == 1 && n == 1)
        || (c > 0 && r > (n - 1) * c)
        || (r > 0 && c > (m - 1) * r)
}
