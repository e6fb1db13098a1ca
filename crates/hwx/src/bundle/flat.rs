//! Reads FlatBuffers without a schema.
//!
//! A FlatBuffer consists of tables of fields; the meaning of a field is in a schema, which the file
//! does not contain. The file does say where fields are: each table refers to its vtable, which has
//! the offset of each field. So the walk finds and checks every table from the root on, and
//! classifies each field by what it looks like: an offset whose target is a table, a string or a
//! vector of these counts as such, anything else as bytes. A number may look like an offset by
//! chance, so the result is a possible reading of the file, not the only one.
//!
//! # Bounds
//!
//! Offsets to tables lead forward only, so there are no cycles; an offset of 0, or one that wraps
//! around, is invalid. Targets that partly share bytes are reported as overlaps. Each target is
//! examined once, and the total work is bounded by the file's length ([`FlatWalk::complete`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use serde::Serialize;

use super::u32_at;
use crate::error::{Error, Result};

/// The step budget: steps per byte of the file, and steps that every file gets.
const STEPS: (usize, usize) = (16, 4096);
/// The number of bytes of a string that are kept.
const SHOWN: usize = 256;

/// The tables and vectors of a FlatBuffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlatWalk {
    /// The four letters after the root's offset, if they are letters.
    pub identifier: Option<String>,
    /// The offset of the root table in bytes.
    pub root: usize,
    /// Every reachable table, in the order in which the walk reached it; the first is the root.
    pub tables: Vec<FlatTable>,
    /// Offset and length in bytes of each vector of bytes that is itself a FlatBuffer.
    pub nested: Vec<(usize, usize)>,
    /// Descriptions of targets that share bytes with another target.
    pub overlaps: Vec<String>,
    /// False if the walk stopped because its step budget was spent.
    pub complete: bool,
}

/// A table of the FlatBuffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlatTable {
    /// Its offset in the file, in bytes.
    pub at: usize,
    /// The offset of its vtable, in bytes.
    pub vtable: usize,
    /// Its size in bytes, including the offset of the vtable.
    pub size: usize,
    /// The first path that reached it: `root`, `root.2[0].1`.
    pub path: String,
    /// The fields that are present.
    pub fields: Vec<FlatField>,
}

/// A field of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlatField {
    /// Its index in the schema.
    pub id: usize,
    /// Its offset in the file, in bytes.
    pub at: usize,
    /// The largest size that it can have, in bytes: up to the next field or the end of the table.
    pub room: usize,
    /// What its bytes look like.
    pub value: FieldValue,
}

/// What the bytes of a field look like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldValue {
    /// A number or bytes; the first eight bytes at most, as a number.
    Inline(u64),
    /// Text, cut after 256 bytes.
    String(String),
    /// A table, by its offset.
    Table(usize),
    /// A vector of tables, by their offsets.
    Tables(Vec<usize>),
    /// A vector of strings.
    Strings(Vec<String>),
    /// A vector of bytes that is itself a FlatBuffer or a compiled program: offset and length.
    Nested(usize, usize),
}

/// The target of an offset.
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

/// The target of the offset at `at`: forward, in the file, at a multiple of four.
fn follow(file: &[u8], at: usize) -> Option<usize> {
    let offset = usize::try_from(u32_at(file, at)?).ok()?;
    at.checked_add(offset).filter(|to| offset > 0 && to.is_multiple_of(4) && *to < file.len())
}

/// Vtable and size of the table at `at`, if the bytes can be a table.
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

/// The string at `at`, if the bytes can be one: a length, text and a zero.
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

/// True if the bytes begin like a FlatBuffer: the root's offset leads to a table that has fields.
pub fn begins(head: &[u8]) -> bool {
    let root = follow(head, 0).filter(|root| *root >= 4);
    root.and_then(|root| table(head, root)).is_some_and(|(vtable, size)| vtable.len() > 4 && size > 4)
}

struct Walker<'a> {
    file: &'a [u8],
    /// The remaining step budget.
    steps: usize,
    targets: BTreeMap<usize, OffsetTarget>,
    /// The ranges of tables, strings and vectors, by their start.
    ranges: BTreeMap<usize, usize>,
    /// Tables that were reached but not examined yet.
    open: VecDeque<(usize, String)>,
    known: BTreeSet<usize>,
}

/// Walks a FlatBuffer from its root.
///
/// # Errors
/// E0730 if there is no root table.
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
    /// Spends `steps` of the budget, or returns `None` if fewer are left.
    fn spend(&mut self, steps: usize) -> Option<()> {
        self.steps = self.steps.checked_sub(steps)?;
        Some(())
    }

    fn range(&mut self, range: Range<usize>) {
        let end = self.ranges.entry(range.start).or_insert(range.end);
        *end = (*end).max(range.end);
    }

    /// The fields of the table at `at`, if it is one.
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

    /// Classifies the bytes of a field.
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

    /// Queues a table, once.
    fn reach(&mut self, at: usize, path: String) {
        if self.known.insert(at) {
            self.open.push_back((at, path));
        }
    }

    /// Classifies a target. The result is cached; its cost is charged for every use.
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
        // A string is the most reliable match: a length, that many characters, a zero.
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
        // A vector of bytes is reported only if its contents are recognized: any number looks like
        // one.
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

    /// True if `check` accepts every target; each costs the steps that `check` returns.
    fn all(&mut self, places: &[usize], check: impl Fn(&[u8], usize) -> Option<usize>) -> Option<bool> {
        for at in places {
            // A failing check may have read a string to its end, so it costs steps as well.
            let cost = check(self.file, *at);
            self.spend(1 + cost.unwrap_or(0))?;
            if cost.is_none() {
                return Some(false);
            }
        }
        Some(true)
    }
}
