//! Groups that a fused loop computes, in one pass over memory.

use ferrane_host::fused::{self, Rows};

use crate::ir::{FusedLoop, Group};

use super::memory::{Reads, Slice, SliceMut, Writes};
use super::nest::{Odometer, runs};

/// Computes a piece of the outermost loop, as [`super::group`] would. False if the group has no
/// fused loop.
pub(super) fn run(
    group: &Group,
    reads: &Reads<'_>,
    bases: &[usize],
    writes: &mut Writes<'_>,
    first: usize,
    last: usize,
) -> bool {
    let (Some(fused_loop), SliceMut::F16(to)) = (group.fused, &mut writes[0]) else { return false };
    let (nest, outs) = (&group.nest, group.stores.len());
    let inner = nest.depth() - 1;
    let (rows, length) = runs(nest, inner, first, last);
    // No stride of a fused loop is negative.
    let pitch = |operand: usize| if inner > 0 { nest.strides[operand][inner - 1] as usize } else { 0 };
    let mut place = Odometer::new(nest, outs, first, bases);
    let mut done = 0;
    while done < rows {
        let run = place.run(nest, inner).min(rows - done);
        let read = |i: usize| {
            let values = match &reads[i] {
                Slice::F16(values) => &values[place.offsets[outs + i] as usize..],
                // Refused by the plan.
                _ => &[],
            };
            Rows { values, pitch: pitch(outs + i) }
        };
        let (to, to_pitch) = (&mut to[place.offsets[0] as usize..], pitch(0));
        match fused_loop {
            FusedLoop::Gate(f, from) => fused::gate(f, (to, to_pitch), from.map(read), run, length),
            FusedLoop::Rotation { back, from } => {
                let behind = group.joined.first().map_or(0, |joined| joined.1);
                fused::rotate(back, (to, to_pitch, behind), from.map(read), run, length);
            }
        }
        place.skip(nest, inner, run);
        done += run;
    }
    true
}
