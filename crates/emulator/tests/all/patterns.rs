//! The patterns of the ten kernels (training-dynamic §2, §3) against plain loops.

use ferrane_emulator::Numerics;
use ferrane_mil::{Builder, Constant, DataType, MilError, ReducedDims, Transpose, ValueId};

use crate::harness::{BOTH, Tensor, close, half, program, run, steps};

use DataType::Fp16;

/// fp32 sums of at most a hundred products below 1, rounded to fp16.
const SUM: (f64, f64) = (2e-5, 1e-3);

/// Slice → reshape → transpose → matmul → transpose → reshape (training-dynamic §2).
fn dynamic(
    b: &mut Builder,
    x: ValueId,
    at: (i32, i32),
    rows: (i32, i32),
    seq: i32,
    flip: bool,
) -> Result<ValueId, MilError> {
    let (ic, oc) = rows;
    let a = b.slice_by_size("a", x, &[0, 0, 0, at.0], &[1, ic, 1, seq])?;
    let a = b.reshape("a2", a, &[1, 1, ic, seq])?;
    let a = b.transpose("at", a, &[0, 1, 3, 2])?;
    let width = if flip { ic } else { oc };
    let height = if flip { oc } else { ic };
    let w = b.slice_by_size("w", x, &[0, 0, 0, at.1], &[1, height, 1, width])?;
    let mut w = b.reshape("w2", w, &[1, 1, height, width])?;
    if flip {
        w = b.transpose("wt", w, &[0, 1, 3, 2])?;
    }
    let y = b.matmul("y", a, w, Transpose::Neither)?;
    let y = b.transpose("yt", y, &[0, 1, 3, 2])?;
    b.reshape("yr", y, &[1, oc, 1, seq])
}

#[test]
fn a_dynamic_product_is_one_step_without_copies() {
    let (ic, oc, seq) = (24, 40, 16);
    let x = Tensor::random(Fp16, &[1, ic, 1, seq + oc], 1);
    let program = program(std::slice::from_ref(&x), |b, ids| {
        Ok(vec![dynamic(b, ids[0], (0, seq as i32), (ic as i32, oc as i32), seq as i32, false)?])
    });
    assert_eq!(steps(&program), ["matmul"]);
    let row = seq + oc;
    let wanted: Vec<f64> = (0..oc * seq)
        .map(|n| (0..ic).map(|c| x.values[c * row + n % seq] * x.values[c * row + seq + n / seq]).sum())
        .collect();
    for numerics in BOTH {
        let found = run(numerics, &program, std::slice::from_ref(&x)).unwrap();
        close(&found[0].values, &wanted, SUM.0, SUM.1).unwrap_or_else(|e| panic!("{numerics:?}: {e}"));
    }
}

