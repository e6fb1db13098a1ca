//! The generations of the engine and their registers, read from one table.
//!
//! The table is data (`data/registers.txt`); its first lines describe its format. Decoder, encoder,
//! printer and assembler all use it, so each name, bit position and default has a single
//! definition. A register that is not in the table is still decoded, printed and assembled, by its
//! address.

use std::sync::OnceLock;

use serde::Serialize;

const DATA: &str = include_str!("../data/registers.txt");

/// How well a fact is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// Verified on sample files by tests.
    Verified,
    /// Published by another project, not verified here.
    Reported,
    /// Inferred from values in samples: a guess.
    Inferred,
}

impl Evidence {
    /// The word for it in descriptions.
    pub fn name(self) -> &'static str {
        match self {
            Evidence::Verified => "verified",
            Evidence::Reported => "reported",
            Evidence::Inferred => "inferred",
        }
    }
}

/// The encoding of a descriptor's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFormat {
    /// Runs of words at byte addresses; descriptors are chained by a pointer.
    ByteAddressed,
    /// Dense, masked and address packets at word addresses; descriptors follow each other.
    WordAddressed,
    /// The encoding is not known.
    Unknown,
}

/// How the bits of a field are interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// An unsigned integer, printed as a number.
    Number,
    /// The bits of an fp16.
    Float16,
    /// An fp32 whose lower 13 bits are zero.
    Float19,
    /// The bits of an fp32.
    Float32,
    /// An enumeration; values without a name are printed as numbers.
    Named(&'static [(u32, &'static str)]),
}

/// A bit field of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name, unique in its register.
    pub name: &'static str,
    /// The highest bit, from 0 to 31.
    pub hi: u32,
    /// The lowest bit, from 0 to 31.
    pub lo: u32,
    /// True if the value is not shifted: addresses and strides, whose lower bits are zero.
    pub in_place: bool,
    /// The interpretation of the bits.
    pub kind: FieldKind,
}

impl Field {
    /// The mask of its bits in the word.
    pub fn mask(&self) -> u32 {
        let width = self.hi - self.lo + 1;
        (u32::MAX >> (32 - width)) << self.lo
    }

    /// Extracts the value from a word.
    pub fn get(&self, word: u32) -> u32 {
        if self.in_place { word & self.mask() } else { (word & self.mask()) >> self.lo }
    }

    /// The word with the field set to `value`; `None` if it does not fit.
    pub fn set(&self, word: u32, value: u32) -> Option<u32> {
        let placed = if self.in_place { value } else { value.checked_shl(self.lo)? };
        let back = if self.in_place { placed } else { placed >> self.lo };
        (placed & !self.mask() == 0 && back == value).then_some(word & !self.mask() | placed)
    }

    /// The name of an enumeration value, if it has one.
    pub fn word(&self, value: u32) -> Option<&'static str> {
        let FieldKind::Named(names) = self.kind else { return None };
        names.iter().find(|(v, _)| *v == value).map(|(_, name)| *name)
    }

    /// The value with this name, if there is one.
    pub fn value(&self, word: &str) -> Option<u32> {
        let FieldKind::Named(names) = self.kind else { return None };
        names.iter().find(|(_, name)| *name == word).map(|(v, _)| *v)
    }
}

/// A register, or an array of registers at consecutive addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// The byte address; for a word of a descriptor's header its index.
    pub address: u32,
    /// The number of elements, 4 bytes from one to the next; 1 for a single register.
    pub count: u32,
    /// The name, unique in its block.
    pub name: &'static str,
    /// The evidence for its meaning.
    pub evidence: Evidence,
    /// The value if a descriptor does not set it; `None` if that is not known.
    pub default: Option<u32>,
    /// The bit fields, without overlap.
    pub fields: Vec<Field>,
    /// A remark for docs/hwx-registers.md; may be empty.
    pub note: &'static str,
}

