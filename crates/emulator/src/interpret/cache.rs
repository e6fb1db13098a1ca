//! Constants and plans that the evaluations of one function share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ferrane_mil::ValueId;

use crate::executable::ExecutablePlan;
use crate::tensor_ops::HeapTensor;

/// The most plans that are kept for a function; one more drops all of them.
pub(super) const MAX_PLANS: usize = 1024;

/// The key of an op's plan: which op, the extents of its operands, and the values that the plan
/// must know.
pub(super) type Key = (u32, Vec<Vec<usize>>, Vec<Vec<u8>>);

/// Constants and plans that the evaluations of one function share.
#[derive(Default)]
pub(crate) struct Cache {
    /// Constants, and results of `constexpr_*` ops.
    pub constants: Mutex<HashMap<ValueId, Arc<HeapTensor>>>,
    pub plans: Mutex<HashMap<Key, Arc<ExecutablePlan>>>,
}
