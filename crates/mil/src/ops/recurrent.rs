//! Recurrent layers over x `[sequence, batch, input]`: the outputs of all steps (or the last), then
//! the last states.

use super::infer::{InferContext, same, show};
use super::signature::{FLOATS, FP32, Literal, OpDef, Param, bool_const, str_const};
use crate::error::MilError;
use crate::op;
use crate::opset::Opset;
use crate::program::{DataType, Dim, Type};

const fn value(name: &'static str, accepts: &'static [DataType]) -> Param {
    Param::new(name, accepts).of("T")
}

const fn weight(name: &'static str, accepts: &'static [DataType]) -> Param {
    value(name, accepts).constant()
}

const DIRECTION: Param = str_const("direction").or(Literal::Str("forward"));
const SEQUENCE: Param = bool_const("output_sequence").or(Literal::Bool(false));
const RECURRENT: Param = str_const("recurrent_activation").or(Literal::Str("sigmoid"));
const CELL: Param = str_const("cell_activation").or(Literal::Str("tanh"));
const ACTIVATION: Param = str_const("activation").or(Literal::Str("tanh"));

const fn rnn(t: &'static [DataType]) -> [Param; 8] {
    [
        value("x", t),
        value("initial_h", t),
        weight("weight_ih", t),
        weight("weight_hh", t),
        weight("bias", t).optional(),
        DIRECTION,
        SEQUENCE,
        ACTIVATION,
    ]
}

const fn gru(t: &'static [DataType]) -> [Param; 9] {
    let [x, h, ih, hh, bias, direction, sequence, activation] = rnn(t);
    [x, h, ih, hh, bias, direction, sequence, RECURRENT, activation]
}

const fn gru_18() -> [Param; 11] {
    let [x, h, ih, hh, bias, direction, sequence, recurrent, activation] = gru(FLOATS);
    let reset = bool_const("reset_after").optional();
    let input = weight("input_bias", FLOATS).optional();
    [x, h, ih, hh, bias, direction, sequence, recurrent, activation, reset, input]
}

const fn lstm(t: &'static [DataType]) -> [Param; 17] {
    [
        value("x", t),
        value("initial_h", t),
        value("initial_c", t),
        weight("weight_ih", t),
        weight("weight_hh", t),
        weight("bias", t).optional(),
        weight("peephole", t).optional(),
        weight("weight_ih_back", t).optional(),
        weight("weight_hh_back", t).optional(),
        weight("bias_back", t).optional(),
        weight("peephole_back", t).optional(),
        DIRECTION,
        SEQUENCE,
        RECURRENT,
        CELL,
        ACTIVATION,
        weight("clip", t).optional(),
    ]
}

const RNN: OpDef = OpDef::new(op::RNN, "a recurrent layer", &rnn(FP32), rnn_rule);
const GRU: OpDef = OpDef::new(op::GRU, "a gated recurrent unit", &gru(FP32), gru_rule);
const LSTM: OpDef = OpDef::new(op::LSTM, "a long short-term memory", &lstm(FP32), lstm_rule);

pub(super) const OPS: &[OpDef] = &[
    RNN,
    RNN.again(Opset::IOS17, &rnn(FLOATS)),
    GRU,
    GRU.again(Opset::IOS17, &gru(FLOATS)),
    GRU.again(Opset::IOS18, &gru_18()),
    LSTM,
    LSTM.again(Opset::IOS17, &lstm(FLOATS)),
];

struct Input {
    dtype: DataType,
    steps: Dim,
    batch: Dim,
}

impl Input {
    fn read(c: &InferContext<'_>) -> Result<Input, MilError> {
        let (dtype, x) = c.ranked("x", 3)?;
        let steps = if c.flag("output_sequence")? { x[0].clone() } else { Dim::Fixed(1) };
        Ok(Input { dtype, steps, batch: x[1].clone() })
    }

    /// The outputs of the steps, then `states` last states.
    fn types(self, hidden: &Dim, states: usize) -> Vec<Type> {
        let Input { dtype, steps, batch } = self;
        let mut types = vec![Type::Tensor { dtype, shape: vec![steps, batch.clone(), hidden.clone()] }];
        types.extend((0..states).map(|_| Type::Tensor { dtype, shape: vec![batch.clone(), hidden.clone()] }));
        types
    }
}

/// The hidden extent, of weights `[gates · H, I]` and `[gates · H, H]`.
fn hidden(c: &InferContext<'_>, input: &str, recurrent: &str, gates: i64) -> Result<Dim, MilError> {
    let ((_, ih), (_, hh)) = (c.ranked(input, 2)?, c.ranked(recurrent, 2)?);
    let rows = c.map(&hh[1], |n| n.checked_mul(gates))?;
    let (_, x) = c.ranked("x", 3)?;
    if same(&rows, &hh[0]).is_none() || same(&rows, &ih[0]).is_none() || same(&ih[1], &x[2]).is_none() {
        let (x, ih, hh) = (show(&x), show(&ih), show(&hh));
        return Err(c.fail(format!("x {x}, `{input}` {ih} and `{recurrent}` {hh} do not fit for {gates} gates")));
    }
    Ok(hh[1].clone())
}

fn rnn_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    c.one_of("direction", &["forward", "reverse"])?;
    let hidden = hidden(c, "weight_ih", "weight_hh", 1)?;
    Ok(Input::read(c)?.types(&hidden, 1))
}

fn gru_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    c.one_of("direction", &["forward", "reverse"])?;
    let hidden = hidden(c, "weight_ih", "weight_hh", 3)?;
    Ok(Input::read(c)?.types(&hidden, 1))
}

const ACTIVATIONS: &[&str] = &["tanh", "scaled_tanh", "sigmoid", "hard_sigmoid", "relu", "linear"];

fn lstm_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let direction = c.one_of("direction", &["forward", "reverse", "bidirectional"])?;
    for name in ["recurrent_activation", "cell_activation", "activation"] {
        let activation = c.text(name)?;
        if !ACTIVATIONS.iter().any(|a| a.eq_ignore_ascii_case(&activation)) {
            return Err(c.fail(format!("`{name}` is \"{activation}\", must be one of {}", ACTIVATIONS.join(", "))));
        }
    }
    let mut width = hidden(c, "weight_ih", "weight_hh", 4)?;
    if direction == "bidirectional" {
        if same(&width, &hidden(c, "weight_ih_back", "weight_hh_back", 4)?).is_none() {
            return Err(c.fail("the weights of both directions must have one hidden extent"));
        }
        width = c.map(&width, |n| n.checked_mul(2))?;
    }
    Ok(Input::read(c)?.types(&width, 2))
}
