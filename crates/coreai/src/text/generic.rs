//! The generic form: every operation with its name in quotes, its operands, properties, regions and
//! types.
//!
//! It equals what coreai-core 1.0.0b3 prints for a file with `print_generic_op_form`, except for
//! contents of resources, which are left out.

use std::collections::HashMap;

use super::{BoundedText, comma, hex, number, quoted, separated};
use crate::bytecode::{AttributeId, Block, Bytecode, BytecodeOp, Definition, Region, StringId, TypeId, ValueId};
use crate::dialect::{Decoded, Field, words};

/// Whether the text has the locations of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locations {
    /// No locations, so that the text shows the program only.
    Hide,
    /// At the end of each operation and argument.
    Show,
}

/// The text of a file in MLIR's generic form.
pub fn generic(file: &Bytecode<'_>, locations: Locations) -> String {
    let names = names(&file.body);
    let mut printer = GenericPrinter { file, locations, names, out: BoundedText::of(file) };
    printer.out.push_str("\"builtin.module\"() ({\n");
    for operation in &file.body.operations {
        printer.operation(operation, 1);
    }
    printer.out.push_str("}) : () -> ()");
    if locations == Locations::Show {
        printer.out.push_str(" loc(\"-\":0:0)");
    }
    printer.out.push('\n');
    printer.out.finish()
}

/// A value in text.
struct Name {
    /// What the value is called, or its operation if it has several results.
    text: String,
    /// The index among several results.
    index: Option<usize>,
    ty: TypeId,
}

/// The names of values. Regions are numbered last first, and numbers are not used again, as MLIR's
/// printer does for the generic form.
fn names(body: &Block) -> HashMap<ValueId, Name> {
    let (mut names, mut results, mut arguments) = (HashMap::new(), 0, 0);
    let mut open: Vec<&[Block]> = vec![std::slice::from_ref(body)];
    while let Some(blocks) = open.pop() {
        for block in blocks {
            for argument in &block.arguments {
                let Definition { value, ty } = argument.definition;
                names.insert(value, Name { text: format!("%arg{arguments}"), index: None, ty });
                arguments += 1;
            }
            for operation in &block.operations {
                let several = operation.results.len() > 1;
                for (index, result) in operation.results.iter().enumerate() {
                    let index = several.then_some(index);
                    names.insert(result.value, Name { text: format!("%{results}"), index, ty: result.ty });
                }
                results += usize::from(!operation.results.is_empty());
            }
        }
        open.extend(blocks.iter().flat_map(|b| &b.operations).flat_map(|o| &o.regions).map(|r| r.blocks.as_slice()));
    }
    names
}

struct GenericPrinter<'f, 'a> {
    file: &'f Bytecode<'a>,
    locations: Locations,
    names: HashMap<ValueId, Name>,
    out: BoundedText,
}

impl GenericPrinter<'_, '_> {
    fn indent(&mut self, depth: usize) {
        self.out.push_str(&"  ".repeat(depth));
    }

    fn value(&mut self, value: ValueId) {
        match self.names.get(&value) {
            Some(Name { text, index: Some(index), .. }) => self.out.push_str(&format!("{text}#{index}")),
            Some(Name { text, .. }) => self.out.push_str(text),
            None => self.out.push_str("<<UNKNOWN SSA VALUE>>"),
        }
    }

    fn operation(&mut self, operation: &BytecodeOp, depth: usize) {
        self.indent(depth);
        if !self.out.is_open() {
            return;
        }
        self.definitions(&operation.results);
        let (dialect, name) = self.file.op_name(operation.name);
        self.out.push_str(&format!("\"{dialect}.{name}\"("));
        for (index, operand) in operation.operands.iter().enumerate() {
            self.out.push_str(if index > 0 { ", " } else { "" });
            self.value(*operand);
        }
        self.out.push(')');
        if !operation.successors.is_empty() {
            self.out.push('[');
            comma(&mut self.out, &operation.successors, |out, block| out.push_str(&format!("^bb{block}")));
            self.out.push(']');
        }
        properties(self.file, operation, &mut self.out);
        if !operation.regions.is_empty() {
            self.out.push_str(" (");
            for (index, region) in operation.regions.iter().enumerate() {
                self.out.push_str(if index > 0 { ", " } else { "" });
                self.region(region, depth);
            }
            self.out.push(')');
        }
        if let Some(attributes) = operation.attributes {
            self.out.push(' ');
            attribute(self.file, attributes, &mut self.out);
        }
        self.out.push_str(" : (");
        self.operand_types(operation);
        self.out.push_str(") -> ");
        let one = operation.results.len() == 1;
        self.out.push_str(if one { "" } else { "(" });
        let file = self.file;
        comma(&mut self.out, &operation.results, |out, result| ty(file, result.ty, out));
        self.out.push_str(if one { "" } else { ")" });
        self.location(Some(operation.location));
        self.out.push('\n');
    }

