//! MLIR bytecode of version 6: the form in which `main.mlirb` holds a program.
//!
//! [`Bytecode`] has the tables of the file (strings, dialects, names of operations, attributes,
//! types, properties, resources) in their order, and the operations as a tree. It knows no dialect:
//! attributes, types and properties are bytes, which [`dialect`](crate::dialect) decodes. Contents
//! that are large (attributes and resources) stay borrowed from the file.
//!
//! # Invariants
//!
//! A file of Apple's writer is written again as the same bytes. Indices of a [`Bytecode`] that was
//! read lie in their tables. Memory is bounded by a multiple of the file's length.
//!
//! # Source
//!
//! <https://mlir.llvm.org/docs/BytecodeFormat>; what it leaves open was found in files written by
//! coreai-core 1.0.0b3.

mod cursor;
mod emit;
mod ir;
mod sections;

use std::borrow::Cow;

pub(crate) use cursor::{Cursor, within};
pub(crate) use emit::Emitter;
pub use ir::{Argument, Block, BytecodeOp, Definition, Region, UseOrder, ValueId};
use sections::{BLOB, BOOL, STRING, section};

use crate::error::{Error, Result};

/// The first four bytes of a file.
pub const MAGIC: [u8; 4] = *b"ML\xefR";
/// The version that is read and written: the one that coreai-core 1.0.0b3 writes.
pub const VERSION: u64 = 6;

macro_rules! id {
    ($(#[$doc:meta] $name:ident)*) => { $(
        #[$doc]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);
    )* };
}

id! {
    /// The index of a string in [`Bytecode::strings`].
    StringId
    /// The index of a dialect in [`Bytecode::dialects`].
    DialectId
    /// The index of a name in [`Bytecode::op_names`].
    OpNameId
    /// The index of an attribute in [`Bytecode::attributes`].
    AttributeId
    /// The index of a type in [`Bytecode::types`].
    TypeId
    /// The index of a resource in [`Bytecode::resources`], over all groups.
    ResourceId
}

/// The number of a section (BytecodeFormat, "Sections").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SectionId {
    /// Lengths of strings from last to first, then the strings.
    String = 0,
    /// Dialects and names of operations.
    Dialect = 1,
    /// Bytes of attributes and types.
    AttrType = 2,
    /// Lengths of attributes and types.
    AttrTypeOffset = 3,
    /// The outermost block; regions that see no outside values are sections of their own.
    Ir = 4,
    /// Bytes of resources, aligned.
    Resource = 5,
    /// Names and lengths of resources.
    ResourceOffset = 6,
    /// The version of a dialect.
    DialectVersions = 7,
    /// Bytes of properties, in the encoding of their operation.
    Properties = 8,
}

impl SectionId {
    const ALL: [SectionId; 9] = [
        SectionId::String,
        SectionId::Dialect,
        SectionId::AttrType,
        SectionId::AttrTypeOffset,
        SectionId::Ir,
        SectionId::Resource,
        SectionId::ResourceOffset,
        SectionId::DialectVersions,
        SectionId::Properties,
    ];

    /// The order in which coreai-core 1.0.0b3 writes them.
    const WRITTEN: [SectionId; 8] = [
        SectionId::Dialect,
        SectionId::AttrTypeOffset,
        SectionId::AttrType,
        SectionId::Ir,
        SectionId::ResourceOffset,
        SectionId::Resource,
        SectionId::String,
        SectionId::Properties,
    ];
}

/// A dialect that the file uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialect<'a> {
    /// The name, as in front of the point of an operation's name.
    pub name: StringId,
    /// The version in the dialect's own encoding, if it has one.
    pub version: Option<Cow<'a, [u8]>>,
}

/// The name of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpName {
    /// The dialect that defines the operation.
    pub dialect: DialectId,
    /// The name without the dialect.
    pub name: StringId,
    /// Whether the writer knew the operation.
    pub registered: bool,
}

