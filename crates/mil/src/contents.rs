//! What is in a program: functions, ports, op counts, weights and totals, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::program::{Arg, BlockId, Constant, Function, Op, Payload, Program, Type, ValueId};
use crate::weights::WeightId;

/// Weights of a file that [`Contents::summary`] lists.
const SHOWN: usize = 5;

/// What is in a program.
///
/// ```
/// use ferrane_mil::{Builder, DataType, Opset, Type, contents::Contents};
///
/// # fn main() -> Result<(), ferrane_mil::MilError> {
/// let mut b = Builder::new("main", Opset::IOS18);
/// let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 4]))?;
/// let y = b.op("relu", "y", [("x", x.into())])?;
/// let contents = Contents::of(&b.finish(&[("y", y)])?);
///
/// assert_eq!(contents.functions[0].ops, [("relu".to_string(), 1)]);
/// assert!(contents.summary().to_string().contains("    x  tensor<fp16, [1, 4]>"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Contents {
    /// The pairs of `buildInfo` that are strings.
    pub build_info: Vec<(String, String)>,
    /// The functions in program order.
    pub functions: Vec<FunctionContents>,
    /// The records of weight files that the program refers to, by file, in the order of their
    /// offsets.
    pub weights: BTreeMap<String, Vec<WeightRecord>>,
    /// Ops of all functions, without those of nested blocks.
    pub ops: usize,
    /// Elements of all weights in the store.
    pub weight_elements: u64,
    /// Bytes of the weights that the program refers to.
    pub weight_bytes: u64,
    /// Bytes of the constants in the program itself.
    pub inline_bytes: u64,
}

/// What is in a function.
#[derive(Clone, Debug)]
pub struct FunctionContents {
    /// The function's name, by which it is called.
    pub name: String,
    /// The opsets that it is specialized to.
    pub opsets: Vec<String>,
    /// Inputs that are not states, in binding order.
    pub inputs: Vec<(String, Type)>,
    /// Inputs that are states, in binding order.
    pub states: Vec<(String, Type)>,
    /// Outputs, in binding order.
    pub outputs: Vec<(String, Type)>,
    /// How often each op occurs in its bodies and their nested blocks, the most frequent first.
    pub ops: Vec<(String, usize)>,
    /// What is known of a port in addition to its type, such as the shapes that it may have, by the
    /// port's name. [`Contents::of`] leaves it empty; the text shows it next to the type.
    pub notes: BTreeMap<String, String>,
}

/// A record of a weight file, and the values that are made of it.
#[derive(Clone, Debug)]
pub struct WeightRecord {
    /// Where the record starts in its file, in bytes.
    pub offset: u64,
    /// The type of the constants that refer to it.
    pub ty: String,
    /// The size of its data.
    pub bytes: u64,
    /// Whether the file was found.
    pub found: bool,
    /// The values that are made of it.
    pub names: Vec<String>,
}

impl Contents {
    /// The contents of a program.
    pub fn of(program: &Program) -> Contents {
        let (weights, store) = (weights(program), &program.weights);
        let ops = program.functions.iter().flat_map(|f| &f.ops);
        let inline = ops.clone().flat_map(constants).map(|c| match c {
            Constant::Tensor { payload: Payload::Bytes(b), .. } => b.len() as u64,
            _ => 0,
        });
        let ids = (0..store.len()).map(|i| WeightId(i as u32));
        Contents {
            build_info: build_info(program),
            functions: program.functions.iter().map(function).collect(),
            ops: ops.clone().count(),
            weight_elements: ids.map(|id| store.elements(id).unwrap_or(0) as u64).fold(0, u64::saturating_add),
            weight_bytes: weights.values().flatten().map(|w| w.bytes).fold(0, u64::saturating_add),
            inline_bytes: inline.sum(),
            weights,
        }
    }

    /// The contents as text, with the largest weights of each file.
    pub fn summary(&self) -> impl fmt::Display {
        Text { contents: self, weights: Some(SHOWN) }
    }

    /// The contents as text, with every weight.
    pub fn full(&self) -> impl fmt::Display {
        Text { contents: self, weights: None }
    }

    /// The contents as JSON: `build_info`, `functions`, `weights` and `totals`.
    pub fn json(&self) -> Value {
        let ports = |f: &FunctionContents, ports: &[(String, Type)]| {
            let port = |(name, ty): &(String, Type)| {
                let mut port = json!({"name": name, "type": ty.to_string(), "dtype": ty.dtype().map(|d| d.name()), "shape": ty.shape()});
                if let Some(note) = f.notes.get(name) {
                    port["note"] = note.as_str().into();
                }
                port
            };
            ports.iter().map(port).collect::<Vec<_>>()
        };
        let function = |f: &FunctionContents| {
            let ops: Map<String, Value> = f.ops.iter().map(|(name, count)| (name.clone(), (*count).into())).collect();
            json!({
                "name": f.name, "opsets": f.opsets, "inputs": ports(f, &f.inputs), "states": ports(f, &f.states),
                "outputs": ports(f, &f.outputs), "ops": ops,
            })
        };
        let weight = |w: &WeightRecord| json!({"offset": w.offset, "type": w.ty, "bytes": w.bytes, "found": w.found, "names": w.names});
        let files = self.weights.iter().map(|(file, weights)| {
            let records: Vec<Value> = weights.iter().map(weight).collect();
            json!({"file": file, "bytes": total(weights), "records": records})
        });
        let info: Map<String, Value> = self.build_info.iter().map(|(k, v)| (k.clone(), v.as_str().into())).collect();
        json!({
            "build_info": info, "functions": self.functions.iter().map(function).collect::<Vec<_>>(),
            "weights": files.collect::<Vec<_>>(),
            "totals": {"ops": self.ops, "weight_elements": self.weight_elements, "weight_bytes": self.weight_bytes,
                "inline_bytes": self.inline_bytes},
        })
    }
}

