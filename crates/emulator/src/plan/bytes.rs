//! Products of codes with codes: layers with int8 weights whose activations were quantized.
//!
//! Where the operand of a convolution, a linear layer or a product is the result of `dequantize`,
//! and its constant weight is int8 codes with one scale for each output channel, the product of
//! both factors' scales is a factor of the whole sum. So the product reads the codes of both, sums
//! integers, and scales each sum once (`host::conv::ByteConv`). The `dequantize` remains for its
//! other readers only. A `quantize` of the results joins the step (`requantize`), so activations
//! between such layers are bytes in memory.
//!
//! *Tolerance.* The sums are exact, and neither the products of code and scale nor partial sums are
//! rounded. So a result has the bits of the product of decoded factors where that is exact: where
//! scales are powers of two and sums of codes stay below 2²⁴. Elsewhere decoded factors in fp16 may
//! each differ by 2⁻¹¹ of themselves from what they stand for, and this result does not have these
//! differences. Only the table `fast` does this.

use std::borrow::Cow;
use std::sync::Arc;

use ferrane_device::Result;
use ferrane_host::conv::{ByteConv, ConvShape, Layout};
use ferrane_host::f16;
use ferrane_mil::{Constant, DataType, Op, ValueDef, ValueId};

use super::args::{Args, floats};
use super::build::Lowering;
use super::images::pixel_pitch;
use crate::ir::{ByteLayer, ConstantContent, StepKind, Storage, View};

/// What a product of codes with codes reads.
#[derive(Clone)]
pub(super) struct ByteOperands<'a> {
    /// The codes of the activations.
    pub x: ValueId,
    /// The decoded activations and weight, which are not read.
    decoded: [ValueId; 2],
    zero: i32,
    weight: &'a Constant,
    /// The weight is `[inputs, outputs]`, not `[outputs, inputs, …]`.
    turned: bool,
    /// A scale for each output channel, times that of the activations.
    scales: Vec<f32>,
    conv: Arc<ByteConv>,
}

/// A constant of int8 codes, and its scales: one, or one for each index of an axis.
struct ByteWeight<'a> {
    codes: &'a Constant,
    scales: Vec<f32>,
    axis: usize,
}

/// Activations: codes, their scale, and the code of 0.
struct ByteActivations {
    codes: ValueId,
    scale: f32,
    zero: i32,
}

impl<'a> Lowering<'a> {
    /// The operands of a product of codes with codes, if the op is one. The operands `x` and the
    /// weight are then not read.
    pub(super) fn byte_operands(&self, op: &'a Op) -> Option<ByteOperands<'a>> {
        let weight = match op.name.as_str() {
            "conv" | "linear" => "weight",
            "matmul" => "y",
            _ => return None,
        };
        if !self.policy.fuses || self.policy.rules.is_some() {
            return None;
        }
        let (args, y) = (self.args(op).ok()?, *op.outputs.first()?);
        let (x, weight) = (args.value("x")?, args.value(weight)?);
        let dtype = self.dtype(y).ok().filter(|dtype| [DataType::Fp16, DataType::Fp32].contains(dtype))?;
        if self.dtype(x).ok()? != dtype || self.dtype(weight).ok()? != dtype {
            return None;
        }
        let decoded = [x, weight];
        let (activations, weight) = (self.byte_activations(x)?, self.byte_weight(weight)?);
        let (conv, axis) = self.byte_shape(op, &args, weight.codes)?;
        let outputs = weight.codes.ty().shape()?.get(axis).copied()?;
        let scales = match weight.scales.as_slice() {
            [one] => vec![*one; outputs],
            _ if weight.axis == axis && weight.scales.len() == outputs => weight.scales,
            _ => return None,
        };
        let most = if dtype == DataType::Fp16 { f16::MAX.to_f32() } else { f32::MAX };
        // Decoded factors are finite, and a sum of 0 stays +0.
        let decodes = |scale: f32, codes: f32| scale > 0.0 && scale <= most / codes;
        if !decodes(activations.scale, 255.0) || !scales.iter().all(|&scale| decodes(scale, 128.0)) {
            return None;
        }
        let scales: Vec<f32> = scales.iter().map(|scale| scale * activations.scale).collect();
        scales.iter().all(|scale| scale.is_normal()).then_some(())?;
        let (x, zero, turned) = (activations.codes, activations.zero, axis == 1 && op.name == "matmul");
        Some(ByteOperands { x, decoded, zero, weight: weight.codes, turned, scales, conv: Arc::new(conv?) })
    }

    /// The op that makes a value, if it has this name.
    fn made_by(&self, value: ValueId, names: &[&str]) -> Option<&'a Op> {
        let ValueDef::Op(op, _) = self.function.value(value).def else { return None };
        Some(self.function.op(op)).filter(|op| names.contains(&op.name.as_str()))
    }

