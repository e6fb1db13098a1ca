//! The functions of a model, operation by operation: every refusal is collected, and what no output
//! depends on is left out.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use ferrane_diag::{Code, printable};
use ferrane_host::map::Mapped;
use ferrane_mil::emit::{Emit, Made, elements};
use ferrane_mil::passes::{self, Pipeline};
use ferrane_mil::{
    Builder, Constant, DataType, Evaluate, Function, MilError, Op, Opset, Program, Type, ValueId, Weights, port_names,
};

use super::fold;
use super::known::{Known, mil};
use super::origin;
use super::state::{Built, DECODED, Lower, MAX_PARTS, MAX_TABLES, Meaning, Role, Stop, rejected, unmapped};
use super::table::{self, OpMapping};
use crate::bytecode::{self, Block, Bytecode, BytecodeOp, TypeId};
use crate::codes;
use crate::dialect::{ElementType, Field, Tensor};
use crate::error::{Refusal, Refusals};
use crate::options::ConversionOptions;

/// The extents of all inputs by their names, with their numbers if every function fixes them.
type Extents = std::collections::BTreeMap<String, Option<usize>>;

const HEADLINE: &str = "the model has no program";

/// Operations that end a block and give its results.
const TERMINATORS: [&str; 3] = ["dataflow.yield_v1", "dataflow.output_v1", "controlflow.condition_v1"];

/// The operations of the enclosing asset, or of the file if there is none.
fn contents<'a>(file: &'a Bytecode<'a>) -> &'a [BytecodeOp] {
    let asset =
        file.body.operations.iter().find(|op| file.op(op.name).is_some_and(|o| o.name == "serialization.asset"));
    let inner = asset.and_then(|op| op.regions.first()).and_then(|region| region.blocks.first());
    inner.map_or(&file.body.operations, |block| &block.operations)
}

/// An op by the names of function and first result, with the location of what it was made from.
type Located = (String, String, bytecode::AttributeId);

/// The program of a model, with its ops that have a location.
pub(super) fn lower<'a>(
    file: &'a Bytecode<'a>,
    memory: Option<&'a Mapped>,
    options: &'a ConversionOptions,
) -> Result<(Program, Vec<Located>), Refusals> {
    let is_graph = |op: &&BytecodeOp| file.op(op.name).is_some_and(|o| o.name == "dataflow.graph_v1");
    let name = |op: &BytecodeOp| match file.attribute(file.property(op, "name")?)?.fields.as_slice() {
        [Field::String(id)] => Some(file.string(*id).into_owned()),
        _ => None,
    };
    let graphs: HashMap<String, &BytecodeOp> =
        contents(file).iter().filter(is_graph).filter_map(|op| Some((name(op)?, op))).collect();
    let is_private = |op: &BytecodeOp| {
        let found = file.property(op, "isPrivate").and_then(|id| file.attribute(id));
        found.is_some_and(|p| matches!(p.fields.as_slice(), [_, _, Field::Bits(1)]))
    };
    let public = contents(file).iter().filter(is_graph).filter(|op| !is_private(op));
    let public: Vec<(String, &BytecodeOp)> = public.filter_map(|op| Some((name(op)?, op))).collect();
    let mut program: Option<Program> = None;
    let mut refusals = Vec::new();
    let names = port_names(public.iter().map(|(name, _)| name.as_str()));
    let mut extents = Extents::new();
    let mut located = Vec::new();
    for ((name, op), spelled) in public.iter().zip(&names) {
        let weights = program.as_mut().map(|p| std::mem::take(&mut p.weights)).unwrap_or_default();
        let mut l =
            lowering(file, memory, options, op, name, &graphs, Builder::over(spelled, target(options), weights));
        match l.function(op, &mut extents, &mut located) {
            // The weights are complete after each function.
            Some(found) => match &mut program {
                None => program = Some(found),
                Some(program) => {
                    program.weights = found.weights;
                    program.functions.extend(found.functions);
                }
            },
            None => refusals.append(&mut l.refusals),
        }
    }
    for (name, chosen) in &options.dimensions {
        let reason = match extents.get(name) {
            None => {
                let near = ferrane_diag::did_you_mean(name, extents.keys().map(String::as_str));
                format!("the model has no such extent{near}")
            }
            Some(Some(fixed)) if fixed != chosen => format!("it is {fixed}, not {chosen}"),
            Some(_) => continue,
        };
        refusals.push(refusal(codes::OPEN_EXTENT, name, "extent", reason));
    }
    match program {
        Some(program) if refusals.is_empty() => {
            // What only folded operations have read. Of all functions at once: the pass also drops
            // weights that no function reads.
            let cleanup = Pipeline::new(passes::find("dead_code"));
            let invalid = |e: MilError| refusal(codes::INVALID, "the model", "program", e.to_string());
            let cleaned = cleanup
                .run(&program, &NoArithmetic)
                .map_err(|e| Refusals { headline: HEADLINE, all: vec![invalid(e)] });
            cleaned.map(|(p, _)| (p, located))
        }
        _ if refusals.is_empty() => {
            let reason = "it has no function that callers see".to_string();
            Err(Refusals { headline: HEADLINE, all: vec![refusal(codes::INVALID, "the model", "program", reason)] })
        }
        _ => Err(Refusals { headline: HEADLINE, all: refusals }),
    }
}

