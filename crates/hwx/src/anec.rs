//! `.anec` files (also `.ane`): programs as the Linux driver's library for M1 loads them (spec:
//! linux-driver.md 4.1).
//!
//! The header has the sizes of descriptors and constants, the number of 16 KiB tiles of each
//! buffer, and the shapes of inputs and outputs. The payload is the descriptors followed, at the
//! next multiple of 16 bytes, by the constants. Buffer indices are fixed: 0 is the payload, 1 the
//! constants in it, 2 and 3 scratch memory between tasks; outputs start at 4, and inputs follow
//! them.
//!
//! A compiler may number buffers in another order, so [`Anec::from_hwx`] finds each by its name
//! ([`Bindings`]), assigns its fixed index and rewrites the descriptors. The payload begins at
//! 0x1000 in files of `anecc` and at 0x800 where current versions of `libane` expect it;
//! [`Anec::read`] accepts both.

use std::fmt::Write as _;

use ferrane_diag::Diagnostics;

use crate::container::{BarUse, Bindings, Direction, Hwx, PortBinding};
use crate::error::{Error, Result};
use crate::registers::{self, Generation};
use crate::task::{self, Task};
use crate::text;

/// Offset of the payload in files that `anecc` writes.
pub const ANECC_PAYLOAD: usize = 0x1000;
/// Offset at which `libane` expects the payload.
pub const LIBANE_PAYLOAD: usize = 0x800;
/// The size of a tile in bytes: 16 KiB.
pub const TILE_BYTES: u64 = 0x4000;
/// The buffer index of the first output.
pub const FIRST_PORT: usize = 4;
/// The size of the header's fields in bytes.
const HEADER: usize = 0x6a8;
/// The largest number of inputs and outputs together.
pub const MAX_PORTS: usize = BUFFERS - FIRST_PORT;
/// The number of buffers of a program.
const BUFFERS: usize = 32;
/// The first address of a container made from a file; the same as the compiler's.
const BASE: u64 = 0x3000_0000;

/// A program for the Linux driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anec {
    /// Offset of the payload in the file: [`ANECC_PAYLOAD`] or [`LIBANE_PAYLOAD`].
    pub payload_at: usize,
    /// The size of the first descriptor in bytes.
    pub first_size: u32,
    /// The number of descriptors.
    pub tasks: u32,
    /// The number of inputs, at most [`MAX_PORTS`] together with the outputs.
    pub inputs: u32,
    /// The number of outputs, at most [`MAX_PORTS`] together with the inputs.
    pub outputs: u32,
    /// The number of tiles of each buffer; 0 for an unused buffer.
    pub tiles: [u32; BUFFERS],
    /// For each buffer of an input or output: batches, channels, height, width, bytes per plane and
    /// bytes per row.
    pub shapes: [[u64; 6]; BUFFERS],
    /// The task descriptors, as the driver passes them to the engine.
    pub text: Vec<u8>,
    /// The constants: weights and function tables, as one piece.
    pub constants: Vec<u8>,
    /// Padding after the header, after the descriptors and after the constants. Files of `anecc`
    /// have zeros there.
    rest: [Vec<u8>; 3],
}

