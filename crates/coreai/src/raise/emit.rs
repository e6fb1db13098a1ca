//! Operations of Core AI, with the types of their results.

use ferrane_mil::Arg;

use super::state::{Built, Extents, Raise, rejected, unmapped};
use crate::bytecode::{AttributeId, ValueId};
use crate::dialect::ElementType::{Bool, Float16, Float32, Int32, UInt32};
use crate::dialect::{ElementType, Field, Tensor};

/// Kinds of attributes that choose a form of an operation, by number.
pub(super) const PADDING: u64 = 17;
pub(super) const APPROXIMATE: u64 = 19;
pub(super) const SCATTER: u64 = 20;
pub(super) const COMBINER: u64 = 25;
pub(super) const INTERPOLATION: u64 = 43;

/// Extents that are all known.
pub(super) fn known(shape: &[u64]) -> Extents {
    shape.iter().map(|&n| Some(n)).collect()
}

/// The extents of two tensors, broadcast; an extent that is not known is taken to fit.
fn broadcast(a: &[Option<u64>], b: &[Option<u64>]) -> Option<Extents> {
    let rank = a.len().max(b.len());
    let at = |s: &[Option<u64>], i: usize| (i + s.len()).checked_sub(rank).map_or(Some(1), |i| s[i]);
    let one = |i: usize| match (at(a, i), at(b, i)) {
        (Some(1), n) | (n, Some(1)) => Some(n),
        (Some(m), Some(n)) => (m == n).then_some(Some(m)),
        (Some(n), None) | (None, Some(n)) => Some(Some(n)),
        (None, None) => Some(None),
    };
    (0..rank).map(one).collect()
}

/// Numbers as a program states them.
fn signed(values: &[u64]) -> Vec<i64> {
    values.iter().map(|&v| v as i64).collect()
}

