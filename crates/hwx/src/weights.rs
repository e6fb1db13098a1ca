//! Weights of a convolution as the engine reads them: sixteen lanes.
//!
//! Rows of `[Cout][Cin][Kh][Kw]` are taken in passes of at most 512. Of a pass of `n` rows each
//! lane gets `n / 16` consecutive ones, and one more where its number is less than `n % 16`. In a
//! pass a lane holds, for each input channel, for each place of the kernel, the weights of its rows
//! side by side; passes follow each other. A lane is padded with zeros to a multiple of 64 bytes
//! and has a first byte and a length among the registers. With less than sixteen rows the last
//! lanes are switched off. Where a function follows a convolution in one task, each lane begins
//! with the 128 bytes of the function's table ([`crate::table`]).
//!
//! How well this is known (spec: hwx.md 2.7): one pass of a 1×1 kernel is checked byte by byte on
//! samples of H13 and H16. That passes follow each other is reported. The order of the places of a
//! larger kernel (rows of the kernel, in them columns, inside of the input channel) is a guess: no
//! sample has such a kernel with weights that are known. Groups, palettes and sparse weights are
//! refused.

use std::ops::Range;

use half::f16;

use crate::error::{Error, Result};
use crate::registers::Generation;
use crate::task::{Task, TaskView};

/// Lanes of a kernel.
pub const LANES: usize = 16;
/// The most rows of a pass.
pub const PASS_ROWS: u32 = 512;
/// Lanes begin and end at multiples of this.
pub const LANE_ALIGN: u64 = 64;
/// Bytes of a table in front of a lane's weights.
pub const TABLE_BYTES: u64 = crate::table::BYTES as u64;

/// The shape of a convolution's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterShape {
    /// Output channels: rows.
    pub cout: u32,
    /// Input channels.
    pub cin: u32,
    /// The kernel's height.
    pub kh: u32,
    /// The kernel's width.
    pub kw: u32,
}

/// A part of the kernel's buffer that one lane reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// Its first byte, from the start of the kernel's buffer.
    pub offset: u64,
    /// Its bytes: table, weights, padding. 0 for a lane that is switched off.
    pub bytes: u64,
}

/// Where the weights of a convolution lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lanes {
    geometry: FilterShape,
    /// Bytes in front of each lane's weights: 0 or [`TABLE_BYTES`].
    front: u64,
    lanes: [Lane; LANES],
}

impl FilterShape {
    /// A shape that registers can say: channels from 1 to 131071, a kernel of 1 to 31, and less
    /// than 4 GiB of weights.
    pub fn new(cout: u32, cin: u32, kh: u32, kw: u32) -> Result<FilterShape> {
        let geometry = FilterShape { cout, cin, kh, kw };
        let channels = 1..1 << 17;
        if !channels.contains(&cout) || !channels.contains(&cin) {
            return Err(Error::kernel(None, format!("a convolution of {cin} to {cout} channels has no weights here")));
        }
        if !(1..32).contains(&kh) || !(1..32).contains(&kw) {
            return Err(Error::kernel(None, format!("a kernel has 1 to 31 rows and columns, not {kh} and {kw}")));
        }
        if u64::from(cout) * geometry.row() * 2 > u64::from(u32::MAX) - LANES as u64 * (LANE_ALIGN + TABLE_BYTES) {
            let shape = format!("[{cout}, {cin}, {kh}, {kw}]");
            return Err(Error::kernel(None, format!("weights of the shape {shape} have 4 GiB or more")));
        }
        Ok(geometry)
    }

    /// How many weights there are.
    pub fn len(&self) -> u64 {
        u64::from(self.cout) * self.row()
    }

    /// True without weights; [`FilterShape::new`] makes no such shape.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks that so many weights are those of the shape.
    fn check(&self, weights: usize) -> Result<()> {
        if weights as u64 == self.len() {
            return Ok(());
        }
        Err(Error::kernel(None, format!("{weights} weights where the shape has {}", self.len())))
    }

