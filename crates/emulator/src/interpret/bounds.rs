//! Limits of one evaluation.

/// The limits of one evaluation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The most bytes of all values that are live at a time.
    pub memory: usize,
    /// The most iterations of all loops together.
    pub iterations: u64,
}