impl Raise<'_> {
    pub(super) fn tensor(&self, x: ValueId) -> Built<&Tensor> {
        match self.tensors.get(&x) {
            Some(tensor) => Ok(tensor),
            None => rejected("an operand is no tensor"),
        }
    }

    pub(super) fn element(&self, x: ValueId) -> Built<ElementType> {
        Ok(self.tensor(x)?.element)
    }

    pub(super) fn extents(&self, x: ValueId) -> Built<Extents> {
        Ok(self.tensor(x)?.shape.clone())
    }

    pub(super) fn rank(&self, x: ValueId) -> Built<usize> {
        Ok(self.tensor(x)?.shape.len())
    }

    /// Extents that have to be known.
    pub(super) fn shape(&self, x: ValueId) -> Built<Vec<u64>> {
        match self.tensor(x)?.shape.iter().copied().collect::<Option<Vec<u64>>>() {
            Some(shape) => Ok(shape),
            None => unmapped("it needs the extents of its operand, which are known only when the model runs"),
        }
    }

    pub(super) fn is_float(&self, x: ValueId) -> Built<bool> {
        Ok(matches!(self.element(x)?, Float16 | Float32))
    }

    /// An operation with a property that chooses its form, and one result.
    pub(super) fn formed(
        &mut self,
        name: &str,
        operands: &[ValueId],
        property: Option<(&str, AttributeId)>,
        shape: Extents,
        element: ElementType,
    ) -> ValueId {
        let ty = self.b.tensor(&shape, element);
        let value = self.b.op(&mut self.graph, name, operands, property.as_slice(), ty);
        self.tensors.insert(value, Tensor { shape, element, encoding: None });
        value
    }

    /// An operation with one result.
    pub(super) fn op(&mut self, name: &str, operands: &[ValueId], shape: Extents, element: ElementType) -> ValueId {
        self.formed(name, operands, None, shape, element)
    }

    /// The number of one of a few forms.
    pub(super) fn choice(&mut self, kind: u64, number: u64) -> AttributeId {
        self.b.attribute(kind, vec![Field::Unsigned(number)])
    }

    /// An operation of one operand, whose result has its type.
    pub(super) fn un(&mut self, name: &str, x: ValueId) -> Built {
        let Tensor { shape, element, .. } = self.tensor(x)?.clone();
        Ok(self.op(name, &[x], shape, element))
    }

    /// An operation that carries what it computes as a block, of its operands.
    fn expanded(
        &mut self,
        name: &str,
        operands: &[ValueId],
        shape: Extents,
        element: ElementType,
        work: impl FnOnce(&mut Self, &[ValueId]) -> Built,
    ) -> Built {
        let arguments = operands.iter().map(|&x| Ok(self.tensor(x)?.clone())).collect::<Built<Vec<Tensor>>>()?;
        let block = self.isolated(&arguments, work)?;
        let ty = self.b.tensor(&shape, element);
        let values = self.b.ops(&mut self.graph, name, operands, &[], &[ty], vec![block]);
        self.tensors.insert(values[0], Tensor { shape, element, encoding: None });
        Ok(values[0])
    }

    /// Values with the extents to which they broadcast; `extents` is a vector of those, if they are
    /// not known.
    fn widened<const N: usize>(&mut self, values: [ValueId; N], shape: &[Option<u64>]) -> Built<[ValueId; N]> {
        let mut wide = values;
        if let Some(shape) = shape.iter().copied().collect::<Option<Vec<u64>>>() {
            for value in &mut wide {
                *value = self.broadcast_to(*value, &shape)?;
            }
            return Ok(wide);
        }
        let mut all = None;
        for &value in &values {
            let rank = self.rank(value)? as u64;
            let own = self.op("primitive.get_shape_v2", &[value], known(&[rank]), UInt32);
            all = Some(match all {
                Some(all) => {
                    self.op("primitive.broadcast_shapes_v1", &[all, own], known(&[shape.len() as u64]), UInt32)
                }
                None => own,
            });
        }
        if let Some(all) = all {
            for value in &mut wide {
                let element = self.element(*value)?;
                *value = self.op("primitive.broadcast_to_v1", &[*value, all], shape.to_vec(), element);
            }
        }
        Ok(wide)
    }

    /// An operation of two operands, which broadcasts where it has to: `add`, not
    /// `broadcasting_add`.
    pub(super) fn bin(&mut self, name: &str, x: ValueId, y: ValueId) -> Built {
        let (a, b) = (self.tensor(x)?, self.tensor(y)?);
        if a.element != b.element {
            return rejected(format!("operands of types {} and {}", a.element.name(), b.element.name()));
        }
        let Some(shape) = broadcast(&a.shape, &b.shape) else {
            return rejected(format!("extents {:?} and {:?} do not broadcast", a.shape, b.shape));
        };
        let alike = a.shape == b.shape && a.shape.iter().all(Option::is_some);
        let element = if matches!(name, "equal" | "not_equal" | "greater") { Bool } else { a.element };
        let plain = format!("primitive.{name}_v1");
        if alike {
            return Ok(self.op(&plain, &[x, y], shape, element));
        }
        self.expanded(&format!("broadcasting_{name}_v1"), &[x, y], shape.clone(), element, |r, values| {
            let wide = r.widened([values[0], values[1]], &shape)?;
            Ok(r.op(&plain, &wide, shape, element))
        })
    }

    /// An operation of an operand and a number.
    pub(super) fn with(&mut self, name: &str, x: ValueId, number: f64) -> Built {
        let number = self.num(x, number)?;
        self.bin(name, x, number)
    }

    /// `a` where `cond`, else `b`.
    pub(super) fn select(&mut self, cond: ValueId, a: ValueId, b: ValueId) -> Built {
        let (c, x, y) = (self.tensor(cond)?, self.tensor(a)?, self.tensor(b)?);
        if x.element != y.element {
            return rejected(format!("operands of types {} and {}", x.element.name(), y.element.name()));
        }
        let shape = broadcast(&x.shape, &y.shape).and_then(|both| broadcast(&c.shape, &both));
        let Some(shape) = shape else { return rejected("extents that do not broadcast") };
        let alike = c.shape == x.shape && x.shape == y.shape && shape.iter().all(Option::is_some);
        let element = x.element;
        if alike {
            return Ok(self.op("primitive.where_v1", &[cond, a, b], shape, element));
        }
        self.expanded("broadcasting_where_v1", &[cond, a, b], shape.clone(), element, |r, values| {
            let wide = r.widened([values[0], values[1], values[2]], &shape)?;
            Ok(r.op("primitive.where_v1", &wide, shape, element))
        })
    }

    pub(super) fn cast(&mut self, x: ValueId, element: ElementType) -> Built {
        let Tensor { shape, element: from, .. } = self.tensor(x)?.clone();
        Ok(if from == element { x } else { self.op("primitive.cast_v1", &[x], shape, element) })
    }

    /// fp16 as fp32, in which sums and squares do not overflow.
    pub(super) fn wide(&mut self, x: ValueId) -> Built {
        if self.element(x)? == Float16 { self.cast(x, Float32) } else { Ok(x) }
    }

    /// An argument as a value of the element type of `like`: from iOS 17 on parameters may have
    /// another one.
    pub(super) fn as_type_of(&mut self, name: &str, like: ValueId) -> Built {
        let (value, element) = (self.x(name)?, self.element(like)?);
        self.cast(value, element)
    }

    /// New axes of extent 1, numbered as in the result.
    pub(super) fn expand(&mut self, x: ValueId, axes: &[usize]) -> Built {
        if axes.is_empty() {
            return Ok(x);
        }
        let Tensor { shape, element, .. } = self.tensor(x)?.clone();
        let rank = shape.len() + axes.len();
        let mut rest = shape.into_iter();
        let shape = (0..rank).map(|i| if axes.contains(&i) { Some(1) } else { rest.next().flatten() }).collect();
        let axes: Vec<i64> = axes.iter().map(|&a| a as i64).collect();
        let axes = self.vector(Int32, &axes)?;
        Ok(self.op("primitive.expand_dims_v1", &[x, axes], shape, element))
    }

    /// x without these axes, of extent 1.
    pub(super) fn shrink(&mut self, x: ValueId, axes: &[usize]) -> Built {
        if axes.is_empty() {
            return Ok(x);
        }
        let Tensor { shape, element, .. } = self.tensor(x)?.clone();
        let shape = (0..shape.len()).filter(|i| !axes.contains(i)).map(|i| shape[i]).collect();
        let axes: Vec<i64> = axes.iter().map(|&a| a as i64).collect();
        let axes = self.vector(Int32, &axes)?;
        Ok(self.op("primitive.shrink_dims_v1", &[x, axes], shape, element))
    }

    /// x with these extents, of which one may be unknown.
    pub(super) fn reshape(&mut self, x: ValueId, shape: &[Option<u64>]) -> Built {
        let Tensor { shape: from, element, .. } = self.tensor(x)?.clone();
        if from == shape && shape.iter().all(Option::is_some) {
            return Ok(x);
        }
        if shape.is_empty() {
            return self.shrink(x, &(0..from.len()).collect::<Vec<_>>());
        }
        let product = |s: &[Option<u64>]| s.iter().copied().try_fold(1u64, |n, e| n.checked_mul(e?));
        if let (Some(a), Some(b)) = (product(&from), product(shape))
            && a != b
        {
            return rejected(format!("{from:?} has other elements than {shape:?}"));
        }
        let target = match shape.iter().filter(|n| n.is_none()).count() {
            0 => self.vector(UInt32, &shape.iter().map(|n| n.unwrap_or(1) as i64).collect::<Vec<_>>())?,
            1 => self.vector(Int32, &shape.iter().map(|n| n.map_or(-1, |n| n as i64)).collect::<Vec<_>>())?,
            _ => return unmapped("several of its extents are known only when the model runs"),
        };
        Ok(self.op("primitive.reshape_v2", &[x, target], shape.to_vec(), element))
    }

    /// x with extents that are known.
    pub(super) fn reshaped(&mut self, x: ValueId, shape: &[u64]) -> Built {
        self.reshape(x, &known(shape))
    }

    pub(super) fn transpose(&mut self, x: ValueId, order: &[usize]) -> Built {
        if order.iter().enumerate().all(|(i, &a)| i == a) {
            return Ok(x);
        }
        let Tensor { shape, element, .. } = self.tensor(x)?.clone();
        let shape = order.iter().map(|&a| shape.get(a).copied().flatten()).collect();
        let order: Vec<i64> = order.iter().map(|&a| a as i64).collect();
        let order = self.vector(UInt32, &order)?;
        Ok(self.op("primitive.transpose_v1", &[x, order], shape, element))
    }

    /// x with its last two axes swapped.
    pub(super) fn swapped(&mut self, x: ValueId) -> Built {
        let rank = self.rank(x)?;
        if rank < 2 {
            return rejected("a matrix of rank below 2");
        }
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(rank - 2, rank - 1);
        self.transpose(x, &order)
    }

    pub(super) fn concat(&mut self, values: &[ValueId], axis: usize) -> Built {
        if let [one] = values {
            return Ok(*one);
        }
        let Some(&first) = values.first() else { return rejected("nothing to join") };
        let Tensor { mut shape, element, .. } = self.tensor(first)?.clone();
        let mut extent = Some(0u64);
        for &value in values {
            let tensor = self.tensor(value)?;
            if tensor.shape.len() != shape.len() || tensor.element != element || axis >= shape.len() {
                return rejected("tensors that differ in rank or type");
            }
            extent = extent.zip(tensor.shape[axis]).and_then(|(a, b)| a.checked_add(b));
            for (i, n) in shape.iter_mut().enumerate() {
                *n = n.or(tensor.shape[i]);
            }
        }
        shape[axis] = extent;
        let mut operands = vec![self.scalar(Int32, axis as f64)?];
        operands.extend(values);
        Ok(self.op("primitive.concat_v1", &operands, shape, element))
    }

    /// Elements of x from `starts` on in `steps`; an end before the first element is -1.
    pub(super) fn slice(&mut self, x: ValueId, starts: &[i64], ends: &[i64], steps: &[i64], shape: Extents) -> Built {
        let element = self.element(x)?;
        let (a, b, c) = (self.vector(Int32, starts)?, self.vector(Int32, ends)?, self.vector(Int32, steps)?);
        Ok(self.op("primitive.slice_v1", &[x, a, b, c], shape, element))
    }

    /// `count` elements along an axis, from `start` on.
    pub(super) fn part(&mut self, x: ValueId, axis: usize, start: u64, count: u64) -> Built {
        let mut shape = self.extents(x)?;
        if axis >= shape.len() {
            return rejected(format!("axis {axis} of {shape:?}"));
        }
        if start == 0 && shape[axis] == Some(count) {
            return Ok(x);
        }
        let (mut starts, mut ends) = (vec![0; shape.len()], vec![i64::from(i32::MAX); shape.len()]);
        for (end, n) in ends.iter_mut().zip(&shape) {
            *end = n.map_or(*end, |n| n as i64);
        }
        (starts[axis], ends[axis]) = (start as i64, start.saturating_add(count) as i64);
        shape[axis] = Some(count);
        let steps = vec![1; shape.len()];
        self.slice(x, &starts, &ends, &steps, shape)
    }

    /// A reduction by an operation of two scalars, from a first value.
    fn combined(&mut self, op: &str, first: f64, x: ValueId, axes: ValueId, shape: Extents) -> Built {
        let element = self.element(x)?;
        let scalar = Tensor { shape: Vec::new(), element, encoding: None };
        let first = self.scalar(element, first)?;
        let block = self.isolated(&[scalar.clone(), scalar], |r, values| r.bin(op, values[0], values[1]))?;
        let ty = self.b.tensor(&shape, element);
        let values = self.b.ops(&mut self.graph, "primitive.reduce_v1", &[x, axes, first], &[], &[ty], vec![block]);
        self.tensors.insert(values[0], Tensor { shape, element, encoding: None });
        Ok(values[0])
    }

    /// The smallest or largest number of a type.
    fn bound(element: ElementType, largest: bool) -> f64 {
        let bound = match element {
            Float16 | Float32 => f64::INFINITY,
            _ => 2f64.powi(element.bits() as i32 - 1) - if largest { 1.0 } else { 0.0 },
        };
        if largest { bound } else { -bound }
    }

    /// A reduction such as `sum`; the axes keep an extent of 1.
    pub(super) fn reduce(&mut self, name: &str, x: ValueId, axes: &[usize]) -> Built {
        if axes.is_empty() {
            return Ok(x);
        }
        let Tensor { shape: from, element, .. } = self.tensor(x)?.clone();
        let mut shape = from.clone();
        let mut count = Some(1.0);
        for &axis in axes {
            count = count.zip(from[axis]).map(|(n, e)| n * e as f64);
            shape[axis] = Some(1);
        }
        let (op, first) = match name {
            "max" => ("maximum", Self::bound(element, false)),
            "min" => ("minimum", Self::bound(element, true)),
            "product" => ("mul", 1.0),
            _ => ("add", 0.0),
        };
        let count = match (name, count) {
            ("mean", Some(count)) => count,
            ("mean", None) => {
                return unmapped("it needs the number of elements, which is known only when the model runs");
            }
            _ => 1.0,
        };
        let axes: Vec<i64> = axes.iter().map(|&a| a as i64).collect();
        let axes = self.vector(Int32, &axes)?;
        self.expanded(&format!("reduce_{name}_v1"), &[x, axes], shape.clone(), element, |r, values| {
            let all = r.combined(op, first, values[0], values[1], shape)?;
            if name == "mean" { r.with("divide", all, count) } else { Ok(all) }
        })
    }

    pub(super) fn softmax(&mut self, x: ValueId, axis: usize) -> Built {
        let Tensor { shape, element, .. } = self.tensor(x)?.clone();
        let place = self.scalar(Int32, axis as f64)?;
        self.expanded("softmax_v1", &[x, place], shape, element, |r, values| {
            let largest = r.reduce("max", values[0], &[axis])?;
            let below = r.bin("sub", values[0], largest)?;
            let powers = r.un("primitive.exp_v1", below)?;
            let sum = r.reduce("sum", powers, &[axis])?;
            r.bin("divide", powers, sum)
        })
    }

    /// The place of the largest element along an axis, which keeps an extent of 1.
    pub(super) fn argmax(&mut self, x: ValueId, axis: usize) -> Built {
        let Tensor { mut shape, element, .. } = self.tensor(x)?.clone();
        shape[axis] = Some(1);
        let place = self.scalar(Int32, axis as f64)?;
        let least = match element {
            Float32 => f64::from(f32::MIN),
            Float16 => -65504.0,
            _ => Self::bound(element, false),
        };
        self.expanded("argmax_v1", &[x, place], shape.clone(), UInt32, |r, values| {
            let (least, zero) = (r.scalar(element, least)?, r.scalar(UInt32, 0.0)?);
            let scalar = Tensor { shape: Vec::new(), element, encoding: None };
            let block = r.isolated(&[scalar.clone(), scalar], |r, values| r.bin("greater", values[1], values[0]))?;
            let ty = r.b.tensor(&shape, UInt32);
            let operands = [values[0], values[1], least, zero];
            let found = r.b.ops(&mut r.graph, "primitive.reduce_index_v1", &operands, &[], &[ty], vec![block]);
            r.tensors.insert(found[0], Tensor { shape, element: UInt32, encoding: None });
            Ok(found[0])
        })
    }

    pub(super) fn relu(&mut self, x: ValueId) -> Built {
        let Tensor { shape, element, .. } = self.tensor(x)?.clone();
        self.expanded("relu_v1", &[x], shape, element, |r, values| r.with("maximum", values[0], 0.0))
    }

    pub(super) fn sigmoid(&mut self, x: ValueId) -> Built {
        let Tensor { shape, element, .. } = self.tensor(x)?.clone();
        self.expanded("sigmoid_v1", &[x], shape, element, |r, values| {
            let negative = r.with("mul", values[0], -1.0)?;
            let power = r.un("primitive.exp_v1", negative)?;
            let below = r.with("add", power, 1.0)?;
            let one = r.num(below, 1.0)?;
            r.bin("divide", one, below)
        })
    }

    pub(super) fn silu(&mut self, x: ValueId) -> Built {
        let Tensor { shape, element, .. } = self.tensor(x)?.clone();
        self.expanded("silu_v1", &[x], shape, element, |r, values| {
            let gate = r.sigmoid(values[0])?;
            r.bin("mul", values[0], gate)
        })
    }

    /// x with a number around it: pairs of margins for each axis.
    pub(super) fn padded(&mut self, x: ValueId, pads: &[u64], value: f64) -> Built {
        self.margins(x, pads, value, 1)
    }

    /// x with margins of a form, by its number.
    pub(super) fn margins(&mut self, x: ValueId, pads: &[u64], value: f64, form: u64) -> Built {
        if pads.iter().all(|&p| p == 0) {
            return Ok(x);
        }
        let Tensor { mut shape, element, .. } = self.tensor(x)?.clone();
        if pads.len() != 2 * shape.len() {
            return rejected(format!("margins {pads:?} around {shape:?}"));
        }
        for (n, pair) in shape.iter_mut().zip(pads.chunks_exact(2)) {
            *n = n.and_then(|n| n.checked_add(pair[0])?.checked_add(pair[1]));
        }
        let pads = self.vector(UInt32, &signed(pads))?;
        let value = self.scalar(element, value)?;
        let form = self.choice(PADDING, form);
        Ok(self.formed("primitive.pad_v1", &[x, pads, value], Some(("padding_mode", form)), shape, element))
    }

    /// The slices of x at rows of indices into its first axes.
    pub(super) fn gather_nd(&mut self, x: ValueId, indices: ValueId) -> Built {
        let indices = self.cast(indices, Int32)?;
        let (tensor, rows) = (self.tensor(x)?.clone(), self.extents(indices)?);
        let depth = rows.last().copied().flatten().and_then(|n| usize::try_from(n).ok());
        let Some(rest) = depth.and_then(|depth| tensor.shape.get(depth..)) else {
            return rejected(format!("rows {rows:?} of indices into {:?}", tensor.shape));
        };
        let shape = [&rows[..rows.len() - 1], rest].concat();
        Ok(self.op("primitive.gather_nd_v1", &[x, indices], shape, tensor.element))
    }

    /// The slices of x at indices along an axis, whose place the axes of the indices take.
    pub(super) fn gather(&mut self, x: ValueId, indices: ValueId, axis: usize) -> Built {
        let (rank, count) = (self.rank(x)?, self.rank(indices)?);
        let front: Vec<usize> = std::iter::once(axis).chain((0..rank).filter(|&a| a != axis)).collect();
        let x = self.transpose(x, &front)?;
        let rows = self.expand(indices, &[count])?;
        let found = self.gather_nd(x, rows)?;
        let back: Vec<usize> = (count..count + axis).chain(0..count).chain(count + axis..count + rank - 1).collect();
        self.transpose(found, &back)
    }

    /// The elements of x at an index for each along an axis.
    pub(super) fn gather_along(&mut self, x: ValueId, indices: ValueId, axis: usize) -> Built {
        let indices = self.cast(indices, Int32)?;
        let (shape, element) = (self.extents(indices)?, self.element(x)?);
        let axis = self.scalar(Int32, axis as f64)?;
        Ok(self.op("primitive.gather_along_axis_v1", &[x, indices, axis], shape, element))
    }

    /// x repeated to extents that are known.
    pub(super) fn broadcast_to(&mut self, x: ValueId, shape: &[u64]) -> Built {
        let element = self.element(x)?;
        if self.extents(x)? == known(shape) {
            return Ok(x);
        }
        let target = self.vector(UInt32, &signed(shape))?;
        Ok(self.op("primitive.broadcast_to_v1", &[x, target], known(shape), element))
    }

    /// A vector of one number for each channel, in the shape in which it broadcasts along axis
    /// `axis` of a tensor of this rank.
    pub(super) fn along(&mut self, vector: ValueId, axis: usize, rank: usize) -> Built {
        self.expand(vector, &(1..rank.saturating_sub(axis)).collect::<Vec<_>>())
    }

    /// True if an argument is a value that the op reads from another op, not a constant.
    pub(super) fn is_value(&self, name: &str) -> bool {
        matches!(self.op.arg(name), Some(Arg::Value(value)) if self.function.constant(*value).is_none())
    }

    /// Matrix product over the last two axes.
    pub(super) fn product(&mut self, x: ValueId, y: ValueId) -> Built {
        let (a, b) = (self.tensor(x)?.clone(), self.tensor(y)?.clone());
        let (n, m) = (a.shape.len(), b.shape.len());
        if n < 2 || m < 2 || a.element != b.element {
            return rejected(format!("a product of {:?} and {:?}", a.shape, b.shape));
        }
        let Some(mut shape) = broadcast(&a.shape[..n - 2], &b.shape[..m - 2]) else {
            return rejected(format!("a product of {:?} and {:?}", a.shape, b.shape));
        };
        shape.extend([a.shape[n - 2], b.shape[m - 1]]);
        let element = a.element;
        if a.shape[..n - 2] == b.shape[..m - 2] {
            return Ok(self.op("primitive.batch_matmul_v1", &[x, y], shape, element));
        }
        // One matrix for all rows.
        if m == 2 && a.shape[n - 1].is_some() && shape.iter().filter(|n| n.is_none()).count() <= 1 {
            let rows = a.shape[..n - 1].iter().copied().try_fold(1u64, |n, e| n.checked_mul(e?));
            let x = self.reshape(x, &[rows, a.shape[n - 1]])?;
            let z = self.op("primitive.batch_matmul_v1", &[x, y], vec![rows, b.shape[1]], element);
            return self.reshape(z, &shape);
        }
        let batch = shape[..shape.len() - 2].iter().copied().collect::<Option<Vec<u64>>>();
        let whole = |s: &[Option<u64>]| s[s.len() - 2..].iter().copied().collect::<Option<Vec<u64>>>();
        let (Some(batch), Some(left), Some(right)) = (batch, whole(&a.shape), whole(&b.shape)) else {
            return unmapped("it broadcasts extents that are known only when the model runs");
        };
        self.expanded("broadcasting_batch_matmul_v1", &[x, y], shape.clone(), element, |r, values| {
            let left = r.broadcast_to(values[0], &[&batch[..], &left].concat())?;
            let right = r.broadcast_to(values[1], &[&batch[..], &right].concat())?;
            Ok(r.op("primitive.batch_matmul_v1", &[left, right], shape, element))
        })
    }
}
