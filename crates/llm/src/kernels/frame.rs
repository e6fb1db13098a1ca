//! The frame of every kernel: declares the inputs, slices out regions, multiplies by weights, and
//! concatenates the taps.
//!
//! A weight is an input or a constant, and only this module knows which. A product with an input is
//! `matmul` over rows; one with a constant is `conv` with a filter of one element, which the engine
//! reads from its own memory and which takes activations as they lie (training-static §1).
//! [`Frame::rows`] and [`Frame::columns`] then return what they are given.

use ferrane_host::convert;
use ferrane_mil::{Builder, Conv, DataType, MilError, Opset, Program, Transpose, Type, ValueId};
use half::f16;

use super::ModelConstants;
use super::ops::{self, OpResult, int};
use crate::layout::{Activation, Content, Input, KernelLayout, OUTPUT, Region, Shape};
use crate::weights::Layer;

/// Which way round a matrix is multiplied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MatrixOrder {
    /// As its region holds it, `[in, out]`.
    AsStaged,
    /// The region holds `[out, in]`.
    Swapped,
}

/// A program being built, with its layout.
pub(super) struct Frame<'a> {
    pub(super) shape: &'a Shape,
    pub(super) layout: &'a KernelLayout,
    pub(super) b: Builder,
    inputs: Vec<(Input, ValueId)>,
    /// The layer whose weights are constants.
    layer: Option<&'a Layer>,
    /// The constants of a kernel of the model.
    pub(super) model: Option<ModelConstants<'a>>,
}

