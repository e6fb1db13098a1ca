//! `ferrane inspect`: what is in a program.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ferrane::mil::package::Form;
use ferrane::mil::program::Payload;
use ferrane::mil::{Arg, BlockId, Constant, Dialect, Function, Program, Type, ValueId, WeightId};
use serde_json::{Value, json};

use crate::args::Inspect;
use crate::error::Result;
use crate::program::{self, Care};
use crate::{about, out};

/// Weights of a file that are shown without `--weights`.
const SHOWN: usize = 5;

/// One record of a blob file and the values that are made of it.
struct Weight {
    offset: u64,
    ty: String,
    bytes: u64,
    here: bool,
    names: Vec<String>,
}

/// Runs the command.
pub fn run(args: Inspect) -> Result<()> {
    if about::inspect(&args)? {
        return Ok(());
    }
    let program::Loaded { form, program, .. } = program::load(&args.file, Care::Form)?;
    let files = weights(&program);
    if args.json {
        return out::line(as_json(&args, form, &program, &files));
    }
    out::print(as_text(&args, form, &program, &files))
}

fn as_text(args: &Inspect, form: Form, program: &Program, files: &BTreeMap<String, Vec<Weight>>) -> String {
    let mut text = String::new();
    let (major, minor) = program.version;
    let _ = writeln!(
        text,
        "{}: {}, program({major}.{minor}){}",
        args.file.display(),
        program::name(form).0,
        spelling(form, program).map(|s| format!(", {s} spelling")).unwrap_or_default()
    );
    for (key, value) in build_info(program) {
        let _ = writeln!(text, "  {key}: {value}");
    }
    for function in &program.functions {
        let opsets: Vec<String> = function.bodies.iter().map(|(tag, _)| tag.to_string()).collect();
        let _ = writeln!(text, "\nfunction {}, opset {}", function.name, opsets.join(" and "));
        let (states, inputs): (Vec<ValueId>, Vec<ValueId>) =
            function.inputs.iter().partition(|v| matches!(function.value(**v).ty, Type::State(_)));
        for (what, values) in [("inputs", &inputs), ("states", &states), ("outputs", &function.body().outputs)] {
            if values.is_empty() {
                continue;
            }
            let width = values.iter().map(|v| function.value(*v).name.chars().count()).max().unwrap_or(0);
            let _ = writeln!(text, "  {what}");
            for value in values {
                let value = function.value(*value);
                let _ = writeln!(text, "    {:width$}  {}", value.name, value.ty);
            }
        }
        let counts = histogram(function);
        let _ = writeln!(text, "  {} ops", counts.iter().map(|(_, n)| n).sum::<usize>());
        for (name, count) in counts {
            let _ = writeln!(text, "    {count:5} {name}");
        }
    }
    if !files.is_empty() {
        let _ = writeln!(text, "\nweights");
    }
    for (file, weights) in files {
        let bytes: u64 = weights.iter().map(|w| w.bytes).sum();
        let missing = if weights.iter().all(|w| w.here) { "" } else { ", not found" };
        let _ = writeln!(text, "  {file}: {} in {}{missing}", plural(weights.len(), "record"), size(bytes));
        let mut order: Vec<&Weight> = weights.iter().collect();
        if !args.weights {
            order.sort_by_key(|w| std::cmp::Reverse(w.bytes));
            order.truncate(SHOWN);
        }
        for w in order {
            let _ = writeln!(text, "    {:>10}  {}  at {}  {}", size(w.bytes), w.ty, w.offset, w.names.join(", "));
        }
        if !args.weights && weights.len() > SHOWN {
            let more = weights.len() - SHOWN;
            let ones = if more == 1 { "one" } else { "ones" };
            let _ = writeln!(text, "    … and {more} smaller {ones} (--weights shows all)");
        }
    }
    let totals = Totals::of(program, files);
    let _ = writeln!(
        text,
        "\ntotals: {}, {}, {}, {} of weights in {}, {} of constants in the text",
        plural(program.functions.len(), "function"),
        plural(totals.ops, "op"),
        plural(totals.parameters as usize, "weight element"),
        size(totals.weights),
        plural(files.len(), "file"),
        size(totals.inline)
    );
    text
}

fn as_json(args: &Inspect, form: Form, program: &Program, files: &BTreeMap<String, Vec<Weight>>) -> Value {
    let port = |function: &Function, id: ValueId| {
        let value = function.value(id);
        let shape = value.ty.shape();
        json!({"name": value.name, "type": value.ty.to_string(), "dtype": value.ty.dtype().map(|d| d.name()), "shape": shape})
    };
    let function = |f: &Function| {
        let (states, inputs): (Vec<ValueId>, Vec<ValueId>) =
            f.inputs.iter().partition(|v| matches!(f.value(**v).ty, Type::State(_)));
        let ports = |values: &[ValueId]| values.iter().map(|v| port(f, *v)).collect::<Vec<_>>();
        let ops: serde_json::Map<String, Value> =
            histogram(f).into_iter().map(|(name, count)| (name, count.into())).collect();
        json!({
            "name": f.name, "opsets": f.bodies.iter().map(|(tag, _)| tag.to_string()).collect::<Vec<_>>(), "inputs": ports(&inputs),
            "states": ports(&states), "outputs": ports(&f.body().outputs), "ops": ops,
        })
    };
    let weight =
        |w: &Weight| json!({"offset": w.offset, "type": w.ty, "bytes": w.bytes, "found": w.here, "names": w.names});
    let files: Vec<Value> = files
        .iter()
        .map(|(file, weights)| {
            let bytes: u64 = weights.iter().map(|w| w.bytes).sum();
            json!({"file": file, "bytes": bytes, "records": weights.iter().map(weight).collect::<Vec<_>>()})
        })
        .collect();
    let totals = Totals::of(program, &weights(program));
    let info: serde_json::Map<String, Value> = build_info(program).into_iter().map(|(k, v)| (k, v.into())).collect();
    json!({
        "file": args.file.display().to_string(), "kind": program::name(form).1,
        "version": format!("{}.{}", program.version.0, program.version.1), "dialect": spelling(form, program),
        "build_info": info, "functions": program.functions.iter().map(function).collect::<Vec<_>>(), "weights": files,
        "totals": {"ops": totals.ops, "weight_elements": totals.parameters, "weight_bytes": totals.weights,
            "inline_bytes": totals.inline},
    })
}

