//! Constants, and what is computed when the program is made: arithmetic on shapes, mostly.
//!
//! An operation is folded if all its operands are known and small. Numbers are rounded to their
//! type after each operation.

use std::borrow::Cow;
use std::rc::Rc;

use super::known::{Known, is_float, range, rounded};
use super::shape::{bounds, target};
use super::state::{Built, Lower, Meaning, Role, normal, rejected, unmapped};
use crate::bytecode::ResourceValue;
use crate::dialect::{ElementType, Field};
use ferrane_mil::emit::elements;

/// Larger tensors are computed by the program.
const MOST: usize = 1 << 12;

/// The elements of a constant.
pub(super) fn constant<'a>(l: &mut Lower<'a>) -> Built<Vec<Meaning<'a>>> {
    let Some(tensor) = l.result(0) else { return unmapped("it is no tensor") };
    let shape: Option<Vec<usize>> = tensor.shape.iter().map(|n| usize::try_from((*n)?).ok()).collect();
    let Some(shape) = shape else { return rejected("a constant of unknown extents") };
    let Some(id) = l.file.property(l.op, "value") else { return rejected("a constant without a value") };
    let Some(value) = l.attribute(id) else { return unmapped("the form of its value is not known") };
    let (known, length) = match value.fields.as_slice() {
        [Field::Byte(splat), Field::Bytes(Cow::Borrowed(bytes))] => {
            (Known::stored(tensor.element, shape, bytes, *splat != 0), bytes.len())
        }
        [Field::Resource(id)] => match l.file.resource(*id).map(|r| &r.value) {
            Some(ResourceValue::Blob { bytes, .. }) => (Known::packed(tensor.element, shape, bytes), bytes.len()),
            _ => return unmapped("its elements are in a resource that is no blob"),
        },
        _ => return unmapped("the form of its value is not known"),
    };
    match known {
        Some(known) => Ok(vec![l.known_entry(known)]),
        None => rejected(format!("{length} bytes for its elements")),
    }
}

/// Operations of single elements, by their names without the prefix.
#[rustfmt::skip]
const ARITHMETIC: [&str; 19] = [
    "add", "sub", "mul", "divide", "floor_divide", "modulo", "maximum", "minimum", "pow", "equal", "not_equal", "greater",
    "logical_and", "logical_or", "logical_xor", "not", "abs", "where", "cast",
];

/// The results of the operation if they can be computed now.
pub(super) fn folded<'a>(l: &Lower<'a>, name: &str) -> Built<Option<Vec<Known<'a>>>> {
    if name == "primitive.get_shape_v2" {
        let Ok(shape) = l.extents(0) else { return Ok(None) };
        let extents: Vec<f64> = shape.iter().map(|&n| n as f64).collect();
        return Ok(Some(vec![Known::new(ElementType::UInt32, vec![extents.len()], extents)]));
    }
    let mut operands = Vec::with_capacity(l.count());
    for i in 0..l.count() {
        match l.entry(i)?.is {
            Role::Known(known) if known.len() <= MOST => operands.push(known),
            _ => return Ok(None),
        }
    }
    let Some(element) = l.result(0).map(|t| t.element) else { return Ok(None) };
    if operands.is_empty() || element == ElementType::Complex64 {
        return Ok(None);
    }
    let name = name.strip_prefix("primitive.").or_else(|| name.strip_prefix("broadcasting_")).unwrap_or(name);
    let name = name.rsplit_once("_v").map_or(name, |(name, _)| name);
    let fold = Fold { operands: &operands, element };
    let found = if ARITHMETIC.contains(&name) { fold.arithmetic(name) } else { fold.moved(name) };
    let found = found.filter(|(shape, values)| elements(shape) == Some(values.len()));
    Ok(found.map(|(shape, values)| {
        let values = values.into_iter().map(|v| rounded(element, v)).collect();
        vec![Known::new(element, shape, values)]
    }))
}

/// The shape and the elements of a result.
type Folded = Option<(Vec<usize>, Vec<f64>)>;

/// The operands of an operation that is being folded.
struct Fold<'f, 'a> {
    operands: &'f [Rc<Known<'a>>],
    /// The element type of the result.
    element: ElementType,
}

/// The common shape of two shapes that broadcast.
fn common(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let extent = |shape: &[usize], i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
    (0..rank)
        .map(|i| match (extent(a, i), extent(b, i)) {
            (a, b) if a == b || b == 1 => Some(a),
            (1, b) => Some(b),
            _ => None,
        })
        .collect()
}

/// The indices of element `flat` of a tensor.
fn unravel(mut flat: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for axis in (0..shape.len()).rev() {
        index[axis] = flat % shape[axis].max(1);
        flat /= shape[axis].max(1);
    }
    index
}

