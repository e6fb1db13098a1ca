//! Members of groups that are still open.

use ferrane_mil::ValueId;

use crate::ir::{Elementwise, View};

/// Where an operand of an element-wise op comes from.
#[derive(Clone, Debug)]
pub(super) enum MemberOperand {
    Value(ValueId),
    View(View),
    /// The bits of a float or an int32.
    Bits(u32),
}

impl MemberOperand {
    pub(super) fn float(value: f32) -> MemberOperand {
        MemberOperand::Bits(value.to_bits())
    }
}

/// Where a member's operand comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum MemberSource {
    Member(usize),
    External(usize),
    Bits(u32),
}

/// One op of a group.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub value: ValueId,
    pub op: Elementwise,
    pub from: [MemberSource; 3],
    /// Number of operands in `from` that the op reads.
    pub arity: usize,
    pub round: bool,
}

/// A group that is still open.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub shape: Vec<usize>,
    pub members: Vec<Member>,
    pub externals: Vec<View>,
    pub label: (String, String),
}
