//! Files that accompany compiled programs: bundles of the E5 runtime, compiled models, and inputs
//! of the compiler.
//!
//! Files are recognized by their contents ([`recognize`]), never by their names. Most of these
//! formats are published only in part; unknown parts are reported as unknown and never guessed.

pub mod coreml;
pub mod e5;
pub mod espresso;
pub mod flat;
mod folder;
pub mod network;
mod summary;

pub use folder::{FoundFile, file, scan};
use serde::Serialize;
pub use summary::{Fact, FileSummary};

use crate::anec;
use crate::container::{CPU, MAGIC, MAGIC_MACHO};

/// The number of bytes from the start of a file that [`recognize`] needs, or all of a shorter file.
pub const HEAD_BYTES: usize = 0x10000;

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A compiled program ([`crate::Hwx`]).
    Hwx,
    /// A program for the Linux driver ([`crate::anec::Anec`]).
    Anec,
    /// A FlatBuffer, such as the program of an E5 bundle ([`e5`]).
    E5,
    /// `coremldata.bin` of a compiled model ([`coreml::ModelHeader`]).
    CoremlData,
    /// `analytics/coremldata.bin` ([`coreml::ModelAnalytics`]).
    Analytics,
    /// `net.plist`, the compiler's description of a network ([`network`]).
    Network,
    /// `model.espresso.net` or `model.espresso.shape` as JSON ([`espresso::EspressoNet`]).
    EspressoNet,
    /// The same, packed ([`espresso::EspressoPacked`]).
    EspressoPacked,
    /// `model.espresso.weights` ([`espresso::EspressoWeights`]).
    EspressoWeights,
    /// A file of weights of an ML Program, `weight.bin`.
    Blob,
}

impl FileKind {
    /// A short description for messages.
    pub fn name(self) -> &'static str {
        match self {
            FileKind::Hwx => "a compiled program (.hwx)",
            FileKind::Anec => "a program for the Linux driver (.anec)",
            FileKind::E5 => "a FlatBuffer, as E5 bundles have (.e5)",
            FileKind::CoremlData => "the header of a compiled model (coremldata.bin)",
            FileKind::Analytics => "the analytics of a compiled model (analytics/coremldata.bin)",
            FileKind::Network => "the compiler's description of a network (net.plist)",
            FileKind::EspressoNet => "a network or its shapes for Espresso (model.espresso.net, .shape)",
            FileKind::EspressoPacked => "a packed file for Espresso (pbze)",
            FileKind::EspressoWeights => "weights for Espresso (model.espresso.weights)",
            FileKind::Blob => "a file of weights of an ML Program (weight.bin)",
        }
    }
}

/// The little-endian u32 at byte `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// The little-endian u64 at byte `at`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(u32_at(bytes, at)?) | u64::from(u32_at(bytes, at.checked_add(4)?)?) << 32)
}

/// True if the bytes begin like a compiled program. The newer magic number is that of every 64-bit
/// Mach-O file; the engine's cputype decides.
pub(crate) fn is_program(head: &[u8]) -> bool {
    u32_at(head, 0).is_some_and(|magic| [MAGIC, MAGIC_MACHO].contains(&magic)) && u32_at(head, 4) == Some(CPU)
}

/// Recognizes a file by its first [`HEAD_BYTES`] bytes (or all of them) and its length. `None` if
/// it is none of these formats.
pub fn recognize(head: &[u8], length: u64) -> Option<FileKind> {
    let text = head.trim_ascii_start();
    if is_program(head) || u32_at(head, 0) == Some(MAGIC) {
        return Some(FileKind::Hwx);
    }
    if head.starts_with(b"pbze") {
        return Some(FileKind::EspressoPacked);
    }
    if head.starts_with(b"bplist00")
        || (text.starts_with(b"<?xml") || text.starts_with(b"<plist")) && contains(text, b"<plist")
    {
        return Some(FileKind::Network);
    }
    if text.starts_with(b"{")
        && [&b"\"layer_shapes\""[..], b"\"layers\"", b"\"storage\""].iter().any(|k| contains(text, k))
    {
        return Some(FileKind::EspressoNet);
    }
    if coreml::ModelHeader::is(head) {
        return Some(FileKind::CoremlData);
    }
    if coreml::ModelAnalytics::is(head) {
        return Some(FileKind::Analytics);
    }
    if u32_at(head, 0).is_some_and(|n| n > 0) && u32_at(head, 4) == Some(2) && zero(head, 8..64) {
        return Some(FileKind::Blob);
    }
    if is_anec(head, length) {
        return Some(FileKind::Anec);
    }
    if espresso::EspressoWeights::is(head, length) {
        return Some(FileKind::EspressoWeights);
    }
    (length >= 32 && flat::begins(head)).then_some(FileKind::E5)
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|w| w == word)
}

/// True if the range lies in the bytes and is all zeros.
fn zero(bytes: &[u8], range: std::ops::Range<usize>) -> bool {
    bytes.get(range).is_some_and(|b| b.iter().all(|b| *b == 0))
}

/// True if the sizes in the header agree with each other and with the file's length.
fn is_anec(head: &[u8], length: u64) -> bool {
    let numbers: Option<Vec<u64>> = [0, 0x10, 0x18, 0x20].into_iter().map(|at| u64_at(head, at)).collect();
    let Some([size, text, constants, ports]) = numbers.as_deref() else { return false };
    let whole = text.checked_next_multiple_of(16).and_then(|t| t.checked_add(*constants));
    let first = u32_at(head, 8).map_or(0, u64::from);
    let counted = (ports & 0xffff_ffff) + (ports >> 32) <= anec::MAX_PORTS as u64;
    let lies = size.checked_add(anec::LIBANE_PAYLOAD as u64).is_some_and(|end| end <= length);
    *text > 0 && whole == Some(*size) && (1..=*text).contains(&first) && counted && lies
}