fn target(options: &ConversionOptions) -> Opset {
    options.opset.unwrap_or(Opset::IOS18)
}

fn refusal(code: Code, subject: &str, operation: &str, reason: String) -> Refusal {
    let plain = |text: &str| printable(text).to_string();
    Refusal { code, subject: plain(subject), operation: plain(operation), reason: plain(&reason) }
}

fn lowering<'a>(
    file: &'a Bytecode<'a>,
    memory: Option<&'a Mapped>,
    options: &'a ConversionOptions,
    op: &'a BytecodeOp,
    name: &str,
    graphs: &'a HashMap<String, &'a BytecodeOp>,
    b: Builder,
) -> Lower<'a> {
    let entries = file.attributes.iter().chain(&file.types).map(|entry| entry.bytes.len()).sum::<usize>();
    Lower {
        b,
        file,
        memory,
        target: target(options),
        options,
        op,
        label: String::new(),
        function: name.to_string(),
        values: HashMap::new(),
        entries: 0,
        blocks: vec![Made::default()],
        records: HashMap::new(),
        transposed: HashMap::new(),
        refusals: Vec::new(),
        made: Vec::new(),
        calls: Vec::new(),
        graphs,
        tables: MAX_TABLES,
        left: MAX_PARTS,
        decodable: std::cell::Cell::new((1 << 20) + DECODED.saturating_mul(entries)),
    }
}

/// Dead code is found without arithmetic.
struct NoArithmetic;

impl Evaluate for NoArithmetic {
    fn evaluate(&self, _: &Function, _: &Op, _: Opset, _: &Weights) -> Result<Vec<Constant>, String> {
        Err("nothing is computed here".into())
    }
}

impl<'a> Lower<'a> {
    /// The program with this function alone and all weights so far. `None` if there are refusals.
    /// Adds the names of extents that the options may choose.
    fn function(&mut self, op: &'a BytecodeOp, extents: &mut Extents, located: &mut Vec<Located>) -> Option<Program> {
        let Some(block) = body(op) else {
            self.refuse(codes::INVALID, "dataflow.graph_v1", "it has no body".into());
            return None;
        };
        let inputs: Vec<TypeId> = block.arguments.iter().map(|a| a.definition.ty).collect();
        let outputs = block.operations.last().map_or(0, |op| op.operands.len());
        let ports = self.ports(op, inputs.len(), outputs);
        let names = port_names(ports.iter().map(String::as_str));
        for (i, argument) in block.arguments.iter().enumerate() {
            let ty = argument.definition.ty;
            let entry = self.input(&ports[i], &names[i], ty, extents).unwrap_or_else(|(code, reason)| {
                self.refusals.push(refusal(code, &format!("{} of {}", ports[i], self.function), "input", reason));
                self.make(Role::Poisoned, ElementType::Float32)
            });
            self.values.insert(argument.definition.value, entry);
        }
        let results = self.block(block);
        let found = match results {
            Ok(results) => self.outputs(&results, &names[inputs.len()..]),
            Err(stop) => {
                self.stopped(stop);
                Vec::new()
            }
        };
        if !self.refusals.is_empty() {
            return None;
        }
        if found.is_empty() {
            self.refuse(codes::UNMAPPED, "dataflow.output_v1", "MIL has no function without an output".into());
            return None;
        }
        let pairs: Vec<(&str, ValueId)> = found.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        let b = std::mem::replace(&mut self.b, Builder::new("none", self.target));
        let program = b.finish(&pairs).map_err(|e| self.refuse(codes::INVALID, "program", e.to_string())).ok()?;
        located.extend(origin::named(&program, &mut self.made));
        Some(program)
    }

