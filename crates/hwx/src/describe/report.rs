//! The report about a file: plain data, from which prose, JSON and pictures are made.
//!
//! A task is described from its registers alone, by the names of the register table, so one routine
//! serves all generations. What a register does not determine (it is omitted without a known
//! default, or its meaning is not established) is left open and never guessed.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::container::{Bindings, CommandKind, Hwx, ProgramView, Section, Segment, TensorView};
use crate::registers::{Evidence, RecordFormat};
use crate::spelling::plain;
use crate::task::{Location, OperandRole, Task, TaskView};

/// The report about a file.
#[derive(Clone, Debug, Serialize)]
pub struct HwxReport {
    /// The name of the generation; `None` if it is unknown.
    pub generation: Option<&'static str>,
    /// `cpusubtype`.
    pub subtype: u32,
    /// The chips of the generation; empty if they are not known.
    pub chips: &'static str,
    /// The evidence for the generation's descriptors; `None` for an unknown generation.
    pub evidence: Option<Evidence>,
    /// The line of the compiler's banner that names the compiler, and the target after `-t`; `None`
    /// without a banner.
    pub compiler: Option<String>,
    /// The segments, in the order of the file.
    pub segments: Vec<Segment>,
    /// The programs, in the order of the file.
    pub programs: Vec<ProgramReport>,
    /// The sections of task descriptors.
    pub texts: Vec<TextReport>,
    /// Command numbers that have no name here; empty if all are known.
    pub unknown_commands: Vec<u32>,
}

/// The report about a program.
#[derive(Clone, Debug, Serialize)]
pub struct ProgramReport {
    /// A name such as `net` or `main`.
    pub name: String,
    /// The number of tasks according to its command.
    pub tasks: u32,
    /// The buffers and their base addresses.
    pub bindings: Bindings,
}

/// A section of task descriptors.
#[derive(Clone, Debug, Serialize)]
pub struct TextReport {
    /// Segment and section name: `__TEXT,__text`.
    pub section: String,
    /// The offset of the section in the file.
    pub offset: u32,
    /// The decoded tasks; empty if decoding failed.
    pub tasks: Vec<TaskReport>,
    /// The reason why decoding failed, if it did.
    pub error: Option<String>,
}

/// The location of an operand, with the buffer's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NamedLocation {
    /// In a buffer of the program.
    Buffer {
        /// The name of a tensor, or of a section.
        name: String,
        /// Bytes from the start of the buffer.
        offset: u64,
    },
    /// In the engine's L2 memory.
    L2 {
        /// The address in L2; `None` if the descriptor relies on the default.
        address: Option<u32>,
    },
}

/// A source or the destination of a task.
#[derive(Clone, Debug, Serialize)]
pub struct TaskOperand {
    /// The memory that is read or written.
    pub place: NamedLocation,
    /// Bytes from row to row, plane to plane, depth to depth and group to group; `None` where the
    /// descriptor does not set the stride.
    pub strides: [Option<u32>; 4],
}

/// The kernel of a convolution.
#[derive(Clone, Debug, Serialize)]
pub struct FilterReport {
    /// The start of the buffer with the weights; `None` if no buffer is bound.
    pub place: Option<NamedLocation>,
    /// The lanes that read weights: number, offset in bytes and length in bytes.
    pub lanes: Vec<(u32, u32, u32)>,
    /// The encoding of the weights.
    pub format: String,
}

/// The report about a task.
#[derive(Clone, Debug, Serialize)]
pub struct TaskReport {
    /// The task number in the header.
    pub id: u32,
    /// The offset in its section, in bytes.
    pub offset: usize,
    /// The length in words.
    pub words: usize,
    /// The operation, in one line.
    pub summary: String,
    /// The engine: `convolution`, `planar` or `unknown`.
    pub engine: &'static str,
    /// The operands, first source first; empty if the descriptor names none.
    pub sources: Vec<TaskOperand>,
    /// The result; `None` if the descriptor names none.
    pub destination: Option<TaskOperand>,
    /// Width, height, channels and depth of the source and of the destination; `None` where
    /// unknown.
    pub shapes: [[Option<u32>; 4]; 2],
    /// Element types of source 1, source 2 and destination; `None` where unknown.
    pub formats: [Option<String>; 3],
    /// The kernel of a convolution; `None` if no weights are read.
    pub kernel: Option<FilterReport>,
    /// The location of the function table; `None` if none is read.
    pub table: Option<NamedLocation>,
    /// The steps applied to the result, in order.
    pub post: Vec<String>,
    /// Every register that the descriptor sets: name to value.
    pub registers: BTreeMap<String, u32>,
}

