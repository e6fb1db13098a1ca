//! Operations whose text has a form of its own.

use super::program::ProgramPrinter;
use super::spell::{items, named_list, nested, string};
use super::{DEPTH, comma, hex, number, quoted, separated};
use crate::bytecode::{AttributeId, BytecodeOp, StringId, ValueId};
use crate::dialect::{ElementType, Field};

/// Tensors of more elements are printed in hexadecimal, as MLIR does.
const SPELLED_OUT: usize = 100;

impl ProgramPrinter<'_, '_> {
    /// An operation with a form of its own; `false` if it does not have what the form needs.
    /// Regions are printed only where that is clear: the other form prints them again, at each
    /// level.
    // table
    pub(super) fn own(&mut self, operation: &BytecodeOp, spelling: &str, depth: usize) -> bool {
        let before = self.out.text.len();
        self.push(spelling);
        let done = match (spelling, operation.operands.as_slice()) {
            ("coreai.graph", []) => self.graph(operation, depth),
            ("coreai.constant", []) => self.constant(operation),
            ("coreai.output" | "coreai.yield", operands) => {
                if !operands.is_empty() {
                    self.push(" ");
                    self.values(operands);
                    self.push(" : ");
                    self.types_of(operands);
                }
                true
            }
            ("coreai.condition", operands) => {
                self.push(" ");
                self.values(operands);
                self.push(" : (");
                self.types_of(operands);
                self.push(")");
                true
            }
            ("coreai.cast", [x]) => {
                self.push(" ");
                self.value(*x);
                self.push(" : ");
                self.type_of(*x);
                self.push(" to ");
                self.result_types(operation);
                true
            }
            ("coreai.create_token", []) => {
                self.push(" : ");
                self.result_types(operation);
                true
            }
            ("coreaix.copy_with_constraints" | "coreaix.copy_discarding_constraints", operands) => {
                self.push("(");
                self.values(operands);
                self.push(")");
                self.signature(operation, " -> ");
                true
            }
            ("coreai.gather_along_axis", [x, at, axis]) => {
                self.words(&[(" ", *x), (" at ", *at), (" along ", *axis)]);
                self.signature(operation, " to ");
                true
            }
            ("coreai.gather_nd", [x, at]) => {
                self.words(&[(" ", *x), (" at ", *at)]);
                self.signature(operation, " to ");
                true
            }
            ("coreai.slice_update", [x, start, end, strides, update]) => {
                self.words(&[(" ", *x), (" with ", *update), (" at (", *start), (", ", *end), (", ", *strides)]);
                self.push(") : (");
                self.types_of(&[*x, *update, *start, *end, *strides]);
                self.push(") to ");
                self.result_types(operation);
                true
            }
            ("coreai.scatter_nd", [x, at, update]) => {
                self.words(&[(" ", *x), (" with ", *update), (" at ", *at)]);
                self.push(" ");
                self.regions(operation, "", depth);
                self.push(" : (");
                self.types_of(&[*x, *update, *at]);
                self.push(") to ");
                self.result_types(operation);
                true
            }
            ("coreai.read_handle" | "coreai.write_handle", [handle, rest @ ..]) => {
                self.push(" ");
                self.values(&operation.operands);
                self.push(" : (");
                let id = self.types.get(handle).copied();
                self.short_type(id);
                self.push(", ");
                self.types_of(rest);
                self.push(") -> ");
                self.result_types(operation);
                true
            }
            ("coreai.asymmetric_quantization_statistics", operands) => {
                self.push(" ");
                self.values(operands);
                self.signature(operation, " -> ");
                true
            }
            ("coreai.gelu", [x]) => {
                self.push(" ");
                self.value(*x);
                let known = self.choice(operation, "approximate", "approximate", "none");
                self.push(" : ");
                self.type_of(*x);
                self.push(" -> ");
                self.result_types(operation);
                known
            }
            ("coreai.pad", operands) => {
                self.push(" ");
                self.values(operands);
                let known = self.choice(operation, "padding_mode", "mode", "");
                self.signature(operation, " -> ");
                known
            }
            ("coreai.scan", operands) => {
                self.push(" ");
                self.values(operands);
                let known = self.choice(operation, "combiner", "combiner", "");
                self.signature(operation, " -> ");
                known
            }
            ("coreai.scatter_along_axis", operands) => {
                self.push(" ");
                self.values(operands);
                let known = self.choice(operation, "scatter_mode", "scatter_mode", "update");
                self.signature(operation, " -> ");
                known
            }
            ("coreai.interpolate" | "coreai.interpolate_coordinates", operands) => {
                self.push(" ");
                self.values(operands);
                let word = self.chosen(operation, "interpolation_mode");
                let mode = word.clone().unwrap_or_default();
                self.push(&format!(" {{interpolation_mode = #coreai.interpolation_mode<{mode}>}}"));
                self.signature(operation, " -> ");
                word.is_some()
            }
            ("coreai.invoke", operands) => self.invoke(operation, operands),
            ("coreai.metal4_kernel", [_, _, _, ..]) => self.metal_kernel(operation),
            ("coreai.target_spec", []) => self.target_spec(operation),
            ("coreai.delegate", operands) => self.delegate(operation, operands),
            ("coreai.isolated_group", operands) => {
                let name = self.string(operation, "delegate_id");
                if let Some(name) = name {
                    self.push("<");
                    quoted(self.file.string_bytes(name), &mut self.out);
                    self.push(">(");
                    self.values(operands);
                    self.push(")");
                    self.signature(operation, " -> ");
                    self.push(" ");
                    self.regions(operation, "", depth);
                }
                name.is_some()
            }
            ("coreai.if", [condition]) => {
                self.push(" ");
                self.value(*condition);
                self.push(" ");
                self.regions(operation, " else ", depth);
                self.push(" : ");
                self.type_of(*condition);
                self.push(" -> ");
                self.listed_result_types(operation);
                true
            }
            ("coreai.while", operands) => {
                self.push(" ");
                self.values(operands);
                self.push(" ");
                self.regions(operation, " do ", depth);
                self.push(" : (");
                self.types_of(operands);
                self.push(") -> (");
                self.listed_result_types(operation);
                self.push(")");
                true
            }
            _ => false,
        };
        if !done {
            self.out.truncate(before);
        }
        done
    }

