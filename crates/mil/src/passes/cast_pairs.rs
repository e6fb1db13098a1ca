//! `cast_pairs`: removes a cast of a cast if the first one is exact.
//!
//! *Pattern*: `cast(cast(x))` from type A over B to C. *Holds*: every value of A is one of B. If C
//! is A, both casts vanish; otherwise, between floats or between integers, the inner one is left
//! out. fp16→fp32→fp16 vanishes; fp32→fp16→fp32 stays, because it rounds: the pair is removed in
//! one direction only. A direct cast between fp16 and int32 is never made, engines refuse it
//! (mil-text §7). *Numbers*: none change.

use super::cursor::Cursor;
use super::draft::Draft;
use super::pass::{Context, Exactness, Pass};
use crate::error::MilError;
use crate::op;
use crate::program::{Constant, DataType};

pub(super) const PASS: Pass = Pass {
    name: "cast_pairs",
    doc: "removes casts to a wider type and back",
    exactness: Exactness::Bits,
    repeats: true,
    run,
};

fn run(draft: &mut Draft, _: &mut Context<'_>) -> Result<usize, MilError> {
    Ok(draft.each(rule))
}

fn rule(c: &mut Cursor<'_>) -> Option<()> {
    let outer = c.is(op::CAST)?;
    let middle = c.arg(outer, "x")?;
    let x = c.arg(c.def_of(middle, op::CAST)?, "x")?;
    let result = c.result()?;
    let (a, b, d) = (c.ty(x).dtype()?, c.ty(middle).dtype()?, c.ty(result).dtype()?);
    if !holds(b, a) {
        return None;
    }
    if a == d {
        return c.replace(x);
    }
    if a == b || (a.is_float() != d.is_float()) {
        return None;
    }
    let label = c.label();
    let direct = c.insert(op::CAST, &label, [("x", x.into()), ("dtype", Constant::string(d.name()).into())])?;
    c.replace(direct)
}

/// Every value of `narrow` is one of `wide`.
fn holds(wide: DataType, narrow: DataType) -> bool {
    use DataType::*;
    // Bits of a value's magnitude, and whether it may be negative.
    let int = |d| match d {
        Bool => Some((1, false)),
        UInt8 => Some((8, false)),
        UInt16 => Some((16, false)),
        UInt32 => Some((32, false)),
        Int8 => Some((7, true)),
        Int16 => Some((15, true)),
        Int32 => Some((31, true)),
        _ => None,
    };
    match (int(narrow), int(wide)) {
        _ if wide == narrow => true,
        (Some((n, signed)), Some((w, negative))) => wide != Bool && n <= w && (negative || !signed),
        (Some((n, _)), None) => match wide {
            Fp16 => n <= 11,
            Fp32 => n <= 24,
            _ => false,
        },
        (None, None) => (narrow, wide) == (Fp16, Fp32),
        (None, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_type_holds_another() {
        use DataType::*;
        for (wide, narrow) in
            [(Fp32, Fp16), (Int32, Int8), (Int16, UInt8), (Fp16, Int8), (Fp32, UInt16), (Int8, Bool), (Fp16, UInt8)]
        {
            assert!(holds(wide, narrow), "{wide} {narrow}");
            assert!(!holds(narrow, wide), "{narrow} {wide}");
        }
        for (wide, narrow) in
            [(UInt8, Int8), (Fp16, Int16), (Fp32, Int32), (UInt32, Int32), (Int32, UInt32), (Bf16, Fp16)]
        {
            assert!(!holds(wide, narrow), "{wide} {narrow}");
        }
    }
}
