//! Conversion of a program to another opset: every op is checked against that opset's signature and
//! rewritten if necessary.
//!
//! Invariant: only the spelling of arguments changes, never a number. An argument that the other
//! opset does not have is left out if it has its default value; an argument that the other opset
//! requires, or whose default differs there, is written with its old default. If anything cannot be
//! expressed, every such op and value is reported and the program stays unchanged.

use crate::error::MilError;
use crate::ops::{self, Literal, Presence};
use crate::opset::{Opset, OpsetTag};
use crate::program::{Arg, Constant, DataType, Function, Op, Program, Type, ValueId};
use crate::verify::{check_op, verify};
use crate::weights::Weights;

/// A change to one op.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// Name of the function.
    pub function: String,
    /// Name of the first result of the op.
    pub value: String,
    /// Description of the change.
    pub what: String,
}

/// Something that the other opset cannot express.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{function}`, `{value}`: {reason}")]
#[non_exhaustive]
pub struct Unsaid {
    /// Name of the function.
    pub function: String,
    /// Name of the first result of the op, or of the input.
    pub value: String,
    /// Why the opset cannot express it.
    pub reason: String,
}

/// The most rewrites of one op; each settles one argument.
const REWRITES: usize = 64;

/// The program with every function in the opset. A function that has a body in it already keeps
/// that one; else its first body is rewritten. Other bodies are left out.
///
/// # Errors
/// Every op and value that the opset does not have in this form, or the invariant that the program
/// breaks.
pub fn to_opset(program: &Program, opset: Opset) -> Result<(Program, Vec<Change>), Vec<Unsaid>> {
    verify(program).map_err(|e| {
        let (function, value) = Default::default();
        vec![Unsaid { function, value, reason: e.to_string() }]
    })?;
    let (mut program, mut changes, mut problems) = (program.clone(), Vec::new(), Vec::new());
    for function in &mut program.functions {
        let kept = function.bodies.iter().position(|(tag, _)| tag.known() == Some(opset)).unwrap_or(0);
        function.bodies.swap(0, kept);
        function.bodies.truncate(1);
        match body_to_opset(function, 0, opset, &program.weights) {
            Ok(done) => changes.extend(done),
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() { Ok((program, changes)) } else { Err(problems) }
}

/// Brings one body of a function into the opset.
///
/// # Errors
/// As [`to_opset`]; the function is then unchanged.
pub(crate) fn body_to_opset(
    function: &mut Function,
    body: usize,
    opset: Opset,
    weights: &Weights,
) -> Result<Vec<Change>, Vec<Unsaid>> {
    let name = function.name.clone();
    let unsaid = |value: &str, reason: String| Unsaid { function: name.clone(), value: value.to_string(), reason };
    let Some((old, root)) = function.bodies.get(body).cloned() else { return Ok(Vec::new()) };
    let Some(from) = old.known() else {
        return Err(vec![unsaid("", format!("`{old}` is not a known opset"))]);
    };
    let (mut values, mut ops) = (function.inputs.clone(), Vec::new());
    let mut open = vec![root];
    while let Some(block) = open.pop() {
        values.extend(&function.block(block).inputs);
        for &id in &function.block(block).ops {
            values.extend(&function.op(id).outputs);
            open.extend_from_slice(&function.op(id).blocks);
            ops.push(id);
        }
    }
    let newer = |id: &ValueId| newer_type(&function.value(*id).ty).filter(|_| opset < Opset::IOS18);
    let mut problems: Vec<Unsaid> = values
        .iter()
        .filter_map(|id| Some((&function.value(*id).name, newer(id)?)))
        .map(|(value, what)| unsaid(value, format!("it is {what}, which exists from ios18 on")))
        .collect();
    let (mut rewritten, mut changes) = (Vec::new(), Vec::new());
    // An op whose result is reported already is not reported again.
    for id in ops.into_iter().filter(|id| !function.op(*id).outputs.iter().any(|v| newer(v).is_some())) {
        let mut op = function.op(id).clone();
        let value = op.outputs.first().map_or(op.name.clone(), |v| function.value(*v).name.clone());
        match rewrite(function, &mut op, from, opset, weights) {
            Ok(done) => {
                let change = |what| Change { function: name.clone(), value: value.clone(), what };
                changes.extend(done.into_iter().map(change));
                rewritten.push((id, op));
            }
            Err(error) => problems.push(unsaid(&value, error.to_string())),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    for (id, op) in rewritten {
        function.ops[id.index()] = op;
    }
    function.bodies[body].0 = OpsetTag::Known(opset);
    Ok(changes)
}

/// The feature of a type that exists from ios18 on, if any.
fn newer_type(ty: &Type) -> Option<&'static str> {
    use DataType::{Fp8E4M3Fn, Fp8E5M2, Int4, UInt1, UInt2, UInt3, UInt4, UInt6};
    match ty {
        Type::State(_) => Some("a state"),
        Type::Tensor { dtype: Int4 | UInt1 | UInt2 | UInt3 | UInt4 | UInt6, .. } => Some("of a type below eight bits"),
        Type::Tensor { dtype: Fp8E4M3Fn | Fp8E5M2, .. } => Some("of an 8-bit float type"),
        Type::List { element, .. } => newer_type(element),
        Type::Tuple(types) => types.iter().find_map(newer_type),
        Type::Dict(key, value) => newer_type(key).or_else(|| newer_type(value)),
        Type::Tensor { .. } => None,
    }
}

/// Rewrites an op until it fits the opset.
fn rewrite(
    function: &Function,
    op: &mut Op,
    from: Opset,
    to: Opset,
    weights: &Weights,
) -> Result<Vec<String>, MilError> {
    let mut done = Vec::new();
    let (old, new) = (ops::find(&op.name, from), ops::find(&op.name, to));
    let default = |name: &str| match old?.param(name)?.presence {
        Presence::Default(literal) => Some(literal),
        _ => None,
    };
    // The type that floats of an op have is that of its first argument.
    let x = op.operands().next().and_then(|v| function.value(v).ty.dtype()).unwrap_or(DataType::Fp32);
    for param in new.map_or(&[][..], |d| d.params) {
        let absent = op.arg(param.name).is_none() && op.attribute(param.name).is_none();
        if let (true, Some(literal)) = (absent, default(param.name))
            && param.presence != Presence::Default(literal)
        {
            done.push(format!("`{}` of `{}` written out: it was the default", param.name, op.name));
            op.args.push((param.name.to_string(), Arg::Const(literal.constant(x))));
        } else if let (true, Presence::Default(_), Some(Presence::Optional)) =
            (absent, param.presence, old.and_then(|d| d.param(param.name)).map(|p| p.presence))
        {
            let reason = format!("leaves out `{}`, which has a default value there", param.name);
            return Err(MilError::shape(&op.name, reason));
        }
    }
    for _ in 0..REWRITES {
        let Err(error) = check_op(function, op, to, weights) else { return Ok(done) };
        match &error {
            MilError::UnknownArgument { argument, .. } | MilError::LaterArgument { argument, .. } => {
                let (Some(literal), Some(given)) = (default(argument), function.arg_constant(op, argument)) else {
                    return Err(error);
                };
                if !is(literal, given) {
                    return Err(error);
                }
                done.push(format!("`{argument}` left out of `{}`: it is the default", op.name));
                let argument = argument.clone();
                op.args.retain(|(n, _)| *n != argument);
            }
            _ => return Err(error),
        }
    }
    check_op(function, op, to, weights).map(|()| done)
}

/// True if a constant is the default.
fn is(literal: Literal, given: &Constant) -> bool {
    match literal {
        Literal::Bool(b) => given.as_bool() == Some(b),
        Literal::Int(n) => given.as_int() == Some(i64::from(n)),
        // In fp16 the default is the nearest fp16 number.
        Literal::Float(f) => {
            given.as_f32().is_some_and(|v| v == f || literal.constant(DataType::Fp16).as_f32() == Some(v))
        }
        Literal::Str(s) => given.as_str() == Some(s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::Weights;
    use crate::{parse, print};

    fn gather(validate: &str) -> Program {
        let text = format!(
            "program(1.3)\n{{\n    func main<ios17>(tensor<fp16, [4, 2]> x, tensor<int32, [3]> i) {{\n        \
             tensor<fp16, [3, 2]> y = gather(axis = int32(0), batch_dims = int32(0), indices = i, x = x, validate_indices = bool({validate}))[name = string(\"y\")];\n    \
             }} -> (y);\n}}\n"
        );
        parse(&text, &Weights::new()).expect("reads")
    }

    #[test]
    fn defaults_of_the_newer_opset_are_left_out() {
        // `validate_indices` came with iOS 17, false if not given (coremltools 9.0, iOS17 gather);
        // `batch_dims` with iOS 16.
        let (lower, changes) = to_opset(&gather("false"), Opset::IOS16).expect("can be said");
        assert_eq!(lower.functions[0].opset(), Ok(Opset::IOS16));
        assert!(!print(&lower).contains("validate_indices") && print(&lower).contains("batch_dims"));
        assert_eq!(changes.len(), 1);
        assert!(changes[0].value == "y" && changes[0].what.contains("validate_indices"), "{changes:?}");
        let (lower, changes) = to_opset(&gather("false"), Opset::IOS15).expect("can be said");
        assert!(!print(&lower).contains("batch_dims"));
        assert_eq!(changes.len(), 2);
        assert!(parse(print(&lower), &Weights::new()).is_ok());
    }

    #[test]
    fn what_cannot_be_said_is_told_and_all_of_it() {
        let problems = to_opset(&gather("true"), Opset::IOS15).expect_err("validates");
        assert!(problems.len() == 1 && problems[0].to_string().contains("validate_indices"), "{problems:?}");
        let text = "program(1.3)\n{\n    func main<ios18>(state<tensor<fp16, [2]>> s, tensor<fp16, [1, 2, 3, 4]> q) {\n        \
                    tensor<fp16, [1, 2, 3, 4]> y = scaled_dot_product_attention(key = q, query = q, value = q)[name = string(\"y\")];\n    \
                    } -> (y);\n}\n";
        let problems = to_opset(&parse(text, &Weights::new()).expect("reads"), Opset::IOS17).expect_err("ios18 only");
        assert_eq!(problems.iter().map(|p| p.value.as_str()).collect::<Vec<_>>(), ["s", "y"]);
    }

    #[test]
    fn the_body_that_is_there_is_kept() {
        let mut program = gather("true");
        let newer = program.functions[0].clone();
        let (older, _) = to_opset(&gather("false"), Opset::IOS16).expect("can be said");
        let older = print(&older);
        let start = older.find("    func").expect("a function");
        let text = print(&program).replace("\n}\n", &format!("\n{}", &older[start..]));
        program = parse(&text, &Weights::new()).expect("two bodies");
        assert_eq!(program.functions[0].bodies.len(), 2);
        let (kept, changes) = to_opset(&program, Opset::IOS16).expect("is there");
        assert_eq!((print(&kept), changes.len()), (older, 0));
        let (kept, _) = to_opset(&program, Opset::IOS17).expect("is there");
        assert_eq!(kept.functions[0].opset(), newer.opset());
    }
}
