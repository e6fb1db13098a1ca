//! Lowers convolutions.
//!
//! Constant weights are packed for the convolution when the plan is made (`host::conv`). Other
//! weights, and the rules of a machine, take a product over the unfolded image, or the image itself
//! if the filter has one tap.

use std::sync::Arc;

use ferrane_device::Result;
use ferrane_host::conv;
use ferrane_mil::{DataType, Op, ValueDef, ValueId};

use super::args::Args;
use super::build::Lowering;
use super::images::{channels_last, pixel_pitch};
use super::layers::After;
use crate::ir::{Along, ConstantContent, Conv, PackedConv, StepKind, Storage, View, WeightBytes, row_major};

/// Output channels that fill too little of a vector, as those of a picture: then vectors hold
/// positions.
const FEW_OUTPUTS: usize = 4;

/// The least rows of a linear layer whose weights are packed. With fewer, reading the weights as
/// they are costs less than reading packed ones, which are fp32.
const LEAST_ROWS: usize = 48;

/// The most weights of a linear layer that are packed, so that a large model is not in memory
/// twice.
const MOST_LINEAR_WEIGHTS: usize = 4 << 20;

/// Zeros that a convolution adds itself.
struct Padding<'a> {
    op: &'a Op,
    args: Args<'a>,
    /// Zeros before each spatial axis.
    before: Vec<usize>,
}

/// Constant weights, and their shape.
pub(super) struct KnownWeights<'a> {
    pub shape: Vec<usize>,
    pub data: WeightBytes<'a>,
}

impl<'a> Lowering<'a> {
    pub(super) fn conv(&mut self, op: &'a Op, args: &Args<'a>) -> Result<()> {
        if self.byte_layer(op, args)? {
            return Ok(());
        }
        // Whether a weight stays codes is known only now, after its pad was left to the
        // convolution.
        let coded = self.coded(args, "weight");
        let y = op.outputs[0];
        let shape = self.shape(y)?;
        if let Some(padding) = args.value("x").and_then(|x| self.padding_of(x)) {
            let x = self.operand(&padding.args, padding.op, "x")?;
            if coded.is_none() && self.conv_with_known_weights(op, args, &x, &shape, &padding.before)? {
                return Ok(());
            }
            self.padding[padding.op.outputs[0].index()] = false;
            self.pad(padding.op, &padding.args)?;
        }
        if let Some(weight) = coded {
            return self.coded_product(op, args, weight);
        }
        let x = self.operand(args, op, "x")?;
        if self.conv_with_known_weights(op, args, &x, &shape, &[])? {
            return Ok(());
        }
        let weight = self.operand(args, op, "weight")?;
        let kernel = weight.shape[2..].to_vec();
        let window = self.window(args, &x.shape[2..], &shape[2..], kernel)?;
        let groups = usize::try_from(args.int("groups")?).unwrap_or(1).max(1);
        let bias = self.bias(op, args)?;
        let round = self.policy.rounds(self.dtype(y)?);
        let wanted = self.result(y)?;
        let places: usize = shape[2..].iter().product();
        let plain = groups == 1 && weight.shape[2..].iter().all(|&k| k == 1) && x.shape[2..] == shape[2..];
        let narrow = [shape[0], weight.shape[1], places];
        if plain
            && window.strides.iter().all(|&s| s == 1)
            && window.pad.iter().all(|&p| p == 0)
            && let (Some(columns), Some(matrix), Some(to)) = (
                x.reshaped(&narrow),
                weight.reshaped(&weight.shape[..2]),
                wanted.reshaped(&[shape[0], shape[1], places]),
            )
        {
            // One product for each image: weight [O, C] times input [C, places].
            let to = self.apart(&to, &[columns.clone(), matrix.clone()]);
            let after = After { bias: bias.map(|b| (b, Along::Rows)), round, ..After::default() };
            let to = self.product(&matrix, &columns, to, after)?;
            let Some(at) = to.reshaped(&shape) else { return Err(args.unsupported("a result of this layout")) };
            return self.settle(y, at);
        }
        let weight = self.widened(&weight)?;
        let weight = self.dense(&weight, weight.storage)?;
        let mut reads = vec![x, weight];
        let step = Conv { groups, window, bias: bias.is_some(), round };
        reads.extend(bias);
        self.plain(y, reads, StepKind::Conv(step))
    }

