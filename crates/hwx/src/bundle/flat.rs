//! FlatBuffers without a schema.
//!
//! A FlatBuffer is tables of fields, and which field is what stands in a schema that the file does
//! not have. What does stand there: each table names its vtable, which says where each field lies.
//! So every table is found and checked from the root on, and every field is told by what it looks
//! like: an offset whose target is a table, a string, or a vector of these is taken for one,
//! anything else is bytes. A number may look like an offset by chance, so what is told is what a
//! file can mean, not what it must.
//!
//! Offsets to tables lead forward only, so there are no cycles: an offset of 0, or one that wraps
//! around, is none. Targets that share bytes with others without being the same are told as
//! overlaps. Each target is looked at once, and all looking together is bounded by the file's
//! length ([`FlatWalk::complete`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use serde::Serialize;

use super::u32_at;
use crate::error::{Error, Result};

/// Steps for each byte of a file, and steps that every file has.
const STEPS: (usize, usize) = (16, 4096);
/// Bytes of a string that are kept.
const SHOWN: usize = 256;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlatWalk {
    /// The four letters behind the root's offset, if they are letters.
    pub identifier: Option<String>,
    /// The root table's place.
    pub root: usize,
    /// Every table that was reached, in the order in which it was reached; the first is the root.
    pub tables: Vec<FlatTable>,
    /// Vectors of bytes that are FlatBuffers themselves: where they begin, their length.
    pub nested: Vec<(usize, usize)>,
    /// Targets that share bytes with another one.
    pub overlaps: Vec<String>,
    /// False if looking on would have taken more than the file's length allows.
    pub complete: bool,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlatTable {
    /// Where it lies.
    pub at: usize,
    /// Where its vtable lies.
    pub vtable: usize,
    /// Its bytes, the vtable's offset included.
    pub size: usize,
    /// How it was reached first: `root`, `root.2[0].1`.
    pub path: String,
    /// Its fields that are there.
    pub fields: Vec<FlatField>,
}

/// A field of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlatField {
    /// Its number in the schema.
    pub id: usize,
    /// Where it lies.
    pub at: usize,
    /// Bytes up to the next field or the table's end: it has no more.
    pub room: usize,
    /// What it looks like.
    pub value: FieldValue,
}

/// What a field looks like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldValue {
    /// A number, or bytes; up to eight of them as a number.
    Inline(u64),
    /// A string.
    String(String),
    /// A table, by its place.
    Table(usize),
    /// Tables, by their places.
    Tables(Vec<usize>),
    /// Strings.
    Strings(Vec<String>),
    /// A vector of so many bytes that is a FlatBuffer or a compiled program itself: its place and
    /// length.
    Nested(usize, usize),
}

/// What an offset leads to.
#[derive(Clone)]
enum OffsetTarget {
    Nothing,
    String(String),
    Table,
    Tables(Vec<usize>),
    Strings(Vec<String>),
    Nested(Range<usize>),
}

fn u16_at(file: &[u8], at: usize) -> Option<usize> {
    let bytes = file.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes([bytes[0], bytes[1]]).into())
}

/// Where the offset at `at` leads to: forward, to a multiple of four in the file.
fn follow(file: &[u8], at: usize) -> Option<usize> {
    let offset = usize::try_from(u32_at(file, at)?).ok()?;
    at.checked_add(offset).filter(|to| offset > 0 && to.is_multiple_of(4) && *to < file.len())
}

/// Vtable and size of the table at `at`, if one can be there.
fn table(file: &[u8], at: usize) -> Option<(Range<usize>, usize)> {
    let back = i64::from(u32_at(file, at)? as i32);
    let vtable = usize::try_from(i64::try_from(at).ok()?.checked_sub(back)?).ok()?;
    let (length, size) = (u16_at(file, vtable)?, u16_at(file, vtable + 2)?);
    let end = vtable.checked_add(length).filter(|end| *end <= file.len())?;
    let right = at.is_multiple_of(4) && vtable.is_multiple_of(2) && length >= 4 && length.is_multiple_of(2);
    if !right || size < 4 || at.checked_add(size)? > file.len() || (vtable < at + size && at < end) {
        return None;
    }
    let fields = (vtable + 4..end).step_by(2).map(|slot| u16_at(file, slot));
    let fits = |field: Option<usize>| field.is_some_and(|f| f == 0 || (4..size).contains(&f));
    fields.into_iter().all(fits).then_some((vtable..end, size))
}

