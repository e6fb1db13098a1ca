//! Arguments from C: detectable mistakes are errors, the rest is the caller's responsibility.
//!
//! Every function is unsafe for the same reason: a pointer that is neither null nor misaligned must
//! point to valid data of its type, which no other code changes while the result is used. The
//! functions of the interface state this requirement to their callers (crate documentation).

use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;

use crate::status::{CallFailure, Result};

fn check<T>(what: &str, pointer: *const T, count: usize) -> Result<()> {
    if pointer.is_null() {
        return Err(CallFailure::argument(format!("`{what}` is null")));
    }
    if !pointer.is_aligned() {
        return Err(CallFailure::argument(format!("`{what}` is not aligned to {} bytes", align_of::<T>())));
    }
    match count.checked_mul(size_of::<T>()) {
        Some(bytes) if isize::try_from(bytes).is_ok() => Ok(()),
        _ => Err(CallFailure::argument(format!("`{what}` cannot have {count} elements"))),
    }
}

/// An array that is read. Null with a count of 0 is an empty array.
pub(crate) unsafe fn slice<'a, T: Copy>(what: &str, pointer: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    check(what, pointer, count)?;
    // SAFETY: `check` excludes null, misalignment and an overflowing size; that `count` elements
    // are readable and unchanged while the result is used is this function's contract.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// An array that is written. Its elements may be uninitialized.
pub(crate) unsafe fn room<'a, T: Copy>(what: &str, pointer: *mut T, count: usize) -> Result<&'a mut [MaybeUninit<T>]> {
    if count == 0 {
        return Ok(&mut []);
    }
    check(what, pointer, count)?;
    // SAFETY: as in `slice`; that no other code uses the elements meanwhile is this function's
    // contract. `MaybeUninit` allows uninitialized elements.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer.cast(), count) })
}

/// Copies values to the beginning of an array that is long enough.
pub(crate) fn fill<T: Copy>(room: &mut [MaybeUninit<T>], values: &[T]) {
    for (to, from) in room.iter_mut().zip(values) {
        to.write(*from);
    }
}

/// A string that ends with a zero byte.
pub(crate) unsafe fn text<'a>(what: &str, pointer: *const c_char) -> Result<&'a str> {
    check(what, pointer, 1)?;
    // SAFETY: not null; that a zero byte terminates it is this function's contract.
    let bytes = unsafe { CStr::from_ptr(pointer) };
    bytes.to_str().map_err(|e| CallFailure::argument(format!("`{what}` is not UTF-8: {e}")))
}

/// As [`text`]; null is `None`.
pub(crate) unsafe fn optional_text<'a>(what: &str, pointer: *const c_char) -> Result<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: not null; otherwise the same contract as `text`.
    unsafe { text(what, pointer) }.map(Some)
}

/// A pointer through which a result is returned.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// A required result pointer.
    pub(crate) unsafe fn new(what: &str, pointer: *mut T) -> Result<Out<T>> {
        check(what, pointer, 1)?;
        Ok(Out(pointer))
    }

    /// An optional result pointer: null if the result is not needed.
    pub(crate) unsafe fn optional(what: &str, pointer: *mut T) -> Result<Option<Out<T>>> {
        if pointer.is_null() {
            return Ok(None);
        }
        // SAFETY: not null; otherwise the same contract as `Out::new`.
        unsafe { Out::new(what, pointer) }.map(Some)
    }

    /// Writes the result for the caller.
    pub(crate) fn set(&self, value: T) {
        // SAFETY: `new` checked that the pointer is not null and aligned; that it is writable is
        // the contract of `new`. The old value is neither read nor dropped, so it may be
        // uninitialized.
        unsafe { self.0.write(value) }
    }
}

impl<T> Out<*mut T> {
    /// A result pointer for a handle or a blob. It is set to null first, so a stale value is never
    /// used.
    pub(crate) unsafe fn handle(what: &str, pointer: *mut *mut T) -> Result<Out<*mut T>> {
        // SAFETY: the same contract as `Out::new`.
        let out = unsafe { Out::new(what, pointer)? };
        out.set(std::ptr::null_mut());
        Ok(out)
    }
}

