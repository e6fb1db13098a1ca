//! Groups: element-wise ops of one shape are collected while the ops between them allow it.
//!
//! A group stays open until an op outside of it needs a member's value in memory. Members that only
//! other members read never get memory.

use ferrane_device::Result;
use ferrane_mil::ValueId;

use super::build::Lowering;
use super::fused;
use super::member::{Member, MemberOperand, MemberSource, Open};
use super::{near, pairs};
use crate::ir::{Elementwise, Group, Instruction, MAX_READS, MAX_WRITES, Nest, Reg, StepKind, Storage, View};

impl Lowering<'_> {
    /// Adds an element-wise op.
    pub(super) fn member(
        &mut self,
        value: ValueId,
        op: Elementwise,
        operands: &[MemberOperand],
        round: bool,
    ) -> Result<()> {
        let shape = self.shape(value)?;
        let home = |open: &[Open]| open.iter().position(|g| g.shape == shape);
        let member = |open: &[Open], value: ValueId| {
            home(open).and_then(|g| open[g].members.iter().position(|m| m.value == value))
        };
        // Values of other open groups must be in memory first. That closes those groups and changes
        // indices into the list, so no index is kept across it.
        for operand in operands {
            if let MemberOperand::Value(v) = operand
                && member(&self.open, *v).is_none()
            {
                self.view(*v)?;
            }
        }
        let mut sources = Vec::with_capacity(operands.len());
        for operand in operands {
            sources.push(match operand {
                MemberOperand::Bits(bits) => Err(MemberSource::Bits(*bits)),
                MemberOperand::View(view) => Ok(view.broadcast(&shape)),
                MemberOperand::Value(v) => match member(&self.open, *v) {
                    Some(member) => Err(MemberSource::Member(member)),
                    None => {
                        let view = self.view(*v)?;
                        match self.scalar(&view) {
                            Some(bits) => Err(MemberSource::Bits(bits)),
                            None => Ok(view.broadcast(&shape)),
                        }
                    }
                },
            });
        }
        let mut home = home(&self.open);
        if let Some(g) = home
            && self.begins_finish(&self.open[g], &sources)
        {
            self.flush(g)?;
            home = None;
        }
        if let Some(g) = home {
            let group = &self.open[g];
            let new = sources.iter().flatten().filter(|v| !group.externals.contains(v)).count();
            if group.members.len() >= MAX_WRITES || group.externals.len() + new > MAX_READS {
                self.flush(g)?;
                return self.member(value, op, operands, round);
            }
        } else {
            self.open.push(Open { shape, members: Vec::new(), externals: Vec::new(), label: Default::default() });
            home = Some(self.open.len() - 1);
        }
        let Some(group) = home.and_then(|g| self.open.get_mut(g)) else { return Ok(()) };
        let mut from = [MemberSource::Bits(0); 3];
        for (slot, source) in from.iter_mut().zip(&sources) {
            *slot = match source {
                Err(source) => *source,
                Ok(view) => MemberSource::External(match group.externals.iter().position(|v| v == view) {
                    Some(i) => i,
                    None => {
                        group.externals.push(view.clone());
                        group.externals.len() - 1
                    }
                }),
            };
        }
        group.members.push(Member { value, op, from, arity: sources.len(), round });
        group.label = self.label.clone();
        Ok(())
    }

    /// True if an op that has nothing in common with an open group reads the results of a
    /// convolution. Each group can finish the results of its own convolution (`finish`), but one
    /// group of both cannot.
    fn begins_finish(&self, open: &Open, sources: &[std::result::Result<View, MemberSource>]) -> bool {
        let tied = |source: &std::result::Result<View, MemberSource>| match source {
            Ok(view) => open.externals.contains(view),
            Err(source) => matches!(source, MemberSource::Member(_)),
        };
        let convolved = |view: &View| {
            let near = self.steps.iter().rev().take(near::DISTANCE);
            let mut writers = near.filter(|step| matches!(step.kind, StepKind::PackedConv(_) | StepKind::ByteLayer(_)));
            writers.any(|step| step.writes.contains(view))
        };
        self.policy.fuses && !sources.iter().any(tied) && sources.iter().flatten().any(convolved)
    }

    /// The bits of a constant that has one element.
    fn scalar(&self, view: &View) -> Option<u32> {
        let data = self.buffers[view.buffer].data.as_ref()?.bytes()?;
        if view.elements() != 1 {
            return None;
        }
        let at = view.offset * view.storage.bytes();
        let bytes = data.get(at..at + view.storage.bytes())?;
        use Storage::*;
        Some(match (view.storage, bytes) {
            (F32 | I32 | U32, &[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]),
            (F16, &[a, b]) => ferrane_host::f16::from_le_bytes([a, b]).to_f32().to_bits(),
            (I16, &[a, b]) => i32::from(i16::from_le_bytes([a, b])) as u32,
            (U16, &[a, b]) => u32::from(u16::from_le_bytes([a, b])),
            (I8, &[a]) => i32::from(a as i8) as u32,
            (U8, &[a]) => u32::from(a),
            _ => return None,
        })
    }

    /// Emits the group that computes a value, if one is open.
    pub(super) fn flush_for(&mut self, value: ValueId) -> Result<()> {
        match self.open.iter().position(|g| g.members.iter().any(|m| m.value == value)) {
            Some(g) => self.flush(g),
            None => Ok(()),
        }
    }

    /// Closes and emits every open group.
    pub(super) fn flush_all(&mut self) -> Result<()> {
        while !self.open.is_empty() {
            self.flush(0)?;
        }
        Ok(())
    }

    fn flush(&mut self, g: usize) -> Result<()> {
        let mut open = self.open.remove(g);
        let label = std::mem::replace(&mut self.label, open.label.clone());
        let mut inside = vec![0usize; open.members.len()];
        for member in &open.members {
            for source in &member.from[..member.arity] {
                if let MemberSource::Member(i) = source {
                    inside[*i] += 1;
                }
            }
        }
        // The last result comes first: its memory order becomes the order of the loops.
        let mut stored: Vec<usize> =
            (0..open.members.len()).rev().filter(|&i| self.uses[open.members[i].value.index()] > inside[i]).collect();
        // A machine's rules apply to every op, so none may be joined.
        if self.policy.rules.is_none() {
            pairs::join(&mut open.members, &mut stored);
        }
        // The writes, each with its results: the one that starts it, then those that interleave
        // with it.
        let mut writes: Vec<Vec<(usize, View)>> = Vec::new();
        let mut homeless = Vec::new();
        for &i in &stored {
            let value = open.members[i].value;
            let wanted = self.result(value)?;
            let fits = |write: &[(usize, View)]| write.iter().all(|(_, view)| interleaves(view, &wanted));
            let host = writes.iter().position(|write| fits(write));
            let others = writes.iter().enumerate().filter(|(w, _)| Some(*w) != host).flat_map(|(_, write)| write);
            let others: Vec<View> = open.externals.iter().chain(others.map(|(_, view)| view)).cloned().collect();
            let write = self.apart(&wanted, &others);
            homeless.push((value, write.clone()));
            match host {
                Some(host) if write == wanted => writes[host].push((i, write)),
                _ => writes.push(vec![(i, write)]),
            }
        }
        writes.iter_mut().for_each(|write| write.sort_by_key(|(_, view)| view.offset));
        if let (true, Some([(_, write), ..])) = (self.policy.fuses, writes.first().map(Vec::as_slice)) {
            self.order_constants(&mut open.externals, write);
        }
        let mut group = assemble(&open, &writes);
        let mut operands = writes.iter().flatten().map(|(_, view)| view).chain(&open.externals);
        if self.policy.fuses && operands.all(|view| view.storage == Storage::F16) {
            group.fused = fused::of(&group);
        }
        let writes = writes.iter().map(|write| whole(write)).collect();
        self.push(StepKind::Group(group), open.externals, writes)?;
        for (value, at) in homeless {
            self.settle(value, at)?;
        }
        self.label = label;
        Ok(())
    }
}

