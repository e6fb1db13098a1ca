//! The corpus that comes with Ferrane: short children's stories from a grammar.
//!
//! The words are our own, the grammar is small, and a seed decides everything, so the same bytes
//! come out on every machine, for good: a test holds their hash. Every story casts a hero, a
//! friend, an animal, a grown-up, a place and a few things, picks a plot, and tells it; names and
//! pronouns stay with whom they belong to. Stories are separated by the line that [`documents`]
//! splits at.
//!
//! The one decision: plots are text with two marks. `[a|b]` is a choice, which may nest; `{slot}`
//! is a word of the cast, `{^slot}` with a capital, `{a slot}` with its article.

mod plots;

use std::collections::HashMap;

use ferrane_llm::random::Rng;
use ferrane_llm::tokenizer::{Error, Tokenizer};

use super::{SEPARATOR, documents};

/// Entries of the vocabulary that [`tokenizer`] makes.
pub const VOCABULARY: usize = 512;

/// The seed and the size in bytes of the corpus that `ferrane train` uses when it is given none.
pub const DEFAULT: (u64, usize) = (1, 2 << 20);

/// Stories under `seed`, whole ones, until there are at least `bytes` bytes.
pub fn generate(seed: u64, bytes: usize) -> String {
    let mut rng = Rng::new(seed);
    let mut text = String::with_capacity(bytes + 4096);
    let mut last = usize::MAX;
    while text.len() < bytes {
        if !text.is_empty() {
            text.push_str(SEPARATOR);
            text.push('\n');
        }
        // Never the same plot twice in a row.
        let mut plot = rng.below(plots::PLOTS.len() as u64) as usize;
        if plot == last {
            plot = (plot + 1) % plots::PLOTS.len();
        }
        last = plot;
        let cast = cast(&mut rng);
        for (at, paragraph) in plots::PLOTS[plot].iter().enumerate() {
            if at > 0 {
                text.push('\n');
            }
            tell(paragraph, &cast, &mut rng, &mut text);
        }
        text.push('\n');
    }
    text
}

/// The vocabulary of `corpus`: byte pairs of its stories, [`VOCABULARY`] entries in the llama2.c
/// form, with the beginning of a sequence at id 1 and its end at id 2 (see [`Tokenizer::train`]).
///
/// # Errors
/// When the corpus has more different characters than the vocabulary has room for; that of
/// [`generate`] never does.
pub fn tokenizer(corpus: &str) -> Result<Tokenizer, Error> {
    Tokenizer::train(&documents(corpus).collect::<Vec<_>>().join("\n"), VOCABULARY)
}

type Cast = HashMap<&'static str, &'static str>;

fn pick<'a, T: ?Sized>(rng: &mut Rng, from: &[&'a T]) -> &'a T {
    from[rng.below(from.len() as u64) as usize]
}

/// Who and what one story is about.
fn cast(rng: &mut Rng) -> Cast {
    let mut cast = Cast::new();
    let (hero_she, friend_she) = (rng.below(2) == 0, rng.below(2) == 0);
    let name = |rng: &mut Rng, she: bool| pick(rng, if she { &plots::GIRLS } else { &plots::BOYS });
    let hero = name(rng, hero_she);
    let friend = loop {
        let name = name(rng, friend_she);
        if name != hero {
            break name;
        }
    };
    cast.insert("hero", hero);
    cast.insert("friend", friend);
    cast.insert("child", if hero_she { "girl" } else { "boy" });
    cast.insert("fchild", if friend_she { "girl" } else { "boy" });
    let words = |she: bool| if she { ["she", "her", "her", "herself"] } else { ["he", "him", "his", "himself"] };
    for (key, word) in ["he", "him", "his", "himself"].into_iter().zip(words(hero_she)) {
        cast.insert(key, word);
    }
    for (key, word) in ["fhe", "fhim", "fhis"].into_iter().zip(words(friend_she)) {
        cast.insert(key, word);
    }
    let grown = rng.below(plots::GROWN_UPS.len() as u64) as usize;
    let (title, she) = plots::GROWN_UPS[grown];
    cast.insert("grown", title);
    for (key, word) in ["ghe", "ghim", "ghis"].into_iter().zip(words(she)) {
        cast.insert(key, word);
    }
    let (animal, sound, food) = plots::ANIMALS[rng.below(plots::ANIMALS.len() as u64) as usize];
    cast.insert("animal", animal);
    cast.insert("sound", sound);
    cast.insert("petfood", food);
    cast.insert("pet", pick(rng, &plots::PETS));
    for (key, from) in plots::SLOTS {
        cast.insert(key, pick(rng, from));
    }
    // A second thing, colour and place that differ from the first.
    for (key, first, from) in [
        ("toy2", "toy", plots::TOYS.as_slice()),
        ("colour2", "colour", plots::COLOURS.as_slice()),
        ("place2", "place", plots::PLACES.as_slice()),
    ] {
        let one = cast.get(first).copied();
        let other = loop {
            let word = pick(rng, from);
            if Some(word) != one {
                break word;
            }
        };
        cast.insert(key, other);
    }
    cast
}

