//! Constants in the order of the loops that read them.
//!
//! The loops of an element-wise group follow the memory of its result. A table that lies in another
//! order, as that of a rotary embedding whose queries are stored channel by channel, would be
//! gathered element by element in every evaluation. A copy in the right order is made once, when
//! the program is compiled.

use super::build::Lowering;
use crate::ir::{ConstantContent, Nest, View, row_major};

/// The most elements of a copy. Larger constants are rare, and nothing should be held twice.
const MOST: usize = 1 << 18;
/// Elements at a distance of at most this many are read in vectors.
const NEAR: usize = 2;

impl Lowering<'_> {
    /// Replaces constants among the reads of a group by copies whose elements are neighbors along
    /// the innermost loop. Reads have the shape of the group, whose loops have the order of
    /// `write`.
    pub(super) fn order_constants(&mut self, reads: &mut [View], write: &View) {
        let axes = Nest::axes(&write.shape, write);
        let Some(&inner) = axes.last() else { return };
        for read in reads.iter_mut().filter(|read| read.strides[inner].unsigned_abs() > NEAR) {
            let axes: Vec<usize> = axes.iter().copied().filter(|&axis| read.strides[axis] != 0).collect();
            let extents: Vec<usize> = axes.iter().map(|&axis| read.shape[axis]).collect();
            if extents.iter().product::<usize>() > MOST {
                continue;
            }
            let strides: Vec<isize> = axes.iter().map(|&axis| read.strides[axis]).collect();
            let data = self.buffers[read.buffer].data.as_ref().and_then(ConstantContent::bytes);
            let Some(copy) = data.and_then(|data| gathered(data, read, &extents, &strides)) else { continue };
            let made = self.constant(read.storage, &extents, ConstantContent::Made(copy));
            (read.buffer, read.offset) = (made.buffer, made.offset);
            for (axis, stride) in axes.into_iter().zip(row_major(&extents)) {
                read.strides[axis] = stride;
            }
        }
    }
}

/// The bytes of a view's elements, the last of these axes innermost.
fn gathered(data: &[u8], view: &View, extents: &[usize], strides: &[isize]) -> Option<Vec<u8>> {
    let (size, elements) = (view.storage.bytes(), extents.iter().product::<usize>());
    let mut copy = Vec::with_capacity(elements * size);
    for element in 0..elements {
        let (mut at, mut rest) = (view.offset, element);
        for (&extent, &stride) in extents.iter().zip(strides).rev() {
            at = at.checked_add_signed((rest % extent) as isize * stride)?;
            rest /= extent;
        }
        copy.extend_from_slice(data.get(at * size..(at + 1) * size)?);
    }
    Some(copy)
}
