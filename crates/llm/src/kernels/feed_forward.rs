//! `ffnFused`: `ffn = W2 · (silu(W1·x) ∘ W3·x)` and the residual; `ffnBwd`: its gradients.
//!
//! SiLU is `h · sigmoid(h)`, as every published kernel has it (mil-text §4). W2 is staged
//! untransposed, as in the backward kernel, so both copies are staged the same way; the program
//! transposes it.

use ferrane_mil::{MilError, Program};

use super::frame::{Frame, MatrixOrder};
use crate::layout::{Activation, Residual};

pub(super) fn ffn_fused(mut f: Frame<'_>) -> Result<Program, MilError> {
    let (dim, hidden) = (f.shape.config.dim, f.shape.config.hidden);
    let x = f.activation(Activation::X2norm)?;
    let rows = f.rows("x2norm", x, dim)?;
    let w1 = f.matrix("w1", MatrixOrder::AsStaged)?;
    let w3 = f.matrix("w3", MatrixOrder::AsStaged)?;
    let h1 = f.product("h1_rows", rows, w1)?;
    let h3 = f.product("h3_rows", rows, w3)?;
    let h1 = f.columns("h1", h1, hidden)?;
    let h3 = f.columns("h3", h3, hidden)?;
    let sig = f.b.sigmoid("sig", h1)?;
    let silu = f.b.mul("silu", h1, sig)?;
    let gate = f.b.mul("gate", silu, h3)?;

    let gate_rows = f.rows("gate", gate, hidden)?;
    let w2 = f.matrix("w2", MatrixOrder::Swapped)?;
    let ffn = f.product("ffn_rows", gate_rows, w2)?;
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

/// `dgate = W2ᵀ·dffn`, then the gradient of SiLU, then `dx = W1ᵀ·dh1 + W3ᵀ·dh3`.
pub(super) fn ffn_bwd(mut f: Frame<'_>) -> Result<Program, MilError> {
    let (dim, hidden) = (f.shape.config.dim, f.shape.config.hidden);
    let dffn = f.activation(Activation::Dffn)?;
    let (h1, h3) = (f.activation(Activation::H1)?, f.activation(Activation::H3)?);
    let rows = f.rows("dffn", dffn, dim)?;
    let w2 = f.matrix("w2", MatrixOrder::AsStaged)?;
    let dgate = f.product("dgate_rows", rows, w2)?;
    let dgate = f.columns("dgate", dgate, hidden)?;

    // The derivative of h · σ(h) is σ + h · σ · (1 − σ).
    let sig = f.b.sigmoid("sig", h1)?;
    let silu = f.b.mul("silu", h1, sig)?;
    let squared = f.b.mul("silu_sig", silu, sig)?;
    let rest = f.b.sub("silu_rest", silu, squared)?;
    let slope = f.b.add("silu_slope", sig, rest)?;
    let dsilu = f.b.mul("dsilu", dgate, h3)?;
    let dh1 = f.b.mul("dh1", dsilu, slope)?;
    let dh3 = f.b.mul("dh3", dgate, silu)?;

    let (rows1, rows3) = (f.rows("dh1", dh1, hidden)?, f.rows("dh3", dh3, hidden)?);
    let w1 = f.matrix("w1", MatrixOrder::AsStaged)?;
    let w3 = f.matrix("w3", MatrixOrder::AsStaged)?;
    let first = f.product("dh1_w1", rows1, w1)?;
    let second = f.product("dh3_w3", rows3, w3)?;
    let sum = f.b.add("sum", first, second)?;
    let dx = f.columns("dx", sum, dim)?;
    f.finish(&[dx, dh1, dh3])
}
