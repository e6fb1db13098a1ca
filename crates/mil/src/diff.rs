//! What differs between two programs.
//!
//! Ops correspond if their first results have one name, which tools keep where they change little.
//! Names mean nothing, though: two functions whose ops do the same in the same order are the same
//! whatever their values are called, and [`diff`] says nothing of them. Constants are compared by
//! their bytes, wherever these lie; what text alone shows (attributes such as `name`, the paths of
//! blob files, the order of arguments) is not looked at.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::op;
use crate::program::{Arg, BlockId, Constant, Function, Op, OpId, Program, ValueId};
use crate::weights::Weights;

/// A difference of the second program from the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Kind of the difference, for filters and summaries.
    pub kind: DifferenceKind,
    /// Name of the function in which the programs differ.
    pub function: String,
    /// The op's first result, the port, or empty.
    pub name: String,
    /// What differs, as a sentence fragment without the name.
    pub message: String,
}

/// What a [`Difference`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DifferenceKind {
    /// A function that only one of the programs has.
    Function,
    /// Inputs, outputs or opset.
    Signature,
    /// An op that only the second program has.
    Added,
    /// An op that only the first program has.
    Removed,
    /// An op with other arguments or results.
    Changed,
    /// A constant with other elements.
    Weight,
}

impl DifferenceKind {
    /// One word in lower case: `added`.
    pub fn name(self) -> &'static str {
        match self {
            DifferenceKind::Function => "function",
            DifferenceKind::Signature => "signature",
            DifferenceKind::Added => "added",
            DifferenceKind::Removed => "removed",
            DifferenceKind::Changed => "changed",
            DifferenceKind::Weight => "weight",
        }
    }
}

/// The differences of `b` from `a`, function by function in the order of `a`; none if they compute
/// the same by the same ops.
pub fn diff(a: &Program, b: &Program) -> Vec<Difference> {
    let mut found = Vec::new();
    for function in &a.functions {
        match b.function(&function.name) {
            Some(other) => {
                let (left, right) = (FunctionSide::new(function, &a.weights), FunctionSide::new(other, &b.weights));
                functions(&left, &right, &mut found);
            }
            None => found.push(only(function, "only the first program has it")),
        }
    }
    let added = b.functions.iter().filter(|f| a.function(&f.name).is_none());
    found.extend(added.map(|f| only(f, "only the second program has it")));
    found
}

fn only(function: &Function, message: &str) -> Difference {
    let (function, name) = (function.name.clone(), String::new());
    Difference { kind: DifferenceKind::Function, function, name, message: message.to_string() }
}

/// The active body of a function: its ops in order, nested ones after the op that holds them.
struct FunctionSide<'a> {
    function: &'a Function,
    weights: &'a Weights,
    ops: Vec<&'a Op>,
}

impl<'a> FunctionSide<'a> {
    fn new(function: &'a Function, weights: &'a Weights) -> FunctionSide<'a> {
        let mut ops = Vec::new();
        let first: Vec<BlockId> = function.bodies.first().map(|(_, b)| *b).into_iter().collect();
        // What is still to come, the next on top.
        let mut open: Vec<OpId> = first.iter().flat_map(|b| function.block(*b).ops.iter().rev().copied()).collect();
        while let Some(id) = open.pop() {
            let op = function.op(id);
            ops.push(op);
            let nested = op.blocks.iter().rev().flat_map(|b| function.block(*b).ops.iter().rev().copied());
            open.extend(nested);
        }
        FunctionSide { function, weights, ops }
    }

    fn name(&self, id: ValueId) -> &'a str {
        &self.function.value(id).name
    }

    fn label(&self, op: &Op) -> String {
        op.outputs.first().map_or_else(|| format!("{}()", op.name), |v| self.name(*v).to_string())
    }

    fn types(&self, values: &[ValueId]) -> Vec<String> {
        values.iter().map(|v| self.function.value(*v).ty.to_string()).collect()
    }

    fn ports(&self, values: &[ValueId]) -> Vec<String> {
        values.iter().map(|v| format!("{} {}", self.function.value(*v).ty, self.name(*v))).collect()
    }
}

