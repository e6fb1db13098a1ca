//! What the kernel's stream brings: weights, and tables of functions.

use ferrane_arith::table::Table;
use ferrane_device::Result;
use ferrane_hwx::task::Fields;
use ferrane_hwx::weights::{Geometry, LANES, Lanes, TABLE};

use super::decode::{Op, Task};
use super::memory::Buffers;

/// Weights of a convolution: fp16 bits, `[Cout, Cin, Kh, Kw]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Weights {
    pub shape: [usize; 4],
    pub bits: Vec<u16>,
}

/// Weights out of memory.
pub(super) struct Kernel {
    pub buffer: usize,
    /// The first byte of each, `[groups, outputs, inputs]`.
    pub places: Vec<usize>,
}

/// A function of each element: its table.
pub(super) type Function = Box<Table>;

/// The buffer of the kernel's stream.
fn stream(task: &Task<'_>, buffers: &Buffers) -> Result<usize> {
    let buffer = task.fields.kernel_bar().and_then(|bar| buffers.at(bar));
    buffer.ok_or_else(|| task.refuse("KernelDMASrc", "CoeffDMAConfig[0]", "the kernel's BAR is no buffer"))
}

/// True if the weights come out of a buffer that the file does not hold: a tensor, or what another task wrote.
pub(super) fn from_memory(fields: &Fields<'_>, buffers: &Buffers) -> bool {
    let buffer = fields.kernel_bar().and_then(|bar| buffers.at(bar));
    buffer.is_some_and(|b| buffers.list[b].content.is_empty())
}

/// The weights of a convolution out of the file.
pub(super) fn weights(task: &Task<'_>, buffers: &Buffers) -> Result<Weights> {
    let refuse = |e: ferrane_hwx::Error| task.refuse("KernelDMASrc", "CoeffDMAConfig[0]", &e.message);
    let lanes = Lanes::of_task(task.fields.generation(), task.fields.task()).map_err(refuse)?;
    let buffer = &buffers.list[stream(task, buffers)?];
    let weights = lanes.unpack(&buffer.content).map_err(refuse)?;
    if ["FatTile", "WUStack"].iter().any(|f| task.fields.field("Common", "NECfg", f).is_some_and(|v| v != 0)) {
        task.note("Common.NECfg: that FatTile and WUStack leave the order of weights alone is a guess");
    }
    let Geometry { cout, cin, kh, kw } = lanes.geometry();
    let shape = [cout, cin, kh, kw].map(|n| n as usize);
    Ok(Weights { shape, bits: weights.iter().map(|w| w.to_bits()).collect() })
}

/// A product with weights out of memory.
pub(super) fn product(
    task: &Task<'_>,
    source: [usize; 4],
    result: [usize; 4],
    buffers: &Buffers,
) -> Result<(Op, Kernel)> {
    let fields = &task.fields;
    let dma = |name: &str| fields.register("KernelDMASrc", name);
    let refuse = |register: &str, why: &str| task.refuse("KernelDMASrc", register, why);
    let ([groups, inputs, h, w], outputs) = (source, result[1]);
    if [result[0], result[2], result[3]] != [groups, h, w] {
        return Err(task.refuse("Common", "OutWidth", "a product has the rows and columns of its source"));
    }
    if fields.register("Common", "ConvCfg").is_some_and(|word| word & 0x07ff_ffff != 0xa041) {
        return Err(task.refuse("Common", "ConvCfg", "only 1×1 kernels are read from memory"));
    }
    let cfg = |field: &str| fields.field("NE", "KernelCfg", field);
    if cfg("PalettizedEn") == Some(1) || cfg("SparseFmt") == Some(1) || cfg("KernelFmt") != Some(2) {
        return Err(task.refuse("NE", "KernelCfg", "only fp16 is read from memory as a kernel"));
    }
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let geometry = Geometry::new(number(outputs), number(inputs), 1, 1)
        .map_err(|e| task.refuse("Common", "OutChannels", &e.message))?;
    let buffer = stream(task, buffers)?;
    // Where lanes lie in a group; each holds its rows side by side, input by input.
    let mut lanes = Vec::new();
    for i in 0..LANES {
        let rows: Vec<_> = geometry.rows(i).collect();
        let count: usize = rows.iter().map(|r| r.len()).sum();
        let (config, size) = (format!("CoeffDMAConfig[{i}]"), format!("CoeffBfrSize[{i}]"));
        if (dma(&config).unwrap_or(0) & 1 == 1) != (count > 0) {
            return Err(refuse(&config, "a lane is on where it has no rows, or off where it has some"));
        }
        if count == 0 {
            continue;
        }
        if rows.len() > 1
            || count.saturating_mul(inputs).saturating_mul(2).next_multiple_of(64) != dma(&size).unwrap_or(0) as usize
        {
            return Err(refuse(&size, "a lane has not the bytes of its rows"));
        }
        let base = fields
            .wide("KernelDMASrc", "KernelBase")
            .saturating_add(dma(&format!("CoeffBaseAddr[{i}]")).unwrap_or(0).into());
        lanes.push((usize::try_from(base).unwrap_or(usize::MAX), rows[0].start as usize, count));
    }
    let step = match dma("KernelGroupStride") {
        _ if groups == 1 => 0,
        Some(step) if step > 0 => step as usize,
        _ => return Err(refuse("KernelGroupStride", "it is not said, or 0, and what that means is not known")),
    };
    let bytes = buffers.list[buffer].bytes;
    let elements = groups.checked_mul(outputs).and_then(|n| n.checked_mul(inputs)).filter(|n| *n <= bytes / 2);
    let elements = elements.ok_or_else(|| refuse("KernelBaseLo", "the buffer has not room for the kernel"))?;
    let mut places = vec![0; elements];
    for group in 0..groups {
        for &(base, first, count) in &lanes {
            for input in 0..inputs {
                for row in 0..count {
                    let at = group
                        .checked_mul(step)
                        .and_then(|n| n.checked_add(base)?.checked_add(2 * (input * count + row)));
                    let at = at.filter(|at| at.is_multiple_of(2) && *at < bytes);
                    let at = at.ok_or_else(|| refuse("KernelBaseLo", "the kernel does not lie in its buffer"))?;
                    places[(group * outputs + first + row) * inputs + input] = at;
                }
            }
        }
    }
    buffers.written(buffer, places.iter().copied()).map_err(|why| refuse("KernelBaseLo", &why))?;
    task.note(
        "KernelDMASrc.KernelGroupStride: one matrix of weights for each group, out of memory (read from samples)",
    );
    Ok((Op::Product { outputs }, Kernel { buffer, places }))
}