    fn definitions(&mut self, results: &[Definition]) {
        let Some(first) = results.first() else { return };
        if let Some(name) = self.names.get(&first.value) {
            self.out.push_str(&name.text);
        }
        if results.len() > 1 {
            self.out.push_str(&format!(":{}", results.len()));
        }
        self.out.push_str(" = ");
    }

    fn operand_types(&mut self, operation: &BytecodeOp) {
        let file = self.file;
        for (index, operand) in operation.operands.iter().enumerate() {
            self.out.push_str(if index > 0 { ", " } else { "" });
            match self.names.get(operand) {
                Some(name) => ty(file, name.ty, &mut self.out),
                None => self.out.push_str("<<UNKNOWN TYPE>>"),
            }
        }
    }

    fn region(&mut self, region: &Region, depth: usize) {
        self.out.push_str("{\n");
        for (index, block) in region.blocks.iter().enumerate() {
            if index > 0 || !block.arguments.is_empty() {
                self.indent(depth);
                self.out.push_str(&format!("^bb{index}"));
                if !block.arguments.is_empty() {
                    self.out.push('(');
                    for (index, argument) in block.arguments.iter().enumerate() {
                        self.out.push_str(if index > 0 { ", " } else { "" });
                        self.value(argument.definition.value);
                        self.out.push_str(": ");
                        ty(self.file, argument.definition.ty, &mut self.out);
                        self.location(argument.location);
                    }
                    self.out.push(')');
                }
                self.out.push_str(":\n");
            }
            for operation in &block.operations {
                self.operation(operation, depth + 1);
            }
        }
        self.indent(depth);
        self.out.push('}');
    }

    fn location(&mut self, location: Option<AttributeId>) {
        if self.locations == Locations::Hide {
            return;
        }
        match location {
            Some(id) => {
                self.out.push_str(" loc(");
                attribute(self.file, id, &mut self.out);
                self.out.push(')');
            }
            None => self.out.push_str(" loc(unknown)"),
        }
    }
}

/// The properties of an operation, if it has any; bytes if they are not known.
pub(super) fn properties(file: &Bytecode<'_>, operation: &BytecodeOp, out: &mut BoundedText) {
    let Some(index) = operation.properties else { return };
    out.push_str(" <{");
    match file.properties_of(operation) {
        Some(properties) => {
            let present = properties.into_iter().filter_map(|property| Some((property.name, property.value?)));
            comma(out, present, |out, (name, value)| {
                out.push_str(&format!("{name} = "));
                attribute(file, value, out);
            });
        }
        None => {
            out.push('"');
            hex(file.properties.get(index as usize).map_or(&[], |bytes| bytes), out);
            out.push('"');
        }
    }
    out.push_str("}>");
}

/// An attribute with its dialect.
pub(super) fn attribute(file: &Bytecode<'_>, id: AttributeId, out: &mut BoundedText) {
    match out.attribute(file, id) {
        Some(decoded) => {
            if !matches!(decoded.kind.name, "debuginfo.file_v1" | "debuginfo.source_v1") {
                out.push_str(&format!("#aicode.{}", decoded.kind.name));
            }
            fields(file, &decoded, out);
        }
        None => raw(file, file.attributes.get(id.0 as usize), '#', out),
    }
}

/// An attribute where its kind is clear, so that its name is left out.
fn inner(file: &Bytecode<'_>, id: AttributeId, out: &mut BoundedText) {
    match out.attribute(file, id) {
        Some(decoded) => fields(file, &decoded, out),
        None => raw(file, file.attributes.get(id.0 as usize), '#', out),
    }
}

fn raw(file: &Bytecode<'_>, entry: Option<&crate::bytecode::EncodedEntry<'_>>, sigil: char, out: &mut BoundedText) {
    let Some(entry) = entry else { return };
    if !out.is_open() {
        return out.push_str("");
    }
    if !entry.custom {
        out.push_str(&String::from_utf8_lossy(&entry.bytes));
        return;
    }
    out.push_str(&format!("{sigil}{}<\"0x", file.dialect_name(entry.dialect)));
    hex(&entry.bytes, out);
    out.push_str("\">");
}

/// The fields of an attribute in angle brackets.
fn fields(file: &Bytecode<'_>, decoded: &Decoded<'_>, out: &mut BoundedText) {
    if !out.enter() {
        out.push_str("<…>");
        return;
    }
    if !decoded.fields.is_empty() {
        out.push('<');
        attribute_body(file, decoded, out);
        out.push('>');
    } else if decoded.kind.name != "unit_v1" {
        out.push_str("<>");
    }
    out.leave();
}

