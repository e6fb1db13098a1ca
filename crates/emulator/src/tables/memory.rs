//! The memory of one evaluation, and typed slices of it for one step.
//!
//! A step reads and writes ranges of buffers. Its writes are split off the buffers as exclusive
//! slices, and its reads are slices of the gaps between them. So neither copies nor `unsafe` are
//! necessary, although values share a few large buffers. The plan guarantees that a step's writes
//! are disjoint from its reads; a range that is not is an error here, never a wrong read.

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_host::buffer::{ReadGuard, WriteGuard};
use ferrane_host::f16;

use crate::ir::{Access, MAX_READS, MAX_WRITES, MemorySpace, Storage};

/// Constants are written while the plan is made, and only read later.
pub(crate) enum Constants<'a> {
    Read(&'a [u8]),
    Write(&'a mut [u8]),
}

/// All memory that a step may touch.
pub(crate) struct Memory<'a> {
    pub constants: Constants<'a>,
    pub arena: &'a mut [u8],
    pub inputs: &'a [ReadGuard],
    pub outputs: &'a mut [WriteGuard],
    pub states: &'a mut [WriteGuard],
}

/// A typed slice that a step reads; `None` for an unused operand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slice<'a> {
    None,
    F16(&'a [f16]),
    F32(&'a [f32]),
    I32(&'a [i32]),
    U32(&'a [u32]),
    I16(&'a [i16]),
    U16(&'a [u16]),
    I8(&'a [i8]),
    U8(&'a [u8]),
}

/// A typed slice that a step writes; `None` for an unused operand.
#[derive(Debug)]
pub(crate) enum SliceMut<'a> {
    None,
    F16(&'a mut [f16]),
    F32(&'a mut [f32]),
    I32(&'a mut [i32]),
    U32(&'a mut [u32]),
    I16(&'a mut [i16]),
    U16(&'a mut [u16]),
    I8(&'a mut [i8]),
    U8(&'a mut [u8]),
}

/// The slices of a step's reads.
pub(crate) type Reads<'a> = [Slice<'a>; MAX_READS];
/// The slices of a step's writes.
pub(crate) type Writes<'a> = [SliceMut<'a>; MAX_WRITES];

pub(crate) fn no_writes<'a>() -> Writes<'a> {
    [const { SliceMut::None }; MAX_WRITES]
}

pub(crate) fn broken(what: &str) -> Error {
    Error::new(ErrorKind::Evaluate, format!("the plan is inconsistent: {what}"))
}

impl<'a> Slice<'a> {
    fn new(bytes: &'a [u8], storage: Storage) -> Result<Slice<'a>> {
        fn cast<T: bytemuck::Pod>(bytes: &[u8]) -> Result<&[T]> {
            bytemuck::try_cast_slice(bytes).map_err(|e| broken(&e.to_string()))
        }
        Ok(match storage {
            Storage::F16 => Slice::F16(cast(bytes)?),
            Storage::F32 => Slice::F32(cast(bytes)?),
            Storage::I32 => Slice::I32(cast(bytes)?),
            Storage::U32 => Slice::U32(cast(bytes)?),
            Storage::I16 => Slice::I16(cast(bytes)?),
            Storage::U16 => Slice::U16(cast(bytes)?),
            Storage::I8 => Slice::I8(cast(bytes)?),
            Storage::U8 => Slice::U8(bytes),
        })
    }

    /// The elements from index `at` on.
    pub(crate) fn from(self, at: usize) -> Slice<'a> {
        macro_rules! cut {
            ($s:expr, $v:ident) => {
                Slice::$v($s.get(at..).unwrap_or_default())
            };
        }
        match self {
            Slice::None => Slice::None,
            Slice::F16(s) => cut!(s, F16),
            Slice::F32(s) => cut!(s, F32),
            Slice::I32(s) => cut!(s, I32),
            Slice::U32(s) => cut!(s, U32),
            Slice::I16(s) => cut!(s, I16),
            Slice::U16(s) => cut!(s, U16),
            Slice::I8(s) => cut!(s, I8),
            Slice::U8(s) => cut!(s, U8),
        }
    }

    /// One element as a float; integers are converted.
    pub(crate) fn float(&self, i: usize) -> f32 {
        match self {
            Slice::F16(s) => s[i].to_f32(),
            Slice::F32(s) => s[i],
            _ => self.int(i) as f32,
        }
    }

    /// One element as an integer; floats are truncated.
    pub(crate) fn int(&self, i: usize) -> i64 {
        match self {
            Slice::None => 0,
            Slice::F16(s) => s[i].to_f32() as i64,
            Slice::F32(s) => s[i] as i64,
            Slice::I32(s) => s[i].into(),
            Slice::U32(s) => s[i].into(),
            Slice::I16(s) => s[i].into(),
            Slice::U16(s) => s[i].into(),
            Slice::I8(s) => s[i].into(),
            Slice::U8(s) => s[i].into(),
        }
    }
}

impl SliceMut<'_> {
    /// The elements, to be read.
    pub(crate) fn read(&self) -> Slice<'_> {
        match self {
            SliceMut::None => Slice::None,
            SliceMut::F16(s) => Slice::F16(s),
            SliceMut::F32(s) => Slice::F32(s),
            SliceMut::I32(s) => Slice::I32(s),
            SliceMut::U32(s) => Slice::U32(s),
            SliceMut::I16(s) => Slice::I16(s),
            SliceMut::U16(s) => Slice::U16(s),
            SliceMut::I8(s) => Slice::I8(s),
            SliceMut::U8(s) => Slice::U8(s),
        }
    }
}

impl<'a> SliceMut<'a> {
    fn new(bytes: &'a mut [u8], storage: Storage) -> Result<SliceMut<'a>> {
        fn cast<T: bytemuck::Pod>(bytes: &mut [u8]) -> Result<&mut [T]> {
            bytemuck::try_cast_slice_mut(bytes).map_err(|e| broken(&e.to_string()))
        }
        Ok(match storage {
            Storage::F16 => SliceMut::F16(cast(bytes)?),
            Storage::F32 => SliceMut::F32(cast(bytes)?),
            Storage::I32 => SliceMut::I32(cast(bytes)?),
            Storage::U32 => SliceMut::U32(cast(bytes)?),
            Storage::I16 => SliceMut::I16(cast(bytes)?),
            Storage::U16 => SliceMut::U16(cast(bytes)?),
            Storage::I8 => SliceMut::I8(cast(bytes)?),
            Storage::U8 => SliceMut::U8(bytes),
        })
    }

    /// Splits the elements at an index.
    pub(crate) fn split_at(self, at: usize) -> (SliceMut<'a>, SliceMut<'a>) {
        macro_rules! cut {
            ($s:expr, $v:ident) => {{
                let at = at.min($s.len());
                let (a, b) = $s.split_at_mut(at);
                (SliceMut::$v(a), SliceMut::$v(b))
            }};
        }
        match self {
            SliceMut::None => (SliceMut::None, SliceMut::None),
            SliceMut::F16(s) => cut!(s, F16),
            SliceMut::F32(s) => cut!(s, F32),
            SliceMut::I32(s) => cut!(s, I32),
            SliceMut::U32(s) => cut!(s, U32),
            SliceMut::I16(s) => cut!(s, I16),
            SliceMut::U16(s) => cut!(s, U16),
            SliceMut::I8(s) => cut!(s, I8),
            SliceMut::U8(s) => cut!(s, U8),
        }
    }

    /// Stores one float (rounded to the storage) or, in integer storage, its truncation.
    pub(crate) fn set_float(&mut self, i: usize, value: f32) {
        match self {
            SliceMut::F16(s) => s[i] = f16::from_f32(value),
            SliceMut::F32(s) => s[i] = value,
            _ => self.set_int(i, value as i64),
        }
    }

    /// Stores one integer, wrapped to the storage.
    pub(crate) fn set_int(&mut self, i: usize, value: i64) {
        match self {
            SliceMut::None => {}
            SliceMut::F16(s) => s[i] = f16::from_f32(value as f32),
            SliceMut::F32(s) => s[i] = value as f32,
            SliceMut::I32(s) => s[i] = value as i32,
            SliceMut::U32(s) => s[i] = value as u32,
            SliceMut::I16(s) => s[i] = value as i16,
            SliceMut::U16(s) => s[i] = value as u16,
            SliceMut::I8(s) => s[i] = value as i8,
            SliceMut::U8(s) => s[i] = value as u8,
        }
    }

    /// Copies one element of the same storage, bit for bit.
    pub(crate) fn set_from(&mut self, i: usize, from: &Slice<'_>, j: usize) {
        match (self, from) {
            (SliceMut::F16(d), Slice::F16(s)) => d[i] = s[j],
            (SliceMut::F32(d), Slice::F32(s)) => d[i] = s[j],
            (d @ (SliceMut::F16(_) | SliceMut::F32(_)), s) => d.set_float(i, s.float(j)),
            (d, s) => d.set_int(i, s.int(j)),
        }
    }
}

/// Resolves the accesses to one buffer whose bytes may be written.
fn carve<'a>(
    buffer: &'a mut [u8],
    space: MemorySpace,
    reads: &[Access],
    writes: &[Access],
    read_slices: &mut Reads<'a>,
    write_slices: &mut Writes<'a>,
) -> Result<()> {
    let mut rest = buffer;
    let mut position = 0;
    loop {
        // The next write in memory order; there are few, so a scan is cheapest.
        let next = writes
            .iter()
            .enumerate()
            .filter(|(i, w)| w.space == space && w.start >= position && matches!(write_slices[*i], SliceMut::None))
            .min_by_key(|(_, w)| w.start);
        let gap_end = next.map_or(position + rest.len(), |(_, w)| w.start);
        let (gap, after) =
            rest.split_at_mut_checked(gap_end - position).ok_or_else(|| broken("a write leaves its buffer"))?;
        serve(gap, position, space, reads, read_slices)?;
        let Some((i, write)) = next else { return Ok(()) };
        let (slice, after) =
            after.split_at_mut_checked(write.end - write.start).ok_or_else(|| broken("a write leaves its buffer"))?;
        write_slices[i] = SliceMut::new(slice, write.storage)?;
        rest = after;
        position = write.end;
    }
}

/// Resolves the reads that lie in `bytes`, which start at `position` of the memory space.
fn serve<'a>(
    bytes: &'a [u8],
    position: usize,
    space: MemorySpace,
    reads: &[Access],
    slices: &mut Reads<'a>,
) -> Result<()> {
    for (read, slice) in reads.iter().zip(slices.iter_mut()) {
        if read.space == space && read.start >= position && read.end <= position + bytes.len() {
            *slice = Slice::new(&bytes[read.start - position..read.end - position], read.storage)?;
        }
    }
    Ok(())
}

impl Memory<'_> {
    /// Calls `run` with the slices of a step.
    pub(crate) fn with<R>(
        &mut self,
        reads: &[Access],
        writes: &[Access],
        run: impl FnOnce(Reads<'_>, Writes<'_>) -> Result<R>,
    ) -> Result<R> {
        if reads.len() > MAX_READS || writes.len() > MAX_WRITES {
            return Err(broken("too many operands"));
        }
        let mut read_slices: Reads<'_> = [Slice::None; MAX_READS];
        let mut write_slices = no_writes();
        carve(self.arena, MemorySpace::Arena, reads, writes, &mut read_slices, &mut write_slices)?;
        match &mut self.constants {
            Constants::Read(bytes) => serve(bytes, 0, MemorySpace::Constant, reads, &mut read_slices)?,
            Constants::Write(bytes) => {
                carve(bytes, MemorySpace::Constant, reads, writes, &mut read_slices, &mut write_slices)?
            }
        }
        for (i, guard) in self.inputs.iter().enumerate() {
            serve(guard, 0, MemorySpace::Input(i), reads, &mut read_slices)?;
        }
        for (i, guard) in self.outputs.iter_mut().enumerate() {
            carve(guard, MemorySpace::Output(i), reads, writes, &mut read_slices, &mut write_slices)?;
        }
        for (i, guard) in self.states.iter_mut().enumerate() {
            carve(guard, MemorySpace::State(i), reads, writes, &mut read_slices, &mut write_slices)?;
        }
        let unserved = read_slices[..reads.len()].iter().any(|s| matches!(s, Slice::None))
            || write_slices[..writes.len()].iter().any(|s| matches!(s, SliceMut::None));
        if unserved {
            return Err(broken("a step reads what it writes, or beyond a buffer"));
        }
        run(read_slices, write_slices)
    }
}
