//! `sdpaFwd`: projections, biases, QK-norm, rotation, masked attention; `fwdAttn`: the same and the
//! output projection.

use ferrane_mil::{MilError, Program, Transpose, ValueId};

use super::frame::{Frame, MatrixOrder};
use super::ops::{self, OpResult, int};
use super::tables;
use crate::config::RopeStyle;
use crate::layout::{Activation, Kernel};

/// One projection as `[1, C, 1, seq]` and as heads `[1, heads, seq, head_dim]`, both with the bias,
/// if any.
struct Projection {
    flat: ValueId,
    heads: ValueId,
}

pub(super) fn sdpa_fwd(mut f: Frame<'_>) -> Result<Program, MilError> {
    let config = &f.shape.config;
    let (heads, kv_heads, dim) = (config.heads, config.kv_heads, config.dim);
    let xnorm = f.activation(Activation::Xnorm)?;
    let rows = f.rows("xnorm", xnorm, dim)?;
    let q = project(&mut f, rows, "q", heads)?;
    let k = project(&mut f, rows, "k", kv_heads)?;
    let v = project(&mut f, rows, "v", kv_heads)?;
    let (mut q_heads, mut k_heads) = (q.heads, k.heads);
    if f.shape.config.qk_norm {
        q_heads = head_norm(&mut f, "q", q_heads)?;
        k_heads = head_norm(&mut f, "k", k_heads)?;
    }
    let (cos, sin) = tables::rope(&mut f)?;
    let q_rope = rotate(&mut f, "q", q_heads, heads, cos, sin)?;
    let k_rope = rotate(&mut f, "k", k_heads, kv_heads, cos, sin)?;

    let queries = group(&mut f, "q_group", q_rope)?;
    let scores = f.b.matmul("scores", queries, k_rope, Transpose::Y)?;
    let probs = super::attention_backward::probabilities(&mut f, scores)?;
    let probs = regroup(&mut f, "probs_group", probs)?;
    let attn = f.b.matmul("attn", probs, v.heads, Transpose::Neither)?;
    let attn = ungroup(&mut f, "attn_heads", attn)?;

    let attn_out = f.join_heads("attn_out", attn, heads)?;
    let q_tap = f.join_heads("q_rope", q_rope, heads)?;
    let k_tap = f.join_heads("k_rope", k_rope, kv_heads)?;
    let mut taps = vec![attn_out, q_tap, k_tap, v.flat];
    taps.push(match f.layout.kernel {
        Kernel::FwdAttn => output(&mut f, attn_out)?,
        _ => xnorm,
    });
    if f.shape.config.qk_norm {
        taps.extend([q.flat, k.flat]);
    }
    f.finish(&taps)
}

/// The output projection, `o_out = Wo·attn_out`.
fn output(f: &mut Frame<'_>, attn_out: ValueId) -> OpResult {
    let (dim, q_dim) = (f.shape.config.dim, f.shape.config.q_dim());
    let rows = f.rows("attn_out", attn_out, q_dim)?;
    let wo = f.matrix("wo", MatrixOrder::AsStaged)?;
    let product = f.product("attn_out_wo", rows, wo)?;
    f.columns("o_out", product, dim)
}

fn project(f: &mut Frame<'_>, rows: ValueId, name: &str, heads: usize) -> Result<Projection, MilError> {
    let hd = f.shape.config.head_dim;
    let weight = f.matrix(&format!("w{name}"), MatrixOrder::AsStaged)?;
    let product = f.product(&format!("{name}_rows"), rows, weight)?;
    let flat = f.columns(name, product, heads * hd)?;
    let split = f.split_heads(name, flat, heads)?;
    if !f.shape.config.qkv_bias {
        return Ok(Projection { flat, heads: split });
    }
    let bias = f.region(&format!("b{name}"))?;
    let biased = f.b.add(&format!("{name}_biased"), split, bias)?;
    let flat = f.join_heads(&format!("{name}_biased_flat"), biased, heads)?;
    Ok(Projection { flat, heads: biased })
}

fn head_norm(f: &mut Frame<'_>, name: &str, x: ValueId) -> OpResult {
    let gain = f.region(&format!("{name}_norm"))?;
    ops::head_norm(&mut f.b, &f.shape.config, name, x, gain)
}

/// Rotates heads: `x · cos + turned · sin`, where `turned` has (−o, e) for each pair (e, o).
fn rotate(f: &mut Frame<'_>, name: &str, x: ValueId, heads: usize, cos: ValueId, sin: ValueId) -> OpResult {
    let (hd, seq) = (f.shape.config.head_dim, f.layout.seq);
    let turned = match f.shape.config.rope.style {
        RopeStyle::Interleaved => {
            let pairs = f.reshape(&format!("{name}_pairs"), x, [1, heads, seq * hd / 2, 2])?;
            let turned = turn(f, name, pairs, [1, heads, seq * hd / 2, 1])?;
            f.reshape(&format!("{name}_turned"), turned, [1, heads, seq, hd])?
        }
        RopeStyle::Half => {
            let rotated = f.shape.config.rope.rotated(hd);
            let turned = turn(f, name, x, [1, heads, seq, rotated / 2])?;
            match hd - rotated {
                0 => turned,
                // The sine of elements that are not rotated is 0.
                kept => {
                    let (begin, size) = ([0, 0, 0, rotated].map(int), [1, heads, seq, kept].map(int));
                    let kept = f.b.slice_by_size(&format!("{name}_kept"), x, &begin, &size)?;
                    f.b.concat(&format!("{name}_turned"), &[turned, kept], 3)?
                }
            }
        }
    };
    let straight = f.b.mul(&format!("{name}_cos"), x, cos)?;
    let turned = f.b.mul(&format!("{name}_sin"), turned, sin)?;
    f.b.add(&format!("{name}_rope"), straight, turned)
}

/// The second `half` of the last axis, negated, followed by the first one.
fn turn(f: &mut Frame<'_>, name: &str, x: ValueId, half: [usize; 4]) -> OpResult {
    let size = half.map(int);
    let first = f.b.slice_by_size(&format!("{name}_e"), x, &[0, 0, 0, 0], &size)?;
    let second = f.b.slice_by_size(&format!("{name}_o"), x, &[0, 0, 0, size[3]], &size)?;
    let negated = f.b.scale(&format!("{name}_o_neg"), second, -1.0)?;
    f.b.concat(&format!("{name}_turn"), &[negated, first], 3)
}

/// Groups the query heads of each kv head: `[1, heads, seq, n]` as `[1, kv_heads, ratio · seq, n]`.
fn group(f: &mut Frame<'_>, name: &str, x: ValueId) -> OpResult {
    let (config, seq) = (&f.shape.config, f.layout.seq);
    if config.gqa_ratio() == 1 {
        return Ok(x);
    }
    let shape = [1, config.kv_heads, config.gqa_ratio() * seq, config.head_dim];
    f.reshape(name, x, shape)
}

fn regroup(f: &mut Frame<'_>, name: &str, probs: ValueId) -> OpResult {
    let (config, seq) = (&f.shape.config, f.layout.seq);
    if config.gqa_ratio() == 1 {
        return Ok(probs);
    }
    let shape = [1, config.kv_heads, config.gqa_ratio() * seq, seq];
    f.reshape(name, probs, shape)
}

fn ungroup(f: &mut Frame<'_>, name: &str, x: ValueId) -> OpResult {
    let (config, seq) = (&f.shape.config, f.layout.seq);
    if config.gqa_ratio() == 1 {
        return Ok(x);
    }
    let shape = [1, config.heads, seq, config.head_dim];
    f.reshape(name, x, shape)
}