fn functions(a: &FunctionSide<'_>, b: &FunctionSide<'_>, found: &mut Vec<Difference>) {
    let mut report = |kind, name: String, message| {
        found.push(Difference { kind, function: a.function.name.clone(), name, message });
    };
    let (old, new) = (a.function.opset_tag(), b.function.opset_tag());
    if old != new {
        report(DifferenceKind::Signature, String::new(), format!("opset {old} became {new}"));
    }
    let ports = [
        ("inputs", a.ports(&a.function.inputs), b.ports(&b.function.inputs)),
        ("outputs", a.ports(&a.function.body().outputs), b.ports(&b.function.body().outputs)),
    ];
    for (what, old, new) in ports {
        if old != new {
            report(
                DifferenceKind::Signature,
                String::new(),
                format!("{what} ({}) became ({})", old.join(", "), new.join(", ")),
            );
        }
    }
    if same_but_for_names(a, b) {
        return;
    }
    let by_label = |side: &FunctionSide<'_>| -> BTreeMap<String, usize> {
        side.ops.iter().enumerate().map(|(i, op)| (side.label(op), i)).collect()
    };
    let (left, right) = (by_label(a), by_label(b));
    for op in &a.ops {
        let label = a.label(op);
        let Some(other) = right.get(&label).map(|i| b.ops[*i]) else {
            // A constant that was removed or added is reported where it is used.
            if op.name != op::CONST {
                report(DifferenceKind::Removed, label, op.name.clone());
            }
            continue;
        };
        changed(a, op, b, other, &mut |kind, message| report(kind, label.clone(), message));
    }
    for op in b.ops.iter().filter(|op| op.name != op::CONST && !left.contains_key(&b.label(op))) {
        report(DifferenceKind::Added, b.label(op), op.name.clone());
    }
}

/// Compares two ops that correspond.
fn changed(
    a: &FunctionSide<'_>,
    old: &Op,
    b: &FunctionSide<'_>,
    new: &Op,
    report: &mut dyn FnMut(DifferenceKind, String),
) {
    if old.name != new.name {
        return report(DifferenceKind::Changed, format!("`{}` became `{}`", old.name, new.name));
    }
    let (types, other) = (a.types(&old.outputs), b.types(&new.outputs));
    if types != other {
        report(DifferenceKind::Changed, format!("result ({}) became ({})", types.join(", "), other.join(", ")));
    }
    let names: BTreeSet<&String> = old.args.iter().chain(&new.args).map(|(n, _)| n).collect();
    for name in names {
        if let (Some(Arg::Value(x)), Some(Arg::Value(y))) = (old.arg(name), new.arg(name))
            && a.name(*x) == b.name(*y)
        {
            // Its own differences are reported where it is defined.
            continue;
        }
        let (left, right) = (old.arg(name).map(|x| operand(a, x)), new.arg(name).map(|x| operand(b, x)));
        match (left, right) {
            (Some(Operand::Constant(x)), Some(Operand::Constant(y))) => {
                constants(a.weights, x, b.weights, y, &mut |kind, message| {
                    report(kind, format!("`{name}`: {message}"))
                });
            }
            (Some(x), Some(y)) => {
                let (x, y) = (x.to_string(), y.to_string());
                if x != y {
                    report(DifferenceKind::Changed, format!("`{name}`: {x} became {y}"));
                }
            }
            (Some(x), None) => report(DifferenceKind::Changed, format!("`{name}` = {x} is gone")),
            (None, Some(y)) => report(DifferenceKind::Changed, format!("`{name}` = {y} is new")),
            (None, None) => {}
        }
    }
    for (name, value) in old.attributes.iter().filter(|(n, _)| n != "name") {
        match new.attribute(name) {
            Some(other) => constants(a.weights, value, b.weights, other, report),
            None => report(DifferenceKind::Changed, format!("the attribute `{name}` is gone")),
        }
    }
    for (name, _) in new.attributes.iter().filter(|(n, _)| n != "name" && old.attribute(n).is_none()) {
        report(DifferenceKind::Changed, format!("the attribute `{name}` is new"));
    }
    if old.blocks.len() != new.blocks.len() {
        report(DifferenceKind::Changed, format!("{} nested blocks became {}", old.blocks.len(), new.blocks.len()));
    }
    for (x, y) in old.blocks.iter().zip(&new.blocks) {
        let outputs = |side: &FunctionSide<'_>, id: &BlockId| -> Vec<String> {
            side.function.block(*id).outputs.iter().map(|v| side.name(*v).to_string()).collect()
        };
        let (x, y) = (outputs(a, x), outputs(b, y));
        if x != y {
            report(DifferenceKind::Changed, format!("a nested block gives ({}), not ({})", y.join(", "), x.join(", ")));
        }
    }
}

/// An argument as it is compared: a `const` op is its constant.
enum Operand<'a> {
    Constant(&'a Constant),
    Values(Vec<&'a str>),
}

impl std::fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Operand::Constant(c) => write!(f, "a constant {}", c.ty()),
            Operand::Values(names) => write!(f, "{}", names.join(", ")),
        }
    }
}

