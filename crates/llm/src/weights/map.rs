//! Conversion of weights to another element type.

use super::{Layer, Weights};

impl<T> Weights<T> {
    /// The same tensors with every value replaced, for example widened to `f64`.
    pub fn map<U>(&self, f: impl Fn(&T) -> U) -> Weights<U> {
        let all = |v: &Vec<T>| -> Vec<U> { v.iter().map(&f).collect() };
        Weights {
            embed: all(&self.embed),
            layers: self
                .layers
                .iter()
                .map(|l| Layer {
                    attn_norm: all(&l.attn_norm),
                    wq: all(&l.wq),
                    wk: all(&l.wk),
                    wv: all(&l.wv),
                    wo: all(&l.wo),
                    ffn_norm: all(&l.ffn_norm),
                    w1: all(&l.w1),
                    w3: all(&l.w3),
                    w2: all(&l.w2),
                    q_norm: l.q_norm.as_ref().map(all),
                    k_norm: l.k_norm.as_ref().map(all),
                    bq: l.bq.as_ref().map(all),
                    bk: l.bk.as_ref().map(all),
                    bv: l.bv.as_ref().map(all),
                    post_attn_norm: l.post_attn_norm.as_ref().map(all),
                    post_ffn_norm: l.post_ffn_norm.as_ref().map(all),
                    router: l.router.as_ref().map(all),
                })
                .collect(),
            norm: all(&self.norm),
            classifier: self.classifier.as_ref().map(all),
        }
    }
}
