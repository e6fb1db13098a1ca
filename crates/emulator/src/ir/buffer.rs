//! Buffers: where the values of a plan live.

use super::view::Storage;

/// Where a buffer lives during an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemorySpace {
    /// Weights and what was computed from them at compile time.
    Constant,
    /// Values of this evaluation.
    Arena,
    /// An input surface.
    Input(usize),
    /// An output surface.
    Output(usize),
    /// A state's surface.
    State(usize),
}

/// A range of bytes in a place, and what lies there.
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
    /// One step writes all of it, so that it may become a constant.
    pub sole: bool,
    /// Bytes of a constant known from the start.
    pub data: Option<Vec<u8>>,
    /// Where it begins in its place, in bytes.
    pub start: usize,
}

impl Buffer {
    /// `None` where the address space does not reach.
    pub(crate) fn bytes(&self) -> Option<usize> {
        self.elements.checked_mul(self.storage.bytes())
    }
}
