//! Programs of the E5 runtime, `.e5`: FlatBuffers whose schema is not published (spec: hwx.md 4).
//!
//! Several sources agree on the root table: field 0 is a list of names, field 1 a table, field 2 a
//! list of tables, field 3 a number. These are checked. Every other field is reported as what it
//! looks like ([`flat`]). Compiled programs are found by their magic numbers at any offset.

use serde::Serialize;

use super::flat::{self, FieldValue, FlatWalk};
use super::{is_program, u32_at};
use crate::container::Hwx;
use crate::error::Result;

/// The largest number of compiled programs reported for a file.
const MOST: usize = 64;

/// A program of the E5 runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct E5Program {
    /// Every table that is reachable from the root.
    pub walk: FlatWalk,
    /// The format version, field 3 of the root; `None` if the root differs from the reports.
    pub version: Option<u32>,
    /// The names in field 0 of the root; empty if there are none.
    pub symbols: Vec<String>,
    /// The number of entries in the list of sections, field 2 of the root.
    pub sections: usize,
    /// Differences between the root and the reports; empty if there are none.
    pub odd: Vec<String>,
    /// Compiled programs in the file, at most 64.
    pub programs: Vec<EmbeddedProgram>,
}

/// A compiled program inside another file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EmbeddedProgram {
    /// Its offset in the file, in bytes.
    pub at: usize,
    /// The generation that it is compiled for; `None` if the program cannot be read.
    pub generation: Option<String>,
    /// The reason why it cannot be read, if any.
    pub error: Option<String>,
}

impl E5Program {
    /// Reads a file.
    ///
    /// # Errors
    /// E0730 if the file is not a FlatBuffer.
    pub fn read(file: &[u8]) -> Result<E5Program> {
        let walk = flat::walk(file)?;
        let field = |id: usize| walk.tables.first().and_then(|root| root.fields.iter().find(|f| f.id == id));
        let mut odd = Vec::new();
        let mut wanted = |id: usize, what: &str, right: bool| {
            if !right {
                odd.push(format!("field {id} of the root is no {what}"));
            }
            right
        };
        let symbols = match field(0).map(|f| &f.value) {
            Some(FieldValue::Strings(list)) => list.clone(),
            _ => Vec::new(),
        };
        wanted(0, "list of names", !symbols.is_empty());
        wanted(1, "table", matches!(field(1).map(|f| &f.value), Some(FieldValue::Table(_) | FieldValue::Tables(_))));
        let sections = match field(2).map(|f| &f.value) {
            Some(FieldValue::Tables(list)) => list.len(),
            _ => 0,
        };
        wanted(2, "list of tables", sections > 0);
        // Read as a number however the walk classified it: a small number may also look like an
        // offset, for example to the bytes after the root.
        let version = field(3).filter(|f| f.room >= 4).and_then(|f| u32_at(file, f.at));
        wanted(3, "number", version.is_some());
        let more = walk.tables.first().map_or(0, |root| root.fields.iter().filter(|f| f.id > 3).count());
        if more > 0 {
            odd.push(format!("the root has {more} more fields than the four that are reported"));
        }
        Ok(E5Program { version, symbols, sections, odd, programs: embedded(file), walk })
    }
}

/// The first compiled programs in a file, at most 64.
pub fn embedded(file: &[u8]) -> Vec<EmbeddedProgram> {
    let places = (0..file.len().saturating_sub(7)).filter(|at| is_program(&file[*at..(*at + 8)]));
    let mut readable = 0;
    let one = |at: usize| {
        // Reading a program copies it, so the number of attempts is bounded against hostile files.
        readable += 1;
        if readable > 4 {
            return EmbeddedProgram { at, generation: None, error: None };
        }
        match Hwx::read(&file[at..]) {
            Ok(hwx) => {
                let name = hwx.generation().map_or(format!("subtype {}", hwx.subtype), |g| g.name.to_string());
                EmbeddedProgram { at, generation: Some(name), error: None }
            }
            Err(e) => EmbeddedProgram { at, generation: None, error: Some(e.to_string()) },
        }
    };
    places.take(MOST).map(one).collect()
}
