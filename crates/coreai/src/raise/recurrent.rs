//! Recurrent layers, step by step. All inputs are multiplied by their weights in one product; fp16
//! is computed in fp32.

use super::elementwise::{Results, named};
use super::state::{Built, Raise, rejected};
use crate::bytecode::ValueId;
use crate::dialect::ElementType::Float32;

/// Operations of a step, about.
const STEP: usize = 32;

/// One direction of a layer.
struct Direction {
    steps: u64,
    batch: u64,
    hidden: u64,
    /// Products of all inputs with their weights, and the bias: `[s, b, rows]`.
    inputs: ValueId,
    /// The recurrent weights of all gates, transposed: `[hidden, rows]`.
    recurrent: ValueId,
    backwards: bool,
}

/// What a direction gives: the hidden state after each step in the order of the sequence, the last
/// one, and the last cell state.
struct Trace {
    sequence: Vec<ValueId>,
    hidden: ValueId,
    cell: Option<ValueId>,
}

impl Direction {
    /// Reads the weights whose names end in `suffix`, of `gates` gates, and adds these biases.
    fn new(r: &mut Raise<'_>, suffix: &str, gates: u64, biases: &[&str], backwards: bool) -> Built<Direction> {
        let x = r.x("x")?;
        let (steps, batch, width) = match r.shape(x)?[..] {
            [steps, batch, width] => (steps, batch, width),
            _ => return rejected("x is no sequence"),
        };
        r.spend((steps as usize).saturating_mul(STEP))?;
        let (x, input) = (r.cast(x, Float32)?, weight(r, &format!("weight_ih{suffix}"))?);
        let recurrent = weight(r, &format!("weight_hh{suffix}"))?;
        let hidden = match r.shape(recurrent)?[..] {
            [hidden, rows] if rows == hidden.saturating_mul(gates) => hidden,
            _ => return rejected("recurrent weights of other extents"),
        };
        let rows = r.reshaped(x, &[steps.saturating_mul(batch), width])?;
        let mut inputs = r.product(rows, input)?;
        for name in biases {
            if r.has(name) {
                let bias = r.x(name)?;
                let bias = r.cast(bias, Float32)?;
                inputs = r.bin("add", inputs, bias)?;
            }
        }
        let inputs = r.reshaped(inputs, &[steps, batch, hidden.saturating_mul(gates)])?;
        Ok(Direction { steps, batch, hidden, inputs, recurrent, backwards })
    }

    /// The steps in the order in which they are computed.
    fn order(&self) -> Vec<u64> {
        if self.backwards { (0..self.steps).rev().collect() } else { (0..self.steps).collect() }
    }

    /// The inputs of a step: `[b, rows]`.
    fn input(&self, r: &mut Raise<'_>, t: u64) -> Built {
        let part = r.part(self.inputs, 0, t, 1)?;
        r.shrink(part, &[0])
    }

    /// The columns of a gate.
    fn gate(&self, r: &mut Raise<'_>, all: ValueId, gate: u64) -> Built {
        r.part(all, 1, gate * self.hidden, self.hidden)
    }

    /// The columns `part` of an initial state of all directions.
    fn initial(&self, r: &mut Raise<'_>, name: &str, part: u64) -> Built {
        let state = r.x(name)?;
        let state = r.cast(state, Float32)?;
        if r.shape(state)?.first() != Some(&self.batch) {
            return rejected(format!("`{name}` of another batch"));
        }
        self.gate(r, state, part)
    }
}

/// A weight in fp32, transposed.
fn weight(r: &mut Raise<'_>, name: &str) -> Built {
    let value = r.x(name)?;
    let value = r.cast(value, Float32)?;
    r.swapped(value)
}

fn backwards(r: &Raise<'_>) -> Built<bool> {
    Ok(r.text("direction")? == "reverse")
}

/// The results of a layer: its directions side by side.
fn results(r: &mut Raise<'_>, traces: &[Trace], cells: bool) -> Results {
    let x = r.x("x")?;
    let element = r.element(x)?;
    let hidden: Vec<ValueId> = traces.iter().map(|t| t.hidden).collect();
    let last = r.concat(&hidden, 1)?;
    let sequence = if r.flag("output_sequence")? {
        let mut rows = Vec::new();
        for t in 0..traces.first().map_or(0, |trace| trace.sequence.len()) {
            let parts: Vec<ValueId> = traces.iter().map(|trace| trace.sequence[t]).collect();
            let row = r.concat(&parts, 1)?;
            rows.push(r.expand(row, &[0])?);
        }
        r.concat(&rows, 0)?
    } else {
        r.expand(last, &[0])?
    };
    let mut found = vec![r.cast(sequence, element)?, r.cast(last, element)?];
    if cells {
        let cells: Vec<ValueId> = traces.iter().filter_map(|t| t.cell).collect();
        let cell = r.concat(&cells, 1)?;
        found.push(r.cast(cell, element)?);
    }
    Ok(found)
}

/// Puts the states of the steps into the order of the sequence.
fn traced(layer: &Direction, mut sequence: Vec<ValueId>, hidden: ValueId, cell: Option<ValueId>) -> Trace {
    if layer.backwards {
        sequence.reverse();
    }
    Trace { sequence, hidden, cell }
}

