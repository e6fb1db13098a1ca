//! The data of a page as JSON.
//!
//! Types are an array that nodes refer to by index. A node has only the fields that say something;
//! `assets/page.js` documents them where it reads them.

use std::collections::HashMap;

use ferrane_diag::{Diagnostic, Severity, Span};
use ferrane_machine::cost::OpCost;
use ferrane_machine::placement::{PlacedOp, Placement, Processor};
use ferrane_machine::{Finding, explain};
use ferrane_mil::contents::Contents;
use ferrane_mil::{Arg, Function, Op, OpId, Type, ValueId};
use serde_json::{Map, Value, json};

use crate::NetworkPage;
use crate::causes::{self, At, FindingAt};
use crate::graph::{BlockGraph, NodeKind, graphs, is_constant, producer};
use crate::layout::layout;
use crate::literal::{clipped, literal, short_type};

/// Operands of an op that are listed.
const OPERANDS: usize = 64;
/// The width of a node in characters, and of a character in pixels, in its first and second line.
const WIDTHS: (usize, usize, f32, f32) = (6, 26, 8.2, 6.6);

impl NetworkPage<'_> {
    /// What the page shows: `title`, `summary`, `first` (what to change first), `causes` (why ops
    /// are off the engine), `codes`, `findings`, `placements` (segments and transfers), `types` and
    /// `graphs`.
    pub fn json(&self) -> Value {
        let graphs = graphs(self.program);
        let places = Places::of(self, &graphs);
        let mut findings: Vec<Value> = Vec::new();
        let mut on_nodes: HashMap<At, Vec<usize>> = HashMap::new();
        let about: Vec<FindingAt<'_>> = self.findings.iter().map(|f| (f, places.finding(self, f))).collect();
        for (finding, at) in &about {
            at.iter().for_each(|at| on_nodes.entry(*at).or_default().push(findings.len()));
            findings.push(self.finding(finding, *at));
        }
        for diagnostic in self.diagnostics.into_iter().flatten() {
            let at = diagnostic.span.and_then(|span| places.span(span));
            at.iter().for_each(|at| on_nodes.entry(*at).or_default().push(findings.len()));
            findings.push(self.diagnostic(diagnostic, at));
        }
        let placed = self.placed(&graphs);
        let mut types = Types::default();
        let drawn: Vec<Value> = graphs
            .iter()
            .enumerate()
            .map(|(i, g)| {
                GraphData { page: self, graphs: &graphs, index: i, graph: g }.json(&placed, &on_nodes, &mut types)
            })
            .collect();
        json!({
            "title": self.title, "summary": self.summary(), "first": causes::proposals(&placed, &about),
            "causes": causes::off_engine(&placed), "codes": codes(&findings), "findings": findings,
            "placements": placed.iter().map(|(p, at)| placement(p, at)).collect::<Vec<_>>(),
            "types": types.names, "graphs": drawn,
        })
    }

    /// The placements with the node of each op.
    fn placed(&self, graphs: &[BlockGraph]) -> Vec<(&Placement, Vec<At>)> {
        let nodes = |p: &Placement| {
            let function = self.program.functions.iter().position(|f| f.name == p.function)?;
            let index = graphs.iter().position(|g| g.function == function && g.parent.is_none())?;
            let ops = graphs[index].nodes.iter().enumerate().filter(|(_, n)| matches!(n, NodeKind::Op(_)));
            Some(ops.map(|(n, _)| (index, n)).collect())
        };
        self.placements.iter().filter_map(|p| Some((p, nodes(p)?))).collect()
    }

    fn summary(&self) -> Value {
        let contents = Contents::of(self.program);
        let ops = self.program.functions.iter().flat_map(|f| &f.ops).filter(|op| !is_constant(op)).count();
        let count = |severity| {
            let found = self.findings.iter().filter(|f| f.severity == severity).count();
            let read = self.diagnostics.into_iter().flatten().filter(|d| d.severity == severity).count();
            found + read
        };
        let sum = |n: &dyn Fn(&Placement) -> usize| self.placements.iter().map(n).sum::<usize>();
        let placed = !self.placements.is_empty();
        let (on, off, all) = (sum(&Placement::on_engine), sum(&Placement::off_engine), sum(&|p| p.ops.len()));
        let times: Vec<f64> = self.costs.values().filter_map(|c| c.as_ref().ok()).map(|c| c.total_us).collect();
        let main = self.placements.iter().find(|p| p.function == "main").or_else(|| self.placements.first());
        json!({
            "functions": self.program.functions.len(), "ops": ops, "weight_bytes": contents.weight_bytes,
            "machine": self.machine, "errors": count(Severity::Error), "warnings": count(Severity::Warning),
            "notes": count(Severity::Note),
            "placed_for": main.map(|p| p.machine.as_str()), "framework": main.map(|p| p.framework.name()),
            "units": main.map(|p| p.units.name()),
            "placed": all, "on_engine": placed.then_some(on), "off_engine": placed.then_some(off),
            "not_known": placed.then(|| all - on - off),
            "share": main.and_then(Placement::engine_share).map(rounded),
            "segments": sum(&|p| p.segments.len()), "transfers": sum(&|p| p.transfers.len()),
            "first_load": main.and_then(|p| p.first_load).map(|l| {
                json!({"mb": rounded(l.mb), "seconds": rounded(l.seconds), "range": l.range.map(rounded)})
            }),
            "total_us": (!times.is_empty() && self.program.functions.len() == 1).then(|| rounded(times.iter().sum())),
            "no_cost": self.costs.values().find_map(|c| c.as_ref().err()),
        })
    }

    fn finding(&self, f: &Finding, at: Option<At>) -> Value {
        let line = f.span.and_then(|span| self.line(span));
        json!({
            "code": f.code.to_string(), "severity": f.severity.to_string(), "message": f.message,
            "effect": f.effect.to_string(), "claims": f.claims, "rewrite": f.rewrite, "fix": f.fix.map(|f| f.to_string()),
            "overruled": f.overruled, "value": f.value, "at": at, "line": line,
        })
    }

    fn diagnostic(&self, d: &Diagnostic, at: Option<At>) -> Value {
        let notes: Vec<&str> = d.notes.iter().map(|n| n.message.as_str()).collect();
        json!({
            "code": d.code.to_string(), "severity": d.severity.to_string(), "message": d.message,
            "effect": notes.join("; "), "claims": [], "at": at, "line": d.span.and_then(|span| self.line(span)),
        })
    }

    /// The line of the text, counted from 1.
    fn line(&self, span: Span) -> Option<usize> {
        let source = self.source.filter(|s| (span.start as usize) < s.text().len())?;
        Some(source.line_number(span.start))
    }
}