    /// Weights of one output channel.
    fn row(&self) -> u64 {
        u64::from(self.cin) * u64::from(self.kh) * u64::from(self.kw)
    }

    /// The rows of a lane, pass by pass.
    pub fn rows(&self, lane: usize) -> impl Iterator<Item = Range<u32>> {
        let (cout, lane, lanes) = (self.cout, lane as u32, LANES as u32);
        (0..cout.div_ceil(PASS_ROWS)).map(move |pass| {
            let n = (cout - pass * PASS_ROWS).min(PASS_ROWS);
            let (each, more) = (n / lanes, n % lanes);
            let start = pass * PASS_ROWS + lane * each + lane.min(more);
            start..start + each + u32::from(lane < more)
        })
    }

    /// Bytes of a lane's weights, padding included; 0 for a lane without rows.
    fn lane_bytes(&self, lane: usize) -> u64 {
        let rows: u64 = self.rows(lane).map(|r| r.len() as u64).sum();
        (2 * rows * self.row()).next_multiple_of(LANE_ALIGN)
    }

    /// Calls `visit` with the index in `[Cout][Cin][Kh][Kw]` of each weight of a lane, in the
    /// lane's order.
    fn walk(&self, lane: usize, mut visit: impl FnMut(usize)) {
        let (row, places) = (self.row() as usize, (self.kh * self.kw) as usize);
        for rows in self.rows(lane) {
            for ic in 0..self.cin as usize {
                for place in 0..places {
                    for m in rows.clone() {
                        visit(m as usize * row + ic * places + place);
                    }
                }
            }
        }
    }
}

impl Lanes {
    /// One lane behind the other from the start of a buffer, as the compiler lays them out; with
    /// `table`, each begins with a table.
    pub fn new(geometry: FilterShape, table: bool) -> Lanes {
        let front = if table { TABLE_BYTES } else { 0 };
        let (mut lanes, mut offset) = ([Lane::default(); LANES], 0);
        for (i, lane) in lanes.iter_mut().enumerate() {
            let bytes = geometry.lane_bytes(i);
            if bytes > 0 {
                *lane = Lane { offset, bytes: front + bytes };
                offset += lane.bytes;
            }
        }
        Lanes { geometry, front, lanes }
    }

    /// What the registers of a task say. An error if the task is no convolution with fp16 weights
    /// in one group, or if the lanes are not those of its shape.
    pub fn of_task(generation: &'static Generation, task: &Task) -> Result<Lanes> {
        let fields = TaskView::new(generation, task);
        let groups = ["GroupConvCfg", "NumGroups"].iter().find_map(|r| fields.field("Common", r, "NumGroups"));
        match groups {
            Some(1) => Lanes::of_group(&fields),
            _ => {
                let groups = groups.map_or("an unknown number of".to_string(), |n| n.to_string());
                let message = format!("the order of weights in {groups} groups is not established");
                Err(Error::kernel(Some(task.offset as u64), message))
            }
        }
    }

