//! The generations of the engine and their registers, from one table.
//!
//! The table is data (`data/registers.txt`); its first lines say how it is written. Everything that
//! knows a register reads it here, so a name, a bit position or a default exists once. A register
//! that the table does not name is still decoded, printed and assembled, by its address.

use std::sync::OnceLock;

use serde::Serialize;

const DATA: &str = include_str!("../data/registers.txt");

/// How well a fact is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// Checked on samples.
    Verified,
    /// Reported by somebody, not checked here.
    Reported,
    /// Read from samples by its values, a guess.
    Inferred,
}

impl Evidence {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Evidence::Verified => "verified",
            Evidence::Reported => "reported",
            Evidence::Inferred => "inferred",
        }
    }
}

/// How the records of a descriptor are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFormat {
    /// Runs of words at byte addresses; descriptors are chained by a pointer.
    ByteAddressed,
    /// Dense, masked and address packets at word addresses; descriptors follow each other.
    WordAddressed,
    /// Not known.
    Unknown,
}

/// What a field's number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A number.
    Number,
    /// The bits of an fp16.
    Float16,
    /// An fp32 whose lower 13 bits are zero.
    Float19,
    /// The bits of an fp32.
    Float32,
    /// One of named values; others are numbers.
    Named(&'static [(u32, &'static str)]),
}

/// Some bits of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// The highest bit.
    pub hi: u32,
    /// The lowest bit.
    pub lo: u32,
    /// True if the value keeps its place in the word: addresses and strides, whose lower bits are
    /// zero.
    pub in_place: bool,
    /// What it means.
    pub kind: FieldKind,
}

impl Field {
    /// Its bits in the word.
    pub fn mask(&self) -> u32 {
        let width = self.hi - self.lo + 1;
        (u32::MAX >> (32 - width)) << self.lo
    }

    /// Its value in a word.
    pub fn get(&self, word: u32) -> u32 {
        if self.in_place { word & self.mask() } else { (word & self.mask()) >> self.lo }
    }

    /// The word with this value; `None` if it does not fit.
    pub fn set(&self, word: u32, value: u32) -> Option<u32> {
        let placed = if self.in_place { value } else { value.checked_shl(self.lo)? };
        let back = if self.in_place { placed } else { placed >> self.lo };
        (placed & !self.mask() == 0 && back == value).then_some(word & !self.mask() | placed)
    }

    /// The name of a value.
    pub fn word(&self, value: u32) -> Option<&'static str> {
        let FieldKind::Named(names) = self.kind else { return None };
        names.iter().find(|(v, _)| *v == value).map(|(_, name)| *name)
    }

    /// The value of a name.
    pub fn value(&self, word: &str) -> Option<u32> {
        let FieldKind::Named(names) = self.kind else { return None };
        names.iter().find(|(_, name)| *name == word).map(|(v, _)| *v)
    }
}

/// A register, or several of one name at consecutive addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// Its byte address; in a descriptor's header the index of its word.
    pub address: u32,
    /// How many there are, four bytes apart.
    pub count: u32,
    /// Its name.
    pub name: &'static str,
    /// How well it is known.
    pub evidence: Evidence,
    /// What it holds where a descriptor does not set it.
    pub default: Option<u32>,
    /// Its bits.
    pub fields: Vec<Field>,
    /// More about it.
    pub note: &'static str,
}

impl Register {
    /// The field of a name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| f.name == name)
    }

    /// Its name with the index, if there are several.
    pub fn label(&self, index: u32) -> String {
        if self.count > 1 { format!("{}[{index}]", self.name) } else { self.name.to_string() }
    }

    /// All bits that have a field.
    pub fn known(&self) -> u32 {
        self.fields.iter().fold(0, |bits, f| bits | f.mask())
    }
}