    /// The string that a property holds.
    fn string(&mut self, operation: &BytecodeOp, property: &str) -> Option<StringId> {
        string(self.file, self.file.property(operation, property)?, &mut self.out)
    }

    fn graph(&mut self, operation: &BytecodeOp, depth: usize) -> bool {
        let file = self.file;
        let function = (|| {
            let id = match self.out.attribute(file, file.property(operation, "functionType")?)?.fields.as_slice() {
                [Field::Type(id)] => *id,
                _ => return None,
            };
            match self.out.ty(file, id)?.fields.as_slice() {
                [Field::Types(results), Field::Types(_)] => Some(results.clone()),
                _ => None,
            }
        })();
        let name = self.string(operation, "name");
        let (Some(results), Some(name), [region]) = (function, name, operation.regions.as_slice()) else {
            return false;
        };
        let [block] = region.blocks.as_slice() else { return false };
        for (property, word) in [("isPrivate", " private"), ("externalize", " externalize"), ("noInline", " noinline")]
        {
            let decoded = file.property(operation, property).and_then(|id| self.out.attribute(file, id));
            if decoded.is_some_and(|decoded| matches!(decoded.fields.as_slice(), [_, _, Field::Bits(1)])) {
                self.push(word);
            }
        }
        self.push(" @");
        self.push(&file.string(name));
        self.push("(");
        let attributes = items(file, file.property(operation, "argAttrs"), &mut self.out);
        for (index, argument) in block.arguments.iter().enumerate() {
            self.push(if index > 0 { ", " } else { "" });
            self.value(argument.definition.value);
            self.push(": ");
            self.ty(argument.definition.ty);
            self.dictionary(attributes.get(index).copied());
        }
        self.push(")");
        if !results.is_empty() {
            let attributes = items(file, file.property(operation, "resAttrs"), &mut self.out);
            let bare = results.len() == 1 && items(file, attributes.first().copied(), &mut self.out).is_empty();
            self.push(if bare { " -> " } else { " -> (" });
            for (index, id) in results.iter().enumerate() {
                if !self.out.is_open() {
                    break;
                }
                self.push(if index > 0 { ", " } else { "" });
                self.ty(*id);
                self.dictionary(attributes.get(index).copied());
            }
            self.push(if bare { "" } else { ")" });
        }
        if let Some(id) = file.property(operation, "compositeDecl") {
            self.push(" attributes {composite_decl = #coreai.composite_declaration<");
            match self.out.attribute(file, id).as_ref().map(|d| d.fields.as_slice()) {
                Some([Field::String(name), Field::Attributes(items)]) => {
                    quoted(file.string_bytes(*name), &mut self.out);
                    self.push(" = ");
                    named_list(file, items, &mut self.out);
                }
                _ => return false,
            }
            self.push(">}");
        }
        self.push(" {\n");
        for inner in &block.operations {
            self.operation(inner, depth + 1);
        }
        self.indent(depth);
        self.push("}");
        true
    }

