//! Documents of JSON Lines: one object a line, whose text is in one field.

use std::fmt;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::Error;
use super::documents::{BadRows, DocumentPiece, Documents};
use super::shards::failed;

/// Bytes of the longest line that is read. A longer one is a broken row, which is skipped without
/// being held in memory.
const LINE: usize = 16 << 20;
/// Number of fields that a reason names.
const NAMES: usize = 8;

/// The documents of a file.
pub(super) struct Jsonl {
    path: PathBuf,
    file: BufReader<File>,
    /// The field with the text; `None`: whole lines are documents.
    field: Option<String>,
    /// Number of lines read.
    number: u64,
    read: u64,
    line: Vec<u8>,
}

enum LineRead {
    Whole,
    TooLong,
    End,
}

impl Jsonl {
    pub(super) fn new(path: &Path, file: File, field: Option<&str>) -> Jsonl {
        let file = BufReader::with_capacity(1 << 18, file);
        Jsonl { path: path.to_path_buf(), file, field: field.map(str::to_string), number: 0, read: 0, line: Vec::new() }
    }

    /// Reads the next line into `line`, without its end.
    fn line(&mut self) -> Result<LineRead, Error> {
        self.line.clear();
        let (mut found, mut long) = (0, false);
        loop {
            let block = self.file.fill_buf().map_err(|e| failed(&self.path, e))?;
            if block.is_empty() {
                break;
            }
            let end = block.iter().position(|byte| *byte == b'\n');
            let part = &block[..end.unwrap_or(block.len())];
            long |= self.line.len() + part.len() > LINE;
            if !long {
                self.line.extend_from_slice(part);
            }
            let count = end.map_or(block.len(), |end| end + 1);
            found += count;
            self.file.consume(count);
            if end.is_some() {
                break;
            }
        }
        self.read += found as u64;
        self.number += u64::from(found > 0);
        Ok(match found {
            0 => LineRead::End,
            _ if long => LineRead::TooLong,
            _ => LineRead::Whole,
        })
    }
}

impl Documents for Jsonl {
    fn next(&mut self, bad: &mut BadRows) -> Result<Option<DocumentPiece>, Error> {
        loop {
            let reason = match self.line()? {
                LineRead::End => return Ok(None),
                LineRead::TooLong => format!("longer than {} MiB", LINE >> 20),
                LineRead::Whole => {
                    let line = match self.line.strip_prefix(b"\xef\xbb\xbf") {
                        Some(rest) if self.number == 1 => rest,
                        _ => &self.line[..],
                    };
                    if line.trim_ascii().is_empty() {
                        continue;
                    }
                    let found = match &self.field {
                        Some(field) => text(line, field),
                        None => String::from_utf8(line.to_vec()).map(Some).map_err(|e| format!("not UTF-8: {e}")),
                    };
                    match found {
                        Ok(Some(text)) if !text.is_empty() => {
                            return Ok(Some(DocumentPiece { text, begins: true, row: self.number }));
                        }
                        Ok(_) => continue,
                        Err(reason) => reason,
                    }
                }
            };
            bad.add(&format!("line {}", self.number), &reason)?;
        }
    }

    fn read(&self) -> u64 {
        self.read
    }
}

/// The text in a row's field, `None` if it is null; or why the row is broken.
fn text(line: &[u8], field: &str) -> Result<Option<String>, String> {
    let mut json = serde_json::Deserializer::from_slice(line);
    let row = json.deserialize_any(Row(field)).and_then(|row| json.end().map(|()| row));
    match row {
        Ok(Ok(FieldValue::Text(text))) => Ok(Some(text)),
        Ok(Ok(FieldValue::Null)) => Ok(None),
        Ok(Ok(FieldValue::Other(kind))) => Err(format!("`{field}` is {kind}, not a string")),
        Ok(Err(names)) => Err(no_field(field, names.iter().map(String::as_str))),
        Err(e) => Err(reason(&e)),
    }
}

/// A row has no such field, but those of `names`.
pub(super) fn no_field<'a>(field: &str, names: impl Iterator<Item = &'a str>) -> String {
    let shown = |name: &str| format!("`{}`", name.chars().take(40).collect::<String>());
    let names: Vec<String> = names.take(NAMES).map(shown).collect();
    match names.is_empty() {
        true => format!("no field `{field}`; the row is empty"),
        false => format!("no field `{field}`; the row has {}", names.join(", ")),
    }
}

/// The parser's message without its line, which is always 1.
pub(super) fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let plain = text.split(" at line 1 column").next().unwrap_or_default();
    format!("{plain} (column {})", error.column())
}

/// What a field holds.
enum FieldValue {
    Text(String),
    Null,
    Other(&'static str),
}

/// Reads the field of this name; without one, returns the names of those that there are.
struct Row<'a>(&'a str);

impl<'de> Visitor<'de> for Row<'_> {
    type Value = Result<FieldValue, Vec<String>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut found, mut names) = (None, Vec::new());
        while let Some(name) = map.next_key::<String>()? {
            if name == self.0 {
                found = Some(map.next_value_seed(Field)?);
                continue;
            }
            map.next_value::<IgnoredAny>()?;
            if names.len() < NAMES {
                names.push(name);
            }
        }
        Ok(found.ok_or(names))
    }
}

/// The value of a field, of any type.
struct Field;

impl<'de> DeserializeSeed<'de> for Field {
    type Value = FieldValue;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<FieldValue, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Field {
    type Value = FieldValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E>(self, text: &str) -> Result<FieldValue, E> {
        Ok(FieldValue::Text(text.to_string()))
    }

    fn visit_unit<E>(self) -> Result<FieldValue, E> {
        Ok(FieldValue::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<FieldValue, E> {
        Ok(FieldValue::Other("true or false"))
    }

    fn visit_i64<E>(self, _: i64) -> Result<FieldValue, E> {
        Ok(FieldValue::Other("a number"))
    }

    fn visit_u64<E>(self, _: u64) -> Result<FieldValue, E> {
        Ok(FieldValue::Other("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<FieldValue, E> {
        Ok(FieldValue::Other("a number"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<FieldValue, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(FieldValue::Other("a list"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FieldValue, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(FieldValue::Other("an object"))
    }
}
