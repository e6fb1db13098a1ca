//! Values of which each rank has a part, passed on to all ranks or to the first.

use std::io;
use std::ops::Range;

use super::sum::{PIECE, each, pieces_of, send};
use super::{RankError, Ranks};

impl Ranks {
    /// Overwrites the values that other ranks have computed with theirs. Rank `i` has those in
    /// range `i` of all values of `slices`, one slice after the other; the lengths are the same on
    /// all ranks. Each part goes around the ring of ranks once.
    ///
    /// # Errors
    /// As [`Communicator::send`](super::Communicator::send); the values are undefined then.
    pub(crate) fn gather(&mut self, slices: &mut [&mut [f32]], parts: &[Range<usize>]) -> Result<(), RankError> {
        let Some(with) = &mut self.with else { return Ok(()) };
        let lengths: Vec<usize> = slices.iter().map(|slice| slice.len()).collect();
        let (rank, size) = (with.rank(), with.size());
        let (before, after) = ((rank + size - 1) % size, (rank + 1) % size);
        let mut buffer = vec![0f32; PIECE.min(lengths.iter().sum())];
        for (owner, part) in parts.iter().enumerate() {
            for piece in pieces_of(&lengths, part.clone()) {
                let buffer = &mut buffer[..piece.iter().map(|(_, range)| range.len()).sum()];
                if rank != owner {
                    with.receive(before, bytemuck::cast_slice_mut(buffer))?;
                    each(&piece, buffer, |index, range, values| slices[index][range].copy_from_slice(values));
                }
                if after != owner {
                    send(&mut **with, after, &piece, slices, buffer)?;
                }
            }
        }
        Ok(())
    }

    /// Sends values to the first rank, which takes them with [`Ranks::take`].
    ///
    /// # Errors
    /// As [`Communicator::send`](super::Communicator::send).
    pub(crate) fn give(&mut self, values: &[f32]) -> Result<(), RankError> {
        let Some(with) = &mut self.with else { return Ok(()) };
        values.chunks(PIECE).try_for_each(|piece| with.send(0, bytemuck::cast_slice(piece)))
    }

    /// Receives `count` values of another rank and calls `use_them` with some at a time. Values are
    /// received to the end even if that fails, so that the ranks stay in step.
    ///
    /// # Errors
    /// Those of `use_them`; a lost rank as an error of the kind `Other`.
    pub(crate) fn take(
        &mut self,
        from: usize,
        count: usize,
        use_them: &mut dyn FnMut(&[f32]) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(with) = &mut self.with else { return Ok(()) };
        let (mut buffer, mut done, mut result) = (vec![0f32; PIECE.min(count)], 0, Ok(()));
        while done < count {
            let piece = &mut buffer[..PIECE.min(count - done)];
            with.receive(from, bytemuck::cast_slice_mut(piece)).map_err(io::Error::other)?;
            done += piece.len();
            if result.is_ok() {
                result = use_them(piece);
            }
        }
        result
    }
}
