//! The atomics of what is lock-free: the standard library's, or loom's, which runs a test under every order of events.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// `count` rows of zeros. What nobody has written to yet takes no memory: the system hands out pages of zeros when
/// they are first touched, and turning plain numbers into atomics in place touches none.
#[cfg(not(feature = "loom"))]
pub(crate) fn zeroed_rows<const N: usize>(count: usize) -> Box<[[AtomicU64; N]]> {
    vec![[0u64; N]; count].into_iter().map(|row| row.map(AtomicU64::new)).collect()
}

/// `count` zeros; see [`zeroed_rows`].
#[cfg(not(feature = "loom"))]
pub(crate) fn zeroed(count: usize) -> Box<[AtomicU32]> {
    vec![0u32; count].into_iter().map(AtomicU32::new).collect()
}

/// `count` rows of zeros.
#[cfg(feature = "loom")]
pub(crate) fn zeroed_rows<const N: usize>(count: usize) -> Box<[[AtomicU64; N]]> {
    (0..count).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect()
}

/// `count` zeros.
#[cfg(feature = "loom")]
pub(crate) fn zeroed(count: usize) -> Box<[AtomicU32]> {
    (0..count).map(|_| AtomicU32::new(0)).collect()
}
