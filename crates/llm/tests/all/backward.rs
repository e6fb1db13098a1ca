//! Compares the hand-written backward kernels with the VJPs of the forward kernels, on the same
//! random numbers, in fp16.

use std::collections::{BTreeSet, HashMap};

use ferrane_device::{Bindings, Device};
use ferrane_emulator::Numerics;
use ferrane_llm::kernels;
use ferrane_llm::layout::{Kernel, KernelLayout, Region, Residual, Shape, WeightForm};
use ferrane_llm::random::Rng;
use ferrane_llm::staging::{LayerInputs, output_surface, read_tap};
use ferrane_llm::weights::Layer;
use ferrane_mil::Program;
use ferrane_mil::grad::{VjpOptions, vjp};
use half::f16;

use crate::gradients::random_weights;
use crate::kernels::{cases, emulator};

/// Row-major values of activations and gradients, by name.
type Values = HashMap<String, Vec<f32>>;

/// A shape, its weights, and the device.
struct Bench<'a> {
    device: &'a Device,
    shape: &'a Shape,
    layer: &'a Layer,
}

impl Bench<'_> {
    /// The surfaces of a kernel with its weights staged and these activations written.
    fn bound(
        &self,
        kernel: Kernel,
        activations: &[(&str, &[f32])],
    ) -> (KernelLayout, LayerInputs, ferrane_device::Surface) {
        let (program, layout) = kernels::build(self.shape, kernel).unwrap();
        let executable = self.device.load(&program, kernel.name()).unwrap();
        let output = output_surface(self.device, &executable).unwrap();
        let bound = LayerInputs::new(self.device, &executable, &layout, &output).unwrap();
        bound.stage(&layout, self.layer).unwrap();
        for (name, values) in activations {
            bound.write(layout.region(name).unwrap(), values).unwrap();
        }
        (layout, bound, output)
    }

    /// The taps of a hand-written kernel.
    fn by_hand(&self, kernel: Kernel, activations: &[(&str, &[f32])]) -> Values {
        let (layout, bound, output) = self.bound(kernel, activations);
        bound.request().evaluate().unwrap();
        let access = output.read().unwrap();
        let read = |tap: &ferrane_llm::layout::Tap| {
            let mut values = vec![0.0; tap.channels * self.shape.seq];
            read_tap(&access, tap, &mut values).unwrap();
            (tap.name.to_string(), values)
        };
        layout.taps.iter().map(read).collect()
    }

    /// The outputs of the VJP of a forward kernel, which reads the staged weights.
    fn derived(&self, kernel: Kernel, outputs: &[&str], inputs: &[&str], given: &[(&str, &[f32])]) -> Values {
        let (program, _) = kernels::build(self.shape, kernel).unwrap();
        let taps = given.iter().map(|(n, _)| n.to_string()).filter(|n| !n.starts_with("d_")).collect();
        let options = VjpOptions { taps, prune_inputs: true, ..VjpOptions::default() };
        let backward = vjp(&program, "main", outputs, inputs, &options).unwrap();
        let (_, bound, _) = self.bound(kernel, &[]);
        self.run(&backward, &bound, given)
    }

    fn run(&self, program: &Program, staged: &LayerInputs, given: &[(&str, &[f32])]) -> Values {
        let executable = self.device.load(program, "vjp").unwrap();
        let mut bindings = Bindings::new();
        for port in &executable.procedures()[0].inputs {
            let surface = self.device.surface(&port.layout).unwrap();
            match given.iter().find(|(n, _)| *n == port.name) {
                Some((_, values)) => surface.write_f32(values).unwrap(),
                None => surface.write_f32(&staged.surface(&port.name).unwrap().read_f32().unwrap()).unwrap(),
            }
            bindings = bindings.bind(&port.name, &surface);
        }
        let mut outputs = Vec::new();
        for port in &executable.procedures()[0].outputs {
            let surface = self.device.surface(&port.layout).unwrap();
            bindings = bindings.bind(&port.name, &surface);
            outputs.push((port.name.clone(), surface));
        }
        executable.prepare(bindings).unwrap().evaluate().unwrap();
        outputs.into_iter().map(|(n, s)| (n, s.read_f32().unwrap())).collect()
    }

    /// The gradient of a region, taken from that of the packed input.
    fn region(&self, kernel: Kernel, name: &str, packed: &[f32]) -> Vec<f32> {
        let layout = self.shape.layout(kernel).unwrap();
        let region: &Region = layout.region(name).unwrap();
        let width = layout.input(region.port).unwrap().width;
        let rows = (region.channel..region.channel + region.channels).map(|c| c * width + region.offset);
        rows.flat_map(|at| packed[at..at + region.len].to_vec()).collect()
    }
}

