//! `sdpaBwd1`, `woSdpaBwd1` and `sdpaBwd2`: gradients of attention over tiled keys and values.
//!
//! Inputs are keys and values tiled over the query heads. `dK` and `dV` are returned for each query
//! head, and the CPU adds those of one kv head (training-dynamic §6, 7f–7h). The probabilities are
//! recomputed instead of stored.

use ferrane_mil::{MilError, Program, ReducedDims, Transpose, ValueId};

use super::frame::{Frame, MatrixOrder};
use super::ops::OpResult;
use super::tables;
use crate::layout::{Activation, Kernel};

/// Scores `[1, heads or kv heads, …, seq]` to probabilities `[1, heads, seq, seq]`: scale, mask,
/// softmax over the keys.
pub(super) fn probabilities(f: &mut Frame<'_>, scores: ValueId) -> OpResult {
    let (heads, seq) = (f.shape.config.heads, f.layout.seq);
    let mut scaled = f.b.scale("scaled", scores, scale(f))?;
    if f.b.shape(scaled)? != [1, heads, seq, seq] {
        scaled = f.reshape("scaled_heads", scaled, [1, heads, seq, seq])?;
    }
    let mask = tables::mask(&mut f.b, f.layout.seq, f.shape.config.sliding_window)?;
    let masked = f.b.add("masked", scaled, mask)?;
    f.b.softmax("probs", masked, -1)
}

fn scale(f: &Frame<'_>) -> f32 {
    1.0 / (f.shape.config.head_dim as f32).sqrt()
}

pub(super) fn sdpa_bwd1(mut f: Frame<'_>) -> Result<Program, MilError> {
    let (heads, seq, kernel) = (f.shape.config.heads, f.layout.seq, f.layout.kernel);
    let mut load = |activation: Activation| {
        let x = f.activation(activation)?;
        f.split_heads(activation.name(), x, heads)
    };
    let (q, k, v) = (load(Activation::Q)?, load(Activation::KTiled)?, load(Activation::VTiled)?);
    let da = match kernel {
        Kernel::WoSdpaBwd1 => attention_gradient(&mut f)?,
        _ => load(Activation::Da)?,
    };
    let scores = f.b.matmul("scores", q, k, Transpose::Y)?;
    let probs = probabilities(&mut f, scores)?;
    let dv = f.b.matmul("dv_heads", probs, da, Transpose::X)?;
    let dp = f.b.matmul("dp_heads", da, v, Transpose::Y)?;
    let dv = f.join_heads("dv", dv, heads)?;
    let probs = f.reshape("probs_flat", probs, [1, heads * seq, 1, seq])?;
    let dp = f.reshape("dp", dp, [1, heads * seq, 1, seq])?;
    f.finish(&[dv, probs, dp])
}

/// `da = Woᵀ·dx2`, as heads.
fn attention_gradient(f: &mut Frame<'_>) -> OpResult {
    let config = &f.shape.config;
    let (dim, q_dim, heads) = (config.dim, config.q_dim(), config.heads);
    let dx2 = f.activation(Activation::Dx2)?;
    let rows = f.rows("dx2", dx2, dim)?;
    let wo = f.matrix("wo", MatrixOrder::AsStaged)?;
    let product = f.product("dx2_wo", rows, wo)?;
    let da = f.columns("da_flat", product, q_dim)?;
    f.split_heads("da", da, heads)
}

pub(super) fn sdpa_bwd2(mut f: Frame<'_>) -> Result<Program, MilError> {
    let (heads, seq) = (f.shape.config.heads, f.layout.seq);
    let probs = f.activation(Activation::Probs)?;
    let probs = f.reshape("probs_heads", probs, [1, heads, seq, seq])?;
    let dp = f.activation(Activation::Dp)?;
    let dp = f.reshape("dp_heads", dp, [1, heads, seq, seq])?;
    let q = f.activation(Activation::Q)?;
    let q = f.split_heads("q", q, heads)?;
    let k = f.activation(Activation::KTiled)?;
    let k = f.split_heads("k_tiled", k, heads)?;
    let weighted = f.b.mul("probs_dp", probs, dp)?;
    let sum = f.b.reduce_sum("probs_dp_sum", weighted, &[-1], ReducedDims::Keep)?;
    let centered = f.b.sub("dp_centred", dp, sum)?;
    let ds = f.b.mul("ds_unscaled", probs, centered)?;
    let ds = f.b.scale("ds", ds, scale(&f))?;
    let dq = f.b.matmul("dq_heads", ds, k, Transpose::Neither)?;
    let dk = f.b.matmul("dk_heads", ds, q, Transpose::X)?;
    let dq = f.join_heads("dq", dq, heads)?;
    let dk = f.join_heads("dk", dk, heads)?;
    f.finish(&[dq, dk])
}
