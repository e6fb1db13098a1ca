//! Decodes a program from protobuf.
//!
//! The content of the message is kept: the order of arguments and attributes, unknown ops and
//! opsets, every specialization. Three things are changed to fit the IR. A name inside a function
//! that is not an identifier of text, or that a visible value already has, gets a numeric suffix;
//! such a name of an input or output, which is part of the interface, is an error instead. An
//! argument that mixes names with immediate values gets `const` ops for the values. Doc strings are
//! dropped. Ids are assigned in the order in which the text of the program would be read, so that
//! text and package of one program give the same arenas.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use ferrane_diag::{Diagnostic, Diagnostics};
use ferrane_host::map::Mapped;
use prost::bytes::Bytes;

use super::proto::{self, Binding, part};
use super::value::{read_type, read_value};
use super::{inside, opset_from_core_ml};
use crate::build::is_identifier;
use crate::codes;
use crate::ops;
use crate::opset::Opset;
use crate::program::{
    Arg, Block, BlockId, Constant, Function, Op, OpId, Payload, Program, Type, Value, ValueDef, ValueId,
};
use crate::text::{Missing, Options};
use crate::verify::MAX_DEPTH;
use crate::weights::Weights;

/// The function being read, with the files that its values name.
pub(super) struct Decoder<'a> {
    /// The folder that `@model_path` stands for, if files may be opened.
    folder: Option<&'a Path>,
    options: Options,
    weights: Weights,
    pub(super) diagnostics: Diagnostics,
    opened: HashSet<String>,
    function: Function,
    opset: Option<Opset>,
    body: BodyNames,
}

/// The names of one body.
#[derive(Default)]
struct BodyNames {
    visible: HashMap<String, ValueId>,
    /// The names that the visible values have in the function.
    taken: HashSet<String>,
    /// Names of the body's results, which they keep.
    results: HashSet<String>,
    /// The next number for a name that is not free.
    numbers: HashMap<String, usize>,
}

type Read<T> = Result<T, String>;

