//! Handles: numbers that C holds as pointers to opaque types.
//!
//! A number is used once per process and for one kind only, so a handle that was freed or belongs
//! to another kind is not found. A lookup shares ownership: freeing a handle while another thread
//! uses it ends the handle, not the use.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use crate::status::{CallFailure, FERRANE_INVALID_HANDLE, Result};

/// The next number. Handles are never dereferenced; the first ones are in pages that no process
/// maps.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// The objects of the handles of one kind.
pub(crate) struct HandleTable<T> {
    what: &'static str,
    entries: LazyLock<RwLock<HashMap<usize, Arc<T>>>>,
}

impl<T> HandleTable<T> {
    /// An empty table; `what` is the name of the kind in messages.
    pub(crate) const fn new(what: &'static str) -> HandleTable<T> {
        HandleTable { what, entries: LazyLock::new(RwLock::default) }
    }

    /// Creates a handle for a value.
    pub(crate) fn insert<H>(&self, value: Arc<T>) -> Result<*mut H> {
        let taken = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_add(1));
        let number = taken.map_err(|_| CallFailure::argument("the process has used up its handles"))?;
        self.entries.write().unwrap_or_else(PoisonError::into_inner).insert(number, value);
        Ok(std::ptr::without_provenance_mut(number))
    }

    /// The value of a handle.
    pub(crate) fn get<H>(&self, handle: *mut H) -> Result<Arc<T>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.get(&handle.addr()).cloned().ok_or_else(|| self.unknown(handle))
    }

    /// Removes a handle and returns its value.
    pub(crate) fn remove<H>(&self, handle: *mut H) -> Result<Arc<T>> {
        let removed = self.entries.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.addr());
        removed.ok_or_else(|| self.unknown(handle))
    }

    fn unknown<H>(&self, handle: *mut H) -> CallFailure {
        let why = if handle.is_null() { "is null" } else { "was freed, or never was one" };
        CallFailure {
            status: FERRANE_INVALID_HANDLE,
            text: format!("the {} {why}", self.what),
            remedy: "Use a handle from the call that made it to the call that frees it, once.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_never_given_twice() {
        static LETTERS: HandleTable<char> = HandleTable::new("letter");
        static DIGITS: HandleTable<u8> = HandleTable::new("digit");
        let a: *mut () = LETTERS.insert(Arc::new('a')).unwrap();
        let held = LETTERS.get(a).unwrap();
        assert_eq!(*LETTERS.remove(a).unwrap(), 'a');
        let b: *mut () = LETTERS.insert(Arc::new('b')).unwrap();
        assert_ne!(a, b);
        assert_eq!(*held, 'a', "freeing a handle does not end its use");
        for dead in [LETTERS.get(a).unwrap_err(), LETTERS.remove(a).unwrap_err()] {
            assert_eq!(
                (dead.status, dead.text.as_str()),
                (FERRANE_INVALID_HANDLE, "the letter was freed, or never was one")
            );
        }
        assert!(DIGITS.get(b).is_err(), "of another kind");
        assert_eq!(DIGITS.get(std::ptr::null_mut::<()>()).unwrap_err().text, "the digit is null");
    }
}
