//! `dead_code`: removes ops and weights that no output depends on.
//!
//! *Pattern*: an op whose results no op reads and no block returns; then what only it read; then
//! the records of the weights that no constant names any more, which are dropped. *Holds*: the op
//! and those of its blocks are in the registry and write no state; an unknown op may have effects
//! and stays. Inputs stay, read or not. *Numbers*: none change.

use std::collections::HashMap;

use super::draft::Draft;
use super::pass::{Context, Exactness, Pass};
use crate::error::MilError;

pub(super) const PASS: Pass = Pass {
    name: "dead_code",
    doc: "removes ops and weights that no output depends on",
    exactness: Exactness::Bits,
    repeats: true,
    run,
};

fn run(draft: &mut Draft, _: &mut Context<'_>) -> Result<usize, MilError> {
    let mut removed = 0;
    draft.each(|c| {
        removed += c.remove_dead();
        None
    });
    Ok(removed + drop_weights(draft))
}

/// Drops the records that no constant names; returns their number.
pub(super) fn drop_weights(draft: &mut Draft) -> usize {
    let used = draft.used_weights();
    let Some((weights, new)) = draft.weights().only(&used) else { return 0 };
    let dropped = draft.weights().len() - new.len();
    let new: HashMap<_, _> = new.into_iter().collect();
    draft.set_weights(weights, &new);
    dropped
}
