//! The tasks of an operation, and the constants that they read.

use super::registers::Registers;
use super::{
    BinaryOp, CONSTANTS_BAR, Convolution, ElementFunction, Operation, PoolKind, Pooling, PortBuffer, WindowGeometry,
};
use crate::error::{Error, Result};
use crate::surface::PAGE;
use crate::symbol;
use crate::table::BYTES;
use crate::task::Task;
use crate::weights::{FilterShape, LANES, Lanes};

/// Descriptors begin at multiples of this many bytes.
const SPACING: usize = 0x300;
/// Byte of a descriptor that holds the address of the first lane's weights.
const LANE_ADDRESSES: u32 = 0x74;
/// The size of the engine's L2 memory in bytes, as far as registers address it.
const L2: u64 = 1 << 21;
/// Bytes of a source that the planar engine processes at once, in the samples.
const PLANAR_TILE: u64 = 0x8000;

/// The tasks of a program and its constants.
pub(super) struct TaskProgram {
    pub tasks: Vec<Task>,
    pub constants: Vec<u8>,
    /// Symbols of the constants with their offsets in bytes.
    pub symbols: Vec<(String, u64)>,
    /// Byte offsets in the text of the words that hold addresses of constants.
    pub relocations: Vec<u32>,
}

/// A task of the convolution engines.
struct Convolve<'a> {
    source: &'a PortBuffer,
    destination: &'a PortBuffer,
    /// Offset of the result in the destination, in bytes.
    at: u64,
    cout: u32,
    window: WindowGeometry,
    kernel: Option<&'a Lanes>,
    then: Option<&'a ElementFunction>,
}

/// A task of the planar engine.
struct Planar<'a> {
    sources: &'a [PortBuffer],
    destination: &'a PortBuffer,
    window: WindowGeometry,
    config: Vec<(&'static str, u64)>,
    /// The factor applied to the result.
    scale: f32,
    /// The task type, a field of the register Cfg.
    kind: u32,
}

pub(super) fn program(op: &Operation, inputs: &[PortBuffer], output: &PortBuffer) -> Result<TaskProgram> {
    let mut made =
        TaskProgram { tasks: Vec::new(), constants: Vec::new(), symbols: Vec::new(), relocations: Vec::new() };
    match op {
        Operation::Convolution(c) => convolution(&mut made, c, &inputs[0], output)?,
        Operation::Elementwise(binary) => made.tasks.push(elementwise(*binary, inputs, output)?.task(0)),
        Operation::Function(f) => function(&mut made, f, &inputs[0], output)?,
        Operation::Concat => concat(&mut made, inputs, output)?,
        Operation::Pool(p) => made.tasks.push(pool(p, inputs, output)?.task(0)),
    }
    if made.constants.is_empty() {
        // The compiler gives a program without constants one page of zeros.
        made.constants.resize(PAGE as usize, 0);
    }
    // The first task holds the address of each lane that reads weights; lanes that read none are
    // the last ones.
    made.relocations = (0..made.symbols.len() as u32).map(|i| LANE_ADDRESSES + 4 * i).collect();
    Ok(made)
}

fn convolution(made: &mut TaskProgram, c: &Convolution, source: &PortBuffer, destination: &PortBuffer) -> Result<()> {
    let [kh, kw] = c.kernel;
    let geometry = FilterShape::new(c.cout, source.port.nchw[1], kh, kw)?;
    let table = match &c.then {
        Some(ElementFunction::Table(table)) => Some(table.encode()),
        _ => None,
    };
    let lanes = Lanes::new(geometry, table.is_some());
    // Checked before memory is allocated: the number of weights must match the shape.
    if c.weights.len() as u64 != geometry.len() {
        let message = format!("{} weights where the shape has {}", c.weights.len(), geometry.len());
        return Err(Error::request(message));
    }
    made.constants.resize(lanes.end() as usize, 0);
    lanes.pack_into(&c.weights, table.as_ref(), &mut made.constants)?;
    // The compiler's name for weights that are the only ones in their file.
    let name = symbol::filter_name("weight.bin", 128, geometry).unwrap_or_else(|_| "kernel".to_string());
    let live = lanes.lanes().iter().enumerate().filter(|(_, lane)| lane.bytes > 0);
    made.symbols = live.map(|(i, lane)| (symbol::lane_name(&name, i), lane.offset)).collect();
    let convolve = Convolve {
        source,
        destination,
        at: 0,
        cout: c.cout,
        window: c.window(),
        kernel: Some(&lanes),
        then: c.then.as_ref(),
    };
    made.tasks.push(convolve.registers(TaskPosition::of(0, 1))?.task(0));
    Ok(())
}

