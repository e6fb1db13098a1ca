//! Vocabulary compaction (training-dynamic §9): the ids that occur in the training data get dense
//! numbers, in ascending order.
//!
//! In training, the classifier and the loss have one row for each used id instead of one for each
//! id; the embedding keeps all rows. Generation and evaluation must then use only these ids,
//! because the rows of the others were never trained. If compaction is disabled, the maps are the
//! identity, so callers need no second path.

use serde::{Deserialize, Serialize};

/// A stored map is inconsistent: its ids are not ascending, or lie outside its vocabulary.
#[derive(Debug, thiserror::Error)]
#[error("a stored vocabulary map is damaged: {0}")]
pub struct Error(String);

/// The maps between full ids and compact ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Compaction {
    full: Vec<u32>,
    compact: Vec<i32>,
}

/// The serialized form: the size of the full vocabulary and the used ids in ascending order; `None`
/// if compaction is disabled.
#[derive(Serialize, Deserialize)]
struct Stored {
    vocabulary: usize,
    used: Option<Vec<u32>>,
}

impl Compaction {
    /// The map of the ids that occur in `ids`, in a vocabulary of `vocabulary` entries. Training
    /// passes its data, validation included, chained with the ids that must be kept even if they do
    /// not occur, such as those that begin and end a text. Ids of `vocabulary` or more are ignored.
    pub fn used(ids: impl IntoIterator<Item = u32>, vocabulary: usize) -> Compaction {
        let mut used = vec![false; vocabulary];
        for id in ids {
            if let Some(used) = used.get_mut(id as usize) {
                *used = true;
            }
        }
        let full = (0..vocabulary as u32).filter(|&id| used[id as usize]).collect();
        Compaction::of(full, vocabulary)
    }

    /// The identity map of a vocabulary of `vocabulary` entries.
    pub fn disabled(vocabulary: usize) -> Compaction {
        Compaction::of((0..vocabulary as u32).collect(), vocabulary)
    }

    fn of(full: Vec<u32>, vocabulary: usize) -> Compaction {
        let mut compact = vec![-1; vocabulary];
        for (at, &id) in full.iter().enumerate() {
            compact[id as usize] = at as i32;
        }
        Compaction { full, compact }
    }

    /// The number of compact ids.
    pub fn len(&self) -> usize {
        self.full.len()
    }

    /// Whether no id is used.
    pub fn is_empty(&self) -> bool {
        self.full.is_empty()
    }

    /// Whether every id keeps its number.
    pub fn is_identity(&self) -> bool {
        self.full.len() == self.compact.len()
    }

    /// The size of the full vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.compact.len()
    }

    /// The full id of each compact id, ascending.
    pub fn compact_to_full(&self) -> &[u32] {
        &self.full
    }

    /// The compact id of each full id; −1 for an unused id.
    pub fn full_to_compact(&self) -> &[i32] {
        &self.compact
    }

    /// The compact id of `full`; `None` if `full` is unused or outside the vocabulary.
    pub fn compact(&self, full: u32) -> Option<u32> {
        self.compact.get(full as usize).and_then(|&id| u32::try_from(id).ok())
    }

    /// The full id of `compact`; `None` if there are not that many compact ids.
    pub fn full(&self, compact: u32) -> Option<u32> {
        self.full.get(compact as usize).copied()
    }

    /// Renumbers `ids` in place.
    ///
    /// # Errors
    /// The first id without a compact id; the ids before it are already renumbered then.
    pub fn apply(&self, ids: &mut [u32]) -> Result<(), u32> {
        for id in ids {
            *id = self.compact(*id).ok_or(*id)?;
        }
        Ok(())
    }
}

impl From<Compaction> for Stored {
    fn from(map: Compaction) -> Stored {
        let used = (!map.is_identity()).then_some(map.full);
        Stored { vocabulary: map.compact.len(), used }
    }
}

impl TryFrom<Stored> for Compaction {
    type Error = Error;
    fn try_from(stored: Stored) -> Result<Compaction, Error> {
        // Larger than any vocabulary, and a table of this size is still small.
        const MOST: usize = 1 << 24;
        if stored.vocabulary > MOST {
            return Err(Error(format!("{} vocabulary entries", stored.vocabulary)));
        }
        let Some(used) = stored.used else { return Ok(Compaction::disabled(stored.vocabulary)) };
        if let Some(pair) = used.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(Error(format!("id {} does not follow {}", pair[1], pair[0])));
        }
        match used.last() {
            Some(&last) if last as usize >= stored.vocabulary => {
                Err(Error(format!("id {last} in a vocabulary of {}", stored.vocabulary)))
            }
            _ => Ok(Compaction::of(used, stored.vocabulary)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_there_and_back() {
        let map = Compaction::used([7, 3, 7, 300, 3, 1, 9000], 400);
        assert_eq!((map.compact_to_full(), map.len(), map.vocabulary()), (&[1, 3, 7, 300][..], 4, 400));
        assert_eq!((map.full_to_compact()[3], map.full_to_compact()[4]), (1, -1));
        assert_eq!(
            (map.compact(300), map.compact(4), map.compact(9000), map.full(2), map.full(4)),
            (Some(3), None, None, Some(7), None)
        );
        let mut some = [300, 1];
        map.apply(&mut some).unwrap();
        assert_eq!(some, [3, 0]);
        assert_eq!(map.apply(&mut [3, 5]), Err(5));
        let stored = serde_json::to_string(&map).unwrap();
        assert_eq!(serde_json::from_str::<Compaction>(&stored).unwrap(), map);
        let off = Compaction::disabled(4);
        assert!(off.is_identity() && !map.is_identity() && off.compact(3) == Some(3) && off.compact(4).is_none());
        assert_eq!(serde_json::from_str::<Compaction>(&serde_json::to_string(&off).unwrap()).unwrap(), off);
        for damaged in [
            r#"{"vocabulary":4,"used":[1,1]}"#,
            r#"{"vocabulary":4,"used":[4]}"#,
            r#"{"vocabulary":9000000000000,"used":null}"#,
        ] {
            let error = serde_json::from_str::<Compaction>(damaged).unwrap_err().to_string();
            assert!(error.contains("damaged"), "{error}");
        }
    }
}
