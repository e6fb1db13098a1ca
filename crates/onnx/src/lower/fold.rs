//! Nodes that are computed when the program is made: arithmetic on shapes, mostly.
//!
//! A node is folded if all its inputs are known and its results are small. Integers are exact up to
//! 2⁵³; floats are rounded to fp32 after each operation.

use std::rc::Rc;

use super::shape::slice_range;
use crate::element::ElementType;
use crate::graph::{Attribute, Node};
use crate::tensor::{Tensor, elements};

/// Larger results are computed by the program.
const MOST: usize = 1 << 16;

/// The inputs of a node that is being folded.
struct Fold<'a> {
    node: &'a Node,
    inputs: &'a [Option<Rc<Tensor>>],
}

/// The results of a node whose given inputs are all known, or `None` if the program has to compute
/// it.
pub(super) fn fold(node: &Node, inputs: &[Option<Rc<Tensor>>]) -> Option<Vec<Tensor>> {
    if !node.domain.is_empty() || inputs.iter().flatten().any(|t| t.len() > MOST) {
        return None;
    }
    let f = Fold { node, inputs };
    if node.op == "Split" {
        return f.split();
    }
    f.one().map(|t| vec![t])
}

/// Rounds a result to its type.
fn rounded(element: ElementType, v: f64) -> f64 {
    match element {
        ElementType::Float => f64::from(v as f32),
        ElementType::Float16 => ferrane_host::f16::from_f64(v).to_f64(),
        ElementType::Bool => f64::from(u8::from(v != 0.0)),
        _ => match element.range() {
            // Narrow integers wrap.
            Some((low, high)) => (v.trunc() - low).rem_euclid(high - low + 1.0) + low,
            None if element.integer().is_some() => v.trunc(),
            None => v,
        },
    }
}

/// The common shape of shapes that broadcast.
pub(super) fn broadcast(shapes: &[&[usize]]) -> Option<Vec<usize>> {
    let rank = shapes.iter().map(|s| s.len()).max()?;
    let mut found = vec![1; rank];
    for shape in shapes {
        for (to, &n) in found[rank - shape.len()..].iter_mut().zip(*shape) {
            *to = match (*to, n) {
                (a, 1) => a,
                (1, b) => b,
                (a, b) if a == b => a,
                _ => return None,
            };
        }
    }
    Some(found)
}

/// The element of a tensor of shape `from` at place `at` of the larger shape `shape`.
fn place(mut at: usize, shape: &[usize], from: &[usize]) -> usize {
    let (mut found, mut stride) = (0, 1);
    for axis in (0..shape.len()).rev() {
        let index = at % shape[axis].max(1);
        at /= shape[axis].max(1);
        if axis + from.len() >= shape.len() {
            let extent = from[axis + from.len() - shape.len()];
            found += if extent == 1 { 0 } else { index } * stride;
            stride *= extent;
        }
    }
    found
}