/// Title, explanation and address of each code that occurs.
fn codes(findings: &[Value]) -> Value {
    let mut codes = Map::new();
    for code in findings.iter().filter_map(|f| f["code"].as_str()) {
        if let Some(e) = explain::find(code).filter(|_| !codes.contains_key(code)) {
            let entry = json!({"title": e.title, "text": e.text, "url": explain::address(e.code)});
            codes.insert(code.to_string(), entry);
        }
    }
    codes.into()
}

fn placement(p: &Placement, at: &[At]) -> Value {
    let mut ends: Vec<Option<At>> = vec![None; p.segments.len()];
    for (op, at) in p.ops.iter().zip(at) {
        if let Some(first) = ends.get_mut(op.segment).filter(|first| first.is_none()) {
            *first = Some(*at);
        }
    }
    let segments: Vec<Value> = p
        .segments
        .iter()
        .zip(ends)
        .map(|(s, at)| json!({"on": s.runs_on.map(Processor::name), "ops": s.ops, "ends": s.ends, "us": s.engine_us.map(rounded), "at": at}))
        .collect();
    let transfers: Vec<Value> = p
        .transfers
        .iter()
        .map(|t| json!({"from": t.from, "to": t.to, "values": t.values, "bytes": t.bytes, "us": t.us.map(rounded)}))
        .collect();
    json!({"function": p.function, "segments": segments, "transfers": transfers})
}