    /// What the registers of a task say of its first group. Errors as [`Lanes::of_task`], but for
    /// the number of groups.
    pub fn of_group(fields: &TaskView<'_>) -> Result<Lanes> {
        let wrong = |message: String| Error::kernel(Some(fields.task().offset as u64), message);
        let said = |what: &str, found: Option<u32>| found.ok_or_else(|| wrong(format!("the task does not say {what}")));
        let common = |register: &str, field: &str| fields.field("Common", register, field);
        if fields.field("NE", "MACCfg", "OpMode").unwrap_or(0) != 0 {
            return Err(wrong("the task is no convolution".to_string()));
        }
        let kernel = |name: &str| fields.field("NE", "KernelCfg", name);
        if kernel("PalettizedEn") == Some(1)
            || kernel("SparseFmt") == Some(1)
            || kernel("KernelFmt").is_some_and(|f| f != 2)
        {
            return Err(wrong("only plain fp16 weights are read".to_string()));
        }
        let [[_, _, cin, _], [_, _, cout, _]] = fields.shapes();
        let (cout, cin) = (said("Cout", cout)?, said("Cin", cin)?);
        let [kh, kw] = ["Kh", "Kw"].map(|field| said(field, common("ConvCfg", field)));
        let geometry = FilterShape::new(cout, cin, kh?, kw?)
            .map_err(|e| wrong(format!("the task's registers say what cannot be: {}", e.message)))?;

        let dma = |name: &str, i: usize| fields.register("KernelDMASrc", &format!("{name}[{i}]"));
        // H13 has no base of the kernel but its BAR.
        let base = fields.wide("KernelDMASrc", "KernelBase");
        let mut found = Lanes { geometry, front: 0, lanes: [Lane::default(); LANES] };
        let mut fronts = None;
        for i in 0..LANES {
            let (on, wanted) = (dma("CoeffDMAConfig", i).unwrap_or(0) & 1 == 1, geometry.lane_bytes(i));
            if on != (wanted > 0) {
                let said = if on { "reads weights, though no row is its" } else { "reads no weights" };
                return Err(wrong(format!("lane {i} of {} output channels {said}", geometry.cout)));
            }
            if !on {
                continue;
            }
            let bytes = u64::from(dma("CoeffBfrSize", i).unwrap_or(0));
            let front = bytes.checked_sub(wanted).filter(|front| [0, TABLE_BYTES].contains(front));
            let Some(front) = front.filter(|f| fronts.is_none_or(|other| other == *f)) else {
                let shape = format!("[{}, {}, {}, {}]", geometry.cout, geometry.cin, geometry.kh, geometry.kw);
                return Err(wrong(format!("lane {i} has {bytes:#x} bytes; weights {shape} need {wanted:#x}")));
            };
            fronts = Some(front);
            let offset = base.checked_add(dma("CoeffBaseAddr", i).unwrap_or(0).into());
            let offset = offset.ok_or_else(|| wrong(format!("the address of lane {i} wraps around")))?;
            found.lanes[i] = Lane { offset, bytes };
        }
        found.front = fronts.unwrap_or(0);
        Ok(found)
    }

    /// The shape of the weights.
    pub fn shape(&self) -> FilterShape {
        self.geometry
    }

    /// True if each lane begins with a table.
    pub fn has_table(&self) -> bool {
        self.front != 0
    }

    /// The sixteen lanes; those that are switched off have no bytes.
    pub fn lanes(&self) -> &[Lane; LANES] {
        &self.lanes
    }

    /// Where the last lane ends: bytes from the start of the buffer.
    pub fn end(&self) -> u64 {
        self.live().map(|(_, lane)| lane.offset.saturating_add(lane.bytes)).max().unwrap_or(0)
    }

    fn live(&self) -> impl Iterator<Item = (usize, Lane)> {
        self.lanes.iter().copied().enumerate().filter(|(_, lane)| lane.bytes > 0)
    }

    /// The bytes of a lane in a buffer.
    fn range(&self, lane: Lane, length: usize) -> Result<Range<usize>> {
        let end = lane.offset.checked_add(lane.bytes).filter(|end| *end <= length as u64);
        let end = end.ok_or_else(|| {
            let place = format!("{:#x} bytes at {:#x}", lane.bytes, lane.offset);
            Error::kernel(Some(lane.offset), format!("a lane, {place}, does not lie in its buffer of {length:#x}"))
        })?;
        Ok(lane.offset as usize..end as usize)
    }

    /// The first byte of each weight `[Cout][Cin][Kh][Kw]`, from the start of the buffer; `None`
    /// where one is beyond `length` bytes.
    pub fn places(&self, length: usize) -> Option<Vec<usize>> {
        // What lies in the buffer is not more than the buffer, before memory is taken.
        let bytes = self.live().try_fold(0u64, |sum, (_, lane)| sum.checked_add(lane.bytes))?;
        if bytes > length as u64 || self.live().any(|(_, lane)| self.range(lane, length).is_err()) {
            return None;
        }
        let mut places = vec![0; self.geometry.len() as usize];
        for (i, lane) in self.live() {
            let mut at = (lane.offset + self.front) as usize;
            self.geometry.walk(i, |index| {
                places[index] = at;
                at += 2;
            });
        }
        Some(places)
    }

