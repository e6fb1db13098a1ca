//! Softmax down columns: the axis is not the innermost one in memory, as with the classes of each
//! pixel.
//!
//! Some neighboring columns are computed together, as vectors. Each has the bits of
//! [`rows::softmax`](super::rows::softmax), whose lanes are rows here.

use ferrane_device::Result;
use ferrane_host::{simd, vectorize};

use crate::ir::Nest;

use super::memory::{Reads, Writes};
use super::nest::{Odometer, divide, runs};
use super::rows::{GRAIN, LANES, load_row, store_row};
use super::{Table, scratch};

/// Columns that are computed together.
const WIDTH: usize = 64;

/// The fewest columns, and the longest: their values stay in the L2 cache.
const LEAST: usize = 8;
const LONGEST: usize = 2048;

/// True if the last loop of the nest is along columns that lie side by side, and the table has no
/// arithmetic of its own for a softmax.
pub(super) fn has_columns(table: &Table, nest: &Nest) -> bool {
    let inner = nest.depth() - 1;
    inner > 0
        && table.hardware.is_none()
        && !table.wide_sums
        && nest.strides.iter().all(|strides| strides[inner - 1] == 1 && strides[inner] != 1)
        && nest.extents[inner - 1] >= LEAST
        && nest.extents[inner] <= LONGEST
}

/// Softmax along the last loop of a nest that [has columns](has_columns).
pub(super) fn softmax(
    table: &Table,
    nest: &Nest,
    round: bool,
    reads: &Reads<'_>,
    bases: &[usize],
    writes: Writes<'_>,
) -> Result<()> {
    let inner = nest.depth() - 1;
    let (across, length) = (inner - 1, nest.extents[inner]);
    let tasks = scratch::Tasks::default();
    divide(nest, 1, writes, GRAIN, &|first, last, mut writes| {
        tasks.with((length + LANES + 1) * WIDTH, |memory| {
            let (values, sums) = memory.split_at_mut(length * WIDTH);
            values.fill(0.0);
            let (count, columns) = runs(nest, across, first, last);
            let mut place = Odometer::new(nest, 1, first, bases);
            for _ in 0..count {
                for column in (0..columns).step_by(WIDTH) {
                    let width = WIDTH.min(columns - column);
                    let at = |operand: usize, row: usize| {
                        place.offsets[operand] + column as isize + row as isize * nest.strides[operand][inner]
                    };
                    for (row, to) in values.chunks_exact_mut(WIDTH).enumerate() {
                        load_row(&reads[0], at(1, row), 1, &mut to[..width]);
                    }
                    probabilities(values, sums);
                    if round {
                        table.round(values);
                    }
                    for (row, from) in values.chunks_exact(WIDTH).enumerate() {
                        store_row(&mut writes[0], at(0, row), 1, &from[..width]);
                    }
                }
                if across > 0 {
                    place.advance(nest, across);
                }
            }
        });
    });
    tasks.end()
}

/// e^(v - max) over their sum, in place, for each of [`WIDTH`] columns.
fn probabilities(values: &mut [f32], sums: &mut [f32]) {
    let (lanes, most) = sums.split_at_mut(LANES * WIDTH);
    vectorize!({
        let (rows, _) = values.as_chunks_mut::<WIDTH>();
        let (lanes, _) = lanes.as_chunks_mut::<WIDTH>();
        let Some(most) = most.first_chunk_mut::<WIDTH>() else { return };
        *most = [f32::NEG_INFINITY; WIDTH];
        for row in rows.iter() {
            for c in 0..WIDTH {
                most[c] = if row[c] > most[c] { row[c] } else { most[c] };
            }
        }
        lanes.fill([0.0; WIDTH]);
        for (i, row) in rows.iter_mut().enumerate() {
            let lane = &mut lanes[i % LANES];
            for c in 0..WIDTH {
                row[c] = simd::exp(row[c] - most[c]);
                lane[c] += row[c];
            }
        }
        let mut scale = [0.0; WIDTH];
        for lane in lanes.iter() {
            for c in 0..WIDTH {
                scale[c] += lane[c];
            }
        }
        for c in 0..WIDTH {
            scale[c] = 1.0 / scale[c];
        }
        for row in rows.iter_mut() {
            for c in 0..WIDTH {
                row[c] *= scale[c];
            }
        }
    });
}
