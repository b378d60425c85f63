//! The atomics that everything lock-free is made of: those of the machine, or, with the feature `loom`, those of a model
//! checker that tries every order in which threads may see them.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// That many words, all zero. Where the system gives memory that is zero already, it is not touched: what is set aside
/// and never used costs nothing.
pub(crate) fn zeroed(words: usize) -> Box<[AtomicU64]> {
    #[cfg(not(feature = "loom"))]
    if let Ok(zeroed) = <[AtomicU64] as zerocopy::FromZeros>::new_box_zeroed_with_elems(words) {
        return zeroed;
    }
    (0..words).map(|_| AtomicU64::new(0)).collect()
}
