//! Element-wise groups: tiles of registers.
//!
//! A tile is a row, a piece of a row, or several short rows. Its reads are widened into fp32 (or
//! int32) registers, the instructions run over whole registers, and the stores narrow. Each
//! instruction whose result is an fp16 value rounds it in the register, so a group equals its
//! members bit for bit.

use ferrane_device::Result;
use ferrane_host::{convert, f16, rounded, simd};

use crate::ir::{Binary, Elementwise, Group, Instruction, MAX_WRITES};

use super::memory::{Reads, Slice, SliceMut, Writes, no_writes};
use super::nest::{MAX_OPERANDS, Odometer, divide, runs};
use super::{Table, elementwise, fused, scratch, strided};

/// Elements of a register.
pub(crate) const TILE: usize = 1024;
/// Elements of a task: large enough to pay for the dispatch, small enough for two threads to share
/// a small tensor.
const GRAIN: usize = 32 * 1024;
/// The same where an operand is gathered or scattered, element by element.
const STRIDED_GRAIN: usize = 4 * 1024;

/// Runs a group. `bases` are the offsets of element 0 of each read in its slice.
pub(crate) fn run(table: &Table, group: &Group, reads: &Reads<'_>, bases: &[usize], writes: Writes<'_>) -> Result<()> {
    let (count, tasks) = (group.stores.len() - group.joined.len(), scratch::Tasks::default());
    let is_strided = group.nest.strides.iter().any(|strides| strides.last().is_some_and(|&stride| stride > 1));
    let grain = if is_strided { STRIDED_GRAIN } else { GRAIN };
    divide(&group.nest, count, writes, grain, &|first, last, mut writes| {
        if fused::run(group, reads, bases, &mut writes, first, last) {
            return;
        }
        piece(table, group, None, reads, bases, &mut writes, (first, last), &tasks);
    });
    tasks.end()
}

/// Runs a group on the indices from `first` to `last` of its outermost loop, with its only write in
/// place of load `own`.
pub(super) fn in_place(
    table: &Table,
    group: &Group,
    own: usize,
    reads: &Reads<'_>,
    bases: &[usize],
    write: SliceMut<'_>,
    range: (usize, usize),
    tasks: &scratch::Tasks,
) {
    let mut writes = no_writes();
    writes[0] = write;
    piece(table, group, Some(own), reads, bases, &mut writes, range, tasks);
}

/// Runs a group on a range of the outermost loop, in registers of the task.
fn piece(
    table: &Table,
    group: &Group,
    in_place: Option<usize>,
    reads: &Reads<'_>,
    bases: &[usize],
    writes: &mut Writes<'_>,
    (first, last): (usize, usize),
    tasks: &scratch::Tasks,
) {
    // One more register for gathering strided fp16 rows.
    tasks.with((group.registers + 1) * TILE, |registers| {
        let (registers, gather) = registers.split_at_mut(group.registers * TILE);
        for &(reg, bits) in &group.constants {
            registers[reg as usize * TILE..][..TILE].fill(f32::from_bits(bits));
        }
        tiles(table, group, in_place, reads, bases, writes, first, last, registers, gather);
    });
}

