//! Fixes: changes that avoid findings and preserve the results of a program.
//!
//! Each fix is tried by itself and kept only if the program then checks better: fewer errors, or as
//! many errors and fewer warnings. So a fix never makes a program worse for the machine, and one
//! that does not apply is skipped.

use std::collections::HashSet;

use ferrane_diag::Severity;
use ferrane_mil::passes::Pipeline;
use ferrane_mil::{
    Arg, Block, BlockId, Constant, Dialect, Evaluate, Function, MilError, Op, OpId, Program, Value, ValueDef, ValueId,
    build_info, text, verify,
};

use crate::check::check;
use crate::finding::{Finding, Fix};
use crate::options::CheckOptions;
use crate::profile::Profile;

/// The result of fixing a program.
#[derive(Clone, Debug)]
pub struct Fixed {
    /// The program after the fixes.
    pub program: Program,
    /// The fixes that were kept, in order, each with the number of findings that it removed.
    pub applied: Vec<(Fix, usize)>,
    /// The findings that remain.
    pub left: Vec<Finding>,
}

/// Applies every fix that findings name, as long as the program checks better after each.
/// `evaluate` computes constants for passes.
pub fn fix(program: &Program, profile: &Profile, options: &CheckOptions<'_>, evaluate: &dyn Evaluate) -> Fixed {
    let mut fixed = Fixed { program: program.clone(), applied: Vec::new(), left: check(program, profile, options) };
    let mut tried = HashSet::new();
    // Printing the program gives another text than the one that was read.
    let options = CheckOptions { text: None, ..options.clone() };
    while let Some(next) = next(&fixed.left, &tried) {
        tried.insert(next);
        let Ok(changed) = apply(&fixed.program, next, evaluate) else { continue };
        let left = check(&changed, profile, &options);
        if score(&left) < score(&fixed.left) {
            fixed.applied.push((next, fixed.left.len().saturating_sub(left.len())));
            (fixed.program, fixed.left) = (changed, left);
        }
    }
    fixed
}

/// The first fix of the most serious finding that has one which was not tried.
fn next(findings: &[Finding], tried: &HashSet<Fix>) -> Option<Fix> {
    let untried = |severity| move |f: &&Finding| f.severity == severity && f.fix.is_some_and(|f| !tried.contains(&f));
    let of = |severity| findings.iter().find(untried(severity)).and_then(|f| f.fix);
    [Severity::Error, Severity::Warning, Severity::Note].into_iter().find_map(of)
}

/// The number of errors, then of warnings.
fn score(findings: &[Finding]) -> (usize, usize) {
    let count = |s| findings.iter().filter(|f| f.severity == s).count();
    (count(Severity::Error), count(Severity::Warning))
}

/// The program with one fix applied.
///
/// # Errors
/// The fix does not apply to this program.
pub fn apply(program: &Program, fix: Fix, evaluate: &dyn Evaluate) -> Result<Program, MilError> {
    match fix {
        Fix::Verbose => text::convert(program, Dialect::Verbose),
        Fix::Header(major, minor) => Ok(Program { version: (major, minor), ..program.clone() }),
        Fix::BuildInfo => {
            let mut changed = program.clone();
            if !changed.attributes.iter().any(|(name, _)| name == "buildInfo") {
                changed.attributes.insert(0, ("buildInfo".to_string(), build_info()));
            }
            Ok(changed)
        }
        Fix::NamedConstants(op) => named_constants(program, op),
        Fix::Pass(name) => pipeline(name)?.run(program, evaluate).map(|(changed, _)| changed),
        Fix::PlainWeights => {
            let mut folding = pipeline("constant_folding")?;
            folding.options.fold_constexpr = true;
            folding.run(program, evaluate).map(|(changed, _)| changed)
        }
    }
}

fn pipeline(pass: &str) -> Result<Pipeline, MilError> {
    Pipeline::named([pass]).map_err(|pass| MilError::Invalid { reason: format!("no pass `{pass}`") })
}

/// Replaces inline literals of the op's arguments with `const` ops before it, and writes omitted
/// flags with their default.
fn named_constants(program: &Program, name: &str) -> Result<Program, MilError> {
    let mut changed = program.clone();
    for function in &mut changed.functions {
        let mut names: HashSet<String> = function.values.iter().map(|v| v.name.clone()).collect();
        for block in 0..function.blocks.len() {
            let old = std::mem::take(&mut function.blocks[block]);
            let mut ops = Vec::with_capacity(old.ops.len());
            for id in old.ops {
                if function.ops.get(id.index()).is_some_and(|op| op.name == name) {
                    ops.extend(constants_of(function, id, &mut names));
                }
                ops.push(id);
            }
            function.blocks[block] = Block { ops, ..old };
        }
    }
    verify(&changed)?;
    Ok(changed)
}

