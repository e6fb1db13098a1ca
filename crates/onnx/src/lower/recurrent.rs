//! Recurrent networks. MIL's `rnn` and `lstm` are used where they compute the same. A GRU is
//! unrolled, because ONNX applies the reset gate before the product and has two biases. So are
//! cells with a clip, which in ONNX limits what the activations read, and in MIL the cell state,
//! and LSTM cells whose input and forget gates are one.

use ferrane_mil::emit::Emit;
use ferrane_mil::{Arg, Constant, DataType, Opset, Transpose, ValueId};

use super::state::{Built, Lower, Stop, unmapped};
use crate::tensor::Tensor;

type Results = Built<Vec<Option<ValueId>>>;

/// The attributes and the input that RNN, LSTM and GRU have in common.
struct Frame {
    /// `[sequence, batch, input]`.
    x: ValueId,
    steps: usize,
    batch: usize,
    hidden: usize,
    directions: usize,
    /// For each direction, true if it runs in reverse.
    reverse: Vec<bool>,
    batchwise: bool,
    /// The limit of the magnitudes that activations read.
    clip: Option<f32>,
}

fn frame(l: &mut Lower<'_>) -> Built<Frame> {
    let mut x = l.x(0)?;
    let batchwise = l.int("layout", 0) == 1;
    if batchwise {
        x = l.transpose(x, &[1, 0, 2])?;
    }
    let shape = l.ranked(x, 3)?;
    let clip = l.given("clip").then(|| l.float("clip", 0.0));
    if clip.is_some_and(|clip| clip.is_nan() || clip < 0.0) {
        return Err(Stop::Rejected(format!("the attribute `clip` is {clip:?}")));
    }
    if let Some(lengths) = l.ints_if(4)?
        && lengths.iter().any(|&n| n != shape[0] as i64)
    {
        return unmapped("sequences of several lengths");
    }
    let reverse = match l.text("direction", "forward") {
        "forward" => vec![false],
        "reverse" => vec![true],
        _ => vec![false, true],
    };
    let recurrent = l.extents(2)?;
    let hidden = recurrent.last().copied().unwrap_or(0);
    let directions = reverse.len();
    for (i, rank) in [(1, 3), (2, 3), (3, 2), (7, 2)] {
        if l.has(i) {
            let t = l.known(i)?;
            if t.shape().len() != rank || t.shape()[0] != directions || hidden == 0 || t.len() == 0 {
                return Err(Stop::Rejected(format!("input {i} of shape {:?}", t.shape())));
            }
        }
    }
    if shape.len() != 3 || shape.contains(&0) {
        return Err(Stop::Rejected(format!("a sequence of shape {shape:?}")));
    }
    Ok(Frame { x, steps: shape[0], batch: shape[1], hidden, directions: reverse.len(), reverse, batchwise, clip })
}

/// The row blocks of direction `d` in another order, row-major; one column gives a vector.
fn rows(t: &Tensor, d: usize, order: &[usize], hidden: usize, columns: usize) -> Built<Vec<f64>> {
    let span = t.len() / t.shape().first().copied().unwrap_or(1).max(1);
    let all = t.values().get(d * span..(d + 1) * span).unwrap_or_default();
    let mut found = Vec::new();
    for &g in order {
        let Some(block) = all.get(g * hidden * columns..(g + 1) * hidden * columns) else {
            return Err(Stop::Rejected(format!("a weight of shape {:?} for {hidden} cells", t.shape())));
        };
        found.extend(block);
    }
    Ok(found)
}

/// The sum of the input bias and the recurrence bias.
fn summed(t: &Tensor, d: usize, order: &[usize], hidden: usize) -> Built<Vec<f64>> {
    let half = order.len();
    let second: Vec<usize> = order.iter().map(|g| g + half).collect();
    let (a, b) = (rows(t, d, order, hidden, 1)?, rows(t, d, &second, hidden, 1)?);
    Ok(a.iter().zip(&b).map(|(a, b)| a + b).collect())
}

/// The initial state of direction `d`, or zeros.
fn initial(l: &mut Lower<'_>, i: usize, f: &Frame, d: usize) -> Built {
    if !l.has(i) {
        let total = l.table(&[f.batch, f.hidden])?;
        return l.tensor(f.x, &[f.batch, f.hidden], &vec![0.0; total]);
    }
    let mut h = l.x(i)?;
    if f.batchwise {
        h = l.transpose(h, &[1, 0, 2])?;
    }
    let h = l.slice(h, 0, d, 1)?;
    l.reshape(h, &[f.batch, f.hidden])
}

