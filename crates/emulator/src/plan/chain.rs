//! Chains: products, element-wise groups, softmax and sums over the same rows, run tile by tile.
//!
//! Attention is `softmax(scale · Q Kᵀ + mask) V`: five steps over a matrix of scores that no other
//! step reads. A chain runs all of them on a few rows before it continues with the next rows, so
//! the scores stay in a tile in the L1 cache. The same holds for the gradient of a softmax and for
//! RMSNorm. Results that steps outside of the chain read are stored on the way.
//!
//! Invariants: every member works on `segments · rows` rows in the same order; a member reads an
//! earlier member's rows only as they were written; each stage computes an element as its member
//! would, so a chain equals its members bit for bit.
//!
//! The members are found among the finished steps, by their views. So each op is lowered in one
//! place, and tables that must run the members one by one (`exact`, a machine's) run them
//! unchanged.

use super::causal;
use super::{scores, softmax_gradient};
use crate::ir::{
    Along, Buffer, Chain, ChainOperand, ChainProduct, ChainSoftmax, ChainStage, Divide, MAX_READS, MAX_WRITES, Matmul,
    MemorySpace, Policy, Reduction, SLOTS, Step, StepKind, TileLocation, View,
};

/// The most members that a chain may have.
const MEMBERS: usize = 8;
/// Fewest rows of a tile, unless a segment has fewer than two such tiles: products of few rows have
/// microkernels of their own, with sums in another order.
const ROWS: usize = 16;
/// Rows of a tile that has too many columns for more of them within [`TILE`], if there are so many:
/// a product packs its second factor for each tile.
const TALL: usize = 64;
/// Elements of a tile: small enough to stay in the near caches together with what else a stage
/// touches, but large, because a product packs its second factor for each tile.
const TILE: usize = 16 * 1024;
/// The most elements of the second factor of a product.
const FACTOR: usize = 1 << 17;
/// The most segments: each has an offset for each operand.
const SEGMENTS: usize = 1 << 14;
/// The most rows times columns for which a chain may run on one thread.
const ALONE: usize = 32 * 1024;

/// Replaces the members of each chain by the chain.
pub(super) fn fuse(policy: Policy<'_>, steps: Vec<Step>, buffers: &[Buffer<'_>]) -> Vec<Step> {
    if !policy.fuses {
        return steps;
    }
    let mut fused = Vec::with_capacity(steps.len());
    let mut at = 0;
    while at < steps.len() {
        let longest = steps[at..].iter().take(MEMBERS).take_while(|s| is_member(s)).count();
        let found = (2..=longest).rev().find_map(|n| Builder::new(&steps, at, n, buffers)?.chain().map(|s| (s, n)));
        match found {
            Some((step, n)) => {
                fused.push(step);
                at += n;
            }
            None => {
                fused.push(steps[at].clone());
                at += 1;
            }
        }
    }
    fused
}

fn is_member(step: &Step) -> bool {
    match &step.kind {
        StepKind::Matmul(_) | StepKind::Softmax { .. } => true,
        StepKind::Group(group) => group.joined.is_empty() && step.writes.iter().all(|w| w.storage.is_float()),
        StepKind::Reduce(r) => {
            matches!(r.reduction, Reduction::Sum | Reduction::Mean | Reduction::Max | Reduction::SumSquare)
        }
        _ => false,
    }
}

/// The layout of a value's rows, independent of how its axes are split: offset, merged row axes,
/// column stride.
type RowLayout = (usize, Vec<(usize, isize)>, isize);

/// A result of a member that a later member reads.
struct Value {
    view: View,
    form: RowLayout,
    width: usize,
    slot: usize,
    /// The last member that reads it.
    last: usize,
}

struct Builder<'a> {
    members: &'a [Step],
    others: Vec<&'a Step>,
    buffers: &'a [Buffer<'a>],
    /// All rows, and columns.
    rows: usize,
    cols: usize,
    /// Rows of a segment.
    segment: usize,
    values: Vec<Value>,
    reads: Vec<View>,
    writes: Vec<View>,
    slots: usize,
    free: Vec<usize>,
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The row axes of a view, which are all but the last: extents and strides, merged, outermost
/// first.
fn row_axes(view: &View) -> Vec<(usize, isize)> {
    let mut axes: Vec<(usize, isize)> = Vec::new();
    for (&n, &s) in view.shape.iter().zip(&view.strides).take(view.shape.len() - 1) {
        match axes.last_mut() {
            _ if n == 1 => {}
            Some(last) if last.1 == s * n as isize => *last = (last.0 * n, s),
            _ => axes.push((n, s)),
        }
    }
    axes
}

