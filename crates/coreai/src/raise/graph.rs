//! The functions of a program, op by op: every refusal is collected, and what no output depends on
//! is left out.

use std::collections::{HashMap, HashSet};

use ferrane_diag::printable;
use ferrane_mil::emit::Stop;
use ferrane_mil::{BlockId, Evaluate, Function, Op, OpId, Program, Type, ValueDef, ValueId as MilValue, ops};

use super::state::{Built, MAX_PARTS, MAX_TABLES, Made, Raise, State, rejected, tensor_of, unmapped};
use super::table::{self, OpRule};
use crate::build::{Builder, Graph};
use crate::bytecode::{Bytecode, TypeId, ValueId};
use crate::codes;
use crate::error::{Refusal, Refusals};

const HEADLINE: &str = "the program is no Core AI model";
/// How deep blocks may nest, as in the bytecode.
const MAX_DEPTH: usize = 64;

fn refusal(subject: String, operation: &str, reason: String) -> Refusal {
    let plain = |text: &str| printable(text).to_string();
    Refusal {
        code: codes::NO_COUNTERPART,
        subject: plain(&subject),
        operation: plain(operation),
        reason: plain(&reason),
    }
}

/// The model of a program.
pub(super) fn raise<'a>(program: &'a Program, arithmetic: &'a dyn Evaluate) -> Result<Bytecode<'a>, Refusals> {
    if let Err(error) = ferrane_mil::verify(program) {
        let all = vec![refusal("the program".into(), "program", error.to_string())];
        return Err(Refusals { headline: HEADLINE, all });
    }
    let mut b = Builder::new();
    let (mut refusals, mut resources, mut tables, mut left) = (Vec::new(), 0, MAX_TABLES, MAX_PARTS);
    for function in &program.functions {
        let opset = match function.opset() {
            Ok(opset) => opset,
            Err(error) => {
                refusals.push(refusal(function.name.clone(), "function", error.to_string()));
                continue;
            }
        };
        let (Some(op), Some(def)) = (function.ops.first(), ops::find("const", opset)) else {
            let reason = "a function without an op, or an opset that is not known".to_string();
            refusals.push(refusal(function.name.clone(), "function", reason));
            continue;
        };
        let graph = b.graph(&function.name, &[]);
        let mut r = Raise {
            b,
            graph,
            function,
            weights: &program.weights,
            opset,
            arithmetic,
            op,
            def,
            values: HashMap::new(),
            tensors: HashMap::new(),
            states: HashMap::new(),
            needed: needed(function),
            made: vec![Made::new()],
            refusals: Vec::new(),
            tables,
            left,
            resources,
        };
        r.run();
        (resources, tables, left) = (r.resources, r.tables, r.left);
        refusals.append(&mut r.refusals);
        b = r.b;
    }
    if program.functions.is_empty() {
        refusals.push(refusal("the program".into(), "program", "it has no function".into()));
    }
    match refusals.is_empty() {
        true => Ok(b.finish()),
        false => Err(Refusals { headline: HEADLINE, all: refusals }),
    }
}

/// The ops that a block's outputs depend on, and those that write states.
fn needed(function: &Function) -> HashSet<OpId> {
    let (mut found, mut seen) = (HashSet::new(), HashSet::new());
    let mut open: Vec<MilValue> = function.body().outputs.clone();
    let mut blocks: Vec<BlockId> = Vec::new();
    let writes = |op: &Op| op.outputs.is_empty() || op.name == ferrane_mil::op::COREML_UPDATE_STATE;
    let mut take = |id: OpId, open: &mut Vec<MilValue>, blocks: &mut Vec<BlockId>| {
        if found.insert(id) {
            let op = function.op(id);
            open.extend(op.operands());
            blocks.extend(&op.blocks);
        }
    };
    for &id in function.body().ops.iter().filter(|id| writes(function.op(**id))) {
        take(id, &mut open, &mut blocks);
    }
    loop {
        if let Some(block) = blocks.pop() {
            let block = function.block(block);
            open.extend(&block.outputs);
            for &id in block.ops.iter().filter(|id| writes(function.op(**id))) {
                take(id, &mut open, &mut blocks);
            }
        } else if let Some(value) = open.pop() {
            if seen.insert(value)
                && let ValueDef::Op(id, _) = function.value(value).def
            {
                take(id, &mut open, &mut blocks);
            }
        } else {
            return found;
        }
    }
}

