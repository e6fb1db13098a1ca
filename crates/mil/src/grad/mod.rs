//! Vector–Jacobian products: the backward program of a function, as a MIL program.
//!
//! [`vjp`] takes a function, some of its values as outputs and some as inputs. The program that it
//! returns takes the original inputs and one cotangent `d_<output>` for each chosen output, and
//! returns the adjoint `d_<input>` of each chosen input. It is built by reverse accumulation over
//! the op list: an op's rule reads the cotangents of its results and adds one to each operand that
//! a chosen input can reach. Nothing else is built: a forward value is recomputed only if a rule
//! reads it, immediately before that rule, and zero cotangents are never materialized.
//!
//! Invariants of every backward program: opset and element types are those of the source; the
//! cotangents of a value are added in the order in which the reversed list reaches its uses;
//! cotangents are summed over broadcast axes; every op passes the checks of the registry.
//!
//! An input may be any value of the body, including a `const`: its adjoint is then the gradient of
//! a weight that stays constant. Engines take a trained weight as an input; [`lift_constant`]
//! rewrites the program accordingly. A value named in [`VjpOptions::taps`] is an input of the
//! backward program instead of being recomputed, as in training kernels.
//!
//! Each family of ops has one file with one table of rules; [`differentiable`] and the dispatch
//! read the same tables. At a kink the subgradient is PyTorch's: 0 for `relu` and `abs` at 0, equal
//! shares for ties of `maximum`, `minimum`, `reduce_max` and `reduce_min`, the first maximum of a
//! window for `max_pool`, 1 at the bounds of `clip`. Rules do not apply loss scales: an fp16
//! program has fp16 cotangents, and the caller scales them.

mod activation;
mod constants;
mod control;
mod conv;
mod elementwise;
mod error;
mod expr;
mod gather;
mod image;
mod lift;
mod normalization;
mod pool;
mod product;
mod pullback;
mod reduction;
mod rule;
mod shape;
mod slice;
mod tape;

pub use error::GradError;
pub use lift::lift_constant;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::opset::Opset;
use crate::program::{Function, Program, Type, ValueId};
use error::near;
use rule::{Rule, RuleTable};
use tape::Tape;

/// Options of [`vjp`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VjpOptions {
    /// Values of the body that the backward program takes as inputs, with their names and in this
    /// order, instead of recomputing them. A chosen input among them still gets its adjoint.
    pub taps: Vec<String>,
    /// The chosen outputs are returned as well, before the adjoints.
    pub outputs: bool,
    /// Original inputs that the backward program does not read are left out. Cotangents and taps
    /// always stay.
    pub prune_inputs: bool,
}

/// Options of [`backward`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackwardOptions {
    /// Names of `const` ops that become inputs first ([`lift_constant`]) and get an adjoint, too.
    pub lift: Vec<String>,
    /// The outputs whose cotangents come in, or other values; if empty, every output of fp16 or
    /// fp32.
    pub outputs: Vec<String>,
    /// The inputs that get an adjoint, or other values; if empty, every input of fp16 or fp32.
    pub inputs: Vec<String>,
    /// Options of the derivation.
    pub vjp: VjpOptions,
}