impl Register {
    /// The field with this name, if there is one.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| f.name == name)
    }

    /// The name, with the index for an array.
    pub fn label(&self, index: u32) -> String {
        if self.count > 1 { format!("{}[{index}]", self.name) } else { self.name.to_string() }
    }

    /// The mask of all bits that belong to a field.
    pub fn known(&self) -> u32 {
        self.fields.iter().fold(0, |bits, f| bits | f.mask())
    }
}

/// A group of registers of one hardware unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterBlock {
    /// The name, unique in its generation.
    pub name: &'static str,
    /// The byte address of its first register.
    pub address: u32,
    /// The length in words; `None` if it is not known.
    pub words: Option<u32>,
    /// The registers, sorted by address.
    pub registers: Vec<Register>,
}

/// One generation of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// A name such as `h13`.
    pub name: &'static str,
    /// The `cpusubtype` in the header of a file.
    pub subtype: u32,
    /// The compiler's version number of the descriptor format.
    pub version: u32,
    /// The chips with this engine; empty if they are not known.
    pub chips: &'static str,
    /// The encoding of records.
    pub record_format: RecordFormat,
    /// The length of a descriptor's header in words.
    pub header_words: usize,
    /// The word and the bit that announce an additional header word, if any.
    pub extra: Option<(usize, u32)>,
    /// The evidence for the descriptor format.
    pub evidence: Evidence,
    /// The words of the header; `address` is the word's index.
    pub header: Vec<Register>,
    /// The register blocks, in the order of the table.
    pub blocks: Vec<RegisterBlock>,
}

impl Generation {
    /// The block of an address: the one with the highest start at or below it, if it reaches that
    /// far.
    pub fn block(&self, address: u32) -> Option<&RegisterBlock> {
        let block = self.blocks.iter().filter(|b| b.address <= address).max_by_key(|b| b.address)?;
        block.words.is_none_or(|n| (address - block.address) / 4 < n).then_some(block)
    }

    /// The register at an address, and the index in its array.
    pub fn register(&self, address: u32) -> Option<(&Register, u32)> {
        let block = self.block(address)?;
        let at = block.registers.partition_point(|r| r.address <= address).checked_sub(1)?;
        let register = &block.registers[at];
        let index = (address - register.address) / 4;
        (index < register.count && address.is_multiple_of(4)).then_some((register, index))
    }

    /// The register with this name in a block, and the index: `Name[3]` has index 3.
    pub fn named(&self, block: &str, name: &str) -> Option<(&Register, u32)> {
        let block = self.blocks.iter().find(|b| b.name == block)?;
        indexed(&block.registers, name)
    }

    /// The address of a register by name, if the table has it.
    pub fn address(&self, block: &str, name: &str) -> Option<u32> {
        self.named(block, name).map(|(r, i)| r.address + 4 * i)
    }

    /// The register at an address as block and name: `Common.ConvCfg`.
    pub fn label(&self, address: u32) -> String {
        match (self.block(address), self.register(address)) {
            (Some(block), Some((r, index))) => format!("{}.{}", block.name, r.label(index)),
            (Some(block), None) => format!("{}.{address:#x}", block.name),
            _ => format!("{address:#x}"),
        }
    }
}

/// The register with this name, which may carry an index.
pub(crate) fn indexed<'a>(registers: &'a [Register], name: &str) -> Option<(&'a Register, u32)> {
    let (base, index) = match name.strip_suffix(']').and_then(|n| n.split_once('[')) {
        Some((base, index)) => (base, index.parse().ok()?),
        None => (name, 0),
    };
    let register = registers.iter().find(|r| r.name == base)?;
    (index < register.count && (register.count > 1 || base == name)).then_some((register, index))
}

/// All generations, sorted by subtype.
pub fn generations() -> &'static [Generation] {
    static TABLE: OnceLock<Vec<Generation>> = OnceLock::new();
    // The table is compiled in, and a test reads it, so it is valid.
    TABLE.get_or_init(|| table(DATA).unwrap_or_else(|line| unreachable!("registers.txt: {line}")))
}

