//! Generation: one token at a time, with a cache of keys and values.

use super::attention::{capped, score, seen, softmax};
use super::block::{gate, mixture, post_norm};
use super::norm::Norm;
use super::products::{add_scaled, dot, linear};
use super::rope::Tables;
use super::{Error, Real, Reference};

/// The state of one sequence: the rotated keys and the values of all positions so far, layer by
/// layer.
pub struct Decoder<'a, T: Real = f32> {
    model: Reference<'a, T>,
    tables: Tables<T>,
    cache: Vec<Cache<T>>,
    tokens: Vec<u32>,
    /// The normed residual stream `[dim]` after the last token; empty if that is not known.
    hidden: Vec<T>,
    logits: Vec<T>,
}

/// Keys and values of one layer, `[positions, kv_dim]`.
struct Cache<T> {
    keys: Vec<T>,
    values: Vec<T>,
}

impl<'a, T: Real> Decoder<'a, T> {
    pub(super) fn new(model: Reference<'a, T>) -> Self {
        let cache = (0..model.config.layers).map(|_| Cache { keys: vec![], values: vec![] }).collect();
        let logits = vec![T::ZERO; model.config.vocab];
        Decoder { model, tables: Tables::new(model.config, 0), cache, tokens: vec![], hidden: vec![], logits }
    }

    /// Begins a new sequence.
    pub fn clear(&mut self) {
        self.rewind(0);
    }

    /// Shortens the sequence to its first `len` tokens. Without effect on a shorter one.
    pub fn rewind(&mut self, len: usize) {
        let rows = len.saturating_mul(self.model.config.kv_dim());
        for cache in &mut self.cache {
            cache.keys.truncate(rows);
            cache.values.truncate(rows);
        }
        if len < self.tokens.len() {
            self.hidden.clear();
        }
        self.tokens.truncate(len);
        self.tables.truncate(self.tokens.len());
    }

    /// The tokens of the sequence so far.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Number of tokens decoded so far.
    pub fn position(&self) -> usize {
        self.tokens.len()
    }

    /// The residual stream `[dim]` after the last token and the last norm, which the classifier
    /// reads; `None` before the first token and after a rewind.
    pub fn hidden(&self) -> Option<&[T]> {
        (!self.hidden.is_empty()).then_some(&self.hidden)
    }

    /// Appends a token and returns the logits `[vocab]` of the next one. They equal the last row of
    /// [`Reference::logits`] over all tokens so far, bit for bit.
    ///
    /// # Errors
    /// [`Error::Token`] for an id outside the vocabulary; the decoder is unchanged then.
    pub fn decode(&mut self, token: u32) -> Result<&[T], Error> {
        let (config, weights) = (self.model.config, self.model.weights);
        let (dim, size, position) = (config.dim, config.head_dim, self.position());
        if token as usize >= config.vocab {
            return Err(Error::Token { token, position, vocab: config.vocab });
        }
        self.tables.push(position);
        let alpha = T::from_f64(f64::from(config.residual_scale));
        let mut stream = self.model.embedding(token);
        let product = |x: &[T], w: &[T], bias: Option<&[T]>| {
            let mut y = vec![T::ZERO; w.len() / x.len()];
            linear(&mut y, x, w, bias, x.len());
            y
        };
        for (index, (layer, cache)) in weights.layers.iter().zip(&mut self.cache).enumerate() {
            let kind = config.attention(index);
            let table = self.tables.of(kind);
            let heads = |mut row: Vec<T>, gain: Option<&[T]>| {
                if let Some(gain) = gain {
                    row = Norm::forward(&row, gain, config.norm_eps).0;
                }
                table.turn(&mut row, position, T::ONE);
                row
            };
            let (normed, _) = Norm::forward(&stream, &layer.attn_norm, config.norm_eps);
            let q = heads(product(&normed, &layer.wq, layer.bq.as_deref()), layer.q_norm.as_deref());
            let k = heads(product(&normed, &layer.wk, layer.bk.as_deref()), layer.k_norm.as_deref());
            cache.keys.extend_from_slice(&k);
            cache.values.extend_from_slice(&product(&normed, &layer.wv, layer.bv.as_deref()));
            let mut attended = vec![T::ZERO; config.q_dim()];
            for (h, (out, query)) in attended.chunks_exact_mut(size).zip(q.chunks_exact(size)).enumerate() {
                let start = h / config.gqa_ratio() * size;
                let at = |j: usize| j * config.kv_dim() + start..j * config.kv_dim() + start + size;
                let range = seen(config.window(kind), position);
                let mut p: Vec<T> = range.clone().map(|j| score(config, dot(query, &cache.keys[at(j)]))).collect();
                softmax(&mut p);
                for (j, &p) in range.zip(&p) {
                    add_scaled(out, p, &cache.values[at(j)]);
                }
            }
            let branch = product(&attended, &layer.wo, None);
            add_scaled(&mut stream, alpha, &post_norm(branch, layer.post_attn_norm.as_deref(), config));
            let (normed, _) = Norm::forward(&stream, &layer.ffn_norm, config.norm_eps);
            let branch = match (config.experts(index), &layer.router) {
                (Some(experts), Some(router)) => mixture(config.activation, experts, layer, router, &normed),
                _ => {
                    let h1 = product(&normed, &layer.w1, None);
                    let h3 = product(&normed, &layer.w3, None);
                    product(&gate(config.activation, &h1, &h3), &layer.w2, None)
                }
            };
            add_scaled(&mut stream, alpha, &post_norm(branch, layer.post_ffn_norm.as_deref(), config));
        }
        self.hidden = Norm::forward(&stream, &weights.norm, config.norm_eps).0;
        linear(&mut self.logits, &self.hidden, weights.classifier_matrix(), None, dim);
        self.logits.iter_mut().for_each(|logit| *logit = capped(*logit, config.logit_softcap));
        self.tokens.push(token);
        Ok(&self.logits)
    }
}
