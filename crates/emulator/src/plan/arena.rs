//! Memory layout: the arena is assigned by live ranges, constants are laid out one after the other.

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_host::buffer::ALIGN;

use crate::ir::{Buffer, MemorySpace, Step};

fn too_large() -> Error {
    Error::new(ErrorKind::OutOfMemory, "the program's values need more memory than can be addressed")
}

/// Bytes of a buffer, rounded up to whole cache lines so that neighbors share none.
fn size(buffer: &Buffer<'_>) -> Result<usize> {
    let bytes = buffer.bytes().and_then(|b| b.max(1).checked_next_multiple_of(ALIGN));
    bytes.filter(|&b| b <= isize::MAX as usize).ok_or_else(too_large)
}

/// Assigns each arena buffer its offset; buffers that are never live together may overlap. Returns
/// the arena's size in bytes.
///
/// Large buffers come first, each at the lowest offset where it fits. This is simple, and close to
/// the optimum for layered programs.
pub(super) fn assign(buffers: &mut [Buffer<'_>], steps: &[Step]) -> Result<usize> {
    let mut alive: Vec<Option<(usize, usize)>> = vec![None; buffers.len()];
    for (at, step) in steps.iter().enumerate() {
        for view in step.reads.iter().chain(&step.writes) {
            let range = alive[view.buffer].get_or_insert((at, at));
            range.1 = at;
        }
    }
    let mut order: Vec<usize> =
        (0..buffers.len()).filter(|&b| buffers[b].space == MemorySpace::Arena && alive[b].is_some()).collect();
    let mut sizes = vec![0; buffers.len()];
    for &b in &order {
        sizes[b] = size(&buffers[b])?;
    }
    order.sort_by_key(|&b| (std::cmp::Reverse(sizes[b]), b));
    let mut placed: Vec<usize> = Vec::new();
    let mut total = 0usize;
    for b in order {
        let together = |&&other: &&usize| match (alive[b], alive[other]) {
            (Some(x), Some(y)) => x.0 <= y.1 && y.0 <= x.1,
            _ => false,
        };
        let mut taken: Vec<(usize, usize)> =
            placed.iter().filter(together).map(|&o| (buffers[o].start, buffers[o].start + sizes[o])).collect();
        taken.sort_unstable();
        let mut start = 0;
        for (from, to) in taken {
            if start + sizes[b] <= from {
                break;
            }
            start = start.max(to);
        }
        buffers[b].start = start;
        total = total.max(start.checked_add(sizes[b]).ok_or_else(too_large)?);
        placed.push(b);
    }
    Ok(total)
}

/// Lays out the constants that a step uses; the others lose their content. Returns their total size
/// in bytes.
pub(super) fn assign_constants<'s>(buffers: &mut [Buffer<'_>], steps: impl Iterator<Item = &'s Step>) -> Result<usize> {
    let mut used = vec![false; buffers.len()];
    for view in steps.flat_map(|step| step.reads.iter().chain(&step.writes)) {
        used[view.buffer] = true;
    }
    let mut total = 0usize;
    for (buffer, used) in buffers.iter_mut().zip(used).filter(|(b, _)| b.space == MemorySpace::Constant) {
        if !used {
            buffer.data = None;
            continue;
        }
        buffer.start = total;
        total = total.checked_add(size(buffer)?).ok_or_else(too_large)?;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Nest, StepKind, Storage, View};

    fn buffer(elements: usize) -> Buffer<'static> {
        Buffer { space: MemorySpace::Arena, storage: Storage::U8, elements, sole: true, data: None, start: 0 }
    }

    fn step(reads: &[usize], writes: &[usize]) -> Step {
        let view = |&b: &usize| View::dense(b, Storage::U8, &[1]);
        let nest = Nest { extents: vec![1], strides: vec![vec![1]], divisible: true };
        let (reads, writes) = (reads.iter().map(view).collect(), writes.iter().map(view).collect());
        Step { op: String::new(), value: String::new(), reads, writes, kind: StepKind::Move(nest) }
    }

    #[test]
    fn buffers_share_only_when_never_alive_together() {
        let mut buffers = vec![buffer(256), buffer(256), buffer(128), buffer(256)];
        // 0 → 1 → 2 → 3: neighbors are alive together, 0 and 2 are not, nor 0 and 3.
        let steps = [step(&[], &[0]), step(&[0], &[1]), step(&[1], &[2]), step(&[2], &[3])];
        let total = assign(&mut buffers, &steps).unwrap();
        // 896 bytes in all; 0 and 3 share.
        assert_eq!(total, 640);
        let apart = |a: usize, b: usize| {
            let end = |i: usize| buffers[i].start + buffers[i].elements;
            end(a) <= buffers[b].start || end(b) <= buffers[a].start
        };
        assert!(apart(0, 1) && apart(1, 2) && apart(2, 3));
    }

    #[test]
    fn sizes_beyond_the_address_space_are_errors() {
        let mut buffers = vec![Buffer { storage: Storage::F32, ..buffer(usize::MAX / 2) }];
        assert_eq!(assign(&mut buffers, &[step(&[], &[0])]).unwrap_err().kind(), ErrorKind::OutOfMemory);
    }
}