    /// The weights of a convolution, if they are constants in floats.
    pub(super) fn known_weights(&self, args: &Args<'a>) -> Option<KnownWeights<'a>> {
        if let Some(constant) = args.constant("weight") {
            let (shape, bytes) = (constant.ty().shape()?, constant.bytes(self.weights)?);
            let data = match constant.ty().dtype()? {
                DataType::Fp16 => WeightBytes::F16(bytes),
                DataType::Fp32 => WeightBytes::F32(bytes),
                _ => return None,
            };
            return Some(KnownWeights { shape, data }).filter(|_| Some(bytes.len()) == constant.ty().bytes());
        }
        // Decompressed weights.
        let view = self.views[args.value("weight")?.index()].as_ref()?;
        let buffer = &self.buffers[view.buffer];
        let whole = view.storage == Storage::F32
            && view.offset == 0
            && view.strides == row_major(&view.shape)
            && view.elements() == buffer.elements;
        let bytes = buffer.data.as_ref()?.bytes().filter(|_| whole)?;
        let values = bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect();
        Some(KnownWeights { shape: view.shape.clone(), data: WeightBytes::Made(values) })
    }

    /// Finds the zeros before a convolution that it can add itself: those of a `pad` which nothing
    /// else reads.
    pub(super) fn find_padding(&mut self, conv: &'a Op) -> Result<()> {
        let args = self.args(conv)?;
        let Some(x) = args.value("x").filter(|x| self.uses[x.index()] == 1) else { return Ok(()) };
        let ValueDef::Op(pad, _) = self.function.value(x).def else { return Ok(()) };
        let pad = self.function.op(pad);
        if pad.name != "pad" {
            return Ok(());
        }
        let args = self.args(pad)?;
        let zeros = args.text("mode")? == "constant" && args.float("constant_val", DataType::Fp32)? == 0.0;
        if zeros && args.constant("pad").is_some() && self.shape(x)?.len() > 2 {
            let pads = args.ints("pad")?;
            let outer = (2 * self.shape(x)?.len()).saturating_sub(pads.len());
            // Neither images nor channels are added.
            self.padding[x.index()] = pads.iter().take(4usize.saturating_sub(outer)).all(|&n| n == 0);
        }
        Ok(())
    }

    /// The `pad` that makes a value, if its only reader pads for itself.
    fn padding_of(&self, value: ValueId) -> Option<Padding<'a>> {
        let ValueDef::Op(pad, _) = self.function.value(value).def else { return None };
        let op = self.function.op(pad);
        let args = self.args(op).ok().filter(|_| self.padding[value.index()])?;
        let pads = args.ints("pad").ok()?;
        let rank = self.shape(value).ok()?.len();
        let first = rank.checked_sub(pads.len() / 2)?;
        let of = |axis: usize| axis.checked_sub(first).map_or(0, |a| pads[2 * a].max(0) as usize);
        Some(Padding { op, args, before: (2..rank).map(of).collect() })
    }

    /// Lowers a convolution of `x` with so many zeros before each spatial axis, and some after it,
    /// if its weights are constants and its shape is one that [`conv::Conv`] takes.
    fn conv_with_known_weights(
        &mut self,
        op: &'a Op,
        args: &Args<'a>,
        x: &View,
        shape: &[usize],
        zeros: &[usize],
    ) -> Result<bool> {
        let Some(weights) = self.known_weights(args) else { return Ok(false) };
        if self.policy.rules.is_some() || !x.storage.is_float() {
            return Ok(false);
        }
        let y = op.outputs[0];
        // The window counts from where the zeros begin.
        let padded = match args.value("x") {
            Some(padded) if !zeros.is_empty() => self.shape(padded)?,
            _ => x.shape.clone(),
        };
        let mut window = self.window(args, &padded[2..], &shape[2..], weights.shape[2..].to_vec())?;
        window.pad.iter_mut().zip(zeros).for_each(|(pad, zeros)| *pad += zeros);
        let wanted = conv::ConvShape {
            channels: x.shape[1],
            outputs: shape[1],
            groups: usize::try_from(args.int("groups")?).unwrap_or(1).max(1),
            input: x.shape[2..].to_vec(),
            output: shape[2..].to_vec(),
            kernel: window.kernel,
            strides: window.strides,
            dilations: window.dilations,
            pad: window.pad,
        };
        let fits = weights.shape[0] == shape[1] && weights.shape[1].checked_mul(wanted.groups) == Some(x.shape[1]);
        let finite = weights.data.with(|w| w.is_tame()).unwrap_or(false);
        if !fits {
            return Ok(false);
        }
        let few = shape[1] <= FEW_OUTPUTS && wanted.groups == 1 && wanted.kernel.iter().any(|&k| k > 1);
        let last =
            if self.images[y.index()] && !few { conv::Conv::channels_last(wanted.clone(), finite) } else { None };
        let is_last = last.is_some();
        let Some(conv) = last.or_else(|| conv::Conv::new(wanted, finite)) else { return Ok(false) };
        let x = if conv.takes_planes() { x.clone() } else { self.with_channels_last(x)? };
        let (step, reads) = self.packed_step(op, args, x, conv, weights)?;
        let (to, layout) = self.image_result(y, shape, is_last, &reads)?;
        self.push(StepKind::PackedConv(PackedConv { layout, ..step }), reads, vec![to.clone()])?;
        self.settle(y, to)?;
        Ok(true)
    }