/// Where ops are drawn.
struct Places {
    /// By function and op. Constants are at the first op that reads them.
    ops: HashMap<(usize, OpId), At>,
    /// Ports of functions, by name.
    ports: HashMap<(usize, String), At>,
    /// Ops by the beginning of their text.
    spans: HashMap<u32, At>,
}

impl Places {
    fn of(page: &NetworkPage<'_>, graphs: &[BlockGraph]) -> Places {
        let mut places = Places { ops: HashMap::new(), ports: HashMap::new(), spans: HashMap::new() };
        for (g, graph) in graphs.iter().enumerate() {
            let function = &page.program.functions[graph.function];
            for (n, node) in graph.nodes.iter().enumerate() {
                match node {
                    NodeKind::Op(op) => places.op(function, graph.function, *op, (g, n)),
                    NodeKind::Captured(_) => {}
                    NodeKind::Input(v) | NodeKind::State(v) | NodeKind::Output(v) => {
                        let name = function.value(*v).name.clone();
                        places.ports.entry((graph.function, name)).or_insert((g, n));
                    }
                }
            }
        }
        places
    }

    fn op(&mut self, function: &Function, index: usize, op: OpId, at: At) {
        // An op that is read by many constants' readers is entered once, so this is linear.
        let mut open = vec![op];
        while let Some(id) = open.pop() {
            let std::collections::hash_map::Entry::Vacant(entry) = self.ops.entry((index, id)) else { continue };
            entry.insert(at);
            if let Some(span) = function.op(id).span {
                self.spans.entry(span.start).or_insert(at);
            }
            for value in function.op(id).operands() {
                if let ferrane_mil::ValueDef::Op(from, _) = function.value(value).def
                    && is_constant(function.op(from))
                {
                    open.push(from);
                }
            }
        }
    }

    fn finding(&self, page: &NetworkPage<'_>, finding: &Finding) -> Option<At> {
        let function = finding.function?;
        let by_op = finding.op.and_then(|op| self.ops.get(&(function, op)));
        let by_name = || self.ports.get(&(function, finding.value.clone()?));
        let found = by_op.or_else(by_name).copied();
        found.filter(|_| function < page.program.functions.len())
    }

    fn span(&self, span: Span) -> Option<At> {
        self.spans.get(&span.start).copied()
    }
}

/// Texts of types, each once.
#[derive(Default)]
struct Types {
    names: Vec<String>,
    known: HashMap<String, usize>,
}

impl Types {
    fn index(&mut self, ty: &Type) -> usize {
        let text = short_type(ty);
        *self.known.entry(text).or_insert_with_key(|text| {
            self.names.push(text.clone());
            self.names.len() - 1
        })
    }
}

/// A graph with what is needed to describe it.
struct GraphData<'a> {
    page: &'a NetworkPage<'a>,
    graphs: &'a [BlockGraph],
    index: usize,
    graph: &'a BlockGraph,
}