fn function(
    made: &mut TaskProgram,
    function: &ElementFunction,
    source: &PortBuffer,
    destination: &PortBuffer,
) -> Result<()> {
    if let ElementFunction::Table(table) = function {
        made.constants = table.encode().to_vec();
        made.symbols.push(("table".to_string(), 0));
    }
    let cout = source.port.nchw[1];
    let copy =
        Convolve { source, destination, at: 0, cout, window: WindowGeometry::ONE, kernel: None, then: Some(function) };
    made.tasks.push(copy.registers(TaskPosition::of(0, 1))?.task(0));
    Ok(())
}

fn concat(made: &mut TaskProgram, inputs: &[PortBuffer], destination: &PortBuffer) -> Result<()> {
    let mut at = 0;
    for (i, source) in inputs.iter().enumerate() {
        let cout = source.port.nchw[1];
        let copy = Convolve { source, destination, at, cout, window: WindowGeometry::ONE, kernel: None, then: None };
        made.tasks.push(copy.registers(TaskPosition::of(i, inputs.len()))?.task(SPACING * i));
        at += u64::from(cout) * destination.surface.plane;
    }
    Ok(())
}

/// The position of a task in its program.
struct TaskPosition {
    index: usize,
    last: bool,
}

impl TaskPosition {
    fn of(index: usize, count: usize) -> TaskPosition {
        TaskPosition { index, last: index + 1 == count }
    }

    /// Sets the header. Events and exceptions have the values of the samples; their meaning is not
    /// established.
    fn head(&self, to: &mut Registers) -> Result<()> {
        let (first, last) = (self.index == 0, self.last);
        let (id, last_bit) = (self.index as u64, u64::from(last));
        to.head("Identity", &[("TID", id), ("LNID", u64::from(!first)), ("EON", last_bit)])?;
        to.head_word(2, if last { 0x422 } else { 0x400 });
        to.head_word(
            4,
            if last {
                0xff_f86a
            } else if first {
                0xff_f868
            } else {
                0xff_f800
            },
        );
        let flags = [("SPL", 1), ("TSR", 1), ("TSE", 1), ("SrcLoc", 1), ("DstLoc", 1)];
        to.head("Flags", &flags)?;
        if !last {
            // All descriptors have the same length.
            to.head("Size", &[("NextSize", super::container::TASK_WORDS as u64 - 1)])?;
            to.head_word(7, (SPACING * (self.index + 1)) as u32);
        }
        Ok(())
    }
}

fn common(
    to: &mut Registers,
    source: &PortBuffer,
    destination: &PortBuffer,
    cout: u32,
    window: WindowGeometry,
) -> Result<()> {
    let [_, cin, h, w] = source.port.nchw.map(u64::from);
    let [_, _, out_h, out_w] = destination.port.nchw.map(u64::from);
    to.fields("Common", "InDim", &[("Win", w), ("Hin", h)])?;
    to.fields("Common", "InDepth", &[("Din", 1)])?;
    to.fields("Common", "ChCfg", &[("InFmt", 2), ("OutFmt", 2)])?;
    to.fields("Common", "Cin", &[("Cin", cin)])?;
    to.fields("Common", "Cout", &[("Cout", cout.into())])?;
    to.fields("Common", "OutDim", &[("Wout", out_w), ("Hout", out_h)])?;
    to.fields("Common", "OutDepth", &[("Dout", 1)])?;
    let [[kh, kw], [sy, sx], [py, px]] = [window.size, window.stride, window.padding].map(|p| p.map(u64::from));
    let kernel = [("Kw", kw), ("Kh", kh), ("Sx", sx), ("Sy", sy), ("Px", px), ("Py", py), ("Ox", 1), ("Oy", 1)];
    to.fields("Common", "ConvCfg", &kernel)?;
    to.word("Common", "Conv3DCfg", 0x2041)?;
    to.fields("Common", "GroupConvCfg", &[("NumGroups", 1), ("UnicastCin", 1)])
}

