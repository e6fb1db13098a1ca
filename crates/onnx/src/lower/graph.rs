//! The graph of a model, node by node: every refusal is collected, and what no output depends on is
//! left out.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use ferrane_mil::emit::{Emit, Made};
use ferrane_mil::passes::{self, Pipeline};
use ferrane_mil::{
    Builder, Constant, DataType, Evaluate, Function, MilError, Op, Opset, Program, Type, ValueId, Weights, port_names,
};

use super::fold;
use super::roots::Roots;
use super::state::{Built, Entry, Lower, MAX_FOLDED, MAX_PARTS, MAX_TABLES, Stop, unmapped};
use super::table::{self, OpMapping};
use crate::codes;
use crate::element::ElementType;
use crate::error::{Refusal, Refusals};
use crate::graph::{Attribute, Dimension, Graph, Node, Port};
use crate::model::Model;
use crate::options::Options;
use crate::tensor::Tensor;

/// Operators that opset 7 changed in more than their broadcasting.
const CHANGED: &[&str] = &["Cast", "GRU", "LSTM", "Pad", "RNN", "Tile", "Upsample"];

/// The program of a model.
pub(crate) fn lower(model: &Model, options: &Options) -> Result<Program, Refusals> {
    let wanted = needed(&model.graph);
    let target = options.opset.unwrap_or_else(|| default_opset(&model.graph));
    let idle = Node {
        label: String::new(),
        op: String::new(),
        domain: String::new(),
        overload: String::new(),
        opset: 1,
        attributes: Vec::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
    };
    let mut l = Lower {
        b: Builder::new("main", target),
        node: &idle,
        model,
        target,
        options,
        scopes: vec![HashMap::new()],
        entries: 0,
        blocks: vec![Made::default()],
        records: HashMap::new(),
        elements: None,
        empty: Vec::new(),
        label: String::new(),
        labels: HashMap::new(),
        refusals: Vec::new(),
        missing: HashMap::new(),
        tables: std::cell::Cell::new(MAX_TABLES),
        roots: None,
        foldable: MAX_FOLDED,
        left: MAX_PARTS,
    };
    l.check_options(model);
    let names = port_names(model.inputs.iter().chain(&model.graph.outputs).map(|p| p.name.as_str()));
    l.initializers(&model.graph);
    for (port, name) in model.inputs.iter().zip(&names) {
        l.input(port, name);
    }
    l.nodes(&model.graph, &wanted);
    let outputs = l.outputs(&model.graph.outputs, &names[model.inputs.len()..]);
    if !l.refusals.is_empty() {
        return Err(Refusals { all: l.refusals });
    }
    let refuse = |error: MilError| {
        let refusal = Refusal {
            code: codes::INVALID_MODEL,
            subject: "main".into(),
            operator: "program".into(),
            reason: error.to_string(),
            needs: Vec::new(),
        };
        Refusals { all: vec![refusal] }
    };
    let pairs: Vec<(&str, ValueId)> = outputs.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    let program = l.b.finish(&pairs).map_err(refuse)?;
    // What only folded nodes have read.
    let cleanup = Pipeline::new(passes::find("dead_code"));
    cleanup.run(&program, &NoArithmetic).map(|(program, _)| program).map_err(refuse)
}

/// Dead code is found without arithmetic.
struct NoArithmetic;

impl Evaluate for NoArithmetic {
    fn evaluate(&self, _: &Function, _: &Op, _: Opset, _: &Weights) -> Result<Vec<Constant>, String> {
        Err("nothing is computed here".into())
    }
}

/// Since iOS 17 MIL's non_maximum_suppression has neither a score threshold nor a box count.
fn default_opset(graph: &Graph) -> Opset {
    fn suppresses(graph: &Graph) -> bool {
        graph.nodes.iter().any(|n| n.op == "NonMaxSuppression" || n.graphs().any(suppresses))
    }
    if suppresses(graph) { Opset::IOS16 } else { Opset::IOS18 }
}

