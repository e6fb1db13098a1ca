//! Elements of a left factor as fp32.

use half::f16;

use crate::convert;
use crate::gemm::vector::{ElementType, Factor};

/// Copies the first `m` lines of `k` elements of a factor to `to`, widened.
///
/// # Safety
/// They are readable.
pub(super) unsafe fn gather(factor: &Factor, m: usize, k: usize, to: &mut [f32]) {
    for (i, row) in to.chunks_exact_mut(k.max(1)).take(m).enumerate() {
        // SAFETY: the caller guarantees `k` elements.
        unsafe { widen(factor, (i, 0), row) };
    }
}

/// Copies elements of line `line` from `first` on, widened.
///
/// # Safety
/// They are readable.
pub(super) unsafe fn widen(factor: &Factor, (line, first): (usize, usize), to: &mut [f32]) {
    if factor.kind == ElementType::F16 && factor.depth == 1 {
        // SAFETY: the caller guarantees the elements, which are contiguous.
        let from = unsafe { std::slice::from_raw_parts(factor.at(line, first).cast::<f16>(), to.len()) };
        return convert::f16_to_f32(from, to);
    }
    for (p, value) in to.iter_mut().enumerate() {
        let at = factor.at(line, first + p);
        // SAFETY: the caller guarantees the element.
        *value = unsafe {
            match factor.kind {
                ElementType::F32 => at.cast::<f32>().read(),
                ElementType::F16 => at.cast::<f16>().read().to_f32(),
                ElementType::I8 => f32::from(at.cast::<i8>().read()),
            }
        };
    }
}
