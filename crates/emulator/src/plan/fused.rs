//! Recognizes groups that every transformer has by what their instructions compute, in any order.

use ferrane_host::fused::Gate;
use ferrane_host::rounded;

use crate::ir::{Binary, Elementwise, FusedLoop, Group, Instruction, Reg, Unary};

/// The content of a register as a term over the registers of reads. All terms except the sigmoid
/// are rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Term {
    Read(Reg),
    Product([Reg; 2]),
    /// The first product plus the second, or minus if the flag is set.
    Total(bool, [[Reg; 2]; 2]),
    Sigmoid(Reg),
    Silu(Reg),
    Gate(Gate, [Reg; 2]),
}

/// The fused loop that computes a group of fp16 values, if there is one.
pub(super) fn of(group: &Group) -> Option<FusedLoop> {
    let inner = group.nest.depth() - 1;
    let side_by_side = group.nest.strides.iter().all(|s| s[inner] == 1 && s.iter().all(|&s| s >= 0));
    if !side_by_side || !group.constants.is_empty() {
        return None;
    }
    let mut terms = vec![None; group.registers];
    for &reg in &group.loads {
        terms[reg as usize] = Some(Term::Read(reg));
    }
    for instruction in &group.instructions {
        terms[instruction.to as usize] = Some(term(instruction, &terms)?);
    }
    let results: Vec<Term> = group.stores.iter().map(|&reg| terms[reg as usize]).collect::<Option<_>>()?;
    let number = |reg: Reg| group.loads.iter().position(|&load| load == reg);
    match (&results[..], &group.joined[..]) {
        (&[Term::Gate(f, [x, y])], []) => Some(FusedLoop::Gate(f, [number(x)?, number(y)?])),
        (&[Term::Total(minus, low), Term::Total(plus, high)], [_]) if minus != plus => {
            let (back, [a, b, cos, sin]) = rotation(minus, low, high)?;
            Some(FusedLoop::Rotation { back, from: [number(a)?, number(b)?, number(cos)?, number(sin)?] })
        }
        _ => None,
    }
}

fn term(instruction: &Instruction, terms: &[Option<Term>]) -> Option<Term> {
    use Term::{Product, Read, Total};
    let [a, b, c] = instruction.from.map(|reg| terms[reg as usize]);
    let product = |a: Option<Term>, b: Option<Term>| match (a?, b?) {
        (Read(a), Read(b)) => Some([a, b]),
        _ => None,
    };
    Some(match (instruction.op, instruction.round) {
        (Elementwise::Unary(Unary::Sigmoid), false) => match a? {
            Read(x) => Term::Sigmoid(x),
            _ => return None,
        },
        (Elementwise::Unary(Unary::Silu), true) => match a? {
            Read(x) => Term::Silu(x),
            _ => return None,
        },
        (Elementwise::Binary(Binary::Mul), true) => match (a?, b?) {
            (Term::Silu(x), Read(y)) | (Read(y), Term::Silu(x)) => Term::Gate(Gate::Silu, [x, y]),
            _ => Product(product(a, b)?),
        },
        (Elementwise::Binary(op @ (Binary::Add | Binary::Sub)), true) => match (a?, b?) {
            (Product(a), Product(b)) => Total(op == Binary::Sub, [a, b]),
            _ => return None,
        },
        (Elementwise::Pair([rounded::Binary::Mul, rounded::Binary::Mul], true), _) => match (a?, b?, c?) {
            (Term::Sigmoid(x), Read(again), Read(y)) if x == again => Term::Gate(Gate::Sigmoid, [x, y]),
            _ => return None,
        },
        (Elementwise::Pair([rounded::Binary::Mul, op], false), _) if op != rounded::Binary::Mul => {
            let Product(last) = c? else { return None };
            Total(op == rounded::Binary::Sub, [product(a, b)?, last])
        }
        _ => return None,
    })
}

/// `[a, b, cos, sin]` and whether the rotation is an inverse one, if these sums of products are a
/// rotation: the first is `a · cos - b · sin`, the second `b · cos + a · sin`, or both have the
/// other sign.
fn rotation(minus: bool, low: [[Reg; 2]; 2], high: [[Reg; 2]; 2]) -> Option<(bool, [Reg; 4])> {
    let either = |[a, b]: [Reg; 2]| [[a, b], [b, a]];
    let same = |a: [Reg; 2], b: [Reg; 2]| a == b || a == [b[1], b[0]];
    // Where products are added they may stand in any order.
    let orders = |total: [[Reg; 2]; 2], any: bool| [total, if any { [total[1], total[0]] } else { total }];
    for low in orders(low, !minus) {
        for [a, cos] in either(low[0]) {
            for [b, sin] in either(low[1]) {
                let fits = |high: [[Reg; 2]; 2]| same(high[0], [b, cos]) && same(high[1], [a, sin]);
                if orders(high, minus).into_iter().any(fits) {
                    return Some((!minus, [a, b, cos, sin]));
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sum of two products in a canonical order.
    fn plain(minus: bool, total: [[Reg; 2]; 2]) -> (bool, [[Reg; 2]; 2]) {
        let mut total = total.map(|[a, b]| [a.min(b), a.max(b)]);
        if !minus {
            total.sort_unstable();
        }
        (minus, total)
    }

    #[test]
    fn rotations_are_found_in_any_order() {
        let (a, b, cos, sin) = (3, 1, 0, 2);
        for (minus, low, high) in [
            (true, [[a, cos], [b, sin]], [[b, cos], [a, sin]]),
            (true, [[cos, a], [sin, b]], [[sin, a], [b, cos]]),
            (true, [[b, sin], [a, cos]], [[b, cos], [a, sin]]),
            (false, [[a, cos], [b, sin]], [[b, cos], [a, sin]]),
            (false, [[sin, b], [cos, a]], [[cos, b], [sin, a]]),
        ] {
            let (back, [a, b, cos, sin]) = rotation(minus, low, high).unwrap();
            assert_eq!(plain(!back, [[a, cos], [b, sin]]), plain(minus, low));
            assert_eq!(plain(back, [[b, cos], [a, sin]]), plain(!minus, high));
        }
    }

    #[test]
    fn pairs_of_sums_that_are_no_rotation_have_no_form() {
        let (a, b, cos, sin) = (0, 1, 2, 3);
        assert_eq!(rotation(true, [[a, cos], [b, sin]], [[a, cos], [b, sin]]), None);
        assert_eq!(rotation(true, [[a, cos], [b, sin]], [[b, cos], [b, sin]]), None);
        assert_eq!(rotation(false, [[a, cos], [b, sin]], [[a, sin], [b, sin]]), None);
    }
}
