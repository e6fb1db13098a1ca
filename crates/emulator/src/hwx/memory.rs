//! The buffers of a program, and the locations of operands in them.
//!
//! Memory is bytes, as on the machine: a task finds the result of another by its address. While a
//! program is prepared, each halfword is marked once it is written, and reading an unmarked one is
//! an error. So evaluations need not check.

use ferrane_host::f16;
use ferrane_hwx::Hwx;
use ferrane_hwx::container::{BarUse, Bindings, Direction, TensorView};
use ferrane_hwx::surface::SurfaceLayout;

use crate::refusal::refused;
use ferrane_device::{Error, ErrorKind, Result};

/// Bytes of L2 that registers can name: addresses have 21 bits.
const L2: usize = 1 << 21;
/// The most bytes of all buffers without content in the file together.
const MOST: u64 = 1 << 30;
/// Index of the buffer for L2.
pub(super) const IN_L2: usize = 0;

/// A buffer of a program.
pub(super) struct Buffer {
    /// Name of the buffer, for messages.
    pub name: String,
    /// The first bytes of the buffer; the rest is zeros.
    pub content: Vec<u8>,
    /// Bytes that tasks may address.
    pub bytes: usize,
    /// While the program is prepared: which halfwords were written; `None` if all count as written.
    written: Option<Vec<bool>>,
    /// Tasks may write it.
    writable: bool,
}

/// A tensor of the program.
pub(super) struct Port {
    pub tensor: TensorView,
    /// The first four extents: batches, channels, rows, columns.
    pub shape: [usize; 4],
    pub direction: Direction,
    pub span: Span,
}

/// All buffers, and the base address registers that refer to them.
pub(super) struct Buffers {
    pub list: Vec<Buffer>,
    bars: Vec<(u32, usize)>,
    pub ports: Vec<Port>,
}

/// The location of an operand's fp16 elements: groups, channels, rows, columns.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub buffer: usize,
    pub base: usize,
    /// Extents as the task sees them.
    pub extents: [usize; 4],
    /// Strides in memory, in bytes: from group to group, plane to plane, row to row.
    pub strides: [usize; 3],
    /// Channels of a plane, interleaved at each column.
    pub interleave: usize,
    /// In memory, channels and columns are exchanged.
    pub turned: bool,
}

impl Span {
    /// Number of elements; `None` on overflow.
    pub(super) fn elements(&self) -> Option<usize> {
        self.extents.iter().try_fold(1usize, |n, e| n.checked_mul(*e))
    }

    /// The extents in memory.
    fn lying(&self) -> [usize; 4] {
        turned(self.extents, self.turned)
    }

    /// One past the last byte; `None` on overflow.
    pub(super) fn end(&self) -> Option<usize> {
        let [g, c, h, w] = self.lying().map(|e| e.saturating_sub(1));
        let side = c.min(self.interleave.saturating_sub(1));
        let places =
            [(g, self.strides[0]), (c / self.interleave.max(1), self.strides[1]), (h, self.strides[2]), (side, 2)];
        let last = places.iter().try_fold(self.base, |at, (n, s)| at.checked_add(n.checked_mul(*s)?))?;
        last.checked_add(w.checked_mul(self.interleave.checked_mul(2)?)?)?.checked_add(2)
    }

    /// The byte offset of each element, in the order of the extents.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> + '_ {
        let [groups, channels, rows, columns] = self.extents;
        let [sg, sp, sh] = self.strides;
        let side = self.interleave;
        let across = move |channel: usize| channel / side * sp + channel % side * 2;
        let along = move |column: usize| column * side * 2;
        let place = move |c, w| if self.turned { along(c) + across(w) } else { across(c) + along(w) };
        (0..groups).flat_map(move |g| {
            (0..channels).flat_map(move |c| {
                (0..rows).flat_map(move |h| {
                    let row = self.base + g * sg + h * sh;
                    (0..columns).map(move |w| row + place(c, w))
                })
            })
        })
    }
}

/// Extents, with channels and columns exchanged.
pub(super) fn turned([g, c, h, w]: [usize; 4], turned: bool) -> [usize; 4] {
    if turned { [g, w, h, c] } else { [g, c, h, w] }
}

impl Buffers {
    /// Only L2.
    pub(super) fn of_l2() -> Buffers {
        let l2 = Buffer {
            name: "L2".into(),
            content: Vec::new(),
            bytes: L2,
            written: Some(vec![false; L2 / 2]),
            writable: true,
        };
        Buffers { list: vec![l2], bars: Vec::new(), ports: Vec::new() }
    }