/// The generation with this `cpusubtype`, if it is known.
pub fn by_subtype(subtype: u32) -> Option<&'static Generation> {
    generations().iter().find(|g| g.subtype == subtype)
}

/// The generation with this name, if it is known.
pub fn by_name(name: &str) -> Option<&'static Generation> {
    generations().iter().find(|g| g.name == name)
}

type Names = Vec<(&'static str, &'static [(u32, &'static str)])>;

/// Parses the table; the error is the offending line.
fn table(text: &'static str) -> Result<Vec<Generation>, &'static str> {
    let mut names: Names = Vec::new();
    let mut all: Vec<Generation> = Vec::new();
    for line in text.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        read_line(line, &mut names, &mut all).ok_or(line)?;
    }
    Ok(all)
}

fn read_line(line: &'static str, names: &mut Names, all: &mut Vec<Generation>) -> Option<()> {
    let mut words = line.split_ascii_whitespace();
    match words.next()? {
        "enum" => {
            let name = words.next()?;
            let values = words.map(|w| w.split_once('=').and_then(|(v, n)| Some((v.parse().ok()?, n))));
            names.push((name, Vec::leak(values.collect::<Option<Vec<_>>>()?)));
        }
        "generation" => all.push(Generation {
            name: words.next()?,
            subtype: 0,
            version: 0,
            chips: "",
            record_format: RecordFormat::Unknown,
            header_words: 0,
            extra: None,
            evidence: Evidence::Reported,
            header: Vec::new(),
            blocks: Vec::new(),
        }),
        "subtype" => all.last_mut()?.subtype = words.next()?.parse().ok()?,
        "version" => all.last_mut()?.version = words.next()?.parse().ok()?,
        "chips" => all.last_mut()?.chips = line.trim_start().strip_prefix("chips ")?,
        "stream" => {
            all.last_mut()?.record_format = match words.next()? {
                "bytes" => RecordFormat::ByteAddressed,
                "words" => RecordFormat::WordAddressed,
                "none" => RecordFormat::Unknown,
                _ => return None,
            }
        }
        "header" => {
            let generation = all.last_mut()?;
            generation.header_words = words.next()?.parse().ok()?;
            if let Some((word, bit)) = words.next().and_then(|w| w.split_once('.')) {
                generation.extra = Some((word.parse().ok()?, bit.parse().ok()?));
            }
        }
        "evidence" => all.last_mut()?.evidence = evidence(words.next()?)?,
        "like" => {
            let other = words.next()?;
            let (header, blocks) =
                all.iter().find(|g| g.name == other).map(|g| (g.header.clone(), g.blocks.clone()))?;
            let generation = all.last_mut()?;
            (generation.header, generation.blocks) = (header, blocks);
        }
        "block" => {
            let (name, address) = (words.next()?, number(words.next()?)?);
            let words = words.next().map(str::parse).transpose().ok()?;
            all.last_mut()?.blocks.push(RegisterBlock { name, address, words, registers: Vec::new() });
        }
        "head" => {
            let (_, rest) = line.split_once('|')?;
            let register = register(rest, names)?;
            all.last_mut()?.header.push(register);
        }
        _ => {
            let register = register(line, names)?;
            let list = &mut all.last_mut()?.blocks.last_mut()?.registers;
            if list.last().is_some_and(|last| register.address < last.address + 4 * last.count) {
                return None;
            }
            list.push(register);
        }
    }
    Some(())
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn evidence(text: &str) -> Option<Evidence> {
    Some(match text {
        "v" => Evidence::Verified,
        "r" => Evidence::Reported,
        "s" => Evidence::Inferred,
        _ => return None,
    })
}

/// `ADDRESS[*N] | NAME | EVIDENCE [=DEFAULT] | FIELDS | NOTE`
fn register(line: &'static str, names: &Names) -> Option<Register> {
    let mut cells = line.split('|').map(str::trim);
    let address = cells.next()?;
    let (address, count) = address.split_once('*').map_or((address, Some(1)), |(a, n)| (a, n.parse().ok()));
    let name = cells.next()?;
    let (tag, default) = cells.next().map(|c| c.split_once(" =").map_or((c, None), |(t, d)| (t, Some(d))))?;
    let fields = cells.next()?.split_ascii_whitespace().map(|f| field(f, names)).collect::<Option<Vec<_>>>()?;
    let note = cells.next()?;
    let default = default.map(|d| number(d).ok_or(())).transpose().ok()?;
    Some(Register { address: number(address)?, count: count?, name, evidence: evidence(tag)?, default, fields, note })
}

/// `NAME[HI:LO]`, optionally followed by `<<` or `:KIND`.
fn field(text: &'static str, names: &Names) -> Option<Field> {
    let (name, rest) = text.split_once('[')?;
    let (bits, kind) = rest.split_once(']')?;
    let (hi, lo) = bits.split_once(':').unwrap_or((bits, bits));
    let (hi, lo) = (hi.parse().ok()?, lo.parse().ok()?);
    let in_place = kind == "<<";
    let kind = match kind {
        "" | "<<" => FieldKind::Number,
        ":f16" => FieldKind::Float16,
        ":f19" => FieldKind::Float19,
        ":f32" => FieldKind::Float32,
        named => FieldKind::Named(names.iter().find(|(n, _)| Some(*n) == named.strip_prefix(':'))?.1),
    };
    (lo <= hi && hi < 32).then_some(Field { name, hi, lo, in_place, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        let all = table(DATA).unwrap();
        assert!(all.windows(2).all(|w| w[0].subtype < w[1].subtype));
        for g in &all {
            for list in std::iter::once(&g.header).chain(g.blocks.iter().map(|b| &b.registers)) {
                for (i, r) in list.iter().enumerate() {
                    let overlap =
                        r.fields.iter().try_fold(0, |bits: u32, f| (bits & f.mask() == 0).then_some(bits | f.mask()));
                    assert!(overlap.is_some(), "{} {}: fields overlap", g.name, r.name);
                    let twice = list[i + 1..].iter().any(|other| other.name == r.name);
                    assert!(!twice, "{} {}: named twice", g.name, r.name);
                    let fields = r.fields.iter().enumerate();
                    let twice = fields.clone().any(|(i, f)| r.fields[i + 1..].iter().any(|g| g.name == f.name));
                    assert!(!twice && r.field("Other").is_none(), "{} {}: a field is named twice", g.name, r.name);
                }
            }
            assert!(g.header.iter().all(|r| (r.address as usize) < g.header_words), "{}", g.name);
            for b in &g.blocks {
                for r in &b.registers {
                    let (found, index) = g.register(r.address + 4 * (r.count - 1)).unwrap();
                    assert_eq!((found.name, index), (r.name, r.count - 1), "{} {}", g.name, r.name);
                    assert_eq!(g.address(b.name, &r.label(0)), Some(r.address));
                }
            }
        }
        assert_eq!(table("generation x\nblock A 0x0\n0x0 | R | v | Wide[3:9] | \n"), Err("0x0 | R | v | Wide[3:9] | "));
    }

    #[test]
    fn fields_hold_their_bits() {
        let conv = by_name("h13").unwrap().named("Common", "ConvCfg").unwrap().0;
        assert_eq!(conv.fields.iter().map(|f| f.get(0x5042_a063)).collect::<Vec<_>>(), [3, 3, 0, 1, 1, 1, 1, 1, 1]);
        let kw = conv.field("Kw").unwrap();
        assert_eq!((kw.set(0x5042_a063, 1), kw.set(0, 32)), (Some(0x5042_a061), None));
        let stride = by_name("h13").unwrap().named("TileDMASrc", "RowStride").unwrap().0.fields[0];
        assert_eq!((stride.get(0xc0), stride.set(0, 0x80), stride.set(0, 0x81)), (0xc0, Some(0x80), None));
        assert_eq!(stride.set(0, u32::MAX), None);
    }
}