/// The nodes, by position, that an output depends on.
pub(super) fn needed(graph: &Graph) -> HashSet<usize> {
    let mut names: HashSet<&str> = graph.outputs.iter().map(|p| p.name.as_str()).collect();
    let mut found = HashSet::new();
    for (i, node) in graph.nodes.iter().enumerate().rev() {
        if node.outputs.iter().any(|o| names.contains(o.as_str())) {
            found.insert(i);
            names.extend(node.inputs.iter().map(String::as_str).filter(|n| !n.is_empty()));
            node.graphs().for_each(|g| names.extend(g.captures()));
        }
    }
    found
}

impl<'a> Lower<'a> {
    pub(super) fn refuse(
        &mut self,
        code: ferrane_diag::Code,
        subject: &str,
        operator: String,
        reason: String,
        needs: Vec<String>,
    ) {
        self.refusals.push(Refusal { code, subject: subject.to_string(), operator, reason, needs });
    }

    /// Refuses options that name nothing of the model: they are misspelled.
    fn check_options(&mut self, model: &Model) {
        let mut known: Vec<String> = Vec::new();
        for port in &model.inputs {
            for (axis, dimension) in port.shape.iter().flatten().enumerate() {
                match dimension {
                    Dimension::Named(name) => known.push(name.clone()),
                    Dimension::Unknown => known.push(format!("{}.{axis}", port.name)),
                    Dimension::Fixed(_) => {}
                }
            }
        }
        let options = self.options;
        for name in options.dimensions.keys().filter(|n| !known.contains(n)) {
            let near = ferrane_diag::did_you_mean(name, known.iter().map(String::as_str));
            let reason = format!("the model has no such extent{near}");
            self.refuse(codes::OPEN_DIMENSION, name, "dimension".into(), reason, Vec::new());
        }
        for name in options.values.keys().filter(|n| !model.inputs.iter().any(|p| p.name == **n)) {
            let near = ferrane_diag::did_you_mean(name, model.inputs.iter().map(|p| p.name.as_str()));
            let reason = format!("the model has no such input{near}");
            self.refuse(codes::NOT_KNOWN, name, "value".into(), reason, Vec::new());
        }
    }

    pub(super) fn initializers(&mut self, graph: &'a Graph) {
        for (name, tensor) in &graph.initializers {
            let entry = self.make(None, Some(Rc::new(tensor.clone())), tensor.element());
            self.bind(name, entry);
        }
    }

    fn input(&mut self, port: &'a Port, name: &str) {
        if let Some(value) = self.options.values.get(&port.name) {
            let entry = self.make(None, Some(Rc::new(value.clone())), value.element());
            self.bind(&port.name, entry);
            return;
        }
        let found = self.port_type(port).and_then(|(element, shape)| {
            let dtype = match self.mil(element) {
                Ok(dtype) => dtype,
                Err(_) => return Err((codes::UNMAPPED_NODE, format!("MIL programs have no values of type {element}"))),
            };
            // A port of Core ML holds no bools.
            let port = if dtype == DataType::Bool { DataType::Int32 } else { dtype };
            let value = self.b.input(name, Type::tensor(port, &shape)).and_then(|v| match dtype == port {
                true => Ok(v),
                false => self.b.cast(name, v, dtype),
            });
            value.map(|v| (v, element)).map_err(|e| (codes::INVALID_MODEL, e.to_string()))
        });
        let entry = match found {
            Ok((value, element)) => self.make(Some(value), None, element),
            Err((code, reason)) => {
                self.refuse(code, &port.name, "input".into(), reason, Vec::new());
                self.poisoned()
            }
        };
        self.bind(&port.name, entry);
    }

    fn poisoned(&mut self) -> Entry {
        Entry { poisoned: true, ..self.make(None, None, ElementType::Float) }
    }