/// Normally distributed numbers that fp16 represents exactly.
fn normal(rng: &mut Rng, count: usize) -> Vec<f32> {
    (0..count).map(|_| f16::from_f32(rng.normal() as f32).to_f32()).collect()
}

/// `[heads · n, m]` as `[heads · m, n]`, head by head.
fn turn(x: &[f32], n: usize, m: usize) -> Vec<f32> {
    let head = |h: &[f32]| (0..m * n).map(|i| h[i % n * m + i / n]).collect::<Vec<_>>();
    x.chunks(n * m).flat_map(head).collect()
}

/// Repeats every block of `block` numbers `ratio` times.
fn tile(x: &[f32], block: usize, ratio: usize) -> Vec<f32> {
    x.chunks(block).flat_map(|b| b.repeat(ratio)).collect()
}

/// Adds groups of `ratio` blocks, as the CPU does after the kernels.
fn group(x: &[f32], block: usize, ratio: usize) -> Vec<f32> {
    let sum = |g: &[f32]| (0..block).map(|i| g.iter().skip(i).step_by(block).sum()).collect::<Vec<f32>>();
    x.chunks(block * ratio).flat_map(sum).collect()
}

/// The relative L2 distance of two gradients.
fn distance(found: &[f32], wanted: &[f32]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    let square = |v: f64| v * v;
    let error: f64 = found.iter().zip(wanted).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let norm: f64 = wanted.iter().map(|v| square(f64::from(*v))).sum();
    if norm == 0.0 { error.sqrt() } else { (error / norm).sqrt() }
}