// table
fn attribute_body(file: &Bytecode<'_>, decoded: &Decoded<'_>, out: &mut BoundedText) {
    let string = |id: &StringId, out: &mut BoundedText| quoted(file.string_bytes(*id), out);
    match (decoded.kind.name, decoded.fields.as_slice()) {
        ("serialization.string", [Field::String(id)]) => string(id, out),
        ("serialization.integer", [Field::Unsigned(width), Field::Byte(unsigned), Field::Bits(bits)]) => {
            let sign = if *unsigned != 0 { "unsigned" } else { "signed" };
            let value = number::integer(*bits, *width, *unsigned == 0);
            out.push_str(&format!("({width}bit {sign}) {value}"));
        }
        ("serialization.float", [Field::Unsigned(width), Field::Bits(bits)]) => {
            out.push_str(&format!("({width}bit) {}", number::float(*bits, *width)));
        }
        ("serialization.type", [Field::Type(id)]) => ty(file, *id, out),
        ("serialization.array", [Field::Attributes(items)]) if items.is_empty() => {}
        ("serialization.array", [Field::Attributes(items)]) => {
            out.push('[');
            comma(out, items, |out, id| attribute(file, *id, out));
            out.push(']');
        }
        ("serialization.dense_elements", [Field::Byte(splat), Field::Bytes(bytes)]) => {
            out.push_str(&format!("[splat = {}] \"", *splat != 0));
            base64(bytes, out);
            out.push('"');
        }
        ("serialization.dense_resource", [Field::Resource(id)]) => {
            let key = file.resource(*id).map(|resource| file.string(resource.key));
            out.push_str(&key.unwrap_or_default());
        }
        ("serialization.opaque", [Field::String(name), Field::Attributes(items)]) => {
            string(name, out);
            out.push_str(" = [");
            comma(out, items, |out, id| attribute(file, *id, out));
            out.push(']');
        }
        ("serialization.dictionary", [Field::Attributes(items)]) => {
            out.push('{');
            comma(out, items, |out, id| inner(file, *id, out));
            out.push('}');
        }
        (
            "ax.hw_constraints_v1",
            [Field::Signeds(alignments), Field::Signeds(interleave), Field::Unsigned(backing)],
        ) => {
            out.push_str(&format!("AX{}", word(decoded, *backing)));
            out.push_str(&format!(", alignments: {alignments:?}, interleave: {interleave:?}"));
        }
        ("ax.image_constraints_v1", [Field::Unsigned(backing), Field::Signeds(rows)]) => {
            out.push_str(&format!("AX{}, rowAlignmentsPerPlane: {rows:?}", word(decoded, *backing)));
        }
        ("symbol_ref_v1", [Field::Strings(names)]) => {
            separated(out, "::", names, &mut |out, name| out.push_str(&file.string(*name)));
        }
        ("param.constant_v1", [Field::Attribute(value), Field::Type(id)]) => {
            out.push_str("binding{ [");
            attribute(file, *value, out);
            out.push_str("] : ");
            ty(file, *id, out);
            out.push_str(" }");
        }
        (
            "sparse_tensor_encoding_v1",
            [
                Field::Unsigned(scheme),
                Field::Unsigned(positions),
                Field::Unsigned(coordinates),
                _,
                Field::Unsigned(stored),
            ],
        ) => {
            out.push_str(&word(decoded, *scheme));
            out.push_str(&format!(", numNonZero = {stored}, posWidth = {positions}, crdWidth = {coordinates}"));
        }
        (_, [Field::Unsigned(choice)]) => out.push_str(&word(decoded, *choice)),
        ("execution.target_spec_v1", [Field::Attribute(triple), Field::Attribute(soc), Field::Attribute(options)]) => {
            for (name, id) in [("triple = ", triple), (", soc = ", soc), (", delegateOptions = ", options)] {
                out.push_str(name);
                inner(file, *id, out);
            }
        }
        ("debuginfo.file_v1", [Field::String(name), Field::String(folder), Field::String(hash)]) => {
            out.push_str("filename = ");
            string(name, out);
            out.push_str(", directory = ");
            string(folder, out);
            out.push_str(", sha256Sum = ");
            string(hash, out);
        }
        ("debuginfo.source_v1", [Field::Attribute(source), rest @ ..]) => {
            out.push_str("file = ");
            inner(file, *source, out);
            for (name, field) in ["startLine", "startColumn", "endLine", "endColumn"].iter().zip(rest) {
                if let Field::Unsigned(value) = field {
                    out.push_str(&format!(", {name} = {value}"));
                }
            }
        }
        (
            "debuginfo.compile_unit_v1",
            [
                Field::String(language),
                Field::Attribute(source),
                Field::String(producer),
                Field::Unsigned(optimized),
                Field::String(flags),
                Field::Attributes(files),
            ],
        ) => {
            out.push_str("sourceLanguage = ");
            string(language, out);
            out.push_str(", file = ");
            inner(file, *source, out);
            out.push_str(", producer = ");
            string(producer, out);
            out.push_str(&format!(", optimized = {}, flags = ", *optimized != 0));
            string(flags, out);
            if !files.is_empty() {
                out.push_str(", allFiles = ");
                comma(out, files, |out, id| inner(file, *id, out));
            }
        }
        ("debuginfo.metadata_value_v1", [Field::Attribute(value)]) => {
            out.push_str("value = ");
            attribute(file, *value, out);
        }
        ("debuginfo.metadata_v1", [Field::String(name), Field::Attribute(value)]) => {
            string(name, out);
            out.push_str(": ");
            inner(file, *value, out);
        }
        (
            "debuginfo.subprogram_v1",
            [
                Field::Type(id),
                Field::Attribute(unit),
                Field::Attribute(source),
                Field::String(name),
                Field::String(link),
                _,
            ],
        ) => {
            out.push_str("typeAttr = ");
            ty(file, *id, out);
            out.push_str(", compileUnit = ");
            attribute(file, *unit, out);
            out.push_str(", file = ");
            inner(file, *source, out);
            out.push_str(", name = ");
            string(name, out);
            out.push_str(", linkageName = ");
            string(link, out);
        }
        (
            "debuginfo.location_v1",
            [Field::Attribute(source), Field::Attribute(scope), Field::Attributes(fused), Field::Attributes(metadata)],
        ) => {
            out.push_str("src = ");
            inner(file, *source, out);
            out.push_str(", scope = ");
            attribute(file, *scope, out);
            if !fused.is_empty() {
                out.push_str(", fusedWith = ");
                comma(out, fused, |out, id| inner(file, *id, out));
            }
            if !metadata.is_empty() {
                out.push_str(", metadata = ");
                comma(out, metadata, |out, id| inner(file, *id, out));
            }
        }
        _ => {}
    }
}

