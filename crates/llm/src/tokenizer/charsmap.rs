//! SentencePiece's compiled normalization rules: a double-array trie of strings, and their
//! replacements.
//!
//! Layout, little-endian: the size of the trie in bytes as uint32, the trie as uint32 units, then
//! zero-terminated UTF-8 replacements that the trie's values index. A unit holds a label in its low
//! byte, the flag "a value follows" in bit 8, and in the bits above the offset of its children,
//! shifted by 8 more if bit 9 is set. Every access is checked: a lookup in a damaged trie returns
//! no match.

use super::Error;

#[derive(Debug, Clone, Default)]
pub(super) struct CharsMap {
    units: Vec<u32>,
    text: Vec<u8>,
}

impl CharsMap {
    pub(super) fn read(bytes: &[u8]) -> Result<CharsMap, Error> {
        if bytes.is_empty() {
            return Ok(CharsMap::default());
        }
        let bad = |what: &str| Error::Format(format!("SentencePiece normalizer: {what}"));
        let (head, rest) = bytes.split_at_checked(4).ok_or_else(|| bad("the compiled rules end inside their size"))?;
        let size = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if !size.is_multiple_of(4) || size > rest.len() {
            return Err(bad(&format!("a trie of {size} bytes in {} bytes of rules", rest.len())));
        }
        let (trie, text) = rest.split_at(size);
        let units = trie.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        Ok(CharsMap { units, text: text.to_vec() })
    }

    /// The longest rule that matches the start of `text`: its length in bytes and the replacement.
    pub(super) fn longest(&self, text: &str) -> Option<(usize, &str)> {
        let children = |at: usize, unit: u32| at ^ ((unit >> 10) << ((unit & 1 << 9) >> 6)) as usize;
        let mut unit = *self.units.first()?;
        let mut at = children(0, unit);
        let mut found = None;
        for (i, byte) in text.bytes().enumerate() {
            // A zero byte would match the trie's end mark.
            if byte == 0 {
                break;
            }
            at ^= byte as usize;
            let Some(&next) = self.units.get(at) else { break };
            unit = next;
            if unit & (1 << 31 | 0xff) != u32::from(byte) {
                break;
            }
            at = children(at, unit);
            if unit >> 8 & 1 == 1 {
                let Some(value) = self.units.get(at) else { break };
                found = Some((i + 1, (value & 0x7fff_ffff) as usize));
            }
        }
        let (length, start) = found.filter(|&(length, _)| text.is_char_boundary(length))?;
        let rest = self.text.get(start..)?;
        let end = rest.iter().position(|&b| b == 0)?;
        Some((length, std::str::from_utf8(&rest[..end]).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A handwritten trie with the single rule `a` → `b`: the root's children lie at 0 ^ 'a' with
    /// offset 128.
    fn one_rule() -> Vec<u8> {
        let mut units = vec![0u32; 256];
        units[0] = 128 << 10;
        let at = 128 ^ b'a' as usize;
        let leaf = at ^ 1;
        units[at] = 1 << 10 | 1 << 8 | u32::from(b'a');
        units[leaf] = 1 << 31;
        let mut bytes = 1024u32.to_le_bytes().to_vec();
        bytes.extend(units.iter().flat_map(|u| u.to_le_bytes()));
        bytes.extend_from_slice(b"b\0");
        bytes
    }

    #[test]
    fn finds_its_rule() {
        let map = CharsMap::read(&one_rule()).unwrap();
        assert_eq!(map.longest("abc"), Some((1, "b")));
        assert_eq!(map.longest("bc"), None);
        assert_eq!(map.longest(""), None);
    }

    #[test]
    fn damaged_tries_are_refused_or_find_nothing() {
        let good = one_rule();
        for cut in 1..4 {
            assert!(CharsMap::read(&good[..cut]).is_err());
        }
        assert!(CharsMap::read(&good[..1000]).is_err());
        let mut huge = good.clone();
        huge[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(CharsMap::read(&huge).is_err());
        let mut wild = good;
        for unit in wild[4..1028].chunks_exact_mut(4) {
            unit.copy_from_slice(&0x7fff_ff61u32.to_le_bytes());
        }
        assert_eq!(CharsMap::read(&wild).unwrap().longest("aaaa"), None);
    }
}
