//! The kernels, one file for each op family.

use super::Kernel;

/// Name and kernel of every op that is computed here.
pub(super) const FAMILIES: &[&[(&str, Kernel)]] = &[];