fn form(view: &View, width: usize) -> RowLayout {
    let col = if width == 1 { 0 } else { view.strides.last().copied().unwrap_or(0) };
    (view.offset, row_axes(view), col)
}

/// Rows of a tile: as many as fit the near caches, but so that the last tile is not much smaller
/// than the others.
fn tile(rows: usize, cols: usize) -> usize {
    let wanted = (TILE / cols).max(TALL).min(rows);
    (1..=rows.div_ceil(wanted))
        .rev()
        .map(|count| rows.div_ceil(count))
        .find(|&tile| (rows - 1) % tile + 1 >= ROWS)
        .unwrap_or(rows)
}

/// Rows and columns of a view; the last axis is the columns.
fn size(view: &View) -> Option<(usize, usize)> {
    let (&cols, rows) = view.shape.split_last()?;
    Some((rows.iter().product(), cols))
}

impl<'a> Builder<'a> {
    fn new(steps: &'a [Step], at: usize, n: usize, buffers: &'a [Buffer<'a>]) -> Option<Builder<'a>> {
        let members = &steps[at..at + n];
        let others = steps[..at].iter().chain(&steps[at + n..]).collect();
        // The widest of the first member's operands: for a reduction, the read.
        let first = members.first()?;
        let (rows, cols) = match &first.kind {
            StepKind::Reduce(_) | StepKind::Softmax { .. } => size(&first.reads[0])?,
            StepKind::Matmul(product) => (product.batch.len() * product.m, product.n),
            _ => size(&first.writes[0])?,
        };
        let builder = Builder {
            members,
            others,
            buffers,
            rows,
            cols,
            segment: rows,
            values: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            slots: 0,
            free: Vec::new(),
        };
        (rows >= ROWS && cols >= ROWS).then_some(builder)
    }

    /// The chain of all members, if they form one.
    fn chain(mut self) -> Option<Step> {
        for step in self.members {
            self.cut(step)?;
        }
        let segments = self.rows / self.segment;
        if segments > SEGMENTS || self.segment < ROWS {
            return None;
        }
        let tile = tile(self.segment, self.cols);
        let mut stages = Vec::new();
        let mut hidden = false;
        for at in 0..self.members.len() {
            hidden |= self.stage(at, &mut stages)?;
        }
        // A chain must avoid storing at least one wide value.
        if !hidden || self.reads.len() > MAX_READS || self.writes.len() > MAX_WRITES || self.slots > SLOTS {
            return None;
        }
        if self.clashes() {
            return None;
        }
        let (divide, outs) = self.divide(&stages)?;
        let registers =
            stages.iter().map(|s| if let ChainStage::Group { group, .. } = s { group.registers } else { 0 });
        let (first, last) = (self.members.first()?, self.members.last()?);
        let mut chain = Chain {
            segments,
            rows: self.segment,
            cols: self.cols,
            tile,
            divide,
            outs,
            slots: self.slots,
            registers: registers.max().unwrap_or(0),
            stages,
            causal: None,
        };
        chain.causal = causal::find(&chain, &self.reads, self.buffers);
        scores::hand_over(&mut chain.stages, &self.reads);
        softmax_gradient::join(&mut chain.stages, &self.reads, |write| self.is_factor(&self.writes[write]));
        let names: Vec<&str> = self.members.iter().map(|s| s.op.as_str()).collect();
        let value = if self.writes.len() == 1 { &last.value } else { &first.value };
        Some(Step {
            op: names.join("+"),
            value: value.clone(),
            reads: self.reads,
            writes: self.writes,
            kind: StepKind::Chain(Box::new(chain)),
        })
    }

    /// Checks that a member has the chain's rows, and shortens segments to fit its operands.
    fn cut(&mut self, step: &Step) -> Option<()> {
        let views: Vec<&View> = match &step.kind {
            StepKind::Matmul(product) => {
                if product.batch.len() * product.m != self.rows || product.bias == Some(Along::Rows) {
                    return None;
                }
                // Each tile packs the second factor again, so it must be small, as those of
                // attention are.
                if product.batch.len() < 2 || product.k * product.n > FACTOR {
                    return None;
                }
                // Products of few rows sum in an order of their own.
                if product.m < ROWS || product.strides.iter().any(|s| s.0 < 0 || s.1 < 0) {
                    return None;
                }
                self.segment = gcd(self.segment, product.m);
                return Some(());
            }
            StepKind::Softmax { nest, .. } => {
                let (x, y) = (&step.reads[0], &step.writes[0]);
                let inner = nest.depth() - 1;
                let along = x.shape.len() - 1;
                let last = [y.strides[along], x.strides[along]];
                let strides = [nest.strides[0][inner], nest.strides[1][inner]];
                if nest.extents[inner] != x.shape[along] || last != strides || last != [1, 1] {
                    return None;
                }
                vec![x, y]
            }
            StepKind::Reduce(reduce) => {
                let x = &step.reads[0];
                let (n, stride) = (*x.shape.last()?, *x.strides.last()?);
                if reduce.reduced != [(n, stride)] || stride != 1 {
                    return None;
                }
                vec![x]
            }
            _ => step.reads.iter().chain(&step.writes).collect(),
        };
        for view in views {
            let (rows, cols) = size(view)?;
            if rows != self.rows || (cols != self.cols && cols != 1) {
                return None;
            }
            if let Some(&(extent, _)) = row_axes(view).last() {
                self.segment = gcd(self.segment, extent);
            }
        }
        Some(())
    }

    /// The value that a view reads. A value of width 1 may be repeated along the columns.
    fn value(&self, view: &View) -> Option<usize> {
        self.values.iter().position(|v| {
            let repeats = v.width == 1 && view.strides.last() == Some(&0);
            let same = repeats || view.shape.last() == Some(&v.width);
            v.view.buffer == view.buffer && same && form(view, v.width) == v.form
        })
    }

    /// Whether a view that is not the view of a value overlaps one: it would read memory that is
    /// not written yet.
    fn broken(&self, view: &View) -> bool {
        self.values.iter().any(|v| v.view.overlaps(view))
    }

    /// An operand for a view in memory; its slice is the view's span.
    fn memory(&mut self, view: &View, is_write: bool) -> Option<ChainOperand> {
        let list = if is_write { &mut self.writes } else { &mut self.reads };
        let index = list.iter().position(|v| v == view).unwrap_or_else(|| {
            list.push(view.clone());
            list.len() - 1
        });
        if view.strides.iter().zip(&view.shape).any(|(&s, &n)| s < 0 && n > 1) {
            return None;
        }
        let axes = row_axes(view);
        let row = axes.last().map_or(0, |a| a.1);
        let offset = |segment: usize| {
            let mut rest = segment * self.segment;
            let mut at = 0;
            for &(extent, stride) in axes.iter().rev() {
                at += (rest % extent) as isize * stride;
                rest /= extent;
            }
            at as usize
        };
        let offsets = (0..self.rows / self.segment).map(offset).collect();
        let col = if view.shape.last() == Some(&1) { 0 } else { *view.strides.last()? };
        Some(ChainOperand { at: TileLocation::Memory(index), offsets, row: row as usize, col: col as usize })
    }

    fn slot(&self, slot: usize, width: usize) -> ChainOperand {
        let (row, col) = if width == 1 { (1, 0) } else { (self.cols, 1) };
        ChainOperand { at: TileLocation::Slot(slot), offsets: vec![0], row, col }
    }

    /// The operand through which a member reads a view.
    fn source(&mut self, view: &View) -> Option<ChainOperand> {
        match self.value(view) {
            Some(v) => Some(self.slot(self.values[v].slot, self.values[v].width)),
            None if self.broken(view) => None,
            None => self.memory(view, false),
        }
    }

    /// The last member after `at` that reads the elements of `view`, if any, and whether a step
    /// outside of the chain reads them.
    fn readers(&self, at: usize, view: &View) -> (Option<usize>, bool) {
        let reads = |step: &Step| step.reads.iter().any(|r| r.buffer == view.buffer);
        let inside =
            (at + 1..self.members.len()).rev().find(|&m| self.members[m].reads.iter().any(|r| r.overlaps(view)));
        let outside =
            self.buffers[view.buffer].space != MemorySpace::Arena || self.others.iter().any(|step| reads(step));
        (inside, outside)
    }

    /// Whether products are all that reads a view's buffer outside of the chain.
    fn is_factor(&self, view: &View) -> bool {
        let reads = |step: &&&Step| step.reads.iter().any(|r| r.buffer == view.buffer);
        let product = |step: &&Step| matches!(step.kind, StepKind::Matmul(_));
        self.buffers[view.buffer].space == MemorySpace::Arena && self.others.iter().filter(reads).all(product)
    }

    fn take(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        })
    }