/// Whether an op has a derivative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Support {
    /// It has a rule.
    Differentiable,
    /// Its derivative is zero wherever it exists, or its results are not floats: no cotangent
    /// passes. The text is the reason.
    Zero(&'static str),
    /// It has no rule. The text is the reason.
    No(&'static str),
}

const FAMILIES: &[RuleTable] = &[
    elementwise::RULES,
    activation::RULES,
    reduction::RULES,
    normalization::RULES,
    product::RULES,
    conv::RULES,
    shape::RULES,
    slice::RULES,
    gather::RULES,
    pool::RULES,
    image::RULES,
    control::RULES,
];

/// Whether an op has a derivative, by its MIL name.
pub fn differentiable(op: &str) -> Support {
    match rule(op) {
        Rule::Vjp(_) => Support::Differentiable,
        Rule::Zero(reason) => Support::Zero(reason),
        Rule::No(reason) => Support::No(reason),
    }
}

fn rule(op: &str) -> Rule {
    if op.starts_with("constexpr_") {
        return Rule::No("its operands are compressed constants");
    }
    let found = FAMILIES.iter().flat_map(|f| f.iter()).find(|(name, _)| *name == op);
    found.map_or(Rule::No("has no rule"), |(_, rule)| *rule)
}

/// The backward program of `function` for the chosen `outputs` and `inputs`: one function of the
/// same name and opset.
///
/// Its inputs, in order: those of `function`, the taps, `d_<output>` for each output (of the
/// output's type). Its outputs: the chosen outputs if the options request them, then `d_<input>`
/// for each input (of the input's type; zeros if no output depends on it).
///
/// ```
/// use ferrane_mil::grad::{VjpOptions, vjp};
/// use ferrane_mil::{Builder, DataType, Opset, Type};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut b = Builder::new("main", Opset::IOS18);
/// let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 4]))?;
/// let y = b.op("mul", "y", [("x", x.into()), ("y", x.into())])?;
/// let program = b.finish(&[("y", y)])?;
///
/// let backward = vjp(&program, "main", &["y"], &["x"], &VjpOptions::default())?;
/// let function = &backward.functions[0];
/// let names = |ids: &[_]| ids.iter().map(|v| function.value(*v).name.clone()).collect::<Vec<_>>();
/// assert_eq!(names(&function.inputs), ["x", "d_y"]);
/// assert_eq!(names(&function.body().outputs), ["d_x"]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// A name that does not exist, is not a tensor of fp16 or fp32 with known extents, or occurs twice;
/// an op without a rule that a cotangent reaches; an op that cannot be recomputed (random draws and
/// states, unless tapped); an invalid program.
pub fn vjp(
    program: &Program,
    function: &str,
    outputs: &[&str],
    inputs: &[&str],
    options: &VjpOptions,
) -> Result<Program, GradError> {
    crate::verify::verify(program)?;
    let source = program.function(function).ok_or_else(|| GradError::Function { name: function.to_string() })?;
    let opset = source.opset()?;
    let names = names(source);
    let taps: Vec<&str> = options.taps.iter().map(String::as_str).collect();
    let outputs = chosen(source, &names, outputs)?;
    let inputs = chosen(source, &names, inputs)?;
    let taps = chosen_of(source, &names, &taps, |_| true, "is not a tensor with known extents")?;

    let choice = Choice { program, source, opset, outputs, inputs, taps, with_outputs: options.outputs };
    let whole = choice.build(&source.inputs)?;
    if !options.prune_inputs {
        return Ok(whole);
    }
    let read = whole.functions.first().map(read_names).unwrap_or_default();
    let kept: Vec<ValueId> =
        source.inputs.iter().copied().filter(|v| read.contains(source.value(*v).name.as_str())).collect();
    choice.build(&kept)
}

/// The backward program of a function as [`vjp`] derives it, after constants are lifted, and for
/// all outputs and inputs that can have a gradient unless the options name some.
///
/// ```
/// use ferrane_mil::grad::{BackwardOptions, backward};
/// use ferrane_mil::{Builder, DataType, Opset, Type};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut b = Builder::new("main", Opset::IOS18);
/// let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 4]))?;
/// let i = b.input("i", Type::tensor(DataType::Int32, &[1]))?;
/// let y = b.op("tanh", "y", [("x", x.into())])?;
/// let program = b.finish(&[("y", y), ("same", i)])?;
///
/// let backward = backward(&program, "main", &BackwardOptions::default())?;
/// let outputs = &backward.functions[0].body().outputs;
/// assert_eq!(outputs.len(), 1, "an integer has no gradient");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`GradError::NoFloats`]; as [`lift_constant`] and [`vjp`].
pub fn backward(program: &Program, function: &str, options: &BackwardOptions) -> Result<Program, GradError> {
    let mut program = Cow::Borrowed(program);
    for constant in &options.lift {
        program = Cow::Owned(lift_constant(&program, function, constant)?);
    }
    let source = program.function(function).ok_or_else(|| GradError::Function { name: function.to_string() })?;
    let outputs = named_or_floats(&options.outputs, source, &source.body().outputs);
    let mut inputs = named_or_floats(&options.inputs, source, &source.inputs);
    inputs.extend(options.lift.iter().map(String::as_str));
    // A lifted constant is among the inputs already where none is named. One that is named twice is
    // an error of the caller.
    let mut seen = HashSet::new();
    inputs.retain(|input| seen.insert(*input) || !options.lift.iter().any(|lifted| lifted == input));
    for (list, what) in [(&outputs, "output"), (&inputs, "input")] {
        if list.is_empty() {
            return Err(GradError::NoFloats { function: function.to_string(), what });
        }
    }
    vjp(&program, function, &outputs, &inputs, &options.vjp)
}

/// The named values; without names, those of `all` that can have a gradient.
fn named_or_floats<'a>(named: &'a [String], function: &'a Function, all: &[ValueId]) -> Vec<&'a str> {
    if !named.is_empty() {
        return named.iter().map(String::as_str).collect();
    }
    let values = all.iter().map(|v| function.value(*v));
    values.filter(|v| tape::is_float(&v.ty)).map(|v| v.name.as_str()).collect()
}

/// The arguments of [`vjp`], resolved to values.
struct Choice<'s> {
    program: &'s Program,
    source: &'s Function,
    opset: Opset,
    outputs: Vec<ValueId>,
    inputs: Vec<ValueId>,
    taps: Vec<ValueId>,
    with_outputs: bool,
}

