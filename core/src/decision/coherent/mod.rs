//! The coherent coin: one draw for each request, the same wherever it is asked for, so that a request that one hop
//! would refuse has not been worked on by the hops before it.

use std::fmt;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;

use crate::decision::trace::TraceId;

/// The secret that draws of a fleet are made by: without it nobody can tell, or choose, what a trace-id will draw.
/// Never shown.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CoinKey(u128);

/// What a coherent coin needs besides a trace-id: the same on every hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coherence {
    /// The fleet's key.
    pub key: CoinKey,
    /// Changes from time to time, so that no trace-id is lucky for ever.
    pub salt: u64,
}

/// What [`Coherence`] comes to once key and salt are mixed: SipHash-2-4 (Aumasson and Bernstein, 2012) under this key
/// turns trace-ids into draws. Never shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DrawKey {
    k0: u64,
    k1: u64,
}

impl CoinKey {
    /// The key with these bytes, which should be random.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// Its bytes, for whoever must pass it on.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

impl Coherence {
    /// Mixes key and salt: the halves are SipHash-2-4 under the key of the salt's 8 bytes, least significant first, and
    /// a byte that numbers the half.
    #[must_use]
    pub fn draw_key(self) -> DrawKey {
        let hasher = SipHasher24::new_with_key(&self.key.to_bytes());
        let half = |number: u8| {
            let mut input = [number; 9];
            input[..8].copy_from_slice(&self.salt.to_le_bytes());
            hasher.hash(&input)
        };
        DrawKey { k0: half(0), k1: half(1) }
    }
}

impl DrawKey {
    /// The key of these halves. Halves of two keys make a third one, as good as either but nobody else's.
    #[must_use]
    pub const fn of_halves(k0: u64, k1: u64) -> Self {
        Self { k0, k1 }
    }

    /// Its halves.
    #[must_use]
    pub const fn halves(self) -> (u64, u64) {
        (self.k0, self.k1)
    }

    /// The draw of a request, uniform over all of `u32`: the upper half of SipHash-2-4 of the trace-id's 16 bytes.
    ///
    /// A coin [refuses](crate::decision::coin::refuses) a draw below its ratio, so of several hops that hold the same key the
    /// strictest decides for all of them: they admit `1 - max(ratio)`, where coins of their own would admit the product.
    #[must_use]
    pub fn draw(self, trace_id: TraceId) -> u32 {
        let hash = SipHasher24::new_with_keys(self.k0, self.k1).hash(&trace_id.to_bytes());
        (hash >> 32) as u32
    }
}

impl fmt::Debug for CoinKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CoinKey(..)")
    }
}

impl fmt::Debug for DrawKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DrawKey(..)")
    }
}

#[cfg(test)]
mod tests;
