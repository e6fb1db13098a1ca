//! What evaluations of one function share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ferrane_mil::ValueId;

use crate::executable::ExecutablePlan;
use crate::tensor_ops::HeapTensor;

/// Most plans kept for a function; beyond, all are dropped.
pub(super) const MAX_PLANS: usize = 1024;

/// What decides how an op is specialized: which op, the extents of its operands, and the values
/// that a plan must know.
pub(super) type Key = (u32, Vec<Vec<usize>>, Vec<Vec<u8>>);

/// What evaluations of one function share.
#[derive(Default)]
pub(crate) struct Cache {
    /// Constants, and results of `constexpr_*` ops.
    pub constants: Mutex<HashMap<ValueId, Arc<HeapTensor>>>,
    pub plans: Mutex<HashMap<Key, Arc<ExecutablePlan>>>,
}