    /// L2 and the buffers of a program.
    pub(super) fn new(hwx: &Hwx, bindings: &Bindings) -> Result<Buffers> {
        let sections = hwx.sections();
        let mut all = Buffers::of_l2();
        let mut known: Vec<(u64, usize)> = Vec::new();
        let mut total = 0u64;
        for bar in &bindings.bars {
            if let Some(&(_, buffer)) = known.iter().find(|(address, _)| *address == bar.address) {
                all.bars.push((bar.index, buffer));
                continue;
            }
            let section = sections.iter().find(|s| s.addr == bar.address && s.size > 0);
            let tensor = bindings.ports.iter().find(|p| p.address == Some(bar.address)).and_then(|p| p.tensor.as_ref());
            let (size, content, is_output) = match &bar.holds {
                BarUse::Constants(_) => {
                    let content = section.map(|s| hwx.content(s)).unwrap_or_default();
                    (content.len() as u64, content.to_vec(), false)
                }
                BarUse::Scratch(_) => (section.map_or(0, |s| s.size), Vec::new(), true),
                BarUse::Port(_) => {
                    let size = section.map_or(0, |s| s.size).max(tensor.map_or(0, |t| t.bytes));
                    (size, Vec::new(), tensor.is_some_and(|t| t.direction == Some(Direction::Output)))
                }
                BarUse::Text | BarUse::Unknown => continue,
            };
            total = total.saturating_add(if content.is_empty() { size } else { 0 });
            if total > MOST {
                let message = format!("the buffers of the program have more than {MOST:#x} bytes");
                return Err(Error::new(ErrorKind::OutOfMemory, message));
            }
            let bytes = size as usize;
            all.bars.push((bar.index, all.list.len()));
            known.push((bar.address, all.list.len()));
            let written = is_output.then(|| vec![false; bytes / 2 + 1]);
            all.list.push(Buffer { name: bindings.label(bar.index), content, bytes, written, writable: is_output });
        }
        for port in &bindings.ports {
            let Some(tensor) = &port.tensor else {
                return Err(refused(format!("{}: no command says its shape", port.name)));
            };
            let buffer = port.bars.iter().find_map(|bar| all.at(*bar));
            let buffer = buffer.ok_or_else(|| refused(format!("{}: no base address is its", port.name)))?;
            let made = all.port(tensor, buffer)?;
            all.ports.push(made);
        }
        Ok(all)
    }

    /// The buffer that a base address register refers to.
    pub(super) fn at(&self, bar: u32) -> Option<usize> {
        self.bars.iter().find(|(index, _)| *index == bar).map(|(_, buffer)| *buffer)
    }

    fn port(&self, tensor: &TensorView, buffer: usize) -> Result<Port> {
        let name = &tensor.name;
        let wrong = |what: String| refused(format!("tensor {name}: {what}"));
        if tensor.type_name() != "fp16" || tensor.element_size != 2 {
            return Err(wrong(format!(
                "elements of {}, {} bytes, are not run",
                tensor.type_name(),
                tensor.element_size
            )));
        }
        let surface = SurfaceLayout::of_tensor(tensor).map_err(|e| wrong(e.to_string()))?;
        // A batch of the tensor is a group of the tasks.
        let [n, c, h, w] = surface.nchw.map(|n| n as usize);
        let Some(direction) = tensor.direction else { return Err(wrong("neither input nor output".into())) };
        // `SurfaceLayout` bounds the strides by the address space.
        let strides = [surface.batch, surface.plane, surface.row].map(|stride| stride as usize);
        let interleave = surface.interleave as usize;
        let span = Span { buffer, base: 0, extents: [n, c, h, w], strides, interleave, turned: false };
        if span.end().is_none_or(|end| end > self.list[buffer].bytes) {
            return Err(wrong(format!(
                "{n} batches of {c} channels of {w}×{h} with strides {:#x}, {:#x} and {:#x} do not lie in {:#x} bytes",
                surface.batch, surface.plane, surface.row, self.list[buffer].bytes
            )));
        }
        Ok(Port { tensor: tensor.clone(), shape: span.extents, direction, span })
    }

