//! Every kernel on the emulator compared with plain loops in float64.

use crate::gradients::{everything, plain, random_weights};
use ferrane_device::Device;
use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};
use ferrane_llm::config::{Config, Rope, RopeScaling, RopeStyle};
use ferrane_llm::kernels::{self, ModelConstants};
use ferrane_llm::layout::{Content, Kernel, PipelineKind, Residual, Shape, WeightForm};
use ferrane_llm::random::Rng;
use ferrane_llm::staging::{LayerInputs, output_surface, read_tap};
use ferrane_llm::weights::Layer;
use half::f16;
use std::collections::HashMap;

/// An emulator with these numerics.
pub fn emulator(numerics: Numerics) -> Device {
    let mut options = EmulatorOptions::default();
    options.numerics = numerics;
    Device::new(Emulator::new(options))
}

/// Activations `[channels, seq]` by name.
type Values = HashMap<&'static str, Vec<f64>>;

/// Plain loops in float64 over one layer.
struct Plain<'a> {
    config: &'a Config,
    seq: usize,
    layer: &'a Layer,
    model: ModelConstants<'a>,
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

impl Plain<'_> {
    /// `W·x` for `W` `[out, in]` and `x` `[in, seq]`; `Wᵀ·x` with `transposed`.
    fn product(&self, w: &[f32], x: &[f64], transposed: bool) -> Vec<f64> {
        let s = self.seq;
        let inner = x.len() / s;
        let outer = w.len() / inner;
        let mut y = vec![0.0; outer * s];
        for o in 0..outer {
            for i in 0..inner {
                let weight = f64::from(if transposed { w[i * outer + o] } else { w[o * inner + i] });
                for t in 0..s {
                    y[o * s + t] += weight * x[i * s + t];
                }
            }
        }
        y
    }

    fn add(a: &[f64], b: &[f64]) -> Vec<f64> {
        a.iter().zip(b).map(|(a, b)| a + b).collect()
    }

    fn add_bias(&self, mut x: Vec<f64>, bias: Option<&Vec<f32>>) -> Vec<f64> {
        if let Some(bias) = bias {
            x.chunks_mut(self.seq).zip(bias).for_each(|(row, b)| row.iter_mut().for_each(|v| *v += f64::from(*b)));
        }
        x
    }

    /// Norm of every head, if there is a gain, then the rotation.
    fn norm_and_rotate(&self, x: &[f64], gain: Option<&Vec<f32>>) -> Vec<f64> {
        let (s, hd) = (self.seq, self.config.head_dim);
        let mut y = x.to_vec();
        for head in y.chunks_mut(hd * s) {
            for t in 0..s {
                if let Some(gain) = gain {
                    let mean = (0..hd).map(|d| head[d * s + t].powi(2)).sum::<f64>() / hd as f64;
                    let r = 1.0 / (mean + f64::from(self.config.norm_eps)).sqrt();
                    (0..hd).for_each(|d| head[d * s + t] *= r * f64::from(gain[d]));
                }
                let rotated = self.config.rope.rotated.unwrap_or(hd);
                let factor = match &self.config.rope.scaling {
                    Some(RopeScaling::Linear { factor }) => *factor,
                    _ => 1.0,
                };
                for pair in 0..rotated / 2 {
                    let (a, b) = match self.config.rope.style {
                        RopeStyle::Interleaved => (2 * pair, 2 * pair + 1),
                        RopeStyle::Half => (pair, pair + rotated / 2),
                    };
                    let base = f64::from(self.config.rope.base);
                    let (sin, cos) = (t as f64 / factor * base.powf(-2.0 * pair as f64 / rotated as f64)).sin_cos();
                    let (e, o) = (head[a * s + t], head[b * s + t]);
                    (head[a * s + t], head[b * s + t]) = (e * cos - o * sin, o * cos + e * sin);
                }
            }
        }
        y
    }

    /// Probabilities `[heads · seq, seq]` of queries `[heads · hd, seq]`; query head `h` reads key
    /// head `h / ratio`.
    fn probabilities(&self, q: &[f64], k: &[f64], ratio: usize) -> Vec<f64> {
        let (s, hd) = (self.seq, self.config.head_dim);
        let mut p = vec![0.0; self.config.heads * s * s];
        for h in 0..self.config.heads {
            for i in 0..s {
                let row = &mut p[(h * s + i) * s..][..s];
                for (j, v) in row.iter_mut().enumerate() {
                    let seen = j <= i && self.config.sliding_window.is_none_or(|w| i < j + w);
                    let dot: f64 = (0..hd).map(|d| q[(h * hd + d) * s + i] * k[(h / ratio * hd + d) * s + j]).sum();
                    *v = if seen { dot / (hd as f64).sqrt() } else { f64::NEG_INFINITY };
                }
                let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                row.iter_mut().for_each(|v| *v = (*v - top).exp());
                let sum: f64 = row.iter().sum();
                row.iter_mut().for_each(|v| *v /= sum);
            }
        }
        p
    }

    /// `out[h, d, i] = Σ_j m[h, i, j] · x[h / ratio, d, j]`, or over the first index of `m` with
    /// `transposed`.
    fn mix(&self, m: &[f64], x: &[f64], ratio: usize, transposed: bool) -> Vec<f64> {
        let (s, hd) = (self.seq, self.config.head_dim);
        let mut out = vec![0.0; self.config.q_dim() * s];
        for h in 0..self.config.heads {
            for d in 0..hd {
                for i in 0..s {
                    let at = |j: usize| if transposed { m[(h * s + j) * s + i] } else { m[(h * s + i) * s + j] };
                    out[(h * hd + d) * s + i] = (0..s).map(|j| at(j) * x[(h / ratio * hd + d) * s + j]).sum();
                }
            }
        }
        out
    }

    /// `1/√(mean of x² + eps)` of token `t`.
    fn inverse_rms(&self, x: &[f64], t: usize) -> f64 {
        let mean = x[t..].iter().step_by(self.seq).map(|v| v * v).sum::<f64>() / self.config.dim as f64;
        1.0 / (mean + f64::from(self.config.norm_eps)).sqrt()
    }

    /// The gradient of a norm with these gains.
    fn norm_gradient(&self, gain: &[f32], x: &[f64], dy: &[f64]) -> Vec<f64> {
        let (s, dim) = (self.seq, self.config.dim);
        let mut dx = vec![0.0; x.len()];
        for t in 0..s {
            let r = self.inverse_rms(x, t);
            let mean = (0..dim).map(|c| f64::from(gain[c]) * dy[c * s + t] * x[c * s + t]).sum::<f64>() / dim as f64;
            for c in 0..dim {
                dx[c * s + t] = r * (f64::from(gain[c]) * dy[c * s + t] - x[c * s + t] * r * r * mean);
            }
        }
        dx
    }

    fn run(&self, kernel: Kernel, x: &Values) -> Values {
        let (l, c, s) = (self.layer, self.config, self.seq);
        let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
        match kernel {
            Kernel::SdpaFwd => {
                let q_pre = self.add_bias(self.product(&l.wq, &x["xnorm"], false), l.bq.as_ref());
                let k_pre = self.add_bias(self.product(&l.wk, &x["xnorm"], false), l.bk.as_ref());
                let v = self.add_bias(self.product(&l.wv, &x["xnorm"], false), l.bv.as_ref());
                let q_rope = self.norm_and_rotate(&q_pre, l.q_norm.as_ref());
                let k_rope = self.norm_and_rotate(&k_pre, l.k_norm.as_ref());
                let p = self.probabilities(&q_rope, &k_rope, c.gqa_ratio());
                let attn_out = self.mix(&p, &v, c.gqa_ratio(), false);
                let xnorm = x["xnorm"].clone();
                HashMap::from([
                    ("attn_out", attn_out),
                    ("q_rope", q_rope),
                    ("k_rope", k_rope),
                    ("v", v),
                    ("xnorm", xnorm),
                    ("q_pre", q_pre),
                    ("k_pre", k_pre),
                ])
            }
            Kernel::WoFwd => HashMap::from([("o_out", self.product(&l.wo, &x["attn_out"], false))]),
            Kernel::FfnFused => {
                let h1 = self.product(&l.w1, &x["x2norm"], false);
                let h3 = self.product(&l.w3, &x["x2norm"], false);
                let gate: Vec<f64> = h1.iter().zip(&h3).map(|(a, b)| a * sigmoid(*a) * b).collect();
                let ffn = self.product(&l.w2, &gate, false);
                let scaled: Vec<f64> = ffn.iter().map(|v| v * f64::from(c.residual_scale)).collect();
                let x_next = Self::add(&x["x2"], &scaled);
                HashMap::from([("x_next", x_next), ("h1", h1), ("h3", h3), ("gate", gate), ("ffn", ffn)])
            }
            Kernel::FfnBwdW2t => HashMap::from([("dgate", self.product(&l.w2, &x["dffn"], true))]),
            Kernel::FfnBwdW13t => {
                let (a, b) = (self.product(&l.w1, &x["dh1"], true), self.product(&l.w3, &x["dh3"], true));
                HashMap::from([("dx", Self::add(&a, &b))])
            }
            Kernel::WotBwd => HashMap::from([("da", self.product(&l.wo, &x["dx2"], true))]),
            Kernel::SdpaBwd1 => {
                let probs = self.probabilities(&x["q"], &x["k_tiled"], 1);
                let dv = self.mix(&probs, &x["da"], 1, true);
                let mut dp = vec![0.0; probs.len()];
                let hd = c.head_dim;
                for (n, v) in dp.iter_mut().enumerate() {
                    let (h, i, j) = (n / (s * s), n / s % s, n % s);
                    let at = |name: &str, d: usize, t: usize| x[name][(h * hd + d) * s + t];
                    *v = (0..hd).map(|d| at("da", d, i) * at("v_tiled", d, j)).sum();
                }
                HashMap::from([("dv", dv), ("probs", probs), ("dp", dp)])
            }
            Kernel::SdpaBwd2 => {
                let (probs, dp) = (&x["probs"], &x["dp"]);
                let mut ds = vec![0.0; probs.len()];
                for row in 0..ds.len() / s {
                    let range = row * s..(row + 1) * s;
                    let sum: f64 = range.clone().map(|n| probs[n] * dp[n]).sum();
                    range.for_each(|n| ds[n] = probs[n] * (dp[n] - sum) / (c.head_dim as f64).sqrt());
                }
                let dq = self.mix(&ds, &x["k_tiled"], 1, false);
                HashMap::from([("dq", dq), ("dk", self.mix(&ds, &x["q"], 1, true))])
            }
            Kernel::QBwd => HashMap::from([("dx", self.product(&l.wq, &x["dq"], true))]),
            Kernel::KvBwd => {
                let (a, b) = (self.product(&l.wk, &x["dk"], true), self.product(&l.wv, &x["dv"], true));
                HashMap::from([("dx", Self::add(&a, &b))])
            }
            Kernel::FwdAttn => {
                let mut taps = self.run(Kernel::SdpaFwd, x);
                taps.insert("o_out", self.product(&l.wo, &taps["attn_out"], false));
                taps
            }
            Kernel::FfnBwd => {
                let dgate = self.product(&l.w2, &x["dffn"], true);
                let (mut dh1, mut dh3) = (dgate.clone(), dgate);
                for (n, (h1, h3)) in x["h1"].iter().zip(&x["h3"]).enumerate() {
                    let sig = sigmoid(*h1);
                    dh1[n] *= h3 * sig * (1.0 + h1 * (1.0 - sig));
                    dh3[n] *= h1 * sig;
                }
                let (a, b) = (self.product(&l.w1, &dh1, true), self.product(&l.w3, &dh3, true));
                HashMap::from([("dx", Self::add(&a, &b)), ("dh1", dh1), ("dh3", dh3)])
            }
            Kernel::WoSdpaBwd1 => {
                let mut x = x.clone();
                x.insert("da", self.product(&l.wo, &x["dx2"], true));
                self.run(Kernel::SdpaBwd1, &x)
            }
            Kernel::QkvBwd => {
                let q = self.product(&l.wq, &x["dq"], true);
                let kv = &self.run(Kernel::KvBwd, x)["dx"];
                HashMap::from([("dx", Self::add(&q, kv))])
            }
            Kernel::RmsFfnBwd => HashMap::from([("dx", self.norm_gradient(&l.ffn_norm, &x["x"], &x["dy"]))]),
            Kernel::RmsAttnBwd => HashMap::from([("dx", self.norm_gradient(&l.attn_norm, &x["x"], &x["dy"]))]),
            Kernel::RmsFinal => {
                let gain = |n: usize| f64::from(self.model.norm[n / s]);
                let normed = |(n, v): (usize, &f64)| v * self.inverse_rms(&x["x"], n % s) * gain(n);
                HashMap::from([("xnorm", x["x"].iter().enumerate().map(normed).collect())])
            }
            Kernel::Classifier => HashMap::from([("logits", self.product(self.model.classifier, &x["xnorm"], false))]),
            Kernel::Softmax => {
                let mut p: Vec<f64> = x["logits"].iter().map(|v| v.exp()).collect();
                for t in 0..s {
                    let sum: f64 = p[t..].iter().step_by(s).sum();
                    p[t..].iter_mut().step_by(s).for_each(|v| *v /= sum);
                }
                HashMap::from([("class_probs", p)])
            }
        }
    }
}

