//! Byte-pair merging by score, shared by llama2.c vocabularies and SentencePiece BPE models.
//!
//! The reference encoders scan the whole text for the best pair, merge it, and scan again: O(n²).
//! Here a heap holds the candidate pairs and a linked list the symbols, which takes O(n log n) and
//! merges in the same order: the highest score first, the leftmost pair on a tie.
//!
//! The pairs that merge, and their results, are a table that is computed once from the vocabulary
//! (every split of every piece into two known symbols), so encoding does not compare strings. A
//! second table holds all pairs of adjacent bytes that occur in pieces. No merge can cross two
//! adjacent bytes that are not in it, so the text splits into short independent runs.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

/// Symbols of this value or more take part in no merge. The caller defines their meaning.
pub(super) const INERT: u32 = 1 << 30;

/// Longest accepted piece, in bytes. Splitting a piece costs its length squared; real pieces have
/// fewer than 200 bytes.
pub(super) const LONGEST_PIECE: usize = 1024;

const NONE: usize = usize::MAX;

/// The merge table of a vocabulary.
#[derive(Debug, Clone)]
pub(super) struct Merges {
    pairs: HashMap<(u32, u32), u32>,
    scores: Vec<f32>,
    edges: Vec<(u8, u8)>,
    joins: Vec<[u64; 4]>,
}

/// Buffers of one encoding, reused from run to run.
#[derive(Default)]
pub(super) struct Scratch {
    heap: BinaryHeap<Candidate>,
    previous: Vec<usize>,
    next: Vec<usize>,
    /// The pairs of this run by the symbol that they merge into; filled only for vocabularies with
    /// unused pieces.
    pub(super) made_of: HashMap<u32, (u32, u32)>,
}

struct Candidate {
    score: f32,
    at: usize,
    left: u32,
    right: u32,
    into: u32,
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Candidate {}
impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.at.cmp(&self.at))
    }
}

impl Merges {
    /// The table for `symbols`, the bytes and score of each symbol by its number. `by_bytes` maps
    /// bytes to one symbol, which resolves duplicates. Only symbols for which `mergeable` holds can
    /// be the result of a merge. Pairs whose score is below `floor` or NaN never merge.
    pub(super) fn new<'a>(
        symbols: &[(&'a [u8], f32)],
        by_bytes: &HashMap<&'a [u8], u32>,
        floor: f32,
        mergeable: impl Fn(u32) -> bool,
    ) -> Merges {
        let mut pairs = HashMap::new();
        let mut joins = vec![[0u64; 4]; 256];
        for (&bytes, &id) in by_bytes {
            let score = symbols[id as usize].1;
            if score.is_nan() || score <= floor || !mergeable(id) {
                continue;
            }
            for (&a, &b) in bytes.iter().zip(&bytes[bytes.len().min(1)..]) {
                joins[a as usize][b as usize / 64] |= 1 << (b % 64);
            }
            for cut in 1..bytes.len() {
                if let (Some(&left), Some(&right)) = (by_bytes.get(&bytes[..cut]), by_bytes.get(&bytes[cut..])) {
                    pairs.insert((left, right), id);
                }
            }
        }
        let edge = |bytes: &[u8]| (bytes.first().copied().unwrap_or(0), bytes.last().copied().unwrap_or(0));
        let edges = symbols.iter().map(|(bytes, _)| edge(bytes)).collect();
        // Adding zero turns −0 into 0, so that both compare as one score.
        Merges { pairs, scores: symbols.iter().map(|s| s.1 + 0.0).collect(), edges, joins }
    }

    fn joins(&self, left: u32, right: u32) -> bool {
        if left >= INERT || right >= INERT {
            return false;
        }
        let (a, b) = (self.edges[left as usize].1, self.edges[right as usize].0);
        self.joins[a as usize][b as usize / 64] >> (b % 64) & 1 == 1
    }

    /// Merges `symbols` and calls `emit` with every resulting symbol, in order.
    pub(super) fn run(
        &self,
        symbols: &mut [u32],
        scratch: &mut Scratch,
        record: bool,
        mut emit: impl FnMut(u32, &Scratch),
    ) {
        let mut start = 0;
        while start < symbols.len() {
            let mut end = start + 1;
            while end < symbols.len() && self.joins(symbols[end - 1], symbols[end]) {
                end += 1;
            }
            let run = &mut symbols[start..end];
            if run.len() == 1 {
                emit(run[0], scratch);
            } else {
                self.merge(run, scratch, record);
                let mut at = 0;
                while at != NONE {
                    emit(run[at], scratch);
                    at = scratch.next[at];
                }
            }
            start = end;
        }
    }

    fn merge(&self, run: &mut [u32], scratch: &mut Scratch, record: bool) {
        let Scratch { heap, previous, next, made_of } = scratch;
        let count = run.len();
        heap.clear();
        previous.clear();
        previous.extend((0..count).map(|i| i.wrapping_sub(1)));
        next.clear();
        next.extend(1..count);
        next.push(NONE);
        made_of.clear();
        let mut offer = |heap: &mut BinaryHeap<Candidate>, run: &[u32], at: usize, right_at: usize| {
            let (left, right) = (run[at], run[right_at]);
            if let Some(&into) = self.pairs.get(&(left, right)) {
                heap.push(Candidate { score: self.scores[into as usize], at, left, right, into });
                if record {
                    made_of.insert(into, (left, right));
                }
            }
        };
        for at in 1..count {
            offer(heap, run, at - 1, at);
        }
        while let Some(best) = heap.pop() {
            let at = best.at;
            let right_at = next[at];
            // Symbols only grow, so if the numbers are unchanged this is still the pair that was
            // pushed.
            if right_at == NONE || run[at] != best.left || run[right_at] != best.right {
                continue;
            }
            run[at] = best.into;
            run[right_at] = u32::MAX;
            next[at] = next[right_at];
            if next[at] != NONE {
                previous[next[at]] = at;
                offer(heap, run, at, next[at]);
            }
            if previous[at] != NONE {
                offer(heap, run, previous[at], at);
            }
        }
    }
}
