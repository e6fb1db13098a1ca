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

use crate::bytecode::{AttributeId, Block, Bytecode, EncodedEntry, TypeId};
use crate::dialect::Decoded;

pub use generic::{Locations, generic};
pub(crate) use number::small_float;
pub use program::program;
pub(crate) use program::shows_regions;
pub(crate) use spell::{port_names, ty};

/// How deep attributes may contain each other in text.
const DEPTH: usize = 64;
/// The length of text that any file may have, in bytes.
const SHORT: usize = 1 << 20;
/// Bytes of text for each byte of a longer file. Samples of coreai-torch have up to 60.
const RATIO: usize = 256;

/// Text that grows up to a limit.
///
/// A file may refer to its entries again and again. What is decoded for the text is charged as if
/// it were printed, and so is what is printed and taken back, so that the limit also bounds time.
pub(crate) struct BoundedText {
    text: String,
    limit: usize,
    /// Bytes that count against the limit and are not in the text.
    charged: usize,
    /// How many attributes and types contain the one that is being printed.
    depth: usize,
    /// Whether the text ends with `…`.
    is_cut: bool,
}

impl BoundedText {
    pub(crate) fn of(file: &Bytecode<'_>) -> Self {
        let strings = file.strings.iter().chain(&file.properties).map(|bytes| bytes.len()).sum::<usize>();
        let entries = file.attributes.iter().chain(&file.types).map(|entry| entry.bytes.len()).sum::<usize>();
        let size = strings + entries + operations(&file.body);
        Self { text: String::new(), limit: SHORT + RATIO * size, charged: 0, depth: 0, is_cut: false }
    }

    /// Whether there is room for more.
    pub(crate) fn is_open(&self) -> bool {
        self.text.len() + self.charged < self.limit
    }

    /// Adds to the text. The first addition that finds no room becomes `…`, further ones nothing.
    pub(crate) fn push_str(&mut self, text: &str) {
        if self.is_open() {
            self.text.push_str(text);
        } else if !self.is_cut {
            self.is_cut = true;
            self.text.push('…');
        }
    }

    fn push(&mut self, c: char) {
        self.push_str(c.encode_utf8(&mut [0; 4]));
    }

    /// Counts bytes against the limit.
    pub(crate) fn charge(&mut self, bytes: usize) {
        self.charged = self.charged.saturating_add(bytes).min(self.limit);
    }

    /// Takes back what follows a position.
    fn truncate(&mut self, position: usize) {
        self.is_cut &= self.text.len() == position;
        self.charge(self.text.len() - position);
        self.text.truncate(position);
    }

    /// Removes the first of `words` that stands at a position.
    fn strip(&mut self, position: usize, words: &[&str]) {
        if let Some(word) = words.iter().find(|word| self.text[position..].starts_with(**word)) {
            self.text.replace_range(position..position + word.len(), "");
        }
    }

    /// What `print` adds, which still counts against the limit.
    pub(crate) fn apart(&mut self, print: impl FnOnce(&mut Self)) -> String {
        let (position, was_cut) = (self.text.len(), self.is_cut);
        self.is_cut = false;
        print(self);
        self.is_cut = was_cut;
        let text = self.text.split_off(position);
        self.charge(text.len());
        text
    }

    /// An attribute with its fields. `None` if its kind is not known, or if there is no room.
    pub(crate) fn attribute<'f>(&mut self, file: &'f Bytecode<'_>, id: AttributeId) -> Option<Decoded<'f>> {
        self.decoding(file.attributes.get(id.0 as usize)?).then(|| file.attribute(id)).flatten()
    }

    /// A type with its fields. `None` if its kind is not known, or if there is no room.
    pub(crate) fn ty<'f>(&mut self, file: &'f Bytecode<'_>, id: TypeId) -> Option<Decoded<'f>> {
        self.decoding(file.types.get(id.0 as usize)?).then(|| file.ty(id)).flatten()
    }

    /// Charges an entry that will be decoded; `false` if there is no room.
    fn decoding(&mut self, entry: &EncodedEntry<'_>) -> bool {
        let open = self.is_open();
        self.charge(entry.bytes.len());
        open
    }

    /// Enters one more attribute or type; `false` if it should be cut.
    fn enter(&mut self) -> bool {
        let open = self.depth < DEPTH && self.is_open();
        self.depth += usize::from(open);
        open
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }

    /// The text as it is.
    fn finish(mut self) -> String {
        if self.is_cut {
            self.text.push('\n');
        }
        self.text
    }
}

fn operations(block: &Block) -> usize {
    let inner = block.operations.iter().flat_map(|o| &o.regions).flat_map(|r| &r.blocks);
    block.operations.len() + inner.map(operations).sum::<usize>()
}

/// A string in quotes, with MLIR's escapes: bytes that do not print are `\` and two digits.
fn quoted(bytes: &[u8], out: &mut BoundedText) {
    out.push('"');
    for byte in bytes {
        if !out.is_open() {
            return out.push_str("");
        }
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
fn comma<T>(out: &mut BoundedText, items: impl IntoIterator<Item = T>, mut print: impl FnMut(&mut BoundedText, T)) {
    separated(out, ", ", items, &mut print);
}

/// A list with a separator between its items.
fn separated<T>(
    out: &mut BoundedText,
    by: &str,
    items: impl IntoIterator<Item = T>,
    print: &mut dyn FnMut(&mut BoundedText, T),
) {
    for (index, item) in items.into_iter().enumerate() {
        if !out.is_open() {
            return out.push_str("");
        }
        if index > 0 {
            out.push_str(by);
        }
        print(out, item);
    }
}

/// Bytes in hexadecimal, as MLIR prints entries that it cannot decode.
fn hex(bytes: &[u8], out: &mut BoundedText) {
    for byte in bytes {
        if !out.is_open() {
            return out.push_str("");
        }
        out.push_str(&format!("{byte:02X}"));
    }
}
