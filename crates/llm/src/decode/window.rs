//! The programs of a window, loaded, with the surfaces of every layer bound.

use std::ops::Range;

use ferrane_device::{Bindings, Device, ErrorKind, Executable, Layout, ReadAccess, Request, Surface, WriteAccess};
use ferrane_host::pool;
use half::f16;

use super::constants::LayerMatrices;
use super::program::{DecodeInput, DecodeKernel, DecodeMatrix, DecodeShape, head_order};
use super::quantize::{WeightType, quantize_row};
use super::slots::Slot;
use crate::config::Config;
use crate::forward::Error;
use crate::kernels::KernelError;
use crate::layout::OUTPUT;
use crate::weights::{Part, Slot as Tensor, WeightSource};

/// Values that are read at once.
const READ: usize = 1 << 16;

/// Below this many words of one head, a copy is faster on one thread.
const ALONE: usize = 1024;

type DeviceResult<T> = ferrane_device::Result<T>;

/// The surfaces that hold weights, by layer and input. A program that needs another layout for an
/// input (on some paths all inputs of a program must have the same size) gets its own copy.
#[derive(Default)]
pub(super) struct Staged(Vec<(usize, DecodeInput, Surface)>);

impl Staged {
    /// The surface of a weight in `layout`; copies the weight into a new surface if no surface has
    /// that layout.
    fn get(&mut self, device: &Device, layer: usize, input: DecodeInput, layout: &Layout) -> DeviceResult<Surface> {
        let same = |entry: &&(usize, DecodeInput, Surface)| entry.0 == layer && entry.1 == input;
        let found: Vec<&Surface> = self.0.iter().filter(same).map(|(.., s)| s).collect();
        if let Some(surface) = found.iter().find(|s| s.layout() == layout) {
            return Ok((*surface).clone());
        }
        let surface = device.surface(layout)?;
        if let Some(other) = found.first() {
            copy_rows(&other.read()?, &mut surface.write()?);
        }
        self.0.push((layer, input, surface.clone()));
        Ok(surface)
    }

    /// Calls `write(layer, input, surface)` on all surfaces, several at a time.
    pub(super) fn for_each(
        &self,
        write: impl Fn(usize, DecodeInput, &Surface) -> Result<(), Error> + Sync,
    ) -> Result<(), Error> {
        pool::try_for_each_range(self.0.len(), 1, |range| {
            self.0[range].iter().try_for_each(|(layer, input, surface)| write(*layer, *input, surface))
        })
    }

    /// Writes the weights into all existing surfaces, several at a time.
    pub(super) fn stage(&self, config: &Config, source: &dyn WeightSource, types: WeightType) -> Result<(), Error> {
        let first = |layer: usize, input: DecodeInput| {
            self.0.iter().position(|(l, i, _)| (*l, *i) == (layer, input)).unwrap_or(self.0.len())
        };
        pool::try_for_each_range(self.0.len(), 1, |range| {
            range.clone().zip(&self.0[range]).try_for_each(|(at, &(layer, input, ref surface))| {
                // Units are written with their matrix, and further layouts of an input are copies.
                let units = match input {
                    DecodeInput::Units(_) => return Ok(()),
                    _ if first(layer, input) != at => return Ok(()),
                    DecodeInput::Weight(matrix) => self.0.get(first(layer, DecodeInput::Units(matrix))),
                    _ => None,
                };
                stage_one((layer, input, surface), units.map(|(.., s)| s), config, source, types)
            })
        })?;
        for (at, (layer, input, surface)) in self.0.iter().enumerate() {
            let original = first(*layer, *input);
            if original < at {
                copy_rows(&self.0[original].2.read().map_err(weights_of)?, &mut surface.write().map_err(weights_of)?);
            }
        }
        Ok(())
    }
}

fn weights_of(source: ferrane_device::Error) -> Error {
    Error::Device { kernel: "weights", source }
}

