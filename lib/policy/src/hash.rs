//! The texts of a policy, and their hash: the controller compares it with its files and with what an operator
//! acknowledges, and the tiers below notice by it that the policy changed.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Policy, PolicyError, Source};

/// The two texts that a policy was read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyTexts {
    pub(crate) policy: String,
    pub(crate) tenants: String,
    /// The hash of the catalogue; the rows are too many to keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) catalogue: Option<u64>,
}

impl PolicyTexts {
    /// Reads the policy again, without its catalogue. Its hash is that of the policy with it.
    ///
    /// # Errors
    /// When this build refuses a policy that an earlier one accepted.
    pub fn read(&self) -> Result<Policy, PolicyError> {
        let policy = Source {
            name: "(saved policy)",
            text: &self.policy,
        };
        let tenants = Source {
            name: "(saved tenants)",
            text: &self.tenants,
        };
        let (policy, _) = Policy::read(policy, tenants)?;
        Ok(Policy {
            hash: self.hash(),
            texts: Arc::new(self.clone()),
            ..policy
        })
    }

    /// The text of `tenants.yaml`.
    pub fn tenants(&self) -> &str {
        &self.tenants
    }

    /// Returns the hash of the policy.
    pub(crate) fn hash(&self) -> PolicyHash {
        let texts = PolicyHash::of(self.policy.as_bytes(), self.tenants.as_bytes());
        self.catalogue
            .map_or(texts, |catalogue| texts.with_catalogue(catalogue))
    }
}

/// A 64-bit hash of the texts that a policy was read from. Without a catalogue: FNV-1a over the bytes of the policy, one byte 0xFF
/// (which no UTF-8 text contains) and the bytes of the tenants. Equal on every machine and in every version.
/// It distinguishes contents; collisions can be constructed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyHash(u64);

impl PolicyHash {
    /// Hashes two texts.
    pub fn of(policy: &[u8], tenants: &[u8]) -> Self {
        Self(folded(fnv(policy), &[0xFF])).then(tenants)
    }

    /// Returns the hash of this policy together with its catalogue, of which `catalogue` is the hash.
    #[must_use]
    pub fn with_catalogue(self, catalogue: u64) -> Self {
        self.then(&[0xFF]).then(&catalogue.to_le_bytes())
    }

    fn then(self, bytes: &[u8]) -> Self {
        Self(folded(self.0, bytes))
    }

    /// The hash as a number, as on the wire.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

/// FNV-1a.
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    folded(0xcbf2_9ce4_8422_2325, bytes)
}

fn folded(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
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
