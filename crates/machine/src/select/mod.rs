//! What a machine's compiler does with each op of a function, said once.
//!
//! Checker, cost model and hardware numerics read a [`Selection`]; none guesses the compiler anew.
//! It says which unit of the engine runs an op, what the profile knows against it, and how much
//! arithmetic and traffic the op is when it runs by itself. A selection is a reading of what is
//! published (mil-text §8, numerics §2, §6, benchmarks §15), not the compiler itself.

mod unit;
mod work;

use ferrane_mil::{Function, Op, OpId};
use serde::Serialize;

use crate::profile::{Acceptance, Profile};

pub use unit::Unit;
pub use work::Work;

/// What happens to one op.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Selected {
    /// The unit that runs it.
    pub unit: Unit,
    /// What the machine does with the op as such; its arguments may still be refused by a rule.
    pub acceptance: Acceptance,
    /// Arithmetic and traffic. Zero where an extent is unknown.
    pub work: Work,
    /// Ids of the claims behind an `acceptance` that is not native.
    pub claims: Vec<String>,
}

/// What happens to the ops of a function, nested blocks included, by [`OpId`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Selection {
    ops: Vec<Selected>,
}

impl Selection {
    /// What happens to an op.
    pub fn get(&self, op: OpId) -> Option<&Selected> {
        self.ops.get(op.index())
    }

    /// All of them, by [`OpId`].
    pub fn iter(&self) -> impl Iterator<Item = (OpId, &Selected)> {
        self.ops.iter().enumerate().map(|(i, s)| (OpId(i as u32), s))
    }
}

/// Reads a function as the profile's compiler does. Bodies of other opsets and ops that no block
/// uses are read, too.
pub fn select(function: &Function, profile: &Profile) -> Selection {
    let one = |op: &Op| {
        let unit = Unit::of(function, op);
        // Most ops of a program are constants, which nobody lists.
        let known = if op.name == "const" { None } else { profile.op(&op.name) };
        let refused = known.filter(|k| k.value != Acceptance::Native);
        Selected {
            unit,
            acceptance: refused.map_or(Acceptance::Native, |k| k.value),
            work: Work::of(function, op, unit),
            claims: refused.map(|k| k.claims.clone()).unwrap_or_default(),
        }
    };
    Selection { ops: function.ops.iter().map(one).collect() }
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