    /// ` {name = value}`, if there are any.
    fn dictionary(&mut self, id: Option<AttributeId>) {
        let items = items(self.file, id, &mut self.out);
        if !items.is_empty() {
            self.push(" ");
            named_list(self.file, &items, &mut self.out);
        }
    }

    fn constant(&mut self, operation: &BytecodeOp) -> bool {
        let file = self.file;
        let value = file.property(operation, "value").and_then(|id| self.out.attribute(file, id));
        let Some(decoded) = value else { return false };
        let [result] = operation.results.as_slice() else { return false };
        match decoded.fields.as_slice() {
            [Field::Resource(id)] => {
                let key = file.resource(*id).map(|resource| file.string(resource.key)).unwrap_or_default();
                self.push(&format!(" dense_resource<{key}>"));
            }
            [Field::Byte(splat), Field::Bytes(bytes)] => {
                self.out.charge(file.types.get(result.ty.0 as usize).map_or(0, |entry| entry.bytes.len()));
                let Some(tensor) = file.tensor(result.ty).filter(|t| t.shape.len() <= DEPTH) else { return false };
                let (size, count) = (tensor.element.size(), tensor.count());
                let packed = *splat == 0 && tensor.element == ElementType::UInt1;
                let bits = tensor.element.bits() as usize;
                let fits = |n: &usize| packed && n.checked_mul(bits).is_some_and(|n| n.div_ceil(8) == bytes.len());
                let unpacked: Vec<u8> = match count.filter(fits) {
                    Some(count) => (0..count).map(|i| tensor.element.unpacked(bytes, i)).collect(),
                    None => Vec::new(),
                };
                let items: Vec<&[u8]> = if packed { &unpacked[..] } else { &bytes[..] }.chunks_exact(size).collect();
                if !packed && bytes.len() % size != 0
                    || count != Some(items.len()) && !(*splat != 0 && items.len() == 1)
                {
                    return false;
                }
                self.push(" dense<");
                if *splat == 0 && items.len() > SPELLED_OUT {
                    self.push("\"0x");
                    hex(bytes, &mut self.out);
                    self.push("\"");
                } else if *splat != 0 && count != Some(0) {
                    self.push(&number::element(items[0], tensor.element));
                } else if count != Some(0) {
                    let shape: Vec<usize> = tensor.shape.iter().map(|n| n.unwrap_or(0) as usize).collect();
                    nested(&shape, &items, &mut self.out, &|item| number::element(item, tensor.element));
                }
                self.push(">");
            }
            _ => return false,
        }
        self.push(" : ");
        self.result_types(operation);
        true
    }

