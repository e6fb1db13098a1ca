//! The dialect `aicode`: what the bytes of attributes, types and properties mean.
//!
//! An attribute or type begins with the number of its [`Kind`]; the kind lists the fields that
//! follow. [`decode`] reads them into a [`Decoded`], [`encode`] writes them. What is not known, or
//! does not have exactly the listed fields, is `None` and stays bytes, so nothing is lost.
//!
//! # Source
//!
//! Numbers, fields and words were found in files that coreai-core 1.0.0b3 wrote (dialect version
//! 2), by comparing their bytes with the text that it prints for them.

mod kinds;
pub mod ops;
mod tensor;

use std::borrow::Cow;

pub use kinds::{ATTRIBUTES, Kind, TYPES, words};
pub use tensor::{ElementType, Tensor};

use crate::bytecode::{
    AttributeId, Bytecode, BytecodeOp, Cursor, DialectId, Emitter, EncodedEntry, OpNameId, ResourceId, StringId, TypeId,
};
use crate::error::Result;

/// The name of the dialect.
pub const NAME: &str = "aicode";
/// The version of the dialect that coreai-core 1.0.0b3 writes, as the varint 2.
pub const VERSION: &[u8] = &[0x05];

/// What a field is and how it is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A varint without a sign.
    Unsigned,
    /// One byte; 1 is true.
    Byte,
    /// The bits of a number whose width is the first field: a byte up to 8 bits, otherwise a
    /// zigzag varint.
    Bits,
    /// A length and bytes.
    Bytes,
    /// The index of a string.
    String,
    /// A count and indices of strings.
    Strings,
    /// The index of an attribute.
    Attribute,
    /// A count and indices of attributes.
    Attributes,
    /// The index of a type.
    Type,
    /// A count and indices of types.
    Types,
    /// A count and zigzag varints.
    Signeds,
    /// The index of a resource over all groups.
    Resource,
}

/// The value of a field, in the form that its [`FieldKind`] states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// [`FieldKind::Unsigned`].
    Unsigned(u64),
    /// [`FieldKind::Byte`].
    Byte(u8),
    /// [`FieldKind::Bits`].
    Bits(u64),
    /// [`FieldKind::Bytes`].
    Bytes(Cow<'a, [u8]>),
    /// [`FieldKind::String`].
    String(StringId),
    /// [`FieldKind::Strings`].
    Strings(Vec<StringId>),
    /// [`FieldKind::Attribute`].
    Attribute(AttributeId),
    /// [`FieldKind::Attributes`].
    Attributes(Vec<AttributeId>),
    /// [`FieldKind::Type`].
    Type(TypeId),
    /// [`FieldKind::Types`].
    Types(Vec<TypeId>),
    /// [`FieldKind::Signeds`].
    Signeds(Vec<i64>),
    /// [`FieldKind::Resource`].
    Resource(ResourceId),
}

/// An attribute or type of a known kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// The kind, which names the fields.
    pub kind: &'static Kind,
    /// Its fields, in the order of [`Kind::fields`].
    pub fields: Vec<Field<'a>>,
}

/// Decodes an entry with the kinds of `table`, which is [`ATTRIBUTES`] or [`TYPES`]. `None` if the
/// kind or one of its fields is not known.
pub fn decode<'b>(file: &Bytecode<'_>, entry: &'b EncodedEntry<'_>, table: &'static [Kind]) -> Option<Decoded<'b>> {
    if !entry.custom || !file.is_known(entry.dialect) {
        return None;
    }
    fields(file, Cursor::new(&entry.bytes, 0), table).ok().flatten()
}

fn fields<'b>(file: &Bytecode<'_>, mut cursor: Cursor<'b>, table: &'static [Kind]) -> Result<Option<Decoded<'b>>> {
    let code = cursor.varint()?;
    let Some(kind) = table.iter().find(|kind| kind.code == code) else { return Ok(None) };
    let mut found: Vec<Field<'b>> = Vec::with_capacity(kind.fields.len());
    for field in kind.fields {
        found.push(match field {
            FieldKind::Unsigned => Field::Unsigned(cursor.varint()?),
            FieldKind::Byte => Field::Byte(cursor.byte()?),
            FieldKind::Bits => match found.first() {
                Some(Field::Unsigned(..=8)) => Field::Bits(u64::from(cursor.byte()?)),
                Some(Field::Unsigned(9..=64)) => Field::Bits(cursor.signed()? as u64),
                _ => return Ok(None),
            },
            FieldKind::Bytes => {
                let length = cursor.count("bytes")?;
                Field::Bytes(Cow::Borrowed(cursor.take(length)?))
            }
            FieldKind::String => Field::String(StringId(cursor.index(file.strings.len(), "string")?)),
            FieldKind::Strings => {
                let indices = list(&mut cursor, file.strings.len(), "string")?;
                Field::Strings(indices.into_iter().map(StringId).collect())
            }
            FieldKind::Attribute => Field::Attribute(AttributeId(cursor.index(file.attributes.len(), "attribute")?)),
            FieldKind::Attributes => {
                let indices = list(&mut cursor, file.attributes.len(), "attribute")?;
                Field::Attributes(indices.into_iter().map(AttributeId).collect())
            }
            FieldKind::Type => Field::Type(TypeId(cursor.index(file.types.len(), "type")?)),
            FieldKind::Types => {
                let indices = list(&mut cursor, file.types.len(), "type")?;
                Field::Types(indices.into_iter().map(TypeId).collect())
            }
            FieldKind::Signeds => {
                let mut numbers = Vec::new();
                for _ in 0..cursor.count("numbers")? {
                    numbers.push(cursor.signed()?);
                }
                Field::Signeds(numbers)
            }
            FieldKind::Resource => {
                let count = file.resources.iter().map(|group| group.resources.len()).sum();
                Field::Resource(ResourceId(cursor.index(count, "resource")?))
            }
        });
    }
    Ok(cursor.is_empty().then_some(Decoded { kind, fields: found }))
}

