//! Groups: element-wise ops of one shape, computed in one pass.
//!
//! A group is a straight-line program over registers, run tile by tile, so that only results that
//! other steps read are stored. `round` marks each instruction whose result is an fp16 value.

use ferrane_host::fused;

use super::elementwise::Elementwise;
use super::nest::Nest;
use super::view::View;

/// A register of a group.
pub(crate) type Reg = u8;

/// A group: load, compute, store, for each tile.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// The loops; operands are writes, then reads.
    pub nest: Nest,
    /// Registers that the reads are loaded into.
    pub loads: Vec<Reg>,
    /// Registers that hold a constant, with its bits.
    pub constants: Vec<(Reg, u32)>,
    pub instructions: Vec<Instruction>,
    /// Registers whose contents are stored: one for each write, then those of `joined`.
    pub stores: Vec<Reg>,
    /// Results that interleave with a write: the write, and the offset of their first element from
    /// its first.
    pub joined: Vec<(usize, usize)>,
    /// Registers that an evaluation needs, 4 bytes for each element of a tile.
    pub registers: usize,
    /// The fused loop that computes the same, if there is one.
    pub fused: Option<FusedLoop>,
}

impl Group {
    /// A group that only converts between storages.
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

/// A loop that computes a whole group in one pass over fp16 memory, without registers. All operands
/// have unit stride along a row; reads are named by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FusedLoop {
    /// A function of the first read, times the second.
    Gate(fused::Gate, [usize; 2]),
    /// Rotates pairs `(a, b)` by angles with the given cosine and sine, or back. Reads are a, b,
    /// cosine, sine. The two results are joined.
    Rotation { back: bool, from: [usize; 4] },
}

/// One element-wise operation over registers. Unused operands repeat the first one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Instruction {
    pub op: Elementwise,
    pub to: Reg,
    pub from: [Reg; 3],
    /// The result is an fp16 value.
    pub round: bool,
}