/// K3 with its taps: products written into the slots of the output, one group for the gate.
#[test]
fn feed_forward_writes_its_taps_in_place() {
    let (dim, hidden, seq) = (16usize, 24usize, 8usize);
    let width = 2 * seq + 3 * hidden;
    let x = Tensor::random(Fp16, &[1, dim, 1, width], 3);
    let program = program(std::slice::from_ref(&x), |b, ids| {
        let (d, h, s) = (dim as i32, hidden as i32, seq as i32);
        let h1 = dynamic(b, ids[0], (0, 2 * s), (d, h), s, false)?;
        let h3 = dynamic(b, ids[0], (0, 2 * s + h), (d, h), s, false)?;
        let sig = b.sigmoid("sig", h1)?;
        let silu = b.mul("silu", h1, sig)?;
        let gate = b.mul("gate", silu, h3)?;
        let g = b.reshape("g2", gate, &[1, 1, h, s])?;
        let g = b.transpose("gt", g, &[0, 1, 3, 2])?;
        let w = b.slice_by_size("w2", ids[0], &[0, 0, 0, 2 * s + 2 * h], &[1, d, 1, h])?;
        let w = b.reshape("w2r", w, &[1, 1, d, h])?;
        let w = b.transpose("w2t", w, &[0, 1, 3, 2])?;
        let f = b.matmul("ffn", g, w, Transpose::Neither)?;
        let f = b.transpose("ft", f, &[0, 1, 3, 2])?;
        let f = b.reshape("fr", f, &[1, d, 1, s])?;
        let alpha = b.constant("alpha", Constant::fp16(0.204124))?;
        let f = b.mul("scaled", f, alpha)?;
        let x2 = b.slice_by_size("x2", ids[0], &[0, 0, 0, s], &[1, d, 1, s])?;
        let next = b.add("next", x2, f)?;
        Ok(vec![b.concat("out", &[next, h1, h3, gate], 1)?])
    });
    assert_eq!(steps(&program), ["matmul", "matmul", "mul", "matmul", "add"]);
    let at = |c: usize, i: usize| x.values[c * width + i];
    // fp16 between the ops, as `fast` has it.
    for numerics in BOTH {
        let r = |v: f64| if numerics == Numerics::Fast { half(v) } else { v };
        let product = |o: usize, t: usize, base: usize| r((0..dim).map(|c| at(c, t) * at(c, base + o)).sum());
        let mut wanted = vec![0.0; (dim + 3 * hidden) * seq];
        let mut gate = vec![0.0; hidden * seq];
        for o in 0..hidden {
            for t in 0..seq {
                let (h1, h3) = (product(o, t, 2 * seq), product(o, t, 2 * seq + hidden));
                let silu = r(h1 * r(1.0 / (1.0 + (-h1).exp())));
                gate[o * seq + t] = r(silu * h3);
                for (tap, v) in [h1, h3, gate[o * seq + t]].into_iter().enumerate() {
                    wanted[(dim + tap * hidden + o) * seq + t] = v;
                }
            }
        }
        for d in 0..dim {
            for t in 0..seq {
                let f: f64 = (0..hidden).map(|o| gate[o * seq + t] * at(d, 2 * seq + 2 * hidden + o)).sum();
                wanted[d * seq + t] = r(at(d, seq + t) + r(half(0.204124) * r(f)));
            }
        }
        let found = run(numerics, &program, std::slice::from_ref(&x)).unwrap();
        // A value near a tie may round to either side; what follows from it moves with it.
        close(&found[0].values, &wanted, 1e-3, 2e-3).unwrap_or_else(|e| panic!("{numerics:?}: {e}"));
    }
}