    /// The operand for a result of member `at`: a slot if a later member reads it or if `slot` is
    /// set, else memory. Then the stage that also stores it to memory, if necessary, and whether
    /// the result is hidden, that is, only members read it.
    fn target(
        &mut self,
        at: usize,
        view: &View,
        width: usize,
        slot: bool,
    ) -> Option<(ChainOperand, Option<ChainStage>, bool)> {
        let (inside, outside) = self.readers(at, view);
        if inside.is_none() && !slot {
            return Some((self.memory(view, true)?, None, false));
        }
        let number = self.take();
        let store = match outside || inside.is_none() {
            true => Some(ChainStage::Store { from: number, to: self.memory(view, true)?, width }),
            false => None,
        };
        match inside {
            Some(last) => {
                let form = form(view, width);
                self.values.push(Value { view: view.clone(), form, width, slot: number, last });
            }
            None => self.free.push(number),
        }
        let hidden = store.is_none();
        Some((self.slot(number, width), store, hidden))
    }

    /// Appends the stages of a member. True if it produces a hidden value that is as wide as the
    /// chain.
    fn stage(&mut self, at: usize, stages: &mut Vec<ChainStage>) -> Option<bool> {
        let step = &self.members[at];
        let read = step.reads.iter().any(|r| self.value(r).is_some());
        let before = self.values.len();
        let hidden = match &step.kind {
            StepKind::Matmul(product) => self.product(at, step, product, stages)?,
            StepKind::Group(group) => {
                let sources: Option<Vec<ChainOperand>> = step.reads.iter().map(|r| self.source(r)).collect();
                let sources = sources?;
                let width = step.writes[0].shape.last().copied()?;
                let (mut operands, mut stores, mut any) = (Vec::new(), Vec::new(), false);
                for write in &step.writes {
                    if write.shape.last() != Some(&width) {
                        return None;
                    }
                    let (to, store, hidden) = self.target(at, write, width, false)?;
                    operands.push(to);
                    stores.extend(store);
                    any |= hidden && width > 1;
                }
                operands.extend(sources);
                stages.push(ChainStage::Group { group: group.clone(), operands, width });
                stages.extend(stores);
                any
            }
            StepKind::Softmax { round, .. } => {
                let from = self.source(&step.reads[0])?;
                let (to, store, hidden) = self.target(at, &step.writes[0], self.cols, true)?;
                let TileLocation::Slot(to) = to.at else { return None };
                stages.push(ChainStage::Softmax(ChainSoftmax { from, to, round: *round, masked: None }));
                stages.extend(store);
                hidden
            }
            StepKind::Reduce(reduce) => {
                let from = self.source(&step.reads[0])?;
                // Whether or not it is kept, the reduced axis has one element.
                let mut view = step.writes[0].clone();
                if size(&view)?.1 != 1 || view.shape.len() < step.reads[0].shape.len() {
                    view.shape.push(1);
                    view.strides.push(1);
                }
                let (to, store, _) = self.target(at, &view, 1, true)?;
                let TileLocation::Slot(to) = to.at else { return None };
                stages.push(ChainStage::Reduce { reduction: reduce.reduction, from, to, round: reduce.round });
                stages.extend(store);
                false
            }
            _ => return None,
        };
        // Every member must read a value of another member or produce one.
        if !read && self.values.len() == before {
            return None;
        }
        for v in 0..before {
            if self.values[v].last == at {
                let slot = self.values[v].slot;
                self.free.push(slot);
            }
        }
        Some(hidden)
    }

