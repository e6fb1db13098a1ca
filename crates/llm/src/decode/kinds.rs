//! What layers share on the host: the gains of their norms, and what depends on the kind of their
//! attention.

use half::f16;

use crate::config::{Config, Rotation};
use crate::weights::{Error, Part, Slot, WeightSource};

/// The gains of a layer's norms, `[dim]`: before its halves, and after them, if it has these.
pub(super) struct Gains {
    pub(super) attn: Vec<f32>,
    pub(super) ffn: Vec<f32>,
    pub(super) post_attn: Option<Vec<f32>>,
    pub(super) post_ffn: Option<Vec<f32>>,
}

impl Gains {
    /// Reads the gains of a layer.
    pub(super) fn read(source: &dyn WeightSource, config: &Config, layer: usize) -> Result<Gains, Error> {
        let gain = |part| {
            let mut values = vec![0.0; config.dim];
            source.rows(Slot::Layer(layer, part), 0..1, &mut values).map(|()| values)
        };
        let post = |part| config.post_norms.then(|| gain(part)).transpose();
        Ok(Gains {
            attn: gain(Part::AttnNorm)?,
            ffn: gain(Part::FfnNorm)?,
            post_attn: post(Part::PostAttnNorm)?,
            post_ffn: post(Part::PostFfnNorm)?,
        })
    }
}

/// What layers of one kind of attention share.
pub(super) struct Kind {
    /// Number of positions that a query sees, its own included.
    pub(super) reach: usize,
    /// The rotation of heads, for sequences as long as the context.
    rope: Rotation,
    /// Pairs of a head.
    half: usize,
    /// Cosines and sines, half a head each, of the positions prepared so far, `[positions,
    /// head_dim]`.
    rows: Vec<f16>,
}

impl Kind {
    pub(super) fn all(config: &Config, context: usize) -> Vec<Kind> {
        let kind = |kind| Kind {
            reach: config.window(kind).unwrap_or(usize::MAX),
            rope: config.rotation(kind, context),
            half: config.head_dim / 2,
            rows: Vec::new(),
        };
        config.attention_kinds().into_iter().map(kind).collect()
    }

    /// Prepares `most` positions if fewer than `positions` are there.
    pub(super) fn rotate(&mut self, positions: usize, most: usize, head: usize) {
        let there = self.rows.len() / head;
        if positions <= there {
            return;
        }
        self.rows.resize(most * head, f16::ZERO);
        for (t, row) in self.rows.chunks_exact_mut(head).enumerate().skip(there) {
            let (cos, sin) = row.split_at_mut(head / 2);
            for (i, (cos, sin)) in cos.iter_mut().zip(sin).enumerate() {
                let (c, s) = self.rope.at(i, t);
                (*cos, *sin) = (f16::from_f64(c), f16::from_f64(s));
            }
        }
    }

    /// The cosine and the sine of each pair at a position, for half a head.
    pub(super) fn pairs(&self, position: usize) -> impl Iterator<Item = (f64, f64)> {
        (0..self.half).map(move |i| self.rope.at(i, position))
    }

    /// The cosines and sines of a position that [`Kind::rotate`] has prepared.
    pub(super) fn row(&self, position: usize, head: usize) -> &[f16] {
        &self.rows[position * head..][..head]
    }
}