    /// The step of a convolution with its packed weights, and what it reads.
    pub(super) fn packed_step(
        &mut self,
        op: &'a Op,
        args: &Args<'a>,
        x: View,
        conv: conv::Conv,
        weights: KnownWeights<'a>,
    ) -> Result<(PackedConv, Vec<View>)> {
        let conv = Arc::new(conv);
        let bias = self.bias(op, args)?;
        let content = ConstantContent::Packed(conv.clone(), weights.data);
        let packed = self.constant(Storage::F32, &[conv.packed_len().max(1)], content);
        let mut reads = vec![x, packed];
        let has_bias = bias.is_some();
        reads.extend(bias);
        let step = PackedConv {
            conv,
            bias: has_bias,
            round: self.policy.rounds(self.dtype(op.outputs[0])?),
            layout: conv::Layout::ChannelsFirst,
            prologue: None,
            steps: Vec::new(),
            addend: None,
            finish: None,
        };
        Ok((step, reads))
    }

    /// Lowers a linear layer with constant weights and many rows, `to` = `x` · weightᵀ, as a
    /// convolution of a row of pixels: its weights are packed once, and element-wise ops that
    /// follow it finish its results in registers. `None` if it is not such a layer, else where the
    /// results are.
    pub(super) fn packed_linear(&mut self, op: &'a Op, args: &Args<'a>, x: &View, to: &View) -> Result<Option<View>> {
        if !self.policy.fuses || self.policy.rules.is_some() || !x.storage.is_float() || !to.storage.is_float() {
            return Ok(None);
        }
        let (Some(x), Some(weights)) = (x.row_of_pixels(), self.known_weights(args)) else { return Ok(None) };
        let (channels, rows) = (x.shape[1], x.shape[2]);
        let dense = channels == 1 || x.strides[1] == 1;
        let small = weights.shape.iter().product::<usize>() <= MOST_LINEAR_WEIGHTS;
        let &[outputs, inputs] = weights.shape.as_slice() else { return Ok(None) };
        if !dense || !small || rows < LEAST_ROWS || inputs != channels || to.shape.last() != Some(&outputs) {
            return Ok(None);
        }
        let shape = conv::ConvShape {
            channels,
            outputs,
            groups: 1,
            input: vec![rows],
            output: vec![rows],
            kernel: vec![1],
            strides: vec![1],
            dilations: vec![1],
            pad: vec![0],
        };
        let finite = weights.data.with(|w| w.is_tame()).unwrap_or(false);
        let Some(conv) = conv::Conv::channels_last(shape, finite) else { return Ok(None) };
        let pitch = |view: &View| view.row_of_pixels().and_then(|row| Some((pixel_pitch(&row)?, row)));
        let to = if pitch(to).is_some() { to.clone() } else { self.fresh(to.storage, &to.shape.clone(), None) };
        let Some((pitch, row)) = pitch(&to) else { return Ok(None) };
        let (step, reads) = self.packed_step(op, args, x, conv, weights)?;
        let step = PackedConv { layout: conv::Layout::ChannelsLast(pitch), ..step };
        self.push(StepKind::PackedConv(step), reads, vec![row])?;
        Ok(Some(to))
    }
}

impl Lowering<'_> {
    /// Where a step writes images, with their channels last or first: the value's home if it has
    /// that layout, else new memory.
    pub(super) fn image_result(
        &mut self,
        y: ValueId,
        shape: &[usize],
        last: bool,
        reads: &[View],
    ) -> Result<(View, conv::Layout)> {
        let home = self.result(y)?;
        let layout = |view: &View| match last {
            true => pixel_pitch(view).map(conv::Layout::ChannelsLast),
            false => dense_images(view).then_some(conv::Layout::ChannelsFirst),
        };
        let order = last.then(|| channels_last(shape));
        let to = if layout(&home).is_some() { home } else { self.fresh(home.storage, shape, order.clone()) };
        let mut to = self.apart(&to, reads);
        if layout(&to).is_none() {
            to = self.fresh(to.storage, shape, order);
        }
        let layout = layout(&to).ok_or_else(|| self.fail("has a result of an unknown layout"))?;
        Ok((to, layout))
    }
}

/// True if the results of one image are dense, channels first, and those of different images
/// disjoint.
fn dense_images(view: &View) -> bool {
    let dense = row_major(&view.shape);
    let same = |a: usize| view.shape[a] == 1 || view.strides[a] == dense[a];
    (1..dense.len()).all(same) && (view.shape[0] == 1 || view.strides[0] >= dense[0])
}
