//! Recurrent layers over sequences `[s, b, i]`.
//!
//! All inputs are multiplied by the input weights in one product before the loop; each step then
//! adds a product with the recurrent weights.

use ferrane_device::Result;

use super::super::product::Matrix;
use super::super::{Call, HeapTensor, TensorOp};

pub(super) const FAMILY: &[(&str, TensorOp)] = &[("rnn", rnn), ("gru", gru), ("lstm", lstm)];

/// The activation of a gate, with the constants of the op of that name (coremltools 9.0).
#[derive(Clone, Copy)]
enum Activation {
    Tanh,
    ScaledTanh,
    Sigmoid,
    HardSigmoid,
    Relu,
    Linear,
}

impl Activation {
    fn of(call: &Call<'_>, argument: &str) -> Result<Activation> {
        Ok(match call.text(argument)?.to_lowercase().as_str() {
            "tanh" => Activation::Tanh,
            "scaled_tanh" => Activation::ScaledTanh,
            "sigmoid" => Activation::Sigmoid,
            "hard_sigmoid" | "sigmoid_hard" => Activation::HardSigmoid,
            "relu" => Activation::Relu,
            "linear" => Activation::Linear,
            other => return Err(call.fail(format!("has no activation `{other}`"))),
        })
    }

    fn at(self, x: f32) -> f32 {
        match self {
            // The scale and the slope default to 1.
            Activation::Tanh | Activation::ScaledTanh => x.tanh(),
            Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            // Not `clamp` over `max`: NaN stays.
            Activation::HardSigmoid => (0.2 * x + 0.5).clamp(0.0, 1.0),
            Activation::Relu if x < 0.0 => 0.0,
            Activation::Relu | Activation::Linear => x,
        }
    }
}

/// The extents of a layer.
#[derive(Clone, Copy)]
struct Extents {
    steps: usize,
    batch: usize,
    hidden: usize,
    /// Rows of a weight: gates times hidden.
    rows: usize,
}

/// One direction of a layer.
struct Direction<'c> {
    extents: Extents,
    /// Products of all inputs with the input weights, and the bias: `[s, b, rows]`.
    inputs: Vec<f32>,
    recurrent: &'c [f32],
    backwards: bool,
}

impl<'c> Direction<'c> {
    /// Reads the weights whose names end in `suffix`, of `gates` gates.
    fn new(call: &'c Call<'_>, suffix: &str, gates: usize, backwards: bool) -> Result<Direction<'c>> {
        let name = |base: &str| format!("{base}{suffix}");
        let x = call.ranked("x", 3)?;
        let (ih, hh) = (call.ranked(&name("weight_ih"), 2)?, call.ranked(&name("weight_hh"), 2)?);
        let (steps, batch, width) = (x.shape[0], x.shape[1], x.shape[2]);
        let hidden = hh.shape[1];
        let rows = gates * hidden;
        if hidden == 0 || hh.shape[0] != rows || ih.shape != [rows, width] {
            return Err(call.fail(format!(
                "weights of shapes {:?} and {:?} for {width} inputs and {gates} gates",
                ih.shape, hh.shape
            )));
        }
        let mut inputs = vec![0.0f32; call.elements(&[steps, batch, rows])?];
        let all = Matrix::dense(call.reals("x", x)?, steps * batch, width);
        call.product(all, Matrix::dense(call.reals("weight_ih", ih)?, rows, width).t(), &mut inputs)?;
        let extents = Extents { steps, batch, hidden, rows };
        let recurrent = call.reals("weight_hh", hh)?;
        Ok(Direction { extents, inputs, recurrent, backwards })
    }

    /// Adds a bias of all gates to the inputs, if it is given. The part in `held` is not added but
    /// returned.
    fn add_bias(&mut self, call: &Call<'_>, name: &str, held: std::ops::Range<usize>) -> Result<Vec<f32>> {
        let Some(bias) = call.maybe(name) else { return Ok(vec![0.0; held.len()]) };
        let (mut bias, rows) = (call.reals(name, bias)?.to_vec(), self.extents.rows);
        if bias.len() != rows {
            return Err(call.fail(format!("`{name}` has {} values for {rows} rows", bias.len())));
        }
        let kept = bias[held.clone()].to_vec();
        bias[held].fill(0.0);
        for row in self.inputs.chunks_exact_mut(rows) {
            row.iter_mut().zip(&bias).for_each(|(v, b)| *v += b);
        }
        Ok(kept)
    }

    /// The steps of the sequence, in processing order.
    fn order(&self) -> impl Iterator<Item = usize> + use<> {
        let (steps, backwards) = (self.extents.steps, self.backwards);
        (0..steps).map(move |i| if backwards { steps - 1 - i } else { i })
    }

    /// `h` times the recurrent weights of gates `first..first + count`.
    fn recur(&self, call: &Call<'_>, h: &[f32], first: usize, count: usize, out: &mut [f32]) -> Result<()> {
        let Extents { batch, hidden, .. } = self.extents;
        let weights = &self.recurrent[first * hidden * hidden..(first + count) * hidden * hidden];
        call.product(Matrix::dense(h, batch, hidden), Matrix::dense(weights, count * hidden, hidden).t(), out)
    }
}

