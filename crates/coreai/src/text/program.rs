//! The form of Apple's tools: what `Module.as_string()` of coreai-core 1.0.0b3 prints for a
//! program.
//!
//! Operations have the names of the dialect `coreai`, types those of MLIR. Operations that a file
//! holds together with their expansion are printed without it. Operations, properties and
//! attributes that are not known are printed as in the [generic](super::generic()) form.

use std::collections::{HashMap, HashSet};

use super::spell::ty;
use super::{BoundedText, generic};
use crate::bytecode::{Block, Bytecode, BytecodeOp, Region, TypeId, ValueId};
use crate::dialect::ops::Form;
use crate::dialect::{Decoded, Field, words};

/// The text of a program.
pub fn program(file: &Bytecode<'_>) -> String {
    let mut printer = ProgramPrinter {
        file,
        names: HashMap::new(),
        types: HashMap::new(),
        taken: HashSet::new(),
        out: BoundedText::of(file),
    };
    printer.push("module {\n");
    for operation in &file.body.operations {
        match file.op(operation.name) {
            // The enclosing operation has no place in the text.
            Some(op) if op.spelling.is_empty() => {
                for inner in operation.regions.iter().flat_map(|r| &r.blocks).flat_map(|b| &b.operations) {
                    printer.outermost(inner);
                }
            }
            _ => printer.outermost(operation),
        }
    }
    printer.push("}\n");
    printer.out.finish()
}

/// What the next values of a region are called.
#[derive(Clone, Copy, Default)]
struct Numbers {
    results: usize,
    arguments: usize,
    conflicts: usize,
}

pub(super) struct ProgramPrinter<'f, 'a> {
    pub(super) file: &'f Bytecode<'a>,
    names: HashMap<ValueId, String>,
    pub(super) types: HashMap<ValueId, TypeId>,
    /// Names that are no numbers and can be seen where values are being named.
    taken: HashSet<String>,
    pub(super) out: BoundedText,
}

/// The names of results that have names.
fn result_names(spelling: &str) -> &'static [&'static str] {
    match spelling {
        "coreai.asymmetric_quantization_statistics" => &["scale", "zero_point"],
        "coreai.read_handle" => &["output", "out_token"],
        _ => &[],
    }
}

/// Whether the regions of an operation are part of the program, and no expansion of it.
pub(crate) fn shows_regions(spelling: &str) -> bool {
    matches!(
        spelling,
        "coreai.graph"
            | "coreai.if"
            | "coreai.while"
            | "coreai.scatter_nd"
            | "coreai.isolated_group"
            | "coreai.reduce"
            | "coreai.reduce_index"
    )
}

impl ProgramPrinter<'_, '_> {
    pub(super) fn outermost(&mut self, operation: &BytecodeOp) {
        for region in &operation.regions {
            self.name(region, Numbers::default());
        }
        self.operation(operation, 1);
    }