impl GraphData<'_> {
    fn function(&self) -> &Function {
        &self.page.program.functions[self.graph.function]
    }

    fn json(&self, placed: &[(&Placement, Vec<At>)], findings: &HashMap<At, Vec<usize>>, types: &mut Types) -> Value {
        let own = placed.iter().find(|(_, at)| at.first().is_some_and(|at| at.0 == self.index));
        let mut ops = own.map(|(p, _)| p.ops.iter());
        let costs = self.costs();
        let mut nodes: Vec<Map<String, Value>> = Vec::with_capacity(self.graph.nodes.len());
        for (n, kind) in self.graph.nodes.iter().enumerate() {
            let mut node = self.node(*kind, types);
            if let NodeKind::Op(id) = kind {
                if let Some(placed) = ops.as_mut().and_then(Iterator::next) {
                    put_placement(&mut node, placed);
                }
                self.put_measures(&mut node, self.function().op(*id), &costs);
            }
            if let Some(found) = findings.get(&(self.index, n)) {
                node.insert("findings".into(), json!(found));
            }
            nodes.push(node);
        }
        for (inner, graph) in self.graphs.iter().enumerate() {
            if let Some((_, node)) = graph.parent.filter(|(parent, _)| *parent == self.index) {
                let blocks = nodes[node].entry("blocks").or_insert_with(|| json!([]));
                blocks.as_array_mut().into_iter().for_each(|all| all.push(inner.into()));
            }
        }
        let widths: Vec<f32> = nodes.iter().map(|n| width(n, &types.names)).collect();
        let place = layout(&widths, &self.graph.edges);
        for (n, node) in nodes.iter_mut().enumerate() {
            node.insert("at".into(), json!([place.x[n].round() as i64, place.layer[n]]));
            node.insert("w".into(), json!(widths[n].round() as i64));
        }
        let tracks: Map<String, Value> = place
            .tracks
            .iter()
            .enumerate()
            .filter(|(_, track)| !track.is_empty())
            .map(|(n, track)| (n.to_string(), track.iter().map(|x| x.round() as i64).collect()))
            .collect();
        json!({
            "name": self.title(), "function": self.function().name, "parent": self.graph.parent,
            "layers": place.layers, "width": place.width.ceil() as i64, "nodes": nodes, "edges": self.graph.edges,
            "tracks": tracks, "far": place.far,
        })
    }

    fn title(&self) -> String {
        let Some((parent, node)) = self.graph.parent else { return self.function().name.clone() };
        let NodeKind::Op(op) = self.graphs[parent].nodes[node] else { return String::new() };
        let op = self.function().op(op);
        let role = match (op.name.as_str(), self.graph.position) {
            ("cond", 0) => "if true",
            ("cond", 1) => "if false",
            ("while_loop", 0) => "condition",
            ("while_loop", 1) => "body",
            _ => "block",
        };
        let value = op.outputs.first().map_or("", |v| &self.function().value(*v).name);
        format!("{} {value}: {role}", op.name)
    }

    fn node(&self, kind: NodeKind, types: &mut Types) -> Map<String, Value> {
        let function = self.function();
        let mut node = Map::new();
        let (word, value) = match kind {
            NodeKind::Op(id) => {
                self.op(&mut node, function.op(id), types);
                return node;
            }
            NodeKind::Input(v) => ("input", v),
            NodeKind::State(v) => ("state", v),
            NodeKind::Captured(v) => ("outer value", v),
            NodeKind::Output(v) => ("output", v),
        };
        let ty = types.index(&function.value(value).ty);
        node.insert("kind".into(), word.into());
        node.insert("name".into(), function.value(value).name.as_str().into());
        node.insert("out".into(), json!([[function.value(value).name, ty]]));
        node
    }

    fn op(&self, node: &mut Map<String, Value>, op: &Op, types: &mut Types) {
        let function = self.function();
        node.insert("op".into(), op.name.as_str().into());
        let name = op.outputs.first().map_or("", |v| &function.value(*v).name);
        node.insert("name".into(), name.into());
        let outputs = op.outputs.iter().take(OPERANDS).map(|v| function.value(*v));
        node.insert("out".into(), outputs.map(|v| json!([v.name, types.index(&v.ty)])).collect());
        let mut operands = Vec::new();
        for (name, arg) in &op.args {
            let values: &[ValueId] = match arg {
                Arg::Value(v) => std::slice::from_ref(v),
                Arg::List(all) => all,
                Arg::Const(c) => {
                    operands.push(json!([name, null, types.index(&c.ty()), literal(c)]));
                    continue;
                }
            };
            for v in values.iter().take(OPERANDS.saturating_sub(operands.len())) {
                let value = function.value(*v);
                let mut operand = json!([name, value.name, types.index(&value.ty)]);
                let known = function.constant(*v).map(literal);
                let unpacked = || producer(function, *v).filter(|op| is_constant(op)).map(|op| op.name.clone());
                if let (Some(known), Some(all)) = (known.or_else(unpacked), operand.as_array_mut()) {
                    all.push(known.into());
                }
                operands.push(operand);
            }
        }
        node.insert("in".into(), operands.into());
        let own: Vec<Value> = op
            .attributes
            .iter()
            .filter(|(key, constant)| key != "name" || constant.as_str() != Some(name))
            .map(|(key, constant)| json!([clipped(key), literal(constant)]))
            .collect();
        if !own.is_empty() {
            node.insert("attributes".into(), own.into());
        }
        if let Some(line) = op.span.and_then(|span| self.page.line(span)) {
            node.insert("line".into(), line.into());
        }
        if let Some(origin) = self.page.origins.get(&(function.name.clone(), name.to_string())) {
            node.insert("origin".into(), origin.as_str().into());
        }
    }

    /// The costs of the ops of a function's body, by the name of the first result.
    fn costs(&self) -> HashMap<&str, &OpCost> {
        let cost = self.page.costs.get(&self.function().name).filter(|_| self.graph.parent.is_none());
        cost.and_then(|c| c.as_ref().ok()).into_iter().flat_map(|c| &c.ops).map(|op| (op.name.as_str(), op)).collect()
    }

    fn put_measures(&self, node: &mut Map<String, Value>, op: &Op, costs: &HashMap<&str, &OpCost>) {
        let function = self.function();
        let names = || op.outputs.iter().map(|v| function.value(*v).name.as_str());
        if let Some(cost) = names().next().and_then(|name| costs.get(name)).filter(|c| c.op == op.name) {
            node.insert("us".into(), rounded(cost.us));
            if let Some(bound) = cost.bound {
                node.insert("bound".into(), bound.name().into());
                node.insert("flops".into(), cost.flops.into());
                node.insert("bytes".into(), json!([cost.bytes_weights, cost.bytes_in, cost.bytes_out]));
            }
        }
        let error = |name: &str| self.page.ulps.get(&(function.name.clone(), name.to_string())).copied();
        if let Some(most) = names().filter_map(error).reduce(f64::max) {
            // JSON has no infinities; the page draws the largest error there is.
            node.insert("ulps".into(), if most.is_finite() { rounded(most) } else { f64::MAX.into() });
        }
    }
}