pub(super) fn rnn(r: &mut Raise<'_>) -> Results {
    let back = backwards(r)?;
    let layer = Direction::new(r, "", 1, &["bias"], back)?;
    let activation = r.text("activation")?;
    let mut h = layer.initial(r, "initial_h", 0)?;
    let mut sequence = Vec::new();
    for t in layer.order() {
        let (input, held) = (layer.input(r, t)?, r.product(h, layer.recurrent)?);
        let sum = r.bin("add", input, held)?;
        h = named(r, &activation, sum)?;
        sequence.push(h);
    }
    let trace = traced(&layer, sequence, h, None);
    results(r, &[trace], false)
}

/// Gates in the order reset, output, update.
pub(super) fn gru(r: &mut Raise<'_>) -> Results {
    let after = r.def.param("reset_after").is_some() && r.has("reset_after") && r.flag("reset_after")?;
    let back = backwards(r)?;
    let biases: &[&str] = if after { &["input_bias"] } else { &["input_bias", "bias"] };
    let layer = Direction::new(r, "", 3, biases, back)?;
    let (gate, activation) = (r.text("recurrent_activation")?, r.text("activation")?);
    // With the reset after the product, the bias is that of the product.
    let bias = match after && r.has("bias") {
        true => {
            let bias = r.x("bias")?;
            Some(r.cast(bias, Float32)?)
        }
        false => None,
    };
    let output = layer.gate(r, layer.recurrent, 1)?;
    let mut h = layer.initial(r, "initial_h", 0)?;
    let mut sequence = Vec::new();
    for t in layer.order() {
        let input = layer.input(r, t)?;
        let mut held = r.product(h, layer.recurrent)?;
        if let Some(bias) = bias {
            held = r.bin("add", held, bias)?;
        }
        let sum = r.bin("add", input, held)?;
        let (reset, update) = (layer.gate(r, sum, 0)?, layer.gate(r, sum, 2)?);
        let (reset, update) = (named(r, &gate, reset)?, named(r, &gate, update)?);
        let own = match after {
            true => {
                let held = layer.gate(r, held, 1)?;
                r.bin("mul", reset, held)?
            }
            false => {
                let kept = r.bin("mul", reset, h)?;
                r.product(kept, output)?
            }
        };
        let input = layer.gate(r, input, 1)?;
        let sum = r.bin("add", input, own)?;
        let new = named(r, &activation, sum)?;
        // new + update · (h - new)
        let change = r.bin("sub", h, new)?;
        let change = r.bin("mul", update, change)?;
        h = r.bin("add", new, change)?;
        sequence.push(h);
    }
    let trace = traced(&layer, sequence, h, None);
    results(r, &[trace], false)
}

pub(super) fn lstm(r: &mut Raise<'_>) -> Results {
    let sides: &[(&str, bool)] = match r.text("direction")?.as_str() {
        "forward" => &[("", false)],
        "reverse" => &[("", true)],
        _ => &[("", false), ("_back", true)],
    };
    let mut traces = Vec::new();
    for (part, &(suffix, back)) in (0..).zip(sides) {
        traces.push(lstm_side(r, suffix, back, part)?);
    }
    results(r, &traces, true)
}

/// Gates in the order input, forget, output, cell; peepholes input, forget, output.
fn lstm_side(r: &mut Raise<'_>, suffix: &str, back: bool, part: u64) -> Built<Trace> {
    let layer = Direction::new(r, suffix, 4, &[&format!("bias{suffix}")], back)?;
    let (gate, cell) = (r.text("recurrent_activation")?, r.text("cell_activation")?);
    let outer = r.text("activation")?;
    let clip = if r.has("clip") { Some(r.number("clip")?.abs()) } else { None };
    let name = format!("peephole{suffix}");
    let mut peepholes = Vec::new();
    if r.has(&name) {
        let all = r.x(&name)?;
        let all = r.cast(all, Float32)?;
        for i in 0..3 {
            peepholes.push(r.part(all, 0, i * layer.hidden, layer.hidden)?);
        }
    }
    let peek = |r: &mut Raise<'_>, sum: ValueId, i: usize, c: ValueId| -> Built {
        match peepholes.get(i) {
            Some(&weight) => {
                let seen = r.bin("mul", c, weight)?;
                r.bin("add", sum, seen)
            }
            None => Ok(sum),
        }
    };
    let (mut h, mut c) = (layer.initial(r, "initial_h", part)?, layer.initial(r, "initial_c", part)?);
    let mut sequence = Vec::new();
    for t in layer.order() {
        let (input, held) = (layer.input(r, t)?, r.product(h, layer.recurrent)?);
        let sums = r.bin("add", input, held)?;
        let (i, f) = (layer.gate(r, sums, 0)?, layer.gate(r, sums, 1)?);
        let (i, f) = (peek(r, i, 0, c)?, peek(r, f, 1, c)?);
        let (i, f) = (named(r, &gate, i)?, named(r, &gate, f)?);
        let new = layer.gate(r, sums, 3)?;
        let new = named(r, &cell, new)?;
        let (kept, added) = (r.bin("mul", f, c)?, r.bin("mul", i, new)?);
        c = r.bin("add", kept, added)?;
        if let Some(clip) = clip {
            let below = r.with("minimum", c, clip)?;
            c = r.with("maximum", below, -clip)?;
        }
        let o = layer.gate(r, sums, 2)?;
        let o = peek(r, o, 2, c)?;
        let (o, seen) = (named(r, &gate, o)?, named(r, &outer, c)?);
        h = r.bin("mul", o, seen)?;
        sequence.push(h);
    }
    Ok(traced(&layer, sequence, h, Some(c)))
}