/// The columns `part` of `parts` of an initial state `[b, parts · h]`.
fn initial(call: &Call<'_>, name: &str, e: Extents, part: usize, parts: usize) -> Result<Vec<f32>> {
    let state = call.ranked(name, 2)?;
    let values = call.reals(name, state)?;
    if state.shape != [e.batch, parts * e.hidden] {
        return Err(call.fail(format!("`{name}` has shape {:?}", state.shape)));
    }
    Ok(values.chunks_exact(e.hidden).skip(part).step_by(parts).flatten().copied().collect())
}

fn backwards(call: &Call<'_>) -> Result<bool> {
    match call.text("direction")?.as_str() {
        "forward" => Ok(false),
        "reverse" => Ok(true),
        other => Err(call.fail(format!("has no direction `{other}`"))),
    }
}

/// The results of a direction: the hidden state of every step in sequence order, the last one, and
/// the last cell state, if any.
struct Trace {
    sequence: Vec<f32>,
    hidden: Vec<f32>,
    cell: Vec<f32>,
}

/// The results of a layer: its directions, concatenated.
fn results(call: &Call<'_>, e: Extents, traces: &[Trace], cells: bool) -> Result<Vec<HeapTensor>> {
    let dtype = call.tensor("x")?.dtype;
    let width = traces.len() * e.hidden;
    let beside = |parts: Vec<&[f32]>| -> Vec<f32> {
        let rows = parts.first().map_or(0, |p| p.len() / e.hidden);
        (0..rows).flat_map(|r| parts.iter().flat_map(move |p| &p[r * e.hidden..(r + 1) * e.hidden])).copied().collect()
    };
    let last = beside(traces.iter().map(|t| t.hidden.as_slice()).collect());
    let (steps, sequence) = if call.flag("output_sequence")? {
        (e.steps, beside(traces.iter().map(|t| t.sequence.as_slice()).collect()))
    } else {
        (1, last.clone())
    };
    let mut out = vec![
        HeapTensor::floats(dtype, &[steps, e.batch, width], sequence),
        HeapTensor::floats(dtype, &[e.batch, width], last),
    ];
    if cells {
        let cell = beside(traces.iter().map(|t| t.cell.as_slice()).collect());
        out.push(HeapTensor::floats(dtype, &[e.batch, width], cell));
    }
    Ok(out)
}

/// `rnn` (coremltools 9.0): `h = activation(W·x + R·h + b)`.
fn rnn(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let mut layer = Direction::new(call, "", 1, backwards(call)?)?;
    layer.add_bias(call, "bias", 0..0)?;
    let e = layer.extents;
    let activation = Activation::of(call, "activation")?;
    let mut h = initial(call, "initial_h", e, 0, 1)?;
    let (size, mut next) = (e.batch * e.hidden, vec![0.0f32; e.batch * e.hidden]);
    let mut sequence = vec![0.0f32; e.steps * size];
    for t in layer.order() {
        layer.recur(call, &h, 0, 1, &mut next)?;
        for ((h, r), x) in h.iter_mut().zip(&next).zip(&layer.inputs[t * size..]) {
            *h = activation.at(r + x);
        }
        sequence[t * size..(t + 1) * size].copy_from_slice(&h);
    }
    results(call, e, &[Trace { sequence, hidden: h, cell: Vec::new() }], false)
}

