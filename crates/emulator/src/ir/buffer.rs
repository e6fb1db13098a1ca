//! Buffers: the memory of a plan's values.

use std::borrow::Cow;
use std::sync::Arc;

use ferrane_host::buffer::AllocError;
use ferrane_host::conv::{ByteConv, Conv, Weights};
use ferrane_host::{convert, f16};

use super::view::Storage;

/// The memory that a buffer is in during an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemorySpace {
    /// Weights, and what is computed from them at compile time.
    Constant,
    /// Intermediate values of one evaluation.
    Arena,
    /// The surface of an input, by its position among the procedure's inputs.
    Input(usize),
    /// The surface of an output, by its position among the procedure's outputs.
    Output(usize),
    /// The surface of a state, by its position among the procedure's states.
    State(usize),
}

/// A range of bytes in a memory space, and how its elements are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub space: MemorySpace,
    pub start: usize,
    pub end: usize,
    pub storage: Storage,
}

/// A buffer while the plan is made.
#[derive(Clone, Debug)]
pub(crate) struct Buffer<'a> {
    pub space: MemorySpace,
    pub storage: Storage,
    pub elements: usize,
    /// A single step writes all of it, so it may become a constant.
    pub sole: bool,
    /// What a constant holds that no step computes.
    pub data: Option<ConstantContent<'a>>,
    /// Offset in its memory space, in bytes.
    pub start: usize,
}

impl Buffer<'_> {
    /// Size in bytes; `None` if it exceeds the address space.
    pub(crate) fn bytes(&self) -> Option<usize> {
        self.elements.checked_mul(self.storage.bytes())
    }
}

/// The bytes of a constant. Large ones are converted only when they are written to the memory of
/// the plan, so that nothing is held twice.
#[derive(Clone, Debug)]
pub(crate) enum ConstantContent<'a> {
    /// As the program states them.
    Stated(&'a [u8]),
    /// Made by the lowering.
    Made(Vec<u8>),
    /// fp16 bytes, as fp32.
    Widened(&'a [u8]),
    /// Weights in the order of a convolution.
    Packed(Arc<Conv>, WeightBytes<'a>),
    /// int8 codes in the order of a convolution of bytes.
    PackedBytes(Arc<ByteConv>, Cow<'a, [u8]>),
}

/// The weights of a convolution, dense, one row for each output channel.
#[derive(Clone, Debug)]
pub(crate) enum WeightBytes<'a> {
    F16(&'a [u8]),
    F32(&'a [u8]),
    /// Decompressed by the lowering.
    Made(Vec<f32>),
}

impl ConstantContent<'_> {
    /// The bytes, if they are known before the plan is made.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            ConstantContent::Stated(bytes) => Some(bytes),
            ConstantContent::Made(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Writes the content to the buffer's memory.
    ///
    /// # Errors
    /// A description of what does not fit.
    pub(crate) fn write(&self, to: &mut [u8]) -> Result<(), String> {
        match self {
            ConstantContent::Stated(bytes) => copy(bytes, to),
            ConstantContent::Made(bytes) => copy(bytes, to),
            ConstantContent::Widened(bytes) => {
                let to: &mut [f32] = bytemuck::try_cast_slice_mut(to).map_err(|e| e.to_string())?;
                let from = aligned::<f16>(bytes).map_err(|e| e.to_string())?;
                let to = to.get_mut(..from.len()).ok_or("a constant is larger than its buffer")?;
                convert::f16_to_f32(&from, to);
                Ok(())
            }
            ConstantContent::Packed(conv, weights) => {
                let to: &mut [f32] = bytemuck::try_cast_slice_mut(to).map_err(|e| e.to_string())?;
                weights.with(|weights| conv.pack(weights, to).map_err(|e| e.to_string()))?
            }
            ConstantContent::PackedBytes(conv, codes) => {
                conv.pack(bytemuck::cast_slice(codes), bytemuck::cast_slice_mut(to)).map_err(|e| e.to_string())
            }
        }
    }
}

fn copy(from: &[u8], to: &mut [u8]) -> Result<(), String> {
    to.get_mut(..from.len()).ok_or("a constant is larger than its buffer")?.copy_from_slice(from);
    Ok(())
}

/// The elements of bytes, copied if they are not aligned.
fn aligned<T: bytemuck::Pod>(bytes: &[u8]) -> Result<Cow<'_, [T]>, AllocError> {
    if let Ok(elements) = bytemuck::try_cast_slice(bytes) {
        return Ok(elements.into());
    }
    let (whole, mut copied) = (bytes.len() / size_of::<T>() * size_of::<T>(), Vec::new());
    copied.try_reserve_exact(whole / size_of::<T>()).map_err(|_| AllocError { len: whole })?;
    copied.extend(bytes[..whole].chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>));
    Ok(copied.into())
}

impl WeightBytes<'_> {
    /// Calls `run` with the elements.
    ///
    /// # Errors
    /// No memory for a copy of bytes that are not aligned.
    pub(crate) fn with<R>(&self, run: impl FnOnce(Weights<'_>) -> R) -> Result<R, String> {
        Ok(match self {
            WeightBytes::F16(bytes) => run(Weights::F16(&aligned(bytes).map_err(|e| e.to_string())?)),
            WeightBytes::F32(bytes) => run(Weights::F32(&aligned(bytes).map_err(|e| e.to_string())?)),
            WeightBytes::Made(values) => run(Weights::F32(values)),
        })
    }
}
