//! A fingerprint of all messages and counts of a run, to recognise equal runs.

use serde::{Serialize, Serializer};

/// Running hash: FNV-1a over 64 bit words with a rotation, stable over builds and machines. It detects accidental
/// differences and does not protect against forgery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceHash(u64);

impl Default for TraceHash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl TraceHash {
    /// Adds a word.
    pub fn write(&mut self, word: u64) {
        // The rotation carries high bits down, which the multiplication never does.
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    }

    /// Returns the hash as a number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl std::fmt::Display for TraceHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for TraceHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
