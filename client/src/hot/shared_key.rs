//! The draw key of coherent coins, as the request path reads it.

use plimsoll_core::decision::coherent::DrawKey;

use crate::hot::sync::{AtomicU64, Ordering};

/// A draw key that threads share: written with a new epoch, read by each decision that uses a
/// trace.
///
/// The halves are two independent atomics. A reader between the two stores may see one half of each
/// key, which is harmless: the mixture is as secret and draws as uniformly, so that request is
/// refused with its ratio's probability. It may only be decided differently than on other hops, as
/// any request is while hops have different keys. A lock or a sequence counter would cost every
/// decision something to protect a few in each epoch.
///
/// A reader must never see an absent key, because its draws would be predictable. So a key is
/// stored before the first [directive](crate::hot::directive_word::DirectiveWord) that uses it is
/// published, and is never removed.
///
/// The key has its own cache line, so that no frequent write next to it slows readers down. It is
/// secret, so it has no `Debug`.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct SharedKey {
    k0: AtomicU64,
    k1: AtomicU64,
}

impl SharedKey {
    #[inline]
    pub(crate) fn load(&self) -> DrawKey {
        DrawKey::of_halves(
            self.k0.load(Ordering::Relaxed),
            self.k1.load(Ordering::Relaxed),
        )
    }

    /// Replaces the key. Directives that use it must be published after this call.
    pub(crate) fn store(&self, key: DrawKey) {
        let (k0, k1) = key.halves();
        self.k0.store(k0, Ordering::Relaxed);
        self.k1.store(k1, Ordering::Relaxed);
    }
}
