//! A lock that outlives panics: whatever a panic has left under it is counts and caches, which stay valid.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic of another thread.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
