//! What a file says, as data: for words, JSON and pictures.
//!
//! A task is told from its registers alone, by the names of the table, so one function serves all generations. What a register
//! does not say (it is omitted and has no known default, or its meaning is not established) is left open, not guessed.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::container::{Bindings, Hwx, Kind, Program, Section, Segment, Tensor};
use crate::disasm::text::plain;
use crate::registers::{Evidence, Generation, Stream};
use crate::task::{Record, Task};

/// A file.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The generation's name, if it is known.
    pub generation: Option<&'static str>,
    /// `cpusubtype`.
    pub subtype: u32,
    /// What it is sold as.
    pub chips: &'static str,
    /// How well the generation's descriptors are known.
    pub evidence: Option<Evidence>,
    /// The first line of the compiler's banner that names it, and the target behind `-t`.
    pub compiler: Option<String>,
    /// Its segments.
    pub segments: Vec<Segment>,
    /// Its programs.
    pub programs: Vec<ProgramReport>,
    /// Sections of descriptors.
    pub texts: Vec<TextReport>,
    /// Numbers of load commands that have no name.
    pub unknown_commands: Vec<u32>,
}

/// A program.
#[derive(Clone, Debug, Serialize)]
pub struct ProgramReport {
    /// Its name.
    pub name: String,
    /// How many tasks it says it has.
    pub tasks: u32,
    /// Its buffers.
    pub bindings: Bindings,
}

/// A section of descriptors.
#[derive(Clone, Debug, Serialize)]
pub struct TextReport {
    /// Its name.
    pub section: String,
    /// Where it lies in the file.
    pub offset: u32,
    /// Its tasks.
    pub tasks: Vec<TaskReport>,
    /// Why it has none.
    pub error: Option<String>,
}

/// What a task reads or writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// A buffer, by its name.
    Buffer {
        /// The name of a tensor, or of a section.
        name: String,
        /// Bytes from its start.
        offset: u64,
    },
    /// The engine's own memory.
    L2 {
        /// The address there; `None` where the descriptor leaves it to the default.
        address: Option<u32>,
    },
}

/// A source or the destination of a task.
#[derive(Clone, Debug, Serialize)]
pub struct Operand {
    /// Where.
    pub place: Place,
    /// Bytes from row to row, plane to plane, depth to depth, group to group; as far as the descriptor says.
    pub strides: [Option<u32>; 4],
}

/// The kernel of a convolution.
#[derive(Clone, Debug, Serialize)]
pub struct KernelReport {
    /// Its buffer.
    pub place: Option<Place>,
    /// Lanes that read weights: their numbers, first bytes and lengths.
    pub lanes: Vec<(u32, u32, u32)>,
    /// How the weights are written.
    pub format: String,
}

/// A task.
#[derive(Clone, Debug, Serialize)]
pub struct TaskReport {
    /// Its number.
    pub id: u32,
    /// Where it begins in its section.
    pub offset: usize,
    /// Its length in words.
    pub words: usize,
    /// What it does, in one line.
    pub summary: String,
    /// `convolution`, `planar`, or `unknown`.
    pub engine: &'static str,
    /// What is read.
    pub sources: Vec<Operand>,
    /// What is written.
    pub destination: Option<Operand>,
    /// Width, height, channels and depth of the source and of the destination.
    pub shapes: [[Option<u32>; 4]; 2],
    /// Element types of source 1, source 2 and destination.
    pub formats: [Option<String>; 3],
    /// The kernel, if weights are read.
    pub kernel: Option<KernelReport>,
    /// Where the table of the non-linear function lies, if one is read.
    pub table: Option<Place>,
    /// What is done with the result, in its order.
    pub post: Vec<String>,
    /// Every register that is set, by its name.
    pub registers: BTreeMap<String, u32>,
}

impl Report {
    /// What a file says.
    pub fn of(hwx: &Hwx) -> Report {
        let generation = hwx.generation();
        let programs = hwx.programs();
        let bindings: Vec<Bindings> = programs.iter().map(|p| Bindings::of(hwx, p)).collect();
        let texts = hwx.texts().into_iter().map(|(section, first)| {
            let owner = programs.iter().position(|p| p.text_addr == section.addr).unwrap_or(0);
            text(hwx, &section, first, bindings.get(owner).unwrap_or(&Bindings::default()))
        });
        let texts = texts.collect();
        let of = |(p, bindings): (Program, Bindings)| ProgramReport { name: p.name, tasks: p.tasks, bindings };
        Report {
            generation: generation.map(|g| g.name),
            subtype: hwx.subtype,
            chips: generation.map_or("", |g| g.chips),
            evidence: generation.filter(|g| g.stream != Stream::None).map(|g| g.evidence),
            compiler: banner(hwx),
            segments: hwx.segments(),
            programs: programs.into_iter().zip(bindings).map(of).collect(),
            texts,
            unknown_commands: hwx.of_kind(Kind::Other).map(|(_, c)| c.cmd()).collect(),
        }
    }