impl HwxReport {
    /// Reports on a file.
    pub fn of(hwx: &Hwx) -> HwxReport {
        let generation = hwx.generation();
        let programs = hwx.programs();
        let bindings: Vec<Bindings> = programs.iter().map(|p| Bindings::of(hwx, p)).collect();
        let texts = hwx.task_sections().into_iter().map(|(section, first)| {
            let owner = programs.iter().position(|p| p.text_addr == section.addr).unwrap_or(0);
            text(hwx, &section, first, bindings.get(owner).unwrap_or(&Bindings::default()))
        });
        let texts = texts.collect();
        let of = |(p, bindings): (ProgramView, Bindings)| ProgramReport { name: p.name, tasks: p.tasks, bindings };
        HwxReport {
            generation: generation.map(|g| g.name),
            subtype: hwx.subtype,
            chips: generation.map_or("", |g| g.chips),
            evidence: generation.filter(|g| g.record_format != RecordFormat::Unknown).map(|g| g.evidence),
            compiler: banner(hwx),
            segments: hwx.segments(),
            programs: programs.into_iter().zip(bindings).map(of).collect(),
            texts,
            unknown_commands: hwx.of_kind(CommandKind::Other).map(|(_, c)| c.cmd()).collect(),
        }
    }

    /// The tensors of all programs.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorView> {
        self.programs.iter().flat_map(|p| p.bindings.ports.iter().filter_map(|port| port.tensor.as_ref()))
    }
}

/// Compiler and target from the banner: `zin_ane_compiler v10.26.6, target h16`.
fn banner(hwx: &Hwx) -> Option<String> {
    let (_, command) = hwx.of_kind(CommandKind::Ident).next()?;
    let text = command.name("text");
    let compiler = text.lines().map(str::trim).find(|l| l.starts_with("zin_ane_compiler"))?;
    let target = text.split_ascii_whitespace().skip_while(|w| *w != "-t").nth(1);
    Some(plain(&format!("{compiler}{}", target.map(|t| format!(", target {t}")).unwrap_or_default())))
}

/// Reports on the tasks of a section.
pub(crate) fn tasks(hwx: &Hwx, section: &Section, tasks: &[Task]) -> Vec<TaskReport> {
    let program = hwx.programs().into_iter().find(|p| p.text_addr == section.addr);
    let bindings = program.map(|p| Bindings::of(hwx, &p)).unwrap_or_default();
    let Some(generation) = hwx.generation() else { return Vec::new() };
    let view = |task: &Task| View { task: TaskView::new(generation, task), bindings: &bindings }.report();
    tasks.iter().map(view).collect()
}

fn text(hwx: &Hwx, section: &Section, first: Option<usize>, bindings: &Bindings) -> TextReport {
    let (tasks, error) = match (hwx.tasks(section, first), hwx.generation()) {
        (Ok(tasks), Some(generation)) => {
            let view = |task: &Task| View { task: TaskView::new(generation, task), bindings }.report();
            (tasks.iter().map(view).collect(), None)
        }
        (Err(e), _) => (Vec::new(), Some(e.to_string())),
        (Ok(_), None) => (Vec::new(), None),
    };
    TextReport { section: section.label(), offset: section.offset, tasks, error }
}

/// A task and the buffers that its indices refer to.
struct View<'a> {
    task: TaskView<'a>,
    bindings: &'a Bindings,
}

