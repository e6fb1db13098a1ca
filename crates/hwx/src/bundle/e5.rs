//! Programs of the E5 runtime, `.e5`: FlatBuffers whose schema is not published (spec: hwx.md 4).
//!
//! What is checked is what several people report of the root table: four fields, of which the first
//! is a list of names, the second a table, the third a list of tables, and the last a number.
//! Whatever else there is, is told by what it looks like ([`flat`]). Compiled programs are found by
//! their first bytes, wherever they lie.

use serde::Serialize;

use super::flat::{self, FieldValue, FlatWalk};
use super::{is_program, u32_at};
use crate::container::Hwx;
use crate::error::Result;

/// Compiled programs in a file that are told.
const MOST: usize = 64;

/// A program of the E5 runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct E5Program {
    /// Its tables.
    pub walk: FlatWalk,
    /// The format's number, field 3 of the root, if the root is as reported.
    pub version: Option<u32>,
    /// Names, field 0 of the root.
    pub symbols: Vec<String>,
    /// Entries of the list of sections, field 2 of the root.
    pub sections: usize,
    /// Where the root is not what is reported of it.
    pub odd: Vec<String>,
    /// Compiled programs in the file.
    pub programs: Vec<EmbeddedProgram>,
}

/// A compiled program in another file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EmbeddedProgram {
    /// Where it begins.
    pub at: usize,
    /// The engine it is for, if the program can be read.
    pub generation: Option<String>,
    /// Why it cannot be read.
    pub error: Option<String>,
}

impl E5Program {
    /// Reads a file.
    ///
    /// # Errors
    /// E0730 for what is no FlatBuffer.
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
        // A small number may look like an offset as well, to what follows the root for one.
        let version = field(3).filter(|f| f.room >= 4).and_then(|f| u32_at(file, f.at));
        wanted(3, "number", version.is_some());
        let more = walk.tables.first().map_or(0, |root| root.fields.iter().filter(|f| f.id > 3).count());
        if more > 0 {
            odd.push(format!("the root has {more} more fields than the four that are reported"));
        }
        Ok(E5Program { version, symbols, sections, odd, programs: embedded(file), walk })
    }
}

/// Compiled programs that begin somewhere in a file, the first few.
pub fn embedded(file: &[u8]) -> Vec<EmbeddedProgram> {
    let places = (0..file.len().saturating_sub(7)).filter(|at| is_program(&file[*at..(*at + 8)]));
    let mut readable = 0;
    let one = |at: usize| {
        // A reader copies what it reads, so not for every place that a hostile file may have.
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