/// The place of indices in a tensor, whose axes of 1 repeat and which may have fewer axes.
fn ravel(index: &[usize], shape: &[usize]) -> Option<usize> {
    let new = index.len().checked_sub(shape.len())?;
    index[new..].iter().zip(shape).try_fold(0usize, |flat, (&i, &n)| {
        let i = if n == 1 { 0 } else { i };
        (i < n).then(|| flat * n + i)
    })
}

fn count(shape: &[usize]) -> Option<usize> {
    elements(shape).filter(|&n| n <= MOST)
}

impl Fold<'_, '_> {
    fn ints(&self, i: usize) -> Option<Vec<i64>> {
        Some(self.operands.get(i)?.ints())
    }

    fn axis(&self, i: usize, rank: usize) -> Option<usize> {
        match self.ints(i)?.as_slice() {
            [axis] => normal(*axis, rank).ok(),
            _ => None,
        }
    }

    fn axes(&self, i: usize, rank: usize) -> Option<Vec<usize>> {
        self.ints(i)?.iter().map(|&axis| normal(axis, rank).ok()).collect()
    }

    /// Element by element, over operands that broadcast.
    fn arithmetic(&self, name: &str) -> Folded {
        let of_floats = is_float(self.operands.first()?.element);
        let apply = |v: &[f64]| -> Option<f64> {
            Some(match (name, v) {
                ("add", [a, b]) => a + b,
                ("sub", [a, b]) => a - b,
                ("mul", [a, b]) => a * b,
                ("divide", [a, b]) if of_floats => a / b,
                ("divide", [a, b]) if *b != 0.0 => (a / b).trunc(),
                ("floor_divide", [a, b]) if of_floats || *b != 0.0 => (a / b).floor(),
                ("modulo", [a, b]) if of_floats || *b != 0.0 => a % b,
                ("maximum", [a, b]) => a.max(*b),
                ("minimum", [a, b]) => a.min(*b),
                ("pow", [a, b]) => a.powf(*b),
                ("equal", [a, b]) => f64::from(u8::from(a == b)),
                ("not_equal", [a, b]) => f64::from(u8::from(a != b)),
                ("greater", [a, b]) => f64::from(u8::from(a > b)),
                ("logical_and", [a, b]) => a * b,
                ("logical_or", [a, b]) => a.max(*b),
                ("logical_xor", [a, b]) => f64::from(u8::from(a != b)),
                ("not", [a]) => 1.0 - a,
                ("abs", [a]) => a.abs(),
                ("where", [c, a, b]) => {
                    if *c != 0.0 {
                        *a
                    } else {
                        *b
                    }
                }
                ("cast", [a]) => match range(self.element) {
                    // What does not fit becomes the nearest number that does.
                    Some(_) if a.is_nan() => return None,
                    Some((low, high)) => a.trunc().clamp(low, high),
                    None => *a,
                },
                _ => return None,
            })
        };
        let mut shape = Vec::new();
        for operand in self.operands {
            shape = common(&shape, &operand.shape)?;
        }
        let mut values = Vec::with_capacity(count(&shape)?);
        for flat in 0..count(&shape)? {
            let index = unravel(flat, &shape);
            let operands: Option<Vec<f64>> =
                self.operands.iter().map(|o| o.values().get(ravel(&index, &o.shape)?).copied()).collect();
            values.push(apply(&operands?)?);
        }
        Some((shape, values))
    }

    /// Elements that change their place, and reductions.
    fn moved(&self, name: &str) -> Folded {
        let x = self.operands.first()?;
        let rank = x.shape.len();
        let plain = |shape: Vec<usize>| Some((shape, x.values().to_vec()));
        match name {
            "reshape" => plain(target(&self.ints(1)?, x.len())?),
            "expand_dims" => {
                let all = rank.checked_add(self.operands.get(1)?.len())?;
                let axes = self.axes(1, all)?;
                let mut rest = x.shape.iter().copied();
                let shape = (0..all).map(|i| if axes.contains(&i) { Some(1) } else { rest.next() });
                plain(shape.collect::<Option<Vec<_>>>()?)
            }
            "shrink_dims" => {
                let axes = self.axes(1, rank)?;
                plain((0..rank).filter(|i| !axes.contains(i)).map(|i| x.shape[i]).collect())
            }
            "transpose" => {
                let order = self.axes(1, rank).filter(|o| o.len() == rank)?;
                let shape: Vec<usize> = order.iter().map(|&p| x.shape[p]).collect();
                self.picked(shape, |index| {
                    let mut from = vec![0; rank];
                    order.iter().zip(index).for_each(|(&p, &i)| from[p] = i);
                    Some(from)
                })
            }
            "slice" => {
                let (starts, ends, steps) = (self.ints(1)?, self.ints(2)?, self.ints(3)?);
                let bound = |i: usize| bounds(*starts.get(i)?, *ends.get(i)?, *steps.get(i)?, x.shape[i]);
                let found = (0..rank).map(bound).collect::<Option<Vec<_>>>()?;
                let place = |(i, first): (&usize, i64), step: i64| usize::try_from(first + *i as i64 * step).ok();
                self.picked(found.iter().map(|f| f.1).collect(), |index| {
                    index.iter().zip(&found).zip(&steps).map(|((i, f), &step)| place((i, f.0), step)).collect()
                })
            }
            "broadcast_to" | "broadcast_in_dims" => self.broadcast(name),
            "concat" => self.concat(),
            "gather_nd" => self.gather(),
            "broadcast_shapes" => {
                let extents =
                    |i: usize| self.ints(i)?.iter().map(|&n| usize::try_from(n).ok()).collect::<Option<Vec<_>>>();
                let shape = common(&extents(0)?, &extents(1)?)?;
                Some((vec![shape.len()], shape.iter().map(|&n| n as f64).collect()))
            }
            "range" => {
                let scalar = |i: usize| self.operands.get(i)?.first();
                let (start, end, step) = (scalar(0)?, scalar(1)?, scalar(2)?);
                let length = ((end - start) / step).ceil().max(0.0);
                let length = if length <= MOST as f64 { length as usize } else { return None };
                Some((vec![length], (0..length).map(|i| start + i as f64 * step).collect()))
            }
            "reduce_sum" => self.reduced(0.0, |a, b| a + b),
            "reduce_product" => self.reduced(1.0, |a, b| a * b),
            "reduce_max" => self.reduced(f64::NEG_INFINITY, f64::max),
            "reduce_min" => self.reduced(f64::INFINITY, f64::min),
            _ => None,
        }
    }

