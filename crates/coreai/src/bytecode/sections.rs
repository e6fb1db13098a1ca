//! The sections except the operations: reading of their tables.

use std::borrow::Cow;

use super::cursor::{Cursor, within};
use super::{
    Dialect, DialectId, EncodedEntry, GroupOwner, OpName, Resource, ResourceGroup, ResourceValue, SectionId, StringId,
};
use crate::error::{Error, Result};

/// The next section, which must be `expected` if that is given.
pub(super) fn section<'a>(cursor: &mut Cursor<'a>, expected: Option<SectionId>) -> Result<(SectionId, Cursor<'a>)> {
    let at = cursor.offset();
    let byte = cursor.byte()?;
    let (id, aligned) = (byte & 0x7f, byte & 0x80 != 0);
    let found = SectionId::ALL.into_iter().find(|s| *s as u8 == id);
    let Some(found) = found.filter(|found| expected.is_none_or(|e| e == *found)) else {
        return Err(Error::form(at, format!("section {id} is not expected")));
    };
    let length = cursor.count("bytes")?;
    if aligned {
        let alignment = cursor.varint()?;
        cursor.align(alignment)?;
    }
    Ok((found, cursor.part(length)?))
}

/// How many groups of resources a file may have. Files of coreai-core 1.0.0b3 have one,
/// that of their only dialect.
const MAX_GROUPS: usize = 256;

// Kinds of resources (BytecodeFormat, "Resource Section").
pub(super) const BLOB: u8 = 0;
pub(super) const BOOL: u8 = 1;
pub(super) const STRING: u8 = 2;

pub(super) fn strings(mut cursor: Cursor<'_>) -> Result<Vec<Cow<'_, [u8]>>> {
    let at = cursor.offset();
    let count = cursor.count("strings")?;
    // Lengths stand in reverse order and include a final zero byte.
    let mut lengths = Vec::new();
    for _ in 0..count {
        lengths.push(cursor.count("bytes of a string")?);
    }
    let mut strings = Vec::new();
    for length in lengths.into_iter().rev() {
        match cursor.take(length)? {
            [string @ .., 0] => strings.push(Cow::Borrowed(string)),
            _ => return Err(Error::form(at, format!("string {} does not end with 0", strings.len()))),
        }
    }
    cursor.finish("the strings")?;
    Ok(strings)
}

pub(super) fn dialects(mut cursor: Cursor<'_>, strings: usize) -> Result<(Vec<Dialect<'_>>, Vec<OpName>)> {
    let mut dialects = Vec::new();
    for _ in 0..cursor.count("dialects")? {
        let at = cursor.offset();
        let (name, versioned) = cursor.flagged()?;
        let name = StringId(within(at, name, strings, "string")?);
        let version = match versioned {
            true => {
                let mut section = section(&mut cursor, Some(SectionId::DialectVersions))?.1;
                Some(Cow::Borrowed(section.take(section.remaining())?))
            }
            false => None,
        };
        dialects.push(Dialect { name, version });
    }
    let mut op_names = Vec::new();
    let expected = cursor.count("names of operations")?;
    while op_names.len() < expected {
        let dialect = DialectId(cursor.index(dialects.len(), "dialect")?);
        let at = cursor.offset();
        let count = cursor.count("names of operations")?;
        if count == 0 || count > expected - op_names.len() {
            return Err(Error::form(at, format!("a group has {count} names of operations")));
        }
        for _ in 0..count {
            let at = cursor.offset();
            let (name, registered) = cursor.flagged()?;
            let name = StringId(within(at, name, strings, "string")?);
            op_names.push(OpName { dialect, name, registered });
        }
    }
    cursor.finish("the dialects")?;
    Ok((dialects, op_names))
}

/// The entries of both tables, whose lengths stand in one section and whose bytes in another.
pub(super) fn entries<'a>(
    mut lengths: Cursor<'a>,
    mut contents: Cursor<'a>,
    dialects: usize,
) -> Result<(Vec<EncodedEntry<'a>>, Vec<EncodedEntry<'a>>)> {
    let (attributes, types) = (lengths.count("attributes")?, lengths.count("types")?);
    let mut table = |expected: usize| {
        let mut entries = Vec::new();
        while entries.len() < expected {
            let dialect = DialectId(lengths.index(dialects, "dialect")?);
            let at = lengths.offset();
            let count = lengths.count("entries")?;
            if count == 0 || count > expected - entries.len() {
                return Err(Error::form(at, format!("a group has {count} entries")));
            }
            for _ in 0..count {
                let at = lengths.offset();
                let (length, custom) = lengths.flagged()?;
                let length = contents.bounded(at, length, "bytes of an entry")?;
                entries.push(EncodedEntry { dialect, custom, bytes: Cow::Borrowed(contents.take(length)?) });
            }
        }
        Ok(entries)
    };
    let (attributes, types) = (table(attributes)?, table(types)?);
    lengths.finish("the lengths of attributes and types")?;
    contents.finish("the attributes and types")?;
    Ok((attributes, types))
}

pub(super) fn resources<'a>(
    mut lengths: Cursor<'a>,
    mut contents: Cursor<'a>,
    strings: usize,
    dialects: usize,
) -> Result<Vec<ResourceGroup<'a>>> {
    let mut groups = Vec::new();
    let external = lengths.count("groups of resources")?;
    while groups.len() < external || !lengths.is_empty() {
        if groups.len() == MAX_GROUPS {
            return Err(Error::form(lengths.offset(), format!("more than {MAX_GROUPS} groups of resources")));
        }
        let owner = if groups.len() < external {
            GroupOwner::External(StringId(lengths.index(strings, "string")?))
        } else {
            GroupOwner::Dialect(DialectId(lengths.index(dialects, "dialect")?))
        };
        let mut resources = Vec::new();
        for _ in 0..lengths.count("resources")? {
            let key = StringId(lengths.index(strings, "string")?);
            let at = lengths.offset();
            let length = lengths.varint()?;
            let length = contents.bounded(at, length, "bytes of a resource")?;
            let at = lengths.offset();
            let kind = lengths.byte()?;
            let mut resource = contents.part(length)?;
            let value = match kind {
                BLOB => {
                    let at = resource.offset();
                    let alignment = resource.varint()?;
                    let size = resource.varint()?;
                    resource.align(alignment)?;
                    if size != resource.remaining() as u64 {
                        return Err(Error::form(
                            at,
                            format!("a resource has {size} bytes, not {}", resource.remaining()),
                        ));
                    }
                    let bytes = Cow::Borrowed(resource.take(resource.remaining())?);
                    ResourceValue::Blob { alignment: alignment as u32, bytes }
                }
                BOOL => ResourceValue::Bool(resource.byte()? != 0),
                STRING => ResourceValue::String(StringId(resource.index(strings, "string")?)),
                other => return Err(Error::form(at, format!("{other} is no kind of a resource"))),
            };
            resource.finish("a resource")?;
            resources.push(Resource { key, value });
        }
        groups.push(ResourceGroup { owner, resources });
    }
    contents.finish("the resources")?;
    Ok(groups)
}

pub(super) fn properties(mut cursor: Cursor<'_>) -> Result<Vec<Cow<'_, [u8]>>> {
    let mut properties = Vec::new();
    for _ in 0..cursor.count("properties")? {
        let length = cursor.count("bytes of properties")?;
        properties.push(Cow::Borrowed(cursor.take(length)?));
    }
    cursor.finish("the properties")?;
    Ok(properties)
}
