//! Control flow. A branch whose condition is known is taken, a loop whose count is known and whose
//! condition does not depend on data is unrolled; others become blocks.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use ferrane_mil::emit::Emit;
use ferrane_mil::{Constant, Type, ValueId};

use super::graph::needed;
use super::state::{Built, Entry, Lower, Stop, unmapped};
use crate::element::ElementType;
use crate::graph::{Attribute, Graph};
use crate::tensor::Tensor;

impl<'a> Lower<'a> {
    /// The results of a node with subgraphs.
    pub(super) fn control(&mut self) -> Built<Vec<Option<Entry>>> {
        match self.node.op.as_str() {
            "If" => self.branch(),
            "Loop" => self.repeat(),
            "Scan" => self.scan(),
            _ => self.sequence(),
        }
    }

    pub(super) fn graph_of(&self, name: &str) -> Built<&'a Graph> {
        match self.node.attribute(name) {
            Some(Attribute::Graph(graph)) => Ok(graph),
            _ => Err(Stop::Rejected(format!("it has no graph `{name}`"))),
        }
    }

    /// Lowers a graph with these inputs; what its outputs stand for.
    pub(super) fn subgraph(&mut self, graph: &'a Graph, inputs: Vec<Entry>) -> Built<Vec<Entry>> {
        if graph.inputs.len() != inputs.len() {
            return Err(Stop::Rejected(format!("its graph takes {} values, not {}", graph.inputs.len(), inputs.len())));
        }
        let mut scope: HashMap<&'a str, Entry> = HashMap::new();
        for (port, entry) in graph.inputs.iter().zip(inputs) {
            scope.insert(&port.name, entry);
        }
        self.scopes.push(scope);
        self.initializers(graph);
        let label = self.label.clone();
        self.nodes(graph, &needed(graph));
        self.label = label;
        let find = |port: &'a crate::graph::Port| match self.lookup(&port.name) {
            Some(entry) if !entry.poisoned => Ok(entry.clone()),
            Some(_) => Err(Stop::Poisoned),
            None => Err(Stop::Rejected(format!("its graph does not define `{}`", port.name))),
        };
        let found: Built<Vec<Entry>> = graph.outputs.iter().map(find).collect();
        self.scopes.pop();
        found
    }

    /// The values of entries as results of a block: copies, so that none is defined outside of it.
    fn returned(&mut self, entries: &[Entry]) -> Built<Vec<ValueId>> {
        let mut values = Vec::with_capacity(entries.len());
        for entry in entries {
            let value = self.value_of("value", entry)?;
            let value = self.widened(value)?;
            values.push(self.un("identity", value)?);
        }
        Ok(values)
    }

    fn branch(&mut self) -> Built<Vec<Option<Entry>>> {
        let (yes, no) = (self.graph_of("then_branch")?, self.graph_of("else_branch")?);
        let condition = self.entry(0)?;
        if let Some(known) = &condition.known {
            let taken = if known.values().first().is_some_and(|&v| v != 0.0) { yes } else { no };
            return Ok(self.subgraph(taken, Vec::new())?.into_iter().map(Some).collect());
        }
        let pred = self.x(0)?;
        let pred = self.reshape(pred, &[])?;
        let mut elements = Vec::new();
        let mut blocks = Vec::new();
        for graph in [yes, no] {
            blocks.push(self.nested(|l, _| {
                let found = l.subgraph(graph, Vec::new())?;
                if found.iter().any(Entry::is_resolved) {
                    return Err(Stop::Needs(0));
                }
                elements = found.iter().map(|e| e.element).collect();
                l.returned(&found)
            })?);
        }
        let values = self.b.cond(&self.label, pred, [blocks[0], blocks[1]])?;
        let pairs: Vec<(ValueId, ElementType)> = values.into_iter().zip(elements).collect();
        Ok(pairs.into_iter().map(|(v, e)| Some(self.make(Some(v), None, e))).collect())
    }

    fn number_entry(&mut self, element: ElementType, value: f64) -> Entry {
        let tensor = Rc::new(Tensor::known(element, Vec::new(), vec![value]));
        self.make(None, Some(tensor), element)
    }

    /// A known scalar input; `None` if it is left out or not known.
    fn scalar_input(&self, i: usize) -> Built<Option<f64>> {
        if !self.has(i) {
            return Ok(None);
        }
        Ok(self.entry(i)?.known.and_then(|t| t.values().first().copied()))
    }

    fn repeat(&mut self) -> Built<Vec<Option<Entry>>> {
        let body = self.graph_of("body")?;
        let [counter, condition, ..] = &body.inputs[..] else {
            return Err(Stop::Rejected("its body takes no counter and condition".into()));
        };
        let carried = self.count().saturating_sub(2);
        let Some(scanned) = body.outputs.len().checked_sub(1 + carried) else {
            return Err(Stop::Rejected("its body returns fewer values than it carries".into()));
        };
        let (most, first) = (self.scalar_input(0)?, self.scalar_input(1)?);
        let bounded = most.is_some() || !self.has(0);
        let decided = first.is_some() || !self.has(1);
        let fixed = self.depends_only_on(body, &body.outputs[0].name, &[&counter.name, &condition.name]);
        let mut state: Vec<Entry> = (0..carried).map(|i| self.entry(i + 2)).collect::<Built<_>>()?;
        let endless = most.is_none() && !self.has(1);
        if !(bounded && decided && fixed) || endless {
            if scanned == 0 && !state.iter().any(Entry::is_resolved) {
                return self.while_loop(body, state);
            }
            // A program has values neither for sequences nor for a list of unknown length.
            match (bounded, decided) {
                (false, _) => return Err(Stop::Needs(0)),
                (_, false) => return Err(Stop::Needs(1)),
                _ if endless => return unmapped("it collects values in a loop without an end"),
                // The condition may turn out to be known in each turn.
                _ => {}
            }
        }
        let most = most.unwrap_or(f64::INFINITY);
        let mut running = first.is_none_or(|v| v != 0.0);
        let mut scans: Vec<Vec<Entry>> = vec![Vec::new(); scanned];
        let mut turn = 0.0;
        while running && turn < most {
            self.spend(1)?;
            let mut inputs =
                vec![self.number_entry(ElementType::Int64, turn), self.number_entry(ElementType::Bool, 1.0)];
            inputs.append(&mut state);
            let mut found = self.subgraph(body, inputs)?.into_iter();
            let Some(next) = found.next() else { return Err(Stop::Poisoned) };
            let Some(next) = next.known else {
                return unmapped("its condition depends on data after all");
            };
            running = next.values().first().is_some_and(|&v| v != 0.0);
            state = found.by_ref().take(carried).collect();
            scans.iter_mut().zip(found).for_each(|(scan, entry)| scan.push(entry));
            turn += 1.0;
        }
        let mut results: Vec<Option<Entry>> = state.into_iter().map(Some).collect();
        for scan in scans {
            results.push(Some(self.stacked(&scan, 0, false)?));
        }
        Ok(results)
    }

    /// True if a value of a graph depends on nothing but these names, constants, and what is known.
    fn depends_only_on(&self, graph: &'a Graph, name: &str, allowed: &[&str]) -> bool {
        let mut open = vec![name];
        let mut seen: HashSet<&str> = HashSet::new();
        while let Some(name) = open.pop() {
            if allowed.contains(&name) || name.is_empty() || !seen.insert(name) {
                continue;
            }
            if graph.initializers.iter().any(|(n, _)| n == name) {
                continue;
            }
            if let Some(node) = graph.nodes.iter().find(|n| n.outputs.iter().any(|o| o == name)) {
                if node.graphs().next().is_some() {
                    return false;
                }
                open.extend(node.inputs.iter().map(String::as_str));
                continue;
            }
            let carried = graph.inputs.iter().any(|p| p.name == name);
            if carried || self.lookup(name).is_none_or(|e| e.known.is_none()) {
                return false;
            }
        }
        true
    }

    /// Entries of equal shape, stacked along a new axis.
    pub(super) fn stacked(&mut self, entries: &[Entry], axis: i64, backward: bool) -> Built<Entry> {
        let Some(first) = entries.first() else { return unmapped("it collects no values: its result is empty") };
        let element = first.element;
        let mut parts = Vec::with_capacity(entries.len());
        for entry in entries {
            let value = self.value_of("value", entry)?;
            let value = self.widened(value)?;
            let rank = self.shape(value)?.len();
            let axis = self.normal(axis, rank + 1)?;
            parts.push(self.b.expand_dims(&self.label, value, &[axis as i32])?);
        }
        if backward {
            parts.reverse();
        }
        let rank = self.shape(parts[0])?.len();
        let axis = self.normal(axis, rank)?;
        let value = self.concat(&parts, axis)?;
        Ok(self.make(Some(value), None, element))
    }

    fn while_loop(&mut self, body: &'a Graph, state: Vec<Entry>) -> Built<Vec<Option<Entry>>> {
        let elements: Vec<ElementType> = state.iter().map(|e| e.element).collect();
        let most = self.maybe(0)?;
        let most = match most {
            Some(most) => Some(self.reshape(most, &[])?),
            None => None,
        };
        let running = match self.maybe(1)? {
            Some(running) => self.reshape(running, &[])?,
            None => self.b.constant(&self.label, Constant::bool(true))?,
        };
        // Loop variables are not constants: the loop changes them.
        let turn = self.b.constant(&self.label, Constant::int32(0))?;
        let mut start = vec![self.un("identity", turn)?, self.un("identity", running)?];
        start.extend(self.returned(&state)?);
        let types: Vec<Type> = start.iter().map(|&v| self.b.ty(v).clone()).collect();
        let condition = self.nested(|l, open| {
            let inputs = l.block_inputs(open, &types)?;
            let go = match most {
                Some(most) => {
                    let more = l.bin("less", inputs[0], most)?;
                    l.bin("logical_and", more, inputs[1])?
                }
                None => l.un("identity", inputs[1])?,
            };
            Ok(vec![go])
        })?;
        let step = self.nested(|l, open| {
            let inputs = l.block_inputs(open, &types)?;
            let mut given = vec![l.make(Some(inputs[0]), None, ElementType::Int64)];
            given.push(l.make(Some(inputs[1]), None, ElementType::Bool));
            for (&value, &element) in inputs[2..].iter().zip(&elements) {
                given.push(l.make(Some(value), None, element));
            }
            let found = l.subgraph(body, given)?;
            let mut values = vec![l.bin("add", inputs[0], Constant::int32(1))?];
            for (i, value) in l.returned(&found)?.into_iter().enumerate() {
                values.push(if i == 0 { l.reshape(value, &[])? } else { value });
            }
            Ok(values)
        })?;
        let values = self.b.while_loop(&self.label, &start, [condition, step])?;
        let pairs: Vec<(ValueId, ElementType)> = values.into_iter().skip(2).zip(elements).collect();
        Ok(pairs.into_iter().map(|(v, e)| Some(self.make(Some(v), None, e))).collect())
    }

    fn block_inputs(&mut self, open: &ferrane_mil::OpenBlock, types: &[Type]) -> Built<Vec<ValueId>> {
        Ok(types.iter().map(|ty| self.b.block_input(open, &self.label, ty.clone())).collect())
    }

    fn scan(&mut self) -> Built<Vec<Option<Entry>>> {
        if self.node.opset < 9 {
            return unmapped("Scan of opset 8 has batches; convert the model to opset 9 or later");
        }
        let body = self.graph_of("body")?;
        let scanned = self.number("num_scan_inputs", 0, 1)?;
        let Some(carried) = self.count().checked_sub(scanned) else {
            return Err(Stop::Rejected(format!("{scanned} sequences of {} inputs", self.count())));
        };
        let Some(collected) = body.outputs.len().checked_sub(carried) else {
            return Err(Stop::Rejected("its body returns fewer values than it carries".into()));
        };
        let axes = self.counts("scan_input_axes", scanned, 0, -16)?;
        let backward = self.counts("scan_input_directions", scanned, 0, 0)?;
        let out_axes = self.counts("scan_output_axes", collected, 0, -16)?;
        let out_backward = self.counts("scan_output_directions", collected, 0, 0)?;
        let mut sequences = Vec::new();
        for i in 0..scanned {
            let value = self.x(carried + i)?;
            let shape = self.shape(value)?;
            let axis = self.normal(axes[i], shape.len())?;
            sequences.push((value, self.element(carried + i)?, axis, shape[axis]));
        }
        let steps = sequences[0].3;
        if sequences.iter().any(|s| s.3 != steps) {
            return Err(Stop::Rejected("its sequences differ in length".into()));
        }
        self.spend(steps.saturating_mul(scanned))?;
        let mut state: Vec<Entry> = (0..carried).map(|i| self.entry(i)).collect::<Built<_>>()?;
        let mut collections: Vec<Vec<Entry>> = vec![Vec::new(); collected];
        for step in 0..steps {
            let mut inputs = std::mem::take(&mut state);
            for (i, &(value, element, axis, _)) in sequences.iter().enumerate() {
                let at = if backward[i] != 0 { steps - 1 - step } else { step };
                let part = self.slice(value, axis, at, 1)?;
                let part = self.b.squeeze(&self.label, part, &[axis as i32])?;
                inputs.push(self.make(Some(part), None, element));
            }
            let mut found = self.subgraph(body, inputs)?.into_iter();
            state = found.by_ref().take(carried).collect();
            collections.iter_mut().zip(found).for_each(|(all, entry)| all.push(entry));
        }
        let mut results: Vec<Option<Entry>> = state.into_iter().map(Some).collect();
        for (i, all) in collections.iter().enumerate() {
            results.push(Some(self.stacked(all, out_axes[i], out_backward[i] != 0)?));
        }
        Ok(results)
    }
}
