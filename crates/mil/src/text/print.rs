//! The printer of MIL text.

use std::fmt::Write as _;

use super::number;
use crate::opset::OpsetTag;
use crate::program::{Arg, BlockId, Constant, DataType, Dialect, Dim, Function, OpId, Payload, Program, Type, ValueId};
use crate::weights::{Weights, unpack};

/// The text of a program in its dialect, ending in a line break.
///
/// `buildInfo` stays on one line, because Apple's reader requires it (mil-text §7). Broken ids and
/// constants, which [`crate::verify`] refuses, print as `?`.
pub fn print(program: &Program) -> String {
    let mut p = Printer { out: String::new(), dialect: program.dialect, weights: &program.weights };
    p.program(program);
    p.out
}

/// A type in a dialect's spelling.
pub(super) fn spell(ty: &Type, dialect: Dialect) -> String {
    let mut p = Printer { out: String::new(), dialect, weights: &Weights::new() };
    p.ty(ty);
    p.out
}

struct Printer<'a> {
    out: String,
    dialect: Dialect,
    weights: &'a Weights,
}

impl Printer<'_> {
    fn program(&mut self, program: &Program) {
        let (major, minor) = program.version;
        let _ = writeln!(self.out, "program({major}.{minor})");
        if !program.attributes.is_empty() {
            self.attributes(&program.attributes);
            self.out.push('\n');
        }
        self.out.push_str("{\n");
        for function in &program.functions {
            for (opset, body) in &function.bodies {
                self.function(function, opset, *body);
            }
        }
        self.out.push_str("}\n");
    }

    fn function(&mut self, f: &Function, opset: &OpsetTag, body: BlockId) {
        let _ = write!(self.out, "    func {}<{opset}>(", f.name);
        self.parameters(f, &f.inputs);
        self.out.push(')');
        if !f.attributes.is_empty() {
            self.out.push(' ');
            self.attributes(&f.attributes);
        }
        self.out.push_str(" {\n");
        self.block(f, body, 1);
        self.out.push_str(";\n");
    }

    /// The statements, the closing brace and the results.
    fn block(&mut self, f: &Function, id: BlockId, depth: usize) {
        let Some(block) = f.blocks.get(id.index()) else { return };
        // The verifier refuses deeper nesting; this only protects the stack.
        if depth <= crate::verify::MAX_DEPTH {
            for &op in &block.ops {
                self.op(f, op, depth);
            }
        }
        self.indent(depth);
        self.out.push_str("} -> (");
        self.names(f, &block.outputs);
        self.out.push(')');
    }

    fn op(&mut self, f: &Function, id: OpId, depth: usize) {
        let Some(op) = f.ops.get(id.index()) else { return };
        self.indent(depth + 1);
        self.parameters(f, &op.outputs);
        if !op.outputs.is_empty() {
            self.out.push_str(" = ");
        }
        let _ = write!(self.out, "{}(", op.name);
        for (i, (name, arg)) in op.args.iter().enumerate() {
            self.comma(i);
            let _ = write!(self.out, "{name} = ");
            match arg {
                Arg::Value(v) => self.names(f, &[*v]),
                Arg::List(vs) => {
                    self.out.push('(');
                    self.names(f, vs);
                    self.out.push(')');
                }
                Arg::Const(c) => self.literal(c),
            }
        }
        self.out.push(')');
        if !op.attributes.is_empty() {
            self.attributes(&op.attributes);
        }
        for &block in &op.blocks {
            self.out.push_str(" (");
            if let Some(b) = f.blocks.get(block.index()) {
                self.parameters(f, &b.inputs);
            }
            self.out.push_str(") {\n");
            self.block(f, block, depth + 1);
        }
        self.out.push_str(";\n");
    }

    fn indent(&mut self, depth: usize) {
        for _ in 0..depth {
            self.out.push_str("    ");
        }
    }

    fn comma(&mut self, i: usize) {
        if i > 0 {
            self.out.push_str(", ");
        }
    }

    /// `type name, type name`.
    fn parameters(&mut self, f: &Function, values: &[ValueId]) {
        for (i, v) in values.iter().enumerate() {
            self.comma(i);
            let Some(value) = f.values.get(v.index()) else {
                self.out.push('?');
                continue;
            };
            self.ty(&value.ty);
            let _ = write!(self.out, " {}", value.name);
        }
    }

    fn names(&mut self, f: &Function, values: &[ValueId]) {
        for (i, v) in values.iter().enumerate() {
            self.comma(i);
            self.out.push_str(f.values.get(v.index()).map_or("?", |v| &v.name));
        }
    }

    fn attributes(&mut self, attributes: &[(String, Constant)]) {
        self.out.push('[');
        for (i, (name, value)) in attributes.iter().enumerate() {
            self.comma(i);
            let _ = write!(self.out, "{name} = ");
            self.literal(value);
        }
        self.out.push(']');
    }

    fn ty(&mut self, ty: &Type) {
        match ty {
            Type::Tensor { dtype, shape } if shape.is_empty() && self.dialect == Dialect::Shorthand => {
                self.out.push_str(dtype.name());
            }
            Type::Tensor { dtype, shape } => {
                let _ = write!(self.out, "tensor<{dtype}, [");
                for (i, d) in shape.iter().enumerate() {
                    self.comma(i);
                    self.dim(d);
                }
                self.out.push_str("]>");
            }
            Type::List { element, length } => {
                self.out.push_str("list<");
                self.ty(element);
                self.out.push_str(", ");
                self.dim(length);
                self.out.push('>');
            }
            Type::Tuple(types) => {
                self.out.push_str("tuple<");
                for (i, t) in types.iter().enumerate() {
                    self.comma(i);
                    self.ty(t);
                }
                self.out.push('>');
            }
            Type::Dict(k, v) => {
                self.out.push_str("dict<");
                self.ty(k);
                self.out.push_str(", ");
                self.ty(v);
                self.out.push('>');
            }
            Type::State(inner) => {
                self.out.push_str("state<");
                self.ty(inner);
                self.out.push('>');
            }
        }
    }

    fn dim(&mut self, d: &Dim) {
        match d {
            Dim::Fixed(n) => {
                let _ = write!(self.out, "{n}");
            }
            Dim::Unknown => self.out.push('?'),
        }
    }

    /// `type(value)`.
    fn literal(&mut self, constant: &Constant) {
        self.ty(&constant.ty());
        self.out.push('(');
        self.value(constant);
        self.out.push(')');
    }

    fn value(&mut self, constant: &Constant) {
        match constant {
            Constant::Tensor { ty, payload } => self.tensor(ty, payload),
            Constant::List(_, items) => self.values('[', items, ']'),
            Constant::Tuple(items) => self.values('(', items, ')'),
            Constant::Dict(_, entries) => {
                self.out.push('{');
                for (i, (key, value)) in entries.iter().enumerate() {
                    self.comma(i);
                    self.out.push('{');
                    self.value(key);
                    self.out.push_str(", ");
                    self.value(value);
                    self.out.push('}');
                }
                self.out.push('}');
            }
        }
    }

    fn values(&mut self, open: char, items: &[Constant], close: char) {
        self.out.push(open);
        for (i, item) in items.iter().enumerate() {
            self.comma(i);
            self.value(item);
        }
        self.out.push(close);
    }

    fn tensor(&mut self, ty: &Type, payload: &Payload) {
        let scalar = ty.rank() == Some(0);
        match payload {
            Payload::Weight(id) => {
                let (path, offset) = self.weights.location(*id).unwrap_or(("?", 0));
                let (path, offset) = (path.to_string(), offset);
                self.out.push_str("BLOBFILE(path = ");
                self.literal(&Constant::string(&path));
                self.out.push_str(", offset = ");
                self.literal(&Constant::raw(DataType::UInt64, &[], &offset.to_le_bytes()));
                self.out.push(')');
            }
            Payload::Strings(strings) => {
                if !scalar {
                    self.out.push('[');
                }
                for (i, s) in strings.iter().enumerate() {
                    self.comma(i);
                    quote(s, &mut self.out);
                }
                if !scalar {
                    self.out.push(']');
                }
            }
            Payload::Bytes(bytes) => {
                if !scalar {
                    self.out.push('[');
                }
                self.numbers(ty, bytes);
                if !scalar {
                    self.out.push(']');
                }
            }
        }
    }

    fn numbers(&mut self, ty: &Type, bytes: &[u8]) {
        let Some(dtype) = ty.dtype() else { return };
        if let Some(width) = dtype.bytes() {
            for (i, element) in bytes.chunks_exact(width).enumerate() {
                self.comma(i);
                number::spell(dtype, element, &mut self.out);
            }
            return;
        }
        let count = ty.elements().unwrap_or(0);
        for (i, v) in unpack(dtype, bytes, count).into_iter().enumerate() {
            self.comma(i);
            let _ = write!(self.out, "{v}");
        }
    }
}

/// A string literal; the reader knows these escapes.
fn quote(s: &str, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_ascii_control() => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
