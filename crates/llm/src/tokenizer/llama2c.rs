//! The llama2.c vocabulary file `tokenizer.bin` (training-dynamic §11) and its encoder.
//!
//! Layout, little-endian: the length of the longest piece in bytes as int32, then for each id a
//! float32 score, an int32 length and the bytes. There is no count and no magic number: the file
//! ends after a whole record. Ids 1 and 2 begin and end a sequence; `<0x00>` to `<0xFF>` are raw
//! bytes. Encoding prepends a space to a text that is not empty, looks up every character, falls
//! back to byte pieces, and merges by score.

use std::collections::HashMap;

use super::merge::{INERT, LONGEST_PIECE, Merges, Scratch};
use super::scored::Scored;
use super::sentencepiece::{BYTE, CONTROL, NORMAL, SPACE, UNKNOWN};
use super::{Error, Pieces, byte_piece};

#[derive(Debug, Clone)]
pub(super) struct Llama2c {
    pub(super) vocabulary: Vec<(Vec<u8>, f32)>,
    merges: Merges,
    chars: HashMap<char, u32>,
    bytes: Box<[Option<u32>; 256]>,
    unknown: Option<u32>,
}

/// Whether `bytes` look like such a file: a small length, then a whole first record.
pub(super) fn sniff(bytes: &[u8]) -> bool {
    let word = |at: usize| bytes.get(at..at + 4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    matches!((word(0), word(8)), (Some(longest), Some(first)) if (0..=1 << 16).contains(&longest) && (0..=longest).contains(&first)
        && bytes.len() as i64 >= 12 + i64::from(first))
}

pub(super) fn read(bytes: &[u8]) -> Result<Vec<(Vec<u8>, f32)>, Error> {
    let bad = |at: usize, what: String| Error::Format(format!("llama2.c tokenizer: {what} at byte {at}"));
    let mut vocabulary = Vec::new();
    let mut at = 4;
    if bytes.len() < 4 {
        return Err(bad(bytes.len(), "the file ends inside its first four bytes".into()));
    }
    while at < bytes.len() {
        let Some(head) = bytes.get(at..at + 8) else {
            return Err(bad(at, format!("the file ends inside the record of id {}", vocabulary.len())));
        };
        let score = f32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let length = i32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let length = usize::try_from(length).ok().filter(|&n| n <= LONGEST_PIECE).ok_or_else(|| {
            bad(at + 4, format!("id {} has length {length}, beyond 0..={LONGEST_PIECE}", vocabulary.len()))
        })?;
        let Some(piece) = bytes.get(at + 8..at + 8 + length) else {
            return Err(bad(at + 8, format!("id {} has {length} bytes, the file ends before", vocabulary.len())));
        };
        vocabulary.push((piece.to_vec(), score));
        at += 8 + length;
    }
    if vocabulary.is_empty() {
        return Err(bad(at, "no pieces".into()));
    }
    Ok(vocabulary)
}

pub(super) fn write(vocabulary: &[(Vec<u8>, f32)]) -> Vec<u8> {
    let longest = vocabulary.iter().map(|p| p.0.len()).max().unwrap_or(0);
    let mut out = (longest as i32).to_le_bytes().to_vec();
    for (piece, score) in vocabulary {
        out.extend_from_slice(&score.to_le_bytes());
        out.extend_from_slice(&(piece.len() as i32).to_le_bytes());
        out.extend_from_slice(piece);
    }
    out
}

impl Llama2c {
    pub(super) fn new(vocabulary: Vec<(Vec<u8>, f32)>) -> Llama2c {
        let symbols: Vec<(&[u8], f32)> = vocabulary.iter().map(|(b, s)| (b.as_slice(), *s)).collect();
        let mut by_bytes = HashMap::with_capacity(symbols.len());
        for (id, (bytes, _)) in symbols.iter().enumerate() {
            by_bytes.entry(*bytes).or_insert(id as u32);
        }
        // llama2.c starts its search for the best pair at this score.
        let merges = Merges::new(&symbols, &by_bytes, -1e10, |_| true);
        let mut chars = HashMap::new();
        let mut bytes = Box::new([None; 256]);
        for (&piece, &id) in &by_bytes {
            if let Some(byte) = byte_piece(piece) {
                bytes[byte as usize] = Some(id);
            }
            if let Ok(text) = std::str::from_utf8(piece) {
                let mut letters = text.chars();
                if let (Some(c), None) = (letters.next(), letters.next()) {
                    chars.insert(c, id);
                }
            }
        }
        let unknown = by_bytes.get(b"<unk>".as_slice()).copied();
        Llama2c { vocabulary, merges, chars, bytes, unknown }
    }

    /// The text of every id, and the ids that begin and end a sequence.
    pub(super) fn pieces(&self) -> (Pieces, Option<u32>, Option<u32>) {
        let count = self.vocabulary.len() as u32;
        let (bos, eos) = ((count > 2).then_some(1), (count > 2).then_some(2));
        let mut pieces = Pieces::default();
        for (id, (name, _)) in self.vocabulary.iter().enumerate() {
            let id = id as u32;
            let control = Some(id) == bos || Some(id) == eos;
            match byte_piece(name) {
                _ if control => pieces.push(&[]),
                Some(byte) => pieces.push(&[byte]),
                None => pieces.push(name),
            }
        }
        (pieces, bos, eos)
    }

    /// The pieces for the forms of other programs: as SentencePiece spells them.
    ///
    /// # Errors
    /// [`Error::Format`] for a piece that is not UTF-8 or has a `▁`, and bytes without a piece.
    pub(super) fn scored(&self) -> Result<Scored, Error> {
        if let Some(byte) = self.bytes.iter().position(Option::is_none) {
            return Err(Error::Format(format!("the vocabulary has no piece <0x{byte:02X}>")));
        }
        let (_, bos, eos) = self.pieces();
        let (mut names, mut kinds) = (Vec::new(), Vec::new());
        for (id, (piece, _)) in self.vocabulary.iter().enumerate() {
            let own = Some(id as u32);
            let text = std::str::from_utf8(piece).ok().filter(|text| !text.contains(SPACE));
            let text = text.ok_or_else(|| Error::Format(format!("piece {id} is not UTF-8, or has a {SPACE}")))?;
            let (name, kind) = match byte_piece(piece) {
                // llama2.c puts line ends around these, so that no text has them.
                _ if own == bos => ("<s>".to_string(), CONTROL),
                _ if own == eos => ("</s>".to_string(), CONTROL),
                _ if own == self.unknown => (text.to_string(), UNKNOWN),
                Some(byte) if own == self.bytes[byte as usize] => (text.to_string(), BYTE),
                _ => (text.replace(' ', SPACE), NORMAL),
            };
            names.push(name);
            kinds.push(kind);
        }
        let scores = self.vocabulary.iter().map(|(_, score)| *score).collect();
        Ok(Scored { names, scores, kinds, prefix: true, joins_spaces: false, charsmap: Vec::new() })
    }

    pub(super) fn id_of(&self, piece: &str) -> Option<u32> {
        self.vocabulary.iter().position(|(name, _)| name == piece.as_bytes()).map(|id| id as u32)
    }

    pub(super) fn encode(&self, text: &str) -> Vec<u32> {
        let mut symbols = Vec::with_capacity(text.len() + 1);
        let prefix = (!text.is_empty()).then_some(' ');
        for c in prefix.into_iter().chain(text.chars()) {
            if let Some(&id) = self.chars.get(&c) {
                symbols.push(id);
                continue;
            }
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                symbols.extend(self.bytes[byte as usize].or(self.unknown));
            }
        }
        let mut ids = Vec::with_capacity(symbols.len() / 2);
        self.merges.run(&mut symbols, &mut Scratch::default(), false, |id, _| {
            debug_assert!(id < INERT);
            ids.push(id);
        });
        ids
    }
}