/// The attention of K1 with rotation, grouped heads by concat, mask constant, softmax, taps.
#[test]
fn attention_with_rotation_and_grouped_heads() {
    let (heads, kv, hd, seq) = (4usize, 2usize, 8usize, 6usize);
    let channels = (heads + 2 * kv) * hd;
    let x = Tensor::random(Fp16, &[1, channels, 1, seq], 5);
    let (cos, sin) = (Tensor::random(Fp16, &[1, 1, seq, hd], 6), Tensor::random(Fp16, &[1, 1, seq, hd], 7));
    let mask: Vec<f64> = (0..seq * seq).map(|n| if n % seq > n / seq { -65504.0 } else { 0.0 }).collect();
    let mask = Tensor::new(Fp16, &[1, 1, seq, seq], mask);
    let raw = |t: &Tensor| Constant::raw(t.dtype, &t.shape, &t.to_bytes());
    let program = program(std::slice::from_ref(&x), |b, ids| {
        let (h, k, d, s) = (heads as i32, kv as i32, hd as i32, seq as i32);
        let (cos, sin) = (b.constant("cos", raw(&cos))?, b.constant("sin", raw(&sin))?);
        let part = |b: &mut Builder, at: i32, n: i32| -> Result<ValueId, MilError> {
            let p = b.slice_by_size("part", ids[0], &[0, at, 0, 0], &[1, n * d, 1, s])?;
            let p = b.reshape("split", p, &[1, n, d, s])?;
            b.transpose("rows", p, &[0, 1, 3, 2])
        };
        let rotate = |b: &mut Builder, p: ValueId, n: i32| -> Result<ValueId, MilError> {
            let pairs = b.reshape("pairs", p, &[1, n, s * d / 2, 2])?;
            let e = b.slice_by_size("e", pairs, &[0, 0, 0, 0], &[1, n, s * d / 2, 1])?;
            let o = b.slice_by_size("o", pairs, &[0, 0, 0, 1], &[1, n, s * d / 2, 1])?;
            let o = b.scale("minus", o, -1.0)?;
            let turned = b.concat("turned", &[o, e], 3)?;
            let turned = b.reshape("turned2", turned, &[1, n, s, d])?;
            let (a, c) = (b.mul("xc", p, cos)?, b.mul("rs", turned, sin)?);
            b.add("rope", a, c)
        };
        let q = part(b, 0, h)?;
        let q = rotate(b, q, h)?;
        let k1 = part(b, h * d, k)?;
        let k1 = rotate(b, k1, k)?;
        let v1 = part(b, (h + k) * d, k)?;
        let k2 = b.concat("kt", &[k1, k1], 1)?;
        let v2 = b.concat("vt", &[v1, v1], 1)?;
        let scores = b.matmul("scores", q, k2, Transpose::Y)?;
        let scores = b.scale("scaled", scores, 1.0 / (hd as f32).sqrt())?;
        let mask = b.constant("mask", raw(&mask))?;
        let scores = b.add("masked", scores, mask)?;
        let probs = b.softmax("probs", scores, -1)?;
        let out = b.matmul("out", probs, v2, Transpose::Neither)?;
        let back = |b: &mut Builder, v: ValueId, n: i32| -> Result<ValueId, MilError> {
            let v = b.transpose("back", v, &[0, 1, 3, 2])?;
            b.reshape("flat", v, &[1, n * d, 1, s])
        };
        let (out, q, k1) = (back(b, out, h)?, back(b, q, h)?, back(b, k1, k)?);
        let probs = b.reshape("rows", probs, &[1, h * s, 1, s])?;
        Ok(vec![b.concat("taps", &[out, q, k1], 1)?, probs])
    });
    let at = |c: usize, t: usize| x.values[c * seq + t];
    let rope = |c: usize, t: usize| {
        let d = c % hd;
        let other = if d.is_multiple_of(2) { -at(c + 1, t) } else { at(c - 1, t) };
        at(c, t) * cos.values[t * hd + d] + other * sin.values[t * hd + d]
    };
    let mut wanted = vec![0.0; (2 * heads + kv) * hd * seq];
    let mut probs = vec![0.0; heads * seq * seq];
    for h in 0..heads {
        for t in 0..seq {
            let score = |u: usize| {
                let dot: f64 = (0..hd).map(|d| rope(h * hd + d, t) * rope((heads + h % kv) * hd + d, u)).sum();
                if u > t { f64::NEG_INFINITY } else { dot / (hd as f64).sqrt() }
            };
            let total: f64 = (0..seq).map(|u| score(u).exp()).sum();
            for u in 0..seq {
                probs[(h * seq + t) * seq + u] = score(u).exp() / total;
            }
            for d in 0..hd {
                wanted[(h * hd + d) * seq + t] =
                    (0..seq).map(|u| probs[(h * seq + t) * seq + u] * at((heads + kv + h % kv) * hd + d, u)).sum();
            }
        }
    }
    for c in 0..(heads + kv) * hd {
        for t in 0..seq {
            wanted[(heads * hd + c) * seq + t] = rope(c, t);
        }
    }
    for (numerics, tolerance) in [(Numerics::Exact, 6e-4), (Numerics::Fast, 4e-3)] {
        let found = run(numerics, &program, std::slice::from_ref(&x)).unwrap();
        // `fast` rounds a handful of times on the way, each within 2⁻¹¹ of values of about 2.
        close(&found[0].values, &wanted, tolerance, tolerance).unwrap_or_else(|e| panic!("{numerics:?}: {e}"));
        close(&found[1].values, &probs, tolerance, tolerance).unwrap_or_else(|e| panic!("probs {numerics:?}: {e}"));
    }
}