    fn invoke(&mut self, operation: &BytecodeOp, operands: &[ValueId]) -> bool {
        let file = self.file;
        let callee = (|| {
            let value = match self.out.attribute(file, file.property(operation, "callee")?)?.fields.as_slice() {
                [Field::Attribute(value), Field::Type(_)] => *value,
                _ => return None,
            };
            match self.out.attribute(file, value)?.fields.as_slice() {
                [Field::Strings(names)] => Some(names.clone()),
                _ => None,
            }
        })();
        let Some(callee) = callee else { return false };
        self.push(if callee.is_empty() { " " } else { " @" });
        separated(&mut self.out, "::@", callee, &mut |out, name| out.push_str(&file.string(name)));
        self.push("(");
        self.values(operands);
        self.push(") ");
        self.signature(operation, " -> ");
        true
    }

    fn target_spec(&mut self, operation: &BytecodeOp) -> bool {
        let file = self.file;
        let spec = file.property(operation, "spec").and_then(|id| self.out.attribute(file, id));
        let Some([Field::Attribute(triple), Field::Attribute(soc), Field::Attribute(options)]) =
            spec.as_ref().map(|decoded| decoded.fields.as_slice())
        else {
            return false;
        };
        let options = match self.out.attribute(file, *options).as_ref().map(|decoded| decoded.fields.as_slice()) {
            Some([Field::Attributes(items)]) => items.clone(),
            _ => return false,
        };
        let (Some(triple), Some(soc), Some(word)) = (
            string(file, *triple, &mut self.out),
            string(file, *soc, &mut self.out),
            self.chosen(operation, "compilation"),
        ) else {
            return false;
        };
        self.push("{spec = <triple = ");
        quoted(file.string_bytes(triple), &mut self.out);
        self.push(", soc = ");
        quoted(file.string_bytes(soc), &mut self.out);
        self.push(", delegateOptions = ");
        named_list(file, &options, &mut self.out);
        self.push(&format!(">, compilation = <{word}>}}"));
        true
    }

    fn delegate(&mut self, operation: &BytecodeOp, operands: &[ValueId]) -> bool {
        let file = self.file;
        let bytes = file.property(operation, "resource").and_then(|id| self.out.attribute(file, id));
        let name = self.string(operation, "delegate_id");
        // Other phases and further attributes have forms that no sample shows.
        let usual = self.chosen(operation, "lifecycle").is_some()
            && file.property(operation, "delegate_attrs").is_none()
            && ["arg_attrs", "res_attrs"]
                .iter()
                .all(|name| items(file, file.property(operation, name), &mut self.out).is_empty());
        let (Some(name), Some([Field::Byte(0), Field::Bytes(bytes)]), true) =
            (name, bytes.as_ref().map(|decoded| decoded.fields.as_slice()), usual)
        else {
            return false;
        };
        self.push("<");
        quoted(file.string_bytes(name), &mut self.out);
        self.push(">(");
        self.values(operands);
        self.push(") {resource = array<i8: ");
        comma(&mut self.out, bytes.iter(), |out, byte| out.push_str(&byte.cast_signed().to_string()));
        self.push(">}");
        self.signature(operation, " -> ");
        true
    }

    fn metal_kernel(&mut self, operation: &BytecodeOp) -> bool {
        let file = self.file;
        // The last operands are the shapes of the results, one each.
        let shapes = operation.results.len();
        let Some(split) = operation.operands.len().checked_sub(shapes + 2) else { return false };
        let (kernel, rest) = operation.operands.split_at(split);
        let [grid, group, shapes @ ..] = rest else { return false };
        self.push(" kernel_args(");
        self.values(kernel);
        self.push(")");
        self.words(&[(", threads_per_grid ", *grid), (", threads_per_thread_group ", *group)]);
        self.push(", result_shapes(");
        self.values(shapes);
        self.push(") {");
        for (index, name) in ["kernel_name", "kernel_source"].into_iter().enumerate() {
            let Some(id) = self.string(operation, name) else { return false };
            self.push(if index > 0 { ", " } else { "" });
            self.push(&format!("{name} = "));
            quoted(file.string_bytes(id), &mut self.out);
        }
        self.push("}");
        self.signature(operation, " -> ");
        true
    }
}
