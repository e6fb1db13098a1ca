//! Convolutions of channels-last images: the channels of a pixel are neighbors, and so are those of
//! a result.
//!
//! The pixels under the filter are runs of channels, so a row of the product is gathered with whole
//! vectors, without a padded copy of the image, and any stride or dilation costs the same. Vectors
//! hold output channels, so small images fill them too. Results are written as the next convolution
//! reads them.
//!
//! - Dense and grouped convolutions are products of gathered rows with packed weights
//!   (`gemm::strip`). A task gathers some positions, block by block along K, and multiplies each
//!   block with all panels of weights.
//! - 3 × 3 filters over larger images are transformed (`winograd`).
//! - Images with few channels are read from copies of their rows (`planes`).
//! - Depthwise ones sum the pixels under the filter in place (`gemm::taps`), or in a copy of a few
//!   channels of the image (`small`).
//!
//! Sums add their products in order of taps, then channels.

use std::cell::Cell;
use std::ops::Range;

use super::padded::{extents, strides};
use super::planes::Planes;
use super::shape::{ConvShape, Finish, Image, PixelsMut, Weights};
use super::small::Small;
use super::winograd::Winograd;
use crate::gemm::{
    Ahead, BLOCK, Gather, GemmError, PITCH, Results, Runs, Store, Strip, Tap, TapRun, Taps, panel_width, tile_rows,
    with_scratch,
};
use crate::pool;

/// Positions of a task: their gathered rows of one block stay in the L2 cache.
pub(super) const POSITIONS: usize = 104;

/// The least positions of an area that sees few taps, on average.
const FAR_AREA: usize = 16;

/// Larger filters and images are not examined for far taps.
const FAR_WORK: usize = 1 << 20;

/// Pixels that a task of a depthwise convolution or pooling combines.
const TASK: usize = 128 << 10;

/// Elements that stay in the L1 cache.
const L1: usize = 4 << 10;

pub(super) const AXES: usize = 3;

/// The geometry of a convolution; missing axes come first.
#[derive(Clone, Debug)]
pub(super) struct Last {
    pub(super) input: [usize; AXES],
    pub(super) output: [usize; AXES],
    pub(super) steps: [usize; AXES],
    pub(super) pad: [usize; AXES],
    /// The taps that can see the input: their index in the filter, and their distance from where
    /// the filter begins.
    pub(super) taps: Vec<(usize, [usize; AXES])>,
    /// Taps of a row of the filter, if each sees the neighbor of what the tap before it sees; else
    /// 1.
    pub(super) tap_row: usize,
    /// Input channels of a group.
    pub(super) channels: usize,
    /// Output channels of a group.
    pub(super) outputs: usize,
    pub(super) groups: usize,
    /// No weight is infinite, NaN or huge, so padding may be left out.
    finite: bool,
    /// The tiles of a 3 × 3 filter that is transformed.
    pub(super) winograd: Option<Winograd>,
    /// Rectangles of positions that see the same taps, if the filter reaches so far that positions
    /// see few of them; else none.
    pub(super) areas: Vec<Area>,
    /// How a depthwise convolution copies its image, if it does.
    pub(super) small: Option<Small>,
    /// How rows of an image with few channels are copied.
    pub(super) planes: Option<Planes>,
}

/// Positions of a task: the same columns of some rows of results, or neighbors through the rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    first: usize,
    rows: usize,
    /// Positions of each row.
    length: usize,
}

impl Area {
    pub(super) fn neighbors(positions: Range<usize>) -> Area {
        Area { first: positions.start, rows: 1, length: positions.len() }
    }
}

