//! Files built here byte by byte, without the crate's writer, so that tests do not depend on the
//! test data: one of H13 with two chained tasks, one of H16 with every kind of packet.

/// Little-endian bytes that grow.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u32(&mut self, n: u32) -> &mut Bytes {
        self.0.extend(n.to_le_bytes());
        self
    }
    fn u64(&mut self, n: u64) -> &mut Bytes {
        self.0.extend(n.to_le_bytes());
        self
    }
    fn name16(&mut self, name: &str) -> &mut Bytes {
        let mut bytes = [0; 16];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        self.0.extend(bytes);
        self
    }
    fn put(&mut self, at: usize, n: u32) -> &mut Bytes {
        self.0[at..at + 4].copy_from_slice(&n.to_le_bytes());
        self
    }
    fn text(&mut self, text: &str) -> &mut Bytes {
        self.0.extend(text.as_bytes());
        self.0.push(0);
        self
    }
    /// Pads to a multiple of 8 and writes the size of a command.
    fn command(&mut self) -> Vec<u8> {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        let size = self.0.len() as u32;
        self.put(4, size);
        std::mem::take(&mut self.0)
    }
}

struct Sect<'a>(&'a str, u64, u64, u32, u32, u32, u32);

fn segment(
    name: &str,
    vmaddr: u64,
    vmsize: u64,
    fileoff: u64,
    filesize: u64,
    flags: u32,
    sections: &[Sect<'_>],
) -> Vec<u8> {
    let mut out = Bytes::default();
    out.u32(0x19).u32(0).name16(name).u64(vmaddr).u64(vmsize).u64(fileoff).u64(filesize);
    out.u32(5).u32(5).u32(sections.len() as u32).u32(flags);
    for Sect(section, addr, size, offset, reloff, nreloc, flags) in sections {
        out.name16(section).name16(name).u64(*addr).u64(*size).u32(*offset).u32(6);
        out.u32(*reloff).u32(*nreloc).u32(*flags).u32(0).u32(0).u32(0);
    }
    out.command()
}

fn binding(cmd: u32, address: u64, name: &str) -> Vec<u8> {
    let mut out = Bytes::default();
    if cmd == 6 {
        out.u32(6).u32(0).u32(0x14).u32(0).u32(address as u32);
    } else {
        out.u32(cmd).u32(0).u32(0x18).u32(0).u64(address);
    }
    out.text(name).command()
}

fn tensor(direction: u32, procedure: &str, symbol: &str, name: &str) -> Vec<u8> {
    let mut out = Bytes::default();
    out.u32(4).u32(0).u32(3).u32(0x1e);
    let state = 16;
    out.0.resize(state + 4 * 0x1e, 0);
    let procedure_at = out.0.len();
    out.text(procedure);
    let symbol_at = out.0.len();
    out.text(symbol);
    let name_at = out.0.len();
    out.text(name);
    out.put(state, 3).put(state + 4, direction).put(state + 8, procedure_at as u32);
    out.put(state + 0x10, symbol_at as u32).put(state + 0x14, 5).put(state + 0x6c, name_at as u32);
    for (i, n) in [1, 3, 1, 1, 1].into_iter().enumerate() {
        out.put(state + 0x18 + 4 * i, n);
    }
    for (at, n) in [(0x40, 0xc0), (0x48, 0x40), (0x50, 0x40), (0x58, 2), (0x60, 0xc0), (0x68, 1), (0x70, 0xc0)] {
        out.put(state + at, n);
    }
    out.command()
}

fn program(
    flavor: u32,
    words: u32,
    bars: &[(usize, u32)],
    rest: &[(usize, u32)],
    name_slot: usize,
    name: &str,
) -> Vec<u8> {
    let mut out = Bytes::default();
    out.u32(4).u32(0).u32(flavor).u32(words);
    out.0.resize(16 + 4 * words as usize, 0);
    let at = out.0.len() as u32;
    out.text(name).put(16 + name_slot, at);
    for (index, address) in bars {
        out.put(16 + 8 * index, *address);
    }
    for (at, n) in rest {
        out.put(16 + at, *n);
    }
    out.command()
}

/// Header, commands, and contents at their offsets.
fn file(magic: u32, subtype: u32, commands: &[Vec<u8>], size: usize, contents: &[(usize, Vec<u8>)]) -> Vec<u8> {
    let mut out = Bytes::default();
    let length: usize = commands.iter().map(Vec::len).sum();
    out.u32(magic).u32(0x80).u32(subtype).u32(2).u32(commands.len() as u32).u32(length as u32).u32(0x20_0000).u32(0);
    for command in commands {
        out.0.extend(command);
    }
    assert!(out.0.len() <= 0x1800, "the contents begin at 0x1800");
    out.0.resize(size, 0);
    for (at, bytes) in contents {
        out.0[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    out.0
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// A descriptor of H13 with some registers of each block: a convolution of 3 channels with a 1×1
/// kernel.
fn h13_task(id: u32, last: bool, next: u32, next_words: u32) -> Vec<u32> {
    let mut words =
        vec![id | u32::from(last) << 25, (next_words.max(1) - 1) << 16, 0x422, 0, 0xfff86a, 0, 0x3000_9800, next];
    words.extend([0x302_4025, 0x21]);
    let mut record = |address: u32, values: &[u32]| {
        words.push((values.len() as u32 - 1) << 26 | address);
        words.extend(values);
    };
    let mut kernel = vec![0; 62];
    kernel[2..18].fill(0x80);
    kernel[2] = 0x81;
    record(0x1f800, &kernel);
    record(0, &[0x10001, 1, 0x22, 3, 3, 0x10001, 1, 0x5000_a021, 0x2041, 0x10001, 1, 0, 0, 0x414_4405, 0x10_0000, 0]);
    record(0x13800, &[0x33881, 0x8880, 0, 0x40, 0x40, 0xc0]);
    record(0x4800, &[0, 0x50_0172, 0, 0x10, 0x30]);
    record(0x8800, &[0; 4]);
    record(0xc800, &[0x82, 0x10_1c00, 0, 0, 0x3c00]);
    record(0x17800, &[0xc1, 0, 0x40, 0x40, 0xc0, 0, 0x130_2031]);
    words
}

/// A program of H13 as macOS 12 writes it: the text first, outputs before inputs among the BARs,
/// and an unknown command.
pub fn h13() -> Vec<u8> {
    let length = h13_task(0, false, 0x300, 1).len() as u32;
    let first = h13_task(0, false, 0x300, length);
    let second = h13_task(1, true, 0, 0);
    let mut text = bytes(&first);
    text.resize(0x300, 0);
    text.extend(bytes(&second));
    let size = text.len() as u64;
    let strings = b"\0image\0probs@output\0K00_ne_0\0".to_vec();
    let mut symbols = Bytes::default();
    for (at, kind, value) in [(1, 0x10f, 0x3000_4000), (7, 0x20f, 0x3000_8000), (20, 0x20f, 0x3000_1000)] {
        symbols.u32(at).u32(kind).u64(value);
    }
    let mut symtab = Bytes::default();
    symtab.u32(2).u32(0).u32(0x1800).u32(3).u32(0x1830).u32(strings.len() as u32);
    let mut ident = Bytes::default();
    ident.u32(8).u32(0).text("ANEC v1\nzin_ane_compiler v4.2\n\t-t h13\n");
    let mut unknown = Bytes::default();
    unknown.u32(0x77).u32(0).u32(0xdead_beef).u32(0).u32(0x0100_0000).u32(7);
    let commands = [
        segment("__PAGEZERO", 0, 0x4000, 0, 0, 4, &[]),
        segment(
            "__TEXT",
            0x3000_0000,
            0x4000,
            0x2000,
            0x2000,
            0,
            &[
                Sect("__text", 0x3000_0000, size, 0x2000, 0x1850, 2, 0x128),
                Sect("__const", 0x3000_1000, 0xc0, 0x3000, 0, 0, 0x26),
            ],
        ),
        segment("__FVMLIB", 0x3000_4000, 0x4000, 0, 0, 6, &[Sect("__const", 0x3000_4000, 0xc0, 0, 0, 0, 0x21)]),
        segment("__FVMLIB", 0x3000_8000, 0x4000, 0, 0, 6, &[Sect("__data", 0x3000_8000, 0xc0, 0, 0, 0, 0x23)]),
        binding(6, 0x3000_4000, "image"),
        binding(6, 0x3000_8000, "probs@output"),
        program(
            1,
            0x214,
            &[(0, 0x3000_0000), (1, 0x3000_1000), (4, 0x3000_8000), (5, 0x3000_4000)],
            &[(0x800, 0x3000_0000), (0x808, length - 1), (0x80c, 2), (0x814, 0xffff), (0x840, 0x11), (0x848, 3)],
            0x82c,
            "net",
        ),
        tensor(1, "net", "image", "image"),
        tensor(2, "net", "probs@output", "probs@output"),
        ident.command(),
        unknown.command(),
        symtab.command(),
    ];
    let weights: Vec<u8> = (0..0xc0u32).flat_map(|i| if i % 64 < 6 { vec![i as u8] } else { vec![0] }).collect();
    let relocations = bytes(&[0x74, 0x0500_0002, 0x374, 0x0500_0002]);
    let contents = [
        (0x1800, symbols.0),
        (0x1830, strings),
        (0x1850, relocations),
        (0x2000, text),
        (0x3000, weights),
        (0x3ff0, vec![9]),
    ];
    file(0xbeef_face, 4, &commands, 0x4000, &contents)
}

/// A program of H16 with the other magic number: a task of the convolution engines, and one of the
/// planar engine with an additional header word.
pub fn h16() -> Vec<u8> {
    let mut text = vec![1, 0, 0, 0];
    let mut first = vec![0, 0, 0x68, 0, 0xf_f868, 0, 0, 1, 0x5_0001];
    first.extend([1 << 31 | 0xff80 << 15 | 0x1540, 0x1_0240]);
    first.extend([0x21; 9]);
    first.extend([2 << 15 | 1, 1, 1, 0x40]);
    first.extend([1 << 29 | 28 << 21 | 1 << 15 | 0x1544, 0, 0]);
    first.extend([1 << 29 | 20 << 21 | 1 << 15 | 0x1344, 0, 0]);
    first.extend([1 << 31 | 1 << 16 | 0x1240, 0x1_0082, 0x3c00]);
    first[0] |= (first.len() as u32) << 16;
    text.extend(&first);
    text.resize(text.len().next_multiple_of(4), 0);
    let mut second = vec![1, 0, 0, 0, 0, 0, 0, 0, 0xb, 0x1234_5678];
    second.extend([0x1140, 0x8_0004]);
    second.extend([1 << 31 | 0x1142, 0x3fb8_a000]);
    second.extend([1 << 29 | 24 << 21 | 1 << 15 | 0x1442, 0x40, 0]);
    second[0] |= (second.len() as u32) << 16;
    text.extend(&second);
    let size = 4 * text.len() as u64;
    let mut note = Bytes::default();
    note.u32(0x31).u32(0).name16("rt.version").u64(0x28).u64(4).u32(0x1_0001);
    let mut far = Bytes::default();
    far.u32(0x31).u32(0).name16("src model info").u64(0x1800).u64(5);
    let commands = [
        segment("__FVMLIB", 0x3000_0000, 0x4000, 0, 0, 6, &[Sect("__const", 0x3000_0000, 0x80, 0, 0, 0, 0x21)]),
        segment("__FVMLIB", 0x3000_4000, 0x4000, 0, 0, 6, &[Sect("__data", 0x3000_4000, 0x80, 0, 0, 0, 0x23)]),
        segment(
            "__TEXT",
            0x3000_8000,
            0x4000,
            0x2000,
            0x1000,
            0,
            &[Sect("__text", 0x3000_8000, size, 0x2000, 0, 0, 0x28)],
        ),
        segment(
            "__KERN_0",
            0x3000_c000,
            0x4000,
            0x3000,
            0x800,
            4,
            &[Sect("__kern_0", 0x3000_c000, 0x800, 0x3000, 0, 0, 0x26)],
        ),
        binding(0x40, 0x3000_0000, "x"),
        binding(0x40, 0x3000_4000, "y"),
        program(
            4,
            0x222,
            &[(0, 0x3000_8000), (10, 0x3000_0000), (12, 0x3000_4000), (14, 0x3000_c000)],
            &[
                (0x800, 0x3000_8000),
                (0x810, 4),
                (0x814, size as u32 / 4),
                (0x820, 2),
                (0x828, u32::MAX),
                (0x858, 4),
                (0x860, 2),
                (0x868, 7),
                (0x86c, 8),
                (0x870, 0x461c_4000),
                (0x878, 9),
                (0x87c, 8),
            ],
            0x838,
            "main",
        ),
        tensor(1, "main", "x", "x"),
        tensor(2, "main", "y@output", "y"),
        note.command(),
        far.command(),
    ];
    let contents = [(0x1800, b"a\0b\xffc".to_vec()), (0x2000, bytes(&text)), (0x3000, vec![0x3c; 0x100])];
    file(0xfeed_facf, 7, &commands, 0x3800, &contents)
}