/// An attribute or a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedEntry<'a> {
    /// The dialect that defines it.
    pub dialect: DialectId,
    /// Whether `bytes` are in the dialect's encoding; otherwise they are text.
    pub custom: bool,
    /// The encoded contents, borrowed from the file that was read.
    pub bytes: Cow<'a, [u8]>,
}

/// Resources of one dialect or of a program outside of the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceGroup<'a> {
    /// Whether a dialect owns the group; the groups of dialects follow the others.
    pub owner: GroupOwner,
    /// The resources of this owner, in the order of the file.
    pub resources: Vec<Resource<'a>>,
}

/// Who gives the resources of a group their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupOwner {
    /// Something outside of the module, by name.
    External(StringId),
    /// A dialect of the file.
    Dialect(DialectId),
}

/// A named value that is stored outside of the operations, such as a weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource<'a> {
    /// The name, unique in its group.
    pub key: StringId,
    /// The contents, of one of three forms.
    pub value: ResourceValue<'a>,
}

/// The value of a resource (BytecodeFormat, "Resource Section").
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceValue<'a> {
    /// Bytes at an offset of the file that is a multiple of `alignment`.
    Blob {
        /// A power of two, in bytes.
        alignment: u32,
        /// The contents, borrowed from the file that was read.
        bytes: Cow<'a, [u8]>,
    },
    /// One byte in the file.
    Bool(bool),
    /// A string of the file.
    String(StringId),
}

/// A file, decoded as far as it is independent of dialects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytecode<'a> {
    /// Who wrote the file; `MLIR22.0.0git` in files of coreai-core 1.0.0b3.
    pub producer: Cow<'a, [u8]>,
    /// The strings, which need not be UTF-8.
    pub strings: Vec<Cow<'a, [u8]>>,
    /// The dialects whose operations, attributes or types the file has.
    pub dialects: Vec<Dialect<'a>>,
    /// The names of operations; those of a dialect are adjacent.
    pub op_names: Vec<OpName>,
    /// The attributes, among them locations; those of a dialect are adjacent.
    pub attributes: Vec<EncodedEntry<'a>>,
    /// The types; those of a dialect are adjacent.
    pub types: Vec<EncodedEntry<'a>>,
    /// Properties in the encoding of the operations that refer to them.
    pub properties: Vec<Cow<'a, [u8]>>,
    /// The resources, such as weights, by their owner.
    pub resources: Vec<ResourceGroup<'a>>,
    /// The block of the module; in files of coreai-core 1.0.0b3 one operation encloses the program.
    pub body: Block,
    /// The number of values; the next value gets this number.
    pub values: u32,
    /// The order of the sections.
    order: Vec<SectionId>,
}