/// The string at `at`, if one can be there: its length, text and a zero.
fn string(file: &[u8], at: usize) -> Option<(&str, Range<usize>)> {
    let length = usize::try_from(u32_at(file, at)?).ok()?;
    let (start, end) = (at + 4, (at + 4).checked_add(length)?);
    if file.get(end) != Some(&0) {
        return None;
    }
    let text = std::str::from_utf8(&file[start..end]).ok()?;
    let plain = text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t' | '\r'));
    plain.then_some((text, at..end + 1))
}

fn kept(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// True for what begins like a FlatBuffer: the root's offset leads to a table that has fields.
pub fn begins(head: &[u8]) -> bool {
    let root = follow(head, 0).filter(|root| *root >= 4);
    root.and_then(|root| table(head, root)).is_some_and(|(vtable, size)| vtable.len() > 4 && size > 4)
}

struct Walker<'a> {
    file: &'a [u8],
    /// Steps that may still be taken.
    steps: usize,
    targets: BTreeMap<usize, OffsetTarget>,
    /// Ranges of tables, strings and vectors, by their beginnings.
    ranges: BTreeMap<usize, usize>,
    /// Tables that were reached and not looked at.
    open: VecDeque<(usize, String)>,
    known: BTreeSet<usize>,
}

/// Walks a FlatBuffer from its root on.
///
/// # Errors
/// E0730 where no root table is.
pub fn walk(file: &[u8]) -> Result<FlatWalk> {
    let Some(root) = follow(file, 0).filter(|root| *root >= 4) else {
        return Err(Error::flat(0, "the first four bytes do not lead to a root table"));
    };
    if table(file, root).is_none() {
        return Err(Error::flat(root, "there is no table here: its vtable does not lie in the file or does not fit"));
    }
    let identifier = file.get(4..8).filter(|id| id.iter().all(u8::is_ascii_graphic) && root >= 8);
    let mut walker = Walker {
        file,
        steps: file.len().saturating_mul(STEPS.0).saturating_add(STEPS.1),
        targets: BTreeMap::new(),
        ranges: BTreeMap::new(),
        open: VecDeque::from([(root, "root".to_string())]),
        known: BTreeSet::from([root]),
    };
    let (mut tables, mut nested) = (Vec::new(), Vec::new());
    let mut complete = true;
    while let Some((at, path)) = walker.open.pop_front() {
        match walker.look(at, path) {
            Some(table) => {
                let inner = table.fields.iter().filter_map(|f| match f.value {
                    FieldValue::Nested(at, length) => Some((at, length)),
                    _ => None,
                });
                nested.extend(inner);
                tables.push(table);
            }
            None => {
                complete = false;
                break;
            }
        }
    }
    let mut overlaps = Vec::new();
    let ranges: Vec<(usize, usize)> = walker.ranges.into_iter().collect();
    for pair in ranges.windows(2) {
        if pair[1].0 < pair[0].1 {
            overlaps.push(format!("what lies at {:#x} reaches into what lies at {:#x}", pair[0].0, pair[1].0));
        }
    }
    let identifier = identifier.map(|id| String::from_utf8_lossy(id).into_owned());
    Ok(FlatWalk { identifier, root, tables, nested, overlaps, complete })
}