/// The tiles of a piece, one after the other.
fn tiles(
    table: &Table,
    group: &Group,
    in_place: Option<usize>,
    reads: &Reads<'_>,
    bases: &[usize],
    writes: &mut Writes<'_>,
    first: usize,
    last: usize,
    registers: &mut [f32],
    gather: &mut [f32],
) {
    let nest = &group.nest;
    let outs = group.stores.len();
    let own = outs - group.joined.len();
    let inner = nest.depth() - 1;
    let (rows, row) = runs(nest, inner, first, last);
    let mut place = Odometer::new(nest, outs, first, bases);
    // Operands that are the same for all tiles are loaded once.
    let still = |i: usize| nest.strides[outs + i].iter().all(|&s| s == 0);
    for (i, &reg) in group.loads.iter().enumerate().filter(|(i, _)| still(*i) && in_place != Some(*i)) {
        let register = &mut registers[reg as usize * TILE..][..TILE];
        load(table, &reads[i], place.offsets[outs + i], 0, register, gather);
    }
    let per_tile = (TILE / row).clamp(1, rows.max(1));
    let mut done = 0;
    while done < rows {
        let here = per_tile.min(rows - done);
        let start = place;
        for column in (0..row).step_by(TILE) {
            let length = (row - column).min(TILE);
            place = start;
            let pitch = |operand: usize| if inner > 0 { nest.strides[operand][inner - 1] } else { 0 };
            let mut r = 0;
            while r < here {
                let run = place.run(nest, inner).min(here - r);
                for (i, &reg) in group.loads.iter().enumerate() {
                    let register = &mut registers[reg as usize * TILE + r * length..][..run * length];
                    let (operand, slice) = match in_place {
                        Some(load) if load == i => (0, writes[0].read()),
                        _ if still(i) => continue,
                        _ => (outs + i, reads[i]),
                    };
                    let stride = nest.strides[operand][inner];
                    let at = place.offsets[operand] + column as isize * stride;
                    load_rows(table, &slice, at, [pitch(operand), stride], length, register, gather);
                }
                place.skip(nest, inner, run);
                r += run;
            }
            // Prefetches what the next tile of long rows reads.
            if column + TILE < row {
                ask(group, reads, &start, column + TILE, row);
            } else if row >= TILE && done + here < rows {
                ask(group, reads, &place, 0, row);
            }
            for instruction in &group.instructions {
                execute(table, instruction, registers, here * length);
            }
            let (mut out, mut r) = (start, 0);
            while r < here {
                let run = out.run(nest, inner).min(here - r);
                for (i, &reg) in group.stores.iter().enumerate().take(MAX_WRITES) {
                    let stride = nest.strides[i][inner] as usize;
                    let (write, behind) = if i < own { (i, 0) } else { group.joined[i - own] };
                    let at = behind + out.offsets[i] as usize + column * stride;
                    let register = &registers[reg as usize * TILE + r * length..][..run * length];
                    store_rows(&mut writes[write], at, [pitch(i) as usize, stride], length, register);
                }
                out.skip(nest, inner, run);
                r += run;
            }
        }
        done += here;
    }
}

/// Prefetches what a tile of one row reads from `column` on, for operands with unit stride.
fn ask(group: &Group, reads: &Reads<'_>, place: &Odometer, column: usize, row: usize) {
    let (nest, outs, length) = (&group.nest, group.stores.len(), (row - column).min(TILE));
    for i in (0..group.loads.len()).filter(|i| nest.strides[outs + i].last() == Some(&1)) {
        let at = place.offsets[outs + i] as usize + column;
        match &reads[i] {
            Slice::F16(s) => simd::ask(&s[at..at + length]),
            Slice::F32(s) => simd::ask(&s[at..at + length]),
            _ => {}
        }
    }
}

/// One instruction over the first `length` elements of its registers.
pub(super) fn execute(table: &Table, instruction: &Instruction, registers: &mut [f32], length: usize) {
    let to = instruction.to as usize;
    let (low, rest) = registers.split_at_mut(to * TILE);
    let (to_register, high) = rest.split_at_mut(TILE);
    let (low, high) = (&*low, &*high);
    let from = instruction.from.map(|r| {
        let r = r as usize;
        // The plan never lets an instruction overwrite what it reads.
        if r < to { &low[r * TILE..][..length] } else { &high[r.saturating_sub(to + 1) * TILE..][..length] }
    });
    let result = &mut to_register[..length];
    match &table.hardware {
        Some(hardware) => hardware.run(table, instruction, result, from),
        None => {
            let [a, b, _] = from;
            match (instruction.op, instruction.round) {
                (Elementwise::Binary(Binary::Add), true) => rounded::add(result, a, b),
                (Elementwise::Binary(Binary::Sub), true) => rounded::sub(result, a, b),
                (Elementwise::Binary(Binary::Mul), true) => rounded::mul(result, a, b),
                (Elementwise::Pair(ops, raw), _) => rounded::pair(ops, raw, result, from),
                (op, round) => {
                    elementwise::run(table, op, result, from);
                    if round {
                        convert::round_f16(result);
                    }
                }
            }
        }
    }
}

/// Fills a register from a strided row. Stride 0 repeats.
fn load(table: &Table, slice: &Slice<'_>, at: isize, stride: isize, register: &mut [f32], gather: &mut [f32]) {
    widen(slice, at, stride, register, gather);
    if matches!(slice, Slice::F16(_)) {
        table.enter(register);
    }
}