/// Sets the tensors in memory: formats, strides, and the offset of the result.
fn memory(to: &mut Registers, sources: &[PortBuffer], destination: &PortBuffer, at: u64) -> Result<()> {
    const FP16: [(&str, u64); 4] = [("FmtMode", 1), ("Truncate", 3), ("MemFmt", 2), ("Interleave", 1)];
    to.word("TileDMASrc", "DMAConfig", 0x33881)?;
    to.word("TileDMASrc", "Src2DMAConfig", if sources.len() > 1 { 0x33880 } else { 0x8880 })?;
    for (buffer, prefix) in sources.iter().zip(["", "Src2"]) {
        let s = buffer.surface;
        to.fields("TileDMASrc", &format!("{prefix}RowStride"), &[("Stride", s.row)])?;
        to.fields("TileDMASrc", &format!("{prefix}PlaneStride"), &[("PlaneStride", s.plane)])?;
        to.fields("TileDMASrc", &format!("{prefix}DepthStride"), &[("Stride", s.batch)])?;
    }
    to.fields("TileDMASrc", "Fmt", &FP16)?;
    if sources.len() > 1 {
        to.word("TileDMASrc", "Src2Fmt", 0x2030)?;
    }
    let s = destination.surface;
    to.fields("TileDMADst", "BaseAddr", &[("Addr", at)])?;
    to.fields("TileDMADst", "RowStride", &[("RowStride", s.row)])?;
    to.fields("TileDMADst", "PlaneStride", &[("PlaneStride", s.plane)])?;
    to.fields("TileDMADst", "DepthStride", &[("DepthStride", s.batch)])?;
    to.fields("TileDMADst", "Fmt", &FP16)
}

/// A tensor in the engine's L2 memory.
#[derive(Clone, Copy)]
struct Resident {
    base: u64,
    channel: u64,
    row: u64,
    /// The bytes of one row of all channels, without the gap between rows.
    packed: u64,
}

impl Resident {
    /// The layout of rows of `columns` elements for each of `channels`. Rows that would begin in
    /// the same memory bank are separated by `gap` bytes.
    fn of(base: u64, channels: u32, columns: u32, gap: u64) -> Resident {
        let channel = (2 * u64::from(columns)).next_multiple_of(16);
        let packed = u64::from(channels) * channel;
        let row = if channels > 1 && packed.is_multiple_of(64) { packed + gap } else { packed };
        Resident { base, channel, row, packed }
    }

    fn set(&self, to: &mut Registers, names: [&str; 5]) -> Result<()> {
        let [base, channel, row, depth, group] = names;
        to.fields("L2", base, &[("Addr", self.base)])?;
        for (name, stride) in [(channel, self.channel), (row, self.row), (depth, self.packed), (group, self.packed)] {
            to.fields("L2", name, &[("Stride", stride)])?;
        }
        Ok(())
    }

    fn end(&self, rows: u32) -> u64 {
        self.base + u64::from(rows) * self.row
    }
}

const SOURCE: [&str; 5] =
    ["SourceBase", "SourceChannelStride", "SourceRowStride", "SourceDepthStride", "SourceGroupStride"];
const SOURCE2: [&str; 5] =
    ["Source2Base", "Source2ChannelStride", "Source2RowStride", "Source2DepthStride", "Source2GroupStride"];
const RESULT: [&str; 5] =
    ["ResultBase", "ConvResultChannelStride", "ConvResultRowStride", "ResultDepthStride", "ResultGroupStride"];

/// Checks that a tensor ending at `end` fits into the engine's memory.
fn fits(end: u64, what: &PortBuffer) -> Result<()> {
    if end < L2 {
        return Ok(());
    }
    let message = format!(
        "{} {:?} needs {end:#x} bytes of the engine's memory of {L2:#x}; how it is cut into tiles is not established",
        what.port.name, what.port.nchw
    );
    Err(Error::request(message))
}

/// The base-2 logarithm of `n`, rounded up.
fn log2(n: u32) -> u64 {
    n.max(1).next_power_of_two().trailing_zeros().into()
}

