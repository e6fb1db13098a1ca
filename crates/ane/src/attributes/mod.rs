//! The attributes of a loaded model (apple-runtime §11): its procedures, and the order, names and
//! layouts of their ports.
//!
//! The framework's dictionary is first converted to a [`Tree`] of plain values, so this module is
//! pure and can be fuzzed on any system. Nothing in the tree is trusted: a number may be negative
//! or huge, and a symbol may point past the end of the list of names.

mod layout;
mod tree;

use ferrane_device::{Error, ErrorKind, Result};

pub use layout::{Axes, layout};
pub use tree::Tree;

/// A port according to the model's attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortAttributes {
    /// The name in the program.
    pub name: String,
    /// The index by which requests refer to it.
    pub symbol: u32,
    /// True if its surface must be aligned to 16 KiB, in address and size.
    pub aligned_16k: bool,
    /// The layout in memory; `None` if the model does not report it.
    pub axes: Option<Axes>,
}

/// A procedure according to the model's attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcedureAttributes {
    /// The name of the function. In models of several networks, the number of the network and `@`
    /// precede it.
    pub name: String,
    /// The index by which requests refer to it.
    pub id: u32,
    /// The inputs, in the model's order.
    pub inputs: Vec<PortAttributes>,
    /// The outputs, in the model's order.
    pub outputs: Vec<PortAttributes>,
}

/// The attributes of a loaded model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The procedures, sorted by index.
    pub procedures: Vec<ProcedureAttributes>,
}

fn odd(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Load, format!("the loaded model reports {what}"))
}

/// The keys of one kind of port, inputs or outputs.
struct PortKeys {
    symbols: &'static str,
    names: &'static str,
    alignment: &'static str,
    live: &'static str,
}

const INPUTS: PortKeys = PortKeys {
    symbols: "ANEFModelInputSymbolIndexArray",
    names: "kANEFModelInputSymbolsArrayKey",
    alignment: "ANEFModelInput16KAlignmentArray",
    live: "LiveInputList",
};

const OUTPUTS: PortKeys = PortKeys {
    symbols: "ANEFModelOutputSymbolIndexArray",
    names: "kANEFModelOutputSymbolsArrayKey",
    alignment: "ANEFModelOutput16KAlignmentArray",
    live: "LiveOutputList",
};

impl Attributes {
    /// Reads the attributes. A model without a description, such as one that is not loaded, has no
    /// procedures.
    ///
    /// # Errors
    /// [`ErrorKind::Load`] if a part is missing or has another type, or an index is out of range.
    pub fn read(tree: &Tree) -> Result<Attributes> {
        let Some(description) = tree.get("ANEFModelDescription") else { return Ok(Attributes::default()) };
        let need = |key: &str| description.get(key).ok_or_else(|| odd(format_args!("no `{key}`")));
        let ids = need("kANEFModelProcedureNameToIDMapKey")?;
        let ids = ids.entries().ok_or_else(|| odd("procedures without names"))?;
        let networks = tree.get("NetworkStatusList").and_then(Tree::elements).unwrap_or_default();
        let mut procedures = Vec::new();
        for list in need("ANEFModelProcedures")?.elements().ok_or_else(|| odd("no list of procedures"))? {
            let id = list.get("ANEFModelProcedureID").and_then(Tree::index);
            let id = id.ok_or_else(|| odd("a procedure without an index"))?;
            let full = ids.iter().find(|(_, value)| value.index() == Some(id)).map(|(name, _)| name.as_str());
            let full = full.ok_or_else(|| odd(format_args!("the procedure {id} without a name")))?;
            // Several networks are distinguished by name; a single one may have no name.
            let network = match networks {
                [only] => Some(only),
                several => several.iter().find(|n| n.get("Name").and_then(Tree::text) == Some(full)),
            };
            let ports = |side: &PortKeys| ports(description, list, network, side);
            let name = full.split_once('@').map_or(full, |(_, name)| name).to_string();
            let (inputs, outputs) = (ports(&INPUTS)?, ports(&OUTPUTS)?);
            procedures.push(ProcedureAttributes { name, id, inputs, outputs });
        }
        procedures.sort_by_key(|p| p.id);
        if procedures.windows(2).any(|pair| pair[0].id == pair[1].id) {
            return Err(odd("two procedures with the same index"));
        }
        Ok(Attributes { procedures })
    }
}