/// The table of the function behind the result.
pub(super) fn function(task: &Task<'_>, buffers: &Buffers) -> Result<Function> {
    let fields = &task.fields;
    let bypass = fields.word("NE", "MACCfg", "OpMode").as_deref() == Some("bypass");
    let table_stream = fields.field("KernelDMASrc", "TableDMAConfig", "En") == Some(1);
    // H16 has a stream for it; on H13 each lane begins with it.
    let (buffer, at, size, register) = match fields.slot("KernelDMASrc", "TableBaseLo").filter(|_| table_stream) {
        Some(slot) => {
            let at = fields.wide("KernelDMASrc", "TableBase");
            let size = fields.register("KernelDMASrc", "TableBfrSize");
            (buffers.at(slot), at, size, "TableBfrSize")
        }
        None if table_stream || fields.head("KernelBars", "KBE0").is_none() => {
            return Err(task.refuse("KernelDMASrc", "TableDMAConfig", "nothing says where the table lies"));
        }
        None => {
            if !bypass {
                let lanes = Lanes::of_task(fields.generation(), fields.task());
                if !lanes.is_ok_and(|l| l.has_table()) {
                    return Err(task.refuse("KernelDMASrc", "CoeffBfrSize[0]", "the lanes have no table"));
                }
            }
            let base = fields.register("KernelDMASrc", "CoeffBaseAddr[0]").unwrap_or(0);
            let size = fields.register("KernelDMASrc", "CoeffBfrSize[0]");
            (fields.kernel_bar().and_then(|bar| buffers.at(bar)), u64::from(base), size, "CoeffBfrSize[0]")
        }
    };
    let refuse = |why: &str| task.refuse("KernelDMASrc", register, why);
    let content = buffer.map(|b| &buffers.list[b].content).ok_or_else(|| refuse("its BAR is no buffer"))?;
    let size = size.map(u64::from);
    if size.is_none_or(|size| size < TABLE || (bypass && size != TABLE)) {
        return Err(refuse("a table has 0x80 bytes"));
    }
    let bytes = usize::try_from(at).ok().and_then(|at| content.get(at..)?.get(..TABLE as usize));
    let bytes = bytes.ok_or_else(|| refuse("the table does not lie in its buffer"))?;
    let mut halfwords = [0; 43];
    for (half, bytes) in halfwords.iter_mut().zip(bytes.chunks_exact(2)) {
        *half = u16::from_le_bytes([bytes[0], bytes[1]]);
    }
    let table = Table::read(halfwords);
    if table.evaluate(ferrane_arith::Rounding::Even, 1.0).is_none() {
        return Err(refuse(&format!(
            "how the mode {:#x} of the table comes to its samples is not known",
            table.mode()
        )));
    }
    Ok(Box::new(table))
}