    fn product(&mut self, at: usize, step: &Step, product: &Matmul, stages: &mut Vec<ChainStage>) -> Option<bool> {
        let Matmul { m, n, k, strides: [left, right, out], .. } = *product;
        let (segment, count) = (self.segment, self.rows / self.segment);
        let rows = |s: usize| (s * segment / m, s * segment % m);
        let number = |list: &mut Vec<View>, view: &View| {
            list.iter().position(|v| v == view).unwrap_or_else(|| {
                list.push(view.clone());
                list.len() - 1
            })
        };
        let reading = k == self.cols && self.value(&step.reads[0]).is_some();
        let lhs = if reading {
            self.source(&step.reads[0])?
        } else {
            let offset = |s: usize| {
                let (item, row) = rows(s);
                product.batch[item].lhs + row * left.0 as usize
            };
            let index = number(&mut self.reads, &step.reads[0]);
            let offsets = (0..count).map(offset).collect();
            ChainOperand { at: TileLocation::Memory(index), offsets, row: left.0 as usize, col: left.1 as usize }
        };
        // The second factor is read whole.
        if self.broken(&step.reads[1]) || (!reading && self.broken(&step.reads[0])) {
            return None;
        }
        let index = number(&mut self.reads, &step.reads[1]);
        let offsets = (0..count).map(|s| product.batch[rows(s).0].rhs).collect();
        let rhs =
            ChainOperand { at: TileLocation::Memory(index), offsets, row: right.0 as usize, col: right.1 as usize };
        let bias = product.bias.map(|_| number(&mut self.reads, &step.reads[2]));
        let (inside, outside) = self.readers(at, &step.writes[0]);
        let (to, store, hidden) = match inside {
            Some(_) if n == self.cols => self.target(at, &step.writes[0], n, true)?,
            Some(_) => return None,
            None if outside || reading => {
                let offset = |s: usize| {
                    let (item, row) = rows(s);
                    product.batch[item].out + row * out.0 as usize
                };
                let index = number(&mut self.writes, &step.writes[0]);
                let offsets = (0..count).map(offset).collect();
                (
                    ChainOperand { at: TileLocation::Memory(index), offsets, row: out.0 as usize, col: out.1 as usize },
                    None,
                    false,
                )
            }
            None => return None,
        };
        let (size, scale, round) = ((k, n), product.scale, product.round);
        stages.push(ChainStage::Product(ChainProduct { lhs, rhs, to, size, scale, bias, round }));
        stages.extend(store);
        Some(hidden)
    }