impl Choice<'_> {
    /// The backward program with these of the original inputs.
    fn build(&self, parameters: &[ValueId]) -> Result<Program, GradError> {
        let (program, source) = (self.program, self.source);
        let mut tape = Tape::new(source, &program.weights, self.opset, &self.inputs, rule);
        let taps = self.taps.iter().filter(|t| !source.inputs.contains(t));
        for &input in parameters.iter().chain(taps) {
            let value = source.value(input);
            let id = tape.b.input(&value.name, value.ty.clone())?;
            tape.set_forward(input, id);
        }
        for &output in &self.outputs {
            let value = source.value(output);
            let id = tape.b.input(&format!("d_{}", value.name), value.ty.clone())?;
            tape.accumulate(output, id)?;
        }
        tape.reverse(&source.body().ops)?;

        let mut results = Vec::new();
        if self.with_outputs {
            for &output in &self.outputs {
                results.push((source.value(output).name.clone(), tape.forward(output)?));
            }
        }
        for &input in &self.inputs {
            results.push((format!("d_{}", source.value(input).name), tape.adjoint_or_zeros(input)?));
        }
        let pairs: Vec<(&str, ValueId)> = results.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        let mut backward = tape.b.finish(&pairs)?;
        backward.version = program.version;
        backward.dialect = program.dialect;
        backward.attributes = program.attributes.clone();
        Ok(backward)
    }
}

/// The names of the values that a function's ops read, or that it returns.
fn read_names(function: &Function) -> HashSet<&str> {
    let operands = function.ops.iter().flat_map(|op| op.operands());
    let returned = function.blocks.iter().flat_map(|b| b.outputs.iter().copied());
    operands.chain(returned).map(|v| function.value(v).name.as_str()).collect()
}

/// The values that may be chosen: inputs and the results of the active body's own ops.
fn names(source: &Function) -> HashMap<&str, ValueId> {
    let results = source.body().ops.iter().flat_map(|&op| source.op(op).outputs.iter());
    source.inputs.iter().chain(results).map(|&v| (source.value(v).name.as_str(), v)).collect()
}

fn chosen(source: &Function, names: &HashMap<&str, ValueId>, wanted: &[&str]) -> Result<Vec<ValueId>, GradError> {
    let reason = "is not a tensor of fp16 or fp32 with known extents";
    chosen_of(source, names, wanted, tape::is_float, reason)
}

fn chosen_of(
    source: &Function,
    names: &HashMap<&str, ValueId>,
    wanted: &[&str],
    fits: fn(&Type) -> bool,
    otherwise: &str,
) -> Result<Vec<ValueId>, GradError> {
    let fail = |name: &str, reason: String| Err(GradError::Value { name: name.to_string(), reason });
    let mut seen = HashSet::new();
    let mut found = Vec::with_capacity(wanted.len());
    for &name in wanted {
        let Some(&id) = names.get(name) else {
            return fail(name, format!("function `{}` has none{}", source.name, near(source, name)));
        };
        let ty = &source.value(id).ty;
        if !seen.insert(name) {
            return fail(name, "is chosen twice".into());
        }
        if !matches!(ty, Type::Tensor { .. }) || ty.shape().is_none() || !fits(ty) {
            return fail(name, format!("{otherwise}, but {ty}"));
        }
        found.push(id);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops;

    #[test]
    fn tables_name_an_op_once() {
        let mut seen = HashSet::new();
        for (name, _) in FAMILIES.iter().flat_map(|f| f.iter()) {
            assert!(seen.insert(name), "{name}");
        }
    }

    #[test]
    fn lifted_constants_and_floats_get_a_gradient() {
        let text = "program(1.3) { func main<ios18>(tensor<fp32, [2]> x, tensor<int32, [2]> k) {
            tensor<fp32, [2]> w = const()[name = string(\"w\"), val = tensor<fp32, [2]>([1.0, 2.0])];
            tensor<fp32, [2]> y = mul(x = x, y = w)[name = string(\"y\")];
            tensor<int32, [2]> n = identity(x = k)[name = string(\"n\")]; } -> (y, n); }";
        let program = crate::parse(text, &crate::Weights::new()).unwrap();
        let outputs = |options: &BackwardOptions| {
            let backward = backward(&program, "main", options)?;
            let f = &backward.functions[0];
            Ok::<_, GradError>(f.body().outputs.iter().map(|v| f.value(*v).name.clone()).collect::<Vec<_>>())
        };
        let lift = |names: &[&str]| BackwardOptions {
            lift: names.iter().map(ToString::to_string).collect(),
            ..BackwardOptions::default()
        };
        assert_eq!(outputs(&lift(&[])).unwrap(), ["d_x"]);
        assert_eq!(outputs(&lift(&["w"])).unwrap(), ["d_x", "d_w"]);
        assert_eq!(outputs(&BackwardOptions { inputs: vec!["x".into()], ..lift(&["w"]) }).unwrap(), ["d_x", "d_w"]);
        let error = outputs(&BackwardOptions { outputs: vec!["yy".into()], ..lift(&[]) }).unwrap_err();
        assert!(error.to_string().ends_with("has none, did you mean `y`?"), "{error}");
        let ints = crate::parse(text.replace("(y, n)", "(n)"), &crate::Weights::new()).unwrap();
        let error = backward(&ints, "main", &BackwardOptions::default()).unwrap_err();
        assert_eq!(error, GradError::NoFloats { function: "main".into(), what: "output" });
    }

    #[test]
    fn every_op_of_the_registry_is_spoken_of() {
        for op in ops::all() {
            assert!(differentiable(op.name) != Support::No("has no rule"), "{}", op.name);
        }
    }
}