/// How the text is spelled, if there is one.
fn spelling(form: Form, program: &Program) -> Option<&'static str> {
    matches!(form, Form::Text | Form::Compiled).then_some(match program.dialect {
        Dialect::Shorthand => "shorthand",
        Dialect::Verbose => "verbose",
    })
}

/// The pairs of `buildInfo` that are strings.
fn build_info(program: &Program) -> Vec<(String, String)> {
    let Some((_, Constant::Dict(_, entries))) = program.attributes.iter().find(|(n, _)| n == "buildInfo") else {
        return Vec::new();
    };
    entries.iter().filter_map(|(k, v)| Some((k.as_str()?.to_string(), v.as_str()?.to_string()))).collect()
}

/// Every op of the function's bodies, those of nested blocks too.
fn histogram(function: &Function) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut open: Vec<BlockId> = function.bodies.iter().map(|(_, b)| *b).collect();
    while let Some(block) = open.pop() {
        for op in function.block(block).ops.iter().map(|op| function.op(*op)) {
            *counts.entry(&op.name).or_default() += 1;
            open.extend_from_slice(&op.blocks);
        }
    }
    let mut counts: Vec<_> = counts.into_iter().map(|(name, n)| (name.to_string(), n)).collect();
    counts.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    counts
}

/// The records that the program refers to, by file, in the order of their offsets.
fn weights(program: &Program) -> BTreeMap<String, Vec<Weight>> {
    let mut names: BTreeMap<WeightId, Vec<String>> = BTreeMap::new();
    let mut types: BTreeMap<WeightId, String> = BTreeMap::new();
    for function in &program.functions {
        for op in &function.ops {
            let label = op.outputs.first().map_or(op.name.as_str(), |v| &function.value(*v).name);
            for constant in constants(op) {
                if let Constant::Tensor { ty, payload: Payload::Weight(id) } = constant {
                    names.entry(*id).or_default().push(label.to_string());
                    types.insert(*id, ty.to_string());
                }
            }
        }
    }
    let mut files: BTreeMap<String, Vec<Weight>> = BTreeMap::new();
    for (id, names) in names {
        let store = &program.weights;
        let Some((file, offset)) = store.location(id) else { continue };
        let bits = store.dtype(id).and_then(|d| d.bits()).unwrap_or(8) as u64;
        let bytes = (store.elements(id).unwrap_or(0) as u64).saturating_mul(bits).div_ceil(8);
        let ty = types.remove(&id).unwrap_or_default();
        let weight = Weight { offset, ty, bytes, here: store.bytes(id).is_some(), names };
        files.entry(file.to_string()).or_default().push(weight);
    }
    files.values_mut().for_each(|list| list.sort_by_key(|w| w.offset));
    files
}

fn constants(op: &ferrane::mil::Op) -> impl Iterator<Item = &Constant> {
    let literals = op.args.iter().filter_map(|(_, a)| if let Arg::Const(c) = a { Some(c) } else { None });
    literals.chain(op.attributes.iter().map(|(_, c)| c))
}

struct Totals {
    ops: usize,
    parameters: u64,
    weights: u64,
    inline: u64,
}

impl Totals {
    fn of(program: &Program, files: &BTreeMap<String, Vec<Weight>>) -> Totals {
        let ops = program.functions.iter().flat_map(|f| &f.ops);
        let inline = ops.clone().flat_map(constants).map(|c| match c {
            Constant::Tensor { payload: Payload::Bytes(b), .. } => b.len() as u64,
            _ => 0,
        });
        let store = &program.weights;
        let ids = (0..store.len()).map(|i| WeightId(i as u32));
        Totals {
            ops: ops.clone().count(),
            parameters: ids.map(|id| store.elements(id).unwrap_or(0) as u64).fold(0, u64::saturating_add),
            weights: files.values().flatten().map(|w| w.bytes).fold(0, u64::saturating_add),
            inline: inline.sum(),
        }
    }
}

fn plural(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Bytes for people, in powers of ten.
fn size(bytes: u64) -> String {
    let (value, unit) = match bytes {
        0..1_000 => return format!("{bytes} B"),
        1_000..1_000_000 => (bytes as f64 / 1e3, "kB"),
        1_000_000..1_000_000_000 => (bytes as f64 / 1e6, "MB"),
        _ => (bytes as f64 / 1e9, "GB"),
    };
    format!("{value:.1} {unit}")
}