fn number(file: &[u8], at: usize, width: usize) -> Result<u64> {
    let bytes = at.checked_add(width).and_then(|end| file.get(at..end));
    let bytes = bytes.ok_or_else(|| Error::anec(file.len(), "the file ends in its header"))?;
    Ok(bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
}

fn number32(file: &[u8], at: usize) -> Result<u32> {
    number(file, at, 4).map(|n| n as u32)
}

/// The number of tiles that hold `bytes`, or `None` if it exceeds 32 bits.
fn tiles(bytes: u64) -> Option<u32> {
    u32::try_from(bytes.div_ceil(TILE_BYTES)).ok()
}

impl Anec {
    /// Reads a file.
    ///
    /// # Errors
    /// E0722 if sizes contradict each other or reach beyond the file.
    pub fn read(file: &[u8]) -> Result<Anec> {
        let (size, text_size, constants_size) = (number(file, 0, 8)?, number(file, 0x10, 8)?, number(file, 0x18, 8)?);
        let (first_size, count) = (number32(file, 8)?, number32(file, 0xc)?);
        let (inputs, outputs) = (number32(file, 0x20)?, number32(file, 0x24)?);
        if number(file, HEADER - 8, 8).is_err() {
            return Err(Error::anec(0, format!("{} bytes are no `.anec`: the header has {HEADER:#x}", file.len())));
        }
        let constants_at = text_size.checked_next_multiple_of(16);
        if text_size == 0 || constants_at.and_then(|at| at.checked_add(constants_size)) != Some(size) {
            let message = format!(
                "the size {size:#x} is not that of {text_size:#x} bytes of descriptors, rounded up to 16, and {constants_size:#x} of constants"
            );
            return Err(Error::anec(0, message));
        }
        if count == 0 || first_size == 0 || !first_size.is_multiple_of(4) || u64::from(first_size) > text_size {
            let message = format!("{count} descriptors, the first of {first_size:#x} bytes, in {text_size:#x} bytes");
            return Err(Error::anec(8, message));
        }
        if u64::from(inputs) + u64::from(outputs) > MAX_PORTS as u64 {
            let message = format!("{inputs} inputs and {outputs} outputs; a program has at most {MAX_PORTS}");
            return Err(Error::anec(0x20, message));
        }
        let fits = |begins: usize| (file.len().checked_sub(begins)).is_some_and(|room| room as u64 >= size);
        // A payload begins with a descriptor, so a payload at 0x800 is not all zeros.
        let empty =
            file.get(LIBANE_PAYLOAD..ANECC_PAYLOAD.min(file.len())).is_some_and(|gap| gap.iter().all(|b| *b == 0));
        let begins = match (fits(ANECC_PAYLOAD), fits(LIBANE_PAYLOAD)) {
            (true, _) if empty => ANECC_PAYLOAD,
            (_, true) if !empty => LIBANE_PAYLOAD,
            _ => {
                let message = format!(
                    "the payload has {size:#x} bytes, the file {:#x} after {LIBANE_PAYLOAD:#x}",
                    file.len().saturating_sub(LIBANE_PAYLOAD)
                );
                return Err(Error::anec(0, message));
            }
        };
        let (mut tiles, mut shapes) = ([0; BUFFERS], [[0; 6]; BUFFERS]);
        for i in 0..BUFFERS {
            tiles[i] = number32(file, 0x28 + 4 * i)?;
            for j in 0..6 {
                shapes[i][j] = number(file, 0xa8 + 8 * (6 * i + j), 8)?;
            }
        }
        // Checked above: both ends lie in the file.
        let (text_end, end) = (begins + text_size as usize, begins + size as usize);
        let constants_begin = end - constants_size as usize;
        Ok(Anec {
            payload_at: begins,
            first_size,
            tasks: count,
            inputs,
            outputs,
            tiles,
            shapes,
            text: file[begins..text_end].to_vec(),
            constants: file[constants_begin..end].to_vec(),
            rest: [&file[HEADER..begins], &file[text_end..constants_begin], &file[end..]].map(<[u8]>::to_vec),
        })
    }

    /// The bytes of the file; unchanged fields give back the bytes that were read.
    pub fn write(&self) -> Vec<u8> {
        let [before, between, behind] = &self.rest;
        let mut file = Vec::with_capacity(self.payload_at + self.text.len() + self.constants.len() + 16);
        for n in [self.payload_size() as u64, u64::from(self.tasks) << 32 | u64::from(self.first_size)] {
            file.extend_from_slice(&n.to_le_bytes());
        }
        for n in [self.text.len() as u64, self.constants.len() as u64] {
            file.extend_from_slice(&n.to_le_bytes());
        }
        for n in [self.inputs, self.outputs].iter().chain(&self.tiles) {
            file.extend_from_slice(&n.to_le_bytes());
        }
        for n in self.shapes.iter().flatten() {
            file.extend_from_slice(&n.to_le_bytes());
        }
        file.extend_from_slice(before);
        file.resize(self.payload_at, 0);
        file.extend(self.payload_with(between));
        file.extend_from_slice(behind);
        file
    }

    /// The size of the payload in bytes.
    fn payload_size(&self) -> usize {
        self.text.len().next_multiple_of(16) + self.constants.len()
    }

    /// Descriptors and constants, padded as the engine expects them.
    pub fn payload(&self) -> Vec<u8> {
        self.payload_with(&self.rest[1])
    }

    fn payload_with(&self, between: &[u8]) -> Vec<u8> {
        let mut payload = self.text.clone();
        payload.extend_from_slice(between);
        payload.resize(self.text.len().next_multiple_of(16), 0);
        payload.extend_from_slice(&self.constants);
        payload
    }

    /// Decodes the descriptors.
    ///
    /// # Errors
    /// E0704 if the chain of descriptors is broken.
    pub fn decode(&self) -> Result<Vec<Task>> {
        task::decode(generation()?, &self.text, Some(self.first_size as usize / 4))
    }

    /// Converts the program of a container. The payload begins at `begins`.
    ///
    /// # Errors
    /// E0721 if the program is not for H13, the only generation that the driver runs this way, or
    /// if the file format cannot express it. E0704 if the chain of descriptors is broken.
    pub fn from_hwx(hwx: &Hwx, begins: usize) -> Result<Anec> {
        let generation = generation()?;
        if hwx.subtype != generation.subtype {
            let name = hwx.generation().map_or(format!("subtype {}", hwx.subtype), |g| g.name.to_uppercase());
            let message = format!("the program is for {name}; the driver runs programs of H13 (A14, M1) only");
            return Err(Error::driver(8, message));
        }
        if ![ANECC_PAYLOAD, LIBANE_PAYLOAD].contains(&begins) {
            return Err(Error::driver(
                0,
                format!("a payload begins at {ANECC_PAYLOAD:#x} or {LIBANE_PAYLOAD:#x}, not at {begins:#x}"),
            ));
        }
        let (programs, texts) = (hwx.programs(), hwx.task_sections());
        let ([program], [(section, first)]) = (programs.as_slice(), texts.as_slice()) else {
            let message = format!(
                "{} programs and {} sections of descriptors; such a file has one of each",
                programs.len(),
                texts.len()
            );
            return Err(Error::driver(0, message));
        };
        let decoded = hwx.tasks(section, *first)?;
        let Some(head) = decoded.first() else { return Err(Error::driver(section.offset.into(), "no descriptor")) };
        let bindings = Bindings::of(hwx, program);
        let mut anec = Anec {
            payload_at: begins,
            first_size: 4 * head.len() as u32,
            tasks: decoded.len() as u32,
            inputs: 0,
            outputs: 0,
            tiles: [0; BUFFERS],
            shapes: [[0; 6]; BUFFERS],
            text: hwx.content(section).to_vec(),
            constants: Vec::new(),
            rest: [const { Vec::new() }; 3],
        };
        let places = anec.place(hwx, &bindings)?;
        anec.tiles[0] = tiles(anec.payload_size() as u64)
            .ok_or_else(|| Error::driver(section.offset.into(), "the payload has more tiles than 32 bits count"))?;
        for task in &decoded {
            anec.renumber(generation, task, &places)?;
        }
        Ok(anec)
    }

    /// Assigns every buffer of a program its fixed index. The result maps each index of the
    /// container to it.
    fn place(&mut self, hwx: &Hwx, bindings: &Bindings) -> Result<[Option<u32>; BUFFERS]> {
        let mut places = [None; BUFFERS];
        let mut set = |indices: &[u32], place: usize| {
            for index in indices {
                if let Some(entry) = places.get_mut(*index as usize) {
                    *entry = Some(place as u32);
                }
            }
        };
        let sections = hwx.sections();
        let named = |name: &str| sections.iter().find(|s| s.label() == name);
        let mut constants: Option<&str> = None;
        let mut scratch: Vec<(&str, u32)> = Vec::new();
        for bar in &bindings.bars {
            match &bar.holds {
                BarUse::Text => set(&[bar.index], 0),
                BarUse::Constants(name) if constants.is_none_or(|c| c == name) => {
                    constants = Some(name);
                    set(&[bar.index], 1);
                    if let Some(section) = named(name) {
                        self.constants = hwx.content(section).to_vec();
                    }
                }
                BarUse::Constants(name) => {
                    let message = format!(
                        "constants lie in {} and in {name}; such a file has one piece",
                        constants.unwrap_or("")
                    );
                    return Err(Error::driver(0, message));
                }
                BarUse::Scratch(name) => {
                    // Sections keep an index of 2 or 3; the compiler's first is 3.
                    let known = scratch.iter().find(|(s, _)| s == name).map(|(_, place)| *place);
                    let free = |place: &u32| scratch.iter().all(|(_, taken)| taken != place);
                    let place = known.or_else(|| [bar.index, 3, 2].into_iter().find(|p| [2, 3].contains(p) && free(p)));
                    let (Some(place), Some(section)) = (place, named(name)) else {
                        return Err(Error::driver(0, "more than two sections of memory between tasks"));
                    };
                    scratch.push((name, place));
                    set(&[bar.index], place as usize);
                    self.tiles[place as usize] = tiles(section.size)
                        .ok_or_else(|| Error::driver(0, format!("{name} has {:#x} bytes", section.size)))?;
                }
                BarUse::Port(_) | BarUse::Unknown => {}
            }
        }
        let mut next = FIRST_PORT;
        for (direction, what) in [(Direction::Output, "output"), (Direction::Input, "input")] {
            for port in bindings.ports.iter().filter(|p| p.direction == Some(direction)) {
                if next >= BUFFERS {
                    return Err(Error::driver(0, format!("more than {MAX_PORTS} inputs and outputs")));
                }
                if port.bars.is_empty() {
                    return Err(Error::driver(0, format!("the {what} {} is bound to no buffer", port.name)));
                }
                (self.shapes[next], self.tiles[next]) = shape(port)?;
                set(&port.bars, next);
                match direction {
                    Direction::Output => self.outputs += 1,
                    Direction::Input => self.inputs += 1,
                }
                next += 1;
            }
        }
        Ok(places)
    }

    /// Rewrites the buffer indices of a descriptor.
    fn renumber(&mut self, generation: &Generation, task: &Task, places: &[Option<u32>; BUFFERS]) -> Result<()> {
        let selects: [(&str, &str, &str); 8] = [
            ("TileBars", "RBase0", "RBE0"),
            ("TileBars", "RBase1", "RBE1"),
            ("TileBars", "WBase", "WBE"),
            ("TileBars", "TBase", "TBE"),
            ("KernelBars", "KBase0", "KBE0"),
            ("KernelBars", "KBase1", "KBE1"),
            ("KernelBars", "KBase2", "KBE2"),
            ("KernelBars", "KBase3", "KBE3"),
        ];
        for (register, field, enable) in selects {
            let Some(old) = task.head(generation, register, field) else { continue };
            if task.head(generation, register, enable) != Some(1) {
                continue;
            }
            let Some(new) = places.get(old as usize).copied().flatten() else {
                let message = format!("{field} names the buffer {old}, which is bound to nothing");
                return Err(Error::driver(task.offset as u64, message));
            };
            let found = generation.header.iter().find(|r| r.name == register);
            let (Some(at), Some(field)) = (found.map(|r| r.address as usize), found.and_then(|r| r.field(field)))
            else {
                continue;
            };
            let at = task.offset + 4 * at;
            if let (Ok(word), true) = (number32(&self.text, at), old != new) {
                let word = field.set(word, new).unwrap_or(word);
                self.text[at..at + 4].copy_from_slice(&word.to_le_bytes());
            }
        }
        Ok(())
    }
}

/// H13, the generation that the driver supports.
fn generation() -> Result<&'static Generation> {
    registers::by_name("h13").ok_or_else(|| Error::driver(0, "the table of registers has no H13"))
}

