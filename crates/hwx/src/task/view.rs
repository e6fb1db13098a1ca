//! A task with its registers by name, the same for all generations.

use std::collections::BTreeMap;

use half::f16;

use super::{RegisterRecord, Task};
use crate::registers::{FieldKind, Generation, RecordFormat};

/// How a task uses a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandRole {
    /// The first operand, read.
    Source1,
    /// The second operand, read.
    Source2,
    /// The result of the task, written.
    Result,
}

/// The location of an operand or result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In a buffer of the program.
    Buffer {
        /// The index in the table of base addresses.
        bar: u32,
        /// Bytes from the start of the buffer.
        offset: u64,
    },
    /// In the engine's L2 memory.
    L2 {
        /// The address in L2; `None` if the descriptor relies on the default.
        address: Option<u32>,
    },
}

/// A task together with the table that names its registers.
pub struct TaskView<'a> {
    generation: &'static Generation,
    task: &'a Task,
    /// The registers that the task sets, by address.
    set: BTreeMap<u32, u32>,
}

impl<'a> TaskView<'a> {
    /// Views a task of a generation.
    pub fn new(generation: &'static Generation, task: &'a Task) -> TaskView<'a> {
        TaskView { generation, task, set: task.registers() }
    }

    /// The generation whose table is used.
    pub fn generation(&self) -> &'static Generation {
        self.generation
    }

    /// The task that is viewed.
    pub fn task(&self) -> &'a Task {
        self.task
    }

    /// The registers that it sets, by address.
    pub fn set(&self) -> &BTreeMap<u32, u32> {
        &self.set
    }

    /// The value of a field; `None` if neither the descriptor nor a default sets it.
    pub fn field(&self, block: &str, register: &str, field: &str) -> Option<u32> {
        let (found, index) = self.generation.named(block, register)?;
        let word = self.set.get(&(found.address + 4 * index)).copied().or(found.default)?;
        Some(found.field(field)?.get(word))
    }

    /// The value of a field as its name in the table, if it has one.
    pub fn word(&self, block: &str, register: &str, field: &str) -> Option<String> {
        let value = self.field(block, register, field)?;
        let found = self.generation.named(block, register)?.0.field(field)?;
        Some(found.word(value).map_or_else(|| value.to_string(), str::to_string))
    }

    /// The value of a field as a float; `None` if the field is not set or does not hold a float.
    pub fn float(&self, block: &str, register: &str, field: &str) -> Option<f64> {
        let bits = self.field(block, register, field)?;
        let found = self.generation.named(block, register)?.0.field(field)?;
        Some(match found.kind {
            FieldKind::Float16 => f16::from_bits(bits as u16).to_f64(),
            _ => f32::from_bits(bits).into(),
        })
    }

    /// The value of a whole register; `None` if neither the descriptor nor a default sets it.
    pub fn register(&self, block: &str, register: &str) -> Option<u32> {
        let (found, index) = self.generation.named(block, register)?;
        self.set.get(&(found.address + 4 * index)).copied().or(found.default)
    }

    /// The BAR slot of the packet that sets a register, if one does.
    pub fn slot(&self, block: &str, register: &str) -> Option<u32> {
        let address = self.generation.address(block, register)?;
        self.task.records.iter().find_map(|r| match r {
            RegisterRecord::Address { slot, .. } if r.addresses().contains(&address) => Some(u32::from(*slot)),
            _ => None,
        })
    }

    /// The value of a header field, if the header has it.
    pub fn head(&self, register: &str, field: &str) -> Option<u32> {
        self.task.head(self.generation, register, field)
    }

    /// The index of the buffer with the kernel: up to H13 an enable bit and an index in the header,
    /// later the slot of an address packet. `None` if no kernel is read.
    pub fn kernel_bar(&self) -> Option<u32> {
        match self.head("KernelBars", "KBE0") {
            Some(1) => self.head("KernelBars", "KBase0"),
            Some(_) => None,
            None => self.slot("KernelDMASrc", "KernelBaseLo"),
        }
    }

    /// The 64-bit offset in the two registers `{name}Lo` and `{name}Hi`.
    pub fn wide(&self, block: &str, name: &str) -> u64 {
        let [lo, hi] = ["Lo", "Hi"].map(|end| u64::from(self.register(block, &format!("{name}{end}")).unwrap_or(0)));
        hi << 32 | lo
    }

    /// The location of an operand: up to H13 an enable bit and an index in the header select a
    /// buffer, later an address packet; otherwise it is in L2. `None` for an absent second source.
    pub fn location(&self, role: OperandRole) -> Option<Location> {
        let is_second = role == OperandRole::Source2;
        if self.generation.record_format == RecordFormat::ByteAddressed {
            // Enable bit and index in the header; block and register of the offset in the buffer;
            // base in L2.
            let (enable, index, block, base, l2) = match role {
                OperandRole::Source1 => ("RBE0", "RBase0", "TileDMASrc", "BaseAddr", "SourceBase"),
                OperandRole::Source2 => ("RBE1", "RBase1", "TileDMASrc", "Src2BaseAddr", "Source2Base"),
                OperandRole::Result => ("WBE", "WBase", "TileDMADst", "BaseAddr", "ResultBase"),
            };
            if self.head("TileBars", enable) == Some(1) {
                let offset = self.field(block, base, "Addr").unwrap_or(0);
                return Some(Location::Buffer { bar: self.head("TileBars", index)?, offset: offset.into() });
            }
            let address = self.register("L2", l2);
            // Without a bit that announces it there is no second source.
            return (!is_second || address.is_some_and(|a| a != 0)).then_some(Location::L2 { address });
        }
        let (block, packet, l2) = match role {
            OperandRole::Source1 => ("TileDMASrc", "Source1Base", "Source1Base"),
            OperandRole::Source2 => ("TileDMASrc", "Source2Base", "Source2Base"),
            OperandRole::Result => ("TileDMADst", "Base", "ResultBase"),
        };
        if let Some(bar) = self.slot(block, &format!("{packet}Lo")) {
            return Some(Location::Buffer { bar, offset: self.wide(block, packet) });
        }
        let address = self.register("L2", l2);
        // The planar engine has a field for the kind of its second source, whose address may be a
        // default.
        let second = || address.is_some() || self.field("PE", "PECfg", "Src2").is_some_and(|s| s != 0);
        (!is_second || second()).then_some(Location::L2 { address })
    }

    /// The block and the names of the stride registers of an operand: row, plane, depth and group,
    /// each for the memory where it is.
    pub fn stride_names(&self, role: OperandRole) -> (&'static str, [String; 4]) {
        let is_old = self.generation.record_format == RecordFormat::ByteAddressed;
        let (block, prefix, plane) = match (self.location(role), role) {
            (Some(Location::Buffer { .. }), OperandRole::Source1) => {
                ("TileDMASrc", if is_old { "" } else { "Source1" }, "Plane")
            }
            (Some(Location::Buffer { .. }), OperandRole::Source2) => {
                ("TileDMASrc", if is_old { "Src2" } else { "Source2" }, "Plane")
            }
            (Some(Location::Buffer { .. }), OperandRole::Result) => ("TileDMADst", "", "Plane"),
            (_, OperandRole::Source1) => ("L2", if is_old { "Source" } else { "Source1" }, "Channel"),
            (_, OperandRole::Source2) => ("L2", "Source2", "Channel"),
            (_, OperandRole::Result) => ("L2", "Result", "Channel"),
        };
        let name = |what: &str| {
            let name = format!("{prefix}{what}Stride");
            // Two registers of H13 have a longer name.
            match self.generation.address(block, &name) {
                None => format!("Conv{name}"),
                Some(_) => name,
            }
        };
        (block, ["Row", plane, "Depth", "Group"].map(name))
    }

    /// Bytes from row to row, plane to plane, depth to depth and group to group; `None` where the
    /// descriptor does not set the stride.
    pub fn strides(&self, role: OperandRole) -> [Option<u32>; 4] {
        let (block, names) = self.stride_names(role);
        names.map(|name| self.register(block, &name))
    }

    /// Width, height, channels and depth of the source and of the destination; `None` where
    /// unknown.
    pub fn shapes(&self) -> [[Option<u32>; 4]; 2] {
        let either = |names: [(&str, &str); 2]| names.iter().find_map(|(r, f)| self.field("Common", r, f));
        [
            [
                either([("InDim", "Win"), ("InWidth", "Win")]),
                either([("InDim", "Hin"), ("InHeight", "Hin")]),
                either([("Cin", "Cin"), ("InChannels", "Cin")]),
                self.field("Common", "InDepth", "Din"),
            ],
            [
                either([("OutDim", "Wout"), ("OutWidth", "Wout")]),
                either([("OutDim", "Hout"), ("OutHeight", "Hout")]),
                either([("Cout", "Cout"), ("OutChannels", "Cout")]),
                self.field("Common", "OutDepth", "Dout"),
            ],
        ]
    }

    /// True for the convolution engines, false for the planar engine; `None` if the header sets
    /// neither.
    pub fn convolves(&self) -> Option<bool> {
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
}