    /// The names of inputs and outputs; those without one are numbered.
    fn ports(&self, op: &'a BytecodeOp, inputs: usize, outputs: usize) -> Vec<String> {
        let mut text = crate::text::BoundedText::of(self.file);
        let mut names = Vec::with_capacity(inputs + outputs);
        for (attributes, count, unnamed) in [("argAttrs", inputs, "input"), ("resAttrs", outputs, "output")] {
            let id = self.file.property(op, attributes);
            let found = crate::text::port_names(self.file, id, count, &mut text);
            for i in 0..count {
                let name = found.get(i).copied().flatten().map(|id| self.file.string(id).into_owned());
                names.push(name.unwrap_or_else(|| format!("{unnamed}_{i}")));
            }
        }
        // An input and an output may share a name, which MIL does not allow.
        for i in inputs..names.len() {
            if names[..inputs].contains(&names[i]) {
                names[i].push_str("_out");
            }
        }
        names
    }

    fn input(
        &mut self,
        port: &str,
        name: &str,
        ty: TypeId,
        extents: &mut Extents,
    ) -> Result<Meaning<'a>, (Code, String)> {
        let invalid = |e: MilError| (codes::INVALID, e.to_string());
        let unmapped = |what: &str| (codes::UNMAPPED, what.to_string());
        let decoded = self.ty(ty).ok_or_else(|| unmapped("its type is not known"))?;
        match (decoded.kind.name, decoded.fields.as_slice()) {
            ("handle_v1", [Field::Type(inner)]) => {
                let (element, shape) = self.tensor_port(port, *inner, extents)?;
                let dtype = port_type(element)?;
                let state = Type::State(Box::new(Type::tensor(dtype, &shape)));
                let value = self.b.input(name, state).map_err(invalid)?;
                Ok(self.make(Role::State(value), element))
            }
            ("token_v1", _) => Ok(self.make(Role::Token, ElementType::Bool)),
            ("image_v1", _) => Err(unmapped("MIL has no images; packages describe tensors as images")),
            _ => {
                let (element, shape) = self.tensor_port(port, ty, extents)?;
                let wanted = mil(element).ok_or_else(|| no_type(element))?;
                let dtype = port_type(element)?;
                let value = self.b.input(name, Type::tensor(dtype, &shape)).map_err(invalid)?;
                let value = if dtype == wanted { value } else { self.b.cast(name, value, wanted).map_err(invalid)? };
                Ok(self.make(Role::Value(value), element))
            }
        }
    }

    /// The element type and the extents of an input, all of them numbers.
    fn tensor_port(
        &self,
        port: &str,
        ty: TypeId,
        extents: &mut Extents,
    ) -> Result<(ElementType, Vec<usize>), (Code, String)> {
        let Some(Tensor { shape, element, encoding }) = self.tensor_type(ty) else {
            return Err((codes::UNMAPPED, "MIL's inputs are tensors, and this is none".into()));
        };
        let sparse = encoding.and_then(|id| self.attribute(id)).is_some_and(|e| e.kind.name.starts_with("sparse"));
        if sparse {
            return Err((codes::UNMAPPED, "MIL has no sparse tensors outside of constants".into()));
        }
        let (mut found, mut open) = (Vec::with_capacity(shape.len()), Vec::new());
        for (axis, extent) in shape.iter().enumerate() {
            let name = format!("{port}.{axis}");
            let fixed = extent.map(|n| n as usize);
            match fixed.or_else(|| self.options.dimensions.get(&name).copied()) {
                Some(n) => found.push(n),
                None => open.push(name.clone()),
            }
            let entry = extents.entry(name).or_insert(fixed);
            *entry = entry.and(fixed);
        }
        if !open.is_empty() {
            let list = open.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
            let example = open.iter().map(|n| format!("{n}=1")).collect::<Vec<_>>().join(",");
            let reason = format!("the extents {list} have no number; choose them as in `{example}`");
            return Err((codes::OPEN_EXTENT, reason));
        }
        match elements(&found) {
            Some(_) => Ok((element, found)),
            None => Err((codes::INVALID, format!("a tensor of extents {found:?} is too large"))),
        }
    }

    /// The values of the outputs, with the names that they have in the program.
    fn outputs(&mut self, results: &[Meaning<'a>], names: &[String]) -> Vec<(String, ValueId)> {
        let mut found = Vec::new();
        for (entry, name) in results.iter().zip(names) {
            // The order of accesses to states is that of the ops.
            if matches!(entry.is, Role::Token | Role::Poisoned) {
                continue;
            }
            self.label = name.clone();
            let value = self.value_of(entry).and_then(|v| match (self.dtype(v), &entry.is) {
                // A port of Core ML holds no bools.
                (DataType::Bool, _) => self.cast(v, DataType::Int32),
                // A constant cannot be an output.
                (_, Role::Known(_)) => self.un("identity", v),
                _ => Ok(v),
            });
            match value {
                Ok(value) => found.push((name.clone(), value)),
                Err(stop) => self.stopped(stop),
            }
        }
        found
    }

    /// Lowers the operations of a block that its results depend on, and returns what these stand
    /// for.
    pub(super) fn block(&mut self, block: &'a Block) -> Built<Vec<Meaning<'a>>> {
        let needed = needed(block);
        let outer = self.op;
        for (op, _) in block.operations.iter().zip(&needed).filter(|(_, needed)| **needed) {
            let known = self.file.op(op.name);
            if known.is_some_and(|o| TERMINATORS.contains(&o.name)) {
                let found = op.operands.iter().map(|name| match self.values.get(name) {
                    Some(entry) => Ok(entry.clone()),
                    None => rejected("a block returns a value that it does not define"),
                });
                let found = found.collect();
                self.op = outer;
                return found;
            }
            self.one_op(op);
        }
        self.op = outer;
        rejected("a block does not end with its results")
    }

    fn one_op(&mut self, op: &'a BytecodeOp) {
        self.op = op;
        let (_, name) = self.file.op_name(op.name);
        let short = name.rsplit('.').next().unwrap_or("op");
        self.label = short.rsplit_once("_v").map_or(short, |(name, _)| name).to_string();
        let found = self.spend(1).and_then(|()| self.results());
        self.op = op;
        let found = match found {
            Ok(entries) => entries,
            Err(stop) => {
                self.stopped(stop);
                Vec::new()
            }
        };
        for (i, result) in op.results.iter().enumerate() {
            let entry = match found.get(i) {
                Some(entry) => entry.clone(),
                None => self.make(Role::Poisoned, ElementType::Float32),
            };
            if let Role::Value(value) = entry.is {
                self.made.push((value, op.location));
            }
            self.values.insert(result.value, entry);
        }
    }

    /// Notes why the operation has no ops, unless another refusal is the reason.
    fn stopped(&mut self, stop: Stop) {
        let name = self.file.op_name(self.op.name).1.into_owned();
        match stop {
            Stop::Poisoned => {}
            Stop::Unmapped(reason) => self.refuse(codes::UNMAPPED, &name, reason),
            Stop::Rejected(reason) => self.refuse(codes::INVALID, &name, reason),
            Stop::Needs(i) => {
                self.refuse(codes::UNKNOWN_VALUE, &name, format!("MIL needs operand {i} when the program is made"));
            }
        }
    }

    fn refuse(&mut self, code: Code, operation: &str, reason: String) {
        let subject = match self.line() {
            Some(line) => format!("{}, {line}", self.function),
            None => self.function.clone(),
        };
        self.refusals.push(refusal(code, &subject, operation, reason));
    }

    /// The line of the source that wrote the operation, `model.py:12`.
    fn line(&self) -> Option<String> {
        let location = self.attribute(self.op.location)?;
        let [Field::Attribute(source), ..] = location.fields.as_slice() else { return None };
        let source = self.attribute(*source)?;
        let [Field::Attribute(file), Field::Unsigned(line), ..] = source.fields.as_slice() else { return None };
        match self.attribute(*file)?.fields.as_slice() {
            [Field::String(name), ..] => Some(format!("{}:{line}", self.file.string(*name))),
            _ => None,
        }
    }

    /// What the results of the operation stand for.
    fn results(&mut self) -> Built<Vec<Meaning<'a>>> {
        let op = self.op;
        // An operation that reads what another refusal took away is not judged.
        for name in &op.operands {
            self.lookup(*name)?;
        }
        let Some(known) = self.file.op(op.name) else {
            return self
                .expansion()
                .unwrap_or_else(|| unmapped("the operation is not known, and the file has no expansion of it"));
        };
        if let Some(folded) = fold::folded(self, known.name)? {
            return Ok(folded.into_iter().map(|t| self.known_entry(t)).collect());
        }
        let lowering = match table::find(known.name) {
            Some(OpMapping::Lowered(lowering)) => *lowering,
            Some(OpMapping::Entries(work)) => return work(self),
            Some(OpMapping::Not(reason)) => return self.expansion().unwrap_or_else(|| unmapped(*reason)),
            Some(OpMapping::Expanded | OpMapping::Structure) | None => {
                return self.expansion().unwrap_or_else(|| unmapped("the file has no expansion of it"));
            }
        };
        let failed = match lowering(self) {
            Ok(values) => return values.into_iter().enumerate().map(|(i, v)| self.computed(i, v)).collect(),
            Err(Stop::Poisoned) => return Err(Stop::Poisoned),
            Err(stop) => stop,
        };
        // What the op of MIL cannot express, its parts may.
        self.op = op;
        let before = self.refusals.len();
        match self.expansion() {
            Some(Ok(entries)) if self.refusals.len() == before => Ok(entries),
            _ => {
                self.refusals.truncate(before);
                Err(failed)
            }
        }
    }

    pub(super) fn known_entry(&mut self, tensor: Known<'a>) -> Meaning<'a> {
        let element = tensor.element;
        self.make(Role::Known(Rc::new(tensor)), element)
    }

    /// The entry of result `i` of the operation, a value of the type that the file states.
    pub(super) fn computed(&mut self, i: usize, value: ValueId) -> Built<Meaning<'a>> {
        let Some(Tensor { element, shape, .. }) = self.result(i) else {
            return rejected(format!("result {i} is no tensor"));
        };
        let Some(dtype) = mil(element) else { return Err(Stop::Unmapped(no_type(element).1)) };
        let narrow = matches!(self.dtype(value), DataType::Int8 | DataType::UInt8) && self.dtype(value) == dtype;
        let value = match dtype.is_int() && !narrow {
            true => self.cast(value, DataType::Int32)?,
            false => self.cast(value, dtype)?,
        };
        if let Some(found) = self.b.ty(value).shape() {
            let same =
                found.len() == shape.len() && found.iter().zip(&shape).all(|(a, b)| b.is_none_or(|b| b == *a as u64));
            if !same {
                let shape: Vec<String> = shape.iter().map(|n| n.map_or("?".into(), |n| n.to_string())).collect();
                return rejected(format!("it computes a tensor of {found:?}, not of [{}]", shape.join(", ")));
            }
            if elements(&found).is_none() {
                return unmapped(format!("its result of shape {found:?} is too large"));
            }
        }
        Ok(self.make(Role::Value(value), element))
    }
}

