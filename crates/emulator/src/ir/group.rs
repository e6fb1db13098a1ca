//! Groups: element-wise ops of one shape, computed in one pass.
//!
//! A group is a straight-line program over registers, run tile by tile, so that no member's result
//! is stored but those that other steps read. `round` marks where an fp16 value is made.

use ferrane_host::fused;

use super::elementwise::Elementwise;
use super::nest::Nest;
use super::view::View;

/// A register of a group.
pub(crate) type Reg = u8;

/// A group: load, compute, store, for each tile.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Operands: writes, then reads.
    pub nest: Nest,
    /// Registers that the reads are loaded into.
    pub loads: Vec<Reg>,
    /// Registers that hold one value throughout, by its bits.
    pub constants: Vec<(Reg, u32)>,
    pub instructions: Vec<Instruction>,
    /// Registers that results are stored from: one for each write, then those of `joined`.
    pub stores: Vec<Reg>,
    /// Results that lie between the elements of a write: which one, and how far behind its first
    /// element theirs is.
    pub joined: Vec<(usize, usize)>,
    /// How many registers there are.
    pub registers: usize,
    /// What the instructions amount to, if it is something for which there is a shorter way.
    pub fused: Option<FusedLoop>,
}

impl Group {
    /// A group that only converts.
    pub(crate) fn conversion(to: &View, from: &View) -> Group {
        Group {
            nest: Nest::new(&to.shape, &[to, from], 1, None),
            loads: vec![0],
            constants: Vec::new(),
            instructions: Vec::new(),
            stores: vec![0],
            joined: Vec::new(),
            registers: 1,
            fused: None,
        }
    }

    /// One element-wise op over views, as a group of its own.
    pub(crate) fn single(op: Elementwise, to: &View, from: &[&View], round: bool) -> Group {
        let mut operands = vec![to];
        operands.extend(from);
        let reg = |i: usize| i.min(from.len() - 1) as Reg;
        let result = from.len() as Reg;
        Group {
            nest: Nest::new(&to.shape, &operands, 1, None),
            loads: (0..result).collect(),
            constants: Vec::new(),
            instructions: vec![Instruction { op, to: result, from: [reg(0), reg(1), reg(2)], round }],
            stores: vec![result],
            joined: Vec::new(),
            registers: from.len() + 1,
            fused: None,
        }
    }
}

/// A group that is made in one pass over fp16 memory, without registers. All rows are of neighbors;
/// its reads go by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FusedLoop {
    /// A function of the first, times the second.
    Gate(fused::Gate, [usize; 2]),
    /// Pairs `(a, b)`, turned by the angles whose cosine and sine come next, or back. The two
    /// results are joined.
    Rotation { back: bool, from: [usize; 4] },
}

/// One element-wise operation over registers. Unused operands repeat the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Instruction {
    pub op: Elementwise,
    pub to: Reg,
    pub from: [Reg; 3],
    /// The result is an fp16 value.
    pub round: bool,
}