    /// What was dequantized with one scale.
    fn byte_activations(&self, x: ValueId) -> Option<ByteActivations> {
        let args = self.args(self.made_by(x, &["dequantize"])?).ok()?;
        let codes = args.value("input").filter(|codes| self.function.constant(*codes).is_none())?;
        if ![DataType::Int8, DataType::UInt8].contains(&self.dtype(codes).ok()?) {
            return None;
        }
        let one = |name: &str, default: f32| match args.has(name) {
            true => match *floats(args.constant(name)?, self.weights)? {
                [one] => Some(one),
                _ => None,
            },
            false => Some(default),
        };
        Some(ByteActivations { codes, scale: one("scale", 1.0)?, zero: one("zero_point", 0.0)? as i32 })
    }

    /// A weight of int8 codes without zero points.
    fn byte_weight(&self, weight: ValueId) -> Option<ByteWeight<'a>> {
        let names = ["constexpr_affine_dequantize", "constexpr_blockwise_shift_scale", "dequantize"];
        let op = self.made_by(weight, &names)?;
        let args = self.args(op).ok()?;
        let (data, zero) = match op.name.as_str() {
            "constexpr_affine_dequantize" => ("quantized_data", "zero_point"),
            "constexpr_blockwise_shift_scale" => ("data", "offset"),
            _ => ("input", "zero_point"),
        };
        let codes = args.constant(data)?;
        let shape = codes.ty().shape().filter(|_| codes.ty().dtype() == Some(DataType::Int8))?;
        let zeros = || floats(args.constant(zero)?, self.weights);
        if args.has(zero) && !zeros()?.iter().all(|&zero| zero == 0.0) {
            return None;
        }
        let scale = args.constant("scale")?;
        let scales = floats(scale, self.weights)?;
        let axis = match scale.ty().shape().filter(|_| scales.len() > 1) {
            // One for each block: all of an axis, or single elements of it.
            Some(blocks) if data == "data" => {
                let axis = blocks.iter().position(|&n| n > 1)?;
                (blocks[axis] == *shape.get(axis)? && scales.len() == blocks[axis]).then_some(axis)?
            }
            Some(_) => args.axis("axis", shape.len()).ok()?,
            None => 0,
        };
        Some(ByteWeight { codes, scales, axis })
    }

    /// The convolution that the op is, if there is one, and the axis of the weight's outputs. A
    /// linear layer is one over a row of pixels.
    fn byte_shape(&self, op: &'a Op, args: &Args<'a>, weight: &Constant) -> Option<(Option<ByteConv>, usize)> {
        let x = self.shape(args.value("x")?).ok()?;
        let shape = weight.ty().shape()?;
        if op.name == "conv" {
            let y = self.shape(op.outputs[0]).ok()?;
            let window = self.window(args, x.get(2..)?, y.get(2..)?, shape.get(2..)?.to_vec()).ok()?;
            let one = args.int("groups").ok()? == 1 && shape[1] == x[1] && shape[0] == y[1];
            let conv = ConvShape {
                channels: x[1],
                outputs: y[1],
                groups: 1,
                input: x[2..].to_vec(),
                output: y[2..].to_vec(),
                kernel: window.kernel,
                strides: window.strides,
                dilations: window.dilations,
                pad: window.pad,
            };
            return one.then(|| (ByteConv::new(&conv), 0));
        }
        let &[first, second] = shape.as_slice() else { return None };
        let by_rows = op.name == "linear" || args.flag("transpose_y").ok()?;
        let (outputs, inputs) = if by_rows { (first, second) } else { (second, first) };
        let (&channels, lead) = x.split_last()?;
        if channels != inputs || op.name == "matmul" && (x.len() < 2 || args.flag("transpose_x").ok()?) {
            return None;
        }
        let rows = vec![lead.iter().product()];
        let one = vec![1];
        let conv = ConvShape {
            channels,
            outputs,
            groups: 1,
            input: rows.clone(),
            output: rows,
            kernel: one.clone(),
            strides: one.clone(),
            dilations: one,
            pad: vec![0],
        };
        Some((ByteConv::new(&conv), usize::from(!by_rows)))
    }

    /// Lowers a product of codes with codes; false if the op is none.
    pub(super) fn byte_layer(&mut self, op: &'a Op, args: &Args<'a>) -> Result<bool> {
        let y = op.outputs[0];
        let Some(operands) = self.bytes[y.index()].take() else { return Ok(false) };
        let x = self.view(operands.x)?;
        let (mut step, mut reads) = self.byte_step(op, args, &operands)?;
        if op.name == "conv" {
            reads[0] = self.with_channels_last(&x)?;
            let shape = self.shape(y)?;
            let (to, layout) = self.image_result(y, &shape, true, &reads)?;
            if let Layout::ChannelsLast(pitch) = layout {
                step.pitch = pitch;
            }
            self.push(StepKind::ByteLayer(step), reads, vec![to.clone()])?;
            self.settle(y, to)?;
            return Ok(true);
        }
        let row = |view: &View| view.row_of_pixels().filter(|row| row.shape[1] == 1 || row.strides[1] == 1);
        reads[0] = match row(&x) {
            Some(row) => row,
            None => {
                let dense = self.dense(&x, x.storage)?;
                row(&dense).ok_or_else(|| args.unsupported("an operand of this layout"))?
            }
        };
        let wanted = self.result(y)?;
        let to = self.apart(&wanted, &reads[..1]);
        let pitched = |view: &View| view.row_of_pixels().and_then(|row| Some((pixel_pitch(&row)?, row)));
        let to = if pitched(&to).is_some() { to } else { self.fresh(to.storage, &to.shape.clone(), None) };
        let (pitch, out) = pitched(&to).ok_or_else(|| args.unsupported("a result of this layout"))?;
        step.pitch = pitch;
        self.push(StepKind::ByteLayer(step), reads, vec![out])?;
        self.settle(y, to)?;
        Ok(true)
    }

    /// The step without its layout, and what it reads; the first of these is still the codes as
    /// they lie in memory.
    fn byte_step(
        &mut self,
        op: &'a Op,
        args: &Args<'a>,
        operands: &ByteOperands<'a>,
    ) -> Result<(ByteLayer, Vec<View>)> {
        let x = self.view(operands.x)?;
        let ByteOperands { zero, conv, scales, .. } = operands;
        let codes = operands.codes(self.weights).ok_or_else(|| args.unsupported("its weight's codes are not there"))?;
        // Unsigned codes are multiplied less 128.
        let zero = *zero;
        let centered = if x.storage == Storage::U8 { zero - 128 } else { zero };
        let starts = match centered {
            0 => None,
            _ => Some(conv.starts(bytemuck::cast_slice(&codes), centered).map_err(|e| self.fail(e))?),
        };
        let content = ConstantContent::PackedBytes(conv.clone(), codes);
        let packed = self.constant(Storage::I8, &[conv.packed_len()], content);
        let mut reads = vec![x, packed, self.constant_floats(&[scales.len()], scales)];
        if let Some(starts) = &starts {
            let content = ConstantContent::Made(bytemuck::cast_slice(starts).to_vec());
            reads.push(self.constant(Storage::I32, &[starts.len()], content));
        }
        let bias = if op.name == "matmul" { None } else { self.bias(op, args)? };
        let step = ByteLayer {
            conv: conv.clone(),
            zero,
            starts: starts.is_some(),
            bias: bias.is_some(),
            round: self.policy.rounds(self.dtype(op.outputs[0])?),
            pitch: 0,
            steps: Vec::new(),
            codes: None,
        };
        reads.extend(bias);
        Ok((step, reads))
    }
}

impl<'a> ByteOperands<'a> {
    /// What is read instead of an operand of the op: the codes of the activations, and nothing for
    /// the weight.
    pub(super) fn read_for(&self, operand: ValueId) -> Option<ValueId> {
        match self.decoded {
            [x, _] if operand == x => Some(self.x),
            [_, weight] if operand == weight => None,
            _ => Some(operand),
        }
    }

    /// The codes of the weight, a row for each output channel.
    fn codes(&self, weights: &'a ferrane_mil::Weights) -> Option<Cow<'a, [u8]>> {
        let (bytes, shape) = (self.weight.bytes(weights)?, self.weight.ty().shape()?);
        if Some(bytes.len()) != self.weight.ty().bytes() {
            return None;
        }
        if !self.turned {
            return Some(Cow::Borrowed(bytes));
        }
        let (inputs, outputs) = (shape[0], shape[1]);
        let code = |i: usize| bytes[i % inputs * outputs + i / inputs];
        Some(Cow::Owned((0..bytes.len()).map(code).collect()))
    }
}
