//! The atomics of what is lock-free: the standard library's, or loom's, which runs a test under every order of events.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// So many zeros. What nobody has written to yet takes no memory: it is asked for as zeros, and the system hands those
/// pages out when they are first touched.
#[cfg(not(feature = "loom"))]
pub(crate) fn zeroed<T: zerocopy::FromZeros + Default>(count: usize) -> Vec<T> {
    // Where there is no memory for them, the second attempt ends the process as any other would.
    T::new_vec_zeroed(count).unwrap_or_else(|_| (0..count).map(|_| T::default()).collect())
}

/// So many zeros.
#[cfg(feature = "loom")]
pub(crate) fn zeroed<T: Default>(count: usize) -> Vec<T> {
    (0..count).map(|_| T::default()).collect()
}
