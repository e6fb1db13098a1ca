//! Lists of tensors. A list is a value: a write makes a new list, which shares the other elements.

use std::sync::Arc;

use ferrane_device::Result;
use ferrane_mil::{DataType, Op, Type};

use super::failure::{broken, failed};
use super::machine::{List, Machine, Value};
use crate::tensor_ops::{Data, HeapTensor};

/// Bytes of an element's entry.
const PLACE: usize = size_of::<Option<Arc<HeapTensor>>>();

impl List {
    /// Element `i`; an element that was not written is zero, if its extents are known.
    fn read(&self, op: &Op, i: i64) -> Result<Arc<HeapTensor>> {
        let place = usize::try_from(i).ok().and_then(|i| self.elements.get(i));
        let Some(element) = place else {
            return Err(failed(op, format!("index {i} is outside of a list of {}", self.elements.len())));
        };
        if let Some(tensor) = element {
            return Ok(tensor.clone());
        }
        match (self.element.dtype(), self.element.shape(), self.element.elements()) {
            (Some(dtype), Some(shape), Some(count)) if dtype.is_float() => {
                Ok(Arc::new(HeapTensor::floats(dtype, &shape, vec![0.0; count])))
            }
            (Some(dtype), Some(shape), Some(count)) => Ok(Arc::new(HeapTensor::ints(dtype, &shape, vec![0; count]))),
            _ => Err(failed(op, format!("element {i} was never written, and its extents are not declared"))),
        }
    }

    fn write(&mut self, op: &Op, i: i64, tensor: Arc<HeapTensor>) -> Result<()> {
        let length = self.elements.len();
        let at = usize::try_from(i).ok().filter(|&at| at < length || self.grows);
        let Some(at) = at else {
            return Err(failed(op, format!("index {i} is outside of a list of {length}")));
        };
        if at >= length {
            self.elements.resize(at + 1, None);
        }
        self.elements[at] = Some(tensor);
        Ok(())
    }
}

impl Machine<'_> {
    fn list(&self, op: &Op) -> Result<Arc<List>> {
        match self.function.arg_value(op, "ls").map(|v| self.value(v)).transpose()? {
            Some(Value::List(list)) => Ok(list),
            _ => Err(broken("`ls` is not a list")),
        }
    }

    pub(super) fn make_list(&mut self, op: &Op) -> Result<Vec<Value>> {
        let length = if op.arg("init_length").is_some() { self.number(op, "init_length")? } else { 1 };
        let grows = op.arg("dynamic_length").is_none() || self.number(op, "dynamic_length")? != 0;
        let count = usize::try_from(length).map_err(|_| failed(op, format!("a length of {length}")))?;
        self.room(op, count.checked_mul(PLACE))?;
        let Some(Type::List { element, .. }) = op.outputs.first().map(|&y| &self.function.value(y).ty) else {
            return Err(broken("the result of `make_list` is not a list"));
        };
        let element = (**element).clone();
        // Zeros are allocated when they are read.
        self.room(op, element.elements().and_then(|n| n.checked_mul(8)).or(element.shape().is_none().then_some(0)))?;
        Ok(vec![Value::List(Arc::new(List { elements: vec![None; count], grows, element }))])
    }

    pub(super) fn list_length(&mut self, op: &Op) -> Result<Vec<Value>> {
        let length = self.list(op)?.elements.len();
        Ok(vec![Value::Tensor(Arc::new(HeapTensor::ints(DataType::Int32, &[], vec![length as i64])))])
    }

    pub(super) fn list_read(&mut self, op: &Op) -> Result<Vec<Value>> {
        let index = self.number(op, "index")?;
        Ok(vec![Value::Tensor(self.list(op)?.read(op, index)?)])
    }

    pub(super) fn list_write(&mut self, op: &Op) -> Result<Vec<Value>> {
        let (index, value) = (self.number(op, "index")?, self.argument(op, "value")?);
        let mut list = self.owned(op, index)?;
        list.write(op, index, value)?;
        Ok(vec![Value::List(Arc::new(list))])
    }

    /// The elements at `indices`, stacked along a new first axis.
    pub(super) fn list_gather(&mut self, op: &Op) -> Result<Vec<Value>> {
        let (list, indices) = (self.list(op)?, self.argument(op, "indices")?);
        let element = indices.len().checked_mul(list.elements.iter().flatten().map(|t| t.bytes()).max().unwrap_or(0));
        self.room(op, element)?;
        let elements: Vec<_> = (0..indices.len()).map(|i| list.read(op, indices.int(i))).collect::<Result<_>>()?;
        let inner = match elements.first() {
            Some(first) => first.shape.clone(),
            None => list.element.shape().ok_or_else(|| failed(op, "gathers nothing from a list of unknown extents"))?,
        };
        if elements.iter().any(|e| e.shape != inner) {
            return Err(failed(op, "the elements have different extents"));
        }
        let dtype = elements.first().map(|e| e.dtype).or(list.element.dtype()).unwrap_or(DataType::Fp32);
        let shape = [&[elements.len()], &inner[..]].concat();
        let stacked = if dtype.is_float() {
            let values = elements.iter().flat_map(|e| (0..e.len()).map(|i| e.float(i))).collect();
            HeapTensor::floats(dtype, &shape, values)
        } else {
            HeapTensor::ints(dtype, &shape, elements.iter().flat_map(|e| (0..e.len()).map(|i| e.int(i))).collect())
        };
        Ok(vec![Value::Tensor(Arc::new(stacked))])
    }

    /// The slices of `value` along its first axis, written at `indices`.
    pub(super) fn list_scatter(&mut self, op: &Op) -> Result<Vec<Value>> {
        let (indices, value) = (self.argument(op, "indices")?, self.argument(op, "value")?);
        let Some((&rows, inner)) = value.shape.split_first().filter(|(n, _)| **n == indices.len()) else {
            return Err(failed(
                op,
                format!("{:?} is not one slice for each of {} indices", value.shape, indices.len()),
            ));
        };
        self.room(op, Some(value.bytes()))?;
        let furthest = (0..rows).map(|i| indices.int(i)).max().unwrap_or(0);
        let mut list = self.owned(op, furthest)?;
        let row: usize = inner.iter().product();
        for i in 0..rows {
            let slice = value.pick(inner, i * row..(i + 1) * row);
            list.write(op, indices.int(i), Arc::new(slice))?;
        }
        Ok(vec![Value::List(Arc::new(list))])
    }

    /// A copy of the list that may be written up to an index.
    fn owned(&self, op: &Op, index: i64) -> Result<List> {
        let list = self.list(op)?;
        let places = list.elements.len().max(usize::try_from(index).map_or(0, |i| i.saturating_add(1)));
        self.room(op, places.checked_mul(PLACE))?;
        Ok((*list).clone())
    }
}

impl HeapTensor {
    /// True if there is no element.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.data {
            Data::Floats(v) => v.is_empty(),
            Data::Ints(v) => v.is_empty(),
            Data::Strings(v) => v.is_empty(),
        }
    }
}