impl Convolve<'_> {
    fn registers(&self, place: TaskPosition) -> Result<Registers> {
        let mut to = Registers::h13()?;
        place.head(&mut to)?;
        let (source, destination, cout) = (self.source, self.destination, self.cout);
        let [_, cin, h, w] = source.port.nchw;
        let [_, _, out_h, out_w] = destination.port.nchw;
        let table = matches!(self.then, Some(ElementFunction::Table(_)));

        let engines = log2(cout.min(LANES as u32));
        let bars = [("RBase0", source.bar.into()), ("RBE0", 1), ("WBase", destination.bar.into()), ("WBE", 1)];
        to.head("TileBars", &bars)?;
        to.head("TileBars", &[("ENE", engines + 1)])?;
        if self.kernel.is_some() || table {
            to.head("KernelBars", &[("KBase0", CONSTANTS_BAR.into()), ("KBE0", 1)])?;
        }

        common(&mut to, source, destination, cout, self.window)?;
        let group = if self.kernel.is_some() { log2(cout.div_ceil(LANES as u32)).min(5) } else { 0 };
        to.fields("Common", "ConvCfg", &[("OCGSize", group)])?;
        to.fields("Common", "GroupConvCfg", &[("UnicastEn", u64::from(self.kernel.is_none()))])?;
        to.fields("Common", "TileCfg", &[("TileHeight", out_h.into())])?;
        // Bit 0 is set in every task of these engines. The work units have the shape of the samples
        // nearest in width; their unit is not established. Accumulators are doubled where groups of
        // output channels leave room.
        let shape = if out_w > 16 { [1, u64::from(out_h > 1), 1] } else { [4, 4, 4] };
        to.word("Common", "Cfg", 1)?;
        let [preferred, least, most] = shape;
        let small = ("SmallSourceMode", u64::from(self.kernel.is_some()));
        let cfg = [small, ("ShPref", preferred), ("ShMin", least), ("ShMax", most), ("ActiveNE", engines)];
        to.fields("Common", "Cfg", &cfg)?;
        to.fields("Common", "Cfg", &[("AccDoubleBufEn", u64::from(group < 5))])?;
        to.fields("Common", "TaskInfo", &[("NID", 1)])?;

        memory(&mut to, std::slice::from_ref(source), destination, self.at)?;
        to.nameless(0x13840, 0x100);
        to.fields("TileDMADst", "Fmt", &[("ZeroPadLast", 1), ("ZeroPadFirst", 1)])?;

        // A source that is only passed through may be wider than the memory: it is processed 64
        // columns at a time.
        let all = Resident::of(0, cin, w, 0x30);
        let held = if self.kernel.is_none() && all.end(h) > L2 { Resident::of(0, cin, w.min(64), 0x30) } else { all };
        let held_result = Resident::of(held.end(h), cout, out_w, 0x20);
        // Results that are not accumulated stream through memory.
        fits(if self.kernel.is_some() { held_result.end(out_h) } else { held_result.base }, source)?;
        to.word("L2", "SourceCfg", 0x50_0172)?;
        held.set(&mut to, SOURCE)?;
        if self.kernel.is_some() {
            to.word("L2", "ResultCfg", 0x50_0172)?;
            held_result.set(&mut to, RESULT)?;
            to.word("TileDMADst", "DMAConfig", 0xc1)?;
        } else {
            to.word("L2", "ResultCfg", 0x50_017a)?;
            to.fields("L2", "ResultBase", &[("Addr", held_result.base)])?;
            to.word("TileDMADst", "DMAConfig", 0x400_00c1)?;
        }

        self.lanes(&mut to, table)?;
        // In plain fp16 kernels the palette width is 8 and unused.
        to.fields("NE", "KernelCfg", &[("PalettizedBits", 8)])?;
        to.word("NE", "MACCfg", 1 << 20)?;
        if self.kernel.is_some() {
            to.fields("NE", "KernelCfg", &[("KernelFmt", 2)])?;
            to.fields("NE", "MACCfg", &[("BinaryPoint", 0x1c)])?;
        } else {
            to.fields("NE", "MACCfg", &[("OpMode", 4), ("KernelMode", 1)])?;
        }
        let function = match self.then {
            None => 0,
            Some(ElementFunction::Relu) => 1,
            Some(ElementFunction::Table(_)) => 2,
        };
        to.fields("NE", "MACCfg", &[("NonlinearMode", function)])?;
        to.fields("NE", "PostScale", &[("PostScale", 0x3c00)])?;
        Ok(to)
    }

    /// Sets the lanes of the kernel, or the one lane that reads the function table.
    fn lanes(&self, to: &mut Registers, table: bool) -> Result<()> {
        // Bit 7 is set in every lane, in use or not. An unused lane still has a length of 64 bytes.
        const OFF: u32 = 0x80;
        const NOTHING: u64 = 0x40;
        to.nameless(0x1f800, 0x40);
        for i in 0..LANES {
            let lane = self.kernel.map(|lanes| lanes.lanes()[i]).filter(|lane| lane.bytes > 0);
            let lane = lane.map(|lane| (lane.offset, lane.bytes));
            let lane = lane.or_else(|| (self.kernel.is_none() && table && i == 0).then_some((0, BYTES as u64)));
            let (offset, bytes) = lane.unwrap_or((0, NOTHING));
            to.word("KernelDMASrc", &format!("CoeffDMAConfig[{i}]"), OFF | u32::from(lane.is_some()))?;
            to.fields("KernelDMASrc", &format!("CoeffBaseAddr[{i}]"), &[("Addr", offset)])?;
            to.fields("KernelDMASrc", &format!("CoeffBfrSize[{i}]"), &[("MemBfrSize", bytes)])?;
        }
        for stream in ["Bias", "PostScale", "Palette", "Table"] {
            to.word("KernelDMASrc", &format!("{stream}DMAConfig"), OFF)?;
        }
        Ok(())
    }
}

