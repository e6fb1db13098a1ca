//! Homes: chooses where values are computed, so that nothing is copied later.
//!
//! The walk goes backward from the outputs. An output's home is its surface. A concat uses its
//! home, or a new buffer, and gives each operand a slot of it. Reshapes and transposes pass their
//! home to their operand, inverted. If a value has no home but its readers traverse memory in some
//! order, that order is passed back the same way, so that sequences of ops agree on a layout.

use ferrane_device::Result;
use ferrane_mil::{Op, ValueId};

use super::build::Lowering;
use super::elementwise::is_elementwise;
use crate::ir::{Storage, View, is_dense, reshape_strides, row_major};

impl<'a> Lowering<'a> {
    pub(super) fn find_homes(&mut self, outputs: &[View]) -> Result<()> {
        let body = self.function.body();
        for (&value, output) in body.outputs.iter().zip(outputs) {
            self.offer(value, output.clone())?;
        }
        for &id in body.ops.iter().rev() {
            let op = self.function.op(id);
            if op.name == "const" || !self.is_needed(op) {
                continue;
            }
            self.label = (op.name.clone(), String::new());
            match op.name.as_str() {
                "reshape" | "expand_dims" | "squeeze" | "identity" | "transpose" => self.hand_back(op)?,
                "concat" => self.slots(op)?,
                "softmax" => self.suggest(op)?,
                name if is_elementwise(name) => self.suggest(op)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives a value a home, if it can have one.
    fn offer(&mut self, value: ValueId, home: View) -> Result<()> {
        let i = value.index();
        // A home in another storage (exact values in an fp16 surface) must not be read again.
        let fits = home.storage == self.storage(value)? || self.uses[i] == 1;
        if self.homes[i].is_none() && self.is_computed(value) && fits {
            self.homes[i] = Some(home);
        }
        Ok(())
    }

    fn prefer(&mut self, value: ValueId, strides: Vec<isize>) {
        let i = value.index();
        if self.homes[i].is_none() && self.orders[i].is_none() && self.is_computed(value) {
            self.orders[i] = Some(strides);
        }
    }

    fn hand_back(&mut self, op: &'a Op) -> Result<()> {
        let args = self.args(op)?;
        let (Some(x), Some(&y)) = (args.value("x"), op.outputs.first()) else { return Ok(()) };
        let shape = self.shape(x)?;
        let inverse = if op.name == "transpose" {
            let perm = args.axes(&args.ints("perm")?, shape.len())?;
            let mut inverse = vec![0; perm.len()];
            for (i, &p) in perm.iter().enumerate() {
                inverse[p] = i;
            }
            Some(inverse)
        } else {
            None
        };
        if let Some(home) = self.homes[y.index()].clone() {
            let seen = match &inverse {
                Some(perm) => Some(home.permuted(perm)),
                None => home.reshaped(&shape),
            };
            if let Some(seen) = seen {
                self.offer(x, seen)?;
            }
        } else if let Some(order) = self.orders[y.index()].clone() {
            let seen = match &inverse {
                Some(perm) => Some(perm.iter().map(|&p| order[p]).collect()),
                None => reshape_strides(&self.shape(y)?, &order, &shape),
            };
            if let Some(seen) = seen {
                self.prefer(x, seen);
            }
        }
        Ok(())
    }

    fn slots(&mut self, op: &'a Op) -> Result<()> {
        let args = self.args(op)?;
        let (Some(&y), values) = (op.outputs.first(), args.values("values")) else { return Ok(()) };
        if values.len() < 2 {
            return Ok(());
        }
        let shape = self.shape(y)?;
        let axis = args.axis("axis", shape.len())?;
        let interleave = args.flag("interleave")?;
        let shared = if interleave { None } else { self.start_of_another(&values, &shape, axis)? };
        let home = match self.homes[y.index()].clone().or(shared) {
            Some(home) => {
                self.homes[y.index()] = Some(home.clone());
                home
            }
            None => {
                let (storage, order) = (self.storage(y)?, self.orders[y.index()].clone());
                let home = self.fresh(storage, &shape, order);
                // Several steps write it.
                self.buffers[home.buffer].sole = false;
                self.homes[y.index()] = Some(home.clone());
                home
            }
        };
        for (value, slot) in values.iter().zip(self.concat_slots(&home, &values, axis, interleave)?) {
            self.offer(*value, slot)?;
        }
        if !interleave {
            self.concats.push((axis, values, home));
        }
        Ok(())
    }

    /// Where the values lie already, if a later concat begins with them and they have their homes
    /// there: dense blocks concatenate all earlier features again and again.
    fn start_of_another(&self, values: &[ValueId], shape: &[usize], axis: usize) -> Result<Option<View>> {
        for (_, others, home) in self.concats.iter().filter(|(other, ..)| *other == axis) {
            if others.len() > values.len() && others.starts_with(values) {
                let start = home.sliced(axis, 0, 1, shape[axis]);
                let slots = self.concat_slots(&start, values, axis, false)?;
                if values.iter().zip(slots).all(|(value, slot)| self.homes[value.index()] == Some(slot)) {
                    return Ok(Some(start));
                }
            }
        }
        Ok(None)
    }

    /// The slot of each operand in a concat's result.
    pub(super) fn concat_slots(
        &self,
        home: &View,
        values: &[ValueId],
        axis: usize,
        interleave: bool,
    ) -> Result<Vec<View>> {
        let mut at = 0;
        let mut slots = Vec::with_capacity(values.len());
        for (i, value) in values.iter().enumerate() {
            let shape = self.shape(*value)?;
            // Scalars are concatenated as vectors of one element.
            let extent = shape.get(axis).copied().unwrap_or(1);
            let slot = if interleave {
                home.sliced(axis, i, values.len() as isize, extent)
            } else {
                home.sliced(axis, at, 1, extent)
            };
            slots.push(if shape.is_empty() { slot.element() } else { slot });
            at += extent;
        }
        Ok(slots)
    }

    /// Passes the order of an element-wise result to the operands of the same shape.
    fn suggest(&mut self, op: &'a Op) -> Result<()> {
        let Some(&y) = op.outputs.first() else { return Ok(()) };
        let shape = self.shape(y)?;
        let order = match (&self.homes[y.index()], &self.orders[y.index()]) {
            (Some(home), _) => compact(&shape, &home.strides),
            (None, Some(order)) => order.clone(),
            (None, None) => row_major(&shape),
        };
        for value in op.operands() {
            let float = self.policy.storage(self.dtype(value)?).is_some_and(Storage::is_float);
            if float && self.is_computed(value) && self.shape(value)? == shape {
                self.prefer(value, order.clone());
            }
        }
        Ok(())
    }
}

/// Dense strides in the order of `strides`.
fn compact(shape: &[usize], strides: &[isize]) -> Vec<isize> {
    let mut axes: Vec<usize> = (0..shape.len()).collect();
    axes.sort_by_key(|&a| std::cmp::Reverse(strides[a]));
    // Axes of extent 1 may have any stride; they keep 1.
    let mut dense = vec![1isize; shape.len()];
    let mut span = 1isize;
    for &axis in axes.iter().rev().filter(|&&a| shape[a] != 1) {
        dense[axis] = span;
        span *= shape[axis] as isize;
    }
    debug_assert!(is_dense(shape, &dense));
    dense
}