fn ports(description: &Tree, procedure: &Tree, network: Option<&Tree>, side: &PortKeys) -> Result<Vec<PortAttributes>> {
    let list = |tree: &Tree, key: &str| tree.get(key).and_then(Tree::elements).map(<[Tree]>::to_vec);
    let missing = |key: &str| odd(format_args!("no `{key}`"));
    let names = list(description, side.names).ok_or_else(|| missing(side.names))?;
    let aligned = list(description, side.alignment).unwrap_or_default();
    let live = network.and_then(|n| list(n, side.live));
    let mut ports: Vec<PortAttributes> = Vec::new();
    for symbol in list(procedure, side.symbols).ok_or_else(|| missing(side.symbols))? {
        let symbol = symbol.index().ok_or_else(|| odd("a port without an index"))?;
        let full = names.get(symbol as usize).and_then(Tree::text);
        let full = full.ok_or_else(|| odd(format_args!("the port {symbol} without a name")))?;
        // Outputs are reported as `name@output`.
        let name = full.strip_suffix("@output").unwrap_or(full);
        if ports.iter().any(|p| p.name == name || p.symbol == symbol) {
            return Err(odd(format_args!("the port `{name}` twice")));
        }
        let called = |entry: &&Tree| {
            let is = |key| entry.get(key).and_then(Tree::text).is_some_and(|n| n == full || n == name);
            is("Symbol") || is("Name")
        };
        let axes = match live.as_deref() {
            None => None,
            Some(live) => {
                let entry = live.iter().find(called);
                Some(Axes::read(entry.ok_or_else(|| odd(format_args!("no layout of the port `{name}`")))?, name)?)
            }
        };
        let aligned_16k = aligned.get(symbol as usize).and_then(Tree::index) == Some(1);
        ports.push(PortAttributes { name: name.to_string(), symbol, aligned_16k, axes });
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Entries = Vec<(String, Tree)>;

    fn map(entries: &[(&str, Tree)]) -> Tree {
        Tree::Map(entries.iter().map(|(k, v)| (k.to_string(), v.clone())).collect())
    }

    fn texts(values: &[&str]) -> Tree {
        Tree::List(values.iter().map(|v| Tree::Text(v.to_string())).collect())
    }

    fn numbers(values: &[i64]) -> Tree {
        Tree::List(values.iter().map(|v| Tree::Number(*v)).collect())
    }

    /// The two procedures of a published dump (freedomtan, M1, macOS 15), which has names before
    /// `@` and duplicate names.
    fn published() -> Tree {
        let procedure = |symbol| {
            map(&[
                ("ANEFModelInputSymbolIndexArray", numbers(&[symbol])),
                ("ANEFModelOutputSymbolIndexArray", numbers(&[symbol])),
                ("ANEFModelProcedureID", Tree::Number(symbol)),
            ])
        };
        let ids = [("0@default", Tree::Number(1)), ("0@res_320x320", Tree::Number(0))];
        map(&[(
            "ANEFModelDescription",
            map(&[
                ("ANEFModelInput16KAlignmentArray", numbers(&[0, 1])),
                ("ANEFModelProcedures", Tree::List(vec![procedure(1), procedure(0)])),
                ("kANEFModelInputSymbolsArrayKey", texts(&["input_tensor", "input_tensor"])),
                ("kANEFModelOutputSymbolsArrayKey", texts(&["output_tensor@output", "output_tensor@output"])),
                ("kANEFModelProcedureNameToIDMapKey", map(&ids)),
            ]),
        )])
    }

    #[test]
    fn procedures_ports_and_alignment_are_read() {
        let read = Attributes::read(&published()).unwrap();
        let [small, large] = &read.procedures[..] else { panic!("{read:?}") };
        assert_eq!((small.name.as_str(), small.id, large.name.as_str(), large.id), ("res_320x320", 0, "default", 1));
        assert_eq!((large.inputs[0].name.as_str(), large.inputs[0].symbol), ("input_tensor", 1));
        assert_eq!(large.outputs[0].name, "output_tensor");
        assert!(large.inputs[0].aligned_16k && !small.inputs[0].aligned_16k && !large.outputs[0].aligned_16k);
        assert_eq!(Attributes::read(&Tree::Map(Vec::new())).unwrap(), Attributes::default());
    }

    #[test]
    fn what_makes_no_sense_is_a_load_error() {
        let fails = |change: &dyn Fn(&mut Entries)| {
            let Tree::Map(mut root) = published() else { panic!() };
            let Tree::Map(description) = &mut root[0].1 else { panic!() };
            change(description);
            assert_eq!(Attributes::read(&Tree::Map(root)).unwrap_err().kind(), ErrorKind::Load);
        };
        for at in [1, 2, 3, 4] {
            fails(&|d| drop(d.remove(at)));
            fails(&|d| d[at].1 = Tree::Number(1));
        }
        fails(&|d| d[2].1 = texts(&["one"]));
        fails(&|d| d[4].1 = map(&[("0@default", Tree::Number(7))]));
        fails(&|d| {
            let Tree::List(list) = &mut d[1].1 else { panic!() };
            list.push(list[0].clone());
        });
    }
}