/// Largest error over the taps of a kernel, relative to each tap's largest value.
fn error_of(device: &Device, shape: &Shape, kernel: Kernel, seed: u64) -> (f64, &'static str) {
    let (config, seq) = (&shape.config, shape.seq);
    // Weights that fp16 represents exactly, so that only the kernel's arithmetic differs.
    let mut weights = random_weights(config, seed);
    for tensor in weights.tensors_mut(config) {
        let scale = if tensor.shape.len() == 2 { 2.0 / (config.dim as f32).sqrt() } else { 1.0 };
        tensor.data.iter_mut().for_each(|v| *v = f16::from_f32(*v * scale).to_f32());
    }
    let layer = &weights.layers[0];
    let model = ModelConstants { norm: &weights.norm, classifier: &weights.embed };
    let (program, layout) = match kernel.is_of_model() {
        true => kernels::build_model(shape, kernel, model).unwrap(),
        false => kernels::build_layer(shape, kernel, layer).unwrap(),
    };
    let executable = device.load(&program, kernel.name()).unwrap();
    let output = output_surface(device, &executable).unwrap();
    let bound = LayerInputs::new(device, &executable, &layout, &output).unwrap();
    bound.stage(&layout, layer).unwrap();
    let mut rng = Rng::new(seed + 1);
    let mut values = Values::new();
    for region in layout.regions.iter().filter(|r| r.content == Content::Activation) {
        let mut x: Vec<f32> = (0..region.channels * region.len).map(|_| rng.normal() as f32).collect();
        if region.name == "probs" {
            x.chunks_mut(seq).for_each(|row| {
                let sum: f32 = row.iter().map(|v| v.abs()).sum();
                row.iter_mut().for_each(|v| *v = v.abs() / sum);
            });
        }
        x.iter_mut().for_each(|v| *v = f16::from_f32(*v).to_f32());
        bound.write(region, &x).unwrap();
        values.insert(region.name, wide(&x));
    }
    bound.request().evaluate().unwrap();
    let expected = Plain { config, seq, layer, model }.run(kernel, &values);
    let access = output.read().unwrap();
    let mut worst = (0.0, "");
    for tap in &layout.taps {
        let mut found = vec![0.0; tap.channels * seq];
        read_tap(&access, tap, &mut found).unwrap();
        let expected = &expected[tap.name];
        assert_eq!(found.len(), expected.len(), "{} {}", kernel.name(), tap.name);
        // With one token the gradient of the scores is zero, so the result must be exactly zero.
        let top = expected.iter().fold(f64::MIN_POSITIVE, |m, v| m.max(v.abs()));
        let error = found.iter().zip(expected).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max) / top;
        if error.is_nan() || error > worst.0 {
            worst = (error, tap.name);
        }
    }
    worst
}

