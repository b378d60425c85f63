//! The coherent coin: one draw per request, equal at every hop, so that a request that one hop refuses is
//! already refused by the first hop with that ratio.

use std::fmt;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;

use crate::decision::trace::TraceId;

/// The secret key of a fleet's draws. Without it, the draw of a trace-id can be neither predicted nor chosen.
/// Never printed.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CoinKey(u128);

/// The key and salt of a coherent coin, equal on every hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coherence {
    /// The key of the fleet.
    pub key: CoinKey,
    /// The salt, which changes from time to time, so that no trace-id is admitted forever.
    pub salt: u64,
}

/// The mix of the key and salt of a [`Coherence`]: SipHash-2-4 (Aumasson and Bernstein, 2012) under this key
/// turns trace-ids into draws. Never printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DrawKey {
    k0: u64,
    k1: u64,
}

impl CoinKey {
    /// Builds a key from bytes, which should be random.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// The bytes, to send the key to a child or to store it.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

impl Coherence {
    /// Mixes key and salt: the halves are SipHash-2-4 under the key of the salt's 8 bytes, least significant
    /// first, and a byte that numbers the half.
    pub fn draw_key(self) -> DrawKey {
        let hasher = SipHasher24::new_with_key(&self.key.to_bytes());
        let half = |number: u8| {
            let mut input = [number; 9];
            input[..8].copy_from_slice(&self.salt.to_le_bytes());
            hasher.hash(&input)
        };
        DrawKey {
            k0: half(0),
            k1: half(1),
        }
    }
}

impl DrawKey {
    /// Builds a key from its halves. Halves of two keys make a third key, equally random but held by no other
    /// process.
    pub const fn of_halves(k0: u64, k1: u64) -> Self {
        Self { k0, k1 }
    }

    /// The halves of the key.
    pub const fn halves(self) -> (u64, u64) {
        (self.k0, self.k1)
    }

    /// Returns the draw of a request, uniform over `u32`: the upper half of SipHash-2-4 of the trace-id's 16
    /// bytes.
    ///
    /// A coin [refuses](crate::decision::coin::refuses) a draw below its ratio. Hops with the same key
    /// therefore admit `1 - max(ratio)` together, where independent coins would admit the product.
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