    /// All tensors of all programs.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.programs.iter().flat_map(|p| p.bindings.ports.iter().filter_map(|port| port.tensor.as_ref()))
    }
}

/// `zin_ane_compiler v10.26.6, target h16`.
fn banner(hwx: &Hwx) -> Option<String> {
    let (_, command) = hwx.of_kind(Kind::Ident).next()?;
    let text = command.name("text");
    let compiler = text.lines().map(str::trim).find(|l| l.starts_with("zin_ane_compiler"))?;
    let target = text.split_ascii_whitespace().skip_while(|w| *w != "-t").nth(1);
    Some(plain(&format!("{compiler}{}", target.map(|t| format!(", target {t}")).unwrap_or_default())))
}

/// What the tasks of a section do.
pub(super) fn tasks(hwx: &Hwx, section: &Section, tasks: &[Task]) -> Vec<TaskReport> {
    let program = hwx.programs().into_iter().find(|p| p.text_addr == section.addr);
    let bindings = program.map(|p| Bindings::of(hwx, &p)).unwrap_or_default();
    let Some(generation) = hwx.generation() else { return Vec::new() };
    let view = |task: &Task| View { generation, task, bindings: &bindings, set: task.registers() }.report();
    tasks.iter().map(view).collect()
}

fn text(hwx: &Hwx, section: &Section, first: Option<usize>, bindings: &Bindings) -> TextReport {
    let (tasks, error) = match (hwx.tasks(section, first), hwx.generation()) {
        (Ok(tasks), Some(generation)) => {
            let view = |task: &Task| View { generation, task, bindings, set: task.registers() }.report();
            (tasks.iter().map(view).collect(), None)
        }
        (Err(e), _) => (Vec::new(), Some(e.to_string())),
        (Ok(_), None) => (Vec::new(), None),
    };
    TextReport { section: format!("{},{}", section.segment, section.name), offset: section.offset, tasks, error }
}

/// One task and all that its numbers refer to.
struct View<'a> {
    generation: &'static Generation,
    task: &'a Task,
    bindings: &'a Bindings,
    /// The registers that the task sets.
    set: BTreeMap<u32, u32>,
}

