//! Programs as text.
//!
//! [`generic`] prints the file as it is, in MLIR's generic form, and [`program`] the program in the
//! form of Apple's tools, as `Module.as_string()` of coreai-core does. Contents of resources are
//! left out.
//!
//! Text of a hostile file is bounded by a multiple of the file's length: what is longer, as a file
//! whose attributes contain each other many times, is cut where `…` stands.

mod forms;
mod generic;
mod number;
mod program;
mod spell;

use crate::bytecode::{Block, Bytecode};

pub use generic::{Locations, generic};
pub use program::program;
pub(crate) use program::shows_regions;
pub(crate) use spell::{kind_text as kind, port_names};

/// How deep attributes may contain each other in text.
const DEPTH: usize = 64;
/// The length of text that any file may have, in bytes.
const SHORT: usize = 1 << 20;
/// Bytes of text for each byte of a longer file. Samples of coreai-torch have up to 60.
const RATIO: usize = 256;

/// How much is printed of a file that refers to its entries again and again.
struct Budget {
    /// The length of the whole text.
    length: usize,
    depth: usize,
}

impl Budget {
    fn of(file: &Bytecode<'_>) -> Self {
        let strings = file.strings.iter().chain(&file.properties).map(|bytes| bytes.len()).sum::<usize>();
        let entries = file.attributes.iter().chain(&file.types).map(|entry| entry.bytes.len()).sum::<usize>();
        let size = strings + entries + operations(&file.body);
        Self { length: SHORT + RATIO * size, depth: 0 }
    }

    /// Whether the text has room for more.
    fn is_open(&self, out: &str) -> bool {
        out.len() < self.length
    }

    /// Enters one more attribute or type; `false` if it should be cut.
    fn enter(&mut self, out: &str) -> bool {
        let open = self.depth < DEPTH && self.is_open(out);
        self.depth += usize::from(open);
        open
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }
}

fn operations(block: &Block) -> usize {
    let inner = block.operations.iter().flat_map(|o| &o.regions).flat_map(|r| &r.blocks);
    block.operations.len() + inner.map(operations).sum::<usize>()
}

/// A string in quotes, with MLIR's escapes: bytes that do not print are `\` and two digits.
fn quoted(bytes: &[u8], out: &mut String) {
    out.push('"');
    for byte in bytes {
        match byte {
            b'\\' => out.push_str("\\\\"),
            b'"' => out.push_str("\\22"),
            0x20..=0x7e => out.push(char::from(*byte)),
            _ => out.push_str(&format!("\\{byte:02X}")),
        }
    }
    out.push('"');
}

/// A list with commas between its items.
fn comma<T>(out: &mut String, items: impl IntoIterator<Item = T>, mut print: impl FnMut(&mut String, T)) {
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        print(out, item);
    }
}

/// Bytes in hexadecimal, as MLIR prints entries that it cannot decode.
fn hex(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        out.push_str(&format!("{byte:02X}"));
    }
}
