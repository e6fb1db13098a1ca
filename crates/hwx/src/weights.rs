//! The layout of convolution weights as the engine reads them: sixteen lanes.
//!
//! The output channels (rows) of `[Cout, Cin, Kh, Kw]` are split into passes of at most 512. Of a
//! pass of `n` rows, each lane gets `n / 16` consecutive ones, and one more if its number is less
//! than `n % 16`. Within a pass, a lane holds for each input channel and each kernel position the
//! adjacent weights of its rows; passes follow each other. A lane is padded with zeros to a
//! multiple of 64 bytes; registers hold its offset and length. With fewer than sixteen rows the
//! last lanes are disabled. If a function follows the convolution in the same task, each lane
//! begins with the 128 bytes of the function table ([`crate::table`]).
//!
//! # Evidence
//!
//! One pass of a 1×1 kernel is verified byte by byte on samples of H13 and H16 (spec: hwx.md 2.7).
//! That passes follow each other is reported. The order of kernel positions (row-major, within the
//! input channel) is a guess: no sample has a larger kernel with known weights. Groups, palettes
//! and sparse weights are refused.

use std::ops::Range;

use half::f16;

use crate::error::{Error, Result};
use crate::registers::Generation;
use crate::task::{Task, TaskView};

/// The number of lanes of a kernel.
pub const LANES: usize = 16;
/// The largest number of rows of a pass.
pub const PASS_ROWS: u32 = 512;
/// Alignment of lanes in bytes.
pub const LANE_ALIGN: u64 = 64;
/// The size in bytes of a function table before a lane's weights.
pub const TABLE_BYTES: u64 = crate::table::BYTES as u64;

/// The shape of a convolution's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterShape {
    /// The number of output channels (rows).
    pub cout: u32,
    /// The number of input channels.
    pub cin: u32,
    /// The height of the kernel.
    pub kh: u32,
    /// The width of the kernel.
    pub kw: u32,
}

/// The part of the kernel's buffer that one lane reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// Bytes from the start of the kernel's buffer.
    pub offset: u64,
    /// The length in bytes: table, weights and padding. 0 for a disabled lane.
    pub bytes: u64,
}

/// The location of a convolution's weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lanes {
    geometry: FilterShape,
    /// Bytes before each lane's weights: 0 or [`TABLE_BYTES`].
    front: u64,
    lanes: [Lane; LANES],
}

impl FilterShape {
    /// A shape within the limits of the registers: from 1 to 131071 channels, a kernel of 1 to 31
    /// in each direction, and less than 4 GiB of weights.
    ///
    /// # Errors
    /// E0705 for any other shape.
    pub fn new(cout: u32, cin: u32, kh: u32, kw: u32) -> Result<FilterShape> {
        let geometry = FilterShape { cout, cin, kh, kw };
        let channels = 1..1 << 17;
        if !channels.contains(&cout) || !channels.contains(&cin) {
            return Err(Error::kernel(None, format!("a convolution of {cin} to {cout} channels has no weights here")));
        }
        if !(1..32).contains(&kh) || !(1..32).contains(&kw) {
            return Err(Error::kernel(None, format!("a kernel has from 1 to 31 rows and columns, not {kh} and {kw}")));
        }
        if u64::from(cout) * geometry.row() * 2 > u64::from(u32::MAX) - LANES as u64 * (LANE_ALIGN + TABLE_BYTES) {
            let shape = format!("[{cout}, {cin}, {kh}, {kw}]");
            return Err(Error::kernel(None, format!("weights of the shape {shape} have 4 GiB or more")));
        }
        Ok(geometry)
    }

    /// The number of weights.
    pub fn len(&self) -> u64 {
        u64::from(self.cout) * self.row()
    }

    /// Always false: [`FilterShape::new`] refuses empty shapes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks the number of weights against the shape.
    fn check(&self, weights: usize) -> Result<()> {
        if weights as u64 == self.len() {
            return Ok(());
        }
        Err(Error::kernel(None, format!("{weights} weights where the shape has {}", self.len())))
    }

    /// The number of weights of one output channel.
    fn row(&self) -> u64 {
        u64::from(self.cin) * u64::from(self.kh) * u64::from(self.kw)
    }

    /// The rows of a lane, one range per pass.
    pub fn rows(&self, lane: usize) -> impl Iterator<Item = Range<u32>> {
        let (cout, lane, lanes) = (self.cout, lane as u32, LANES as u32);
        (0..cout.div_ceil(PASS_ROWS)).map(move |pass| {
            let n = (cout - pass * PASS_ROWS).min(PASS_ROWS);
            let (each, more) = (n / lanes, n % lanes);
            let start = pass * PASS_ROWS + lane * each + lane.min(more);
            start..start + each + u32::from(lane < more)
        })
    }