impl Last {
    /// A convolution of a consistent shape; `None` if it cannot be addressed, or is depthwise and
    /// has weights that are not `finite`.
    pub(super) fn new(shape: &ConvShape, finite: bool) -> Option<Last> {
        let [input, output, kernel] = [&shape.input, &shape.output, &shape.kernel].map(|e| extents(e));
        let [steps, dilations] = [&shape.strides, &shape.dilations].map(|e| extents(e));
        let mut pad = [0; AXES];
        pad[AXES - shape.pad.len()..].copy_from_slice(&shape.pad);
        for a in 0..AXES {
            let reach =
                (kernel[a] - 1).checked_mul(dilations[a])?.checked_add((output[a] - 1).checked_mul(steps[a])?)?;
            reach.max(pad[a]).checked_add(input[a]).filter(|&n| n < isize::MAX as usize / 4)?;
        }
        let sees = |a: usize, at: usize| at + (output[a] - 1) * steps[a] >= pad[a] && at < pad[a] + input[a];
        let count = kernel.iter().try_fold(1usize, |n, &k| n.checked_mul(k)).filter(|&n| n < 1 << 24)?;
        let tap = |i: usize| {
            let at = [i / kernel[2] / kernel[1], i / kernel[2] % kernel[1], i % kernel[2]];
            (i, [0, 1, 2].map(|a| at[a] * dilations[a]))
        };
        let taps: Vec<_> = (0..count).map(tap).filter(|(_, at)| !finite || (0..AXES).all(|a| sees(a, at[a]))).collect();
        let (channels, outputs) = (shape.channels / shape.groups, shape.outputs / shape.groups);
        let groups = shape.groups;
        let mut last = Last {
            input,
            output,
            steps,
            pad,
            tap_row: tap_row(&taps),
            taps,
            channels,
            outputs,
            groups,
            finite,
            winograd: None,
            areas: Vec::new(),
            small: None,
            planes: None,
        };
        if last.is_depthwise() && (!finite || outputs != 1) {
            return None;
        }
        // The packed weights and the tables can be addressed.
        last.depth().checked_mul(last.columns())?.checked_mul(last.groups).filter(|&n| n < isize::MAX as usize / 8)?;
        if finite {
            last.winograd = Winograd::new(&last);
            last.areas = last.far_areas();
        }
        if last.is_depthwise() {
            last.small = Small::new(&last);
        } else if last.winograd.is_none() && last.areas.is_empty() {
            last.planes = Planes::new(&last);
        }
        Some(last)
    }

    /// True if a tap sees the input from a position, along one axis.
    fn sees(&self, axis: usize, position: usize, tap: usize) -> bool {
        (position * self.steps[axis]).wrapping_sub(self.pad[axis]).wrapping_add(tap) < self.input[axis]
    }

    /// The rectangles of [`Last::areas`], if they leave out much and are not too small to be
    /// multiplied well.
    fn far_areas(&self) -> Vec<Area> {
        let work = self.taps.len().saturating_mul(self.output[1].saturating_add(self.output[2]));
        if self.output[0] > 1 || self.taps.len() < 2 || work > FAR_WORK {
            return Vec::new();
        }
        // Neighbors along an axis that see the same taps.
        let runs = |axis: usize| {
            let seen = |i: usize| self.taps.iter().map(move |(_, at)| self.sees(axis, i, at[axis]));
            let mut runs: Vec<Range<usize>> = Vec::new();
            for i in 0..self.output[axis] {
                match runs.last_mut() {
                    Some(run) if seen(i).eq(seen(run.start)) => run.end = i + 1,
                    _ => runs.push(i..i + 1),
                }
            }
            runs
        };
        let (rows, cols) = (runs(1), runs(2));
        let (mut areas, mut seen) = (Vec::new(), 0);
        for (rows, cols) in rows.iter().flat_map(|rows| cols.iter().map(move |cols| (rows, cols))) {
            let sees = |at: &[usize; AXES]| self.sees(1, rows.start, at[1]) && self.sees(2, cols.start, at[2]);
            seen += rows.len() * cols.len() * self.taps.iter().filter(|(_, at)| sees(at)).count();
            let together = (POSITIONS / cols.len()).max(1);
            for row in rows.clone().step_by(together) {
                for col in cols.clone().step_by(POSITIONS) {
                    let (rows, length) = (together.min(rows.end - row), POSITIONS.min(cols.end - col));
                    areas.push(Area { first: row * self.output[2] + col, rows, length });
                }
            }
        }
        let few = areas.len().saturating_mul(FAR_AREA) <= self.places();
        let far = seen <= self.places().saturating_mul(self.taps.len()) / 5 * 3;
        if few && far { areas } else { Vec::new() }
    }

    pub(super) fn is_depthwise(&self) -> bool {
        self.channels == 1 && self.groups > 1
    }

    fn depth(&self) -> usize {
        self.taps.len() * self.channels
    }

    /// Columns of the packed weights of a group: whole vectors.
    pub(super) fn columns(&self) -> usize {
        if self.is_depthwise() { 1 } else { self.outputs.next_multiple_of(panel_width().1) }
    }

