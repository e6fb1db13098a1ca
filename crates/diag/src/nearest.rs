//! The nearest of some known names: for "did you mean".

/// The candidate with the smallest edit distance to `name`, if it is near enough to be meant: at most a third of the longer
/// name's letters differ. Ties go to the first candidate.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer names are no typing mistakes, and the distance is quadratic.
    if name.len() > 100 {
        return None;
    }
    candidates
        .into_iter()
        .map(|c| (distance(name, c), c))
        .filter(|(d, c)| *d <= (name.len().max(c.len()) / 3).max(1))
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

/// The candidate with the smallest edit distance to `name`, however far: for a name that must be one of a few. Ties go to the
/// first candidate.
pub fn closest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name: String = name.chars().take(100).collect();
    candidates.into_iter().min_by_key(|c| distance(&name, c))
}

/// Insertions, deletions, replacements and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut best = change.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(rows[i - 2][j - 2] + 1);
                }
                best
            };
        }
    }
    rows[a.len()][b.len()]
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
}