    /// The element type and the extents of an input, all of them numbers.
    fn port_type(&self, port: &Port) -> Result<(ElementType, Vec<usize>), (ferrane_diag::Code, String)> {
        let (Some(element), Some(shape)) = (port.element, &port.shape) else {
            let what = if port.element.is_some() { "its rank is not stated" } else { "it is not a tensor" };
            return Err((codes::UNMAPPED_NODE, format!("{what}; MIL's inputs are tensors of known rank")));
        };
        let mut extents = Vec::with_capacity(shape.len());
        let mut open = Vec::new();
        for (axis, dimension) in shape.iter().enumerate() {
            let name = match dimension {
                Dimension::Fixed(n) => {
                    extents.push(*n);
                    continue;
                }
                Dimension::Named(name) => name.clone(),
                Dimension::Unknown => format!("{}.{axis}", port.name),
            };
            match self.options.dimensions.get(&name) {
                Some(n) => extents.push(*n),
                None => open.push(name),
            }
        }
        if !open.is_empty() {
            let list = open.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
            let example = open.iter().map(|n| format!("{n}=1")).collect::<Vec<_>>().join(",");
            let reason =
                format!("the extents {list} have no number; state them among the dimensions, such as {example}");
            return Err((codes::OPEN_DIMENSION, reason));
        }
        match crate::tensor::elements(&extents) {
            Some(_) => Ok((element, extents)),
            None => Err((codes::INVALID_MODEL, format!("a tensor of extents {extents:?} is too large"))),
        }
    }

    /// Lowers the nodes of a graph whose positions are `wanted`.
    pub(super) fn nodes(&mut self, graph: &'a Graph, wanted: &HashSet<usize>) {
        let outer = self.node;
        for (_, node) in graph.nodes.iter().enumerate().filter(|(i, _)| wanted.contains(i)) {
            self.one_node(node);
        }
        self.node = outer;
    }

    fn one_node(&mut self, node: &'a Node) {
        self.node = node;
        // Names of ops are unique; a counter for each label spares the builder the search.
        let count = self.labels.entry(node.label.as_str()).or_default();
        *count += 1;
        self.label = if *count == 1 { node.label.clone() } else { format!("{}_{count}", node.label) };
        self.elements = None;
        self.empty.clear();
        let spent = self.spend(1);
        let found = spent.and_then(|()| self.results());
        let label = node.label.as_str();
        match found {
            Ok(entries) => {
                for (i, name) in node.outputs.iter().enumerate().filter(|(_, n)| !n.is_empty()) {
                    let entry = match entries.get(i).cloned().flatten() {
                        Some(entry) => entry,
                        None => {
                            // An output that nothing reads may be one that MIL cannot compute.
                            let reason = format!("its output `{name}` has no counterpart in MIL");
                            let entry = self.poisoned();
                            self.unread(name, reason);
                            entry
                        }
                    };
                    self.bind(name, entry);
                }
                return;
            }
            Err(Stop::Poisoned) => {
                for name in &node.inputs {
                    if let Some((label, operator, reason)) = self.missing.remove(name.as_str()) {
                        self.refuse(codes::UNMAPPED_NODE, &label, operator, reason, Vec::new());
                    }
                }
            }
            Err(Stop::Unmapped(reason)) => {
                self.refuse(codes::UNMAPPED_NODE, label, node.operator(), reason, Vec::new())
            }
            Err(Stop::Rejected(reason)) => {
                self.refuse(codes::INVALID_MODEL, label, node.operator(), reason, Vec::new())
            }
            Err(Stop::Needs(i)) => {
                let name: &'a str = node.inputs.get(i).map_or("", String::as_str);
                let roots = self.roots.get_or_insert_with(|| Roots::new(self.model)).of(name);
                let from = roots.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
                let from = if from.is_empty() { from } else { format!(", which depends on the input {from},") };
                let reason = format!("MIL needs input {i} (`{name}`){from} when the program is made");
                self.refuse(codes::NOT_KNOWN, label, node.operator(), reason, roots);
            }
        }
        for name in node.outputs.iter().filter(|n| !n.is_empty()) {
            let entry = self.poisoned();
            self.bind(name, entry);
        }
    }

