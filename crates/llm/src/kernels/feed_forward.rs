//! `ffnFused`: `ffn = W2 · (silu(W1·x) ∘ W3·x)` and the residual.
//!
//! SiLU is `h · sigmoid(h)`, as every published kernel has it (mil-text §4). W2 is staged
//! untransposed, as in the backward kernel, so both copies are staged the same way; the program
//! transposes it.

use ferrane_mil::{MilError, Program, Transpose};

use super::frame::Frame;
use crate::layout::{Activation, Residual};

pub(super) fn ffn_fused(mut f: Frame<'_>) -> Result<Program, MilError> {
    let (dim, hidden) = (f.shape.config.dim, f.shape.config.hidden);
    let x = f.activation(Activation::X2norm)?;
    let rows = f.rows("x2norm", x, dim)?;
    let w1 = f.matrix("w1", dim, hidden)?;
    let w3 = f.matrix("w3", dim, hidden)?;
    let h1 = f.b.matmul("h1_rows", rows, w1, Transpose::Neither)?;
    let h3 = f.b.matmul("h3_rows", rows, w3, Transpose::Neither)?;
    let h1 = f.columns("h1", h1, hidden)?;
    let h3 = f.columns("h3", h3, hidden)?;
    let sig = f.b.sigmoid("sig", h1)?;
    let silu = f.b.mul("silu", h1, sig)?;
    let gate = f.b.mul("gate", silu, h3)?;

    let gate_rows = f.rows("gate", gate, hidden)?;
    let w2 = f.matrix("w2", dim, hidden)?;
    let w2t = f.swap("w2_t", w2)?;
    let ffn = f.b.matmul("ffn_rows", gate_rows, w2t, Transpose::Neither)?;
    let ffn = f.columns("ffn", ffn, dim)?;
    let x2 = f.activation(Activation::X2)?;
    let scaled = f.b.scale("ffn_scaled", ffn, f.shape.config.residual_scale)?;
    let x_next = f.b.add("x_next", x2, scaled)?;

    let mut taps = vec![x_next, h1, h3, gate];
    if f.shape.residual == Residual::Fp32 {
        taps.push(ffn);
    }
    f.finish(&taps)
}
