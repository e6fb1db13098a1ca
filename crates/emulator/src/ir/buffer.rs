//! Buffers: the memory of a plan's values.

use super::view::Storage;

/// The memory that a buffer is in during an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemorySpace {
    /// Weights, and what is computed from them at compile time.
    Constant,
    /// Intermediate values of one evaluation.
    Arena,
    /// The surface of an input, by its position among the procedure's inputs.
    Input(usize),
    /// The surface of an output, by its position among the procedure's outputs.
    Output(usize),
    /// The surface of a state, by its position among the procedure's states.
    State(usize),
}

/// A range of bytes in a memory space, and how its elements are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub space: MemorySpace,
    pub start: usize,
    pub end: usize,
    pub storage: Storage,
}

/// A buffer while the plan is made.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    pub space: MemorySpace,
    pub storage: Storage,
    pub elements: usize,
    /// A single step writes all of it, so it may become a constant.
    pub sole: bool,
    /// The bytes of a constant that the program states.
    pub data: Option<Vec<u8>>,
    /// Offset in its memory space, in bytes.
    pub start: usize,
}

impl Buffer {
    /// Size in bytes; `None` if it exceeds the address space.
    pub(crate) fn bytes(&self) -> Option<usize> {
        self.elements.checked_mul(self.storage.bytes())
    }
}