impl Fold<'_> {
    fn t(&self, i: usize) -> Option<&Tensor> {
        self.inputs.get(i)?.as_deref()
    }

    fn int(&self, name: &str, default: i64) -> i64 {
        if let Some(Attribute::Int(v)) = self.node.attribute(name) { *v } else { default }
    }

    /// The integers of the attribute `name`, or of input `i`.
    fn list(&self, name: &str, i: usize) -> Option<Vec<i64>> {
        match self.node.attribute(name) {
            Some(Attribute::Ints(v)) => Some(v.clone()),
            _ => self.t(i).map(Tensor::ints),
        }
    }

    fn axis(&self, axis: i64, rank: usize) -> Option<usize> {
        let at = if axis < 0 { axis.checked_add(rank as i64)? } else { axis };
        usize::try_from(at).ok().filter(|&a| a < rank)
    }

    fn one(&self) -> Option<Tensor> {
        let x = self.t(0);
        match self.node.op.as_str() {
            "Identity" => x.cloned(),
            "Abs" => self.map(f64::abs),
            "Neg" => self.map(|v| -v),
            "Relu" => self.map(|v| if v < 0.0 { 0.0 } else { v }),
            "Ceil" => self.map(f64::ceil),
            "Floor" => self.map(f64::floor),
            "Round" => self.map(f64::round_ties_even),
            "Sqrt" => self.map(f64::sqrt),
            "Exp" => self.map(f64::exp),
            "Log" => self.map(f64::ln),
            "Reciprocal" => self.map(|v| 1.0 / v),
            "Sign" => self.map(|v| if v == 0.0 { 0.0 } else { v.signum() }),
            "Not" => self.map(|v| f64::from(u8::from(v == 0.0))),
            "Cast" => cast(x?, ElementType::from_number(i32::try_from(self.int("to", 0)).ok()?)),
            "CastLike" => cast(x?, self.t(1)?.element()),
            "Add" => self.pair(None, |a, b| a + b),
            "Sub" => self.pair(None, |a, b| a - b),
            "Mul" => self.pair(None, |a, b| a * b),
            "Div" if x?.element().is_float() => self.pair(None, |a, b| a / b),
            "Div" if !self.t(1)?.values().contains(&0.0) => self.pair(None, |a, b| (a / b).trunc()),
            "Mod" if self.int("fmod", 0) == 0 && !self.t(1)?.values().contains(&0.0) => {
                self.pair(None, |a, b| a - (a / b).floor() * b)
            }
            "Pow" => self.pair(None, f64::powf),
            "Max" => self.pair(None, f64::max),
            "Min" => self.pair(None, f64::min),
            "And" => self.test(|a, b| a != 0.0 && b != 0.0),
            "Or" => self.test(|a, b| a != 0.0 || b != 0.0),
            "Xor" => self.test(|a, b| (a != 0.0) != (b != 0.0)),
            "Equal" => self.test(|a, b| a == b),
            "Less" => self.test(|a, b| a < b),
            "LessOrEqual" => self.test(|a, b| a <= b),
            "Greater" => self.test(|a, b| a > b),
            "GreaterOrEqual" => self.test(|a, b| a >= b),
            "Where" => self.choose(),
            "Shape" => self.shape(),
            "Size" => Some(Tensor::known(ElementType::Int64, Vec::new(), vec![x?.len() as f64])),
            "Reshape" => self.reshape(),
            "Flatten" => self.flatten(),
            "Squeeze" => self.squeeze(),
            "Unsqueeze" => self.unsqueeze(),
            "Concat" => self.concat(),
            "Gather" => self.gather(),
            "Slice" => self.slice(),
            "Expand" => self.expand(),
            "Tile" => self.tile(),
            "Transpose" => self.transpose(),
            "Range" => self.range(),
            "ConstantOfShape" => self.constant_of_shape(),
            "ReduceProd" => self.reduce(|a, b| a * b),
            "ReduceSum" => self.reduce(|a, b| a + b),
            "ReduceMax" => self.reduce(f64::max),
            "ReduceMin" => self.reduce(f64::min),
            "Trilu" => self.triangle(),
            "NonZero" => self.non_zero(),
            _ => None,
        }
    }

    fn map(&self, f: impl Fn(f64) -> f64) -> Option<Tensor> {
        let x = self.t(0)?;
        let values = x.values().iter().map(|&v| rounded(x.element(), f(v))).collect();
        numeric(x)?;
        Some(Tensor::known(x.element(), x.shape().to_vec(), values))
    }

    fn pair(&self, element: Option<ElementType>, f: impl Fn(f64, f64) -> f64) -> Option<Tensor> {
        let (x, y) = (self.t(0)?, self.t(1)?);
        if self.inputs.len() > 2 {
            return None;
        }
        numeric(x)?;
        numeric(y)?;
        let shape = broadcast(&[x.shape(), y.shape()])?;
        let total = elements(&shape).filter(|&n| n <= MOST)?;
        let element = element.unwrap_or(x.element());
        let (a, b) = (x.values(), y.values());
        let one = |i| {
            let (p, q) = (place(i, &shape, x.shape()), place(i, &shape, y.shape()));
            Some(rounded(element, f(*a.get(p)?, *b.get(q)?)))
        };
        let values = (0..total).map(one).collect::<Option<_>>()?;
        Some(Tensor::known(element, shape, values))
    }

    fn test(&self, f: impl Fn(f64, f64) -> bool) -> Option<Tensor> {
        self.pair(Some(ElementType::Bool), |a, b| f64::from(u8::from(f(a, b))))
    }

    fn choose(&self) -> Option<Tensor> {
        let (c, x, y) = (self.t(0)?, self.t(1)?, self.t(2)?);
        numeric(x)?;
        let shape = broadcast(&[c.shape(), x.shape(), y.shape()])?;
        let total = elements(&shape).filter(|&n| n <= MOST)?;
        let one = |i| {
            let from = if *c.values().get(place(i, &shape, c.shape()))? != 0.0 { x } else { y };
            from.values().get(place(i, &shape, from.shape())).copied()
        };
        Some(Tensor::known(x.element(), shape.clone(), (0..total).map(one).collect::<Option<_>>()?))
    }

    fn shape(&self) -> Option<Tensor> {
        let shape: Vec<i64> = self.t(0)?.shape().iter().map(|&n| n as i64).collect();
        Some(shape_tensor(self.node, &shape))
    }

    /// The same elements in another shape.
    fn shaped(&self, shape: Vec<usize>) -> Option<Tensor> {
        let x = self.t(0)?;
        if elements(&shape)? != x.len() {
            return None;
        }
        numeric(x)?;
        Some(Tensor::known(x.element(), shape, x.values().to_vec()))
    }

    fn reshape(&self) -> Option<Tensor> {
        let wanted = self.list("shape", 1)?;
        let shape = super::shape::reshaped(self.t(0)?.shape(), &wanted, self.int("allowzero", 0) != 0)?;
        self.shaped(shape)
    }

    fn flatten(&self) -> Option<Tensor> {
        let shape = self.t(0)?.shape();
        let axis = self.int("axis", 1);
        let at = usize::try_from(if axis < 0 { axis.checked_add(shape.len() as i64)? } else { axis }).ok()?;
        let (a, b) = shape.split_at_checked(at)?;
        self.shaped(vec![a.iter().product(), b.iter().product()])
    }

    fn squeeze(&self) -> Option<Tensor> {
        let shape = self.t(0)?.shape();
        let axes = match self.list("axes", 1) {
            Some(axes) => axes.iter().map(|&a| self.axis(a, shape.len())).collect::<Option<Vec<_>>>()?,
            None => (0..shape.len()).filter(|&i| shape[i] == 1).collect(),
        };
        self.shaped((0..shape.len()).filter(|i| !axes.contains(i)).map(|i| shape[i]).collect())
    }

    fn unsqueeze(&self) -> Option<Tensor> {
        let mut shape = self.t(0)?.shape().to_vec();
        let axes = self.list("axes", 1)?;
        let rank = shape.len().checked_add(axes.len()).filter(|&r| r <= 16)?;
        let mut axes = axes.iter().map(|&a| self.axis(a, rank)).collect::<Option<Vec<_>>>()?;
        axes.sort_unstable();
        for axis in axes {
            (axis <= shape.len()).then(|| shape.insert(axis, 1))?;
        }
        self.shaped(shape)
    }

    fn concat(&self) -> Option<Tensor> {
        let first = self.t(0)?;
        let axis = self.axis(self.int("axis", 0), first.shape().len())?;
        let mut shape = first.shape().to_vec();
        shape[axis] = 0;
        for i in 0..self.inputs.len() {
            let t = self.t(i)?;
            numeric(t)?;
            let fits =
                t.shape().len() == shape.len() && (0..shape.len()).all(|a| a == axis || t.shape()[a] == shape[a]);
            fits.then_some(())?;
            shape[axis] += t.shape()[axis];
        }
        let total = elements(&shape).filter(|&n| n <= MOST)?;
        let outer: usize = shape[..axis].iter().product();
        let mut values = Vec::with_capacity(total);
        for o in 0..outer {
            for t in self.inputs.iter().flatten() {
                let part: usize = t.shape()[axis..].iter().product();
                values.extend(t.values().get(o * part..(o + 1) * part)?);
            }
        }
        Some(Tensor::known(first.element(), shape, values))
    }

    /// Elements of x at the places that `at` gives for each index tuple of a new shape.
    fn picked(&self, shape: Vec<usize>, at: impl Fn(&[usize]) -> Option<Vec<usize>>) -> Option<Tensor> {
        let x = self.t(0)?;
        numeric(x)?;
        let total = elements(&shape).filter(|&n| n <= MOST)?;
        let mut values = Vec::with_capacity(total);
        let mut index = vec![0; shape.len()];
        for _ in 0..total {
            let from = at(&index)?;
            let mut place = 0;
            for (&i, &extent) in from.iter().zip(x.shape()) {
                (i < extent).then_some(())?;
                place = place * extent + i;
            }
            values.push(*x.values().get(place)?);
            for axis in (0..shape.len()).rev() {
                index[axis] += 1;
                if index[axis] < shape[axis] {
                    break;
                }
                index[axis] = 0;
            }
        }
        Some(Tensor::known(x.element(), shape, values))
    }

    fn gather(&self) -> Option<Tensor> {
        let (x, indices) = (self.t(0)?, self.t(1)?);
        let axis = self.axis(self.int("axis", 0), x.shape().len())?;
        let extent = x.shape()[axis] as i64;
        let places: Vec<usize> = indices
            .ints()
            .iter()
            .map(|&i| usize::try_from(if i < 0 { i.checked_add(extent)? } else { i }).ok())
            .collect::<Option<_>>()?;
        let (inner, rank) = (indices.shape(), indices.shape().len());
        let shape = [&x.shape()[..axis], inner, &x.shape()[axis + 1..]].concat();
        self.picked(shape, |index| {
            let at = index[axis..axis + rank].iter().zip(inner).fold(0, |p, (&i, &e)| p * e + i);
            let mut from = index[..axis].to_vec();
            from.push(*places.get(at)?);
            from.extend(&index[axis + rank..]);
            Some(from)
        })
    }

    fn slice(&self) -> Option<Tensor> {
        let shape = self.t(0)?.shape();
        let (starts, ends) = (self.list("starts", 1)?, self.list("ends", 2)?);
        let axes = self.list("axes", 3).unwrap_or_else(|| (0..starts.len() as i64).collect());
        let steps = self.list("steps", 4).unwrap_or_else(|| vec![1; starts.len()]);
        let mut ranges: Vec<(i64, i64)> = vec![(0, 1); shape.len()];
        let mut cut = shape.to_vec();
        for (i, &axis) in axes.iter().enumerate() {
            let axis = self.axis(axis, shape.len())?;
            let step = *steps.get(i).filter(|&&s| s != 0)?;
            let (from, step, count) = slice_range(*starts.get(i)?, *ends.get(i)?, step, shape[axis] as i64);
            (ranges[axis], cut[axis]) = ((from, step), usize::try_from(count).ok()?);
        }
        self.picked(cut, |index| {
            index.iter().zip(&ranges).map(|(&i, (from, step))| usize::try_from(from + step * i as i64).ok()).collect()
        })
    }

    fn expand(&self) -> Option<Tensor> {
        let x = self.t(0)?;
        let wanted: Vec<usize> =
            self.list("shape", 1)?.iter().map(|&n| usize::try_from(n).ok()).collect::<Option<_>>()?;
        elements(&wanted)?;
        let shape = broadcast(&[x.shape(), &wanted])?;
        let skip = shape.len() - x.shape().len();
        self.picked(shape, |index| {
            Some(index[skip..].iter().zip(x.shape()).map(|(&i, &e)| if e == 1 { 0 } else { i }).collect())
        })
    }

    fn tile(&self) -> Option<Tensor> {
        let x = self.t(0)?;
        let reps = self.list("repeats", 1)?;
        (reps.len() == x.shape().len()).then_some(())?;
        let shape = x
            .shape()
            .iter()
            .zip(&reps)
            .map(|(&e, &r)| e.checked_mul(usize::try_from(r).ok()?))
            .collect::<Option<_>>()?;
        self.picked(shape, |index| Some(index.iter().zip(x.shape()).map(|(&i, &e)| i % e.max(1)).collect()))
    }

    fn transpose(&self) -> Option<Tensor> {
        let shape = self.t(0)?.shape();
        let perm = match self.node.attribute("perm") {
            Some(Attribute::Ints(p)) => p.iter().map(|&a| self.axis(a, shape.len())).collect::<Option<Vec<_>>>()?,
            _ => (0..shape.len()).rev().collect(),
        };
        let mut sorted = perm.clone();
        sorted.sort_unstable();
        (sorted == (0..shape.len()).collect::<Vec<_>>()).then_some(())?;
        self.picked(perm.iter().map(|&p| shape[p]).collect(), |index| {
            let mut from = vec![0; perm.len()];
            perm.iter().zip(index).for_each(|(&p, &i)| from[p] = i);
            Some(from)
        })
    }

    fn range(&self) -> Option<Tensor> {
        let scalar = |i| self.t(i).and_then(|t| t.values().first().copied());
        let (start, end, step) = (scalar(0)?, scalar(1)?, scalar(2)?);
        let count = ((end - start) / step).ceil();
        (step != 0.0 && count.is_finite() && count <= MOST as f64).then_some(())?;
        let element = self.t(0)?.element();
        let values: Vec<f64> =
            (0..count.max(0.0) as usize).map(|i| rounded(element, start + step * i as f64)).collect();
        Some(Tensor::known(element, vec![values.len()], values))
    }

    fn constant_of_shape(&self) -> Option<Tensor> {
        let shape: Vec<usize> = self.t(0)?.ints().iter().map(|&n| usize::try_from(n).ok()).collect::<Option<_>>()?;
        let total = elements(&shape).filter(|&n| n <= MOST)?;
        let (element, value) = match self.node.attribute("value") {
            Some(Attribute::Tensor(t)) => (t.element(), *t.values().first()?),
            Some(_) => return None,
            None => (ElementType::Float, 0.0),
        };
        Some(Tensor::known(element, shape, vec![value; total]))
    }

    fn reduce(&self, f: impl Fn(f64, f64) -> f64) -> Option<Tensor> {
        let x = self.t(0)?;
        // Along all axes of a vector or scalar, as shape arithmetic does.
        let rank = x.shape().len();
        let all = match self.list("axes", 1) {
            Some(axes) if !axes.is_empty() => rank == 1 && matches!(axes[..], [0 | -1]),
            _ => self.int("noop_with_empty_axes", 0) == 0,
        };
        all.then_some(())?;
        numeric(x)?;
        let value = x.values().iter().copied().reduce(|a, b| rounded(x.element(), f(a, b)))?;
        let shape = if self.int("keepdims", 1) != 0 { vec![1; rank] } else { Vec::new() };
        Some(Tensor::known(x.element(), shape, vec![value]))
    }

    fn triangle(&self) -> Option<Tensor> {
        let x = self.t(0)?;
        numeric(x)?;
        let [.., rows, columns] = x.shape() else { return None };
        let k = if self.inputs.len() > 1 { self.t(1)?.ints().first().copied()? } else { 0 };
        let upper = self.int("upper", 1) != 0;
        let keep = |i: usize| {
            let distance = (i % columns) as i64 - (i / columns % rows) as i64;
            if upper { distance >= k } else { distance <= k }
        };
        let values = x.values().iter().enumerate().map(|(i, &v)| if keep(i) { v } else { 0.0 }).collect();
        Some(Tensor::known(x.element(), x.shape().to_vec(), values))
    }

    fn non_zero(&self) -> Option<Tensor> {
        let x = self.t(0)?;
        let places: Vec<usize> = (0..x.len()).filter(|&i| x.values().get(i).is_some_and(|&v| v != 0.0)).collect();
        let mut values = Vec::with_capacity(places.len() * x.shape().len());
        for axis in 0..x.shape().len() {
            let inner: usize = x.shape()[axis + 1..].iter().product();
            values.extend(places.iter().map(|p| (p / inner.max(1) % x.shape()[axis].max(1)) as f64));
        }
        Some(Tensor::known(ElementType::Int64, vec![x.shape().len(), places.len()], values))
    }

    fn split(&self) -> Option<Vec<Tensor>> {
        let x = self.t(0)?;
        let axis = self.axis(self.int("axis", 0), x.shape().len())?;
        let extent = x.shape()[axis];
        let sizes: Vec<usize> = match self.list("split", 1) {
            Some(sizes) => sizes.iter().map(|&n| usize::try_from(n).ok()).collect::<Option<_>>()?,
            None => {
                let count = self.node.outputs.len();
                let part = extent.div_ceil(count.max(1));
                (0..count).map(|i| extent.saturating_sub(i * part).min(part)).collect()
            }
        };
        (sizes.iter().try_fold(0usize, |n, &s| n.checked_add(s)) == Some(extent)).then_some(())?;
        let mut from = 0;
        let mut parts = Vec::new();
        for size in sizes {
            let mut shape = x.shape().to_vec();
            shape[axis] = size;
            let begin = from;
            parts.push(self.picked(shape, |index| {
                let mut at = index.to_vec();
                at[axis] += begin;
                Some(at)
            })?);
            from += size;
        }
        Some(parts)
    }
}

