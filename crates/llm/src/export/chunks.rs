//! A model in several packages, each below a size.
//!
//! Devices limit how large a model may be that they compile or map at once. The parts of a model
//! follow each other: the embedding, the layers, and the head, which is the last norm and the
//! classifier. A package takes as many neighbors as fit.

use std::ops::Range;

use super::Error;
use super::encoding::WeightEncoding;
use super::program::CallShape;
use super::store::pieces;
use crate::config::Config;
use crate::weights::Slot;

/// Bytes that a record of a weight file takes in addition to its data, and what aligns it.
const RECORD: u64 = 128;

/// What a package holds of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModelPart {
    pub(super) embed: bool,
    pub(super) layers: Range<usize>,
    pub(super) head: bool,
}

impl ModelPart {
    pub(super) fn whole(config: &Config) -> ModelPart {
        ModelPart { embed: true, layers: 0..config.layers, head: true }
    }
}

/// The parts of a model, none of which takes more than `limit` bytes of weights and tables.
///
/// # Errors
/// [`Error::Option`] if the embedding, a layer or the head takes more by itself.
pub(super) fn split(
    config: &Config,
    encoding: WeightEncoding,
    shapes: &[CallShape],
    limit: u64,
) -> Result<Vec<ModelPart>, Error> {
    let bytes_of = |slot: Slot| match (slot.shape(config).as_slice(), slot) {
        ([rows, cols], Slot::Layer(..)) => encoding.bytes(*rows, *cols) + 2 * RECORD,
        ([rows, cols], _) => encoding.of_tables().bytes(*rows, *cols) + 2 * RECORD * pieces(*rows) as u64,
        (shape, _) => 2 * shape.iter().product::<usize>() as u64 + RECORD,
    };
    let mut layers = vec![0; config.layers];
    for slot in Slot::list(config) {
        if let Slot::Layer(index, _) = slot {
            layers[index] += bytes_of(slot);
        }
    }
    // Masks and rotations of each kind of attention, which a package with layers has once for each
    // function.
    let tables = |layers: Range<usize>| -> u64 {
        let kinds = config.attention_kinds_of(layers).len() as u64;
        shapes.iter().map(|shape| kinds * (shape.table_bytes(config) + 4 * RECORD)).sum()
    };
    let items = 2 + config.layers;
    // The embedding is item 0, and layer `i` is item `i + 1`.
    let of = |from: usize, to: usize| from.clamp(1, items - 1) - 1..to.clamp(1, items - 1) - 1;
    let bytes = |from: usize, to: usize| -> u64 {
        let embed = if from == 0 { bytes_of(Slot::Embed) } else { 0 };
        let head = if to == items { bytes_of(Slot::Classifier) + bytes_of(Slot::Norm) } else { 0 };
        embed + head + layers[of(from, to)].iter().sum::<u64>() + tables(of(from, to))
    };
    let (mut parts, mut from) = (Vec::new(), 0);
    while from < items {
        let Some(to) = (from + 1..=items).rev().find(|to| bytes(from, *to) <= limit) else {
            let name = match from {
                0 => "the embedding".to_string(),
                at if at + 1 == items => "the classifier".to_string(),
                at => format!("layer {}", at - 1),
            };
            let reason = format!("is too small for {name}, which takes up to {} bytes", bytes(from, from + 1));
            let value = usize::try_from(limit).unwrap_or(usize::MAX);
            return Err(Error::Option { option: "chunk_bytes", value, reason });
        };
        parts.push(ModelPart { embed: from == 0, layers: of(from, to), head: to == items });
        from = to;
    }
    Ok(parts)
}