    /// A tensor of `shape` whose elements are those of operand 0 at other indices.
    fn picked(&self, shape: Vec<usize>, from: impl Fn(&[usize]) -> Option<Vec<usize>>) -> Folded {
        let x = self.operands.first()?;
        let pick = |flat| x.values().get(ravel(&from(&unravel(flat, &shape))?, &x.shape)?).copied();
        let values = (0..count(&shape)?).map(pick).collect::<Option<Vec<_>>>()?;
        Some((shape, values))
    }

    fn broadcast(&self, name: &str) -> Folded {
        let x = self.operands.first()?;
        let sizes = self.ints(1)?.iter().map(|&n| usize::try_from(n).ok()).collect::<Option<Vec<_>>>()?;
        let shape = if name == "broadcast_to" {
            sizes
        } else {
            let mut shape = x.shape.clone();
            for (size, axis) in sizes.iter().zip(self.axes(2, shape.len())?) {
                shape[axis] = *size;
            }
            shape
        };
        self.picked(shape, |index| Some(index.to_vec()))
    }

    fn concat(&self) -> Folded {
        let parts = self.operands.get(1..)?;
        let first = parts.first()?;
        let axis = self.axis(0, first.shape.len())?;
        let mut shape = first.shape.clone();
        let alike = |s: &[usize]| s.len() == shape.len() && (0..s.len()).all(|i| i == axis || s[i] == shape[i]);
        if !parts.iter().all(|p| alike(&p.shape)) {
            return None;
        }
        shape[axis] = parts.iter().map(|p| p.shape[axis]).sum();
        let mut values = Vec::with_capacity(count(&shape)?);
        for flat in 0..count(&shape)? {
            let mut index = unravel(flat, &shape);
            let part = parts.iter().find(|p| {
                let inside = index[axis] < p.shape[axis];
                if !inside {
                    index[axis] -= p.shape[axis];
                }
                inside
            })?;
            values.push(*part.values().get(ravel(&index, &part.shape)?)?);
        }
        Some((shape, values))
    }

    fn gather(&self) -> Folded {
        let (x, tuples) = (self.operands.first()?, self.operands.get(1)?);
        let (&depth, rows) = tuples.shape.split_last()?;
        let mut shape = rows.to_vec();
        shape.extend(x.shape.get(depth..)?);
        let indices = tuples.ints();
        self.picked(shape, |index| {
            let row = ravel(&index[..rows.len()], rows)?;
            let tuple = indices.get(row * depth..(row + 1) * depth)?.iter().zip(&x.shape);
            let mut from = tuple.map(|(&i, &n)| normal(i, n).ok()).collect::<Option<Vec<_>>>()?;
            from.extend(&index[rows.len()..]);
            Some(from)
        })
    }

    /// Over the axes of operand 1, which are kept.
    fn reduced(&self, start: f64, join: impl Fn(f64, f64) -> f64) -> Folded {
        let x = self.operands.first()?;
        let axes = self.axes(1, x.shape.len())?;
        let shape: Vec<usize> =
            x.shape.iter().enumerate().map(|(i, &n)| if axes.contains(&i) { 1 } else { n }).collect();
        let mut values = vec![start; count(&shape)?];
        for (flat, &value) in x.values().iter().enumerate() {
            let place = ravel(&unravel(flat, &x.shape), &shape)?;
            values[place] = join(values[place], value);
        }
        Some((shape, values))
    }
}