/// A buffer of `capacity` bytes for text, and a pointer for its length.
pub(crate) struct TextOut<'a> {
    buffer: &'a mut [MaybeUninit<u8>],
    length: Option<Out<usize>>,
}

impl TextOut<'_> {
    /// The buffer may be null if `capacity` is 0.
    pub(crate) unsafe fn new<'a>(buffer: *mut c_char, capacity: usize, length: *mut usize) -> Result<TextOut<'a>> {
        // SAFETY: `buffer` is writable for `capacity` bytes and `length` is null or writable, by
        // this function's contract.
        unsafe {
            let buffer = room("buffer", buffer.cast::<u8>(), capacity)?;
            Ok(TextOut { buffer, length: Out::optional("length", length)? })
        }
    }

    /// Copies text and a terminating zero byte. The length without the zero byte is also returned
    /// if the buffer is too small; with a capacity of 0 only the length is requested.
    pub(crate) fn set(self, text: &str) -> Result<()> {
        if let Some(length) = &self.length {
            length.set(text.len());
            if self.buffer.is_empty() {
                return Ok(());
            }
        }
        let needed = text.len().saturating_add(1);
        let have = self.buffer.len();
        let Some((end, copy)) = self.buffer.get_mut(..needed).and_then(|b| b.split_last_mut()) else {
            return Err(too_small("bytes", have, needed));
        };
        fill(copy, text.as_bytes());
        end.write(0);
        Ok(())
    }
}

/// The error for a buffer that is too small.
pub(crate) fn too_small(what: &str, have: usize, needed: usize) -> CallFailure {
    CallFailure {
        status: crate::status::FERRANE_BUFFER_TOO_SMALL,
        text: format!("the buffer has {have} {what}, {needed} are needed"),
        remedy: "Query the length first: with a buffer of size 0 only the length is returned.",
    }
}

/// Converts a C `int` to a count.
pub(crate) fn count(what: &str, value: c_int) -> Result<usize> {
    usize::try_from(value).map_err(|_| CallFailure::argument(format!("`{what}` is {value}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_seen_to_be_wrong() {
        let values = [1.0f32, 2.0, 3.0];
        // SAFETY: every pointer is null, misaligned, or points into `values`; those that are
        // invalid are not dereferenced.
        unsafe {
            assert_eq!(slice("x", values.as_ptr(), 3).unwrap(), values);
            assert!(slice::<f32>("x", std::ptr::null(), 0).unwrap().is_empty());
            let message = |r: Result<&[f32]>| r.unwrap_err().text;
            assert_eq!(message(slice("x", std::ptr::null(), 1)), "`x` is null");
            let odd = values.as_ptr().cast::<u8>().add(1).cast::<f32>();
            assert_eq!(message(slice("x", odd, 1)), "`x` is not aligned to 4 bytes");
            assert_eq!(
                message(slice("x", values.as_ptr(), usize::MAX / 4)),
                format!("`x` cannot have {} elements", usize::MAX / 4)
            );
            assert!(slice("x", values.as_ptr(), usize::MAX).is_err());
            assert!(text("name", c"caf\xE9".as_ptr()).unwrap_err().text.starts_with("`name` is not UTF-8"));
            assert!(Out::<usize>::new("out", std::ptr::null_mut()).is_err());
            assert!(Out::<usize>::new("out", values.as_ptr().cast_mut().cast::<u8>().add(2).cast()).is_err());
        }
        assert_eq!(count("rows", -1).unwrap_err().text, "`rows` is -1");
    }

    #[test]
    fn text_is_cut_nowhere() {
        let copy = |capacity: usize| {
            let (mut buffer, mut length) = ([7 as c_char; 8], 99usize);
            // SAFETY: `capacity` is at most 8, the size of `buffer`.
            let out = unsafe { TextOut::new(buffer.as_mut_ptr(), capacity, &mut length) }.unwrap();
            let status = out.set("abc").map_err(|f| f.status);
            (status, length, buffer.map(|b| b as u8))
        };
        assert_eq!(copy(4), (Ok(()), 3, *b"abc\0\x07\x07\x07\x07"));
        assert_eq!(copy(3), (Err(crate::status::FERRANE_BUFFER_TOO_SMALL), 3, [7; 8]));
        assert_eq!(copy(0), (Ok(()), 3, [7; 8]));
    }
}
