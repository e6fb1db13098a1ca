//! Products with constant weights that stay codes: int4 and int8 with scales, and palettes.
//!
//! A `constexpr_*` op whose result is only the matrix of products is not decoded when the plan is
//! made: the product reads its codes (`host::gemm::coded`), which are shared with the program's
//! weights. So a plan needs no memory for them, and one token of a language model reads the packed
//! bytes once. Palettes, and codes whose blocks no kernel sums, are decoded some rows at a time.
//!
//! Under the rules of a machine weights are decoded, because these rules apply to products of fp16
//! values. Convolutions of images keep `host::conv`, which reads packed fp32.

use std::sync::Arc;

use ferrane_device::Result;
use ferrane_mil::{DataType, Op, ValueId};

use super::args::Args;
use super::build::Lowering;
use super::layers::{separate, swapped};
use crate::ir::{CodedForm, CodedMatmul, CodedWeight, StepKind, Storage, View};

/// The least elements of a weight that stays codes: smaller ones are cheaper as fp32.
const LEAST: usize = 4096;

impl<'a> Lowering<'a> {
    /// The weight of a product, if it stays codes.
    pub(super) fn coded(&self, args: &Args<'a>, name: &str) -> Option<Arc<CodedWeight>> {
        self.coded[args.value(name)?.index()].clone()
    }

    /// Keeps the codes of a `constexpr_*` op if nothing but products reads its result; false if it
    /// must be decoded.
    pub(super) fn keep_codes(&mut self, op: &'a Op, args: &Args<'a>) -> Result<bool> {
        let y = op.outputs[0];
        if self.policy.rules.is_some() || self.dtype(y)? != DataType::Fp16 {
            return Ok(false);
        }
        let shape = self.shape(y)?;
        if shape.iter().product::<usize>() < LEAST {
            return Ok(false);
        }
        let Some(axis) = self.matrix_axis(y, &shape)? else { return Ok(false) };
        let weight = match op.name.as_str() {
            "constexpr_blockwise_shift_scale" => self.scaled_codes(args, &shape, axis),
            "constexpr_lut_to_dense" => self.palette_codes(args, &shape, axis),
            _ => None,
        };
        let fits = weight.as_ref().is_some_and(|weight| weight.matrix().is_ok());
        self.coded[y.index()] = weight.filter(|_| fits).map(Arc::new);
        Ok(fits)
    }

    /// The axis of the rows of a weight, which that of the columns follows, if all its readers are
    /// products that multiply by its transpose.
    fn matrix_axis(&self, value: ValueId, shape: &[usize]) -> Result<Option<usize>> {
        let (mut found, mut uses) = (None, 0);
        for &id in &self.function.body().ops {
            let op = self.function.op(id);
            let reads = op.operands().filter(|v| *v == value).count();
            if reads == 0 || !self.is_needed(op) {
                continue;
            }
            let args = self.args(op)?;
            let axis = match op.name.as_str() {
                "linear" if args.value("weight") == Some(value) => Some(0),
                "matmul" if args.value("y") == Some(value) && args.flag("transpose_y")? => shape.len().checked_sub(2),
                "conv" if args.value("weight") == Some(value) && self.is_sequence(op, &args, shape)? => Some(0),
                _ => None,
            };
            if axis.is_none() || reads != 1 || found.is_some_and(|found| Some(found) != axis) {
                return Ok(None);
            }
            (found, uses) = (axis, uses + 1);
        }
        let ones = |axis: usize| {
            shape.iter().enumerate().all(|(i, n)| *n == 1 || i == axis || i == axis + 1) && axis + 1 < shape.len()
        };
        Ok(found.filter(|axis| uses == self.uses[value.index()] && ones(*axis)))
    }

    /// True for a convolution with one tap over positions in a row, `[1, C, 1, T]`: the linear
    /// layer of a sequence.
    fn is_sequence(&self, op: &'a Op, args: &Args<'a>, weight: &[usize]) -> Result<bool> {
        let Some(x) = args.value("x") else { return Ok(false) };
        let (x, y) = (self.shape(x)?, self.shape(op.outputs[0])?);
        let window = self.window(args, &x[2..], &y[2..], weight[2..].to_vec())?;
        let row = x[0] == 1 && x[2..x.len() - 1].iter().all(|n| *n == 1);
        let plain = window.strides.iter().all(|s| *s == 1) && window.pad.iter().all(|p| *p == 0);
        Ok(row && plain && args.int("groups")? == 1 && weight[2..].iter().all(|k| *k == 1) && x[2..] == y[2..])
    }