/// Whether two views have the same shape and strides, and their elements interleave.
fn interleaves(a: &View, b: &View) -> bool {
    let apart = a.offset.abs_diff(b.offset) as isize;
    if (a.buffer, a.storage, &a.shape, &a.strides) != (b.buffer, b.storage, &b.shape, &b.strides) || apart == 0 {
        return false;
    }
    let mut axes: Vec<(isize, isize)> =
        a.strides.iter().zip(&a.shape).filter(|(_, n)| **n != 1).map(|(&s, &n)| (s, n as isize)).collect();
    axes.sort_unstable();
    // The other view's elements lie in the gap after everything below an axis, and all outer
    // strides are multiples of that axis's stride.
    let mut reach = 0;
    for (at, &(stride, extent)) in axes.iter().enumerate() {
        if stride <= reach {
            return false;
        }
        if apart > reach && apart + reach < stride {
            return axes[at..].iter().all(|above| above.0 % stride == 0);
        }
        reach += (extent - 1) * stride;
    }
    false
}

/// A view from the first element of the first result to the last element of the last one.
fn whole(write: &[(usize, View)]) -> View {
    let (first, last) = (&write[0].1, &write[write.len() - 1].1);
    let mut view = first.clone();
    if write.len() > 1 {
        view.shape.insert(0, 2);
        view.strides.insert(0, (last.offset - first.offset) as isize);
    }
    view
}