/// Joins the directions: `Y [steps, directions, batch, hidden]` and the last states `[directions,
/// batch, hidden]`.
fn results(l: &mut Lower<'_>, f: &Frame, sequences: Vec<ValueId>, last: Vec<Vec<ValueId>>) -> Results {
    let mut parts = Vec::new();
    for y in sequences {
        parts.push(l.reshape(y, &[f.steps, 1, f.batch, f.hidden])?);
    }
    let mut y = l.concat(&parts, 1)?;
    if f.batchwise {
        y = l.transpose(y, &[2, 0, 1, 3])?;
    }
    let mut found = vec![Some(y)];
    for states in last {
        let mut parts = Vec::new();
        for h in states {
            parts.push(l.reshape(h, &[1, f.batch, f.hidden])?);
        }
        let mut h = l.concat(&parts, 0)?;
        if f.batchwise {
            h = l.transpose(h, &[1, 0, 2])?;
        }
        found.push(Some(h));
    }
    Ok(found)
}

/// The activations of direction `d`, by their names in MIL.
fn activations(l: &Lower<'_>, default: &[&'static str], d: usize) -> Built<Vec<&'static str>> {
    let Some(names) = l.texts("activations") else { return Ok(default.to_vec()) };
    let each = default.len();
    let Some(names) = names.get(d * each..(d + 1) * each) else {
        return Err(Stop::Rejected(format!("{} activations", names.len())));
    };
    names
        .iter()
        .map(|n| match n.as_str() {
            "Tanh" => Ok("tanh"),
            "Sigmoid" => Ok("sigmoid"),
            "Relu" => Ok("relu"),
            other => unmapped(format!("the activation {other} in a cell")),
        })
        .collect()
}

/// One weight of direction `d` as a constant, its gates in MIL's order.
fn weight(l: &mut Lower<'_>, x: ValueId, i: usize, d: usize, order: &[usize], hidden: usize) -> Built {
    let t = l.known(i)?;
    let columns = t.shape().last().copied().unwrap_or(0);
    let values = rows(&t, d, order, hidden, columns)?;
    l.tensor(x, &[order.len() * hidden, columns], &values)
}