    /// int4 or int8 codes with a scale for each block of a row.
    fn scaled_codes(&self, args: &Args<'a>, shape: &[usize], axis: usize) -> Option<CodedWeight> {
        let (data, scale) = (args.constant("data")?, args.constant("scale")?);
        let bits = match data.ty().dtype()? {
            DataType::Int4 => 4,
            DataType::Int8 => 8,
            _ => return None,
        };
        if args.has("offset") || scale.ty().dtype() != Some(DataType::Fp16) {
            return None;
        }
        let blocks = scale.ty().shape().filter(|blocks| blocks.len() == shape.len())?;
        let (rows, cols, count) = (shape[axis], shape[axis + 1], blocks[axis + 1]);
        if blocks[axis] != rows || count == 0 {
            return None;
        }
        let form = CodedForm::Scaled { block: cols / count };
        Some(CodedWeight {
            rows,
            cols,
            codes: data.shared(self.weights)?,
            values: scale.shared(self.weights)?,
            bits,
            form,
        })
    }

    /// Indices into one palette, or into one for each group of rows (iOS 18).
    fn palette_codes(&self, args: &Args<'a>, shape: &[usize], axis: usize) -> Option<CodedWeight> {
        let (indices, lut) = (args.constant("indices")?, args.constant("lut")?);
        let extents = lut.ty().shape().filter(|extents| extents.len() == shape.len() + 2)?;
        let (groups, entries) = extents.split_at(shape.len());
        let bits = indices.ty().dtype()?.bits()?;
        let by_rows = groups.iter().enumerate().all(|(i, n)| *n == 1 || i == axis);
        if !by_rows || entries != [1 << bits.min(8), 1] || lut.ty().dtype() != Some(DataType::Fp16) {
            return None;
        }
        let (rows, cols, form) = (shape[axis], shape[axis + 1], CodedForm::Palette { tables: groups[axis] });
        Some(CodedWeight {
            rows,
            cols,
            codes: indices.shared(self.weights)?,
            values: lut.shared(self.weights)?,
            bits,
            form,
        })
    }

    /// Lowers a product with a coded weight.
    pub(super) fn coded_product(&mut self, op: &'a Op, args: &Args<'a>, weight: Arc<CodedWeight>) -> Result<()> {
        let y = op.outputs[0];
        let mut x = self.operand(args, op, "x")?;
        if op.name == "matmul" && x.shape.len() > 1 && args.flag("transpose_x")? {
            x = swapped(&x);
        }
        let x = self.float(x)?;
        // Channels of a sequence are not the last axis.
        let turned = op.name == "conv";
        let (rows, cols) = (x.elements() / weight.cols.max(1), weight.cols);
        let matrix = |view: &View, width: usize| match turned {
            true => view.reshaped(&[width, rows]).map(|view| swapped(&view)),
            false => view.reshaped(&[rows, width]),
        };
        let from = match matrix(&x, cols) {
            Some(from) => from,
            None => {
                let dense = self.dense(&x, x.storage)?;
                matrix(&dense, cols).ok_or_else(|| args.unsupported("an operand of this layout"))?
            }
        };
        let bias = if op.name == "matmul" { None } else { self.bias(op, args)? };
        let wanted = self.result(y)?;
        let to = self.apart(&wanted, std::slice::from_ref(&x));
        let (to, out) = match matrix(&to, weight.rows).filter(separate) {
            Some(out) => (to, out),
            None => {
                let fresh = self.fresh(wanted.storage, &wanted.shape.clone(), None);
                let out = matrix(&fresh, weight.rows);
                (fresh, out.ok_or_else(|| args.unsupported("a result of this layout"))?)
            }
        };
        if !matches!(out.storage, Storage::F16 | Storage::F32) {
            return Err(args.unsupported("a result that is not a float"));
        }
        let step = CodedMatmul { weight, bias: bias.is_some(), round: self.policy.rounds(self.dtype(y)?) };
        let mut reads = vec![from];
        reads.extend(bias);
        self.push(StepKind::CodedMatmul(step), reads, vec![out])?;
        self.settle(y, to)
    }
}