/// Allocates registers and emits the instructions.
fn assemble(open: &Open, results: &[Vec<(usize, View)>]) -> Group {
    let guests = || results.iter().enumerate().flat_map(|(w, write)| write[1..].iter().map(move |guest| (w, guest)));
    let all: Vec<&(usize, View)> = results.iter().map(|write| &write[0]).chain(guests().map(|g| g.1)).collect();
    let stored: Vec<usize> = all.iter().map(|(i, _)| *i).collect();
    let writes: Vec<&View> = all.iter().map(|(_, view)| view).collect();
    let joined: Vec<(usize, usize)> =
        guests().map(|(w, (_, view))| (w, view.offset - results[w][0].1.offset)).collect();
    let operands: Vec<&View> = writes.iter().copied().chain(&open.externals).collect();
    let mut nest = Nest::new(&open.shape, &operands, writes.len(), None);
    nest.divisible &= joined.iter().all(|&(w, behind)| nest.leaves(w, behind));
    let count = open.externals.len();
    let mut constants: Vec<(Reg, u32)> = Vec::new();
    for member in &open.members {
        for source in &member.from[..member.arity] {
            if let MemberSource::Bits(bits) = source
                && !constants.iter().any(|(_, b)| b == bits)
            {
                constants.push(((count + constants.len()) as Reg, *bits));
            }
        }
    }
    // Last reader of each member and external; stored results are read at the end.
    let end = open.members.len();
    let last = |wanted: MemberSource| {
        (0..end).rev().find(|&i| open.members[i].from[..open.members[i].arity].contains(&wanted))
    };
    let mut free: Vec<Reg> = Vec::new();
    let mut registers = count + constants.len();
    let mut place: Vec<Reg> = Vec::with_capacity(end);
    let mut instructions = Vec::with_capacity(end);
    let still = |e: usize| nest.strides[writes.len() + e].iter().all(|&s| s == 0);
    for (i, member) in open.members.iter().enumerate() {
        let register = |source: MemberSource| match source {
            MemberSource::Member(m) => place[m],
            MemberSource::External(e) => e as Reg,
            MemberSource::Bits(bits) => constants.iter().find(|(_, b)| *b == bits).map_or(0, |(r, _)| *r),
        };
        let first = member.from[0];
        let from = [0, 1, 2].map(|k| register(if k < member.arity { member.from[k] } else { first }));
        let to = free.pop().unwrap_or_else(|| {
            registers += 1;
            (registers - 1) as Reg
        });
        place.push(to);
        instructions.push(Instruction { op: member.op, to, from, round: member.round });
        for k in 0..member.arity {
            let source = member.from[k];
            let dead = !member.from[..k].contains(&source)
                && last(source) == Some(i)
                && match source {
                    MemberSource::Member(m) => !stored.contains(&m),
                    // Loaded once for all tiles.
                    MemberSource::External(e) => !still(e),
                    MemberSource::Bits(_) => false,
                };
            if dead {
                free.push(register_of(source, &place));
            }
        }
        // Every member is read or stored: its use count is the number of its readers.
    }
    let stores = stored.iter().map(|&i| place[i]).collect();
    let loads = (0..count as Reg).collect();
    Group { nest, loads, constants, instructions, stores, joined, registers, fused: None }
}

fn register_of(source: MemberSource, place: &[Reg]) -> Reg {
    match source {
        MemberSource::Member(m) => place[m],
        MemberSource::External(e) => e as Reg,
        MemberSource::Bits(_) => 0,
    }
}