/// The word for a choice, or its number.
fn word(decoded: &Decoded<'_>, choice: u64) -> String {
    words(decoded.kind.name, choice).map_or_else(|| choice.to_string(), str::to_string)
}

/// A type with its dialect.
pub(super) fn ty(file: &Bytecode<'_>, id: TypeId, out: &mut BoundedText) {
    let Some(decoded) = out.ty(file, id) else {
        raw(file, file.types.get(id.0 as usize), '!', out);
        return;
    };
    out.push_str(&format!("!aicode.{}", decoded.kind.name));
    if decoded.fields.is_empty() {
        return;
    }
    if !out.enter() {
        out.push_str("<…>");
        return;
    }
    out.push('<');
    match (decoded.kind.name, decoded.fields.as_slice()) {
        ("tensor_v1", [Field::Signeds(extents), Field::Type(element), rest @ ..]) => {
            if !extents.is_empty() {
                out.push('[');
                comma(out, extents, |out, n| out.push_str(&n.to_string()));
                out.push_str("] : ");
            }
            ty(file, *element, out);
            if let [Field::Attribute(encoding)] = rest {
                out.push_str(", ");
                attribute(file, *encoding, out);
            }
        }
        ("function_v1", [Field::Types(results), Field::Types(operands)]) => {
            for (name, list) in [("(operands ", operands), (" -> (results ", results)] {
                out.push_str(if list.is_empty() { name.split_inclusive('(').next().unwrap_or("(") } else { name });
                comma(out, list, |out, id| ty(file, *id, out));
                out.push(')');
            }
        }
        ("image_v1", [Field::Attribute(format), Field::Unsigned(height), Field::Unsigned(width), rest @ ..]) => {
            inner(file, *format, out);
            out.push_str(&format!(" x {height} x {width}"));
            if let [Field::Attribute(limits)] = rest {
                out.push_str(", image_constraints = ");
                inner(file, *limits, out);
            }
        }
        ("debuginfo.unresolved_v1", [Field::Type(id)]) => {
            out.push_str("wrappedType = ");
            ty(file, *id, out);
        }
        (_, [Field::Type(id)]) => ty(file, *id, out),
        _ => {}
    }
    out.push('>');
    out.leave();
}

/// Bytes in base 64.
fn base64(bytes: &[u8], out: &mut BoundedText) {
    for chunk in bytes.chunks(3) {
        if !out.is_open() {
            return out.push_str("");
        }
        ferrane_diag::base64(chunk).for_each(|digit| out.push(digit));
    }
}
