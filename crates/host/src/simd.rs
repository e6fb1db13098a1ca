//! Run-time dispatch for plain loops, and vectorisable fp32 functions.

/// Runs `body` compiled for the widest vectors of this processor.
#[inline(always)]
pub fn dispatch<R>(body: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(body)
}
