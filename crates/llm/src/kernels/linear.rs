//! The kernels that are one or two dynamic products: `out[o, t] = Σ_c a[c, t] · m[c, o]`
//! (training-dynamic §2).
//!
//! Several products (`ffnBwdW13t`, `kvBwd`, `qkvBwd`) are added as rows, so that only the sum is
//! transposed back.

use ferrane_mil::{MilError, Program};

use super::frame::{Frame, MatrixOrder};
use crate::layout::{Content, Region};

/// Builds a kernel whose layout is n activations, n matrices and one tap.
pub(super) fn linear(mut f: Frame<'_>) -> Result<Program, MilError> {
    let is_weight = |r: &&Region| matches!(r.content, Content::Weight { .. });
    let activations: Vec<Region> = f.layout.regions.iter().filter(|r| !is_weight(r)).copied().collect();
    let matrices: Vec<Region> = f.layout.regions.iter().filter(is_weight).copied().collect();
    let tap = *f.layout.taps.first().ok_or_else(|| MilError::Invalid { reason: "no tap".into() })?;
    let mut sum = None;
    for (a, m) in activations.iter().zip(&matrices) {
        let x = f.region(a.name)?;
        let rows = f.rows(a.name, x, a.channels)?;
        let matrix = f.matrix(m.name, MatrixOrder::AsStaged)?;
        let product = f.product(&format!("{}_{}", a.name, m.name), rows, matrix)?;
        sum = Some(match sum {
            None => product,
            Some(before) => f.b.add("sum", before, product)?,
        });
    }
    let sum = sum.ok_or_else(|| MilError::Invalid { reason: "no product".into() })?;
    let out = f.columns(tap.name, sum, tap.channels)?;
    f.finish(&[out])
}