fn operand<'a>(side: &FunctionSide<'a>, arg: &'a Arg) -> Operand<'a> {
    match arg {
        Arg::Const(c) => Operand::Constant(c),
        Arg::Value(v) => match side.function.constant(*v) {
            Some(c) => Operand::Constant(c),
            None => Operand::Values(vec![side.name(*v)]),
        },
        Arg::List(vs) => Operand::Values(vs.iter().map(|v| side.name(*v)).collect()),
    }
}

/// Compares two constants; other elements of one type are a difference of weights.
fn constants(a: &Weights, old: &Constant, b: &Weights, new: &Constant, report: &mut dyn FnMut(DifferenceKind, String)) {
    if old.ty() != new.ty() {
        report(DifferenceKind::Changed, format!("a constant {} became {}", old.ty(), new.ty()));
    } else if let (Some(x), Some(y)) = (old.as_str(), new.as_str()) {
        if x != y {
            report(DifferenceKind::Changed, format!("\"{x}\" became \"{y}\""));
        }
    } else if !equal(a, old, b, new) {
        let (x, y) = (old.bytes(a).unwrap_or_default(), new.bytes(b).unwrap_or_default());
        let width = old.ty().dtype().and_then(|d| d.bytes()).unwrap_or(1);
        let differ = x.chunks(width).zip(y.chunks(width)).filter(|(x, y)| x != y).count();
        report(
            DifferenceKind::Weight,
            format!("{differ} of {} elements of a {} differ", x.len().div_ceil(width), old.ty()),
        );
    }
}

/// The same value: numbers by their bytes, wherever they lie. A weight that is not there equals
/// nothing.
fn equal(a: &Weights, x: &Constant, b: &Weights, y: &Constant) -> bool {
    match (x, y) {
        (Constant::Tensor { .. }, Constant::Tensor { .. }) if x.ty() == y.ty() => match (x.bytes(a), y.bytes(b)) {
            (Some(x), Some(y)) => x == y,
            _ => x == y && x.as_str().is_some(),
        },
        (Constant::List(s, xs), Constant::List(t, ys)) => s == t && all_equal(a, xs, b, ys),
        (Constant::Tuple(xs), Constant::Tuple(ys)) => all_equal(a, xs, b, ys),
        (Constant::Dict(s, xs), Constant::Dict(t, ys)) => {
            s == t
                && xs.len() == ys.len()
                && xs.iter().zip(ys).all(|((k, v), (l, w))| equal(a, k, b, l) && equal(a, v, b, w))
        }
        _ => false,
    }
}

fn all_equal(a: &Weights, xs: &[Constant], b: &Weights, ys: &[Constant]) -> bool {
    xs.len() == ys.len() && xs.iter().zip(ys).all(|(x, y)| equal(a, x, b, y))
}

