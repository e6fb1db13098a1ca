//! Sums and means over the pixels of a channels-last image: down the columns of a tall matrix.
//!
//! Rows are added in pieces, and short rows several at a time. How many depends on the shape alone,
//! so the order of a sum, and its bits, do not depend on the threads.

use ferrane_device::Result;
use ferrane_host::{convert, pool, vectorize};

use super::memory::Slice;
use super::scratch;

/// Elements that are summed together.
const WIDE: usize = 256;
/// Pieces of a large matrix.
const PIECES: usize = 4;
/// Elements of a matrix that is summed in pieces.
const LARGE: usize = 32 << 10;

/// The rows of a matrix: the first element, the number of rows, and the distance of neighboring
/// ones.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    pub at: usize,
    pub rows: usize,
    pub pitch: usize,
    pub width: usize,
}

/// Calls `done` with the sum of each column.
pub(super) fn sums(slice: &Slice<'_>, columns: Columns, done: impl FnOnce(&mut [f32])) -> Result<()> {
    let Columns { rows, width, .. } = columns;
    let pieces = if rows * width >= LARGE { PIECES.min(rows) } else { 1 };
    let tasks = scratch::Tasks::default();
    scratch::with(pieces * width, |sums| {
        pool::for_each_chunk_mut(sums, width, |piece, sums| {
            let (first, last) = (piece * rows / pieces, (piece + 1) * rows / pieces);
            tasks.with(2 * (WIDE + width), |memory| {
                let (wide, row) = memory.split_at_mut(WIDE + width);
                piece_sums(slice, columns, first, last, sums, wide, row);
            });
        });
        let (sums, others) = sums.split_at_mut(width);
        others.chunks_exact(width).for_each(|other| add(sums, other));
        done(sums);
    })?;
    tasks.end()
}

fn piece_sums(
    slice: &Slice<'_>,
    Columns { at, pitch, width, .. }: Columns,
    first: usize,
    last: usize,
    sums: &mut [f32],
    wide: &mut [f32],
    widened: &mut [f32],
) {
    // Dense rows are neighbors: several are one long row.
    let together = if pitch == width { (WIDE / width).max(1) } else { 1 };
    let long = together * width;
    let wide = &mut wide[..long];
    wide.fill(0.0);
    sums.fill(0.0);
    let mut add_row = |row: usize, sums: &mut [f32]| {
        let (from, length) = (at + row * pitch, sums.len());
        match slice {
            Slice::F32(s) => add(sums, &s[from..from + length]),
            Slice::F16(s) => {
                convert::f16_to_f32(&s[from..from + length], &mut widened[..length]);
                add(sums, &widened[..length]);
            }
            _ => {}
        }
    };
    let rest = last - (last - first) % together;
    (first..rest).step_by(together).for_each(|row| add_row(row, wide));
    (rest..last).for_each(|row| add_row(row, sums));
    wide.chunks_exact(width).for_each(|wide| add(sums, wide));
}

fn add(sums: &mut [f32], row: &[f32]) {
    vectorize!({
        for (sum, v) in sums.iter_mut().zip(row) {
            *sum += v;
        }
    });
}
