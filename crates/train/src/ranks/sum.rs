//! Sums of gradients over ranks, in the order of ranks.
//!
//! The values go through the ranks as a chain: each adds its own to what it receives and passes the
//! sum on, piece by piece, so that all ranks work at the same time. The last rank has the whole
//! sum, which then goes back the same way. Every rank sends and receives each value twice at most,
//! however many there are.

use std::ops::Range;

use super::{Communicator, RankError, Ranks};

/// Values of a message: large enough for the bandwidth of a network, small enough that a chain of
/// some ranks is soon busy.
pub(super) const PIECE: usize = 1 << 18;

impl Ranks {
    /// Replaces `own` by the sum over all ranks of `own`, and then each of `more`, in this order.
    /// On all ranks the slices of `own` have the same lengths, and so have those of each of `more`,
    /// of which there may be none.
    ///
    /// # Errors
    /// As [`Communicator::send`] and [`Communicator::receive`]; the values are undefined then.
    pub(crate) fn sum(&mut self, own: &mut [&mut [f32]], more: &[Vec<&[f32]>]) -> Result<(), RankError> {
        let lengths: Vec<usize> = own.iter().map(|slice| slice.len()).collect();
        let Some(with) = &mut self.with else {
            for more in more {
                own.iter_mut().zip(more).for_each(|(own, more)| add(own, more));
            }
            return Ok(());
        };
        let (rank, last) = (with.rank(), with.size() - 1);
        let mut buffer = vec![0f32; PIECE.min(lengths.iter().sum())];
        for piece in pieces(&lengths) {
            let buffer = &mut buffer[..piece.iter().map(|(_, range)| range.len()).sum()];
            if rank > 0 {
                with.receive(rank - 1, bytemuck::cast_slice_mut(buffer))?;
                each(&piece, buffer, |index, range, before| {
                    before.iter_mut().zip(&mut own[index][range]).for_each(|(before, own)| *own += *before);
                });
            }
            for more in more {
                piece
                    .iter()
                    .for_each(|(index, range)| add(&mut own[*index][range.clone()], &more[*index][range.clone()]));
            }
            if rank < last {
                send(&mut **with, rank + 1, &piece, own, buffer)?;
            }
        }
        for piece in pieces(&lengths) {
            let buffer = &mut buffer[..piece.iter().map(|(_, range)| range.len()).sum()];
            if rank < last {
                with.receive(rank + 1, bytemuck::cast_slice_mut(buffer))?;
                each(&piece, buffer, |index, range, sum| own[index][range].copy_from_slice(sum));
            }
            if rank > 0 {
                send(&mut **with, rank - 1, &piece, own, buffer)?;
            }
        }
        Ok(())
    }
}

fn add(own: &mut [f32], more: &[f32]) {
    own.iter_mut().zip(more).for_each(|(own, more)| *own += more);
}

/// Sends the values of a piece.
pub(super) fn send(
    with: &mut dyn Communicator,
    to: usize,
    piece: &[(usize, Range<usize>)],
    own: &mut [&mut [f32]],
    buffer: &mut [f32],
) -> Result<(), RankError> {
    each(piece, buffer, |index, range, to| to.copy_from_slice(&own[index][range]));
    with.send(to, bytemuck::cast_slice(buffer))
}

/// Calls `work` with each range of a piece and its part of the buffer.
pub(super) fn each(
    piece: &[(usize, Range<usize>)],
    buffer: &mut [f32],
    mut work: impl FnMut(usize, Range<usize>, &mut [f32]),
) {
    let mut rest = buffer;
    for (index, range) in piece {
        let (part, tail) = rest.split_at_mut(range.len());
        work(*index, range.clone(), part);
        rest = tail;
    }
}

/// Cuts slices of these lengths into pieces of [`PIECE`] values, the last of which may be shorter.
/// A piece is a list of slices and ranges of them.
fn pieces(lengths: &[usize]) -> Vec<Vec<(usize, Range<usize>)>> {
    pieces_of(lengths, 0..lengths.iter().sum())
}

/// As [`pieces`], of the values in a range of all.
pub(super) fn pieces_of(lengths: &[usize], range: Range<usize>) -> Vec<Vec<(usize, Range<usize>)>> {
    let (mut pieces, mut piece, mut free, mut before) = (Vec::new(), Vec::new(), PIECE, 0);
    for (index, &length) in lengths.iter().enumerate() {
        let clip = |end: usize| end.clamp(before, before + length) - before;
        let (mut at, end) = (clip(range.start), clip(range.end));
        before += length;
        while at < end {
            let count = free.min(end - at);
            piece.push((index, at..at + count));
            (at, free) = (at + count, free - count);
            if free == 0 {
                pieces.push(std::mem::take(&mut piece));
                free = PIECE;
            }
        }
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_all_values_once() {
        let lengths = [3, 0, PIECE - 3, PIECE + 5, 1];
        let pieces = pieces(&lengths);
        let sizes: Vec<usize> = pieces.iter().map(|piece| piece.iter().map(|(_, range)| range.len()).sum()).collect();
        assert_eq!(sizes, [PIECE, PIECE, 6]);
        for (index, length) in lengths.into_iter().enumerate() {
            let ranges: Vec<_> = pieces.iter().flatten().filter(|(at, _)| *at == index).map(|(_, r)| r).collect();
            let mut at = 0;
            for range in ranges {
                assert_eq!((range.start, range.end > at), (at, true));
                at = range.end;
            }
            assert_eq!(at, length);
        }
        // The last value of the third slice, two of the fourth.
        assert_eq!(pieces_of(&lengths, PIECE - 1..PIECE + 2), [vec![(2, PIECE - 4..PIECE - 3), (3, 0..2)]]);
        assert!(pieces_of(&lengths, 3..3).is_empty());
    }
}