fn elementwise(binary: BinaryOp, sources: &[PortBuffer], destination: &PortBuffer) -> Result<Registers> {
    let config = match binary {
        BinaryOp::Add => vec![("Op", 0), ("Src2", 2)],
        BinaryOp::Mul => vec![("Op", 1), ("Src2", 2)],
        BinaryOp::Max => vec![("Op", 2), ("Src2", 2)],
        BinaryOp::Min => vec![("Op", 3), ("Src2", 2)],
        BinaryOp::Sub => vec![("Op", 0), ("Src2", 3)],
    };
    Planar { sources, destination, window: WindowGeometry::ONE, config, scale: 1.0, kind: 3 }.registers()
}

fn pool(pool: &Pooling, sources: &[PortBuffer], destination: &PortBuffer) -> Result<Registers> {
    let kind = match pool.kind {
        PoolKind::Avg => 1,
        PoolKind::Max => 2,
        PoolKind::Min => 3,
    };
    let count = pool.window.iter().product::<u32>() as f32;
    let scale = if pool.kind == PoolKind::Avg { 1.0 / count } else { 1.0 };
    // The task type is that of a reduction, the closest operation in the samples.
    Planar { sources, destination, window: pool.window(), config: vec![("Pool", kind)], scale, kind: 5 }.registers()
}

impl Planar<'_> {
    fn registers(&self) -> Result<Registers> {
        let mut to = Registers::h13()?;
        TaskPosition::of(0, 1).head(&mut to)?;
        let (source, destination, two) = (&self.sources[0], self.destination, self.sources.len() > 1);
        let [_, cin, h, w] = source.port.nchw;
        let bars = [("RBase0", source.bar.into()), ("RBE0", 1), ("WBase", destination.bar.into()), ("WBE", 1)];
        to.head("TileBars", &bars)?;
        if let [_, second] = self.sources {
            to.head("TileBars", &[("RBase1", second.bar.into()), ("RBE1", 1)])?;
        }
        common(&mut to, source, destination, destination.port.nchw[1], self.window)?;
        if two {
            to.fields("Common", "ChCfg", &[("Src2Fmt", 2)])?;
        }

        // A patch has 16 to 512 columns, a power of two, and as many rows as its share of memory
        // holds. Windows reach into the rows of the next patch, and the encoding of that is not
        // established, so they need all rows at once.
        let columns = w.next_power_of_two().clamp(16, 512);
        let held = Resident::of(0, cin, w.min(columns), 0x20);
        let rows = if self.window == WindowGeometry::ONE {
            let most = (PLANAR_TILE / held.row).clamp(1, h.into()) as u32;
            if most == h { h } else { 1 << most.ilog2() }
        } else if w > columns {
            return Err(Error::request(format!("windows over more than {columns} columns are not established")));
        } else {
            h
        };
        to.fields("Common", "Patch", &[("W", log2(columns)), ("H", log2(rows))])?;
        to.fields("Common", "TileCfg", &[("TileHeight", rows.into())])?;
        let used = if two { 3 } else { 1 };
        to.word("Common", "Cfg", self.kind << 4 | used)?;

        memory(&mut to, self.sources, destination, 0)?;
        to.word("TileDMADst", "DMAConfig", 0x400_00c1)?;

        to.word("L2", "SourceCfg", if two { 0x150_0172 } else { 0x50_0172 })?;
        let mut end = held.end(rows);
        let second = two.then(|| Resident { base: (end + 0x20).next_multiple_of(64), ..held });
        end = second.map_or(end, |second| second.end(rows));
        // The result streams through the memory after the sources.
        fits(end, source)?;
        held.set(&mut to, SOURCE)?;
        if let Some(second) = second {
            second.set(&mut to, SOURCE2)?;
        }
        to.word("L2", "ResultCfg", 0x50_017a)?;
        to.fields("L2", "ResultBase", &[("Addr", end)])?;

        to.fields("PE", "PECfg", &self.config)?;
        to.word("PE", "PEBiasScale", 0x3c00_0000)?;
        to.word("PE", "PEPreScale", 0x3c00_0000)?;
        to.word("PE", "PEFinalScale", self.scale.to_bits())?;
        Ok(to)
    }
}
