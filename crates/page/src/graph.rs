//! The blocks of a program as graphs: nodes are ops and ports, edges are values.
//!
//! Constants and the ops that unpack compressed weights are no nodes: they belong to the ops that
//! read them. The nodes of a graph are in topological order: what comes in, the ops in program
//! order, what goes out. A block inside an op is a graph of its own, and the values that it takes
//! from the blocks around it are nodes that come in.

use std::collections::{BTreeSet, HashMap, HashSet};

use ferrane_mil::{BlockId, Function, Op, OpId, Program, Type, ValueId};

/// What a node stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// An input of a function or of a block.
    Input(ValueId),
    /// A state of a function.
    State(ValueId),
    /// A value that a nested block takes from a block around it.
    Captured(ValueId),
    Op(OpId),
    /// A value that the function or the block returns.
    Output(ValueId),
}

/// A block with its nodes and edges.
#[derive(Clone, Debug)]
pub(crate) struct BlockGraph {
    /// The index of the function in the program.
    pub function: usize,
    /// The graph and the node that hold the block; `None` for the body of a function.
    pub parent: Option<(usize, usize)>,
    /// The position of the block among those of its op.
    pub position: usize,
    /// Producers come before their readers.
    pub nodes: Vec<NodeKind>,
    /// Pairs of node indices, the producer first and smaller; no pair twice.
    pub edges: Vec<(u32, u32)>,
}

/// Nested blocks below this depth are not shown; the verifier of programs allows no more.
const MAX_DEPTH: usize = 64;

/// True for ops whose result is known before the program runs.
pub(crate) fn is_constant(op: &Op) -> bool {
    op.name == "const" || op.name.starts_with("constexpr_")
}

/// The graphs of all functions. A nested block comes after the block that holds it.
pub(crate) fn graphs(program: &Program) -> Vec<BlockGraph> {
    let mut found = Vec::new();
    for (index, function) in program.functions.iter().enumerate() {
        let Some((_, body)) = function.bodies.first() else { continue };
        let first = found.len();
        let mut open = vec![(*body, None, 0, 0)];
        // Breadth first, so that a parent's index is known when its blocks are reached.
        let mut next = 0;
        while let Some(&(block, parent, position, depth)) = open.get(next) {
            next += 1;
            let graph = BlockGraph { parent, position, ..one(function, index, block, parent.is_none()) };
            if depth < MAX_DEPTH {
                for (node, kind) in graph.nodes.iter().enumerate() {
                    let NodeKind::Op(op) = kind else { continue };
                    let blocks = function.op(*op).blocks.iter().enumerate();
                    open.extend(blocks.map(|(i, b)| (*b, Some((first + next - 1, node)), i, depth + 1)));
                }
            }
            found.push(graph);
        }
    }
    found
}

fn one(function: &Function, index: usize, block: BlockId, body: bool) -> BlockGraph {
    let contents = function.block(block);
    let ports = if body { &function.inputs } else { &contents.inputs };
    let mut nodes: Vec<NodeKind> = ports
        .iter()
        .map(
            |v| if matches!(function.value(*v).ty, Type::State(_)) { NodeKind::State(*v) } else { NodeKind::Input(*v) },
        )
        .collect();
    if !body {
        nodes.extend(captures(function, block, 0).into_iter().map(NodeKind::Captured));
    }
    let mut made: HashMap<ValueId, u32> = HashMap::new();
    for (i, node) in nodes.iter().enumerate() {
        if let NodeKind::Input(v) | NodeKind::State(v) | NodeKind::Captured(v) = node {
            made.insert(*v, i as u32);
        }
    }
    let (mut edges, mut seen) = (Vec::new(), HashSet::new());
    for &id in &contents.ops {
        let op = function.op(id);
        if is_constant(op) {
            continue;
        }
        let node = nodes.len() as u32;
        nodes.push(NodeKind::Op(id));
        let inner = op.blocks.iter().flat_map(|b| captures(function, *b, 0));
        for value in op.operands().chain(inner) {
            if let Some(&from) = made.get(&value).filter(|from| seen.insert((**from, node))) {
                edges.push((from, node));
            }
        }
        made.extend(op.outputs.iter().map(|v| (*v, node)));
    }
    for value in &contents.outputs {
        let node = nodes.len() as u32;
        nodes.push(NodeKind::Output(*value));
        edges.extend(made.get(value).map(|from| (*from, node)));
    }
    BlockGraph { function: index, parent: None, position: 0, nodes, edges }
}

/// The values that a block takes from the blocks around it, without constants.
fn captures(function: &Function, block: BlockId, depth: usize) -> BTreeSet<ValueId> {
    let contents = function.block(block);
    let mut own: HashSet<ValueId> = contents.inputs.iter().copied().collect();
    let mut read: BTreeSet<ValueId> = contents.outputs.iter().copied().collect();
    for &id in &contents.ops {
        let op = function.op(id);
        own.extend(op.outputs.iter().copied());
        read.extend(op.operands());
        if depth < MAX_DEPTH {
            read.extend(op.blocks.iter().flat_map(|b| captures(function, *b, depth + 1)));
        }
    }
    read.retain(|v| !own.contains(v) && producer(function, *v).is_none_or(|op| !is_constant(op)));
    read
}

/// The op that computes a value.
pub(crate) fn producer(function: &Function, value: ValueId) -> Option<&Op> {
    match function.value(value).def {
        ferrane_mil::ValueDef::Op(op, _) => Some(function.op(op)),
        _ => None,
    }
}
