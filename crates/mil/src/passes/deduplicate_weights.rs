//! `deduplicate_weights`: merges records with equal bytes.
//!
//! *Pattern*: two records of the weights with the same element type and the same bytes, in the same
//! file or in different ones. The constants that named the later one name the first. *Holds*:
//! always; records without bytes (only their names are known) are not merged. *Numbers*: none
//! change. Constants that become equal are left to `common_subexpressions`.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::dead_code::drop_weights;
use super::draft::Draft;
use super::pass::{Context, Exactness, Pass};
use crate::error::MilError;
use crate::weights::WeightId;

pub(super) const PASS: Pass = Pass {
    name: "deduplicate_weights",
    doc: "lets constants with equal bytes share one record of the weights",
    exactness: Exactness::Bits,
    repeats: true,
    run,
};

fn run(draft: &mut Draft, _: &mut Context<'_>) -> Result<usize, MilError> {
    let mut used: Vec<WeightId> = draft.used_weights().into_iter().collect();
    used.sort_unstable();
    let weights = draft.weights();
    let mut seen: HashMap<u64, Vec<WeightId>> = HashMap::new();
    let mut renamed = HashMap::new();
    for id in used {
        let what = |id| (weights.dtype(id), weights.elements(id), weights.bytes(id));
        let (dtype, elements, Some(bytes)) = what(id) else { continue };
        let mut hasher = DefaultHasher::new();
        (dtype, elements, bytes).hash(&mut hasher);
        let same = seen.entry(hasher.finish()).or_default();
        match same.iter().find(|other| what(**other) == what(id)) {
            Some(first) => {
                renamed.insert(id, *first);
            }
            None => same.push(id),
        }
    }
    if renamed.is_empty() {
        return Ok(0);
    }
    draft.rename_weights(&renamed);
    drop_weights(draft);
    Ok(renamed.len())
}