/// Shape and number of tiles of a port.
fn shape(port: &PortBinding) -> Result<([u64; 6], u32)> {
    let refused = |what: String| Error::driver(0, format!("{}: {what}", port.name));
    let Some(tensor) = &port.tensor else { return Err(refused("no command says its shape".to_string())) };
    let [n, c, h, w, d] = tensor.nchwd;
    if d > 1 {
        return Err(refused(format!("a tensor of depth {d}; such a file says no depth")));
    }
    let tiles = tiles(tensor.bytes).ok_or_else(|| refused(format!("a tensor of {:#x} bytes", tensor.bytes)))?;
    Ok(([n.into(), c.into(), h.into(), w.into(), tensor.plane_stride, tensor.row_stride], tiles.max(1)))
}

/// Offset of the descriptors in a container made here: after the commands of the largest number of
/// buffers.
const CONTENTS: u64 = 0x4000;

impl Anec {
    /// A container around the program, so that code for containers can read it. The file has no
    /// names: outputs are called `output0`, `output1` and so on, inputs `input0`, `input1`.
    ///
    /// # Errors
    /// E0721 if the header describes a buffer that a container cannot express.
    pub fn to_hwx(&self) -> Result<Hwx> {
        let text = self.container().ok_or_else(|| Error::driver(0, "sizes of buffers that no container has"))?;
        // The text is generated here, so its positions mean nothing to the caller and are dropped.
        let refused = |problems: Diagnostics| {
            let first = problems.iter().next().map_or_else(String::new, |d| d.message.clone());
            Error::driver(0, format!("no container can say this: {first}"))
        };
        let mut hwx = text::assemble(&text).map_err(refused)?;
        let constants = CONTENTS + self.constants_offset();
        for (at, bytes) in [(CONTENTS, &self.text), (constants, &self.constants)] {
            if let Some(place) = hwx.bytes_mut(at..at + bytes.len() as u64) {
                place.copy_from_slice(bytes);
            }
        }
        Ok(hwx)
    }