/// Registers that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterBlock {
    /// Its name.
    pub name: &'static str,
    /// The address of its first register.
    pub address: u32,
    /// Its length in words, where it is known.
    pub words: Option<u32>,
    /// Its registers, by address.
    pub registers: Vec<Register>,
}

/// One generation of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Its name, `h13`.
    pub name: &'static str,
    /// `cpusubtype` in the header of a file.
    pub subtype: u32,
    /// The compiler's number of the descriptor.
    pub version: u32,
    /// What it is sold as; empty if nobody says.
    pub chips: &'static str,
    /// How descriptors are written.
    pub record_format: RecordFormat,
    /// Words of a descriptor's header.
    pub header_words: usize,
    /// Word and bit that announce one more word.
    pub extra: Option<(usize, u32)>,
    /// How well it is known.
    pub evidence: Evidence,
    /// The words of the header; `address` is the index.
    pub header: Vec<Register>,
    /// The registers.
    pub blocks: Vec<RegisterBlock>,
}

impl Generation {
    /// The block that an address lies in: the one that begins last before it.
    pub fn block(&self, address: u32) -> Option<&RegisterBlock> {
        let block = self.blocks.iter().filter(|b| b.address <= address).max_by_key(|b| b.address)?;
        block.words.is_none_or(|n| (address - block.address) / 4 < n).then_some(block)
    }

    /// The register at an address, with its index.
    pub fn register(&self, address: u32) -> Option<(&Register, u32)> {
        let block = self.block(address)?;
        let at = block.registers.partition_point(|r| r.address <= address).checked_sub(1)?;
        let register = &block.registers[at];
        let index = (address - register.address) / 4;
        (index < register.count && address.is_multiple_of(4)).then_some((register, index))
    }

    /// The register of a name in a block; `Name[3]` has an index.
    pub fn named(&self, block: &str, name: &str) -> Option<(&Register, u32)> {
        let block = self.blocks.iter().find(|b| b.name == block)?;
        indexed(&block.registers, name)
    }

    /// The address of a register by its name; for names that the table has.
    pub fn address(&self, block: &str, name: &str) -> Option<u32> {
        self.named(block, name).map(|(r, i)| r.address + 4 * i)
    }

    /// The name of the register at an address, with its block: `Common.ConvCfg`.
    pub fn label(&self, address: u32) -> String {
        match (self.block(address), self.register(address)) {
            (Some(block), Some((r, index))) => format!("{}.{}", block.name, r.label(index)),
            (Some(block), None) => format!("{}.{address:#x}", block.name),
            _ => format!("{address:#x}"),
        }
    }
}

/// The register of a name, which may carry an index.
pub(crate) fn indexed<'a>(registers: &'a [Register], name: &str) -> Option<(&'a Register, u32)> {
    let (base, index) = match name.strip_suffix(']').and_then(|n| n.split_once('[')) {
        Some((base, index)) => (base, index.parse().ok()?),
        None => (name, 0),
    };
    let register = registers.iter().find(|r| r.name == base)?;
    (index < register.count && (register.count > 1 || base == name)).then_some((register, index))
}

/// All generations, by subtype.
pub fn generations() -> &'static [Generation] {
    static TABLE: OnceLock<Vec<Generation>> = OnceLock::new();
    // The table is part of the program and a test reads it.
    TABLE.get_or_init(|| table(DATA).unwrap_or_else(|line| unreachable!("registers.txt: {line}")))
}

/// The generation of a `cpusubtype`.
pub fn by_subtype(subtype: u32) -> Option<&'static Generation> {
    generations().iter().find(|g| g.subtype == subtype)
}

/// The generation of a name.
pub fn by_name(name: &str) -> Option<&'static Generation> {
    generations().iter().find(|g| g.name == name)
}

type Names = Vec<(&'static str, &'static [(u32, &'static str)])>;

/// Reads the table; an error is the line that is wrong.
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

/// `NAME[HI:LO]`, with `<<` or `:KIND` behind it.
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
