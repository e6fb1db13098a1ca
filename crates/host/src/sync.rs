//! Taking locks whose guarded data is valid whatever panicked while they were held.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex and ignores poisoning.
///
/// For data that every critical section leaves valid even if it unwinds: a map with one entry more
/// or less, a value that is replaced as a whole, a list that is appended to. A panic is reported
/// where it happens; a second one here would only hide it.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the data out of a mutex and ignores poisoning, as [`lock`] does.
pub fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_held_during_a_panic_can_be_taken_again() {
        let list = Mutex::new(vec![1]);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut held = lock(&list);
            held.push(2);
            panic!("while holding the lock");
        }));
        assert!(panicked.is_err() && list.is_poisoned());
        lock(&list).push(3);
        assert_eq!(into_inner(list), [1, 2, 3]);
    }
}