/// Contents as text, with at most this many weights of a file.
struct Text<'a> {
    contents: &'a Contents,
    weights: Option<usize>,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Contents { build_info, functions, weights, .. } = self.contents;
        build_info.iter().try_for_each(|(key, value)| writeln!(f, "  {key}: {value}"))?;
        functions.iter().try_for_each(|function| write!(f, "{function}"))?;
        if !weights.is_empty() {
            writeln!(f, "\nweights")?;
        }
        for (file, records) in weights {
            self.file(f, file, records)?;
        }
        let contents = self.contents;
        writeln!(
            f,
            "\ntotals: {}, {}, {}, {} of weights in {}, {} of constants in the text",
            plural(functions.len(), "function"),
            plural(contents.ops, "op"),
            plural(contents.weight_elements as usize, "weight element"),
            size(contents.weight_bytes),
            plural(weights.len(), "file"),
            size(contents.inline_bytes)
        )
    }
}

impl Text<'_> {
    fn file(&self, f: &mut fmt::Formatter<'_>, file: &str, records: &[WeightRecord]) -> fmt::Result {
        let missing = if records.iter().all(|w| w.found) { "" } else { ", not found" };
        writeln!(f, "  {file}: {} in {}{missing}", plural(records.len(), "record"), size(total(records)))?;
        let mut order: Vec<&WeightRecord> = records.iter().collect();
        if let Some(most) = self.weights {
            order.sort_by_key(|w| std::cmp::Reverse(w.bytes));
            order.truncate(most);
        }
        for w in &order {
            writeln!(f, "    {:>10}  {}  at {}  {}", size(w.bytes), w.ty, w.offset, w.names.join(", "))?;
        }
        match records.len() - order.len() {
            0 => Ok(()),
            1 => writeln!(f, "    … and 1 smaller one"),
            more => writeln!(f, "    … and {more} smaller ones"),
        }
    }
}

impl fmt::Display for FunctionContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nfunction {}, opset {}", self.name, self.opsets.join(" and "))?;
        for (what, ports) in [("inputs", &self.inputs), ("states", &self.states), ("outputs", &self.outputs)] {
            if ports.is_empty() {
                continue;
            }
            let width = ports.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
            writeln!(f, "  {what}")?;
            for (name, ty) in ports {
                let note = self.notes.get(name).map(|note| format!("  {note}")).unwrap_or_default();
                writeln!(f, "    {name:width$}  {ty}{note}")?;
            }
        }
        writeln!(f, "  {} ops", self.ops.iter().map(|(_, n)| n).sum::<usize>())?;
        self.ops.iter().try_for_each(|(name, count)| writeln!(f, "    {count:5} {name}"))
    }
}

fn function(f: &Function) -> FunctionContents {
    let (states, inputs): (Vec<ValueId>, Vec<ValueId>) =
        f.inputs.iter().partition(|v| matches!(f.value(**v).ty, Type::State(_)));
    let ports = |values: &[ValueId]| {
        values.iter().map(|v| f.value(*v)).map(|value| (value.name.clone(), value.ty.clone())).collect()
    };
    FunctionContents {
        name: f.name.clone(),
        opsets: f.bodies.iter().map(|(tag, _)| tag.to_string()).collect(),
        inputs: ports(&inputs),
        states: ports(&states),
        outputs: ports(&f.body().outputs),
        ops: histogram(f),
        notes: BTreeMap::new(),
    }
}

fn build_info(program: &Program) -> Vec<(String, String)> {
    let Some((_, Constant::Dict(_, entries))) = program.attributes.iter().find(|(n, _)| n == "buildInfo") else {
        return Vec::new();
    };
    entries.iter().filter_map(|(k, v)| Some((k.as_str()?.to_string(), v.as_str()?.to_string()))).collect()
}

/// How often each op occurs in the function's bodies and their nested blocks.
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

fn weights(program: &Program) -> BTreeMap<String, Vec<WeightRecord>> {
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
    let mut files: BTreeMap<String, Vec<WeightRecord>> = BTreeMap::new();
    for (id, names) in names {
        let store = &program.weights;
        let Some((file, offset)) = store.location(id) else { continue };
        let bits = store.dtype(id).and_then(|d| d.bits()).unwrap_or(8) as u64;
        let bytes = (store.elements(id).unwrap_or(0) as u64).saturating_mul(bits).div_ceil(8);
        let ty = types.remove(&id).unwrap_or_default();
        let weight = WeightRecord { offset, ty, bytes, found: store.bytes(id).is_some(), names };
        files.entry(file.to_string()).or_default().push(weight);
    }
    files.values_mut().for_each(|list| list.sort_by_key(|w| w.offset));
    files
}

/// The constants of an op: literal arguments and attributes.
fn constants(op: &Op) -> impl Iterator<Item = &Constant> {
    let literals = op.args.iter().filter_map(|(_, a)| if let Arg::Const(c) = a { Some(c) } else { None });
    literals.chain(op.attributes.iter().map(|(_, c)| c))
}

fn total(records: &[WeightRecord]) -> u64 {
    records.iter().map(|w| w.bytes).fold(0, u64::saturating_add)
}

fn plural(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A number of bytes with a decimal unit.
fn size(bytes: u64) -> String {
    let (value, unit) = match bytes {
        0..1_000 => return format!("{bytes} B"),
        1_000..1_000_000 => (bytes as f64 / 1e3, "kB"),
        1_000_000..1_000_000_000 => (bytes as f64 / 1e6, "MB"),
        _ => (bytes as f64 / 1e9, "GB"),
    };
    format!("{value:.1} {unit}")
}