    pub(super) fn spelling(&self, operation: &BytecodeOp) -> &'static str {
        self.file.op(operation.name).map_or("", |op| op.spelling)
    }

    /// A name of its own, with a number if it is taken.
    fn unique(&mut self, name: &str, numbers: &mut Numbers) -> String {
        let mut unique = name.to_string();
        while !self.taken.insert(unique.clone()) {
            unique = format!("{name}_{}", numbers.conflicts);
            numbers.conflicts += 1;
        }
        unique
    }

    /// Names the values of a region, then those of the regions inside.
    fn name(&mut self, region: &Region, mut numbers: Numbers) {
        let mut added = Vec::new();
        for block in &region.blocks {
            for argument in &block.arguments {
                self.names.insert(argument.definition.value, format!("%arg{}", numbers.arguments));
                self.types.insert(argument.definition.value, argument.definition.ty);
                numbers.arguments += 1;
            }
            for operation in &block.operations {
                let own = result_names(self.spelling(operation));
                let several = operation.results.len() > 1;
                for (index, result) in operation.results.iter().enumerate() {
                    let name = match own.get(index) {
                        Some(name) => {
                            let name = self.unique(name, &mut numbers);
                            added.push(name.clone());
                            format!("%{name}")
                        }
                        None if several => format!("%{}#{index}", numbers.results),
                        None => format!("%{}", numbers.results),
                    };
                    self.names.insert(result.value, name);
                    self.types.insert(result.value, result.ty);
                }
                numbers.results += usize::from(own.is_empty() && !operation.results.is_empty());
            }
        }
        for operation in region.blocks.iter().flat_map(|b| &b.operations) {
            if shows_regions(self.spelling(operation)) || self.spelling(operation).is_empty() {
                for region in &operation.regions {
                    self.name(region, numbers);
                }
            }
        }
        for name in added {
            self.taken.remove(&name);
        }
    }

    pub(super) fn indent(&mut self, depth: usize) {
        self.push(&"  ".repeat(depth));
    }

    pub(super) fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    pub(super) fn value(&mut self, value: ValueId) {
        let name = self.names.get(&value).map_or("<<UNKNOWN SSA VALUE>>", String::as_str);
        self.out.push_str(name);
    }

    pub(super) fn values(&mut self, values: &[ValueId]) {
        for (index, value) in values.iter().enumerate() {
            self.push(if index > 0 { ", " } else { "" });
            self.value(*value);
        }
    }

    pub(super) fn ty(&mut self, id: TypeId) {
        ty(self.file, id, &mut self.out);
    }

    /// The types of values, with commas.
    pub(super) fn types_of(&mut self, values: &[ValueId]) {
        for (index, value) in values.iter().enumerate() {
            self.push(if index > 0 { ", " } else { "" });
            self.type_of(*value);
        }
    }

    pub(super) fn type_of(&mut self, value: ValueId) {
        match self.types.get(&value) {
            Some(id) => self.ty(*id),
            None => self.push("<<UNKNOWN TYPE>>"),
        }
    }

    /// The types of results, in parentheses if there is not one.
    pub(super) fn result_types(&mut self, operation: &BytecodeOp) {
        let one = operation.results.len() == 1;
        self.push(if one { "" } else { "(" });
        self.listed_result_types(operation);
        self.push(if one { "" } else { ")" });
    }

    pub(super) fn listed_result_types(&mut self, operation: &BytecodeOp) {
        for (index, result) in operation.results.iter().enumerate() {
            self.push(if index > 0 { ", " } else { "" });
            self.ty(result.ty);
        }
    }

    /// ` : (A, B) -> C`
    pub(super) fn signature(&mut self, operation: &BytecodeOp, arrow: &str) {
        self.push(" : (");
        self.types_of(&operation.operands);
        self.push(")");
        self.push(arrow);
        self.result_types(operation);
    }

    pub(super) fn operation(&mut self, operation: &BytecodeOp, depth: usize) {
        self.indent(depth);
        if !self.out.is_open() {
            return;
        }
        let op = self.file.op(operation.name);
        let spelling = op.map_or("", |op| op.spelling);
        self.results(operation, spelling);
        let plain = op.is_some_and(|op| op.form == Form::Plain) && operation.properties.is_none();
        let unary = op.is_some_and(|op| op.form == Form::Unary) && operation.operands.len() == 1;
        if unary {
            self.push(spelling);
            self.push(" ");
            self.value(operation.operands[0]);
            self.push(" : ");
            let id = self.types.get(&operation.operands[0]).copied();
            match spelling {
                "coreai.image_to_tensor" => self.short_type(id),
                _ => self.type_of(operation.operands[0]),
            }
            self.push(" -> ");
            match (spelling, operation.results.as_slice()) {
                ("coreai.tensor_to_image", [result]) => self.short_type(Some(result.ty)),
                _ => self.result_types(operation),
            }
        } else if plain {
            self.push(spelling);
            self.push(" ");
            self.values(&operation.operands);
            self.signature(operation, " -> ");
        } else if !self.own(operation, spelling, depth) {
            self.unknown(operation, depth);
        }
        self.push("\n");
    }

    pub(super) fn results(&mut self, operation: &BytecodeOp, spelling: &str) {
        let Some(first) = operation.results.first() else { return };
        if !result_names(spelling).is_empty() {
            let values: Vec<ValueId> = operation.results.iter().map(|r| r.value).collect();
            self.values(&values);
        } else {
            let name = self.names.get(&first.value).cloned().unwrap_or_default();
            self.push(name.split('#').next().unwrap_or(""));
            if operation.results.len() > 1 {
                self.push(&format!(":{}", operation.results.len()));
            }
        }
        self.push(" = ");
    }

    /// A type whose dialect and name are left out, because the operation implies them.
    pub(super) fn short_type(&mut self, id: Option<TypeId>) {
        let before = self.out.text.len();
        if let Some(id) = id {
            self.ty(id);
        }
        self.out.strip(before, &["!coreai.image", "!coreai.handle"]);
    }

    pub(super) fn words(&mut self, words: &[(&str, ValueId)]) {
        for (word, value) in words {
            self.push(word);
            self.value(*value);
        }
    }

    /// The word for a property that is a choice.
    pub(super) fn chosen(&mut self, operation: &BytecodeOp, property: &str) -> Option<String> {
        let Decoded { kind, fields } = self.out.attribute(self.file, self.file.property(operation, property)?)?;
        let [Field::Unsigned(choice)] = fields.as_slice() else { return None };
        words(kind.name, *choice).map(str::to_string)
    }

    /// ` name = <word>`, unless it is the default. `false` if it has no word.
    pub(super) fn choice(&mut self, operation: &BytecodeOp, property: &str, name: &str, default: &str) -> bool {
        let word = self.chosen(operation, property);
        if let Some(word) = word.as_ref().filter(|word| *word != default) {
            self.push(&format!(" {name} = <{word}>"));
        }
        word.is_some()
    }

    pub(super) fn regions(&mut self, operation: &BytecodeOp, between: &str, depth: usize) {
        for (index, region) in operation.regions.iter().enumerate() {
            self.push(if index > 0 { between } else { "" });
            self.push("{\n");
            for (index, block) in region.blocks.iter().enumerate() {
                self.block(block, index, depth);
            }
            self.indent(depth);
            self.push("}");
        }
    }

    pub(super) fn block(&mut self, block: &Block, index: usize, depth: usize) {
        if index > 0 || !block.arguments.is_empty() {
            self.indent(depth);
            self.push(&format!("^bb{index}"));
            if !block.arguments.is_empty() {
                self.push("(");
                for (index, argument) in block.arguments.iter().enumerate() {
                    self.push(if index > 0 { ", " } else { "" });
                    self.value(argument.definition.value);
                    self.push(": ");
                    self.ty(argument.definition.ty);
                }
                self.push(")");
            }
            self.push(":\n");
        }
        for operation in &block.operations {
            self.operation(operation, depth + 1);
        }
    }

    /// An operation that is not known, in the generic form.
    pub(super) fn unknown(&mut self, operation: &BytecodeOp, depth: usize) {
        let (dialect, name) = self.file.op_name(operation.name);
        let name = match self.file.op(operation.name) {
            Some(op) if !op.spelling.is_empty() => op.spelling.to_string(),
            _ => format!("{dialect}.{name}"),
        };
        self.push(&format!("\"{name}\"("));
        self.values(&operation.operands);
        self.push(")");
        generic::properties(self.file, operation, &mut self.out);
        if !operation.regions.is_empty()
            && (operation.operands.is_empty() || !self.file.op(operation.name).is_some_and(|op| op.form == Form::Plain))
        {
            self.push(" (");
            self.regions(operation, ", ", depth);
            self.push(")");
        }
        self.signature(operation, " -> ");
    }
}
