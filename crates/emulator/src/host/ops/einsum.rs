//! Sums of products by an equation.
//!
//! Coremltools 9.0 knows `nchw,nwhu->nchu` and `chw,whr->chr`; here any equation of `numpy.einsum` with letters is computed, with
//! repeated letters, an ellipsis, extents of 1 that are broadcast, any number of operands, and the result left out. Two operands
//! become a batch of matrix products; more are taken from left to right.

use ferrane_device::Result;

use super::super::index::{Walk, strides};
use super::super::product::Matrix;
use super::super::{Call, Kernel, Tensor};

pub(super) const FAMILY: &[(&str, Kernel)] = &[("einsum", einsum)];

/// The name of an axis: a letter, or a place in the ellipsis counted from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    /// Sorts first, outermost first: where the result is left out, these lead it.
    Ellipsis(std::cmp::Reverse<usize>),
    Letter(char),
}

/// Values with a name for each axis, which are all different.
struct Named {
    labels: Vec<Label>,
    shape: Vec<usize>,
    values: Vec<f32>,
}

impl Named {
    fn extent(&self, label: Label) -> Option<usize> {
        self.labels.iter().position(|&l| l == label).map(|at| self.shape[at])
    }

    /// The values with the axes in this order; an axis that is not there is one of extent 1, and any extent of 1 is stretched.
    fn arranged(&self, call: &Call<'_>, axes: &[(Label, usize)]) -> Result<Vec<f32>> {
        let dense = strides(&self.shape);
        let step = |&(label, _): &(Label, usize)| match self.labels.iter().position(|&l| l == label) {
            Some(at) if self.shape[at] != 1 => dense[at],
            _ => 0,
        };
        let steps: Vec<isize> = axes.iter().map(step).collect();
        let shape: Vec<usize> = axes.iter().map(|a| a.1).collect();
        call.elements(&shape)?;
        Ok(Walk::new(&shape, &steps, 0).map(|i| self.values[i]).collect())
    }

    /// Without the axes that are not kept: summed up.
    fn summed(self, call: &Call<'_>, keep: impl Fn(Label) -> bool) -> Result<Named> {
        if self.labels.iter().all(|&l| keep(l)) {
            return Ok(self);
        }
        let pairs: Vec<(Label, usize)> = self.labels.iter().copied().zip(self.shape.iter().copied()).collect();
        let (kept, gone): (Vec<_>, Vec<_>) = pairs.into_iter().partition(|p| keep(p.0));
        let each: usize = gone.iter().map(|p| p.1).product();
        let count: usize = kept.iter().map(|p| p.1).product();
        let order: Vec<_> = kept.iter().chain(&gone).copied().collect();
        let values = self.arranged(call, &order)?;
        let ones = vec![1.0f32; each];
        let mut sums = vec![0.0f32; count];
        call.product(Matrix::dense(&values, count, each), Matrix::dense(&ones, each, 1), &mut sums)?;
        let (labels, shape) = kept.into_iter().unzip();
        Ok(Named { labels, shape, values: sums })
    }
}

/// The labels of one operand, of rank `rank` where that is known.
fn labels(call: &Call<'_>, text: &str, rank: usize) -> Result<Vec<Label>> {
    let wrong = || call.fail(format!("`{text}` does not name {rank} axes"));
    let letters = |part: &str| -> Result<Vec<Label>> {
        part.chars().map(|c| if c.is_alphabetic() { Ok(Label::Letter(c)) } else { Err(wrong()) }).collect()
    };
    let Some((front, back)) = text.split_once("...") else {
        let found = letters(text)?;
        return if found.len() == rank { Ok(found) } else { Err(wrong()) };
    };
    let (mut front, back) = (letters(front)?, letters(back)?);
    let dots = rank.checked_sub(front.len() + back.len()).ok_or_else(wrong)?;
    front.extend((0..dots).rev().map(|i| Label::Ellipsis(std::cmp::Reverse(i))));
    front.extend(back);
    Ok(front)
}

/// An operand whose axes have different labels: of a label that is repeated, the diagonal.
fn named(call: &Call<'_>, x: &Tensor, labels: &[Label]) -> Result<Named> {
    let values = call.reals("values", x)?;
    let dense = strides(&x.shape);
    let (mut unique, mut shape, mut steps): (Vec<Label>, Vec<usize>, Vec<isize>) = Default::default();
    for (axis, &label) in labels.iter().enumerate() {
        match unique.iter().position(|&l| l == label) {
            Some(at) if shape[at] == x.shape[axis] => steps[at] += dense[axis],
            Some(_) => return Err(call.fail("a repeated label has two extents")),
            None => {
                unique.push(label);
                shape.push(x.shape[axis]);
                steps.push(dense[axis]);
            }
        }
    }
    let values = Walk::new(&shape, &steps, 0).map(|i| values[i]).collect();
    Ok(Named { labels: unique, shape, values })
}

