//! Attention: masks, splits between engine and CPU, keys and values as weights, whole blocks.

use ferrane_device::{Tensor, Tensors};
use ferrane_llm::config::preset;
use ferrane_llm::kernels::build;
use ferrane_llm::layout::{Kernel as LlmKernel, Residual, Shape, WeightForm};
use ferrane_mil::{Arg, Builder, Constant, Conv, DataType, Opset, Transpose, Type, ValueId, op};
use serde_json::{Value, json};

use super::super::context::Context;
use super::super::kernels::{Kernel, WEIGHTS, dense_values, halves, keeping};
use super::super::report::{SuiteCheck, SuiteRow};
use crate::error::Result;

/// The relative error of attention in fp16: a softmax between two products.
const TOLERANCE: f64 = 1e-2;

/// Queries, keys and values of some heads, `[heads, seq, width]` each.
struct Heads {
    heads: usize,
    seq: usize,
    width: usize,
    parts: [Vec<f32>; 3],
}

impl Heads {
    fn random(cx: &mut Context<'_, '_>, heads: usize, seq: usize, width: usize) -> Heads {
        let parts = [2.0, 2.0, 1.0].map(|most| dense_values(&mut cx.rng, heads * seq * width, most));
        Heads { heads, seq, width, parts }
    }

    fn shape(&self) -> [usize; 4] {
        [1, self.heads, self.seq, self.width]
    }

    fn ty(&self) -> Type {
        Type::tensor(DataType::Fp16, &self.shape())
    }

    fn flops(&self) -> f64 {
        4.0 * (self.heads * self.seq * self.seq * self.width) as f64
    }

    fn inputs(&self) -> Result<Tensors> {
        let mut inputs = Tensors::new();
        for (name, values) in ["q", "k", "v"].into_iter().zip(&self.parts) {
            inputs.insert(name, Tensor::from_f32(DataType::Fp16, &self.shape(), values)?);
        }
        Ok(inputs)
    }

    /// Attention in double precision, `[heads, seq, width]`.
    fn reference(&self, causal: bool) -> Vec<f32> {
        let [q, k, v] = &self.parts;
        let mut out = vec![0.0; q.len()];
        let row = |values: &[f32], h: usize, t: usize| -> Vec<f64> {
            let start = (h * self.seq + t) * self.width;
            values[start..start + self.width].iter().map(|v| f64::from(*v)).collect()
        };
        for h in 0..self.heads {
            for s in 0..self.seq {
                let query = row(q, h, s);
                let seen = if causal { s + 1 } else { self.seq };
                let score = |t: usize| -> f64 {
                    row(k, h, t).iter().zip(&query).map(|(k, q)| k * q).sum::<f64>() / (self.width as f64).sqrt()
                };
                let scores: Vec<f64> = (0..seen).map(score).collect();
                let most = scores.iter().copied().fold(f64::MIN, f64::max);
                let powers: Vec<f64> = scores.iter().map(|v| (v - most).exp()).collect();
                let sum: f64 = powers.iter().sum();
                for d in 0..self.width {
                    let value = |t: usize| f64::from(v[(h * self.seq + t) * self.width + d]);
                    let mixed: f64 = powers.iter().enumerate().map(|(t, p)| p * value(t)).sum();
                    out[(h * self.seq + s) * self.width + d] = (mixed / sum) as f32;
                }
            }
        }
        out
    }
}

/// 0 up to the diagonal and a large negative number after it, `[seq, seq]`: rows are queries.
fn mask(seq: usize) -> Vec<f32> {
    (0..seq * seq).map(|i| if i % seq <= i / seq { 0.0 } else { -30000.0 }).collect()
}

/// A constant in the blob file.
fn stored(b: &mut Builder, name: &str, shape: &[usize], values: &[f32]) -> Result<ValueId> {
    Ok(b.weight(name, WEIGHTS, DataType::Fp16, shape, halves(values))?)
}

/// `scaled_dot_product_attention` with a mask of this kind.
fn one_op(heads: &Heads, kind: &str) -> Result<Kernel> {
    let mut b = Builder::new("main", Opset::IOS18);
    let ids = ["q", "k", "v"].map(|name| b.input(name, heads.ty()));
    let [q, k, v] = ids;
    let mut args: Vec<(&str, Arg)> = vec![("key", k?.into()), ("query", q?.into()), ("value", v?.into())];
    let (shape, values) = ([1, 1, heads.seq, heads.seq], mask(heads.seq));
    let mut inputs = heads.inputs()?;
    match kind {
        "inline constant" => {
            args.push(("attn_mask", Constant::raw(DataType::Fp16, &shape, &halves(&values)).into()));
        }
        "constant in the blob file" => args.push(("attn_mask", stored(&mut b, "mask", &shape, &values)?.into())),
        "input" => {
            args.push(("attn_mask", b.input("mask", Type::tensor(DataType::Fp16, &shape))?.into()));
            inputs.insert("mask", Tensor::from_f32(DataType::Fp16, &shape, &values)?);
        }
        _ => {}
    }
    let y = b.op(op::SCALED_DOT_PRODUCT_ATTENTION, "y", args)?;
    Ok(Kernel { program: b.finish(&[("y", y)])?, inputs, flops: heads.flops(), weights: 0.0 })
}

