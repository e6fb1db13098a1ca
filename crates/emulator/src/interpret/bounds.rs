//! Limits of one evaluation.

/// What one evaluation may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Bytes of all values that are alive at a time.
    pub memory: usize,
    /// Iterations of all loops together.
    pub iterations: u64,
}
