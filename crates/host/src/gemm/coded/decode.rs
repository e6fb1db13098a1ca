//! Decoding of rows to fp16.

use half::f16;

#[cfg(target_arch = "x86_64")]
use super::table;
use super::{CodedMatrix, Codes};
use crate::convert;

/// Values that are scaled together.
const AT_ONCE: usize = 256;

/// Decodes the rows from `first` on that fill `to`, rounded to nearest even.
pub(super) fn rows(matrix: &CodedMatrix<'_>, first: usize, to: &mut [f16]) {
    let cols = matrix.cols;
    if cols == 0 {
        return;
    }
    match matrix.codes {
        Codes::Scaled { bits, codes, scales, block } => {
            let blocks = cols / block;
            #[cfg(target_arch = "x86_64")]
            if let (4, true, Some(lookup)) = (bits, block.is_multiple_of(table::FOURS), table::Lookup::best()) {
                let (from, count) = (first * cols, to.len());
                let scales = &scales[2 * first * blocks..][..2 * count / block];
                // SAFETY: the processor has the instructions, and these are the codes and scales of
                // `to`.
                return unsafe { lookup.scaled(&codes[from / 2..][..count / 2], scales, block, to) };
            }
            for (i, row) in to.chunks_exact_mut(cols).enumerate() {
                let at = first + i;
                for (b, values) in row.chunks_exact_mut(block).enumerate() {
                    let scale = half_at(scales, at * blocks + b).to_f32();
                    scaled(codes, bits, at * cols + b * block, scale, values);
                }
            }
        }
        Codes::Palette { bits, indices, entries, tables } => {
            let per_table = matrix.rows / tables;
            let mut row = 0;
            let count = to.len() / cols;
            while row < count {
                let table = (first + row) / per_table;
                let end = count.min((table + 1) * per_table - first);
                let palette = &entries[(table * 2) << bits..][..2 << bits];
                palette_values(indices, bits, (first + row) * cols, palette, &mut to[row * cols..end * cols]);
                row = end;
            }
        }
    }
}

/// fp16 value `i` of little-endian bytes.
fn half_at(bytes: &[u8], i: usize) -> f16 {
    f16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]])
}

/// Codes from position `at` on, an even one, times a scale.
fn scaled(codes: &[u8], bits: usize, at: usize, scale: f32, to: &mut [f16]) {
    let mut values = [0.0f32; AT_ONCE];
    for (part, to) in to.chunks_mut(AT_ONCE).enumerate() {
        let at = at + part * AT_ONCE;
        let values = &mut values[..to.len()];
        if bits == 8 {
            for (value, code) in values.iter_mut().zip(&codes[at..]) {
                *value = f32::from(*code as i8) * scale;
            }
        } else if at.is_multiple_of(2) && values.len().is_multiple_of(2) {
            for (pair, byte) in values.chunks_exact_mut(2).zip(&codes[at / 2..]) {
                pair[0] = f32::from(((byte << 4) as i8) >> 4) * scale;
                pair[1] = f32::from((*byte as i8) >> 4) * scale;
            }
        } else {
            for (i, value) in values.iter_mut().enumerate() {
                let byte = codes[(at + i) / 2] >> (4 * ((at + i) % 2));
                *value = f32::from(((byte << 4) as i8) >> 4) * scale;
            }
        }
        convert::f32_to_f16(values, to);
    }
}

/// The entries of a palette at the indices from position `at` on.
fn palette_values(indices: &[u8], bits: usize, at: usize, palette: &[u8], to: &mut [f16]) {
    let entries: [f16; 256] = std::array::from_fn(|i| half_at(palette, i & ((1 << bits) - 1)));
    #[cfg(target_arch = "x86_64")]
    let (to, at) = {
        let done = looked_up(indices, bits, at, &entries, to);
        (&mut to[done..], at + done)
    };
    if to.is_empty() {
        return;
    }
    match bits {
        8 => {
            for (value, index) in to.iter_mut().zip(&indices[at..]) {
                *value = entries[usize::from(*index)];
            }
        }
        4 if at.is_multiple_of(2) && to.len().is_multiple_of(2) => {
            // Two values for each byte.
            let pairs: [[f16; 2]; 256] = std::array::from_fn(|byte| [entries[byte & 15], entries[byte >> 4]]);
            for (pair, byte) in to.chunks_exact_mut(2).zip(&indices[at / 2..]) {
                pair.copy_from_slice(&pairs[usize::from(*byte)]);
            }
        }
        6 if at.is_multiple_of(4) && to.len().is_multiple_of(4) => {
            for (four, bytes) in to.chunks_exact_mut(4).zip(indices[at / 4 * 3..].chunks_exact(3)) {
                let word = u32::from(bytes[0]) | u32::from(bytes[1]) << 8 | u32::from(bytes[2]) << 16;
                for (i, value) in four.iter_mut().enumerate() {
                    *value = entries[(word >> (6 * i)) as usize & 63];
                }
            }
        }
        _ => {
            for (i, value) in to.iter_mut().enumerate() {
                let bit = (at + i) * bits;
                let next = indices.get(bit / 8 + 1).copied().unwrap_or(0);
                let word = u16::from(indices[bit / 8]) | u16::from(next) << 8;
                *value = entries[usize::from(word >> (bit % 8)) & ((1 << bits) - 1)];
            }
        }
    }
}

/// Decodes the first values by instructions that look up many at once. Returns their number.
#[cfg(target_arch = "x86_64")]
fn looked_up(indices: &[u8], bits: usize, at: usize, entries: &[f16; 256], to: &mut [f16]) -> usize {
    let (group, aligned) = match bits {
        4 => (table::FOURS, at.is_multiple_of(2)),
        6 => (table::SIXES, at.is_multiple_of(4)),
        _ => return 0,
    };
    let (done, Some(lookup), true) = (to.len() / group * group, table::Lookup::best(), aligned) else { return 0 };
    let (indices, to) = (&indices[at * bits / 8..][..done * bits / 8], &mut to[..done]);
    // SAFETY: the processor has the instructions, and these are the indices of the values.
    unsafe {
        match bits {
            4 => lookup.palette4(indices, &std::array::from_fn(|i| entries[i]), to),
            _ => lookup.palette6(indices, &std::array::from_fn(|i| entries[i]), to),
        }
    }
    done
}