/// The distances of all gradients of one shape.
fn distances(bench: &Bench<'_>, rng: &mut Rng) -> Vec<(Kernel, &'static str, f64)> {
    let (c, seq) = (&bench.shape.config, bench.shape.seq);
    let (hd, ratio) = (c.head_dim, c.gqa_ratio());
    let mut found = Vec::new();

    let dy = normal(rng, c.dim * seq);
    let hand = bench.by_hand(Kernel::WotBwd, &[("dx2", &dy)]);
    let ours = bench.derived(Kernel::WoFwd, &["out"], &["x"], &[("d_out", &dy)]);
    let da = bench.region(Kernel::WoFwd, "attn_out", &ours["d_x"]);
    found.push((Kernel::WotBwd, "da", distance(&hand["da"], &da)));

    let hand = bench.by_hand(Kernel::FfnBwdW2t, &[("dffn", &dy)]);
    let ours = bench.derived(Kernel::FfnFused, &["ffn"], &["gate"], &[("d_ffn", &dy)]);
    found.push((Kernel::FfnBwdW2t, "dgate", distance(&hand["dgate"], &ours["d_gate"])));

    let (dh1, dh3) = (normal(rng, c.hidden * seq), normal(rng, c.hidden * seq));
    let hand = bench.by_hand(Kernel::FfnBwdW13t, &[("dh1", &dh1), ("dh3", &dh3)]);
    let given = [("d_h1", &dh1[..]), ("d_h3", &dh3)];
    let ours = bench.derived(Kernel::FfnFused, &["h1", "h3"], &["x"], &given);
    let dx = bench.region(Kernel::FfnFused, "x2norm", &ours["d_x"]);
    found.push((Kernel::FfnBwdW13t, "dx", distance(&hand["dx"], &dx)));

    let dq = normal(rng, c.q_dim() * seq);
    let hand = bench.by_hand(Kernel::QBwd, &[("dq", &dq)]);
    let ours = bench.derived(Kernel::SdpaFwd, &["q"], &["x"], &[("d_q", &dq)]);
    let dx = bench.region(Kernel::SdpaFwd, "xnorm", &ours["d_x"]);
    found.push((Kernel::QBwd, "dx", distance(&hand["dx"], &dx)));

    let (dk, dv) = (normal(rng, c.kv_dim() * seq), normal(rng, c.kv_dim() * seq));
    let hand = bench.by_hand(Kernel::KvBwd, &[("dk", &dk), ("dv", &dv)]);
    let ours = bench.derived(Kernel::SdpaFwd, &["k", "v"], &["x"], &[("d_k", &dk), ("d_v", &dv)]);
    let dx = bench.region(Kernel::SdpaFwd, "xnorm", &ours["d_x"]);
    found.push((Kernel::KvBwd, "dx", distance(&hand["dx"], &dx)));

    // The hand-written kernels take keys and values tiled over the query heads, and return
    // gradients for each query head.
    let (q, da) = (normal(rng, c.q_dim() * seq), normal(rng, c.q_dim() * seq));
    let (k, v) = (normal(rng, c.kv_dim() * seq), normal(rng, c.kv_dim() * seq));
    let (k_tiled, v_tiled) = (tile(&k, hd * seq, ratio), tile(&v, hd * seq, ratio));
    let first =
        bench.by_hand(Kernel::SdpaBwd1, &[("q", &q), ("k_tiled", &k_tiled), ("v_tiled", &v_tiled), ("da", &da)]);
    let (probs, dp) = (&first["probs"], &first["dp"]);
    let second = bench.by_hand(Kernel::SdpaBwd2, &[("probs", probs), ("dp", dp), ("q", &q), ("k_tiled", &k_tiled)]);
    let values = if c.qkv_bias { "v_biased" } else { "v_heads" };
    let (q, k, v) = (turn(&q, hd, seq), turn(&k, hd, seq), turn(&v, hd, seq));
    let given = [("q_rope", &q[..]), ("k_rope", &k), (values, &v), ("d_attn_out", &da)];
    let wanted = ["probs", "q_rope", "k_rope", values];
    let ours = bench.derived(Kernel::SdpaFwd, &["attn_out"], &wanted, &given);
    let grouped = |x: &[f32]| turn(&group(x, hd * seq, ratio), hd, seq);
    let ours_of = |name: &str| &ours[&format!("d_{name}")];
    found.push((Kernel::SdpaBwd1, "dv", distance(&grouped(&first["dv"]), ours_of(values))));
    found.push((Kernel::SdpaBwd1, "dp", distance(dp, ours_of("probs"))));
    found.push((Kernel::SdpaBwd2, "dq", distance(&turn(&second["dq"], hd, seq), ours_of("q_rope"))));
    found.push((Kernel::SdpaBwd2, "dk", distance(&grouped(&second["dk"]), ours_of("k_rope"))));
    found
}

#[test]
fn hand_written_backward_is_the_vjp_of_the_forward() {
    let device = emulator(Numerics::Fast);
    let mut worst: HashMap<(Kernel, &str), (f64, String)> = HashMap::new();
    for (name, config, seq) in cases() {
        let mut weights = random_weights(&config, 21);
        for tensor in weights.tensors_mut(&config) {
            let scale = if tensor.shape.len() == 2 { 2.0 / (config.dim as f32).sqrt() } else { 1.0 };
            tensor.data.iter_mut().for_each(|v| *v = f16::from_f32(*v * scale).to_f32());
        }
        for form in [WeightForm::Packed, WeightForm::Inputs] {
            let shape = Shape::new(config.clone(), seq, Residual::Fp32, form);
            let bench = Bench { device: &device, shape: &shape, layer: &weights.layers[0] };
            for (kernel, gradient, error) in distances(&bench, &mut Rng::new(22)) {
                let what = format!("{}: {gradient}: {name}, {form:?}", kernel.name());
                // Both sides round every op to fp16.
                assert!(error <= 0.02, "{what}: {error:.1e}");
                let entry = worst.entry((kernel, gradient)).or_insert((error, what.clone()));
                if error > entry.0 {
                    *entry = (error, what);
                }
            }
        }
    }
    let compared: BTreeSet<&str> = worst.keys().map(|(k, _)| k.name()).collect();
    let backward: BTreeSet<&str> =
        Kernel::ALL.iter().filter(|k| !Kernel::FORWARD.contains(k)).map(|k| k.name()).collect();
    assert_eq!(compared, backward);
    for (error, what) in worst.values() {
        eprintln!("{what}: relative L2 ≤ {error:.1e}");
    }
}