pub fn cases() -> Vec<(&'static str, Config, usize)> {
    let mha = |c: Config| Config { kv_heads: c.heads, ..c };
    let part = |style| Rope {
        rotated: Some(4),
        scaling: Some(RopeScaling::Linear { factor: 3.0 }),
        ..Rope::new(style, 100.0)
    };
    let medium = Config { dim: 192, hidden: 320, heads: 8, kv_heads: 2, head_dim: 32, ..everything() };
    vec![
        ("multi-head", mha(plain()), 7),
        ("grouped", plain(), 8),
        ("one kv head", Config { kv_heads: 1, ..plain() }, 5),
        ("one token", plain(), 1),
        ("half-rotated", Config { rope: everything().rope, ..plain() }, 8),
        ("biases", Config { qkv_bias: true, ..plain() }, 8),
        ("norm of heads", Config { qk_norm: true, ..plain() }, 8),
        ("window", Config { sliding_window: Some(3), ..plain() }, 8),
        ("a part of each head", Config { rope: part(RopeStyle::Half), ..plain() }, 8),
        ("a part of interleaved heads", Config { rope: part(RopeStyle::Interleaved), ..plain() }, 8),
        ("scaled residual", Config { residual_scale: 0.25, ..plain() }, 8),
        ("everything", everything(), 8),
        ("medium", Config { sliding_window: Some(20), ..medium.clone() }, 48),
        ("medium, plain", Config { qk_norm: false, qkv_bias: false, rope: plain().rope, ..medium }, 64),
    ]
}

