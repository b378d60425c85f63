//! The atomics of what is lock-free: the standard library's, or loom's, which runs a test under every order of events.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// So many zeros. What nobody has written to yet takes no memory: the system hands out pages of zeros when they are
/// first touched, and plain numbers become atomics where they are, which the compiler sees is nothing to be done. It
/// does not see it for a boxed slice, nor for arrays.
#[cfg(not(feature = "loom"))]
pub(crate) fn zeroed_words(count: usize) -> Vec<AtomicU64> {
    vec![0u64; count].into_iter().map(AtomicU64::new).collect()
}

/// So many zeros; see [`zeroed_words`].
#[cfg(not(feature = "loom"))]
pub(crate) fn zeroed(count: usize) -> Vec<AtomicU32> {
    vec![0u32; count].into_iter().map(AtomicU32::new).collect()
}

/// So many zeros.
#[cfg(feature = "loom")]
pub(crate) fn zeroed_words(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

/// So many zeros.
#[cfg(feature = "loom")]
pub(crate) fn zeroed(count: usize) -> Vec<AtomicU32> {
    (0..count).map(|_| AtomicU32::new(0)).collect()
}
