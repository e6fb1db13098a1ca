//! Selection: how the machine's compiler runs each op of a function, determined once.
//!
//! Checker, cost model and hardware numerics read a [`Selection`], so none of them models the
//! compiler again. It states which unit of the engine runs an op, the profile's acceptance of the
//! op, and its arithmetic and traffic when it runs alone. A selection is a reading of what is
//! published (mil-text §8, numerics §2, §6, benchmarks §15), not the compiler itself.

mod unit;
mod work;

use std::collections::HashMap;

use ferrane_mil::{Function, OpId};
use serde::Serialize;

use crate::profile::{Acceptance, Profile, Sourced};

pub use unit::Unit;
pub use work::Work;

/// The selection for one op.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Selected {
    /// The unit that runs it.
    pub unit: Unit,
    /// The acceptance of the op as such; a rule may still refuse its arguments.
    pub acceptance: Acceptance,
    /// Arithmetic and traffic; zero if an extent is unknown.
    pub work: Work,
    /// The ids of the claims for an `acceptance` that is not native.
    pub claims: Vec<String>,
}

/// The selections of a function's ops, including those of nested blocks, by [`OpId`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Selection {
    ops: Vec<Selected>,
    /// The unit of each op once more: a look at them all stays in the caches.
    #[serde(skip)]
    units: Vec<Unit>,
    /// A number for the name of each op, from 0 without gaps.
    #[serde(skip)]
    names: Vec<u32>,
}

impl Selection {
    /// The selection for an op.
    pub fn get(&self, op: OpId) -> Option<&Selected> {
        self.ops.get(op.index())
    }

    /// The unit of an op.
    pub fn unit(&self, op: OpId) -> Option<Unit> {
        self.units.get(op.index()).copied()
    }

    /// A number for the name of an op; names have numbers from 0 without gaps.
    pub(crate) fn name_number(&self, op: OpId) -> usize {
        self.names.get(op.index()).map_or(0, |number| *number as usize)
    }

    /// All selections with their ops, sorted by [`OpId`].
    pub fn iter(&self) -> impl Iterator<Item = (OpId, &Selected)> {
        self.ops.iter().enumerate().map(|(i, s)| (OpId(i as u32), s))
    }
}

/// What follows from an op's name alone.
#[derive(Clone, Copy)]
struct Named<'p> {
    number: u32,
    unit: Unit,
    /// The profile's entry, unless it says that the op is native.
    refused: Option<&'p Sourced<Acceptance>>,
}

impl<'p> Named<'p> {
    fn of(name: &str, number: usize, profile: &'p Profile) -> Named<'p> {
        let refused = profile.op(name).filter(|known| known.value != Acceptance::Native);
        Named { number: number as u32, unit: Unit::named(name), refused }
    }
}

/// Selects every op of a function for a profile. Bodies of other opsets and ops outside of blocks
/// are included.
pub fn select(function: &Function, profile: &Profile) -> Selection {
    // Programs have many ops of few names, many of them in runs: each name is looked up once.
    let mut names: HashMap<&str, Named<'_>> = HashMap::new();
    let count = function.ops.len();
    let (mut ops, mut units, mut numbers) =
        (Vec::with_capacity(count), Vec::with_capacity(count), Vec::with_capacity(count));
    for run in function.ops.chunk_by(|a, b| a.name == b.name) {
        let name = run[0].name.as_str();
        let number = names.len();
        let &mut Named { number, unit, refused } =
            names.entry(name).or_insert_with(|| Named::of(name, number, profile));
        for op in run {
            let unit = unit.for_arguments(function, op);
            // An op that comes later may be folded, too.
            let folded = |op: OpId| units.get(op.index()).is_none_or(|unit| *unit == Unit::Folded);
            ops.push(Selected {
                unit,
                acceptance: refused.map_or(Acceptance::Native, |k| k.value),
                work: Work::with(function, op, unit, folded),
                claims: refused.map(|k| k.claims.clone()).unwrap_or_default(),
            });
            units.push(unit);
            numbers.push(number);
        }
    }
    Selection { ops, units, names: numbers }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrane_mil::{Builder, DataType, Opset, Type};

    #[test]
    fn units_and_work() {
        let mut b = Builder::new("main", Opset::IOS18);
        let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 8, 1, 64])).unwrap();
        let w = b.input("w", Type::tensor(DataType::Fp16, &[16, 8, 1, 1])).unwrap();
        let y = b.op("conv", "y", [("x", x.into()), ("weight", w.into())]).unwrap();
        let z = b.op("sigmoid", "z", [("x", y.into())]).unwrap();
        let p = b.finish(&[("z", z)]).unwrap();
        let f = &p.functions[0];
        let selection = select(f, &Profile::named("m4").unwrap());
        let find = |name| selection.iter().find(|(id, _)| f.op(*id).name == name).unwrap().1;
        let conv = find("conv");
        assert_eq!((conv.unit, conv.work.macs), (Unit::Mac, 16 * 8 * 64));
        assert_eq!((conv.work.read, conv.work.weights, conv.work.written), (2 * (8 * 64 + 16 * 8), 0, 2 * 16 * 64));
        assert_eq!((find("sigmoid").unit, find("sigmoid").work.elements), (Unit::Table, 16 * 64));
    }
}
