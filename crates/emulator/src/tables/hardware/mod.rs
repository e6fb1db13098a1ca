//! The arithmetic of a machine: [`ferrane_arith`] over rows, registers and matrices.
//!
//! It applies to fp16 values; values that a program types fp32 are computed as under `fast`,
//! because the engine has no such type. A function of one fp16 value has 65,536 results: the scalar
//! rules compute them once, and then they are looked up. Products go through `ferrane_host::grid`;
//! where a partial sum might overflow, the scalar rules decide element by element.

mod elementwise;
mod exact;
mod products;
mod rows;
mod rules;

use std::sync::{Arc, RwLock};

use ferrane_arith::Rules;
use ferrane_host::vectorize;

use crate::ir::Unary;

pub(crate) use rules::rules;

/// The number of fp16 values that have an exact sum in fp64: they are multiples of 2⁻²⁴ below 2¹⁶.
pub(crate) const EXACT: usize = 1 << 13;

/// Number of fp16 values, and so of the results of a function.
const HALVES: usize = 1 << 16;

/// The results of a function as an array: no index can be out of range then, and loops vectorize.
fn results(function: &[f32]) -> &[f32; HALVES] {
    const NONE: &[f32; HALVES] = &[0.0; HALVES];
    function.try_into().unwrap_or(NONE)
}

/// A machine's rules, and the functions that were computed from them.
pub(crate) struct Hardware {
    pub rules: Rules,
    functions: RwLock<Vec<(Unary, Arc<[f32]>)>>,
}

impl Hardware {
    pub(super) fn new(rules: Rules) -> Hardware {
        Hardware { rules, functions: RwLock::default() }
    }

    /// See `Table::round`.
    pub(super) fn round(&self, values: &mut [f32]) {
        let rules = &self.rules;
        vectorize!({
            for v in values {
                *v = rules.result(*v);
            }
        });
    }

    /// See `Table::enter`.
    pub(super) fn enter(&self, values: &mut [f32]) {
        let rules = &self.rules;
        vectorize!({
            for v in values {
                *v = rules.enter(*v);
            }
        });
    }
}

/// The bits of an fp16 value.
#[inline(always)]
fn index(x: f32) -> usize {
    let bits = x.to_bits();
    let magnitude = bits & 0x7FFF_FFFF;
    let normal = (magnitude >> 13).wrapping_sub(112 << 10);
    let small = (f32::from_bits(magnitude) * 16_777_216.0) as u32;
    let half = if magnitude < 0x3880_0000 { small } else { normal };
    let half = if magnitude >= 0x4780_0000 { 0x7C00 } else { half };
    ((half | (bits >> 16) & 0x8000) & 0xFFFF) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrane_host::f16;

    #[test]
    fn an_index_is_the_bits() {
        for bits in 0..=u16::MAX {
            let x = f16::from_bits(bits);
            if !x.is_nan() {
                assert_eq!(index(x.to_f32()), usize::from(bits));
            }
        }
    }
}
