//! What is in a model, for people and as JSON.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::bytecode::{Block, Bytecode, BytecodeOp, ResourceValue};
use crate::dialect::Field;
use crate::text;

/// What is in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The functions, in the order of the file.
    pub functions: Vec<Signature>,
    /// The number of each operation, by its name in text. Operations in the expansion of another
    /// are not counted.
    pub operations: BTreeMap<String, usize>,
    /// Operations that are not known, by their names in the file.
    pub unknown: Vec<String>,
    /// The number of constants in resources, and their bytes.
    pub weights: (usize, usize),
}

/// A function of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The name that callers and the runtime use.
    pub name: String,
    /// Whether only other functions call it.
    pub private: bool,
    /// Names and types of inputs; the name is empty if there is none.
    pub inputs: Vec<(String, String)>,
    /// Names and types of outputs.
    pub outputs: Vec<(String, String)>,
}

impl Summary {
    /// Looks through a program.
    pub fn of(file: &Bytecode<'_>) -> Summary {
        let mut summary =
            Summary { functions: Vec::new(), operations: BTreeMap::new(), unknown: Vec::new(), weights: (0, 0) };
        for resource in file.resources.iter().flat_map(|group| &group.resources) {
            if let ResourceValue::Blob { bytes, .. } = &resource.value {
                summary.weights.0 += 1;
                summary.weights.1 += bytes.len();
            }
        }
        summary.block(file, &file.body);
        summary.unknown.sort_unstable();
        summary.unknown.dedup();
        summary
    }

    fn block(&mut self, file: &Bytecode<'_>, block: &Block) {
        for operation in &block.operations {
            let known = file.op(operation.name);
            match known.map(|op| op.spelling) {
                None => {
                    let (dialect, name) = file.op_name(operation.name);
                    self.unknown.push(format!("{dialect}.{name}"));
                }
                Some("") => {}
                Some("coreai.graph") => self.functions.extend(function(file, operation)),
                Some(name) => *self.operations.entry(name.to_string()).or_default() += 1,
            }
            if known.is_none_or(|op| text::shows_regions(op.spelling) || op.spelling.is_empty()) {
                for inner in operation.regions.iter().flat_map(|region| &region.blocks) {
                    self.block(file, inner);
                }
            }
        }
    }

    /// As one JSON object.
    pub fn json(&self) -> Json {
        let ports = |ports: &[(String, String)]| -> Vec<Json> {
            ports.iter().map(|(name, kind)| json!({"name": name, "type": kind})).collect()
        };
        let functions: Vec<Json> = self
            .functions
            .iter()
            .map(|f| {
                json!({"name": f.name, "private": f.private, "inputs": ports(&f.inputs), "outputs": ports(&f.outputs)})
            })
            .collect();
        json!({
            "functions": functions,
            "operations": self.operations,
            "unknown": self.unknown,
            "weights": {"count": self.weights.0, "bytes": self.weights.1},
        })
    }
}

/// The signature of a function. `None` if its properties are not known.
fn function(file: &Bytecode<'_>, operation: &BytecodeOp) -> Option<Signature> {
    let property = |name| file.attribute(file.property(operation, name)?);
    let name = match property("name")?.fields.as_slice() {
        [Field::String(id)] => file.string(*id).into_owned(),
        _ => return None,
    };
    let private = matches!(property("isPrivate")?.fields.as_slice(), [_, _, Field::Bits(1)]);
    let function = match property("functionType")?.fields.as_slice() {
        [Field::Type(id)] => *id,
        _ => return None,
    };
    let (results, operands) = match file.kind(function)?.fields.as_slice() {
        [Field::Types(results), Field::Types(operands)] => (results.clone(), operands.clone()),
        _ => return None,
    };
    let ports = |attributes: &str, types: &[crate::bytecode::TypeId]| -> Vec<(String, String)> {
        let names = text::port_names(file, file.property(operation, attributes));
        let name = |index: usize| names.get(index).cloned().flatten().unwrap_or_default();
        types.iter().enumerate().map(|(index, id)| (name(index), text::kind(file, *id))).collect()
    };
    Some(Signature { name, private, inputs: ports("argAttrs", &operands), outputs: ports("resAttrs", &results) })
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for function in &self.functions {
            let list = |ports: &[(String, String)]| {
                let one = |(name, kind): &(String, String)| match name.is_empty() {
                    true => kind.clone(),
                    false => format!("{name}: {kind}"),
                };
                ports.iter().map(one).collect::<Vec<_>>().join(", ")
            };
            let private = if function.private { "private function" } else { "function" };
            writeln!(f, "{private} {}({}) -> ({})", function.name, list(&function.inputs), list(&function.outputs))?;
        }
        writeln!(f, "{} constants outside of the operations, {} bytes", self.weights.0, self.weights.1)?;
        for (name, count) in &self.operations {
            writeln!(f, "  {count:5} {name}")?;
        }
        for name in &self.unknown {
            writeln!(f, "  not known: {name}")?;
        }
        Ok(())
    }
}
