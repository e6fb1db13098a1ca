//! What is in a model, for people and as JSON.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};

use ferrane_diag::printable;

use crate::bytecode::{Block, Bytecode, BytecodeOp, OpNameId, ResourceValue, TypeId};
use crate::dialect::Field;
use crate::text::{self, BoundedText};

/// What is in a program.
///
/// Names and types of a hostile file are bounded as its text is: `…` stands for what is left out.
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
        let mut search = Search { summary, unknown: BTreeSet::new(), text: BoundedText::of(file) };
        search.block(file, &file.body);
        search.finish(file)
    }

    /// As one JSON object.
    pub fn json(&self) -> Json {
        let ports = |ports: &[(String, String)]| -> Vec<Json> {
            ports.iter().map(|(name, ty)| json!({"name": name, "type": ty})).collect()
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

/// What was found so far.
struct Search {
    summary: Summary,
    unknown: BTreeSet<OpNameId>,
    /// Limits the length of names and types.
    text: BoundedText,
}

impl Search {
    fn block(&mut self, file: &Bytecode<'_>, block: &Block) {
        for operation in &block.operations {
            let known = file.op(operation.name);
            match known.map(|op| op.spelling) {
                None => {
                    self.unknown.insert(operation.name);
                }
                Some("") => {}
                Some("coreai.graph") => {
                    let function = self.function(file, operation);
                    self.summary.functions.extend(function);
                }
                Some(name) => match self.summary.operations.get_mut(name) {
                    Some(count) => *count += 1,
                    None => drop(self.summary.operations.insert(name.to_string(), 1)),
                },
            }
            if known.is_none_or(|op| text::shows_regions(op.spelling) || op.spelling.is_empty()) {
                for inner in operation.regions.iter().flat_map(|region| &region.blocks) {
                    self.block(file, inner);
                }
            }
        }
    }

    /// The signature of a function. `None` if its properties are not known, or if there is no room.
    fn function(&mut self, file: &Bytecode<'_>, operation: &BytecodeOp) -> Option<Signature> {
        let mut property = |name| self.text.attribute(file, file.property(operation, name)?);
        let name = match property("name")?.fields.as_slice() {
            [Field::String(id)] => *id,
            _ => return None,
        };
        let private = matches!(property("isPrivate")?.fields.as_slice(), [_, _, Field::Bits(1)]);
        let function = match property("functionType")?.fields.as_slice() {
            [Field::Type(id)] => *id,
            _ => return None,
        };
        let (results, operands) = match self.text.ty(file, function)?.fields.as_slice() {
            [Field::Types(results), Field::Types(operands)] => (results.clone(), operands.clone()),
            _ => return None,
        };
        let name = self.text.apart(|text| text.push_str(&file.string(name)));
        let inputs = self.ports(file, operation, "argAttrs", &operands);
        let outputs = self.ports(file, operation, "resAttrs", &results);
        Some(Signature { name, private, inputs, outputs })
    }

    /// The names and types of inputs or outputs.
    fn ports(
        &mut self,
        file: &Bytecode<'_>,
        operation: &BytecodeOp,
        attributes: &str,
        types: &[TypeId],
    ) -> Vec<(String, String)> {
        let names = text::port_names(file, file.property(operation, attributes), types.len(), &mut self.text);
        let mut ports = Vec::new();
        for (index, id) in types.iter().enumerate() {
            if !self.text.is_open() {
                ports.push((String::new(), "…".to_string()));
                break;
            }
            let name = names.get(index).copied().flatten();
            let name = self.text.apart(|text| name.into_iter().for_each(|id| text.push_str(&file.string(id))));
            ports.push((name, self.text.apart(|text| text::ty(file, *id, text))));
        }
        ports
    }

    fn finish(mut self, file: &Bytecode<'_>) -> Summary {
        let mut unknown = BTreeSet::new();
        for id in self.unknown {
            if !self.text.is_open() {
                unknown.insert("…".to_string());
                break;
            }
            let (dialect, name) = file.op_name(id);
            unknown.insert(self.text.apart(|text| text.push_str(&format!("{dialect}.{name}"))));
        }
        self.summary.unknown = unknown.into_iter().collect();
        self.summary
    }
}

impl std::fmt::Display for Summary {
    /// The functions, constants and operations, with control characters in names replaced.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for function in &self.functions {
            let list = |ports: &[(String, String)]| {
                let one = |(name, ty): &(String, String)| match name.is_empty() {
                    true => ty.clone(),
                    false => format!("{name}: {ty}"),
                };
                ports.iter().map(one).collect::<Vec<_>>().join(", ")
            };
            let private = if function.private { "private function" } else { "function" };
            let (name, inputs, outputs) = (&function.name, list(&function.inputs), list(&function.outputs));
            writeln!(f, "{}", printable(&format!("{private} {name}({inputs}) -> ({outputs})")))?;
        }
        writeln!(f, "{} constants outside of the operations, {} bytes", self.weights.0, self.weights.1)?;
        for (name, count) in &self.operations {
            writeln!(f, "  {count:5} {name}")?;
        }
        for name in &self.unknown {
            writeln!(f, "  not known: {}", printable(name))?;
        }
        Ok(())
    }
}