fn config(heads: &Heads, what: (&str, &str)) -> Vec<(&'static str, Value)> {
    let key = if what.0 == "mask" { "mask" } else { "form" };
    vec![
        ("heads", json!(heads.heads)),
        ("positions", json!(heads.seq)),
        ("width", json!(heads.width)),
        (key, json!(what.1)),
    ]
}

pub(super) fn masks(cx: &mut Context<'_, '_>) -> Result<()> {
    let heads = Heads::random(cx, 12, 8, 64);
    let (causal, whole) = (heads.reference(true), heads.reference(false));
    let mut applied = 0;
    for kind in ["none", "inline constant", "constant in the blob file", "input"] {
        let kernel = one_op(&heads, kind)?;
        let row = SuiteRow::new("sdpa", &config(&heads, ("mask", kind)));
        let Some(ran) = cx.kernel(row, &kernel)? else { continue };
        let found = ran.output()?.to_f32();
        let [causal, whole] = [("causal attention", &causal), ("attention without a mask", &whole)]
            .map(|(name, wanted)| SuiteCheck::new(name, &found, wanted, TOLERANCE));
        let masked = causal.error < whole.error;
        applied += u8::from(masked && kind != "none");
        let check = if masked { causal } else { whole };
        if let Some(row) = cx.result.rows.last_mut() {
            row.config.insert("applied".into(), masked.into());
            row.check = Some(check);
        }
    }
    cx.find("masks_applied", f64::from(applied), "of 3", "kinds whose results are nearer to causal attention");
    Ok(())
}

pub(super) fn causal(cx: &mut Context<'_, '_>) -> Result<()> {
    let heads = Heads::random(cx, 12, 64, 64);
    let wanted = heads.reference(true);
    let kernel = one_op(&heads, "constant in the blob file")?;
    if let Some(ran) = cx.kernel(SuiteRow::new("causal", &config(&heads, ("form", "one op"))), &kernel)? {
        cx.check_with(SuiteCheck::new("plain loops", &ran.output()?.to_f32(), &wanted, TOLERANCE));
    }
    split(cx, &heads, &wanted)
}

/// Products on the engine, mask and softmax on the CPU.
fn split(cx: &mut Context<'_, '_>, heads: &Heads, wanted: &[f32]) -> Result<()> {
    let (seq, inputs) = (heads.seq, heads.inputs()?);
    let scores = [1, heads.heads, seq, seq];
    let product = |first: [usize; 4], second: [usize; 4], transposed: bool| -> Result<ferrane_mil::Program> {
        let mut b = Builder::new("main", Opset::IOS16);
        let x = b.input("x", Type::tensor(DataType::Fp16, &first))?;
        let y = b.input("y", Type::tensor(DataType::Fp16, &second))?;
        let out = b.matmul("out", x, y, Transpose::from_flags(false, transposed))?;
        Ok(b.finish(&[("out", out)])?)
    };
    let given = |x: &Tensor, y: &Tensor| {
        let mut tensors = Tensors::new();
        tensors.insert("x", x.clone());
        tensors.insert("y", y.clone());
        tensors
    };
    let of = |what: &str| config(heads, ("form", what));
    let (q, k, v) = (inputs.get("q")?, inputs.get("k")?, inputs.get("v")?);
    let first = Kernel {
        program: product(heads.shape(), heads.shape(), true)?,
        inputs: given(q, k),
        flops: heads.flops() / 2.0,
        weights: 0.0,
    };
    let Some(first) = cx.kernel(SuiteRow::new("causal", &of("scores alone")), &first)? else { return Ok(()) };
    let zeros = Tensor::zeros(DataType::Fp16, scores.to_vec())?;
    let second = Kernel {
        program: product(scores, heads.shape(), false)?,
        inputs: given(&zeros, v),
        flops: heads.flops() / 2.0,
        weights: 0.0,
    };
    let Some(second) = cx.kernel(SuiteRow::new("causal", &of("values alone")), &second)? else { return Ok(()) };
    let mut row = SuiteRow::new("causal", &of("softmax on the CPU"));
    let factor = 1.0 / (heads.width as f32).sqrt();
    cx.time(&mut row, || {
        let stats = first.bound.evaluate()?;
        let mut values = first.bound.read("out")?.to_f32();
        for (i, row) in values.chunks_exact_mut(seq).enumerate() {
            let (seen, hidden) = row.split_at_mut(i % seq + 1);
            let most = seen.iter().copied().fold(f32::MIN, f32::max);
            seen.iter_mut().for_each(|s| *s = ((*s - most) * factor).exp());
            let sum: f32 = seen.iter().sum();
            seen.iter_mut().for_each(|s| *s /= sum);
            hidden.fill(0.0);
        }
        second.bound.write("x", &Tensor::from_f32(DataType::Fp16, &scores, &values)?)?;
        Ok(stats.then(second.bound.evaluate()?))
    })?;
    // The CPU's part is only on the caller's clock.
    row.device = None;
    row.check = Some(SuiteCheck::new("plain loops", &second.output()?.to_f32(), wanted, TOLERANCE));
    cx.result.rows.push(row);
    Ok(())
}