    /// Writes weights `[Cout][Cin][Kh][Kw]` and, if lanes begin with one, the table into the
    /// kernel's buffer. What is not a lane's stays as it is.
    pub fn pack_into(
        &self,
        weights: &[f16],
        table: Option<&[u8; TABLE_BYTES as usize]>,
        buffer: &mut [u8],
    ) -> Result<()> {
        self.geometry.check(weights.len())?;
        if table.is_some() != self.has_table() {
            let message = "lanes have a table in front of their weights, or none, and the other was given";
            return Err(Error::kernel(None, message));
        }
        for (i, lane) in self.live() {
            let range = self.range(lane, buffer.len())?;
            let (front, body) = buffer[range].split_at_mut(self.front as usize);
            if let Some(table) = table {
                front.copy_from_slice(table);
            }
            let mut places = body.chunks_exact_mut(2);
            self.geometry.walk(i, |index| {
                if let Some(place) = places.next() {
                    place.copy_from_slice(&weights[index].to_bits().to_le_bytes());
                }
            });
            places.for_each(|padding| padding.fill(0));
        }
        Ok(())
    }

    /// The weights `[Cout][Cin][Kh][Kw]` in the kernel's buffer.
    pub fn unpack(&self, buffer: &[u8]) -> Result<Vec<f16>> {
        // Lanes inside the buffer, so that a shape that only registers say takes no memory. Lanes
        // of a task may lie over each other.
        let bytes: u64 = self.live().map(|(_, lane)| lane.bytes).sum();
        if bytes > buffer.len() as u64 {
            let message = format!("lanes of {bytes:#x} bytes do not lie in a buffer of {:#x}", buffer.len());
            return Err(Error::kernel(None, message));
        }
        let ranges =
            self.live().map(|(i, lane)| Ok((i, self.range(lane, buffer.len())?))).collect::<Result<Vec<_>>>()?;
        let mut weights = vec![f16::ZERO; self.geometry.len() as usize];
        for (i, range) in ranges {
            let mut places = buffer[range][self.front as usize..].chunks_exact(2);
            self.geometry.walk(i, |index| {
                if let Some(place) = places.next() {
                    weights[index] = f16::from_bits(u16::from_le_bytes([place[0], place[1]]));
                }
            });
        }
        Ok(weights)
    }

    /// The table that the first lane begins with.
    pub fn table<'a>(&self, buffer: &'a [u8]) -> Option<&'a [u8; TABLE_BYTES as usize]> {
        let (_, first) = self.live().next().filter(|_| self.has_table())?;
        let range = self.range(first, buffer.len()).ok()?;
        buffer[range].first_chunk()
    }
}

/// The bytes of weights `[Cout][Cin][Kh][Kw]`: all lanes one behind the other, without tables.
///
/// ```
/// use ferrane_hwx::weights::{FilterShape, Lanes, pack};
/// use half::f16;
///
/// let geometry = FilterShape::new(3, 2, 1, 1)?;
/// let weights: Vec<f16> = (1..=6).map(|n| f16::from_f32(n as f32)).collect();
/// let bytes = pack(&weights, geometry)?;
/// assert_eq!(bytes.len(), 3 * 64); // three lanes with one output channel each
/// assert_eq!(Lanes::new(geometry, false).unpack(&bytes)?, weights);
/// # Ok::<(), ferrane_hwx::Error>(())
/// ```
pub fn pack(weights: &[f16], geometry: FilterShape) -> Result<Vec<u8>> {
    // Before memory is taken.
    geometry.check(weights.len())?;
    let lanes = Lanes::new(geometry, false);
    let mut bytes = vec![0; lanes.end() as usize];
    lanes.pack_into(weights, None, &mut bytes)?;
    Ok(bytes)
}