impl View<'_> {
    fn buffer(&self, bar: u32, offset: u64) -> NamedLocation {
        NamedLocation::Buffer { name: self.bindings.label(bar), offset }
    }

    fn operand(&self, role: OperandRole) -> Option<TaskOperand> {
        let place = match self.task.location(role)? {
            Location::Buffer { bar, offset } => self.buffer(bar, offset),
            Location::L2 { address } => NamedLocation::L2 { address },
        };
        Some(TaskOperand { place, strides: self.task.strides(role) })
    }

    fn kernel(&self) -> Option<FilterReport> {
        let read = |i: u32| self.task.field("KernelDMASrc", &format!("CoeffDMAConfig[{i}]"), "En") == Some(1);
        let of = |register: &str, i: u32| self.task.register("KernelDMASrc", &format!("{register}[{i}]")).unwrap_or(0);
        let lanes: Vec<_> =
            (0..16).filter(|i| read(*i)).map(|i| (i, of("CoeffBaseAddr", i), of("CoeffBfrSize", i))).collect();
        if lanes.is_empty() {
            return None;
        }
        // H13 has no base register for the kernel, only its BAR.
        let base = self.task.register("KernelDMASrc", "KernelBaseLo").unwrap_or(0);
        let place = self.task.kernel_bar().map(|bar| self.buffer(bar, base.into()));
        let bits = self.task.field("NE", "KernelCfg", "PalettizedBits");
        let mut format = match (self.task.field("NE", "KernelCfg", "PalettizedEn"), bits) {
            (Some(1), Some(bits)) => format!("palette of {bits} bits"),
            _ => self.task.word("NE", "KernelCfg", "KernelFmt").unwrap_or_else(|| "the default format".to_string()),
        };
        if self.task.field("NE", "KernelCfg", "SparseFmt") == Some(1) {
            format += ", sparse";
        }
        Some(FilterReport { place, lanes, format })
    }

    /// The location of the function table, if the task reads one.
    fn table(&self) -> Option<NamedLocation> {
        if self.task.word("NE", "MACCfg", "NonlinearMode").as_deref() != Some("table") {
            return None;
        }
        if let Some(slot) = self.task.slot("KernelDMASrc", "TableBaseLo") {
            return Some(self.buffer(slot, self.task.register("KernelDMASrc", "TableBaseLo").unwrap_or(0).into()));
        }
        (self.task.head("KernelBars", "KBE0") == Some(1)).then(|| self.task.head("KernelBars", "KBase0")).flatten().map(
            |bar| {
                // On H13 the table is at the beginning of lane 0.
                self.buffer(bar, self.task.register("KernelDMASrc", "CoeffBaseAddr[0]").unwrap_or(0).into())
            },
        )
    }

    fn post(&self, convolves: Option<bool>) -> Vec<String> {
        let mut out = Vec::new();
        if convolves == Some(true) {
            if self.task.field("NE", "MACCfg", "BiasMode") == Some(1) {
                out.push("adds the bias of each channel".to_string());
            }
            if let Some(bias) = self.task.float("NE", "AccBias", "AccBias").filter(|b| *b != 0.0) {
                out.push(format!("adds {bias}"));
            }
            if let Some(scale) = self.task.float("NE", "PostScale", "PostScale").filter(|s| *s != 1.0 && *s != 0.0) {
                out.push(format!("multiplies by {scale}"));
            }
            match self.task.word("NE", "MACCfg", "NonlinearMode").as_deref() {
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
                if let Some(scale) = self.task.float("PE", register, field).filter(|s| *s != 1.0 && *s != 0.0) {
                    out.push(format!("multiplies by {scale} ({register})"));
                }
            }
            if let Some(function) = self.task.field("PE", "PECfg", "Nonlinear").filter(|f| *f != 0) {
                out.push(format!("applies function {function} of the planar engine"));
            }
        }
        out
    }

    fn operation(&self, convolves: Option<bool>, kernel: bool, two: bool) -> String {
        let common = |register: &str, field: &str| self.task.field("Common", register, field);
        let conv = |field: &str| common("ConvCfg", field);
        match convolves {
            Some(true) => match self.task.word("NE", "MACCfg", "OpMode").as_deref() {
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
                let pool = self.task.word("PE", "PECfg", "Pool").filter(|p| p != "none");
                if let Some(pool) = pool {
                    let pair = |a: &str, b: &str| conv(a).zip(conv(b)).filter(|p| *p != (1, 1));
                    let Some((w, h)) = pair("Kw", "Kh") else {
                        return format!("{pool} over elements (pooling or reduction)");
                    };
                    let steps = pair("Sx", "Sy").map(|(x, y)| format!(", stride {x}×{y}"));
                    return format!("{pool} over {w}×{h} elements{}", steps.unwrap_or_default());
                }
                let kind = common("Cfg", "TaskType").map_or(String::new(), |t| format!(" (task type {t})"));
                let condition = self.task.word("PE", "PECfg", "Cond").filter(|c| c != "none");
                let Some(op) = condition.or_else(|| self.task.word("PE", "PECfg", "Op")) else {
                    return format!("planar operation{kind}");
                };
                let op = match op.as_str() {
                    "add" if self.task.field("PE", "PECfg", "Src2") == Some(3) => "subtraction",
                    "add" => "addition",
                    "mul" => "multiplication",
                    "max" => "maximum",
                    "min" => "minimum",
                    other => other,
                };
                // With one source it may be a reduction; the bits that distinguish the two are not
                // established.
                if two {
                    format!("element-wise {op}{kind}")
                } else {
                    format!("planar operation on one source, {op}{kind}")
                }
            }
            None => "operation that the descriptor's header does not identify".to_string(),
        }
    }

    fn report(&self) -> TaskReport {
        let convolves = self.task.convolves();
        let sources: Vec<TaskOperand> =
            [self.operand(OperandRole::Source1), self.operand(OperandRole::Source2)].into_iter().flatten().collect();
        let destination = self.operand(OperandRole::Result);
        let (kernel, table, shapes) = (self.kernel(), self.table(), self.task.shapes());
        // A function table that is read through the lanes is not a kernel.
        let kernel = kernel.filter(|_| self.task.word("NE", "MACCfg", "OpMode").is_none_or(|m| m != "bypass"));
        let operation = self.operation(convolves, kernel.is_some(), sources.len() > 1);
        let names: Vec<String> = sources.iter().map(|s| s.place.to_string()).collect();
        let result = destination.as_ref().map_or("nothing".to_string(), |d| d.place.to_string());
        let formats = ["InFmt", "Src2Fmt", "OutFmt"].map(|f| self.task.word("Common", "ChCfg", f));
        let registers = self.task.set().iter().map(|(a, v)| (self.task.generation().label(*a), *v)).collect();
        TaskReport {
            id: self.task.head("Identity", "TID").unwrap_or(0),
            offset: self.task.task().offset,
            words: self.task.task().len(),
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

impl std::fmt::Display for NamedLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NamedLocation::Buffer { name, offset: 0 } => f.write_str(&plain(name)),
            NamedLocation::Buffer { name, offset } => write!(f, "{} + {offset:#x}", plain(name)),
            NamedLocation::L2 { address: Some(address) } => write!(f, "L2 {address:#x}"),
            NamedLocation::L2 { address: None } => f.write_str("L2 (default)"),
        }
    }
}