/// Writes `template` with its choices made and its slots filled.
fn tell(template: &str, cast: &Cast, rng: &mut Rng, out: &mut String) {
    let mut rest = template;
    while let Some(at) = rest.find(['[', '{']) {
        out.push_str(&rest[..at]);
        let choice = rest[at..].starts_with('[');
        let inner = &rest[at + 1..];
        let end = close(inner, choice);
        if choice {
            let options = split(&inner[..end]);
            tell(pick(rng, &options), cast, rng, out);
        } else {
            fill(&inner[..end], cast, out);
        }
        rest = inner.get(end + 1..).unwrap_or("");
    }
    out.push_str(rest);
}

/// Where the bracket ends that `inner` lies in.
fn close(inner: &str, choice: bool) -> usize {
    let (open, shut) = if choice { ('[', ']') } else { ('{', '}') };
    let mut depth = 0;
    for (at, c) in inner.char_indices() {
        if c == shut && depth == 0 {
            return at;
        }
        depth += i32::from(c == open) - i32::from(c == shut);
    }
    inner.len()
}

/// The options of a choice: split at bars that lie in no inner choice.
fn split(inner: &str) -> Vec<&str> {
    let (mut options, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in inner.char_indices() {
        depth += i32::from(c == '[') - i32::from(c == ']');
        if c == '|' && depth == 0 {
            options.push(&inner[start..at]);
            start = at + 1;
        }
    }
    options.push(&inner[start..]);
    options
}

fn fill(slot: &str, cast: &Cast, out: &mut String) {
    let (capital, slot) = slot.strip_prefix('^').map_or((false, slot), |rest| (true, rest));
    let (article, key) = slot.strip_prefix("a ").map_or((false, slot), |rest| (true, rest));
    let word = cast.get(key).copied().unwrap_or(key);
    let start = out.len();
    if article {
        out.push_str(if word.starts_with(['a', 'e', 'i', 'o', 'u']) { "an " } else { "a " });
    }
    out.push_str(word);
    if capital {
        let upper = out[start..].chars().next().map(|c| c.to_ascii_uppercase());
        if let Some(c) = upper {
            out.replace_range(start..start + 1, c.encode_utf8(&mut [0; 4]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest as _, Sha256};

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn every_slot_and_bracket_is_known() {
        let cast = cast(&mut Rng::new(1));
        for paragraph in plots::PLOTS.iter().flat_map(|plot| plot.iter()) {
            for slot in paragraph.split('{').skip(1) {
                let key = slot.split('}').next().unwrap_or("").trim_start_matches('^');
                let key = key.strip_prefix("a ").unwrap_or(key);
                assert!(cast.contains_key(key), "`{key}` in {paragraph}");
            }
            for (open, shut) in [('[', ']'), ('{', '}')] {
                assert_eq!(paragraph.matches(open).count(), paragraph.matches(shut).count(), "{paragraph}");
            }
        }
        let text = generate(3, 400_000);
        assert!(!text.contains(['[', ']', '{', '}']));
        assert!(!text.contains("  ") && !text.contains(" .") && !text.contains(" a a ") && text.is_ascii());
    }

    /// One seed, one text, for good. A change here changes every default run.
    #[test]
    fn the_default_corpus_stays_as_it_is() {
        let (seed, bytes) = DEFAULT;
        let corpus = generate(seed, bytes);
        assert!(corpus.len() >= bytes && corpus.len() < bytes + 4096);
        assert!(corpus.starts_with(&generate(seed, 10_000)));
        assert_ne!(corpus, generate(seed + 1, bytes));
        let vocabulary = tokenizer(&corpus).unwrap();
        assert_eq!(vocabulary.vocab_size(), VOCABULARY);
        assert_eq!((vocabulary.bos(), vocabulary.eos()), (Some(1), Some(2)));
        let hashes = [hex(&Sha256::digest(&corpus)), hex(&vocabulary.digest())];
        assert_eq!(hashes, [CORPUS, VOCABULARY_DIGEST]);
    }

    const CORPUS: &str = "09f2fa7eeeb3544428fe20a9eeca6a82d58275a8ac3b4d34b825f6a70db860c1";
    const VOCABULARY_DIGEST: &str = "10dfefd5fca66d1ce257d0e4e0023eac7dbc478bf3563fa9b15e50462d6112bd";

    #[test]
    fn stories_differ() {
        let corpus = generate(5, 1 << 20);
        let mut stories: Vec<&str> = documents(&corpus).collect();
        let count = stories.len();
        stories.sort_unstable();
        stories.dedup();
        assert_eq!(stories.len(), count, "two stories are the same");
        assert!(count > 700, "{count}");
    }
}