impl<'a> Raise<'a> {
    /// Converts the function. What it cannot is among the refusals.
    fn run(&mut self) {
        let function = self.function;
        let mut inputs: Vec<(&str, TypeId)> = Vec::new();
        for &id in &function.inputs {
            let value = function.value(id);
            let found = match &value.ty {
                Type::State(inner) => tensor_of(inner).map(|t| {
                    let ty = self.b.tensor(&t.shape, t.element);
                    self.b.handle(ty)
                }),
                ty => tensor_of(ty).map(|t| self.b.tensor(&t.shape, t.element)),
            };
            match found {
                Ok(ty) => inputs.push((&value.name, ty)),
                Err(stop) => {
                    let subject = format!("{} of {}", value.name, function.name);
                    self.refusals.extend(reason(stop).map(|reason| refusal(subject, "input", reason)));
                }
            }
        }
        if !self.refusals.is_empty() {
            return;
        }
        let graph = self.b.graph(&function.name, &inputs);
        for (&id, &value) in function.inputs.iter().zip(&graph.inputs()) {
            match &function.value(id).ty {
                Type::State(_) => {
                    self.states.insert(id, State { handle: value, token: None, written: false });
                }
                ty => {
                    if let Ok(tensor) = tensor_of(ty) {
                        self.tensors.insert(value, tensor);
                        self.values.insert(id, value);
                    }
                }
            }
        }
        self.graph = graph;
        let Some((_, body)) = function.bodies.first() else { return };
        let found = self.block(*body);
        let results = match found {
            Ok(results) if self.refusals.is_empty() => results,
            Ok(_) => return,
            Err(stop) => return self.stopped(stop),
        };
        let mut outputs: Vec<(String, ValueId)> =
            function.body().outputs.iter().map(|&v| function.value(v).name.clone()).zip(results).collect();
        // The last access to a state that was written, so that no runtime leaves it out.
        for id in &function.inputs {
            if let Some(State { token: Some(token), written: true, .. }) = self.states.get(id) {
                outputs.push((function.value(*id).name.clone(), *token));
            }
        }
        let outputs: Vec<(&str, ValueId)> = outputs.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let empty = self.b.graph("", &[]);
        let graph: Graph = std::mem::replace(&mut self.graph, empty);
        self.b.output(graph, &outputs);
    }

    fn stopped(&mut self, stop: Stop) {
        let op = self.op;
        let subject = match op.outputs.first() {
            Some(&value) => format!("{} in {}", self.function.value(value).name, self.function.name),
            None => self.function.name.clone(),
        };
        self.refusals.extend(reason(stop).map(|reason| refusal(subject, &op.name, reason)));
    }

    /// Converts the ops of a block, and gives its outputs.
    pub(super) fn block(&mut self, id: BlockId) -> Built<Vec<ValueId>> {
        let function = self.function;
        let block = function.block(id);
        let (op, def) = (self.op, self.def);
        if self.made.len() > MAX_DEPTH {
            return unmapped(format!("blocks nest deeper than {MAX_DEPTH}"));
        }
        for &id in &block.ops {
            if self.needed.contains(&id) {
                self.one_op(function.op(id));
            }
        }
        (self.op, self.def) = (op, def);
        block.outputs.iter().map(|&value| self.value(value)).collect()
    }

    fn one_op(&mut self, op: &'a Op) {
        let rule = table::find(&op.name);
        let (Some(rule), Some(def)) = (rule, ops::find(&op.name, self.opset)) else {
            self.op = op;
            return self.stopped(Stop::Unmapped("MIL has no op of this name in the opset of the function".into()));
        };
        (self.op, self.def) = (op, def);
        let found = match rule {
            OpRule::Constant => return,
            OpRule::Not(reason) => Err(Stop::Unmapped((*reason).into())),
            // Rules trust what the registry checks.
            OpRule::Raised(rule) => ferrane_mil::check_op(self.function, op, self.opset, self.weights)
                .map_err(Stop::from)
                .and_then(|()| rule(self)),
        };
        (self.op, self.def) = (op, def);
        match found.and_then(|results| self.checked(op, &results).map(|()| results)) {
            Ok(results) => self.values.extend(op.outputs.iter().copied().zip(results)),
            Err(stop) => self.stopped(stop),
        }
    }

    /// Checks that results have the types that MIL says.
    fn checked(&self, op: &Op, results: &[ValueId]) -> Built<()> {
        if results.len() != op.outputs.len() {
            return rejected(format!("it has {} results, and {} were made", op.outputs.len(), results.len()));
        }
        for (&value, &result) in op.outputs.iter().zip(results) {
            let ty = &self.function.value(value).ty;
            let (wanted, found) = (tensor_of(ty)?, self.tensor(result)?);
            let agree = |(a, b): (&Option<u64>, &Option<u64>)| a.is_none() || b.is_none() || a == b;
            let fits = wanted.element == found.element
                && wanted.shape.len() == found.shape.len()
                && wanted.shape.iter().zip(&found.shape).all(agree);
            if !fits {
                let (shape, element) = (&found.shape, found.element.name());
                return rejected(format!("its result is {ty}, and {element} of extents {shape:?} was made"));
            }
        }
        Ok(())
    }
}

/// The reason of a refusal; `None` if another refusal is the reason.
fn reason(stop: Stop) -> Option<String> {
    match stop {
        Stop::Unmapped(reason) | Stop::Rejected(reason) => Some(reason),
        Stop::Needs(i) => Some(format!("operand {i} has to be known when the model is made")),
        Stop::Poisoned => None,
    }
}
