//! The layout of images: channels first, as tensors are stated, or channels last.
//!
//! A convolution with constant weights computes channels-last images, because the pixels under its
//! filter are runs of channels then (`host::conv`), and so does what follows it element by element,
//! window by window, or by joining channels. The order is only one of strides: an op that wants
//! another one reads these, or copies. Ports keep the layout that they have.

use ferrane_device::Result;
use ferrane_mil::{Op, ValueId};

use super::build::Lowering;
use super::elementwise::is_elementwise;
use crate::ir::{View, reshape_strides};

impl<'a> Lowering<'a> {
    /// Chooses the values whose channels are last, and the order of their memory.
    pub(super) fn find_images(&mut self) -> Result<()> {
        if !self.policy.fuses || self.policy.rules.is_some() {
            return Ok(());
        }
        for &id in &self.function.body().ops {
            let op = self.function.op(id);
            if op.name == "const" || !self.is_needed(op) || !self.makes_images(op)? {
                continue;
            }
            if op.name == "conv" {
                self.find_padding(op)?;
            }
            for &y in &op.outputs {
                let shape = self.shape(y)?;
                self.orders[y.index()] = Some(channels_last(&shape));
                self.images[y.index()] = true;
            }
        }
        Ok(())
    }

    fn makes_images(&mut self, op: &'a Op) -> Result<bool> {
        self.label = (op.name.clone(), String::new());
        let Some(&y) = op.outputs.first() else { return Ok(false) };
        let Some(shape) = self.function.value(y).ty.shape().filter(|s| s.len() >= 3) else { return Ok(false) };
        let is = |v: ValueId| self.images[v.index()];
        Ok(match op.name.as_str() {
            "conv" | "conv_transpose" => {
                let args = self.args(op)?;
                self.bytes[y.index()].is_some()
                    || args
                        .value("weight")
                        .is_none_or(|w| self.function.constant(w).is_some() || self.is_decompressed(w))
            }
            "max_pool"
            | "avg_pool"
            | "l2_pool"
            | "pad"
            | "identity"
            | "split"
            | "slice_by_index"
            | "slice_by_size"
            | "crop"
            | "pixel_shuffle"
            | "pixel_unshuffle"
            | "depth_to_space"
            | "space_to_depth"
            | "upsample_nearest_neighbor" => self.args(op)?.value("x").is_some_and(is),
            "concat" => {
                // The parts that are not images are turned when they are written to their slots.
                let elements = |v: ValueId| self.function.value(v).ty.elements().unwrap_or(0);
                let (mut images, mut others) = (0usize, 0usize);
                for value in self.args(op)?.values("values") {
                    let part = if is(value) { &mut images } else { &mut others };
                    *part = part.saturating_add(elements(value));
                }
                images > others
            }
            name if is_elementwise(name) => {
                op.operands().any(|v| is(v) && self.function.value(v).ty.shape().as_ref() == Some(&shape))
            }
            _ => false,
        })
    }

    /// True for the result of an op that decompresses constants.
    fn is_decompressed(&self, value: ValueId) -> bool {
        match self.function.value(value).def {
            ferrane_mil::ValueDef::Op(op, _) => self.function.op(op).name.starts_with("constexpr_"),
            _ => false,
        }
    }

    /// An image with its channels last: the view itself, or a copy.
    pub(super) fn with_channels_last(&mut self, x: &View) -> Result<View> {
        if x.strides[1] == 1 || x.shape[1] == 1 {
            return Ok(x.clone());
        }
        if let Some((_, turned)) = self.turned.iter().find(|(v, _)| v == x) {
            return Ok(turned.clone());
        }
        let to = self.fresh(x.storage, &x.shape, Some(channels_last(&x.shape)));
        self.copy(x, &to)?;
        self.turned.push((x.clone(), to.clone()));
        Ok(to)
    }
}

/// Dense strides of a tensor `[N, C, …]` whose second axis is innermost.
pub(super) fn channels_last(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; shape.len()];
    let mut span = shape[1] as isize;
    for axis in (2..shape.len()).rev().chain([0]) {
        strides[axis] = span;
        span *= shape[axis] as isize;
    }
    strides
}

/// Elements from one position to the next, if the channels of an image are neighbors and its
/// positions evenly spaced, and different images do not overlap.
pub(super) fn pixel_pitch(view: &View) -> Option<usize> {
    let (channels, places) = (view.shape[1], view.shape[2..].iter().product::<usize>());
    if channels > 1 && view.strides[1] != 1 {
        return None;
    }
    let merged = reshape_strides(&view.shape[2..], &view.strides[2..], &[places])?;
    let pitch = if places == 1 { channels } else { usize::try_from(merged[0]).ok()? };
    let apart = view.shape[0] == 1 || view.strides[0] >= (pitch * places) as isize;
    (pitch >= channels && apart).then_some(pitch)
}