    pub(super) fn places(&self) -> usize {
        self.output.iter().product()
    }

    pub(super) fn packed_len(&self) -> usize {
        self.direct_len() + self.winograd.as_ref().map_or(0, |_| Winograd::packed_len(self))
    }

    /// Values of the packed weights of a direct product, which come first.
    fn direct_len(&self) -> usize {
        self.groups * self.depth() * self.columns()
    }

    /// Panels of columns: the first column and the width of each.
    pub(super) fn panels(&self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.columns().div_ceil(panel_width().0)).map(|panel| self.panel(panel))
    }

    /// The first column of a panel, and its width.
    fn panel(&self, panel: usize) -> (usize, usize) {
        let (first, full) = (panel * panel_width().0, panel_width().0);
        (first, full.min(self.columns() - first))
    }

    /// Packs weights: for each group and panel, the values of its columns step after step; for
    /// depthwise convolutions, a row of channels for each tap.
    pub(super) fn pack(&self, weights: Weights<'_>, filter: usize, to: &mut [f32]) {
        let row = self.channels * filter;
        if self.is_depthwise() {
            for (to, (tap, _)) in to.chunks_exact_mut(self.groups).zip(&self.taps) {
                for (channel, to) in to.iter_mut().enumerate() {
                    *to = weights.at(channel * row + tap);
                }
            }
            return;
        }
        let (depth, columns, full) = (self.depth(), self.columns(), panel_width().0);
        if depth == 0 {
            return;
        }
        let (to, transformed) = to.split_at_mut(self.direct_len());
        if self.winograd.is_some() {
            Winograd::pack(self, weights, transformed);
        }
        for (group, to) in to.chunks_exact_mut(depth * columns).enumerate() {
            pool::for_each_chunk_mut(to, depth * full, |panel, to| {
                let (first, width) = (panel * full, to.len() / depth);
                to.fill(0.0);
                for column in 0..width.min(self.outputs - first) {
                    let from = (group * self.outputs + first + column) * row;
                    for (t, (tap, _)) in self.taps.iter().enumerate() {
                        for channel in 0..self.channels {
                            let at = (t * self.channels + channel) * width + column;
                            to[at] = weights.at(from + channel * filter + tap);
                        }
                    }
                }
            });
        }
    }

    /// True if the channels of a pixel are neighbors, or need not be.
    pub(super) fn takes(&self, image: &Image<'_>) -> bool {
        image.channel == 1 || self.planes.is_some() || self.channels * self.groups == 1
    }

    /// True if pixels may be changed when they are gathered.
    pub(super) fn takes_prologue(&self) -> bool {
        self.taps.len() == 1 && !self.is_depthwise() && self.winograd.is_none()
    }

    /// Computes one image.
    ///
    /// # Safety
    /// The elements of the image are in its memory and its channels are neighbors, the weights are
    /// packed, and the results, a pixel of all channels for each position, are writable and nothing
    /// else accesses them. If a step adds an addend, it has an element for each result; a
    /// prologue has values for each channel.
    pub(super) unsafe fn run(
        &self,
        image: &Image<'_>,
        weights: &[f32],
        out: Results<'_>,
        finish: Option<Finish<'_>>,
        parallel: bool,
    ) -> Result<(), GemmError> {
        let threads = if parallel { pool::threads() } else { 1 };
        if let Some(small) = self.small.as_ref().filter(|small| small.occupies(self, threads)) {
            // SAFETY: the caller guarantees it.
            return unsafe { small.run(self, image, weights, out, finish, parallel) };
        }
        if self.is_depthwise() {
            // SAFETY: the caller guarantees it.
            unsafe { self.pixels(image, Some(weights), out, finish, parallel) };
            return Ok(());
        }
        if let Some(winograd) = &self.winograd {
            let weights = weights.split_at(self.direct_len());
            // SAFETY: the caller guarantees it.
            return unsafe { winograd.run(self, image, weights.into(), out, finish, parallel) };
        }
        if let Some(planes) = &self.planes {
            // SAFETY: the caller guarantees it.
            return unsafe { planes.run(self, image, weights, out, finish, parallel) };
        }
        let depth = self.depth();
        // Groups whose sums fit one block are gathered together.
        let together = BLOCK.checked_div(depth).unwrap_or(1).clamp(1, self.groups);
        let gathers = self.groups.div_ceil(together);
        let (places, panels) = (self.places(), self.panels().count());
        let far = self.areas.len();
        let mut areas = if far > 0 { far } else { places.div_ceil(POSITIONS) };
        let mut parts = 1;
        if gathers * areas < threads {
            parts = (threads / (gathers * areas)).clamp(1, panels);
            // Few panels divide badly; then threads share the positions, and each reads all
            // weights.
            let by_areas = panels * places.div_ceil(threads);
            if gathers == 1 && far == 0 && by_areas < panels.div_ceil(parts) * places.div_ceil(areas) {
                (areas, parts) = (threads, 1);
            }
        } else if areas < 4 * threads && gathers == 1 && far == 0 {
            areas = areas.next_multiple_of(threads);
        }
        let share = places.div_ceil(areas);
        let tasks = gathers * areas * parts;
        let per_task = if parallel { 1 } else { tasks };
        let positions = |area: usize| (area * share).min(places)..places.min((area + 1) * share);
        // A task that computes all channels of neighbors also finishes them.
        let whole = gathers * parts == 1 && far == 0;
        pool::try_for_each_range(tasks, per_task, |tasks| {
            for task in tasks {
                let (gather, rest) = (task / (areas * parts), task % (areas * parts));
                let (area, part) = (rest / parts, rest % parts);
                let groups = gather * together..self.groups.min((gather + 1) * together);
                let panels = part * panels / parts..(part + 1) * panels / parts;
                // SAFETY: the caller guarantees it; tasks have different groups, positions or
                // panels.
                unsafe {
                    let at = self.areas.get(area).copied().unwrap_or_else(|| Area::neighbors(positions(area)));
                    self.product(image, weights, out, groups, at, panels)?;
                    if whole {
                        self.finish(out, finish, positions(area));
                    }
                }
            }
            Ok::<_, GemmError>(())
        })?;
        if !whole {
            // SAFETY: all results have been written.
            unsafe { self.finish_all(out, finish, if parallel { areas.max(threads) } else { areas }) };
        }
        Ok(())
    }

    /// Calls what finishes results for all of them, in so many pieces.
    ///
    /// # Safety
    /// All results have been written, and nothing else accesses them.
    pub(super) unsafe fn finish_all(&self, out: Results<'_>, finish: Option<Finish<'_>>, pieces: usize) {
        if finish.is_none() {
            return;
        }
        let places = self.places();
        pool::for_each_range(places, places.div_ceil(pieces), |positions| {
            // SAFETY: the caller guarantees it; pieces have different positions.
            unsafe { self.finish(out, finish, positions) };
        });
    }

    /// Calls what finishes results.
    ///
    /// # Safety
    /// The results of the positions have been written, and nothing else accesses them.
    pub(super) unsafe fn finish(&self, out: Results<'_>, finish: Option<Finish<'_>>, positions: Range<usize>) {
        let Some(Finish(finish)) = finish.filter(|_| !positions.is_empty()) else { return };
        let len = (positions.len() - 1) * out.pitch + self.outputs * self.groups;
        // SAFETY: the caller guarantees it.
        let pixels = unsafe {
            match out.at(positions.start, 0).store {
                Store::F32(base) => PixelsMut::F32(std::slice::from_raw_parts_mut(base, len)),
                Store::F16(base) => PixelsMut::F16(std::slice::from_raw_parts_mut(base, len)),
            }
        };
        finish(positions, pixels);
    }

    /// The results of some groups, positions and panels.
    ///
    /// # Safety
    /// As of [`Last::run`].
    pub(super) unsafe fn product(
        &self,
        image: &Image<'_>,
        weights: &[f32],
        out: Results<'_>,
        groups: Range<usize>,
        area: Area,
        panels: Range<usize>,
    ) -> Result<(), GemmError> {
        let (count, depth) = (area.rows * area.length, self.depth());
        if count == 0 || panels.is_empty() {
            return Ok(());
        }
        let (columns, full) = (self.columns(), panel_width().0);
        // Tiles of about the same height.
        let height = area.length.div_ceil(area.length.div_ceil(tile_rows()));
        let tiles_per_panel = area.rows * area.length.div_ceil(height);
        let lines = || (0..area.rows).map(|line| (line * area.length, area.first + line * self.output[2]));
        let mut lists = LISTS.take();
        self.blocks(&groups, &area, &mut lists.blocks);
        let sums = if lists.blocks.len() > 1 { panels.len() * count * full } else { 0 };
        let result = with_scratch([count * PITCH, sums, 0], |[rows, sums, _]| {
            let Lists { blocks, runs, .. } = &mut lists;
            for (b, steps) in blocks.iter().enumerate() {
                self.gathered(image, groups.clone(), steps.clone(), runs);
                let gather = Gather {
                    pixels: image.pixels,
                    origin: image.origin,
                    strides: strides(image.strides),
                    input: self.input,
                    output: self.output,
                    steps: self.steps,
                    pad: self.pad,
                    runs,
                    prologue: image.prologue,
                };
                for (line, first) in lines() {
                    // SAFETY: the caller guarantees it; pixels of several taps have no gaps
                    // (`gathered`).
                    unsafe { gather.rows(first, area.length, &mut rows[line * PITCH..]) };
                }
                for (n, group) in groups.clone().enumerate() {
                    let runs = match groups.len() {
                        1 => Runs { count: 1, length: steps.len(), stride: 0 },
                        all => Runs { count: self.taps.len(), length: self.channels, stride: all * self.channels },
                    };
                    let packed = |panel: usize, steps: &Range<usize>| {
                        let (first, width) = self.panel(panel);
                        let from = (group * columns + first) * depth + steps.start * width;
                        &weights[from..from + steps.len() * width]
                    };
                    for panel in panels.clone() {
                        let (first, width) = self.panel(panel);
                        let (column, cols) = (group * self.outputs + first, width.min(self.outputs - first));
                        let b_panel = packed(panel, steps);
                        // What the tiles after these read: the next panel, or the next block's
                        // first.
                        let ahead = match blocks.get(b + 1) {
                            _ if panel + 1 < panels.end => packed(panel + 1, steps),
                            Some(steps) if groups.len() == 1 => packed(panels.start, steps),
                            _ => &[],
                        };
                        let ahead = Ahead::spread(ahead, tiles_per_panel, runs.count * runs.length);
                        let mut tile = 0;
                        for (line, first) in lines() {
                            let mut at = 0;
                            while at < area.length {
                                let row = line + at;
                                let partial = ((panel - panels.start) * count + row) * full;
                                let strip = Strip {
                                    a: rows.as_ptr().wrapping_add(row * PITCH + n * self.channels),
                                    runs,
                                    b: b_panel.as_ptr(),
                                    partial: sums.as_mut_ptr().wrapping_add(partial),
                                    first: b == 0,
                                    last: b + 1 == blocks.len(),
                                    out: out.at(first + at, column),
                                    cols,
                                    ahead: ahead.part(tile),
                                };
                                // SAFETY: the rows were gathered, the panels have all steps, and
                                // there is room for the sums of all panels and rows.
                                unsafe { strip.run(height.min(area.length - at), width) };
                                (at, tile) = (at + height, tile + 1);
                            }
                        }
                    }
                }
            }
        });
        LISTS.set(lists);
        result
    }

    /// Lists the blocks along K. If the weights are finite, taps that see only padding from all of
    /// these positions are left out.
    fn blocks(&self, groups: &Range<usize>, area: &Area, blocks: &mut Vec<Range<usize>>) {
        blocks.clear();
        let depth = self.depth();
        if groups.len() > 1 || !self.finite {
            return split(0..depth, blocks);
        }
        // Rows of results, counted through all planes.
        let (heights, widths) = (self.output[1], self.output[2]);
        let rows = area.first / widths..(area.first + (area.rows - 1) * widths + area.length).div_ceil(widths);
        // The columns of an area inside of its rows.
        let first = area.first % widths;
        let cols = if first + area.length <= widths { first..first + area.length } else { 0..widths };
        let sees = |at: &[usize; AXES]| {
            rows.clone().any(|row| self.sees(0, row / heights, at[0]) && self.sees(1, row % heights, at[1]))
                && cols.clone().any(|col| self.sees(2, col, at[2]))
        };
        let mut live = 0..0;
        for (t, _) in self.taps.iter().enumerate().filter(|(_, (_, at))| sees(at)) {
            let first = t * self.channels;
            if live.end != first {
                if !live.is_empty() {
                    split(live, blocks);
                }
                live = first..first;
            }
            live.end = first + self.channels;
        }
        // Something must store the results, even if no tap is left.
        if !live.is_empty() || blocks.is_empty() {
            split(live, blocks);
        }
    }

    /// Lists what is gathered for some groups and steps along K.
    fn gathered(&self, image: &Image<'_>, groups: Range<usize>, steps: Range<usize>, runs: &mut Vec<TapRun>) {
        runs.clear();
        // With several groups, all their channels are gathered, tap by tap.
        let channels = groups.len() * self.channels;
        let steps = if groups.len() > 1 { 0..self.taps.len() * channels } else { steps };
        let pixel = strides(image.strides)[AXES - 1];
        for (t, &(_, at)) in self.taps.iter().enumerate() {
            let low = steps.start.max(t * channels);
            let high = steps.end.min((t + 1) * channels);
            if low >= high {
                continue;
            }
            let run =
                TapRun { at, taps: 1, channels: high - low, from: groups.start * self.channels + low - t * channels };
            // Whole pixels next to each other are one run.
            if let Some(before) = runs.last_mut()
                && (run.channels, run.from) == (channels, 0)
                && (before.channels, before.from) == (channels, 0)
                && pixel == channels as isize
                && before.at[..2] == run.at[..2]
                && before.at[2] + before.taps == run.at[2]
            {
                before.taps += 1;
                continue;
            }
            runs.push(run);
        }
    }

    /// Results of one channel each: sums with weights, or the largest pixels without.
    ///
    /// A task computes some rows, a few vectors of channels at a time, so that the pixels of a row
    /// are in the L1 cache when the next row reads them.
    ///
    /// # Safety
    /// As of [`Last::run`].
    pub(super) unsafe fn pixels(
        &self,
        image: &Image<'_>,
        weights: Option<&[f32]>,
        out: Results<'_>,
        finish: Option<Finish<'_>>,
        parallel: bool,
    ) {
        let [depths, heights, widths] = self.output;
        let work = (widths * self.groups).saturating_mul(self.taps.len()).max(1);
        let rows = depths * heights;
        let per_task = if parallel { (TASK / work).clamp(1, rows.div_ceil(pool::threads())) } else { rows };
        pool::for_each_range(rows, per_task, |rows| {
            // SAFETY: the caller guarantees it, and rows have different results.
            unsafe { self.pixel_rows(image, weights, out, finish, rows) };
        });
    }

    /// Some rows of [`Last::pixels`].
    ///
    /// # Safety
    /// As of [`Last::run`], for what these rows read and write.
    pub(super) unsafe fn pixel_rows(
        &self,
        image: &Image<'_>,
        weights: Option<&[f32]>,
        out: Results<'_>,
        finish: Option<Finish<'_>>,
        rows: Range<usize>,
    ) {
        let (widths, lanes) = (self.output[2], panel_width().1);
        let (width, pixel) = (self.tap_row, strides(image.strides)[2]);
        let together = (L1 / (self.reach() * self.input[2] * lanes)).max(1) * lanes;
        let mut lists = LISTS.take();
        let Lists { segments, taps, .. } = &mut lists;
        segments.clear();
        taps.clear();
        rows.clone().for_each(|row| self.segments(image, row, segments, taps));
        for channel in (0..self.groups).step_by(together) {
            for segment in &*segments {
                let job = Taps {
                    taps: &taps[segment.taps.clone()],
                    weights: weights.map_or(std::ptr::null(), |w| w.as_ptr().wrapping_add(channel)),
                    pitch: self.groups,
                    channels: together.min(self.groups - channel),
                    width,
                    pixel,
                    count: segment.count,
                    step: self.steps[2] as isize * pixel,
                    out: out.at(segment.place, channel),
                };
                // SAFETY: the taps of a segment are inside the image, the weights have a row for
                // each tap, rows have different results, and the caller guarantees the rest.
                unsafe { job.run(image.pixels, segment.origin + channel as isize) };
            }
        }
        LISTS.set(lists);
        // SAFETY: the results of these rows have been written.
        unsafe { self.finish(out, finish, rows.start * widths..rows.end * widths) };
    }

    /// Calls `visit` with the index of the first channel of each pixel under the filter, in order
    /// of the taps.
    pub(super) fn each_tap(&self, image: &Image<'_>, place: usize, mut visit: impl FnMut(usize)) {
        let [_, heights, widths] = self.output;
        let strides = strides(image.strides);
        let at = [place / widths / heights, place / widths % heights, place % widths];
        for (_, tap) in &self.taps {
            let pixel = [0, 1, 2].map(|a: usize| (at[a] * self.steps[a] + tap[a]).wrapping_sub(self.pad[a]));
            if (0..AXES).all(|a| pixel[a] < self.input[a]) {
                let offset: isize = pixel.iter().zip(strides).map(|(&n, s)| n as isize * s).sum();
                visit(image.origin.wrapping_add_signed(offset));
            }
        }
    }

    /// The segments of one row of results: the positions that see every tap of the row, and one by
    /// one those that do not.
    fn segments(&self, image: &Image<'_>, row: usize, segments: &mut Vec<Segment>, taps: &mut Vec<Tap>) {
        let (heights, widths) = (self.output[1], self.output[2]);
        let strides = strides(image.strides);
        let mut begin = [0usize; 2];
        for (a, at) in [row / heights, row % heights].into_iter().enumerate() {
            begin[a] = (at * self.steps[a]).wrapping_sub(self.pad[a]);
        }
        let base = image.origin as isize + begin[0] as isize * strides[0] + begin[1] as isize * strides[1];
        let reach = self.taps.iter().map(|(_, at)| at[2]).max().unwrap_or(0);
        // Positions from `low` to `high` see every tap of the row.
        let low = self.pad[2].div_ceil(self.steps[2]).min(widths);
        let room = (self.input[2] + self.pad[2]).saturating_sub(reach);
        let high = room.div_ceil(self.steps[2]).clamp(low, widths);
        let mut at = 0;
        while at < widths {
            let whole = at >= low && at < high;
            let count = if whole { high - at } else { 1 };
            let x = (at * self.steps[2]).wrapping_sub(self.pad[2]);
            let first = taps.len();
            for (weights, (_, tap)) in self.taps.iter().enumerate() {
                let sees = |a: usize, begin: usize| begin.wrapping_add(tap[a]) < self.input[a];
                if sees(0, begin[0]) && sees(1, begin[1]) && (whole || sees(2, x)) {
                    let offset = tap.iter().zip(strides).map(|(&n, s)| n as isize * s).sum();
                    taps.push(Tap { offset, weights });
                }
            }
            let origin = base + x as isize * strides[2];
            segments.push(Segment { taps: first..taps.len(), place: row * widths + at, count, origin });
            at += count;
        }
    }
}