/// The extent of a label in two operands.
fn common(call: &Call<'_>, a: Option<usize>, b: Option<usize>) -> Result<usize> {
    match (a.unwrap_or(1), b.unwrap_or(1)) {
        (1, n) | (n, 1) => Ok(n),
        (n, m) if n == m => Ok(n),
        (n, m) => Err(call.fail(format!("one label has the extents {n} and {m}"))),
    }
}

/// The product of two operands, summed over the labels that `keep` does not want.
fn contracted(call: &Call<'_>, a: Named, b: Named, keep: impl Fn(Label) -> bool) -> Result<Named> {
    // What only one operand has and nobody wants is summed before.
    let a_labels = a.labels.clone();
    let a = a.summed(call, |l| keep(l) || b.labels.contains(&l))?;
    let b = b.summed(call, |l| keep(l) || a_labels.contains(&l))?;
    let (mut batch, mut rows, mut inner, mut cols) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for &label in &a.labels {
        let n = common(call, a.extent(label), b.extent(label))?;
        match (b.labels.contains(&label), keep(label)) {
            (true, true) => batch.push((label, n)),
            (true, false) => inner.push((label, n)),
            (false, _) => rows.push((label, n)),
        }
    }
    cols.extend(b.labels.iter().zip(&b.shape).filter(|(l, _)| !a.labels.contains(l)).map(|(&l, &n)| (l, n)));
    let size = |axes: &[(Label, usize)]| axes.iter().map(|a| a.1).product::<usize>();
    let (items, m, k, n) = (size(&batch), size(&rows), size(&inner), size(&cols));
    let left = a.arranged(call, &[batch.as_slice(), &rows, &inner].concat())?;
    let right = b.arranged(call, &[batch.as_slice(), &inner, &cols].concat())?;
    let mut values = vec![0.0f32; call.elements(&[items, m, n])?];
    for item in 0..items {
        let lhs = Matrix::dense(&left[item * m * k..(item + 1) * m * k], m, k);
        let rhs = Matrix::dense(&right[item * k * n..(item + 1) * k * n], k, n);
        call.product(lhs, rhs, &mut values[item * m * n..(item + 1) * m * n])?;
    }
    let (labels, shape) = [batch, rows, cols].concat().into_iter().unzip();
    Ok(Named { labels, shape, values })
}

/// `einsum` (coremltools 9.0).
fn einsum(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let operands = call.list("values");
    let equation: String = call.text("equation")?.chars().filter(|c| !c.is_whitespace()).collect();
    let (inputs, output) = match equation.split_once("->") {
        Some((inputs, output)) => (inputs, Some(output)),
        None => (equation.as_str(), None),
    };
    let parts: Vec<&str> = inputs.split(',').collect();
    let Some(first) = operands.first().filter(|_| parts.len() == operands.len()) else {
        return Err(call.fail(format!("`{equation}` is not of {} operands", operands.len())));
    };
    let mut all = Vec::with_capacity(parts.len());
    for (part, x) in parts.iter().zip(operands) {
        all.push(labels(call, part, x.shape.len())?);
    }
    let seen: Vec<Label> = all.concat();
    let dots = |list: &[Label]| list.iter().filter(|l| matches!(l, Label::Ellipsis(_))).count();
    let wanted = match output {
        Some(text) => {
            let letters = text.replacen("...", "", 1).chars().count();
            let ellipsis = if text.contains("...") { all.iter().map(|l| dots(l)).max().unwrap_or(0) } else { 0 };
            labels(call, text, letters + ellipsis)?
        }
        None => {
            let mut once: Vec<Label> = seen.clone();
            once.sort();
            once.dedup();
            once.retain(|l| matches!(l, Label::Ellipsis(_)) || seen.iter().filter(|s| *s == l).count() == 1);
            once
        }
    };
    if let Some(l) = wanted.iter().find(|l| !seen.contains(l) || wanted.iter().filter(|w| w == l).count() > 1) {
        return Err(call.fail(format!("the result of `{equation}` cannot have the label {l:?}")));
    }
    let mut sum = named(call, first, &all[0])?;
    for (i, x) in operands.iter().enumerate().skip(1) {
        let next = named(call, x, &all[i])?;
        sum = contracted(call, sum, next, |l| wanted.contains(&l) || all[i + 1..].iter().any(|o| o.contains(&l)))?;
    }
    let sum = sum.summed(call, |l| wanted.contains(&l))?;
    let axes: Vec<(Label, usize)> = wanted.iter().map(|&l| (l, sum.extent(l).unwrap_or(1))).collect();
    let shape: Vec<usize> = axes.iter().map(|a| a.1).collect();
    Ok(vec![Tensor::floats(first.dtype, &shape, sum.arranged(call, &axes)?)])
}