/// `gru` (coremltools 9.0), gates in the order reset, output, update: `h = (1 - z)·o + z·h`. The
/// reset gate scales the state before the product with the weights, `o = activation(W·x + R·(r·h) +
/// b)`, as in the reference of coremltools' tests; with `reset_after` (iOS 18) it scales the
/// product, `o = activation(W·x + b_input + r·(R·h + b))`, as in PyTorch, with which coremltools'
/// test compares it.
fn gru(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let mut layer = Direction::new(call, "", 3, backwards(call)?)?;
    let e = layer.extents;
    let after = call.maybe("reset_after").is_some() && call.flag("reset_after")?;
    layer.add_bias(call, "input_bias", 0..0)?;
    let held_bias = layer.add_bias(call, "bias", if after { e.hidden..2 * e.hidden } else { 0..0 })?;
    let (gate, activation) = (Activation::of(call, "recurrent_activation")?, Activation::of(call, "activation")?);
    let mut h = initial(call, "initial_h", e, 0, 1)?;
    let size = e.batch * e.hidden;
    let [mut reset, mut output, mut update] = [(); 3].map(|()| vec![0.0f32; size]);
    let mut sequence = vec![0.0f32; e.steps * size];
    for t in layer.order() {
        layer.recur(call, &h, 0, 1, &mut reset)?;
        layer.recur(call, &h, 2, 1, &mut update)?;
        let input =
            |i: usize, g: usize| layer.inputs[(t * e.batch + i / e.hidden) * e.rows + g * e.hidden + i % e.hidden];
        let r: Vec<f32> = (0..size).map(|i| gate.at(input(i, 0) + reset[i])).collect();
        if after {
            layer.recur(call, &h, 1, 1, &mut output)?;
            for (i, o) in output.iter_mut().enumerate() {
                *o = r[i] * (*o + held_bias[i % e.hidden]);
            }
        } else {
            let held: Vec<f32> = r.iter().zip(&h).map(|(r, h)| r * h).collect();
            layer.recur(call, &held, 1, 1, &mut output)?;
        }
        for i in 0..size {
            let z = gate.at(input(i, 2) + update[i]);
            h[i] = (1.0 - z) * activation.at(input(i, 1) + output[i]) + z * h[i];
        }
        sequence[t * size..(t + 1) * size].copy_from_slice(&h);
    }
    results(call, e, &[Trace { sequence, hidden: h, cell: Vec::new() }], false)
}

/// `lstm` (coremltools 9.0), gates in the order input, forget, output, cell; peepholes input,
/// forget, output. The cell state is clipped before the output gate reads it.
fn lstm(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let direction = call.text("direction")?;
    let sides: &[(&str, bool)] = match direction.as_str() {
        "forward" => &[("", false)],
        "reverse" => &[("", true)],
        "bidirectional" => &[("", false), ("_back", true)],
        other => return Err(call.fail(format!("has no direction `{other}`"))),
    };
    let mut traces = Vec::with_capacity(2);
    let mut extents = None;
    for (part, &(suffix, backwards)) in sides.iter().enumerate() {
        let mut layer = Direction::new(call, suffix, 4, backwards)?;
        layer.add_bias(call, &format!("bias{suffix}"), 0..0)?;
        if *extents.get_or_insert(layer.extents.hidden) != layer.extents.hidden {
            return Err(call.fail("the directions have different hidden sizes"));
        }
        let h = initial(call, "initial_h", layer.extents, part, sides.len())?;
        let c = initial(call, "initial_c", layer.extents, part, sides.len())?;
        traces.push((layer.extents, lstm_side(call, &layer, suffix, h, c)?));
    }
    let Some(&(extents, _)) = traces.first() else { return Err(call.fail("has no direction")) };
    let traces: Vec<Trace> = traces.into_iter().map(|(_, trace)| trace).collect();
    results(call, extents, &traces, true)
}

fn lstm_side(call: &Call<'_>, layer: &Direction<'_>, suffix: &str, mut h: Vec<f32>, mut c: Vec<f32>) -> Result<Trace> {
    let e = layer.extents;
    let gate = Activation::of(call, "recurrent_activation")?;
    let (cell, outer) = (Activation::of(call, "cell_activation")?, Activation::of(call, "activation")?);
    let clip = if call.maybe("clip").is_some() { call.float("clip")?.abs() } else { f32::INFINITY };
    let none = vec![0.0f32; 3 * e.hidden];
    let peephole = match call.maybe(&format!("peephole{suffix}")) {
        Some(p) => call.reals("peephole", p)?,
        None => &none,
    };
    if peephole.len() != none.len() || clip.is_nan() {
        return Err(call.fail("`peephole` has a wrong shape, or `clip` is NaN"));
    }
    let (size, mut next) = (e.batch * e.hidden, vec![0.0f32; e.batch * e.rows]);
    let mut sequence = vec![0.0f32; e.steps * size];
    for t in layer.order() {
        layer.recur(call, &h, 0, 4, &mut next)?;
        for i in 0..size {
            let (b, k) = (i / e.hidden, i % e.hidden);
            let sum = |g: usize| {
                next[b * e.rows + g * e.hidden + k] + layer.inputs[(t * e.batch + b) * e.rows + g * e.hidden + k]
            };
            let peep = |g: usize, c: f32| {
                let p = peephole[g * e.hidden + k];
                // Without a peephole there is no term, even if the state is NaN or infinite.
                if p == 0.0 { 0.0 } else { p * c }
            };
            let (input, forget) = (gate.at(sum(0) + peep(0, c[i])), gate.at(sum(1) + peep(1, c[i])));
            let state = forget * c[i] + input * cell.at(sum(3));
            c[i] = state.clamp(-clip, clip);
            h[i] = gate.at(sum(2) + peep(2, c[i])) * outer.at(c[i]);
        }
        sequence[t * size..(t + 1) * size].copy_from_slice(&h);
    }
    Ok(Trace { sequence, hidden: h, cell: c })
}
