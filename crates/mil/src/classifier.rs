//! Classifiers: functions that end in `classify`.
//!
//! A converter that is given class labels ends the function with `classify`, whose results are the
//! label of the largest probability and a dictionary from labels to probabilities; no op can read
//! them (coremltools 9.0, `classify.py`). Neither is a tensor, so no surface holds them. [`detach`]
//! takes the op off: the function then returns the probabilities as a tensor, which any device can
//! compute, and a [`Classifier`] puts the labels back.

use std::fmt;

use crate::error::MilError;
use crate::op;
use crate::passes::rebuilt;
use crate::program::{Arg, Constant, Function, OpId, Program, ValueDef, ValueId};

/// A class label: what an app gets for the largest probability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Label {
    /// The usual kind, such as a word.
    Text(String),
    /// A number that the author chose; it need not be the position of the class.
    Number(i64),
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Label::Text(text) => f.write_str(text),
            Label::Number(number) => write!(f, "{number}"),
        }
    }
}

/// What `classify` makes of a tensor of probabilities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classifier {
    /// The output that held the label, such as `classLabel`.
    pub label_output: String,
    /// The output that held the dictionary, such as `classLabel_probs`. After [`detach`] it is the
    /// tensor of probabilities.
    pub probabilities_output: String,
    /// The label of each probability, in row-major order.
    pub labels: Vec<Label>,
}

impl Classifier {
    /// The classifier that a function ends in; `None` if it has no `classify` whose labels are
    /// known.
    pub fn of(function: &Function) -> Option<Classifier> {
        find(function).map(|(_, classifier)| classifier)
    }

    /// The classes with their probabilities, the largest first; equal ones in the order of the
    /// labels, and those that are not numbers last.
    ///
    /// # Errors
    /// [`MilError::Extents`] if there are not as many probabilities as labels.
    pub fn ranked(&self, probabilities: &[f32]) -> Result<Vec<(&Label, f32)>, MilError> {
        if probabilities.len() != self.labels.len() {
            let (found, wanted) = (probabilities.len(), self.labels.len());
            return Err(MilError::Extents { reason: format!("{found} probabilities for {wanted} class labels") });
        }
        let mut ranked: Vec<_> = self.labels.iter().zip(probabilities.iter().copied()).collect();
        let key = |p: f32| if p.is_nan() { f32::NEG_INFINITY } else { p };
        ranked.sort_by(|(_, a), (_, b)| a.is_nan().cmp(&b.is_nan()).then(key(*b).total_cmp(&key(*a))));
        Ok(ranked)
    }
}

/// The `classify` at the end of the active body.
fn find(function: &Function) -> Option<(OpId, Classifier)> {
    let body = function.body();
    let id = body.ops.iter().rev().copied().find(|id| function.op(*id).name == op::CLASSIFY)?;
    let op = function.op(id);
    let [label, probabilities] = op.outputs[..] else { return None };
    let Some(Constant::List(_, classes)) = function.arg_constant(op, "classes") else { return None };
    let one = |c: &Constant| match c.as_str() {
        Some(text) => Some(Label::Text(text.to_string())),
        None => c.as_int().map(Label::Number),
    };
    let classifier = Classifier {
        label_output: function.value(label).name.clone(),
        probabilities_output: function.value(probabilities).name.clone(),
        labels: classes.iter().map(one).collect::<Option<_>>()?,
    };
    Some((id, classifier))
}

/// The program whose function returns the tensor of probabilities instead of label and dictionary,
/// under the dictionary's name, and what labels them. `None` if the function has no `classify`, or
/// one whose results are read by another op.
///
/// # Errors
/// [`MilError::Invalid`] for an unknown function, or a program that does not verify.
pub fn detach(program: &Program, function: &str) -> Result<Option<(Program, Classifier)>, MilError> {
    let at = program.functions.iter().position(|f| f.name == function);
    let at = at.ok_or_else(|| MilError::Invalid { reason: format!("there is no function `{function}`") })?;
    let Some((id, classifier)) = find(&program.functions[at]) else { return Ok(None) };
    let mut program = program.clone();
    let f = &mut program.functions[at];
    let (op, [(_, body)]) = (f.op(id).clone(), f.bodies.as_slice()) else { return Ok(None) };
    let (body, results) = (*body, op.outputs.clone());
    let Some(source) = f.arg_value(&op, "probabilities") else { return Ok(None) };
    let [label, dictionary] = results[..] else { return Ok(None) };
    let reads = |v: ValueId| f.ops.iter().any(|op| op.operands().any(|o| o == v));
    if reads(label) || reads(dictionary) {
        return Ok(None);
    }
    // `identity`, whose one result is the value that was the label.
    let ty = f.value(source).ty.clone();
    let value = &mut f.values[label.index()];
    (value.name, value.ty, value.def) = (classifier.probabilities_output.clone(), ty, ValueDef::Op(id, 0));
    let op = &mut f.ops[id.index()];
    op.name = op::IDENTITY.into();
    op.args = vec![("x".into(), Arg::Value(source))];
    op.outputs = vec![label];
    let outputs = &mut f.blocks[body.index()].outputs;
    let first = outputs.iter().position(|v| results.contains(v)).unwrap_or(outputs.len());
    outputs.retain(|v| !results.contains(v));
    outputs.insert(first.min(outputs.len()), label);
    Ok(Some((rebuilt(&program)?, classifier)))
}