/// A tensor with another element type.
pub(super) fn cast(x: &Tensor, to: ElementType) -> Option<Tensor> {
    numeric(x)?;
    to.mil()?;
    // A number that is not finite has no integer, and rounding to BFLOAT16 is not done here.
    let integer = to.integer().is_some();
    let rounds = to == ElementType::BFloat16 && x.element() != to;
    if rounds || x.len() > MOST || integer && x.values().iter().any(|v| !v.is_finite()) {
        return None;
    }
    let values = x.values().iter().map(|&v| rounded(to, v)).collect();
    Some(Tensor::known(to, x.shape().to_vec(), values))
}

/// Refuses tensors whose elements are no numbers.
fn numeric(t: &Tensor) -> Option<()> {
    (t.values().len() == t.len()).then_some(())
}

/// The result of `Shape` for these extents.
pub(super) fn shape_tensor(node: &Node, shape: &[i64]) -> Tensor {
    let bound =
        |name: &str, default: i64| if let Some(Attribute::Int(v)) = node.attribute(name) { *v } else { default };
    let rank = shape.len() as i64;
    let (from, _, count) = slice_range(bound("start", 0), bound("end", rank), 1, rank);
    let values: Vec<f64> = shape.iter().skip(from as usize).take(count as usize).map(|&n| n as f64).collect();
    Tensor::known(ElementType::Int64, vec![values.len()], values)
}