fn list(cursor: &mut Cursor<'_>, len: usize, what: &str) -> Result<Vec<u32>> {
    let mut indices = Vec::new();
    for _ in 0..cursor.count(what)? {
        indices.push(cursor.index(len, what)?);
    }
    Ok(indices)
}

/// A property that may be absent: 0, or the index shifted left over a one.
fn optional(cursor: &mut Cursor<'_>, file: &Bytecode<'_>) -> Result<Option<AttributeId>> {
    let at = cursor.offset();
    let (index, present) = cursor.flagged()?;
    if !present {
        return Ok(None);
    }
    Ok(Some(AttributeId(crate::bytecode::within(at, index, file.attributes.len(), "attribute")?)))
}

/// The bytes of an attribute or type: those that [`decode`] read.
pub fn encode(decoded: &Decoded<'_>) -> Vec<u8> {
    let mut out = Emitter::default();
    out.varint(decoded.kind.code);
    for field in &decoded.fields {
        match field {
            Field::Unsigned(value) => out.varint(*value),
            Field::Byte(value) => out.bytes.push(*value),
            Field::Bits(bits) => match decoded.fields.first() {
                Some(Field::Unsigned(..=8)) => out.bytes.push(*bits as u8),
                _ => out.signed(*bits as i64),
            },
            Field::Bytes(bytes) => {
                out.varint(bytes.len() as u64);
                out.bytes.extend_from_slice(bytes);
            }
            Field::String(StringId(id))
            | Field::Attribute(AttributeId(id))
            | Field::Type(TypeId(id))
            | Field::Resource(ResourceId(id)) => out.varint(u64::from(*id)),
            Field::Strings(ids) => write_list(&mut out, ids.iter().map(|id| id.0)),
            Field::Attributes(ids) => write_list(&mut out, ids.iter().map(|id| id.0)),
            Field::Types(ids) => write_list(&mut out, ids.iter().map(|id| id.0)),
            Field::Signeds(values) => {
                out.varint(values.len() as u64);
                values.iter().for_each(|value| out.signed(*value));
            }
        }
    }
    out.bytes
}

fn write_list(out: &mut Emitter, ids: impl ExactSizeIterator<Item = u32>) {
    out.varint(ids.len() as u64);
    ids.for_each(|id| out.varint(u64::from(id)));
}

/// A property of an operation: its name and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property {
    /// The name, as coreai-core prints it.
    pub name: &'static str,
    /// The value; `None` if it is absent.
    pub value: Option<AttributeId>,
}

impl Bytecode<'_> {
    /// Whether a dialect is `aicode`.
    fn is_known(&self, id: DialectId) -> bool {
        self.dialects.get(id.0 as usize).is_some_and(|dialect| self.string_bytes(dialect.name) == NAME.as_bytes())
    }

    /// An attribute with its fields. `None` if its kind is not known.
    pub fn attribute(&self, id: AttributeId) -> Option<Decoded<'_>> {
        decode(self, self.attributes.get(id.0 as usize)?, ATTRIBUTES)
    }

    /// A type with its fields. `None` if its kind is not known.
    pub fn ty(&self, id: TypeId) -> Option<Decoded<'_>> {
        decode(self, self.types.get(id.0 as usize)?, TYPES)
    }

    /// What is known of an operation.
    pub fn op(&self, id: OpNameId) -> Option<&'static ops::Op> {
        let name = self.op_names.get(id.0 as usize)?;
        self.is_known(name.dialect).then(|| ops::op_named(self.string_bytes(name.name))).flatten()
    }

    /// The properties of an operation. `None` if they are not those that are known of it.
    pub fn properties_of(&self, operation: &BytecodeOp) -> Option<Vec<Property>> {
        let Some(index) = operation.properties else { return Some(Vec::new()) };
        let op = self.op(operation.name)?;
        let mut cursor = Cursor::new(self.properties.get(index as usize)?, 0);
        let mut found = Vec::with_capacity(op.properties.len());
        for property in op.properties {
            let value = match property.strip_prefix('?') {
                Some(_) => optional(&mut cursor, self).ok()?,
                None => Some(AttributeId(cursor.index(self.attributes.len(), "attribute").ok()?)),
            };
            found.push(Property { name: property.trim_start_matches('?'), value });
        }
        cursor.is_empty().then_some(found)
    }

    /// The value of one property, if the operation has it.
    pub fn property(&self, operation: &BytecodeOp, name: &str) -> Option<AttributeId> {
        self.properties_of(operation)?.into_iter().find(|property| property.name == name)?.value
    }
}