/// [`load`] of rows of `length` elements, `pitch` elements from row to row.
pub(super) fn load_rows(
    table: &Table,
    slice: &Slice<'_>,
    at: isize,
    [pitch, stride]: [isize; 2],
    length: usize,
    registers: &mut [f32],
    gather: &mut [f32],
) {
    let rows = registers.len() / length;
    match slice {
        // One long row, or always the same element.
        _ if rows == 1 || pitch == length as isize * stride => load(table, slice, at, stride, registers, gather),
        _ if pitch == 0 => {
            let (first, rest) = registers.split_at_mut(length);
            load(table, slice, at, stride, first, gather);
            rest.chunks_exact_mut(length).for_each(|row| row.copy_from_slice(first));
        }
        Slice::F16(s) if stride == 1 && pitch > length as isize => {
            convert::f16_rows_to_f32(&s[at as usize..], pitch as usize, registers, length, rows, length);
            table.enter(registers);
        }
        _ => {
            for (r, row) in registers.chunks_exact_mut(length).enumerate() {
                load(table, slice, at + r as isize * pitch, stride, row, gather);
            }
        }
    }
}

fn widen(slice: &Slice<'_>, at: isize, stride: isize, register: &mut [f32], gather: &mut [f32]) {
    let at = at as usize;
    let length = register.len();
    if stride == 0 {
        match slice {
            Slice::F16(_) | Slice::F32(_) => register.fill(slice.float(at)),
            _ => register.fill(f32::from_bits(slice.int(at) as i32 as u32)),
        }
        return;
    }
    macro_rules! integers {
        ($s:expr) => {{
            let register: &mut [i32] = bytemuck::cast_slice_mut(register);
            for (i, v) in register.iter_mut().enumerate() {
                *v = $s[at.wrapping_add_signed(i as isize * stride)] as i32;
            }
        }};
    }
    match slice {
        Slice::None => {}
        Slice::F16(s) if stride == 1 => convert::f16_to_f32(&s[at..at + length], register),
        Slice::F16(s) => {
            let halves: &mut [f16] = bytemuck::cast_slice_mut(gather);
            let halves = &mut halves[..length];
            strided::copy(halves, (0, 1), s, (at, stride), length);
            convert::f16_to_f32(halves, register);
        }
        Slice::F32(s) if stride == 1 => register.copy_from_slice(&s[at..at + length]),
        Slice::F32(s) => strided::copy(register, (0, 1), s, (at, stride), length),
        Slice::I32(s) => integers!(s),
        Slice::U32(s) => integers!(s),
        Slice::I16(s) => integers!(s),
        Slice::U16(s) => integers!(s),
        Slice::I8(s) => integers!(s),
        Slice::U8(s) => integers!(s),
    }
}

/// [`store`] of rows of `length` elements, `pitch` elements from row to row.
pub(super) fn store_rows(
    slice: &mut SliceMut<'_>,
    at: usize,
    [pitch, stride]: [usize; 2],
    length: usize,
    registers: &[f32],
) {
    let rows = registers.len() / length;
    match slice {
        _ if rows == 1 || pitch == length * stride => store(slice, at, stride, registers),
        SliceMut::F16(s) if stride == 1 && pitch > length => {
            convert::f32_rows_to_f16(registers, length, &mut s[at..], pitch, rows, length);
        }
        _ => {
            for (r, row) in registers.chunks_exact(length).enumerate() {
                store(slice, at + r * pitch, stride, row);
            }
        }
    }
}

/// Narrows a register into a strided row.
fn store(slice: &mut SliceMut<'_>, at: usize, stride: usize, register: &[f32]) {
    let length = register.len();
    macro_rules! integers {
        ($s:expr, $t:ty) => {{
            let register: &[i32] = bytemuck::cast_slice(register);
            for (i, v) in register.iter().enumerate() {
                $s[at + i * stride] = *v as $t;
            }
        }};
    }
    match slice {
        SliceMut::None => {}
        SliceMut::F16(s) if stride == 1 => convert::f32_to_f16(register, &mut s[at..at + length]),
        SliceMut::F16(s) => {
            let mut halves = [f16::ZERO; 128];
            for (j, piece) in register.chunks(128).enumerate() {
                let halves = &mut halves[..piece.len()];
                convert::f32_to_f16(piece, halves);
                strided::copy(s, (at + j * 128 * stride, stride as isize), halves, (0, 1), piece.len());
            }
        }
        SliceMut::F32(s) if stride == 1 => s[at..at + length].copy_from_slice(register),
        SliceMut::F32(s) => strided::copy(s, (at, stride as isize), register, (0, 1), length),
        SliceMut::I32(s) => integers!(s, i32),
        SliceMut::U32(s) => integers!(s, u32),
        SliceMut::I16(s) => integers!(s, i16),
        SliceMut::U16(s) => integers!(s, u16),
        SliceMut::I8(s) => integers!(s, i8),
        SliceMut::U8(s) => integers!(s, u8),
    }
}

const _: () = assert!(crate::ir::MAX_READS + MAX_WRITES <= MAX_OPERANDS);
