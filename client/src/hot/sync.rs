//! The atomics and locks that threads share: from the standard library, or from the model checker
//! loom.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(feature = "loom")]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::{Mutex, MutexGuard};

/// Locks, also after a panic of another thread: what it has left under the lock is counts and caches, which stay valid.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Adds to a counter that other threads write to as well if `is_shared`, and otherwise only this thread.
#[inline]
pub(crate) fn add(counter: &AtomicU64, n: u64, is_shared: bool) {
    if is_shared {
        counter.fetch_add(n, Ordering::Relaxed);
    } else {
        counter.store(
            counter.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Relaxed,
        );
    }
}

/// Allocates zeros. Pages take no memory until they are written: the allocator requests zeroed pages, which
/// the operating system commits on first use.
#[cfg(not(feature = "loom"))]
pub(crate) fn zeroed<T: zerocopy::FromZeros + Default>(count: usize) -> Vec<T> {
    // When the memory is exhausted, the second attempt aborts the process as any allocation would.
    T::new_vec_zeroed(count).unwrap_or_else(|_| (0..count).map(|_| T::default()).collect())
}

#[cfg(feature = "loom")]
pub(crate) fn zeroed<T: Default>(count: usize) -> Vec<T> {
    (0..count).map(|_| T::default()).collect()
}