/// [`Last::tap_row`].
fn tap_row(taps: &[(usize, [usize; AXES])]) -> usize {
    let next = |pair: &[(usize, [usize; AXES])]| {
        let (one, [z, y, x]) = pair[0];
        pair[1] == (one + 1, [z, y, x + 1])
    };
    let width = 1 + taps.windows(2).take_while(|pair| next(pair)).count();
    let whole = taps.chunks(width).all(|row| row.len() == width && row.windows(2).all(next));
    if whole { width } else { 1 }
}

/// Adds blocks of about the same length.
fn split(steps: Range<usize>, blocks: &mut Vec<Range<usize>>) {
    let count = steps.len().div_ceil(BLOCK).max(1);
    let block = steps.len().div_ceil(count).next_multiple_of(16).min(BLOCK);
    let cut = |b: usize| (steps.start + b * block).min(steps.end);
    blocks.extend((0..count).map(|b| cut(b)..cut(b + 1)));
}

/// Lists that a task fills. The next task of the thread reuses their memory.
#[derive(Default)]
struct Lists {
    blocks: Vec<Range<usize>>,
    runs: Vec<TapRun>,
    segments: Vec<Segment>,
    taps: Vec<Tap>,
}

thread_local! {
    static LISTS: Cell<Lists> = const {
        Cell::new(Lists { blocks: Vec::new(), runs: Vec::new(), segments: Vec::new(), taps: Vec::new() })
    };
}

/// Results of one row that see the same taps.
struct Segment {
    /// Indices into the list of taps.
    taps: Range<usize>,
    /// Index of the first position, row-major over all results.
    place: usize,
    count: usize,
    /// Index of the pixel at which the filter begins for the first position; it may be outside.
    origin: isize,
}