/// True if the bodies have the same ops in the same order, every one with operands from the same
/// places. `const` ops are looked at where they are used, so their order does not count.
fn same_but_for_names(a: &FunctionSide<'_>, b: &FunctionSide<'_>) -> bool {
    let working = |side: &FunctionSide<'_>| -> Vec<usize> {
        (0..side.ops.len()).filter(|&i| side.ops[i].name != op::CONST).collect()
    };
    let (left, right) = (working(a), working(b));
    let mut names: HashMap<ValueId, ValueId> = HashMap::new();
    let mut pair = |xs: &[ValueId], ys: &[ValueId]| {
        names.extend(xs.iter().copied().zip(ys.iter().copied()));
        xs.len() == ys.len() && a.types(xs) == b.types(ys)
    };
    if left.len() != right.len() || !pair(&a.function.inputs, &b.function.inputs) {
        return false;
    }
    // First every definition is paired, then every use is compared: a loop's block may be used
    // before its place.
    for (i, j) in left.iter().zip(&right) {
        let (x, y) = (a.ops[*i], b.ops[*j]);
        let blocks = x.blocks.len() == y.blocks.len()
            && x.blocks.iter().zip(&y.blocks).all(|(s, t)| {
                let (s, t) = (a.function.block(*s), b.function.block(*t));
                s.ops.len() == t.ops.len() && pair(&s.inputs, &t.inputs)
            });
        if x.name != y.name || !blocks || !pair(&x.outputs, &y.outputs) {
            return false;
        }
    }
    let value = |x: ValueId, y: ValueId| match (a.function.constant(x), b.function.constant(y)) {
        (Some(x), Some(y)) => equal(a.weights, x, b.weights, y),
        (None, None) => names.get(&x) == Some(&y),
        _ => false,
    };
    let values = |xs: &[ValueId], ys: &[ValueId]| xs.len() == ys.len() && xs.iter().zip(ys).all(|(x, y)| value(*x, *y));
    let arg = |x: &Arg, y: &Arg| match (x, y) {
        (Arg::List(xs), Arg::List(ys)) => values(xs, ys),
        (Arg::Value(x), Arg::Value(y)) => value(*x, *y),
        _ => match (operand(a, x), operand(b, y)) {
            (Operand::Constant(x), Operand::Constant(y)) => equal(a.weights, x, b.weights, y),
            _ => false,
        },
    };
    let op = |x: &Op, y: &Op| {
        let attributes = |op: &Op| op.attributes.iter().filter(|(n, _)| n != "name").count();
        x.args.len() == y.args.len()
            && x.args.iter().all(|(n, v)| y.arg(n).is_some_and(|w| arg(v, w)))
            && attributes(x) == attributes(y)
            && x.attributes
                .iter()
                .filter(|(n, _)| n != "name")
                .all(|(n, v)| y.attribute(n).is_some_and(|w| equal(a.weights, v, b.weights, w)))
            && x.blocks
                .iter()
                .zip(&y.blocks)
                .all(|(s, t)| values(&a.function.block(*s).outputs, &b.function.block(*t).outputs))
    };
    left.iter().zip(&right).all(|(i, j)| op(a.ops[*i], b.ops[*j]))
        && values(&a.function.body().outputs, &b.function.body().outputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    const TEXT: &str = r#"program(1.3)
{
    func main<ios18>(tensor<fp16, [2]> x) {
        tensor<fp16, [2]> w = const()[name = string("w"), val = tensor<fp16, [2]>([1, 2])];
        tensor<fp16, [2]> a = add(x = x, y = w)[name = string("a")];
        tensor<fp16, [2]> y = relu(x = a)[name = string("y")];
    } -> (y);
}
"#;

    fn reported(edit: &[(&str, &str)]) -> Vec<String> {
        let other = edit.iter().fold(TEXT.to_string(), |text, (from, to)| text.replace(from, to));
        let read = |text: &str| parse(text, &Weights::new()).expect("reads");
        let found = diff(&read(TEXT), &read(&other));
        found.iter().map(|d| format!("{} {}: {}", d.kind.name(), d.name, d.message)).collect()
    }

    #[test]
    fn names_and_spelling_are_no_difference() {
        assert_eq!(reported(&[]), [""; 0]);
        assert_eq!(
            reported(&[("> a =", "> sum ="), ("x = a", "x = sum"), ("> w =", "> k ="), ("y = w", "y = k")]),
            [""; 0]
        );
        assert_eq!(reported(&[("y = w", "y = tensor<fp16, [2]>([1, 2])")]), [""; 0], "a constant in its place");
        assert_eq!(reported(&[("x = x, y = w", "y = w, x = x")]), [""; 0]);
    }

    #[test]
    fn ops_weights_and_signatures_are_told() {
        assert_eq!(reported(&[("[1, 2]", "[1, 3]")]), ["weight w: 1 of 2 elements of a tensor<fp16, [2]> differ"]);
        let inline = reported(&[("y = w", "y = tensor<fp16, [2]>([1, 3])")]);
        assert_eq!(inline, ["weight a: `y`: 1 of 2 elements of a tensor<fp16, [2]> differ"]);
        assert_eq!(reported(&[("relu", "sigmoid")]), ["changed y: `relu` became `sigmoid`"]);
        assert_eq!(reported(&[("relu(x = a)", "relu(x = x)")]), ["changed y: `x`: a became x"]);
        assert_eq!(reported(&[("ios18", "ios17")]), ["signature : opset ios18 became ios17"]);
        let added = reported(&[("-> (y)", "-> (y, a)")]);
        assert!(added[0].starts_with("signature : outputs (tensor<fp16, [2]> y) became"), "{added:?}");
        let line = r#"        tensor<fp16, [2]> y = relu(x = a)[name = string("y")];"#;
        let two = format!(
            "        tensor<fp16, [2]> b = relu(x = a)[name = string(\"b\")];\n{}",
            line.replace("x = a", "x = b")
        );
        assert_eq!(reported(&[(line, &two)]), ["changed y: `x`: a became b", "added b: relu"]);
        assert_eq!(reported(&[("func main", "func other")]).len(), 2);
    }

    #[test]
    fn words_are_shown() {
        let gelu = |mode: &str| {
            let text = TEXT.replace("relu(x = a)", &format!("gelu(x = a, mode = string(\"{mode}\"))"));
            parse(&text, &Weights::new()).expect("reads")
        };
        assert!(diff(&gelu("EXACT"), &gelu("EXACT")).is_empty());
        let found = diff(&gelu("EXACT"), &gelu("TANH_APPROXIMATION"));
        assert_eq!(found[0].message, "`mode`: \"EXACT\" became \"TANH_APPROXIMATION\"");
        assert_eq!((found.len(), found[0].kind), (1, DifferenceKind::Changed));
    }
}