impl<'a> Bytecode<'a> {
    /// A module without dialects, with the sections in the order of coreai-core.
    pub(crate) fn empty(producer: &'static str) -> Self {
        Self {
            producer: Cow::Borrowed(producer.as_bytes()),
            strings: Vec::new(),
            dialects: Vec::new(),
            op_names: Vec::new(),
            attributes: Vec::new(),
            types: Vec::new(),
            properties: Vec::new(),
            resources: Vec::new(),
            body: Block::default(),
            values: 0,
            order: SectionId::WRITTEN.to_vec(),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// E0901 if it is no bytecode of version 6; E0902 if less is left than announced; E0903 if the
    /// format is violated; E0904 for an index without an entry.
    pub fn read(file: &'a [u8]) -> Result<Self> {
        if file.get(..4) != Some(&MAGIC) {
            return Err(Error::header(0, "the magic number is not that of MLIR bytecode"));
        }
        let mut cursor = Cursor::new(&file[4..], 4);
        let version = cursor.varint()?;
        if version != VERSION {
            return Err(Error::header(4, format!("bytecode of version {version} is not known, only {VERSION}")));
        }
        let rest = &file[cursor.offset()..];
        let Some(length) = rest.iter().position(|b| *b == 0) else {
            return Err(Error::truncated(cursor.offset(), "the producer's name has no end"));
        };
        let producer = Cow::Borrowed(cursor.take(length)?);
        cursor.byte()?;
        let mut sections: [Option<Cursor<'a>>; 9] = Default::default();
        let mut order = Vec::new();
        while !cursor.is_empty() {
            let at = cursor.offset();
            let (id, contents) = section(&mut cursor, None)?;
            if id == SectionId::DialectVersions || sections[id as usize].is_some() {
                return Err(Error::form(at, format!("section {id:?} is not expected")));
            }
            sections[id as usize] = Some(contents);
            order.push(id);
        }
        let end = cursor.offset();
        let mut take = |id: SectionId| {
            sections[id as usize].take().ok_or_else(|| Error::truncated(end, format!("section {id:?} is missing")))
        };
        let strings = sections::strings(take(SectionId::String)?)?;
        let (dialects, op_names) = sections::dialects(take(SectionId::Dialect)?, strings.len())?;
        let (attributes, types) =
            sections::entries(take(SectionId::AttrTypeOffset)?, take(SectionId::AttrType)?, dialects.len())?;
        let resources = sections::resources(
            take(SectionId::ResourceOffset)?,
            take(SectionId::Resource)?,
            strings.len(),
            dialects.len(),
        )?;
        let properties = sections::properties(take(SectionId::Properties)?)?;
        let tables = ir::Tables {
            op_names: op_names.len(),
            attributes: attributes.len(),
            types: types.len(),
            properties: properties.len(),
        };
        let (body, values) = ir::Reader::new(tables).read(take(SectionId::Ir)?)?;
        Ok(Self {
            producer,
            strings,
            dialects,
            op_names,
            attributes,
            types,
            properties,
            resources,
            body,
            values,
            order,
        })
    }

    /// The bytes of the file. Those of a file by Apple's writer that was only read are the same as
    /// before.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Emitter::default();
        out.bytes.extend_from_slice(&MAGIC);
        out.varint(VERSION);
        out.bytes.extend_from_slice(&self.producer);
        out.bytes.push(0);
        let (mut lengths, mut resources) = self.write_resources();
        for id in &self.order {
            let contents = match id {
                SectionId::String => self.write_strings(),
                SectionId::Dialect => self.write_dialects(),
                SectionId::AttrType => self.write_entries(),
                SectionId::AttrTypeOffset => self.write_entry_lengths(),
                SectionId::Ir => ir::Writer::default().write(&self.body),
                SectionId::Resource => std::mem::take(&mut resources),
                SectionId::ResourceOffset => std::mem::take(&mut lengths),
                SectionId::DialectVersions => continue,
                SectionId::Properties => {
                    let mut out = Emitter::default();
                    out.varint(self.properties.len() as u64);
                    for bytes in &self.properties {
                        out.varint(bytes.len() as u64);
                        out.bytes.extend_from_slice(bytes);
                    }
                    out
                }
            };
            out.section(*id as u8, contents);
        }
        out.bytes
    }

    fn write_strings(&self) -> Emitter {
        let mut out = Emitter::default();
        out.varint(self.strings.len() as u64);
        for string in self.strings.iter().rev() {
            out.varint(string.len() as u64 + 1);
        }
        for string in &self.strings {
            out.bytes.extend_from_slice(string);
            out.bytes.push(0);
        }
        out
    }

    fn write_dialects(&self) -> Emitter {
        let mut out = Emitter::default();
        out.varint(self.dialects.len() as u64);
        for dialect in &self.dialects {
            out.flagged(u64::from(dialect.name.0), dialect.version.is_some());
            if let Some(version) = &dialect.version {
                let mut section = Emitter::default();
                section.bytes.extend_from_slice(version);
                out.section(SectionId::DialectVersions as u8, section);
            }
        }
        out.varint(self.op_names.len() as u64);
        for names in self.op_names.chunk_by(|a, b| a.dialect == b.dialect) {
            out.varint(u64::from(names[0].dialect.0));
            out.varint(names.len() as u64);
            for name in names {
                out.flagged(u64::from(name.name.0), name.registered);
            }
        }
        out
    }

    fn write_entries(&self) -> Emitter {
        let mut out = Emitter::default();
        for entry in self.attributes.iter().chain(&self.types) {
            out.bytes.extend_from_slice(&entry.bytes);
        }
        out
    }

    fn write_entry_lengths(&self) -> Emitter {
        let mut out = Emitter::default();
        out.varint(self.attributes.len() as u64);
        out.varint(self.types.len() as u64);
        for table in [&self.attributes, &self.types] {
            for entries in table.chunk_by(|a, b| a.dialect == b.dialect) {
                out.varint(u64::from(entries[0].dialect.0));
                out.varint(entries.len() as u64);
                for entry in entries {
                    out.flagged(entry.bytes.len() as u64, entry.custom);
                }
            }
        }
        out
    }

    fn write_resource(resource: &Resource<'_>, out: &mut Emitter) {
        match &resource.value {
            ResourceValue::Blob { alignment, bytes } => {
                out.varint(u64::from(*alignment));
                out.varint(bytes.len() as u64);
                out.align(*alignment as usize);
                out.bytes.extend_from_slice(bytes);
            }
            ResourceValue::Bool(value) => out.bytes.push(u8::from(*value)),
            ResourceValue::String(id) => out.varint(u64::from(id.0)),
        }
    }

    /// The names and lengths of resources, and their bytes.
    fn write_resources(&self) -> (Emitter, Emitter) {
        let (mut out, mut contents) = (Emitter::default(), Emitter::default());
        let external = |group: &&ResourceGroup<'_>| matches!(group.owner, GroupOwner::External(_));
        out.varint(self.resources.iter().filter(external).count() as u64);
        for group in &self.resources {
            let owner = match group.owner {
                GroupOwner::External(StringId(id)) | GroupOwner::Dialect(DialectId(id)) => id,
            };
            out.varint(u64::from(owner));
            out.varint(group.resources.len() as u64);
            for resource in &group.resources {
                let before = contents.bytes.len();
                Self::write_resource(resource, &mut contents);
                out.varint(u64::from(resource.key.0));
                out.varint((contents.bytes.len() - before) as u64);
                out.bytes.push(match resource.value {
                    ResourceValue::Blob { .. } => BLOB,
                    ResourceValue::Bool(_) => BOOL,
                    ResourceValue::String(_) => STRING,
                });
            }
        }
        (out, contents)
    }

    /// The bytes of a string.
    pub fn string_bytes(&self, id: StringId) -> &[u8] {
        self.strings.get(id.0 as usize).map_or(&[], |bytes| bytes)
    }

    /// A string; bytes that are not UTF-8 are replaced.
    pub fn string(&self, id: StringId) -> Cow<'_, str> {
        String::from_utf8_lossy(self.string_bytes(id))
    }

    /// The name of a dialect.
    pub fn dialect_name(&self, id: DialectId) -> Cow<'_, str> {
        self.dialects.get(id.0 as usize).map_or(Cow::Borrowed(""), |dialect| self.string(dialect.name))
    }

    /// The name of an operation, with its dialect and without.
    pub fn op_name(&self, id: OpNameId) -> (Cow<'_, str>, Cow<'_, str>) {
        match self.op_names.get(id.0 as usize) {
            Some(name) => (self.dialect_name(name.dialect), self.string(name.name)),
            None => (Cow::Borrowed(""), Cow::Borrowed("")),
        }
    }

    /// A resource by its index over all groups.
    pub fn resource(&self, id: ResourceId) -> Option<&Resource<'a>> {
        let mut index = id.0 as usize;
        for group in &self.resources {
            match group.resources.get(index) {
                Some(resource) => return Some(resource),
                None => index -= group.resources.len(),
            }
        }
        None
    }
}