    /// Checks that an operand lies in its buffer and was written completely.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn readable(&self, span: &Span) -> std::result::Result<(), String> {
        self.inside(span)?;
        self.written(span.buffer, span.places())
    }

    /// Checks that the halfwords at these offsets of a buffer were written.
    ///
    /// # Errors
    /// The first one that was not.
    pub(super) fn written(
        &self,
        buffer: usize,
        mut places: impl Iterator<Item = usize>,
    ) -> std::result::Result<(), String> {
        let buffer = &self.list[buffer];
        let Some(written) = &buffer.written else { return Ok(()) };
        match places.find(|at| !written.get(at / 2).copied().unwrap_or(false)) {
            Some(at) => Err(format!("no task has written {} at {at:#x}", buffer.name)),
            None => Ok(()),
        }
    }

    /// Checks that a result lies in a writable buffer, and marks it as written.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn write(&mut self, span: &Span) -> std::result::Result<(), String> {
        self.inside(span)?;
        let buffer = &mut self.list[span.buffer];
        if !buffer.writable {
            return Err(format!("{} is not writable", buffer.name));
        }
        if let Some(written) = &mut buffer.written {
            span.places().for_each(|at| {
                if let Some(place) = written.get_mut(at / 2) {
                    *place = true;
                }
            });
        }
        Ok(())
    }

    fn inside(&self, span: &Span) -> std::result::Result<(), String> {
        let buffer = &self.list[span.buffer];
        let fits = span.end().is_some_and(|end| end <= buffer.bytes) && span.base.is_multiple_of(2);
        // Strides may overlap, but there are at most as many elements as halfwords.
        let few = span.elements().is_some_and(|n| n <= buffer.bytes / 2);
        if fits && few {
            return Ok(());
        }
        let [g, c, h, w] = span.extents;
        let what = format!("{g} groups of {c} channels of {w}×{h} from {:#x} on", span.base);
        Err(format!("{what} do not lie in {}, {:#x} bytes", buffer.name, buffer.bytes))
    }

    /// Drops the marks, which are only needed while the program is prepared.
    pub(super) fn settle(&mut self) {
        self.list.iter_mut().for_each(|b| b.written = None);
    }

    /// The bytes of all buffers at the start of an evaluation.
    pub(super) fn fresh(&self) -> Vec<Vec<u8>> {
        let fresh = |b: &Buffer| {
            let mut bytes = vec![0; b.bytes];
            bytes[..b.content.len()].copy_from_slice(&b.content);
            bytes
        };
        self.list.iter().map(fresh).collect()
    }
}

/// The elements of an operand.
pub(super) fn load(bytes: &[Vec<u8>], span: &Span) -> Vec<f32> {
    let buffer = &bytes[span.buffer];
    span.places().map(|at| half(buffer, at)).collect()
}

/// The fp16 value at a byte.
pub(super) fn half(buffer: &[u8], at: usize) -> f32 {
    let bytes = buffer.get(at..at + 2).and_then(|b| b.try_into().ok()).unwrap_or([0; 2]);
    f16::from_le_bytes(bytes).to_f32()
}

/// Writes the elements of a result.
pub(super) fn store(bytes: &mut [Vec<u8>], span: &Span, values: impl Iterator<Item = f32>) {
    let buffer = &mut bytes[span.buffer];
    for (at, value) in span.places().zip(values) {
        if let Some(place) = buffer.get_mut(at..at + 2) {
            place.copy_from_slice(&f16::from_f32(value).to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_lie_by_plane_and_side() {
        for (interleave, turned) in [(1, false), (1, true), (2, false), (3, true), (4, false), (8, true)] {
            let (extents, strides) = ([2, 6, 3, 5], [0x4000, 0x400, 0x80]);
            let span = Span { buffer: 0, base: 0x20, extents, strides, interleave, turned };
            let places: Vec<usize> = span.places().collect();
            assert_eq!(Some(places.len()), span.elements());
            let [_, channels, rows, columns] = extents;
            for (i, place) in places.iter().enumerate() {
                let (w, h) = (i % columns, i / columns % rows);
                let (c, g) = (i / (columns * rows) % channels, i / (columns * rows * channels));
                let (lane, step) = if turned { (w, c) } else { (c, w) };
                let plane = lane / interleave * 0x400 + lane % interleave * 2;
                assert_eq!(*place, 0x20 + g * 0x4000 + plane + h * 0x80 + step * interleave * 2);
            }
            let apart = places.iter().collect::<std::collections::BTreeSet<_>>().len();
            assert_eq!(apart, places.len(), "interleave {interleave}");
            assert!(places.iter().all(|at| at + 2 <= span.end().unwrap()));
        }
    }
}