impl<'a> Frame<'a> {
    /// Declares the inputs of the layout in its order. `layer` or `model` has the weights that are
    /// constants.
    pub(super) fn new(
        shape: &'a Shape,
        layout: &'a KernelLayout,
        layer: Option<&'a Layer>,
        model: Option<ModelConstants<'a>>,
    ) -> Result<Frame<'a>, MilError> {
        let mut b = Builder::new("main", Opset::IOS18);
        let mut inputs = Vec::new();
        for input in &layout.inputs {
            let ty = Type::tensor(DataType::Fp16, &[1, input.channels, 1, input.width]);
            inputs.push((*input, b.input(input.name, ty)?));
        }
        Ok(Frame { shape, layout, b, inputs, layer, model })
    }

    fn find(&self, name: &str) -> Result<Region, MilError> {
        let missing = || MilError::Invalid { reason: format!("no region `{name}`") };
        self.layout.regions.iter().find(|r| r.name == name).copied().ok_or_else(missing)
    }

    fn has_constants(&self) -> bool {
        self.shape.pipeline.has_constants()
    }

    /// A region as `[1, channels, 1, len]`: a slice of its input, or the input itself if the region
    /// covers it, or a constant.
    pub(super) fn region(&mut self, name: &str) -> OpResult {
        let region = self.find(name)?;
        if self.has_constants() && region.content != Content::Activation {
            return self.constant(&region, [1, region.channels, 1, region.len], MatrixOrder::AsStaged);
        }
        let missing = || MilError::Invalid { reason: format!("no input of region `{name}`") };
        let (input, x) = *self.inputs.iter().find(|(i, _)| i.name == region.port).ok_or_else(missing)?;
        if (input.channels, input.width) == (region.channels, region.len) {
            return Ok(x);
        }
        let begin = [0, region.channel, 0, region.offset].map(int);
        let size = [1, region.channels, 1, region.len].map(int);
        self.b.slice_by_size(&format!("{name}_in"), x, &begin, &size)
    }

    /// The region of an activation.
    pub(super) fn activation(&mut self, activation: Activation) -> OpResult {
        self.region(activation.name())
    }

    pub(super) fn reshape(&mut self, name: &str, x: ValueId, shape: [usize; 4]) -> OpResult {
        ops::reshape(&mut self.b, name, x, shape)
    }

    /// Swaps the last two axes.
    pub(super) fn swap(&mut self, name: &str, x: ValueId) -> OpResult {
        self.b.transpose(name, x, &[0, 1, 3, 2])
    }

    /// An activation `[1, C, 1, seq]` as the operand of products: rows `[1, 1, seq, C]`.
    pub(super) fn rows(&mut self, name: &str, x: ValueId, channels: usize) -> OpResult {
        if self.has_constants() {
            return Ok(x);
        }
        let seq = self.layout.seq;
        let flat = self.reshape(&format!("{name}_2d"), x, [1, 1, channels, seq])?;
        self.swap(&format!("{name}_t"), flat)
    }

    /// A product, or a sum of them, as an activation `[1, C, 1, seq]`.
    pub(super) fn columns(&mut self, name: &str, rows: ValueId, channels: usize) -> OpResult {
        if self.has_constants() {
            return Ok(rows);
        }
        let seq = self.layout.seq;
        let flat = self.swap(&format!("{name}_t"), rows)?;
        self.reshape(name, flat, [1, channels, 1, seq])
    }

    /// A weight as the second operand of products: a matrix `[1, 1, in, out]`, or a filter.
    pub(super) fn matrix(&mut self, name: &str, order: MatrixOrder) -> OpResult {
        let region = self.find(name)?;
        if self.has_constants() {
            // A filter is `[out, in]`.
            let (ins, outs, order) = match order {
                MatrixOrder::AsStaged => (region.channels, region.len, MatrixOrder::Swapped),
                MatrixOrder::Swapped => (region.len, region.channels, MatrixOrder::AsStaged),
            };
            return self.constant(&region, [outs, ins, 1, 1], order);
        }
        let w = self.region(name)?;
        let matrix = self.reshape(&format!("{name}_2d"), w, [1, 1, region.channels, region.len])?;
        match order {
            MatrixOrder::AsStaged => Ok(matrix),
            MatrixOrder::Swapped => self.swap(&format!("{name}_t"), matrix),
        }
    }

    /// The product of [`Frame::rows`] and a [`Frame::matrix`].
    pub(super) fn product(&mut self, name: &str, rows: ValueId, matrix: ValueId) -> OpResult {
        if self.has_constants() {
            return self.b.conv(name, rows, matrix, None, &Conv::default());
        }
        self.b.matmul(name, rows, matrix, Transpose::Neither)
    }

    /// A weight of the layer, rounded to fp16, as a constant: what its region would hold, or the
    /// transpose of that.
    fn constant(&mut self, region: &Region, shape: [usize; 4], order: MatrixOrder) -> OpResult {
        let Content::Weight { part, transposed } = region.content else {
            return Err(MilError::Invalid { reason: format!("`{}` is no weight", region.name) });
        };
        let invalid = |what: &str| MilError::Invalid { reason: format!("{what} weight `{}`", region.name) };
        let values = self.layer.ok_or_else(|| invalid("no layer with"))?.part(part).ok_or_else(|| invalid("no"))?;
        let (rows, cols) = if transposed { (region.len, region.channels) } else { (region.channels, region.len) };
        if values.len() != rows * cols {
            return Err(invalid("wrong size of"));
        }
        let mut words = vec![f16::ZERO; values.len()];
        if transposed == (order == MatrixOrder::Swapped) {
            convert::f32_rows_to_f16(values, cols, &mut words, cols, rows, cols);
        } else {
            convert::f32_to_f16_transposed(values, cols, &mut words, rows, rows, cols);
        }
        self.words(region.name, &words, shape)
    }

    /// Values, rounded to fp16, as a constant.
    pub(super) fn rounded_constant(&mut self, name: &str, values: &[f32], shape: [usize; 4]) -> OpResult {
        let mut words = vec![f16::ZERO; values.len()];
        convert::f32_to_f16(values, &mut words);
        self.words(name, &words, shape)
    }

    fn words(&mut self, name: &str, words: &[f16], shape: [usize; 4]) -> OpResult {
        let bytes: Vec<u8> = words.iter().flat_map(|v| v.to_le_bytes()).collect();
        let file = format!("@model_path/weights/{name}.bin");
        self.b.weight(&format!("{name}_const"), &file, DataType::Fp16, &shape, bytes)
    }

    /// An activation `[1, heads · head_dim, 1, seq]` as `[1, heads, seq, head_dim]`.
    pub(super) fn split_heads(&mut self, name: &str, x: ValueId, heads: usize) -> OpResult {
        let (hd, seq) = (self.shape.config.head_dim, self.layout.seq);
        let split = self.reshape(&format!("{name}_split"), x, [1, heads, hd, seq])?;
        self.swap(&format!("{name}_heads"), split)
    }

    /// `[1, heads, seq, head_dim]` as an activation `[1, heads · head_dim, 1, seq]`.
    pub(super) fn join_heads(&mut self, name: &str, x: ValueId, heads: usize) -> OpResult {
        let (hd, seq) = (self.shape.config.head_dim, self.layout.seq);
        let t = self.swap(&format!("{name}_t"), x)?;
        self.reshape(name, t, [1, heads * hd, 1, seq])
    }

    /// Ends the kernel with the taps, in the layout's order, concatenated along the channels.
    pub(super) fn finish(mut self, taps: &[ValueId]) -> Result<Program, MilError> {
        if taps.len() != self.layout.taps.len() {
            return Err(MilError::Invalid { reason: "taps and layout differ".into() });
        }
        let out = match taps {
            [one] => *one,
            _ => self.b.concat(OUTPUT, taps, 1)?,
        };
        self.b.finish(&[(OUTPUT, out)])
    }
}