impl View<'_> {
    /// A field of a register; `None` where neither the descriptor nor a default says it.
    fn field(&self, block: &str, register: &str, field: &str) -> Option<u32> {
        let (found, index) = self.generation.named(block, register)?;
        let word = self.set.get(&(found.address + 4 * index)).copied().or(found.default)?;
        Some(found.field(field)?.get(word))
    }

    /// The same by the name of its value.
    fn word(&self, block: &str, register: &str, field: &str) -> Option<String> {
        let value = self.field(block, register, field)?;
        let found = self.generation.named(block, register)?.0.field(field)?;
        Some(found.word(value).map_or_else(|| value.to_string(), str::to_string))
    }

    /// A float by its bits.
    fn float(&self, block: &str, register: &str, field: &str) -> Option<f64> {
        let bits = self.field(block, register, field)?;
        let found = self.generation.named(block, register)?.0.field(field)?;
        Some(match found.kind {
            crate::registers::Kind::Float16 => half::f16::from_bits(bits as u16).to_f64(),
            _ => f32::from_bits(bits).into(),
        })
    }

    /// Whole register.
    fn register(&self, block: &str, register: &str) -> Option<u32> {
        let (found, index) = self.generation.named(block, register)?;
        self.set.get(&(found.address + 4 * index)).copied().or(found.default)
    }

    /// The BAR slot of the packet that sets a register.
    fn slot(&self, block: &str, register: &str) -> Option<u32> {
        let address = self.generation.address(block, register)?;
        self.task.records.iter().find_map(|r| match r {
            Record::Address { slot, .. } if r.addresses().contains(&address) => Some(u32::from(*slot)),
            _ => None,
        })
    }

    fn head(&self, register: &str, field: &str) -> Option<u32> {
        self.task.head(self.generation, register, field)
    }

    fn buffer(&self, bar: u32, offset: u64) -> Place {
        Place::Buffer { name: self.bindings.label(bar), offset }
    }

    /// A source of up to H13: by the enable bit and index of the header; `base` and the L2 register say where.
    fn place(&self, n: usize) -> Option<Place> {
        let bytes = self.generation.stream == Stream::Bytes;
        // Enable, index; the packet; the base in the buffer; the base in L2.
        let (head, packet, base, l2): (_, _, (_, _), _) = match n {
            0 => (("RBE0", "RBase0"), "Source1BaseLo", ("TileDMASrc", "BaseAddr"), ["SourceBase", "Source1Base"]),
            1 => (("RBE1", "RBase1"), "Source2BaseLo", ("TileDMASrc", ""), ["Source2Base", "Source2Base"]),
            _ => (("WBE", "WBase"), "BaseLo", ("TileDMADst", "BaseAddr"), ["ResultBase", "ResultBase"]),
        };
        let block = base.0;
        if bytes {
            if self.head("TileBars", head.0) == Some(1) {
                let offset = self.field(block, base.1, "Addr").unwrap_or(0);
                return Some(self.buffer(self.head("TileBars", head.1)?, offset.into()));
            }
            // A second source that no bit announces is none.
            let resident = n != 1 || self.register("L2", l2[0]).is_some_and(|a| a != 0);
            return resident.then(|| Place::L2 { address: self.register("L2", l2[0]) });
        }
        if let Some(slot) = self.slot(block, packet) {
            let hi = packet.replace("Lo", "Hi");
            let words = [self.register(block, packet), self.register(block, &hi)].map(|w| u64::from(w.unwrap_or(0)));
            return Some(self.buffer(slot, words[1] << 32 | words[0]));
        }
        let address = self.register("L2", l2[1]);
        // The planar engine says of a second source what it is; its address may be the default.
        let second = || address.is_some() || self.field("PE", "PECfg", "Src2").is_some_and(|s| s != 0);
        (n != 1 || second()).then_some(Place::L2 { address })
    }

    fn operand(&self, n: usize) -> Option<Operand> {
        let place = self.place(n)?;
        if let Place::L2 { .. } = place {
            let prefix = match (n, self.generation.stream) {
                (0, Stream::Bytes) => "Source",
                (0, _) => "Source1",
                (1, _) => "Source2",
                _ => "Result",
            };
            let of = |what: &str| self.register("L2", &format!("{prefix}{what}Stride"));
            return Some(Operand { place, strides: [of("Row"), of("Channel"), of("Depth"), of("Group")] });
        }
        let (block, prefix) = match (n, self.generation.stream) {
            (0, Stream::Bytes) => ("TileDMASrc", ""),
            (0, _) => ("TileDMASrc", "Source1"),
            (1, Stream::Bytes) => ("TileDMASrc", "Src2"),
            (1, _) => ("TileDMASrc", "Source2"),
            _ => ("TileDMADst", ""),
        };
        let of = |what: &str| self.register(block, &format!("{prefix}{what}Stride"));
        Some(Operand { place, strides: ["Row", "Plane", "Depth", "Group"].map(of) })
    }

    fn shapes(&self) -> [[Option<u32>; 4]; 2] {
        let common = |register: &str, field: &str| self.field("Common", register, field);
        let either = |a: Option<u32>, b: Option<u32>| a.or(b);
        [
            [
                either(common("InDim", "Win"), common("InWidth", "Win")),
                either(common("InDim", "Hin"), common("InHeight", "Hin")),
                either(common("Cin", "Cin"), common("InChannels", "Cin")),
                common("InDepth", "Din"),
            ],
            [
                either(common("OutDim", "Wout"), common("OutWidth", "Wout")),
                either(common("OutDim", "Hout"), common("OutHeight", "Hout")),
                either(common("Cout", "Cout"), common("OutChannels", "Cout")),
                common("OutDepth", "Dout"),
            ],
        ]
    }

    /// True for the convolution engines, false for the planar engine.
    fn convolves(&self) -> Option<bool> {
        let engines = self.head("TileBars", "ENE").or_else(|| self.head("Flags", "ENE"));
        engines.map(|n| n != 0).or_else(|| {
            let set = |block: &str| {
                let block = self.generation.blocks.iter().find(|b| b.name == block)?;
                self.set.range(block.address..block.address + 0x100).next().map(|_| ())
            };
            match (set("NE"), set("PE")) {
                (Some(()), None) => Some(true),
                (None, Some(())) => Some(false),
                _ => None,
            }
        })
    }

    fn kernel(&self) -> Option<KernelReport> {
        let read = |i: u32| self.field("KernelDMASrc", &format!("CoeffDMAConfig[{i}]"), "En") == Some(1);
        let of = |register: &str, i: u32| self.register("KernelDMASrc", &format!("{register}[{i}]")).unwrap_or(0);
        let lanes: Vec<_> =
            (0..16).filter(|i| read(*i)).map(|i| (i, of("CoeffBaseAddr", i), of("CoeffBfrSize", i))).collect();
        if lanes.is_empty() {
            return None;
        }
        let place = match self.head("KernelBars", "KBE0") {
            Some(1) => Some(self.buffer(self.head("KernelBars", "KBase0")?, 0)),
            Some(_) => None,
            None => self
                .slot("KernelDMASrc", "KernelBaseLo")
                .map(|slot| self.buffer(slot, self.register("KernelDMASrc", "KernelBaseLo").unwrap_or(0).into())),
        };
        let bits = self.field("NE", "KernelCfg", "PalettizedBits");
        let mut format = match (self.field("NE", "KernelCfg", "PalettizedEn"), bits) {
            (Some(1), Some(bits)) => format!("palette of {bits} bits"),
            _ => self.word("NE", "KernelCfg", "KernelFmt").unwrap_or_else(|| "the default format".to_string()),
        };
        if self.field("NE", "KernelCfg", "SparseFmt") == Some(1) {
            format += ", sparse";
        }
        Some(KernelReport { place, lanes, format })
    }

    /// Where the table of the non-linear function lies.
    fn table(&self) -> Option<Place> {
        if self.word("NE", "MACCfg", "NonlinearMode").as_deref() != Some("table") {
            return None;
        }
        if let Some(slot) = self.slot("KernelDMASrc", "TableBaseLo") {
            return Some(self.buffer(slot, self.register("KernelDMASrc", "TableBaseLo").unwrap_or(0).into()));
        }
        (self.head("KernelBars", "KBE0") == Some(1)).then(|| self.head("KernelBars", "KBase0")).flatten().map(|bar| {
            // On H13 the table is what lane 0 begins with.
            self.buffer(bar, self.register("KernelDMASrc", "CoeffBaseAddr[0]").unwrap_or(0).into())
        })
    }

    fn post(&self, convolves: Option<bool>) -> Vec<String> {
        let mut out = Vec::new();
        if convolves == Some(true) {
            if self.field("NE", "MACCfg", "BiasMode") == Some(1) {
                out.push("adds the bias of each channel".to_string());
            }
            if let Some(bias) = self.float("NE", "AccBias", "AccBias").filter(|b| *b != 0.0) {
                out.push(format!("adds {bias}"));
            }
            if let Some(scale) = self.float("NE", "PostScale", "PostScale").filter(|s| *s != 1.0 && *s != 0.0) {
                out.push(format!("multiplies by {scale}"));
            }
            match self.word("NE", "MACCfg", "NonlinearMode").as_deref() {
                Some("relu") => out.push("sets negative values to 0 (ReLU)".to_string()),
                Some("table") => out.push("looks the value up in a table of a function".to_string()),
                Some("none") | None => {}
                Some(mode) => out.push(format!("applies non-linear mode {mode}")),
            }
        }
        if convolves == Some(false) {
            let scales =
                [("PEBiasScale", "Scale"), ("PEScale", "Scale"), ("PEFinalScale", "Scale"), ("PEPreScale", "PreScale")];
            for (register, field) in scales {
                if let Some(scale) = self.float("PE", register, field).filter(|s| *s != 1.0 && *s != 0.0) {
                    out.push(format!("multiplies by {scale} ({register})"));
                }
            }
            if let Some(function) = self.field("PE", "PECfg", "Nonlinear").filter(|f| *f != 0) {
                out.push(format!("applies function {function} of the planar engine"));
            }
        }
        out
    }

    fn operation(&self, convolves: Option<bool>, kernel: bool, two: bool) -> String {
        let common = |register: &str, field: &str| self.field("Common", register, field);
        let conv = |field: &str| common("ConvCfg", field);
        match convolves {
            Some(true) => match self.word("NE", "MACCfg", "OpMode").as_deref() {
                Some("conv") | None if kernel => {
                    let mut text = match (conv("Kw"), conv("Kh")) {
                        (Some(w), Some(h)) => format!("{w}×{h} convolution"),
                        _ => "convolution".to_string(),
                    };
                    let pair = |a: &str, b: &str| Some((conv(a)?, conv(b)?));
                    if let Some((x, y)) = pair("Sx", "Sy").filter(|s| *s != (1, 1)) {
                        text += &format!(", stride {x}×{y}");
                    }
                    if let Some((x, y)) = pair("Px", "Py").filter(|p| *p != (0, 0)) {
                        text += &format!(", padding {x}×{y}");
                    }
                    let groups = common("GroupConvCfg", "NumGroups").or_else(|| common("NumGroups", "NumGroups"));
                    if let Some(n) = groups.filter(|n| *n > 1) {
                        text += &format!(", {n} groups");
                    }
                    text
                }
                Some("conv") | None => "product of two sources".to_string(),
                Some("bypass") if self.table().is_some() => "function of each element".to_string(),
                Some("bypass") => "copy, with a change of layout where the shapes differ".to_string(),
                Some("elementwise") => "element-wise operation".to_string(),
                Some("transposed_conv") => "transposed convolution".to_string(),
                Some(other) => format!("convolution engines, mode {other}"),
            },
            Some(false) => {
                let pool = self.word("PE", "PECfg", "Pool").filter(|p| p != "none");
                if let Some(pool) = pool {
                    return format!("{pool} over elements (pooling or reduction)");
                }
                let kind = common("Cfg", "TaskType").map_or(String::new(), |t| format!(" (task type {t})"));
                let condition = self.word("PE", "PECfg", "Cond").filter(|c| c != "none");
                let Some(op) = condition.or_else(|| self.word("PE", "PECfg", "Op")) else {
                    return format!("planar operation{kind}");
                };
                let op = match op.as_str() {
                    "add" if self.field("PE", "PECfg", "Src2") == Some(3) => "subtraction",
                    "add" => "addition",
                    "mul" => "multiplication",
                    "max" => "maximum",
                    "min" => "minimum",
                    other => other,
                };
                // Over one source it may be a reduction; what tells that is not established.
                if two {
                    format!("element-wise {op}{kind}")
                } else {
                    format!("planar operation on one source, {op}{kind}")
                }
            }
            None => "operation that the descriptor's header does not tell".to_string(),
        }
    }

    fn report(&self) -> TaskReport {
        let convolves = self.convolves();
        let sources: Vec<Operand> = [self.operand(0), self.operand(1)].into_iter().flatten().collect();
        let destination = self.operand(2);
        let (kernel, table, shapes) = (self.kernel(), self.table(), self.shapes());
        // A table that is read through the lanes is no kernel.
        let kernel = kernel.filter(|_| self.word("NE", "MACCfg", "OpMode").is_none_or(|m| m != "bypass"));
        let operation = self.operation(convolves, kernel.is_some(), sources.len() > 1);
        let names: Vec<String> = sources.iter().map(|s| s.place.to_string()).collect();
        let result = destination.as_ref().map_or("nothing".to_string(), |d| d.place.to_string());
        let formats = ["InFmt", "Src2Fmt", "OutFmt"].map(|f| self.word("Common", "ChCfg", f));
        let registers = self.set.iter().map(|(a, v)| (self.generation.label(*a), *v)).collect();
        TaskReport {
            id: self.head("Identity", "TID").unwrap_or(0),
            offset: self.task.offset,
            words: self.task.len(),
            summary: format!("{operation}: {} → {result}", names.join(", ")),
            engine: convolves.map_or("unknown", |c| if c { "convolution" } else { "planar" }),
            sources,
            destination,
            shapes,
            formats,
            kernel,
            table,
            post: self.post(convolves),
            registers,
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Buffer { name, offset: 0 } => f.write_str(&plain(name)),
            Place::Buffer { name, offset } => write!(f, "{} + {offset:#x}", plain(name)),
            Place::L2 { address: Some(address) } => write!(f, "L2 {address:#x}"),
            Place::L2 { address: None } => f.write_str("L2 (default)"),
        }
    }
}