    /// Whether a write overlaps a read or another write.
    fn clashes(&self) -> bool {
        self.writes
            .iter()
            .enumerate()
            .any(|(i, w)| self.reads.iter().any(|r| w.overlaps(r)) || self.writes[..i].iter().any(|o| w.overlaps(o)))
    }

    /// How the writes may be cut, and an operand for each write. `None` if they cannot be cut and
    /// there is too much work for one thread.
    fn divide(&self, stages: &[ChainStage]) -> Option<(Divide, Vec<ChainOperand>)> {
        let mut all: Vec<(&ChainOperand, usize)> = Vec::new();
        for stage in stages {
            match stage {
                ChainStage::Product(ChainProduct { to, size, .. }) => all.push((to, size.1)),
                ChainStage::Group { group, operands, width } => {
                    all.extend(operands[..group.stores.len()].iter().map(|o| (o, *width)));
                }
                ChainStage::Store { to, width, .. } => all.push((to, *width)),
                _ => {}
            }
        }
        all.retain(|(o, _)| matches!(o.at, TileLocation::Memory(_)));
        let out = |i: usize| all.iter().find(|(o, _)| o.at == TileLocation::Memory(i)).map(|(o, _)| (*o).clone());
        let outs: Option<Vec<ChainOperand>> = (0..self.writes.len()).map(out).collect();
        let apart = |&(o, width): &(&ChainOperand, usize)| {
            let reach = (self.segment - 1) * o.row + (width - 1) * o.col;
            o.offsets.windows(2).all(|pair| pair[1] > pair[0] + reach)
        };
        let rows = |&(o, width): &(&ChainOperand, usize)| {
            let low = o.offsets.iter().min().copied().unwrap_or(0);
            let high = o.offsets.iter().max().copied().unwrap_or(0);
            o.row > high - low + (width - 1) * o.col
        };
        let segments = self.rows / self.segment;
        let (by_segments, by_rows) = (all.iter().all(apart), all.iter().all(rows));
        let divide = match (by_segments, by_rows) {
            (true, _) if segments >= 4 || (!by_rows && segments > 1) => Divide::Segments,
            (_, true) => Divide::Rows,
            _ if self.rows * self.cols <= ALONE => Divide::Nothing,
            _ => return None,
        };
        Some((divide, outs?))
    }
}
