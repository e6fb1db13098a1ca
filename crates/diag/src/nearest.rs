//! The most similar of some known names, for "did you mean".
//!
//! Similarity is the optimal string alignment distance: insertions, deletions, replacements and
//! swaps of neighbors. Its time is proportional to the product of the lengths, and names come from
//! files. Therefore names of more than [`LONGEST`] bytes are not compared.

use strsim::osa_distance;

/// Length in bytes of the longest name that is compared.
const LONGEST: usize = 100;

/// The candidate with the smallest edit distance to `name` if it is similar enough to be meant: at
/// most a third of the longer name's letters differ. The first of several equally similar ones.
/// Names and candidates above 100 bytes are never similar.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > LONGEST {
        return None;
    }
    let length = name.chars().count();
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates.into_iter().filter(|c| c.len() <= LONGEST) {
        let allowed = (name.len().max(candidate.len()) / 3).max(1);
        // Only a smaller distance than the best so far matters.
        let Some(limit) = best.map_or(Some(allowed), |(d, _)| d.checked_sub(1).map(|d| d.min(allowed))) else { break };
        // Names differ by at least the difference of their lengths.
        if length.abs_diff(candidate.chars().count()) > limit {
            continue;
        }
        let distance = osa_distance(name, candidate);
        if distance <= limit {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, c)| c)
}

/// The candidate with the smallest edit distance to `name`, however large, for a name that must be
/// one of a few. The first of several equally similar ones; only the first 100 letters of each
/// count.
pub fn closest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    fn start(text: &str) -> &str {
        text.char_indices().nth(LONGEST).map_or(text, |(end, _)| &text[..end])
    }
    candidates.into_iter().min_by_key(|c| osa_distance(start(name), start(c)))
}

/// The end of a message about an unknown name: ``, did you mean `x`?`` with the [`nearest`]
/// candidate, or nothing if none is similar.
pub fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, candidates).map_or_else(String::new, |near| format!(", did you mean `{near}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        let ops = ["matmul", "mul", "add", "softmax", "reduce_sum"];
        assert_eq!(nearest("mtamul", ops), Some("matmul"));
        assert_eq!(nearest("sofmax", ops), Some("softmax"));
        assert_eq!(nearest("reduce_summ", ops), Some("reduce_sum"));
        assert_eq!(nearest("frobnicate", ops), None);
        assert_eq!(nearest("", ops), None);
    }

    #[test]
    fn a_message_ends_with_the_suggestion_if_there_is_one() {
        assert_eq!(did_you_mean("sofmax", ["matmul", "softmax"]), ", did you mean `softmax`?");
        assert_eq!(did_you_mean("frobnicate", ["matmul", "softmax"]), "");
    }

    #[test]
    fn long_names_cost_nothing() {
        // A table of these would have 2^50 cells.
        let long = "a".repeat(1 << 25);
        let near = format!("{}b", &long[..90]);
        assert_eq!(nearest(&long[..90], [long.as_str(), &near]), Some(near.as_str()));
        assert_eq!(nearest(&long, [near.as_str()]), None);
        assert_eq!(closest(&long, ["b", &long]), Some(long.as_str()));
    }

    #[test]
    fn the_first_of_the_nearest_wins() {
        assert_eq!(nearest("abcdef", ["abcdxx", "abcdex", "abcxef", "abcdfe"]), Some("abcdex"));
        assert_eq!(closest("abc", ["zzzzzz", "xyz", "uvw"]), Some("xyz"));
    }
}
