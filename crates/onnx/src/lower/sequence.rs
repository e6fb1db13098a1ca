//! Sequences and optionals, resolved when the program is made: a sequence is a list of what its
//! elements stand for.

use ferrane_mil::emit::Emit;
use std::rc::Rc;

use super::state::{Built, Entry, Lower, Stop, unmapped};
use crate::element::ElementType;
use crate::tensor::Tensor;

impl<'a> Lower<'a> {
    /// The results of an operator on sequences or optionals.
    pub(super) fn sequence(&mut self) -> Built<Vec<Option<Entry>>> {
        let found = match self.node.op.as_str() {
            "SequenceEmpty" => self.list_entry(Vec::new()),
            "SequenceConstruct" => {
                let items = (0..self.count()).map(|i| self.entry(i)).collect::<Built<_>>()?;
                self.list_entry(items)
            }
            "SequenceAt" => {
                let items = self.items(0)?;
                let at = self.place(1, items.len(), items.len())?;
                items[at].clone()
            }
            "SequenceInsert" => {
                let mut items = self.items(0)?.to_vec();
                let item = self.entry(1)?;
                let at = if self.has(2) { self.place(2, items.len(), items.len() + 1)? } else { items.len() };
                items.insert(at, item);
                self.list_entry(items)
            }
            "SequenceErase" => {
                let mut items = self.items(0)?.to_vec();
                let at = match self.has(1) {
                    true => self.place(1, items.len(), items.len())?,
                    false => items.len().checked_sub(1).ok_or_else(|| Stop::Rejected("an empty sequence".into()))?,
                };
                items.remove(at);
                self.list_entry(items)
            }
            "SequenceLength" => {
                let length = self.items(0)?.len() as f64;
                self.known_entry(Tensor::known(ElementType::Int64, Vec::new(), vec![length]))
            }
            "SplitToSequence" => self.split_to_sequence()?,
            "ConcatFromSequence" => self.concat_from_sequence()?,
            "SequenceMap" => return self.sequence_map(),
            "Optional" if self.has(0) => self.entry(0)?,
            "Optional" => Entry { absent: true, ..self.make(None, None, ElementType::Float) },
            "OptionalGetElement" => {
                let entry = self.entry(0)?;
                if entry.absent {
                    return Err(Stop::Rejected("the optional has no element".into()));
                }
                entry
            }
            "OptionalHasElement" => {
                let there = self.has(0) && !self.entry(0)?.absent;
                self.known_entry(Tensor::known(ElementType::Bool, Vec::new(), vec![f64::from(u8::from(there))]))
            }
            other => return unmapped(format!("`{other}` is not known")),
        };
        Ok(vec![Some(found)])
    }

    fn list_entry(&mut self, items: Vec<Entry>) -> Entry {
        Entry { items: Some(Rc::new(items)), ..self.make(None, None, ElementType::Float) }
    }

    fn items(&self, i: usize) -> Built<Rc<Vec<Entry>>> {
        self.entry(i)?.items.ok_or_else(|| Stop::Rejected(format!("input {i} is not a sequence")))
    }

    /// The position that input `i` states in a sequence of that length, below `end`.
    fn place(&self, i: usize, length: usize, end: usize) -> Built<usize> {
        let at = self.ints(i)?.first().copied().unwrap_or(0);
        let place = if at < 0 { at.saturating_add(length as i64) } else { at };
        let place = usize::try_from(place).ok().filter(|&p| p < end);
        place.ok_or_else(|| Stop::Rejected(format!("position {at} of a sequence of {length}")))
    }

    fn split_to_sequence(&mut self) -> Built<Entry> {
        let (x, element) = (self.x(0)?, self.element(0)?);
        let shape = self.shape(x)?;
        let axis = self.axis(0, shape.len())?;
        let sizes: Vec<usize> = match self.ints_if(1)? {
            None => vec![1; shape[axis]],
            Some(sizes) if self.extents(1)?.is_empty() => {
                let size = sizes.first().copied().unwrap_or(0).clamp(1, 1 << 30) as usize;
                (0..shape[axis].div_ceil(size)).map(|i| size.min(shape[axis] - i * size)).collect()
            }
            Some(sizes) => sizes.iter().map(|&n| n.clamp(0, 1 << 30) as usize).collect(),
        };
        if sizes.iter().sum::<usize>() != shape[axis] || sizes.contains(&0) {
            return Err(Stop::Rejected(format!("parts of {sizes:?} of {}", shape[axis])));
        }
        self.spend(sizes.len())?;
        let drop = !self.has(1) && self.int("keepdims", 1) == 0;
        let mut items = Vec::with_capacity(sizes.len());
        let mut from = 0;
        for size in sizes {
            let mut part = self.slice(x, axis, from, size)?;
            if drop {
                part = self.b.squeeze(&self.label, part, &[axis as i32])?;
            }
            items.push(self.make(Some(part), None, element));
            from += size;
        }
        Ok(self.list_entry(items))
    }

    fn concat_from_sequence(&mut self) -> Built<Entry> {
        let items = self.items(0)?;
        let Some(first) = items.first() else { return unmapped("the concatenation of an empty sequence") };
        let element = first.element;
        if self.int("new_axis", 0) != 0 {
            return self.stacked(&items, self.int("axis", 0), false);
        }
        let mut values = Vec::with_capacity(items.len());
        for item in items.iter() {
            let value = self.value_of("value", item)?;
            values.push(self.widened(value)?);
        }
        let rank = self.shape(values[0])?.len();
        let axis = self.axis(0, rank)?;
        let value = self.concat(&values, axis)?;
        Ok(self.make(Some(value), None, element))
    }

    /// Applies a graph to the elements of sequences at each position.
    fn sequence_map(&mut self) -> Built<Vec<Option<Entry>>> {
        let body = self.graph_of("body")?;
        let length = self.items(0)?.len();
        self.spend(length)?;
        let mut results: Vec<Vec<Entry>> = vec![Vec::new(); body.outputs.len()];
        for at in 0..length {
            let mut inputs = Vec::with_capacity(self.count());
            for i in 0..self.count() {
                let entry = self.entry(i)?;
                inputs.push(match &entry.items {
                    Some(items) => {
                        items.get(at).cloned().ok_or_else(|| Stop::Rejected("sequences of different lengths".into()))?
                    }
                    None => entry,
                });
            }
            for (list, entry) in results.iter_mut().zip(self.subgraph(body, inputs)?) {
                list.push(entry);
            }
        }
        Ok(results.into_iter().map(|list| Some(self.list_entry(list))).collect())
    }
}
