//! The frame of every kernel: declares the inputs, slices out regions, and concatenates the taps.

use ferrane_mil::{Builder, DataType, MilError, Opset, Program, Type, ValueId};

use super::ops::{self, OpResult, int};
use crate::layout::{Activation, Input, KernelLayout, OUTPUT, Region, Shape};

/// A program being built, with its layout.
pub(super) struct Frame<'a> {
    pub(super) shape: &'a Shape,
    pub(super) layout: &'a KernelLayout,
    pub(super) b: Builder,
    inputs: Vec<(Input, ValueId)>,
}

impl<'a> Frame<'a> {
    /// Declares the inputs of the layout in its order.
    pub(super) fn new(shape: &'a Shape, layout: &'a KernelLayout) -> Result<Frame<'a>, MilError> {
        let mut b = Builder::new("main", Opset::IOS18);
        let mut inputs = Vec::new();
        for input in &layout.inputs {
            let ty = Type::tensor(DataType::Fp16, &[1, input.channels, 1, input.width]);
            inputs.push((*input, b.input(input.name, ty)?));
        }
        Ok(Frame { shape, layout, b, inputs })
    }

    /// A region as `[1, channels, 1, len]`: a slice of its input, or the input itself if the region
    /// covers it.
    pub(super) fn region(&mut self, name: &str) -> OpResult {
        let missing = || MilError::Invalid { reason: format!("no region `{name}`") };
        let region: Region = *self.layout.regions.iter().find(|r| r.name == name).ok_or_else(missing)?;
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

    /// An activation `[1, C, 1, seq]` as rows `[1, 1, seq, C]`.
    pub(super) fn rows(&mut self, name: &str, x: ValueId, channels: usize) -> OpResult {
        let seq = self.layout.seq;
        let flat = self.reshape(&format!("{name}_2d"), x, [1, 1, channels, seq])?;
        self.swap(&format!("{name}_t"), flat)
    }

    /// Rows `[1, 1, seq, C]` as an activation `[1, C, 1, seq]`.
    pub(super) fn columns(&mut self, name: &str, rows: ValueId, channels: usize) -> OpResult {
        let seq = self.layout.seq;
        let flat = self.swap(&format!("{name}_t"), rows)?;
        self.reshape(name, flat, [1, channels, 1, seq])
    }

    /// A weight region as a matrix `[1, 1, in, out]`.
    pub(super) fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> OpResult {
        let w = self.region(name)?;
        self.reshape(&format!("{name}_2d"), w, [1, 1, rows, cols])
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