impl Walker<'_> {
    /// Takes so many steps. `None` if there are no more.
    fn spend(&mut self, steps: usize) -> Option<()> {
        self.steps = self.steps.checked_sub(steps)?;
        Some(())
    }

    fn range(&mut self, range: Range<usize>) {
        let end = self.ranges.entry(range.start).or_insert(range.end);
        *end = (*end).max(range.end);
    }

    /// The fields of a table that is one.
    fn look(&mut self, at: usize, path: String) -> Option<FlatTable> {
        let (vtable, size) = table(self.file, at)?;
        self.spend(vtable.len() + size + path.len())?;
        self.range(at..at + size);
        let slots = (vtable.start + 4..vtable.end).step_by(2);
        let places: Vec<(usize, usize)> = slots
            .enumerate()
            .filter_map(|(id, slot)| u16_at(self.file, slot).filter(|f| *f != 0).map(|f| (id, at + f)))
            .collect();
        let mut order: Vec<usize> = places.iter().map(|(_, at)| *at).collect();
        order.push(at + size);
        order.sort_unstable();
        let mut fields = Vec::new();
        for (id, place) in places {
            let next = order.partition_point(|p| *p <= place);
            let room = order.get(next).map_or(0, |next| next - place);
            let value = self.value(place, room, &format!("{path}.{id}"))?;
            fields.push(FlatField { id, at: place, room, value });
        }
        Some(FlatTable { at, vtable: vtable.start, size, path, fields })
    }

    /// What a field looks like.
    fn value(&mut self, at: usize, room: usize, path: &str) -> Option<FieldValue> {
        let inline = || {
            let bytes = self.file.get(at..at + room.min(8)).unwrap_or(&[]);
            FieldValue::Inline(bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
        };
        let to = if room >= 4 && at.is_multiple_of(4) { follow(self.file, at) } else { None };
        let Some(to) = to else { return Some(inline()) };
        Some(match self.target(to)? {
            OffsetTarget::Nothing => inline(),
            OffsetTarget::String(text) => FieldValue::String(text),
            OffsetTarget::Table => {
                self.reach(to, path.to_string());
                FieldValue::Table(to)
            }
            OffsetTarget::Tables(list) => {
                for (i, at) in list.iter().enumerate() {
                    self.reach(*at, format!("{path}[{i}]"));
                }
                FieldValue::Tables(list)
            }
            OffsetTarget::Strings(list) => FieldValue::Strings(list),
            OffsetTarget::Nested(range) => FieldValue::Nested(range.start, range.len()),
        })
    }

    /// A table that is to be looked at, once.
    fn reach(&mut self, at: usize, path: String) {
        if self.known.insert(at) {
            self.open.push_back((at, path));
        }
    }

    /// What lies at a place; looked at once, and what it takes is counted each time.
    fn target(&mut self, at: usize) -> Option<OffsetTarget> {
        self.spend(1)?;
        if let Some(target) = self.targets.get(&at) {
            let target = target.clone();
            let cost = match &target {
                OffsetTarget::Tables(list) => list.len(),
                OffsetTarget::Strings(list) => list.iter().map(|s| 1 + s.len()).sum(),
                OffsetTarget::String(text) => text.len(),
                _ => 0,
            };
            self.spend(cost)?;
            return Some(target);
        }
        let target = self.judge(at)?;
        self.targets.insert(at, target.clone());
        Some(target)
    }

    fn judge(&mut self, at: usize) -> Option<OffsetTarget> {
        let file = self.file;
        let count = u32_at(file, at).map_or(0, |n| n as usize);
        let content = at + 4;
        // Text is the surest: a length, that many characters, a zero.
        if count > 0 && count <= file.len().saturating_sub(content) {
            self.spend(count)?;
            if let Some((text, range)) = string(file, at) {
                self.range(range);
                return Some(OffsetTarget::String(kept(text)));
            }
        }
        if count > 0 && count <= file.len().saturating_sub(content) / 4 {
            let end = content + 4 * count;
            let places: Option<Vec<usize>> = (0..count).map(|i| follow(file, content + 4 * i)).collect();
            if let Some(places) = places.filter(|p| p.iter().all(|to| *to >= end)) {
                if self.all(&places, |file, at| table(file, at).map(|(vtable, _)| vtable.len()))? {
                    self.range(at..end);
                    return Some(OffsetTarget::Tables(places));
                }
                if self.all(&places, |file, at| string(file, at).map(|(text, _)| text.len()))? {
                    self.range(at..end);
                    let texts = places.iter().filter_map(|at| string(file, *at));
                    let texts: Vec<(String, Range<usize>)> = texts.map(|(t, range)| (kept(t), range)).collect();
                    let (texts, ranges): (Vec<String>, Vec<Range<usize>>) = texts.into_iter().unzip();
                    ranges.into_iter().for_each(|range| self.range(range));
                    return Some(OffsetTarget::Strings(texts));
                }
            }
        }
        // Bytes are told only where they are something: any number would look like some.
        let inner = content.checked_add(count).and_then(|end| file.get(content..end));
        if let Some(inner) = inner.filter(|b| b.len() >= 16) {
            self.spend(64)?;
            if begins(inner) || super::is_program(inner) {
                self.range(at..content + count);
                return Some(OffsetTarget::Nested(content..content + count));
            }
        }
        if table(file, at).is_some() {
            return Some(OffsetTarget::Table);
        }
        Some(OffsetTarget::Nothing)
    }

    /// True if every place passes; each costs what the check says it looked at.
    fn all(&mut self, places: &[usize], check: impl Fn(&[u8], usize) -> Option<usize>) -> Option<bool> {
        for at in places {
            // What fails may have been looked at to the end of a string as well.
            let cost = check(self.file, *at);
            self.spend(1 + cost.unwrap_or(0))?;
            if cost.is_none() {
                return Some(false);
            }
        }
        Some(true)
    }
}
