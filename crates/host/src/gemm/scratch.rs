//! Scratch memory for packed panels and partial sums: one buffer for each thread, which grows to
//! the largest product so far and is reused.

use std::cell::RefCell;

use super::error::GemmError;
use crate::buffer::{AlignedBuf, AllocError};

thread_local! {
    /// Scratch of this thread that is not in use. A stack: while a product waits for the pool, its
    /// thread may run another product, which then takes the next one.
    static SCRATCH: RefCell<Vec<AlignedBuf>> = const { RefCell::new(Vec::new()) };
}

/// Calls `body` with areas of the given sizes (in elements), each aligned; contents are arbitrary.
pub(crate) fn with_scratch<R>(sizes: [usize; 3], body: impl FnOnce([&mut [f32]; 3]) -> R) -> Result<R, GemmError> {
    const LINE: usize = crate::buffer::ALIGN / size_of::<f32>();
    let [a, b, c] = sizes.map(|n| n.checked_next_multiple_of(LINE).unwrap_or(usize::MAX));
    let len = a.saturating_add(b).saturating_add(c).saturating_mul(size_of::<f32>());
    if len == 0 {
        return Ok(body([&mut [], &mut [], &mut []]));
    }
    let mut memory = SCRATCH.with_borrow_mut(Vec::pop).unwrap_or_default();
    if len == usize::MAX {
        return Err(AllocError { len }.into());
    }
    memory.grow(len)?;
    let Ok(areas) = memory.as_mut_slice::<f32>() else { return Err(AllocError { len }.into()) };
    let (first, rest) = areas.split_at_mut(a);
    let (second, third) = rest.split_at_mut(b);
    let result = body([&mut first[..sizes[0]], &mut second[..sizes[1]], &mut third[..sizes[2]]]);
    SCRATCH.with_borrow_mut(|stack| stack.push(memory));
    Ok(result)
}