/// K8: ds = probs · (dp − Σ probs · dp) · scale, and its two products.
#[test]
fn softmax_backward() {
    let (heads, hd, seq) = (3usize, 4usize, 5usize);
    let score = heads * seq;
    let x = Tensor::random(Fp16, &[1, 2 * score + 2 * heads * hd, 1, seq], 8);
    let scale = 1.0 / (hd as f32).sqrt();
    let program = program(std::slice::from_ref(&x), |b, ids| {
        let (h, d, s) = (heads as i32, hd as i32, seq as i32);
        let rows = |b: &mut Builder, at: i32| -> Result<ValueId, MilError> {
            let p = b.slice_by_size("p", ids[0], &[0, at, 0, 0], &[1, h * s, 1, s])?;
            b.reshape("p4", p, &[1, h, s, s])
        };
        let heads_of = |b: &mut Builder, at: i32| -> Result<ValueId, MilError> {
            let p = b.slice_by_size("v", ids[0], &[0, at, 0, 0], &[1, h * d, 1, s])?;
            let p = b.reshape("v4", p, &[1, h, d, s])?;
            b.transpose("vt", p, &[0, 1, 3, 2])
        };
        let (p, dp) = (rows(b, 0)?, rows(b, h * s)?);
        let (q, k) = (heads_of(b, 2 * h * s)?, heads_of(b, 2 * h * s + h * d)?);
        let pdp = b.mul("pdp", p, dp)?;
        let sum = b.reduce_sum("sum", pdp, &[-1], ReducedDims::Keep)?;
        let centered = b.sub("centered", dp, sum)?;
        let ds = b.mul("ds0", p, centered)?;
        let ds = b.scale("ds", ds, scale)?;
        let dq = b.matmul("dq", ds, k, Transpose::Neither)?;
        let dk = b.matmul("dk", ds, q, Transpose::X)?;
        let back = |b: &mut Builder, v: ValueId| -> Result<ValueId, MilError> {
            let v = b.transpose("b", v, &[0, 1, 3, 2])?;
            b.reshape("br", v, &[1, h * d, 1, s])
        };
        let (dq, dk) = (back(b, dq)?, back(b, dk)?);
        Ok(vec![b.concat("out", &[dq, dk], 1)?])
    });
    let at = |c: usize, i: usize| x.values[c * seq + i];
    let ds = |h: usize, t: usize, u: usize| {
        let (p, dp) = (|u| at(h * seq + t, u), |u| at(score + h * seq + t, u));
        let sum: f64 = (0..seq).map(|u| p(u) * dp(u)).sum();
        p(u) * (dp(u) - sum) * f64::from(scale)
    };
    let mut wanted = vec![0.0; 2 * heads * hd * seq];
    for h in 0..heads {
        for d in 0..hd {
            let (q, k) = (2 * score + h * hd + d, 2 * score + (heads + h) * hd + d);
            for t in 0..seq {
                wanted[(h * hd + d) * seq + t] = (0..seq).map(|u| ds(h, t, u) * at(k, u)).sum();
                wanted[((heads + h) * hd + d) * seq + t] = (0..seq).map(|u| ds(h, u, t) * at(q, u)).sum();
            }
        }
    }
    for (numerics, tolerance) in [(Numerics::Exact, 6e-4), (Numerics::Fast, 4e-3)] {
        let found = run(numerics, &program, std::slice::from_ref(&x)).unwrap();
        close(&found[0].values, &wanted, tolerance, tolerance).unwrap_or_else(|e| panic!("{numerics:?}: {e}"));
    }
}