/// Keys and values as weights of convolutions with a group for each head. Channels are
/// `head · width + d` on the way in and `head · seq + t` between the convolutions.
pub(super) fn grouped(cx: &mut Context<'_, '_>) -> Result<()> {
    let heads = Heads::random(cx, 12, 64, 64);
    let (n, seq, width) = (heads.heads, heads.seq, heads.width);
    let [q, k, v] = &heads.parts;
    let mut b = Builder::new("main", Opset::IOS16);
    let x = b.input("q", Type::tensor(DataType::Fp16, &[1, n * width, 1, seq]))?;
    // Weight [head · seq + t, d]: the key of position t.
    let keys = stored(&mut b, "keys", &[n * seq, width, 1, 1], k)?;
    let groups = Conv { groups: n as i32, ..Conv::default() };
    let scores = b.conv("scores", x, keys, None, &groups)?;
    let scores = b.scale("scaled", scores, 1.0 / (width as f32).sqrt())?;
    let scores = b.reshape("by_head", scores, &[1, n as i32, seq as i32, seq as i32])?;
    // Rows are keys here, so the mask is transposed.
    let transposed: Vec<f32> = (0..seq * seq).map(|i| if i / seq <= i % seq { 0.0 } else { -30000.0 }).collect();
    let mask = stored(&mut b, "mask", &[1, 1, seq, seq], &transposed)?;
    let masked = b.add("masked", scores, mask)?;
    let shares = b.softmax("shares", masked, 2)?;
    let shares = b.reshape("flat", shares, &[1, (n * seq) as i32, 1, seq as i32])?;
    // Weight [head · width + d, t].
    let turned: Vec<f32> = (0..n * width * seq)
        .map(|i| {
            let (h, d, t) = (i / (width * seq), i / seq % width, i % seq);
            v[(h * seq + t) * width + d]
        })
        .collect();
    let values = stored(&mut b, "values", &[n * width, seq, 1, 1], &turned)?;
    let y = b.conv("y", shares, values, None, &groups)?;
    let program = b.finish(&[("y", y)])?;
    let by_channel = |values: &[f32]| -> Vec<f32> {
        (0..n * width * seq).map(|i| values[(i / (width * seq) * seq + i % seq) * width + i / seq % width]).collect()
    };
    let mut inputs = Tensors::new();
    inputs.insert("q", Tensor::from_f32(DataType::Fp16, &[1, n * width, 1, seq], &by_channel(q))?);
    let kernel = Kernel { program, inputs, flops: heads.flops(), weights: 4.0 * (n * width * seq) as f64 };
    let row = SuiteRow::new("causal", &config(&heads, ("form", "keys and values as weights")));
    if let Some(ran) = cx.kernel(row, &kernel)? {
        let wanted = by_channel(&heads.reference(true));
        cx.check_with(SuiteCheck::new("plain loops", &ran.output()?.to_f32(), &wanted, TOLERANCE));
    }
    Ok(())
}

pub(super) fn fused(cx: &mut Context<'_, '_>) -> Result<()> {
    let config = preset("stories110m").map_err(|e| crate::Error::WrongResult(e.to_string()))?;
    let (dim, seq) = (config.dim, 64);
    for kernel in
        [LlmKernel::SdpaFwd, LlmKernel::WoFwd, LlmKernel::FfnFused, LlmKernel::FfnBwdW13t, LlmKernel::SdpaBwd1]
    {
        let shape = Shape::new(config.clone(), seq, Residual::default(), WeightForm::default());
        let (program, _) = build(&shape, kernel).map_err(|e| crate::Error::WrongResult(e.to_string()))?;
        let mut inputs = Tensors::new();
        let function = program.functions.first().cloned().unwrap_or_default();
        for id in &function.inputs {
            let value = function.value(*id);
            let extents = value.ty.shape().unwrap_or_default();
            let values = dense_values(&mut cx.rng, extents.iter().product(), keeping(dim));
            inputs.insert(&value.name, Tensor::from_f32(DataType::Fp16, &extents, &values)?);
        }
        let row = SuiteRow::new(
            "training-kernel",
            &[("kernel", json!(kernel.name())), ("dim", json!(dim)), ("positions", json!(seq))],
        );
        let kernel = Kernel { program, inputs, flops: 0.0, weights: 0.0 };
        if let Some(ran) = cx.kernel(row, &kernel)? {
            cx.check_last(&kernel, &ran, TOLERANCE)?;
        }
    }
    Ok(())
}
