//! Resolves the buffer that an index means.
//!
//! A tensor has a name, a binding command maps the name to an address, and the program's table of
//! base addresses maps the address to an index. Compilers differ in the order of inputs and
//! outputs, so positions are never used.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{CommandKind, Hwx, ProgramView, TensorView};

/// Whether a program reads or writes a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The program reads the tensor.
    Input,
    /// The program writes the tensor.
    Output,
}

/// A tensor of a program with its address and indices. A bound name without a tensor is also one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortBinding {
    /// The name that the binding command uses, or the tensor's own if it is not bound.
    pub name: String,
    /// The address from the binding command, if one binds the name.
    pub address: Option<u64>,
    /// The indices of base addresses that hold the address; empty if it is not bound.
    pub bars: Vec<u32>,
    /// Input or output, from the tensor or else from its section.
    pub direction: Option<Direction>,
    /// The tensor command, if there is one.
    pub tensor: Option<TensorView>,
}

/// The contents of memory at a base address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BarUse {
    /// The section with the task descriptors.
    Text,
    /// A section of weights or tables.
    Constants(String),
    /// Scratch memory between tasks.
    Scratch(String),
    /// A tensor that the program reads or writes.
    Port(String),
    /// No command names the address.
    Unknown,
}

/// A base address register (BAR) of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bar {
    /// Its index; with flavor 4 indices count 32-bit slots.
    pub index: u32,
    /// The address, never 0.
    pub address: u64,
    /// What the address holds.
    pub holds: BarUse,
}

/// The buffers of one program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bindings {
    /// The base addresses, by index.
    pub bars: Vec<Bar>,
    /// The tensors and bound names.
    pub ports: Vec<PortBinding>,
}

impl Bindings {
    /// Resolves the buffers of a program.
    pub fn of(hwx: &Hwx, program: &ProgramView) -> Bindings {
        let bound: BTreeMap<String, u64> = hwx
            .commands
            .iter()
            .filter(|c| matches!(c.kind(), CommandKind::Fvmlib | CommandKind::Binding))
            .map(|c| (c.name("name"), c.get("vmaddr")))
            .collect();
        let sections = hwx.sections();
        let mut indices: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (index, address) in &program.bars {
            indices.entry(*address).or_default().push(*index);
        }
        let bars_of = |address: Option<u64>| address.and_then(|a| indices.get(&a).cloned()).unwrap_or_default();

        let mut ports: Vec<PortBinding> = Vec::new();
        let mut named = std::collections::BTreeSet::new();
        for tensor in hwx.tensors().into_iter().filter(|t| t.procedure == program.name) {
            // Old compilers bind `y@output`, newer ones `y`.
            let found = [&tensor.symbol, &tensor.name].into_iter().find_map(|n| Some((n.clone(), *bound.get(n)?)));
            let (name, address) = found.map_or((tensor.symbol.clone(), None), |(n, a)| (n, Some(a)));
            named.insert(name.clone());
            let direction = tensor.direction;
            ports.push(PortBinding { name, address, bars: bars_of(address), direction, tensor: Some(tensor) });
        }
        for (name, address) in bound.into_iter().filter(|(name, _)| !named.contains(name)) {
            let bars = bars_of(Some(address));
            if bars.is_empty() {
                continue;
            }
            let direction = sections.iter().find(|s| s.addr == address).and_then(|s| match s.flags & 0xff {
                0x21 => Some(Direction::Input),
                0x23 => Some(Direction::Output),
                _ => None,
            });
            ports.push(PortBinding { name, address: Some(address), bars, direction, tensor: None });
        }

        let holds = |address: u64| {
            if let Some(port) = ports.iter().find(|p| p.address == Some(address)) {
                return BarUse::Port(port.name.clone());
            }
            let Some(section) = sections.iter().find(|s| s.addr == address && s.size > 0) else {
                return BarUse::Unknown;
            };
            let name = section.label();
            match section.flags & 0xff {
                0x28 => BarUse::Text,
                0x25 => BarUse::Scratch(name),
                0x26 => BarUse::Constants(name),
                _ => BarUse::Unknown,
            }
        };
        let bars = program.bars.iter().map(|&(index, address)| Bar { index, address, holds: holds(address) }).collect();
        Bindings { bars, ports }
    }

    /// The use of the base address at an index, if there is one.
    pub fn holds(&self, index: u32) -> Option<&BarUse> {
        self.bars.iter().find(|b| b.index == index).map(|b| &b.holds)
    }

    /// The port with this name, if there is one.
    pub fn port(&self, name: &str) -> Option<&PortBinding> {
        self.ports.iter().find(|p| p.name == name)
    }

    /// A description of the buffer at an index, for messages.
    pub fn label(&self, index: u32) -> String {
        match self.holds(index) {
            Some(BarUse::Text) => "the tasks".to_string(),
            Some(BarUse::Constants(name) | BarUse::Scratch(name)) => name.clone(),
            Some(BarUse::Port(name)) => name.clone(),
            Some(BarUse::Unknown) | None => format!("bar {index}"),
        }
    }
}
