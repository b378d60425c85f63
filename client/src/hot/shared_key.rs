//! The key of coherent coins, as the request path reads it.

use plimsoll_core::decision::coherent::DrawKey;

use crate::hot::sync::{AtomicU64, Ordering};

/// A key that threads share: written with a new epoch, read by each decision that goes by a trace.
///
/// Its halves are two atomics, with nothing to keep them together. A reader that comes between two writes may find one
/// half of each key, and does no harm: the mixture is a key as unknown as either and draws as uniformly, so that request is
/// refused with its ratio's probability all the same. It only falls unlike it does on other hops, as any request does while
/// one of them has the new key and another the old one. A lock or a counter around the pair would cost every decision
/// something, for the sake of a few in each epoch.
///
/// What a reader must never find is no key at all, under which all could foretell what is drawn. So a key is stored before
/// the first [word](crate::hot::directive_word::Word) that goes by it is published, and never taken away.
///
/// On a cache line of its own: nothing beside it that is written often makes readers wait.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct SharedKey {
    k0: AtomicU64,
    k1: AtomicU64,
}

impl SharedKey {
    /// The present key.
    #[inline]
    pub(crate) fn load(&self) -> DrawKey {
        DrawKey::of_halves(self.k0.load(Ordering::Relaxed), self.k1.load(Ordering::Relaxed))
    }

    /// Puts a key in the place of the one before. To be followed by the words that go by it.
    pub(crate) fn store(&self, key: DrawKey) {
        let (k0, k1) = key.halves();
        self.k0.store(k0, Ordering::Relaxed);
        self.k1.store(k1, Ordering::Relaxed);
    }
}
