//! What lies around compiled programs: bundles of the E5 runtime, compiled models, and the compiler's own inputs.
//!
//! Files are known by their contents ([`recognise`]), never by their names. Of most of these formats only parts are published; what
//! is not known is told as such and never guessed.

pub mod coreml;
pub mod e5;
pub mod espresso;
pub mod flat;
mod folder;
pub mod network;

pub use folder::{Found, file, scan};
use serde::Serialize;

use crate::anec;
use crate::container::{CPU, MAGIC, MAGIC_MACHO};

/// Bytes of a file's beginning that [`recognise`] wants, if the file has them.
pub const HEAD: usize = 0x10000;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A compiled program ([`crate::Hwx`]).
    Hwx,
    /// A program for the Linux driver ([`crate::anec::Anec`]).
    Anec,
    /// A FlatBuffer, such as the program of an E5 bundle ([`e5`]).
    E5,
    /// `coremldata.bin` of a compiled model ([`coreml::Data`]).
    CoremlData,
    /// `analytics/coremldata.bin` ([`coreml::Analytics`]).
    Analytics,
    /// `net.plist`, the compiler's description of a network ([`network`]).
    Network,
    /// `model.espresso.net` or `model.espresso.shape` as JSON ([`espresso::Net`]).
    EspressoNet,
    /// The same, packed ([`espresso::Packed`]).
    EspressoPacked,
    /// `model.espresso.weights` ([`espresso::Weights`]).
    EspressoWeights,
    /// A file of weights of an ML Program, `weight.bin`.
    Blob,
}

impl Kind {
    /// What it is, for people.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Hwx => "a compiled program (.hwx)",
            Kind::Anec => "a program for the Linux driver (.anec)",
            Kind::E5 => "a FlatBuffer, as E5 bundles have (.e5)",
            Kind::CoremlData => "the header of a compiled model (coremldata.bin)",
            Kind::Analytics => "the analytics of a compiled model (analytics/coremldata.bin)",
            Kind::Network => "the compiler's description of a network (net.plist)",
            Kind::EspressoNet => "a network or its shapes for Espresso (model.espresso.net, .shape)",
            Kind::EspressoPacked => "a packed file for Espresso (pbze)",
            Kind::EspressoWeights => "weights for Espresso (model.espresso.weights)",
            Kind::Blob => "a file of weights of an ML Program (weight.bin)",
        }
    }
}

/// The number of four bytes at `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// The number of eight bytes at `at`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(u32_at(bytes, at)?) | u64::from(u32_at(bytes, at.checked_add(4)?)?) << 32)
}

/// True for what begins like a compiled program. The newer magic number is that of every 64-bit Mach-O; the engine's cputype tells.
pub(crate) fn is_program(head: &[u8]) -> bool {
    u32_at(head, 0).is_some_and(|magic| [MAGIC, MAGIC_MACHO].contains(&magic)) && u32_at(head, 4) == Some(CPU)
}

/// What a file is, by its first bytes ([`HEAD`] of them, or all) and its length. `None` for what is none of these.
pub fn recognise(head: &[u8], length: u64) -> Option<Kind> {
    let text = head.trim_ascii_start();
    if is_program(head) || u32_at(head, 0) == Some(MAGIC) {
        return Some(Kind::Hwx);
    }
    if head.starts_with(b"pbze") {
        return Some(Kind::EspressoPacked);
    }
    if head.starts_with(b"bplist00")
        || (text.starts_with(b"<?xml") || text.starts_with(b"<plist")) && contains(text, b"<plist")
    {
        return Some(Kind::Network);
    }
    if text.starts_with(b"{")
        && [&b"\"layer_shapes\""[..], b"\"layers\"", b"\"storage\""].iter().any(|k| contains(text, k))
    {
        return Some(Kind::EspressoNet);
    }
    if coreml::Data::is(head) {
        return Some(Kind::CoremlData);
    }
    if coreml::Analytics::is(head) {
        return Some(Kind::Analytics);
    }
    if u32_at(head, 0).is_some_and(|n| n > 0) && u32_at(head, 4) == Some(2) && zero(head, 8..64) {
        return Some(Kind::Blob);
    }
    if is_anec(head, length) {
        return Some(Kind::Anec);
    }
    if espresso::Weights::is(head, length) {
        return Some(Kind::EspressoWeights);
    }
    (length >= 32 && flat::begins(head)).then_some(Kind::E5)
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|w| w == word)
}

/// True if there are such bytes and all of them are zero.
fn zero(bytes: &[u8], range: std::ops::Range<usize>) -> bool {
    bytes.get(range).is_some_and(|b| b.iter().all(|b| *b == 0))
}

/// True if the header's sizes go together and with the file's length.
fn is_anec(head: &[u8], length: u64) -> bool {
    let numbers: Option<Vec<u64>> = [0, 0x10, 0x18, 0x20].into_iter().map(|at| u64_at(head, at)).collect();
    let Some([size, text, constants, ports]) = numbers.as_deref() else { return false };
    let whole = text.checked_next_multiple_of(16).and_then(|t| t.checked_add(*constants));
    let first = u32_at(head, 8).map_or(0, u64::from);
    let counted = (ports & 0xffff_ffff) + (ports >> 32) <= anec::MOST_PORTS as u64;
    let lies = size.checked_add(anec::NEAR as u64).is_some_and(|end| end <= length);
    *text > 0 && whole == Some(*size) && (1..=*text).contains(&first) && counted && lies
}
