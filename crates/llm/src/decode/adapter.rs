//! Adapters in the inputs of the programs.

use ferrane_device::{Surface, WriteAccess};
use half::f16;

use super::program::{DecodeInput, DecodeMatrix, head_order};
use super::window::{Staged, rows_of};
use crate::config::Config;
use crate::forward::Error;
use crate::lora::{Adapter, LowRank};
use crate::weights::Part;

impl Staged {
    /// Writes an adapter, or none, into the surfaces of its inputs, which have `rank` rows or
    /// columns for each stored matrix.
    pub(super) fn adapt(&self, config: &Config, adapter: Option<&Adapter>, rank: usize) -> Result<(), Error> {
        self.for_each(|layer, input, surface| {
            let write =
                |matrix, put: Put| write(surface, config, matrix, |part| adapter?.change(layer, part), rank, put);
            let done = match input {
                DecodeInput::Down(matrix) => write(matrix, put_a)?,
                DecodeInput::Up(matrix) => write(matrix, put_b)?,
                _ => true,
            };
            if done { Ok(()) } else { Err(Error::Quantize { layer, tensor: input.name(), row: 0 }) }
        })
    }
}

/// Writes the values of one stored matrix: its rows or columns begin at `at`, its output channels
/// at `from`.
type Put = fn(&mut Target<'_>, &LowRank, &MatrixRange<'_>);

/// Where a stored matrix lies in the inputs.
struct MatrixRange<'a> {
    /// The first row of A and the first column of B.
    at: usize,
    /// The first row of B.
    from: usize,
    /// Row `i` of a head in B is the stored row `order[i]`; empty: no head is permuted.
    order: &'a [usize],
}

/// The words of a surface, by rows.
struct Target<'a> {
    words: &'a mut [f16],
    stride: usize,
    finite: bool,
}

impl Target<'_> {
    fn put(&mut self, row: usize, column: usize, values: &[f32]) {
        let words = &mut self.words[row * self.stride + column..][..values.len()];
        for (word, value) in words.iter_mut().zip(values) {
            *word = f16::from_f32(*value);
            self.finite &= word.is_finite();
        }
    }
}

fn put_a(target: &mut Target<'_>, change: &LowRank, place: &MatrixRange<'_>) {
    let cols = change.a.len() / change.rank;
    change.a.chunks_exact(cols).enumerate().for_each(|(i, row)| target.put(place.at + i, 0, row));
}

fn put_b(target: &mut Target<'_>, change: &LowRank, place: &MatrixRange<'_>) {
    let rows = change.b.len() / change.rank;
    let head = place.order.len().max(1);
    for i in 0..rows {
        let stored = if place.order.is_empty() { i } else { i / head * head + place.order[i % head] };
        target.put(place.from + i, place.at, &change.b[stored * change.rank..][..change.rank]);
    }
}

/// Writes one input, zeros where no matrix is changed; false if a value is beyond fp16.
fn write<'a>(
    surface: &Surface,
    config: &Config,
    matrix: DecodeMatrix,
    change: impl Fn(Part) -> Option<&'a LowRank>,
    rank: usize,
    put: Put,
) -> Result<bool, Error> {
    let at = |source| Error::Device { kernel: "adapter", source };
    let mut access: WriteAccess = surface.write().map_err(at)?;
    let (words, stride) = rows_of(&mut access);
    words.fill(f16::ZERO);
    let order = head_order(config);
    let mut target = Target { words, stride, finite: true };
    let mut from = 0;
    for (i, &part) in matrix.parts().iter().enumerate() {
        let turned = matches!(part, Part::Wq | Part::Wk);
        let order = if turned { &order[..] } else { &[] };
        if let Some(change) = change(part) {
            put(&mut target, change, &MatrixRange { at: i * rank, from, order });
        }
        from += part.shape(config)[0];
    }
    Ok(target.finite)
}
