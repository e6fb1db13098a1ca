//! Where ops come from: the modules of PyTorch and the line of the source that a location of the
//! file names.
//!
//! A location has the line that wrote the operation, the lines that called it, and metadata, among
//! which is the stack of modules. Locations are decoded once, and all of them together up to a
//! multiple of the file's length, because every operation of a hostile file may refer to the same
//! long one.

use std::collections::HashMap;

use ferrane_diag::printable;
use ferrane_mil::{Program, ValueDef, ValueId};

use super::state::DECODED;
use crate::bytecode::{AttributeId, Bytecode};
use crate::dialect::{Decoded, Field};

/// The origins of ops, by the names of function and first result.
pub type Origins = HashMap<(String, String), String>;

/// Modules of a stack, and lines of callers, that are read.
const DEPTH: usize = 64;
/// Bytes of an origin.
const LENGTH: usize = 400;

/// The ops of a function that is finished, with the location of the operation that they were made
/// from: that of the first result made at or after them. `made` has results in the order in which
/// they were made.
pub(super) fn named(program: &Program, made: &mut Vec<(ValueId, AttributeId)>) -> Vec<(String, String, AttributeId)> {
    // A result that existed before belongs to the operation that computed it.
    made.sort_by_key(|(value, _)| *value);
    made.dedup_by_key(|(value, _)| *value);
    let mut found = Vec::new();
    for function in &program.functions {
        let mut next = made.iter().peekable();
        for (i, value) in function.values.iter().enumerate() {
            while next.next_if(|(made, _)| made.index() < i).is_some() {}
            let Some((_, location)) = next.peek() else { break };
            if let ValueDef::Op(op, 0) = value.def
                && function.op(op).name != ferrane_mil::op::CONST
            {
                found.push((function.name.clone(), value.name.clone(), *location));
            }
        }
    }
    found
}

/// Reads locations, each once.
pub(super) struct Reader<'a> {
    file: &'a Bytecode<'a>,
    /// Bytes that may still be decoded.
    left: usize,
    known: HashMap<AttributeId, Option<String>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a Bytecode<'a>) -> Reader<'a> {
        let entries = file.attributes.iter().map(|entry| entry.bytes.len()).sum::<usize>();
        Reader { file, left: (1 << 20) + DECODED.saturating_mul(entries), known: HashMap::new() }
    }

    /// `Model › Linear (model.py:12)`, or what of it the location has.
    pub(super) fn origin(&mut self, location: AttributeId) -> Option<String> {
        if let Some(found) = self.known.get(&location) {
            return found.clone();
        }
        let found = self.read(location).filter(|text| text.len() <= LENGTH);
        self.known.insert(location, found.clone());
        found
    }

    fn decode(&mut self, id: AttributeId) -> Option<Decoded<'a>> {
        let file: &'a Bytecode<'a> = self.file;
        let bytes = file.attributes.get(id.0 as usize)?.bytes.len();
        self.left = self.left.checked_sub(bytes + 1)?;
        file.attribute(id)
    }

    fn read(&mut self, location: AttributeId) -> Option<String> {
        let location = self.decode(location)?;
        let [Field::Attribute(source), _, Field::Attributes(callers), Field::Attributes(metadata)] =
            location.fields.as_slice()
        else {
            return None;
        };
        let modules = metadata.iter().take(DEPTH).find_map(|id| self.modules(*id));
        let mut lines = vec![self.line(*source)];
        for id in callers.iter().take(DEPTH) {
            let caller = self.decode(*id).and_then(|caller| match caller.fields.first() {
                Some(Field::Attribute(source)) => Some(*source),
                _ => None,
            });
            lines.push(caller.and_then(|source| self.line(source)));
        }
        // The model's own line says more than that of the library that it calls.
        let lines: Vec<(bool, String)> = lines.into_iter().flatten().collect();
        let line = lines.iter().find(|(library, _)| !library).or(lines.first()).map(|(_, line)| line.clone());
        match (modules, line) {
            (Some(modules), Some(line)) => Some(format!("{modules} ({line})")),
            (modules, line) => modules.or(line),
        }
    }

    /// The stack of modules, the outermost first, if that is what the metadata have.
    fn modules(&mut self, id: AttributeId) -> Option<String> {
        let entry = self.decode(id)?;
        let [Field::String(key), Field::Attribute(value)] = entry.fields.as_slice() else { return None };
        if self.file.string(*key) != "call_stack" {
            return None;
        }
        let value = self.decode(*value)?;
        let [Field::Attribute(list)] = value.fields.as_slice() else { return None };
        let list = self.decode(*list)?;
        let [Field::Attributes(items)] = list.fields.as_slice() else { return None };
        let mut names = Vec::new();
        for id in items.iter().take(DEPTH) {
            let item = self.decode(*id)?;
            let [Field::String(name)] = item.fields.as_slice() else { return None };
            names.push(printable(&self.file.string(*name)).to_string());
        }
        names.reverse();
        (!names.is_empty()).then(|| names.join(" › "))
    }

    /// `model.py:12`, and whether the file is one of PyTorch's own modules.
    fn line(&mut self, source: AttributeId) -> Option<(bool, String)> {
        let source = self.decode(source)?;
        let [Field::Attribute(file), Field::Unsigned(line), ..] = source.fields.as_slice() else { return None };
        let file = self.decode(*file)?;
        let [Field::String(path), ..] = file.fields.as_slice() else { return None };
        let path = self.file.string(*path);
        let name = path.rsplit(['/', '\\']).next().filter(|name| !name.is_empty() && *name != "-")?;
        Some((path.contains("/torch/"), format!("{}:{line}", printable(name))))
    }
}
