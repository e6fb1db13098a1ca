//! Training of a small byte-pair vocabulary, deterministic by construction.
//!
//! Words are runs of letters and apostrophes with at most one leading space; every other character
//! stands alone and does not merge. The most frequent pair becomes a piece, repeatedly. Ties are
//! broken by the bytes of the pairs, so the result depends neither on the order of a hash map nor
//! on the number of threads.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Error;

pub(super) fn train(text: &str, size: usize) -> Result<Vec<(Vec<u8>, f32)>, Error> {
    let mut characters: BTreeMap<char, u64> = BTreeMap::new();
    characters.insert(' ', 1);
    for c in text.chars() {
        *characters.entry(c).or_default() += 1;
    }
    let fixed = 3 + 256 + characters.len();
    if fixed > size {
        return Err(Error::Format(format!(
            "a vocabulary of {size} pieces has no room for 3 control pieces, 256 bytes and the text's {} characters; ask for {fixed} or more",
            characters.len()
        )));
    }
    let merged = merges(text, size - fixed);

    let mut vocabulary: Vec<(Vec<u8>, f32)> = Vec::with_capacity(size);
    for name in ["<unk>", "\n<s>\n", "\n</s>\n"] {
        vocabulary.push((name.into(), 0.0));
    }
    vocabulary.extend((0..256).map(|byte| (format!("<0x{byte:02X}>").into_bytes(), 0.0)));
    let mut by_count: Vec<(char, u64)> = characters.into_iter().collect();
    by_count.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    let characters = by_count.into_iter().map(|(c, _)| c.to_string());
    for (rank, piece) in merged.into_iter().chain(characters).enumerate() {
        vocabulary.push((piece.into_bytes(), -(rank as f32)));
    }
    Ok(vocabulary)
}

/// The words of `text` with their counts, ordered by their bytes. Words of one character have no
/// pairs and are left out.
fn words(text: &str) -> BTreeMap<&str, u64> {
    let mut words: HashMap<&str, u64> = HashMap::new();
    let letter = |c: char| c.is_alphabetic() || c == '\'';
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let lead = if first == ' ' { 1 } else { 0 };
        let letters = rest[lead..].find(|c| !letter(c)).unwrap_or(rest.len() - lead);
        let length = if letters == 0 { first.len_utf8() } else { lead + letters };
        if letters + lead > 1 && letters > 0 {
            *words.entry(&rest[..length]).or_default() += 1;
        }
        rest = &rest[length..];
    }
    words.into_iter().collect()
}

/// At most `count` merged pieces, in the order of the merges.
fn merges(text: &str, count: usize) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut symbols: HashMap<char, u32> = HashMap::new();
    let mut words: Vec<(Vec<u32>, u64)> = words(text)
        .into_iter()
        .map(|(word, seen)| {
            let ids = word.chars().map(|c| {
                *symbols.entry(c).or_insert_with(|| {
                    names.push(c.to_string());
                    names.len() as u32 - 1
                })
            });
            (ids.collect(), seen)
        })
        .collect();
    let mut counts: HashMap<(u32, u32), (u64, HashSet<usize>)> = HashMap::new();
    for (at, (word, seen)) in words.iter().enumerate() {
        for pair in word.windows(2) {
            let entry = counts.entry((pair[0], pair[1])).or_default();
            entry.0 += seen;
            entry.1.insert(at);
        }
    }
    let mut made: HashMap<String, u32> = HashMap::new();
    let mut pieces = Vec::new();
    while pieces.len() < count {
        let spelled = |pair: &(u32, u32)| (&names[pair.0 as usize], &names[pair.1 as usize]);
        let best = counts
            .iter()
            .filter(|(_, (seen, _))| *seen > 0)
            .max_by(|(a, (x, _)), (b, (y, _))| x.cmp(y).then_with(|| spelled(b).cmp(&spelled(a))))
            .map(|(pair, _)| *pair);
        let Some(pair) = best else { break };
        let name = format!("{}{}", names[pair.0 as usize], names[pair.1 as usize]);
        // Two pairs may merge into the same piece, which is one symbol.
        let symbol = *made.entry(name.clone()).or_insert_with(|| {
            names.push(name.clone());
            pieces.push(name);
            names.len() as u32 - 1
        });
        let Some((_, places)) = counts.remove(&pair) else { break };
        for at in places {
            let (word, seen) = &mut words[at];
            for old in word.windows(2) {
                if let Some(entry) = counts.get_mut(&(old[0], old[1])) {
                    entry.0 = entry.0.saturating_sub(*seen);
                }
            }
            let mut i = 0;
            while i + 1 < word.len() {
                if (word[i], word[i + 1]) == pair {
                    word[i] = symbol;
                    word.remove(i + 1);
                }
                i += 1;
            }
            for new in word.windows(2) {
                let entry = counts.entry((new[0], new[1])).or_default();
                entry.0 += *seen;
                entry.1.insert(at);
            }
        }
    }
    pieces
}
