//! The nearest of some known names: for "did you mean".

/// Longer names are no typing mistakes, and the distance is quadratic.
const LONGEST: usize = 100;

/// The candidate with the smallest edit distance to `name`, if it is near enough to be meant: at most a third of the longer
/// name's letters differ. Ties go to the first candidate. Names and candidates above 100 bytes are never near.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > LONGEST {
        return None;
    }
    let letters: Vec<char> = name.chars().collect();
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates.into_iter().filter(|c| c.len() <= LONGEST) {
        let allowed = (name.len().max(candidate.len()) / 3).max(1);
        // Only a smaller distance than the best so far is of use.
        let Some(limit) = best.map_or(Some(allowed), |(d, _)| d.checked_sub(1).map(|d| d.min(allowed))) else { break };
        if let Some(d) = distance(&letters, candidate, limit) {
            best = Some((d, candidate));
        }
    }
    best.map(|(_, c)| c)
}

/// The candidate with the smallest edit distance to `name`, however far: for a name that must be one of a few. Ties go to the
/// first candidate; only the first 100 letters of each count.
pub fn closest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters: Vec<char> = name.chars().take(LONGEST).collect();
    candidates.into_iter().min_by_key(|c| {
        let end = c.char_indices().nth(LONGEST).map_or(c.len(), |(i, _)| i);
        distance(&letters, &c[..end], LONGEST)
    })
}

/// Insertions, deletions, replacements and swaps of neighbours; `None` above `limit`.
fn distance(a: &[char], b: &str, limit: usize) -> Option<usize> {
    let b: Vec<char> = b.chars().collect();
    if a.len().abs_diff(b.len()) > limit {
        return None;
    }
    // The row in work, the one before it, and the one before that.
    let (mut row, mut last, mut older) =
        (vec![0; b.len() + 1], (0..=b.len()).collect::<Vec<_>>(), vec![0; b.len() + 1]);
    for i in 1..=a.len() {
        row[0] = i;
        for j in 1..=b.len() {
            let change = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = change.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(older[j - 2] + 1);
            }
        }
        // Each later cell comes from one of these two rows and is not smaller.
        if row.iter().chain(&last).all(|&d| d > limit) {
            return None;
        }
        std::mem::swap(&mut older, &mut last);
        std::mem::swap(&mut last, &mut row);
    }
    Some(last[b.len()]).filter(|&d| d <= limit)
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