/// Adds one of MIL's recurrent ops for each direction.
fn native(l: &mut Lower<'_>, f: &Frame, op: &str, order: &[usize], names: &[(&'static str, &'static str)]) -> Results {
    match l.dtype(f.x) {
        DataType::Fp32 => {}
        DataType::Fp16 if l.target >= Opset::IOS17 => {}
        _ => return unmapped("MIL's recurrent ops are fp32, or fp16 from iOS 17 on"),
    }
    let cells = op == "lstm";
    let defaults: Vec<&'static str> = names.iter().map(|n| n.1).collect();
    let (mut sequences, mut last, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for d in 0..f.directions {
        let functions = activations(l, &defaults, d)?;
        let h = initial(l, 5, f, d)?;
        let (ih, hh) = (weight(l, f.x, 1, d, order, f.hidden)?, weight(l, f.x, 2, d, order, f.hidden)?);
        let mut args: Vec<(&str, Arg)> = vec![
            ("x", f.x.into()),
            ("initial_h", h.into()),
            ("weight_ih", ih.into()),
            ("weight_hh", hh.into()),
            ("direction", Constant::string(if f.reverse[d] { "reverse" } else { "forward" }).into()),
            ("output_sequence", Constant::bool(true).into()),
        ];
        for ((name, _), function) in names.iter().zip(&functions) {
            args.push((name, Constant::string(function).into()));
        }
        if l.has(3) {
            let bias = summed(&*l.known(3)?, d, order, f.hidden)?;
            args.push(("bias", l.tensor(f.x, &[bias.len()], &bias)?.into()));
        }
        if cells {
            let c = initial(l, 6, f, d)?;
            args.push(("initial_c", c.into()));
            if l.has(7) {
                // ONNX orders the peepholes input, output, forget; MIL input, forget, output.
                let p = rows(&*l.known(7)?, d, &[0, 2, 1], f.hidden, 1)?;
                args.push(("peephole", l.tensor(f.x, &[p.len()], &p)?.into()));
            }
        }
        let found = l.b.ops(op, op, args)?;
        sequences.push(found[0]);
        last.push(found[1]);
        memory.extend(found.get(2).copied());
    }
    let states = if cells { vec![last, memory] } else { vec![last] };
    results(l, f, sequences, states)
}

/// The weights of one gate, with its biases of the input and of the state.
struct Gate {
    w: ValueId,
    r: ValueId,
    from_input: ValueId,
    from_state: ValueId,
}

impl Gate {
    /// Gate `g` of `count` of direction `d`.
    fn new(l: &mut Lower<'_>, f: &Frame, d: usize, g: usize, count: usize) -> Built<Gate> {
        let (w, r) = (weight(l, f.x, 1, d, &[g], f.hidden)?, weight(l, f.x, 2, d, &[g], f.hidden)?);
        let mut bias = |at: usize| -> Built {
            let values = match l.has(3) {
                true => rows(&*l.known(3)?, d, &[at], f.hidden, 1)?,
                false => vec![0.0; l.table(&[f.hidden])?],
            };
            l.tensor(f.x, &[f.hidden], &values)
        };
        let (from_input, from_state) = (bias(g)?, bias(g + count)?);
        Ok(Gate { w, r, from_input, from_state })
    }

    fn of_input(&self, l: &mut Lower<'_>, x: ValueId) -> Built {
        let product = l.b.matmul(&l.label, x, self.w, Transpose::Y)?;
        l.bin("add", product, self.from_input)
    }

    fn of_state(&self, l: &mut Lower<'_>, h: ValueId) -> Built {
        let product = l.b.matmul(&l.label, h, self.r, Transpose::Y)?;
        l.bin("add", product, self.from_state)
    }

    fn sum(&self, l: &mut Lower<'_>, x: ValueId, h: ValueId) -> Built {
        let (a, b) = (self.of_input(l, x)?, self.of_state(l, h)?);
        l.bin("add", a, b)
    }
}

/// Applies an activation, with its operand clipped if the cell is.
fn activated(l: &mut Lower<'_>, f: &Frame, function: &str, v: ValueId) -> Built {
    let v = match f.clip {
        Some(clip) => {
            let (least, most) = (l.num(v, -clip), l.num(v, clip));
            l.op("clip", [("x", v.into()), ("alpha", least.into()), ("beta", most.into())])?
        }
        None => v,
    };
    l.un(function, v)
}

/// Runs a cell over the steps of direction `d`. The cell makes new states of `x [batch, input]` and
/// the states, of which the first is the output. Returns the outputs `[steps, batch, hidden]` and
/// the last states.
fn unrolled(
    l: &mut Lower<'_>,
    f: &Frame,
    d: usize,
    mut states: Vec<ValueId>,
    mut cell: impl FnMut(&mut Lower<'_>, ValueId, &[ValueId]) -> Built<Vec<ValueId>>,
) -> Built<(ValueId, Vec<ValueId>)> {
    l.spend(f.steps.saturating_mul(24))?;
    let mut outputs = vec![states[0]; f.steps];
    for step in 0..f.steps {
        let at = if f.reverse[d] { f.steps - 1 - step } else { step };
        let x = l.slice(f.x, 0, at, 1)?;
        let width = l.ranked(x, 3)?[2];
        let x = l.reshape(x, &[f.batch, width])?;
        states = cell(l, x, &states)?;
        outputs[at] = states[0];
    }
    let mut parts = Vec::new();
    for y in outputs {
        parts.push(l.reshape(y, &[1, f.batch, f.hidden])?);
    }
    Ok((l.concat(&parts, 0)?, states))
}

pub(super) fn rnn(l: &mut Lower<'_>) -> Results {
    let f = frame(l)?;
    if f.clip.is_none() {
        return native(l, &f, "rnn", &[0], &[("activation", "tanh")]);
    }
    let (mut sequences, mut last) = (Vec::new(), Vec::new());
    for d in 0..f.directions {
        let function = activations(l, &["tanh"], d)?[0];
        let (gate, h) = (Gate::new(l, &f, d, 0, 1)?, initial(l, 5, &f, d)?);
        let (y, states) = unrolled(l, &f, d, vec![h], |l, x, states| {
            let sum = gate.sum(l, x, states[0])?;
            Ok(vec![activated(l, &f, function, sum)?])
        })?;
        sequences.push(y);
        last.push(states[0]);
    }
    results(l, &f, sequences, vec![last])
}

/// ONNX orders the gates input, output, forget, cell; MIL input, forget, output, cell.
pub(super) fn lstm(l: &mut Lower<'_>) -> Results {
    let f = frame(l)?;
    let coupled = l.int("input_forget", 0) != 0;
    let names = [("recurrent_activation", "sigmoid"), ("cell_activation", "tanh"), ("activation", "tanh")];
    if f.clip.is_none() && !coupled {
        return native(l, &f, "lstm", &[0, 2, 1, 3], &names);
    }
    let (mut sequences, mut last, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for d in 0..f.directions {
        let functions = activations(l, &names.map(|n| n.1), d)?;
        let mut gates = Vec::new();
        let mut peepholes = Vec::new();
        for g in 0..4 {
            gates.push(Gate::new(l, &f, d, g, 4)?);
            if g < 3 && l.has(7) {
                let p = rows(&*l.known(7)?, d, &[g], f.hidden, 1)?;
                peepholes.push(l.tensor(f.x, &[f.hidden], &p)?);
            }
        }
        let start = vec![initial(l, 5, &f, d)?, initial(l, 6, &f, d)?];
        let (y, states) = unrolled(l, &f, d, start, |l, x, states| {
            let (h, c) = (states[0], states[1]);
            let opened = |l: &mut Lower<'_>, g: usize, c: ValueId| -> Built {
                let mut sum = gates[g].sum(l, x, h)?;
                if let Some(&peephole) = peepholes.get(g) {
                    let seen = l.bin("mul", peephole, c)?;
                    sum = l.bin("add", sum, seen)?;
                }
                activated(l, &f, functions[0], sum)
            };
            let input = opened(l, 0, c)?;
            let forget = if coupled { l.bin("sub", l.num(input, 1.0), input)? } else { opened(l, 2, c)? };
            let sum = gates[3].sum(l, x, h)?;
            let candidate = activated(l, &f, functions[1], sum)?;
            let (old, new) = (l.bin("mul", forget, c)?, l.bin("mul", input, candidate)?);
            let c = l.bin("add", old, new)?;
            let output = opened(l, 1, c)?;
            // The clip does not limit what the last activation reads.
            let shown = l.un(functions[2], c)?;
            Ok(vec![l.bin("mul", output, shown)?, c])
        })?;
        sequences.push(y);
        last.push(states[0]);
        memory.push(states[1]);
    }
    results(l, &f, sequences, vec![last, memory])
}

/// ONNX orders the gates update, reset, hidden.
pub(super) fn gru(l: &mut Lower<'_>) -> Results {
    let f = frame(l)?;
    let after = l.int("linear_before_reset", 0) != 0;
    let (mut sequences, mut last) = (Vec::new(), Vec::new());
    for d in 0..f.directions {
        let functions = activations(l, &["sigmoid", "tanh"], d)?;
        let [update, reset, hidden] =
            [Gate::new(l, &f, d, 0, 3)?, Gate::new(l, &f, d, 1, 3)?, Gate::new(l, &f, d, 2, 3)?];
        let start = initial(l, 5, &f, d)?;
        let (y, states) = unrolled(l, &f, d, vec![start], |l, x, states| {
            let h = states[0];
            let sum = update.sum(l, x, h)?;
            let update = activated(l, &f, functions[0], sum)?;
            let sum = reset.sum(l, x, h)?;
            let reset = activated(l, &f, functions[0], sum)?;
            let from_x = hidden.of_input(l, x)?;
            let from_state = if after {
                let product = hidden.of_state(l, h)?;
                l.bin("mul", reset, product)?
            } else {
                let kept = l.bin("mul", reset, h)?;
                hidden.of_state(l, kept)?
            };
            let sum = l.bin("add", from_x, from_state)?;
            let candidate = activated(l, &f, functions[1], sum)?;
            let rest = l.bin("sub", l.num(update, 1.0), update)?;
            let (new, old) = (l.bin("mul", rest, candidate)?, l.bin("mul", update, h)?);
            Ok(vec![l.bin("add", new, old)?])
        })?;
        sequences.push(y);
        last.push(states[0]);
    }
    results(l, &f, sequences, vec![last])
}