    /// Notes an output without a value, in case something reads it.
    fn unread(&mut self, name: &'a str, reason: String) {
        self.missing.insert(name, (self.node.label.clone(), self.node.operator(), reason));
    }

    fn results(&mut self) -> Built<Vec<Option<Entry>>> {
        let node = self.node;
        let lowering = match table::find(&node.domain, &node.op) {
            Some(OpMapping::Not(reason)) => return unmapped(*reason),
            Some(OpMapping::Lowered(lowering)) => Some(lowering),
            Some(OpMapping::Control) => None,
            None if node.domain.is_empty() => return unmapped("ai.onnx has no such operator up to opset 27"),
            None => return unmapped("the operator is not known, and the model has no function of that name"),
        };
        if node.domain.is_empty() && node.opset < 7 && (self.given("broadcast") || CHANGED.contains(&node.op.as_str()))
        {
            return unmapped(format!(
                "opset {} gives it another meaning; convert the model to opset 7 or later",
                node.opset
            ));
        }
        // A node that reads what another refusal took away is not judged.
        for i in 0..node.inputs.len() {
            if self.has(i) {
                self.entry(i)?;
            }
        }
        if let Some(known) = self.folded()? {
            return Ok(known.into_iter().map(|t| Some(self.known_entry(t))).collect());
        }
        if node.op == "Identity" && node.domain.is_empty() {
            let entry = self.entry(0)?;
            if entry.is_resolved() {
                return Ok(vec![Some(entry)]);
            }
        }
        let Some(lowering) = lowering else { return self.control() };
        let values = lowering(self)?;
        let mut entries = Vec::with_capacity(values.len());
        for (i, value) in values.into_iter().enumerate() {
            entries.push(match value {
                Some(value) => Some(self.computed(i, value)?),
                None => None,
            });
        }
        for (i, tensor) in std::mem::take(&mut self.empty) {
            let entry = self.known_entry(tensor);
            if let Some(place) = entries.get_mut(i) {
                *place = Some(entry);
            }
        }
        Ok(entries)
    }

    pub(super) fn known_entry(&mut self, tensor: Tensor) -> Entry {
        let element = tensor.element();
        self.make(None, Some(Rc::new(tensor)), element)
    }

    /// The entry of result `i` of the node.
    fn computed(&mut self, i: usize, value: ValueId) -> Built<Entry> {
        // Some lowerings compute in fp32.
        let value = match self.dtype(value) {
            DataType::Fp32 => {
                let float = self.mil(ElementType::Float)?;
                self.cast(value, float)?
            }
            _ => value,
        };
        if let Some(shape) = self.b.ty(value).shape()
            && crate::tensor::elements(&shape).is_none()
        {
            return Err(Stop::Unmapped(format!("its result of shape {shape:?} is too large")));
        }
        let dtype = self.dtype(value);
        let counts = matches!(self.node.op.as_str(), "Shape" | "Size" | "ArgMax" | "ArgMin" | "NonZero");
        let element = match (dtype, self.elements) {
            (DataType::Int32, Some(element)) => element,
            (DataType::Int32, None) if i == 0 && !counts && self.has(0) => {
                self.element(0).ok().filter(|e| e.integer().is_some()).unwrap_or(ElementType::Int64)
            }
            _ => ElementType::of_mil(dtype),
        };
        Ok(self.make(Some(value), None, element))
    }