/// The constants for an op's literals; the op then refers to them.
fn constants_of(function: &mut Function, id: OpId, names: &mut HashSet<String>) -> Vec<OpId> {
    let label = match function.op(id).outputs.first() {
        Some(v) => function.value(*v).name.clone(),
        None => function.op(id).name.clone(),
    };
    let mut args = std::mem::take(&mut function.ops[id.index()].args);
    if function.op(id).name == "matmul" {
        for flag in ["transpose_x", "transpose_y"] {
            if args.iter().all(|(n, _)| n != flag) {
                args.push((flag.to_string(), Arg::Const(Constant::bool(false))));
            }
        }
    }
    let mut constants = Vec::new();
    for (name, arg) in &mut args {
        let Arg::Const(constant) = arg else { continue };
        let mut unique = format!("{label}_{name}");
        while !names.insert(unique.clone()) {
            unique.push('_');
        }
        let (op, value) = (OpId(function.ops.len() as u32), ValueId(function.values.len() as u32));
        let ty = constant.ty();
        let attributes = vec![("name".to_string(), Constant::string(&unique)), ("val".to_string(), constant.clone())];
        function.values.push(Value { name: unique, ty, def: ValueDef::Op(op, 0) });
        let (args, outputs, blocks) = (Vec::new(), vec![value], Vec::<BlockId>::new());
        function.ops.push(Op { name: "const".to_string(), args, attributes, outputs, blocks, span: None });
        *arg = Arg::Value(value);
        constants.push(op);
    }
    function.ops[id.index()].args = args;
    constants
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrane_mil::{Opset, Weights, parse, print};

    struct Nothing;
    impl Evaluate for Nothing {
        fn evaluate(&self, _: &Function, _: &Op, _: Opset, _: &Weights) -> Result<Vec<Constant>, String> {
            Err("nothing is computed here".into())
        }
    }

    fn fixed(body: &str, profile: &str) -> Fixed {
        let text = format!(
            "program(1.3)\n[buildInfo = dict<string, string>({{{{\"coremlc-version\", \"3505.4.1\"}}}})]\n{{\n    func main<ios16>(tensor<fp16, [1, 64, 64]> a) {{\n        {body}\n    }} -> (z);\n}}\n"
        );
        let program = parse(&text, &Weights::new()).unwrap();
        fix(&program, &Profile::named(profile).unwrap(), &CheckOptions::default(), &Nothing)
    }

    #[test]
    fn flags_become_named_constants() {
        let done = fixed(
            "tensor<fp16, [1, 64, 64]> z = matmul(x = a, y = a, transpose_y = bool(true))[name = string(\"z\")];",
            "m4-max-macos15-inmem",
        );
        assert_eq!(done.applied, [(Fix::NamedConstants("matmul"), 1)]);
        let text = print(&done.program);
        assert!(text.contains("transpose_x = z_transpose_x") && text.contains("val = bool(true)"), "{text}");
        assert!(parse(&text, &Weights::new()).is_ok());
    }

    #[test]
    fn the_dialect_and_epsilons_are_written_as_the_machine_wants() {
        let done = fixed("tensor<fp16, [1, 64, 64]> z = rsqrt(x = a)[name = string(\"z\")];", "m1-macos26-inmem");
        assert!(done.applied.iter().any(|(f, _)| *f == Fix::Verbose), "{:?}", done.applied);
        assert!(done.applied.iter().any(|(f, _)| *f == Fix::Pass("decompose")), "{:?}", done.applied);
        let text = print(&done.program);
        assert!(text.starts_with("program(1.0)") && text.contains("epsilon"), "{text}");
    }

    #[test]
    fn a_fix_that_does_not_help_is_left_out() {
        let done = fixed("tensor<fp16, [1, 64, 64]> z = relu(x = a)[name = string(\"z\")];", "m4-macos15-inmem");
        assert!(done.applied.is_empty() && done.left.iter().all(|f| f.severity != Severity::Error), "{:?}", done.left);
    }
}
