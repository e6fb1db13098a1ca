//! What a file says, as data: for words, JSON and pictures.
//!
//! A task is told from its registers alone, by the names of the table, so one function serves all
//! generations. What a register does not say (it is omitted and has no known default, or its
//! meaning is not established) is left open, not guessed.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::container::{Bindings, CommandKind, Hwx, ProgramView, Section, Segment, TensorView};
use crate::registers::{Evidence, RecordFormat};
use crate::spelling::plain;
use crate::task::{Location, OperandRole, Task, TaskView};

/// A file.
#[derive(Clone, Debug, Serialize)]
pub struct HwxReport {
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
pub enum NamedLocation {
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
pub struct TaskOperand {
    /// Where.
    pub place: NamedLocation,
    /// Bytes from row to row, plane to plane, depth to depth, group to group; as far as the
    /// descriptor says.
    pub strides: [Option<u32>; 4],
}

/// The kernel of a convolution.
#[derive(Clone, Debug, Serialize)]
pub struct FilterReport {
    /// Its buffer.
    pub place: Option<NamedLocation>,
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
    pub sources: Vec<TaskOperand>,
    /// What is written.
    pub destination: Option<TaskOperand>,
    /// Width, height, channels and depth of the source and of the destination.
    pub shapes: [[Option<u32>; 4]; 2],
    /// Element types of source 1, source 2 and destination.
    pub formats: [Option<String>; 3],
    /// The kernel, if weights are read.
    pub kernel: Option<FilterReport>,
    /// Where the table of the non-linear function lies, if one is read.
    pub table: Option<NamedLocation>,
    /// What is done with the result, in its order.
    pub post: Vec<String>,
    /// Every register that is set, by its name.
    pub registers: BTreeMap<String, u32>,
}

impl HwxReport {
    /// What a file says.
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

    /// All tensors of all programs.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorView> {
        self.programs.iter().flat_map(|p| p.bindings.ports.iter().filter_map(|port| port.tensor.as_ref()))
    }
}

/// `zin_ane_compiler v10.26.6, target h16`.
fn banner(hwx: &Hwx) -> Option<String> {
    let (_, command) = hwx.of_kind(CommandKind::Ident).next()?;
    let text = command.name("text");
    let compiler = text.lines().map(str::trim).find(|l| l.starts_with("zin_ane_compiler"))?;
    let target = text.split_ascii_whitespace().skip_while(|w| *w != "-t").nth(1);
    Some(plain(&format!("{compiler}{}", target.map(|t| format!(", target {t}")).unwrap_or_default())))
}

/// What the tasks of a section do.
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

/// One task and the buffers that its numbers refer to.
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
        // H13 has no base of the kernel but its BAR.
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

    /// Where the table of the non-linear function lies.
    fn table(&self) -> Option<NamedLocation> {
        if self.task.word("NE", "MACCfg", "NonlinearMode").as_deref() != Some("table") {
            return None;
        }
        if let Some(slot) = self.task.slot("KernelDMASrc", "TableBaseLo") {
            return Some(self.buffer(slot, self.task.register("KernelDMASrc", "TableBaseLo").unwrap_or(0).into()));
        }
        (self.task.head("KernelBars", "KBE0") == Some(1)).then(|| self.task.head("KernelBars", "KBase0")).flatten().map(
            |bar| {
                // On H13 the table is what lane 0 begins with.
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
        let convolves = self.task.convolves();
        let sources: Vec<TaskOperand> =
            [self.operand(OperandRole::Source1), self.operand(OperandRole::Source2)].into_iter().flatten().collect();
        let destination = self.operand(OperandRole::Result);
        let (kernel, table, shapes) = (self.kernel(), self.table(), self.task.shapes());
        // A table that is read through the lanes is no kernel.
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