impl<'a> Decoder<'a> {
    /// Records are looked up in `weights`, then in files of the folder.
    pub(super) fn new(folder: Option<&'a Path>, weights: &Weights, options: Options) -> Decoder<'a> {
        Decoder {
            folder,
            options,
            weights: weights.clone(),
            diagnostics: Diagnostics::new(),
            opened: HashSet::new(),
            function: Function::default(),
            opset: None,
            body: BodyNames::default(),
        }
    }

    /// The functions and attributes; the caller sets version and dialect.
    pub(super) fn program(&mut self, program: &proto::Program) -> Read<Program> {
        if program.version != 1 {
            return Err(format!("the program's version is {}, not 1", program.version));
        }
        let attributes = self.attributes(&program.attributes)?;
        let mut functions = Vec::with_capacity(program.functions.len());
        for entry in &program.functions {
            let entry: proto::FunctionEntry = part(entry)?;
            let function = entry.value.as_ref().ok_or("a function without content")?;
            self.function(&entry.key, function).map_err(|e| format!("function `{}`: {e}", short(&entry.key)))?;
            functions.push(std::mem::take(&mut self.function));
        }
        let weights = std::mem::take(&mut self.weights);
        let program = Program { version: (1, 0), dialect: Default::default(), attributes, functions, weights };
        crate::verify::verify(&program).map_err(|e| e.to_string())?;
        Ok(program)
    }

    fn function(&mut self, name: &str, f: &proto::Function) -> Read<()> {
        identifier(name)?;
        self.function = Function { name: name.to_string(), ..Function::default() };
        self.function.attributes = self.attributes(&f.attributes)?;
        for (i, input) in f.inputs.iter().enumerate() {
            let input: proto::NamedValueType = part(input)?;
            identifier(&input.name)?;
            let ty = named_type(&input)?;
            let id = self.value(input.name, ty, ValueDef::Input(i as u32));
            self.function.inputs.push(id);
        }
        let mut entries: Vec<proto::BlockEntry> = Vec::new();
        let mut opsets = HashSet::new();
        for entry in &f.block_specializations {
            let entry: proto::BlockEntry = part(entry)?;
            if !opsets.insert(entry.key.clone()) {
                return Err(format!("two bodies for the opset `{}`", short(&entry.key)));
            }
            entries.push(entry);
        }
        if !opsets.contains(&f.opset) {
            return Err(format!("no body for its opset `{}`", short(&f.opset)));
        }
        // The active one comes first.
        entries.sort_by_key(|e| e.key != f.opset);
        for entry in entries {
            let opset = opset_from_core_ml(&entry.key);
            identifier(&opset.to_string())?;
            if self.function.bodies.iter().any(|(o, _)| *o == opset) {
                return Err(format!("two bodies for the opset `{opset}`"));
            }
            self.opset = opset.known();
            let block = entry.value.ok_or("a body without content")?;
            if !block.inputs.is_empty() {
                return Err("a body with parameters of its own".into());
            }
            self.body = BodyNames::default();
            for name in &block.outputs {
                identifier(name)?;
                self.body.results.insert(name.clone());
            }
            for &input in &self.function.inputs {
                let name = &self.function.values[input.index()].name;
                if !self.body.taken.insert(name.clone()) {
                    return Err(format!("two inputs are named `{name}`"));
                }
                self.body.visible.insert(name.clone(), input);
            }
            let id = self.new_block();
            self.function.bodies.push((opset, id));
            self.block(id, &block, 0)?;
        }
        Ok(())
    }

    fn new_block(&mut self) -> BlockId {
        let id = BlockId(self.function.blocks.len() as u32);
        self.function.blocks.push(Block::default());
        id
    }

    fn block(&mut self, id: BlockId, block: &proto::Block, depth: usize) -> Read<()> {
        if depth > MAX_DEPTH {
            return Err(format!("blocks nest deeper than {MAX_DEPTH}"));
        }
        if !block.attributes.is_empty() {
            return Err("a block with attributes, which MIL text cannot say".into());
        }
        // The names that the block shadows, restored after it.
        let mut hidden = Vec::new();
        for (i, input) in block.inputs.iter().enumerate() {
            let value = self.define(&part(input)?, ValueDef::BlockInput(id, i as u32), depth, &mut hidden)?;
            self.function.blocks[id.index()].inputs.push(value);
        }
        for op in &block.operations {
            let op: proto::Operation = part(op)?;
            self.op(id, &op, depth, &mut hidden).map_err(|e| match result_name(&op) {
                name if name.is_empty() => format!("op `{}`: {e}", short(&op.r#type)),
                name => format!("op `{}` `{}`: {e}", short(&op.r#type), short(&name)),
            })?;
        }
        for name in &block.outputs {
            let value = self.lookup(name)?;
            self.function.blocks[id.index()].outputs.push(value);
        }
        if depth > 0 {
            for (name, before) in hidden.into_iter().rev() {
                // Sibling blocks may use the same names.
                if let Some(value) = self.body.visible.get(&name) {
                    self.body.taken.remove(&self.function.value(*value).name);
                }
                match before {
                    Some(value) => self.body.visible.insert(name, value),
                    None => self.body.visible.remove(&name),
                };
            }
        }
        Ok(())
    }

    fn op(
        &mut self,
        block: BlockId,
        op: &proto::Operation,
        depth: usize,
        hidden: &mut Vec<(String, Option<ValueId>)>,
    ) -> Read<()> {
        identifier(&op.r#type)?;
        let mut names = HashSet::new();
        let mut args = Vec::with_capacity(op.inputs.len());
        for entry in &op.inputs {
            let entry: proto::ArgumentEntry = part(entry)?;
            identifier(&entry.key)?;
            if !names.insert(entry.key.clone()) {
                return Err(format!("the argument `{}` is given twice", entry.key));
            }
            let argument = entry.value.as_ref().map_or(&[][..], |a| &a.arguments);
            let arg = self.argument(block, op, &entry.key, argument).map_err(|e| format!("`{}`: {e}", entry.key))?;
            args.push((entry.key, arg));
        }
        let attributes = self.attributes(&op.attributes)?;
        let id = self.push_op(
            block,
            Op { name: op.r#type.clone(), args, attributes, outputs: Vec::new(), blocks: Vec::new(), span: None },
        );
        for nested in &op.blocks {
            let place = self.new_block();
            self.block(place, &part(nested)?, depth + 1)?;
            self.function.ops[id.index()].blocks.push(place);
        }
        for (i, output) in op.outputs.iter().enumerate() {
            let value = self.define(&part(output)?, ValueDef::Op(id, i as u32), depth, hidden)?;
            self.function.ops[id.index()].outputs.push(value);
        }
        Ok(())
    }

    fn push_op(&mut self, block: BlockId, op: Op) -> OpId {
        let id = OpId(self.function.ops.len() as u32);
        self.function.ops.push(op);
        self.function.blocks[block.index()].ops.push(id);
        id
    }

    fn argument(
        &mut self,
        block: BlockId,
        op: &proto::Operation,
        name: &str,
        bindings: &[proto::BindingMessage],
    ) -> Read<Arg> {
        match bindings {
            [] => Err("has no value".into()),
            [one] => Ok(match binding(one)? {
                Binding::Value(value) => Arg::Const(self.constant(value)?),
                Binding::Name(value) => {
                    let value = self.lookup(value)?;
                    let def = self.opset.and_then(|opset| ops::find(&op.r#type, opset)).and_then(|def| def.param(name));
                    // One value and a list of one value are the same message; the signature decides
                    // which it is.
                    if def.is_some_and(|p| p.variadic) { Arg::List(vec![value]) } else { Arg::Value(value) }
                }
            }),
            several => {
                let mut values = Vec::with_capacity(several.len());
                for b in several {
                    values.push(match binding(b)? {
                        Binding::Name(value) => self.lookup(value)?,
                        Binding::Value(value) => {
                            let constant = self.constant(value)?;
                            self.push_const(block, &format!("{}_{name}", result_name(op)), constant)
                        }
                    });
                }
                Ok(Arg::List(values))
            }
        }
    }

    fn push_const(&mut self, block: BlockId, name: &str, constant: Constant) -> ValueId {
        let name = self.free(name);
        let def = ValueDef::Op(OpId(self.function.ops.len() as u32), 0);
        let value = self.value(name.clone(), constant.ty(), def);
        let attributes = vec![("name".to_string(), Constant::string(&name)), ("val".to_string(), constant)];
        let op = Op {
            name: "const".to_string(),
            args: Vec::new(),
            attributes,
            outputs: vec![value],
            blocks: Vec::new(),
            span: None,
        };
        self.push_op(block, op);
        value
    }

    fn attributes(&mut self, entries: &[Bytes]) -> Read<Vec<(String, Constant)>> {
        let mut names = HashSet::new();
        let mut attributes = Vec::with_capacity(entries.len());
        for entry in entries {
            let entry: proto::ValueEntry = part(entry)?;
            identifier(&entry.key)?;
            if !names.insert(entry.key.clone()) {
                return Err(format!("the attribute `{}` is given twice", entry.key));
            }
            let value = entry.value.as_ref().ok_or_else(|| format!("the attribute `{}` has no value", entry.key))?;
            let value = self.constant(value).map_err(|e| format!("`{}`: {e}", entry.key))?;
            attributes.push((entry.key, value));
        }
        Ok(attributes)
    }

    // Names and values.

    fn value(&mut self, name: String, ty: Type, def: ValueDef) -> ValueId {
        let id = ValueId(self.function.values.len() as u32);
        self.function.values.push(Value { name, ty, def });
        id
    }

    fn lookup(&self, name: &str) -> Read<ValueId> {
        let found = self.body.visible.get(name).copied();
        found.ok_or_else(|| format!("`{}` is used and not defined before", short(name)))
    }

    fn define(
        &mut self,
        value: &proto::NamedValueType,
        def: ValueDef,
        depth: usize,
        hidden: &mut Vec<(String, Option<ValueId>)>,
    ) -> Read<ValueId> {
        let ty = named_type(value)?;
        let name = &value.name;
        let before = self.body.visible.get(name).copied();
        let result = depth == 0 && self.body.results.contains(name);
        if depth == 0 && before.is_some() {
            return Err(format!("two values are named `{}`", short(name)));
        }
        let free = match result {
            true => {
                self.body.taken.insert(name.clone());
                name.clone()
            }
            false => self.free(name),
        };
        let id = self.value(free, ty, def);
        hidden.push((name.clone(), before));
        self.body.visible.insert(name.clone(), id);
        Ok(id)
    }

    /// An identifier that is not taken: the name itself if possible.
    fn free(&mut self, name: &str) -> String {
        if is_identifier(name) && self.body.taken.insert(name.to_string()) {
            return name.to_string();
        }
        let mut base: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
        if !is_identifier(&base) {
            base.insert(0, '_');
        }
        let number = self.body.numbers.entry(base.clone()).or_insert(0);
        loop {
            let candidate = if *number == 0 { base.clone() } else { format!("{base}_{number}") };
            *number += 1;
            if !self.body.results.contains(&candidate) && self.body.taken.insert(candidate.clone()) {
                return candidate;
            }
        }
    }

    fn constant(&mut self, value: &proto::Value) -> Read<Constant> {
        read_value(value, &mut |ty, file| self.blob(ty, file))
    }

    /// A record of a blob file; the file is mapped when it is first named.
    fn blob(&mut self, ty: &Type, file: &proto::BlobFile) -> Read<Constant> {
        let (path, offset) = (file.file_name.as_str(), file.offset);
        let (Some(dtype), Some(elements), Some(_)) = (ty.dtype(), ty.elements(), ty.bytes()) else {
            return Err(format!("a blob file holds no {ty}"));
        };
        if let Some(folder) = self.folder
            && self.opened.insert(path.to_string())
            && let Some(found) = blob_path(folder, path)?
        {
            let mapped = Mapped::open(&found).map_err(|e| format!("{}: {e}", found.display()))?;
            self.weights.open_file(path, mapped);
        }
        let place = || format!("\"{}\" at {offset}", short(path));
        match self.weights.find(path, offset, dtype, elements, self.options.strictness) {
            Ok(Some((id, odd))) => {
                for what in odd {
                    let message = format!("{}: {what}", place());
                    self.diagnostics.push(Diagnostic::warning(codes::ODD_BLOB_RECORD, None, message));
                }
                Ok(Constant::Tensor { ty: ty.clone(), payload: Payload::Weight(id) })
            }
            Ok(None) if self.options.missing == Missing::Keep => {
                let id = self.weights.add_absent(path, offset, dtype, elements);
                Ok(Constant::Tensor { ty: ty.clone(), payload: Payload::Weight(id) })
            }
            Ok(None) => Err(format!("there is no blob file \"{}\"", short(path))),
            Err(e) => Err(format!("{}: {e}", place())),
        }
    }
}

/// The file that the path of a blob names, below the folder that `@model_path` stands for. `None`
/// if there is no such file.
///
/// # Errors
/// The path leaves the folder.
pub(super) fn blob_path(folder: &Path, path: &str) -> Read<Option<PathBuf>> {
    let relative = path.strip_prefix("@model_path").unwrap_or(path).trim_start_matches('/');
    inside(folder, relative).map_err(|e| format!("the blob file \"{}\" {e}", short(path)))
}

fn binding(message: &proto::BindingMessage) -> Read<&Binding> {
    message.binding.as_ref().ok_or_else(|| "a binding without content".to_string())
}

fn named_type(value: &proto::NamedValueType) -> Read<Type> {
    let ty = value.r#type.as_ref().ok_or_else(|| "no type".to_string()).and_then(read_type);
    ty.map_err(|e| format!("`{}`: {e}", short(&value.name)))
}

/// The name of an op's first result; empty if it has no result.
fn result_name(op: &proto::Operation) -> String {
    let first = op.outputs.first().and_then(|o| part::<proto::NamedValueType>(o).ok());
    first.map_or(String::new(), |o| o.name)
}

fn identifier(name: &str) -> Read<()> {
    if is_identifier(name) { Ok(()) } else { Err(format!("the name `{}` is not an identifier", short(name))) }
}

/// Shortens a name for a message, because a hostile file can hold names of any length.
fn short(name: &str) -> String {
    let cut: String = name.chars().take(60).collect();
    if cut.len() < name.len() { cut + "…" } else { cut }
}