/// Writes a weight into its surface, and the units of its rows into theirs.
fn stage_one(
    (layer, input, surface): (usize, DecodeInput, &Surface),
    units: Option<&Surface>,
    config: &Config,
    source: &dyn WeightSource,
    types: WeightType,
) -> Result<(), Error> {
    let mut access = surface.write().map_err(weights_of)?;
    let row_of = |access: &mut WriteAccess, i: usize, values: &[f32]| {
        if let Some(row) = access.row_mut(i) {
            for (bytes, value) in row.chunks_exact_mut(2).zip(values) {
                bytes.copy_from_slice(&f16::from_f32(*value).to_le_bytes());
            }
        }
    };
    match (input, types) {
        (DecodeInput::Weight(matrix), WeightType::Int8) => {
            let (mut codes, mut found) = (Vec::new(), Vec::new());
            each_row(config, source, layer, matrix, |at, row| {
                codes.resize(row.len(), 0);
                let refused = Error::Quantize { layer, tensor: input.name(), row: at };
                found.push(quantize_row(row, &mut codes).ok_or(refused)?.to_f32());
                let bytes = access.row_mut(at).unwrap_or_default();
                bytes.iter_mut().zip(&codes).for_each(|(byte, code)| *byte = *code as u8);
                Ok(())
            })?;
            if let Some(units) = units {
                row_of(&mut units.write().map_err(weights_of)?, 0, &found);
            }
        }
        // Constants are not staged.
        (DecodeInput::Weight(_), WeightType::Int4) => {}
        (DecodeInput::Weight(matrix), WeightType::Fp16) => {
            let (words, stride) = rows_of(&mut access);
            let mut at = 0;
            for rows in tensors(config, layer, matrix) {
                let step = if rows.order.is_none() && stride == rows.cols { (READ / rows.cols).max(1) } else { 1 };
                for row in (0..rows.count).step_by(step) {
                    let count = step.min(rows.count - row);
                    let (stored, words) = (rows.stored(row), &mut words[(at + row) * stride..][..count * rows.cols]);
                    source.rows_f16(rows.tensor, stored..stored + count, words)?;
                }
                source.release(rows.tensor, 0..rows.count);
                at += rows.count;
            }
        }
        (DecodeInput::Bias, _) => {
            let size = |part| if part == Part::Bq { config.q_dim() } else { config.kv_dim() };
            let mut all = Vec::new();
            for part in [Part::Bq, Part::Bk, Part::Bv] {
                let values = vector(source, layer, part, size(part))?;
                // Those of values are not rotated, so they keep their order.
                let order = if part == Part::Bv { (0..config.head_dim).collect() } else { head_order(config) };
                all.extend(values.chunks(config.head_dim).flat_map(|head| order.iter().map(move |&i| head[i])));
            }
            row_of(&mut access, 0, &all);
        }
        (DecodeInput::Gain, _) => {
            // A gain is repeated for each head.
            let parts = [(Part::QNorm, config.heads), (Part::KNorm, config.kv_heads)];
            let mut at = 0;
            for (part, heads) in parts {
                let values = vector(source, layer, part, config.head_dim)?;
                let values: Vec<f32> = head_order(config).iter().map(|&i| values[i]).collect();
                (at..at + heads).for_each(|row| row_of(&mut access, row, &values));
                at += heads;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Reads a tensor of one axis.
fn vector(source: &dyn WeightSource, layer: usize, part: Part, size: usize) -> Result<Vec<f32>, Error> {
    let mut values = vec![0.0; size];
    source.rows(Tensor::Layer(layer, part), 0..1, &mut values)?;
    Ok(values)
}

/// The rows of a tensor in a matrix of the programs.
pub(super) struct InputRows {
    tensor: Tensor,
    /// Number of rows, and of values in each.
    pub(super) count: usize,
    pub(super) cols: usize,
    /// The order of the rows of each head, if it differs from the stored one.
    order: Option<Vec<usize>>,
}

impl InputRows {
    /// The stored row that is this one.
    fn stored(&self, row: usize) -> usize {
        match &self.order {
            Some(order) => row - row % order.len() + order[row % order.len()],
            None => row,
        }
    }
}

/// The tensors that a matrix of the programs consists of, in the order of its rows.
pub(super) fn tensors(config: &Config, layer: usize, matrix: DecodeMatrix) -> Vec<InputRows> {
    let plain = |part, count, cols| InputRows { tensor: Tensor::Layer(layer, part), count, cols, order: None };
    // Rows of heads, permuted to the programs' order of pairs.
    let turned = |part, count, cols| InputRows { order: Some(head_order(config)), ..plain(part, count, cols) };
    let (dim, hidden) = (config.dim, config.hidden);
    let (q, kv) = (config.q_dim(), config.kv_dim());
    match matrix {
        DecodeMatrix::Qkv => vec![turned(Part::Wq, q, dim), turned(Part::Wk, kv, dim), plain(Part::Wv, kv, dim)],
        DecodeMatrix::O => vec![plain(Part::Wo, dim, q)],
        DecodeMatrix::W13 => vec![plain(Part::W1, hidden, dim), plain(Part::W3, hidden, dim)],
        DecodeMatrix::W2 => vec![plain(Part::W2, dim, hidden)],
    }
}

/// Calls `each` with the index and the fp32 values of every row of a matrix of the programs.
pub(super) fn each_row(
    config: &Config,
    source: &dyn WeightSource,
    layer: usize,
    matrix: DecodeMatrix,
    mut each: impl FnMut(usize, &[f32]) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut at, mut values) = (0, Vec::new());
    for rows in tensors(config, layer, matrix) {
        values.resize(rows.cols, 0.0);
        for row in 0..rows.count {
            let stored = rows.stored(row);
            source.rows(rows.tensor, stored..stored + 1, &mut values)?;
            each(at + row, &values)?;
        }
        source.release(rows.tensor, 0..rows.count);
        at += rows.count;
    }
    Ok(())
}

/// All fp16 words of a surface `[…, width]`, and its row stride in words.
pub(super) fn rows_of(access: &mut WriteAccess) -> (&mut [f16], usize) {
    let stride = row_stride(access.layout());
    (access.f16s_mut(), stride)
}

/// The row stride of an fp16 surface in elements; a row is the whole last axis.
fn row_stride(layout: &Layout) -> usize {
    let next = layout.row(1).map_or(0, |row| row.start);
    next / layout.element_bytes().max(1)
}

/// Copies the rows, and the part of each row, that two surfaces have in common.
fn copy_rows(from: &ReadAccess, to: &mut WriteAccess) {
    let mut i = 0;
    while let (Some(from), Some(to)) = (from.row(i), to.row_mut(i)) {
        let width = from.len().min(to.len());
        to[..width].copy_from_slice(&from[..width]);
        i += 1;
    }
}

/// Keys and values of one layer, each `[1, kv_heads, cached, width]`.
pub(super) struct Cache {
    pub(super) keys: Surface,
    pub(super) values: Surface,
}

impl Cache {
    pub(super) fn new(device: &Device, layouts: &[Layout; 2]) -> DeviceResult<Cache> {
        Ok(Cache { keys: device.surface(&layouts[0])?, values: device.surface(&layouts[1])? })
    }

    /// Writes `count` rows `[kv_heads · head]` of keys and of values, spaced by `stride` words, to
    /// the positions from `at` on.
    pub(super) fn append(
        &self,
        at: usize,
        rows: [&[f16]; 2],
        stride: usize,
        count: usize,
        head: usize,
    ) -> Result<(), Error> {
        let write = |surface: &Surface| surface.write().map_err(|source| Error::Device { kernel: "cache", source });
        let (mut keys, mut values) = (write(&self.keys)?, write(&self.values)?);
        let (all, positions) = (keys.layout().shape[1], keys.layout().shape[2]);
        // A row or two are faster on one thread.
        let heads = if count * head < ALONE { all } else { 1 };
        let [(keys, key), (values, value)] = [&mut keys, &mut values].map(rows_of);
        let [of_key, of_value] = [key, value].map(|width| positions * width);
        let [keys_end, values_end] = [keys.len().min(all * of_key), values.len().min(all * of_value)];
        let keys = (&mut keys[..keys_end], heads * of_key);
        let values = (&mut values[..values_end], heads * of_value);
        pool::for_each_chunk_pair_mut(keys, values, |task, keys, values| {
            for ((words, width), rows) in [(keys, key), (values, value)].into_iter().zip(rows) {
                for (h, words) in words.chunks_mut(positions * width).enumerate() {
                    let from = (task * heads + h) * head;
                    for (row, to) in rows.chunks(stride).take(count).zip(words[at * width..].chunks_mut(width)) {
                        to[..head].copy_from_slice(&row[from..from + head]);
                    }
                }
            }
        });
        Ok(())
    }

    /// Copies the first `count` positions of another cache.
    pub(super) fn take(&self, other: &Cache, count: usize) -> DeviceResult<()> {
        for (to, from) in [(&self.keys, &other.keys), (&self.values, &other.values)] {
            let (from, mut to) = (from.read()?, to.write()?);
            let (heads, before, now) = (from.layout().shape[1], from.layout().shape[2], to.layout().shape[2]);
            for h in 0..heads {
                for t in 0..count {
                    if let (Some(from), Some(to)) = (from.row(h * before + t), to.row_mut(h * now + t)) {
                        to.copy_from_slice(from);
                    }
                }
            }
        }
        Ok(())
    }

    /// Moves the positions from the end of `range` up to `end` to its begin, and rotates their keys
    /// back by the angles of `turns`, one for each pair.
    pub(super) fn drop_positions(&self, range: Range<usize>, end: usize, turns: &[(f32, f32)]) -> DeviceResult<()> {
        for (surface, turns) in [(&self.keys, Some(turns)), (&self.values, None)] {
            let mut access = surface.write()?;
            let (heads, positions) = (access.layout().shape[1], access.layout().shape[2]);
            let (words, width) = rows_of(&mut access);
            for words in words.chunks_mut(positions * width).take(heads) {
                let last = words.len().min(end * width);
                words.copy_within(range.end * width..last, range.start * width);
                let Some(turns) = turns else { continue };
                for row in words[range.start * width..last - range.len() * width].chunks_mut(width) {
                    let (first, second) = row.split_at_mut(turns.len());
                    for ((a, b), (cos, sin)) in first.iter_mut().zip(second).zip(turns) {
                        let (x, y) = (a.to_f32(), b.to_f32());
                        (*a, *b) = (f16::from_f32(x * cos + y * sin), f16::from_f32(y * cos - x * sin));
                    }
                }
            }
        }
        Ok(())
    }

    /// Zeroes a range of positions: masked rows must still be finite.
    pub(super) fn clear(&self, range: Range<usize>) -> DeviceResult<()> {
        for surface in [&self.keys, &self.values] {
            let mut access = surface.write()?;
            let (heads, positions) = (access.layout().shape[1], access.layout().shape[2]);
            let (words, width) = rows_of(&mut access);
            for words in words.chunks_mut(positions * width).take(heads) {
                let end = words.len().min(range.end * width);
                words[range.start * width..end].fill(f16::ZERO);
            }
        }
        Ok(())
    }
}

/// A loaded program, the surfaces that layers share (activations and output), and requests. Of
/// rotation and mask there is a surface for each kind of attention.
pub(super) struct WindowKernel {
    part: DecodeKernel,
    /// One for all layers, or one for each layer from `first` on if these have constants.
    executables: Vec<Executable>,
    /// The first layer that the program is bound for.
    first: usize,
    /// Shared inputs, with the index of the kind of attention; 0 for inputs of all layers.
    shared: Vec<(DecodeInput, usize, Surface)>,
    out: Surface,
    out_width: usize,
    /// A request for each layer from `first` on, by the slot whose caches the program reads: 0 if
    /// it reads none, or those of several.
    requests: Vec<Vec<Request>>,
}

impl WindowKernel {
    /// Compiles the program: once, or for each layer if `layers` has the constants of these.
    pub(super) fn new(
        device: &Device,
        shape: &DecodeShape,
        part: DecodeKernel,
        layers: &[LayerMatrices],
    ) -> Result<WindowKernel, Error> {
        let kernel = part.name();
        let at = |source| Error::Device { kernel, source };
        let load = |layer: Option<&LayerMatrices>| -> Result<Executable, Error> {
            let program = shape.build_over(part, layer).map_err(|source| KernelError::Mil { kernel, source })?;
            device.load(&program, kernel).map_err(|source| match (layer, source.kind()) {
                (Some(_), ErrorKind::CompileBudget) => Error::Constants { kernel, layers: layers.len(), source },
                _ => at(source),
            })
        };
        // Keys and values alone are computed of the last layer.
        let first = if part == DecodeKernel::KeysValues { shape.config.layers - 1 } else { 0 };
        let executables = match layers.get(first..) {
            Some(layers) if !layers.is_empty() => {
                layers.iter().map(|layer| load(Some(layer))).collect::<Result<Vec<_>, _>>()?
            }
            _ => vec![load(None)?],
        };
        let executable = &executables[0];
        let out = device.surface(&layout_of(device, executable, OUTPUT).map_err(at)?).map_err(at)?;
        let mut shared = Vec::new();
        for (input, ..) in shape.inputs(part).into_iter().filter(|(input, ..)| input.is_shared()) {
            let layout = layout_of(device, executable, input.name()).map_err(at)?;
            let kinds = if input.is_of_kind() { shape.config.attention_kinds().len() } else { 1 };
            for kind in 0..kinds {
                shared.push((input, kind, device.surface(&layout).map_err(at)?));
            }
        }
        let out_width = shape.out_width(part);
        Ok(WindowKernel { part, executables, first, shared, out, out_width, requests: Vec::new() })
    }

    /// The layouts of the cache's keys and values.
    pub(super) fn cache_layouts(&self, device: &Device) -> Result<[Layout; 2], Error> {
        let executable = &self.executables[0];
        let of = |input: DecodeInput| layout_of(device, executable, input.name()).map_err(|e| self.error(e));
        Ok([of(DecodeInput::Keys(0))?, of(DecodeInput::Values(0))?])
    }

    fn error(&self, source: ferrane_device::Error) -> Error {
        Error::Device { kernel: self.part.name(), source }
    }

    /// The kernel that this program implements.
    pub(super) fn part(&self) -> DecodeKernel {
        self.part
    }

    /// Whether [`WindowKernel::bind`] has prepared the requests of a slot.
    pub(super) fn is_bound(&self, slot: usize) -> bool {
        self.requests.get(slot).is_some_and(|requests| !requests.is_empty())
    }

    /// Prepares a request for each layer, over its weights and the caches that the program reads,
    /// which begin with those of `slot`.
    pub(super) fn bind(
        &mut self,
        device: &Device,
        shape: &DecodeShape,
        staged: &mut Staged,
        slots: &[Slot],
        slot: usize,
    ) -> Result<(), Error> {
        let cache = |of: usize, layer: usize| slots.get(slot + of).and_then(|slot| slot.caches.get(layer));
        let (mut requests, kinds) = (Vec::new(), shape.config.attention_kinds());
        for layer in self.first..shape.config.layers {
            let executable = self.executables.get(layer - self.first).unwrap_or(&self.executables[0]);
            let mut bindings = Bindings::new().bind(OUTPUT, &self.out);
            let kind = kinds.iter().position(|kind| *kind == shape.config.attention(layer)).unwrap_or(0);
            for (input, ..) in shape.inputs(self.part) {
                let shared = self.find(input, if input.is_of_kind() { kind } else { 0 });
                let cached = match input {
                    DecodeInput::Keys(of) => cache(of, layer).map(|cache| &cache.keys),
                    DecodeInput::Values(of) => cache(of, layer).map(|cache| &cache.values),
                    _ => None,
                };
                let surface = match shared.or(cached) {
                    Some(surface) => surface.clone(),
                    None => {
                        let layout = layout_of(device, executable, input.name()).map_err(|e| self.error(e))?;
                        staged.get(device, layer, input, &layout).map_err(|e| self.error(e))?
                    }
                };
                bindings = bindings.bind(input.name(), &surface);
            }
            requests.push(executable.prepare(bindings).map_err(|e| self.error(e))?);
        }
        self.requests.resize_with(self.requests.len().max(slot + 1), Vec::new);
        self.requests[slot] = requests;
        Ok(())
    }

    /// Drops the requests, and with them the references to the layers' surfaces.
    pub(super) fn unbind(&mut self) {
        self.requests.clear();
    }

    /// The surface of a shared input, for layers of a kind of attention.
    fn find(&self, input: DecodeInput, kind: usize) -> Option<&Surface> {
        self.shared.iter().find(|(known, of, _)| (*known, *of) == (input, kind)).map(|(.., surface)| surface)
    }

    /// Calls `write(stride, width, words)` on a shared fp16 input: the row stride and the width of
    /// a row, both in words, and all words. Does nothing if the program has no such input.
    fn shared(
        &self,
        input: DecodeInput,
        kind: usize,
        write: impl FnOnce(usize, usize, &mut [f16]),
    ) -> Result<(), Error> {
        let Some(surface) = self.find(input, kind) else { return Ok(()) };
        let mut access = surface.write().map_err(|e| self.error(e))?;
        let width = access.layout().shape.last().copied().unwrap_or(1).max(1);
        let rows = access.layout().elements() / width;
        let (words, stride) = rows_of(&mut access);
        // A surface of one row reports no stride.
        let stride = stride.max(width);
        let end = words.len().min(rows * stride);
        write(stride, width, &mut words[..end]);
        Ok(())
    }

    /// Calls `write(words, stride)` on a shared fp16 input; `stride` is the row stride in words.
    pub(super) fn write(&self, input: DecodeInput, write: impl FnOnce(&mut [f16], usize)) -> Result<(), Error> {
        self.shared(input, 0, |stride, _, words| write(words, stride))
    }

    /// Calls `fill(row, words)` on each row of a shared fp16 input of a kind of attention.
    pub(super) fn fill(
        &self,
        input: DecodeInput,
        kind: usize,
        mut fill: impl FnMut(usize, &mut [f16]),
    ) -> Result<(), Error> {
        self.shared(input, kind, |stride, width, words| {
            words.chunks_mut(stride).enumerate().for_each(|(i, row)| fill(i, &mut row[..width]));
        })
    }

    /// Runs a layer over the caches of a slot and calls `read(words, stride)` on the output;
    /// `stride` is the row stride in words.
    pub(super) fn run(
        &self,
        slot: usize,
        layer: usize,
        read: impl FnOnce(&[f16], usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.requests[slot][layer - self.first].evaluate().map_err(|e| self.error(e))?;
        let access = self.out.read().map_err(|e| self.error(e))?;
        // A surface of one row reports no stride.
        let stride = row_stride(access.layout()).max(self.out_width);
        read(access.f16s(), stride)
    }
}

fn layout_of(device: &Device, executable: &Executable, port: &str) -> DeviceResult<Layout> {
    let none = || {
        ferrane_device::Error::new(ferrane_device::ErrorKind::Binding, "the program has no procedure").with_port(port)
    };
    let layout = device.fitted(executable.procedures().first().ok_or_else(none)?, port)?;
    // Rows are written with one stride, so they must be evenly spaced.
    let rows = layout.shape.len().saturating_sub(1);
    let mut next = None;
    for axis in (0..rows).rev().filter(|&axis| layout.shape[axis] > 1) {
        let stride = layout.strides[axis];
        if next.is_some_and(|next| next != stride) || stride % layout.element_bytes() != 0 {
            let what =
                format!("rows of shape {:?} with strides {:?} are not evenly spaced", layout.shape, layout.strides);
            return Err(ferrane_device::Error::new(ferrane_device::ErrorKind::Layout, what).with_port(port));
        }
        next = Some(stride * layout.shape[axis]);
    }
    Ok(layout)
}