    /// The results of the node, if they can be computed now.
    fn folded(&mut self) -> Built<Option<Vec<Tensor>>> {
        let node = self.node;
        if node.op == "Constant" && node.domain.is_empty() {
            return constant_node(node).map(|t| Some(vec![t]));
        }
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for i in 0..node.inputs.len() {
            inputs.push(if self.has(i) { Some(self.entry(i)?) } else { None });
        }
        if let (true, "Shape" | "Size", Some(Some(x))) = (node.domain.is_empty(), node.op.as_str(), inputs.first()) {
            let shape = match (&x.known, x.value) {
                (Some(t), _) => Some(t.shape().to_vec()),
                (None, Some(value)) => self.b.ty(value).shape(),
                (None, None) => None,
            };
            if let Some(shape) = shape {
                let extents: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
                return Ok(Some(vec![match node.op.as_str() {
                    "Shape" => fold::shape_tensor(node, &extents),
                    _ => {
                        let size = extents.iter().map(|&n| n as f64).product();
                        Tensor::known(ElementType::Int64, Vec::new(), vec![size])
                    }
                }]));
            }
        }
        if let ("CastLike", [Some(x), Some(like)]) = (node.op.as_str(), &inputs[..])
            && let Some(tensor) = &x.known
        {
            return Ok(fold::cast(tensor, like.element).map(|t| vec![t]));
        }
        if inputs.iter().flatten().any(|e| e.known.is_none()) || node.graphs().next().is_some() {
            return Ok(None);
        }
        let tensors: Vec<Option<Rc<Tensor>>> = inputs.into_iter().map(|e| e.and_then(|e| e.known)).collect();
        let folded = if self.foldable > 0 { fold::fold(node, &tensors) } else { None };
        let made: usize = folded.iter().flatten().map(Tensor::len).sum();
        self.foldable = self.foldable.saturating_sub(made);
        Ok(folded)
    }

    /// The values of the outputs, with the names that they have in the program.
    fn outputs(&mut self, ports: &'a [Port], names: &[String]) -> Vec<(String, ValueId)> {
        let mut found = Vec::new();
        for (port, name) in ports.iter().zip(names) {
            let Some(entry) = self.lookup(&port.name).cloned() else { continue };
            if entry.poisoned {
                if let Some((label, operator, reason)) = self.missing.remove(port.name.as_str()) {
                    self.refuse(codes::UNMAPPED_NODE, &label, operator, reason, Vec::new());
                }
                continue;
            }
            self.label = name.clone();
            let value = self.value_of(&port.name, &entry).and_then(|v| self.widened(v)).and_then(|v| {
                match self.dtype(v) {
                    // A port of Core ML holds no bools.
                    DataType::Bool => self.cast(v, DataType::Int32),
                    // A constant cannot be an output.
                    _ if entry.value.is_none() => self.un("identity", v),
                    _ => Ok(v),
                }
            });
            match value {
                Ok(value) => found.push((name.clone(), value)),
                Err(Stop::Unmapped(reason) | Stop::Rejected(reason)) => {
                    self.refuse(codes::UNMAPPED_NODE, &port.name, "output".into(), reason, Vec::new());
                }
                Err(Stop::Needs(_) | Stop::Poisoned) => {}
            }
        }
        found
    }
}

/// The value of a `Constant` node.
fn constant_node(node: &Node) -> Built<Tensor> {
    let floats = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
    let ints = |v: &[i64]| v.iter().map(|&v| v as f64).collect::<Vec<_>>();
    for (name, attribute) in &node.attributes {
        let tensor = match (name.as_str(), &**attribute) {
            ("value", Attribute::Tensor(t)) => t.clone(),
            ("value_float", Attribute::Float(v)) => Tensor::known(ElementType::Float, Vec::new(), floats(&[*v])),
            ("value_int", Attribute::Int(v)) => Tensor::known(ElementType::Int64, Vec::new(), ints(&[*v])),
            ("value_floats", Attribute::Floats(v)) => Tensor::known(ElementType::Float, vec![v.len()], floats(v)),
            ("value_ints", Attribute::Ints(v)) => Tensor::known(ElementType::Int64, vec![v.len()], ints(v)),
            _ => continue,
        };
        return Ok(tensor);
    }
    Err(Stop::Unmapped("its value is neither a dense tensor nor numbers".into()))
}