/// The block of an operation with a single region of a single block.
pub(super) fn body(op: &BytecodeOp) -> Option<&Block> {
    match op.regions.as_slice() {
        [region] => match region.blocks.as_slice() {
            [block] => Some(block),
            _ => None,
        },
        _ => None,
    }
}

fn no_type(element: ElementType) -> (Code, String) {
    (codes::UNMAPPED, format!("MIL has no numbers of type {}", element.name()))
}

/// The type of a port for an element type. A port of Core ML holds no bools.
fn port_type(element: ElementType) -> Result<DataType, (Code, String)> {
    match mil(element).ok_or_else(|| no_type(element))? {
        DataType::Bool => Ok(DataType::Int32),
        dtype => Ok(dtype),
    }
}

/// For each operation of a block, whether its results depend on it.
fn needed(block: &Block) -> Vec<bool> {
    let mut values: HashSet<bytecode::ValueId> = HashSet::new();
    let mut needed = vec![false; block.operations.len()];
    let last = needed.len().wrapping_sub(1);
    for (i, op) in block.operations.iter().enumerate().rev() {
        needed[i] = i == last || op.results.iter().any(|r| values.contains(&r.value));
        if needed[i] {
            reads(op, &mut values);
        }
    }
    needed
}

/// Adds what an operation reads, and what the operations in its regions read.
fn reads(op: &BytecodeOp, values: &mut HashSet<bytecode::ValueId>) {
    values.extend(&op.operands);
    for inner in op.regions.iter().flat_map(|r| &r.blocks).flat_map(|b| &b.operations) {
        reads(inner, values);
    }
}
