//! The texts of a policy, and their hash: the controller compares it with its files and with what an operator
//! acknowledges, and the tiers below notice by it that the policy changed.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Policy, PolicyError, Source};

/// The two texts that a policy was read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyTexts {
    pub(crate) policy: String,
    pub(crate) tenants: String,
}

impl PolicyTexts {
    /// Reads the policy again.
    ///
    /// # Errors
    /// When this build refuses a policy that an earlier one accepted.
    pub fn read(&self) -> Result<Policy, PolicyError> {
        let policy = Source {
            name: "(saved policy)",
            text: &self.policy,
        };
        Ok(Policy::read(
            policy,
            Source {
                name: "(saved tenants)",
                text: &self.tenants,
            },
        )?
        .0)
    }
}

/// A 64-bit hash of the two texts a policy was read from: FNV-1a over the bytes of the policy, one byte 0xFF
/// (which no UTF-8 text contains) and the bytes of the tenants. Equal on every machine and in every version.
/// It distinguishes contents; collisions can be constructed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyHash(u64);

impl PolicyHash {
    /// Hashes two texts.
    pub fn of(policy: &[u8], tenants: &[u8]) -> Self {
        let bytes = policy.iter().chain(&[0xFF]).chain(tenants);
        Self(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        }))
    }

    /// The hash as a number, as on the wire.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for PolicyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hashes_never_change() {
        assert_eq!(PolicyHash::of(b"", b"").to_string(), "af64724c8602eb6e");
        assert_ne!(PolicyHash::of(b"ab", b"c"), PolicyHash::of(b"a", b"bc"));
    }
}