/// Three decimals, so that a page does not consist of digits.
fn rounded(number: f64) -> Value {
    json!((number * 1e3).round() / 1e3)
}

fn put_placement(node: &mut Map<String, Value>, op: &PlacedOp) {
    node.insert("on".into(), op.runs_on.map(Processor::name).into());
    node.insert("alone".into(), op.preferred.map(Processor::name).into());
    if let Some(p) = op.probability() {
        node.insert("p".into(), rounded(p));
    }
    node.insert("segment".into(), op.segment.into());
    if let Some((word, message)) = op.reason() {
        let evidence = op.ineligible.as_ref().map(|reason| reason.evidence.as_slice()).unwrap_or_default();
        node.insert("why".into(), json!([word, message, evidence]));
    }
}

/// The width of a node: that of the longer of its two lines, within bounds.
fn width(node: &Map<String, Value>, types: &[String]) -> f32 {
    let text = |key: &str| node.get(key).and_then(Value::as_str).map_or(0, |s| s.chars().count());
    let ty = node.get("out").and_then(|o| o[0][1].as_u64()).and_then(|i| types.get(i as usize));
    let (least, most, first, second) = WIDTHS;
    let title = text("op").max(if node.contains_key("op") { 0 } else { text("name") });
    let chars = |n: usize| n.clamp(least, most) as f32;
    (chars(title) * first).max(chars(ty.map_or(0, |t| t.chars().count())) * second) + 26.0
}