    /// The size of a lane's weights in bytes, including padding; 0 without rows.
    fn lane_bytes(&self, lane: usize) -> u64 {
        let rows: u64 = self.rows(lane).map(|r| r.len() as u64).sum();
        (2 * rows * self.row()).next_multiple_of(LANE_ALIGN)
    }

    /// Calls `visit` with the index in `[Cout, Cin, Kh, Kw]` of each weight of a lane, in the
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
    /// The compiler's layout: lanes follow each other from the start of a buffer. With `table`,
    /// each begins with a function table.
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

    /// The layout that the registers of a task describe.
    ///
    /// # Errors
    /// E0705 if the task is not a convolution with fp16 weights in one group, or its lanes do not
    /// fit its shape.
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

    /// The layout of the first group that the registers of a task describe. Errors as
    /// [`Lanes::of_task`], except that any number of groups is accepted.
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
        // H13 has no base register for the kernel, only its BAR.
        let base = fields.wide("KernelDMASrc", "KernelBase");
        let mut found = Lanes { geometry, front: 0, lanes: [Lane::default(); LANES] };
        let mut fronts = None;
        for i in 0..LANES {
            let (on, wanted) = (dma("CoeffDMAConfig", i).unwrap_or(0) & 1 == 1, geometry.lane_bytes(i));
            if on != (wanted > 0) {
                let said = if on { "reads weights but has no rows" } else { "reads no weights" };
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

    /// True if each lane begins with a function table.
    pub fn has_table(&self) -> bool {
        self.front != 0
    }

    /// The sixteen lanes; disabled ones have length 0.
    pub fn lanes(&self) -> &[Lane; LANES] {
        &self.lanes
    }

    /// The end of the last lane, in bytes from the start of the buffer.
    pub fn end(&self) -> u64 {
        self.live().map(|(_, lane)| lane.offset.saturating_add(lane.bytes)).max().unwrap_or(0)
    }

    fn live(&self) -> impl Iterator<Item = (usize, Lane)> {
        self.lanes.iter().copied().enumerate().filter(|(_, lane)| lane.bytes > 0)
    }

    /// The byte range of a lane in a buffer.
    fn range(&self, lane: Lane, length: usize) -> Result<Range<usize>> {
        let end = lane.offset.checked_add(lane.bytes).filter(|end| *end <= length as u64);
        let end = end.ok_or_else(|| {
            let place = format!("{:#x} bytes at {:#x}", lane.bytes, lane.offset);
            Error::kernel(Some(lane.offset), format!("a lane, {place}, does not lie in its buffer of {length:#x}"))
        })?;
        Ok(lane.offset as usize..end as usize)
    }

    /// The offset of each weight `[Cout, Cin, Kh, Kw]` in the buffer, in bytes. `None` if one lies
    /// beyond `length` bytes.
    pub fn places(&self, length: usize) -> Option<Vec<usize>> {
        // Checked before memory is allocated: lanes together are at most as long as the buffer.
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

    /// Writes weights `[Cout, Cin, Kh, Kw]` and, if lanes begin with one, the function table into
    /// the kernel's buffer. Bytes outside of lanes are kept.
    ///
    /// # Errors
    /// E0705 for a wrong number of weights, a missing or unexpected table, or a lane outside of the
    /// buffer.
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

    /// Reads the weights `[Cout, Cin, Kh, Kw]` from the kernel's buffer.
    ///
    /// # Errors
    /// E0705 if a lane lies outside of the buffer.
    pub fn unpack(&self, buffer: &[u8]) -> Result<Vec<f16>> {
        // Lanes must lie inside the buffer, so registers alone cannot make this allocate much.
        // Lanes of a task may overlap.
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

    /// The function table at the beginning of the first lane, if lanes have one.
    pub fn table<'a>(&self, buffer: &'a [u8]) -> Option<&'a [u8; TABLE_BYTES as usize]> {
        let (_, first) = self.live().next().filter(|_| self.has_table())?;
        let range = self.range(first, buffer.len()).ok()?;
        buffer[range].first_chunk()
    }
}

/// Packs weights `[Cout, Cin, Kh, Kw]` without function tables: all lanes in sequence.
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
    // Checked before memory is allocated.
    geometry.check(weights.len())?;
    let lanes = Lanes::new(geometry, false);
    let mut bytes = vec![0; lanes.end() as usize];
    lanes.pack_into(weights, None, &mut bytes)?;
    Ok(bytes)
}