    /// Bytes from the descriptors to the constants in a container.
    fn constants_offset(&self) -> u64 {
        (self.text.len() as u64).next_multiple_of(64)
    }

    /// The text of a container without its contents, or `None` if a size overflows.
    fn container(&self) -> Option<String> {
        let (bytes, constants) = (self.text.len() as u64, self.constants.len() as u64);
        let behind = self.constants_offset();
        let whole = behind + constants;
        let mut next = BASE + whole.next_multiple_of(TILE_BYTES);
        let mut bars = format!("bar 0 = {BASE:#x}\n");
        let mut out = format!(
            "hwx {{ subtype = h13; size = {:#x} }}\nsegment {{ name = \"__TEXT\"; vmaddr = {BASE:#x}; vmsize = {:#x}; \
             fileoff = {CONTENTS:#x}; filesize = {whole:#x}\nsection \"__text\" \"__TEXT\" {{ addr = {BASE:#x}; \
             size = {bytes:#x}; offset = {CONTENTS:#x}; align = 14; flags = 0x28 }}\n",
            CONTENTS + whole,
            whole.next_multiple_of(TILE_BYTES),
        );
        if constants > 0 {
            let at = BASE + behind;
            let _ = writeln!(
                out,
                "section \"__const\" \"__TEXT\" {{ addr = {at:#x}; size = {constants:#x}; offset = {:#x}; align = 6; flags = 0x26 }}",
                CONTENTS + behind
            );
            let _ = writeln!(bars, "bar 1 = {at:#x}");
        }
        out.push_str("}\n");
        let mut tensors = String::new();
        for (index, tiles) in self.tiles.iter().enumerate().skip(2).filter(|(_, n)| **n > 0) {
            let (here, size) = (next, u64::from(*tiles) * TILE_BYTES);
            next += size;
            let name = self.name(index);
            let (segment, section, flags) = match (&name, index) {
                (None, 2 | 3) => ("__DATA", "__bss", 0x25),
                // The header's counts do not include this buffer.
                (None, _) => continue,
                (Some((1, _)), _) => ("__FVMLIB", "__const", 0x21),
                (Some(_), _) => ("__FVMLIB", "__data", 0x23),
            };
            let _ = writeln!(bars, "bar {index} = {here:#x}");
            // The two scratch sections have different names.
            let section = if index == 2 { "__bss2" } else { section };
            let _ = writeln!(
                out,
                "segment {{ name = {segment:?}; vmaddr = {here:#x}; vmsize = {size:#x}; flags = 6\n\
                 section {section:?} {segment:?} {{ addr = {here:#x}; size = {size:#x}; flags = {flags:#x} }}\n}}"
            );
            let Some((direction, name)) = name else { continue };
            let _ = writeln!(out, "binding {{ name = {name:?}; vmaddr = {here:#x} }}");
            let [n, c, h, w, plane, row] = self.shapes[index];
            let batch = c.checked_mul(plane)?;
            let bytes = n.checked_mul(batch)?;
            let _ = writeln!(
                tensors,
                "tensor {{ direction = {direction}; type = 5; n = {n}; c = {c}; h = {h}; w = {w}; d = 1; batch_stride = {batch}; \
                 plane_stride = {plane}; row_stride = {row}; element_size = 2; bytes = {bytes}; interleave = 1; used = {bytes}\n\
                 procedure = \"net\"; symbol = {name:?}; name = {name:?} }}"
            );
        }
        let _ = writeln!(
            out,
            "program1 {{ name = \"net\"; text_addr = {BASE:#x}; first_task_words_less_one = {}; tasks = {}\n{bars}}}\n{tensors}",
            (self.first_size / 4).checked_sub(1)?,
            self.tasks
        );
        Some(out)
    }

    /// Direction (as containers number it) and name of the buffer at an index.
    fn name(&self, index: usize) -> Option<(u32, String)> {
        let at = index.checked_sub(FIRST_PORT)? as u32;
        match at.checked_sub(self.outputs) {
            None => Some((2, format!("output{at}"))),
            Some(input) => (input < self.inputs).then(|| (1, format!("input{input}"))),
        }
    }
}
