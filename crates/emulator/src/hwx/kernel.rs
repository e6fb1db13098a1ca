//! The kernel's stream of a task: weights, and tables of functions.

use ferrane_arith::table::PiecewiseTable;
use ferrane_device::Result;
use ferrane_hwx::task::TaskView;
use ferrane_hwx::weights::{FilterShape, Lanes, TABLE_BYTES};

use super::memory::Buffers;
use super::step::{FileWeights, Function, MemoryWeights, Op};
use super::task::Task;

/// The buffer of the kernel's stream.
fn stream(task: &Task<'_>, buffers: &Buffers) -> Result<usize> {
    let buffer = task.fields.kernel_bar().and_then(|bar| buffers.at(bar));
    buffer.ok_or_else(|| task.refuse("KernelDMASrc", "CoeffDMAConfig[0]", "the kernel's BAR is not a buffer"))
}

/// True if the weights come from a buffer without content in the file: a tensor, or the result of
/// another task.
pub(super) fn from_memory(fields: &TaskView<'_>, buffers: &Buffers) -> bool {
    let buffer = fields.kernel_bar().and_then(|bar| buffers.at(bar));
    buffer.is_some_and(|b| buffers.list[b].content.is_empty())
}

/// The weights of a convolution, from the file.
pub(super) fn weights(task: &Task<'_>, buffers: &Buffers) -> Result<FileWeights> {
    let refuse = |e: ferrane_hwx::Error| task.refuse("KernelDMASrc", "CoeffDMAConfig[0]", &e.message);
    let lanes = Lanes::of_task(task.fields.generation(), task.fields.task()).map_err(refuse)?;
    let buffer = &buffers.list[stream(task, buffers)?];
    let weights = lanes.unpack(&buffer.content).map_err(refuse)?;
    if ["FatTile", "WUStack"].iter().any(|f| task.fields.field("Common", "NECfg", f).is_some_and(|v| v != 0)) {
        task.note("Common.NECfg: that FatTile and WUStack leave the order of weights alone is a guess");
    }
    let FilterShape { cout, cin, kh, kw } = lanes.shape();
    let shape = [cout, cin, kh, kw].map(|n| n as usize);
    Ok(FileWeights { shape, bits: weights.iter().map(|w| w.to_bits()).collect() })
}

/// A product with weights from memory.
pub(super) fn product(
    task: &Task<'_>,
    source: [usize; 4],
    result: [usize; 4],
    buffers: &Buffers,
) -> Result<(Op, MemoryWeights)> {
    let fields = &task.fields;
    let dma = |name: &str| fields.register("KernelDMASrc", name);
    let refuse = |register: &str, why: &str| task.refuse("KernelDMASrc", register, why);
    let ([groups, _, h, w], outputs) = (source, result[1]);
    if [result[0], result[2], result[3]] != [groups, h, w] {
        return Err(task.refuse("Common", "OutWidth", "a product has the rows and columns of its source"));
    }
    if fields.register("Common", "ConvCfg").is_some_and(|word| word & 0x07ff_ffff != 0xa041) {
        return Err(task.refuse("Common", "ConvCfg", "only 1×1 kernels are read from memory"));
    }
    let lanes = Lanes::of_group(fields).map_err(|e| refuse("CoeffDMAConfig[0]", &e.message))?;
    if lanes.has_table() {
        return Err(refuse("CoeffBfrSize[0]", "what a table in front of weights out of memory does is not known"));
    }
    let buffer = stream(task, buffers)?;
    let bytes = buffers.list[buffer].bytes;
    let absent = || refuse("KernelBaseLo", "the kernel does not lie in its buffer");
    let first = lanes.places(bytes).filter(|f| f.iter().all(|at| at.is_multiple_of(2))).ok_or_else(absent)?;
    let step = match dma("KernelGroupStride") {
        _ if groups == 1 => 0,
        Some(step) if step > 0 && step.is_multiple_of(2) => step as usize,
        _ => return Err(refuse("KernelGroupStride", "it is not said, or 0, and what that means is not known")),
    };
    // Groups may overlap, but there are at most as many weights as halfwords.
    groups.checked_mul(first.len()).filter(|n| *n <= bytes / 2).ok_or_else(absent)?;
    let last = first.iter().max().and_then(|at| at.checked_add((groups - 1).checked_mul(step)?)?.checked_add(2));
    last.filter(|end| *end <= bytes).ok_or_else(absent)?;
    let places: Vec<usize> = (0..groups).flat_map(|group| first.iter().map(move |at| group * step + at)).collect();
    buffers.written(buffer, places.iter().copied()).map_err(|why| refuse("KernelBaseLo", &why))?;
    task.note(
        "KernelDMASrc.KernelGroupStride: one matrix of weights for each group, out of memory (read from samples)",
    );
    Ok((Op::Product { outputs }, MemoryWeights { buffer, places }))
}

/// The table of the function that is applied to the result.
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
    let content = buffer.map(|b| &buffers.list[b].content).ok_or_else(|| refuse("its BAR is not a buffer"))?;
    let size = size.map(u64::from);
    if size.is_none_or(|size| size < TABLE_BYTES || (bypass && size != TABLE_BYTES)) {
        return Err(refuse("a table has 0x80 bytes"));
    }
    let bytes = usize::try_from(at).ok().and_then(|at| content.get(at..)?.get(..TABLE_BYTES as usize));
    let bytes = bytes.ok_or_else(|| refuse("the table does not lie in its buffer"))?;
    let mut halfwords = [0; 43];
    for (half, bytes) in halfwords.iter_mut().zip(bytes.chunks_exact(2)) {
        *half = u16::from_le_bytes([bytes[0], bytes[1]]);
    }
    let table = PiecewiseTable::read(halfwords);
    if table.evaluate(ferrane_arith::Rounding::Even, 1.0).is_none() {
        return Err(refuse(&format!(
            "how the mode {:#x} of the table comes to its samples is not known",
            table.mode()
        )));
    }
    Ok(Box::new(table))
}