fn check(numerics: Numerics, bound: f64) {
    let device = emulator(numerics);
    for kernel in Kernel::ALL.into_iter().chain(Kernel::EXTRAS) {
        let mut worst = (0.0, String::new());
        for (name, config, seq) in cases() {
            for (pipeline, residual, form) in [
                (PipelineKind::Dynamic, Residual::Fp16, WeightForm::Packed),
                (PipelineKind::Dynamic, Residual::Fp32, WeightForm::Packed),
                (PipelineKind::Dynamic, Residual::Fp32, WeightForm::Inputs),
                (PipelineKind::Static, Residual::Fp16, WeightForm::Packed),
                (PipelineKind::StaticExtras, Residual::Fp32, WeightForm::Packed),
                (PipelineKind::Fused, Residual::Fp32, WeightForm::Packed),
            ] {
                if !pipeline.kernels().contains(&kernel) {
                    continue;
                }
                let shape = Shape::new(config.clone(), seq, residual, form).with_pipeline(pipeline);
                let (error, tap) = error_of(&device, &shape, kernel, 11);
                let what = format!("{name}, {pipeline:?}, {residual:?}, {form:?}, {tap}");
                assert!(error <= bound, "{}: {what}: {error:.1e}", kernel.name());
                if error > worst.0 {
                    worst = (error, what);
                }
            }
        }
        eprintln!("{}: error ≤ {:.1e} of the largest value ({})", kernel.name(), worst.0, worst.1);
    }
}

#[test]
fn every_kernel_in_fp32() {
    // One rounding of the output to fp16 (4.9e-4) and one of the rotation tables or factors
    // (4.9e-4).
    check(Numerics::Exact, 1.2e-3);
}

#[test]
fn every_kernel_in_fp16() {
    // Every op rounds by up to 4.9e-4; a chain here has about ten.
    check(Numerics::Fast, 3e-3);
}
