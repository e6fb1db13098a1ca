//! A task by the names of the register table, the same for all generations.

use std::collections::BTreeMap;

use half::f16;

use super::{RegisterRecord, Task};
use crate::registers::{FieldKind, Generation, RecordFormat};

/// What a task does with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandRole {
    /// It reads it.
    Source1,
    /// It reads it as the second operand.
    Source2,
    /// It writes it.
    Result,
}

/// Where a source or result lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In a buffer of the program.
    Buffer {
        /// Its index in the table of base addresses.
        bar: u32,
        /// Bytes from its start.
        offset: u64,
    },
    /// In the engine's own memory.
    L2 {
        /// The address there; `None` where the descriptor leaves it to the default.
        address: Option<u32>,
    },
}

/// A task, and the table that names its registers.
pub struct TaskView<'a> {
    generation: &'static Generation,
    task: &'a Task,
    /// The registers that the task sets.
    set: BTreeMap<u32, u32>,
}

impl<'a> TaskView<'a> {
    /// A task of a generation.
    pub fn new(generation: &'static Generation, task: &'a Task) -> TaskView<'a> {
        TaskView { generation, task, set: task.registers() }
    }

    /// Its generation.
    pub fn generation(&self) -> &'static Generation {
        self.generation
    }

    /// The task.
    pub fn task(&self) -> &'a Task {
        self.task
    }

    /// The registers that it sets, by address.
    pub fn set(&self) -> &BTreeMap<u32, u32> {
        &self.set
    }

    /// A field of a register; `None` where neither the descriptor nor a default says it.
    pub fn field(&self, block: &str, register: &str, field: &str) -> Option<u32> {
        let (found, index) = self.generation.named(block, register)?;
        let word = self.set.get(&(found.address + 4 * index)).copied().or(found.default)?;
        Some(found.field(field)?.get(word))
    }

    /// The same by the name of its value.
    pub fn word(&self, block: &str, register: &str, field: &str) -> Option<String> {
        let value = self.field(block, register, field)?;
        let found = self.generation.named(block, register)?.0.field(field)?;
        Some(found.word(value).map_or_else(|| value.to_string(), str::to_string))
    }

    /// A float by its bits.
    pub fn float(&self, block: &str, register: &str, field: &str) -> Option<f64> {
        let bits = self.field(block, register, field)?;
        let found = self.generation.named(block, register)?.0.field(field)?;
        Some(match found.kind {
            FieldKind::Float16 => f16::from_bits(bits as u16).to_f64(),
            _ => f32::from_bits(bits).into(),
        })
    }

    /// A whole register.
    pub fn register(&self, block: &str, register: &str) -> Option<u32> {
        let (found, index) = self.generation.named(block, register)?;
        self.set.get(&(found.address + 4 * index)).copied().or(found.default)
    }

    /// The BAR slot of the packet that sets a register.
    pub fn slot(&self, block: &str, register: &str) -> Option<u32> {
        let address = self.generation.address(block, register)?;
        self.task.records.iter().find_map(|r| match r {
            RegisterRecord::Address { slot, .. } if r.addresses().contains(&address) => Some(u32::from(*slot)),
            _ => None,
        })
    }

    /// A field of the header.
    pub fn head(&self, register: &str, field: &str) -> Option<u32> {
        self.task.head(self.generation, register, field)
    }

    /// The index of the buffer that the kernel is read from: up to H13 an enable bit and an index
    /// in the header, later the slot of an address packet.
    pub fn kernel_bar(&self) -> Option<u32> {
        match self.head("KernelBars", "KBE0") {
            Some(1) => self.head("KernelBars", "KBase0"),
            Some(_) => None,
            None => self.slot("KernelDMASrc", "KernelBaseLo"),
        }
    }

    /// A 64-bit offset in two registers whose names end in `Lo` and `Hi`.
    pub fn wide(&self, block: &str, name: &str) -> u64 {
        let [lo, hi] = ["Lo", "Hi"].map(|end| u64::from(self.register(block, &format!("{name}{end}")).unwrap_or(0)));
        hi << 32 | lo
    }

    /// Where a source or the result lies: up to H13 by an enable bit and an index in the header,
    /// later by an address packet; else it is in L2. `None` for a second source that is not there.
    pub fn location(&self, role: OperandRole) -> Option<Location> {
        let is_second = role == OperandRole::Source2;
        if self.generation.record_format == RecordFormat::ByteAddressed {
            // Enable, index; the block and the register of the base in the buffer; the base in L2.
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
            // A second source that no bit announces is none.
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
        // The planar engine says of a second source what it is; its address may be the default.
        let second = || address.is_some() || self.field("PE", "PECfg", "Src2").is_some_and(|s| s != 0);
        (!is_second || second()).then_some(Location::L2 { address })
    }

    /// The block and the names of the registers that say the strides of a source or the result in
    /// its place: row to row, plane to plane, depth to depth, group to group.
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
            // Two of H13 have a longer name.
            match self.generation.address(block, &name) {
                None => format!("Conv{name}"),
                Some(_) => name,
            }
        };
        (block, ["Row", plane, "Depth", "Group"].map(name))
    }

    /// Bytes from row to row, plane to plane, depth to depth, group to group; as far as the
    /// descriptor says.
    pub fn strides(&self, role: OperandRole) -> [Option<u32>; 4] {
        let (block, names) = self.stride_names(role);
        names.map(|name| self.register(block, &name))
    }

    /// Width, height, channels and depth of the source and of the destination.
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

    /// True for the convolution engines, false for the planar engine; `None` where nothing tells.
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
