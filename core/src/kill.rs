//! The kill switch as one growing number: whoever holds the larger number is right, odd means killed.

use serde::{Deserialize, Serialize};

/// The furthest a peer may be ahead: a larger jump is a broken or hostile peer, which must not be able to use the
/// numbers up.
pub const JUMP_MAX: u64 = 1 << 32;

/// The generation of a kill switch. Merged by `max` on every message in both directions, so no loss, repetition or
/// reordering can undo a newer decision; odd means killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KillGeneration(pub u64);

impl KillGeneration {
    /// Whether enforcement is stopped.
    #[must_use]
    pub const fn is_killed(self) -> bool {
        self.0 % 2 == 1
    }

    /// The next generation that is killed (`true`) or alive (`false`); the same one if it already is.
    #[must_use]
    pub const fn turned(self, killed: bool) -> Self {
        if self.is_killed() == killed { self } else { Self(self.0.saturating_add(1)) }
    }

    /// Whether a peer may truly hold this generation, seen from one that holds `self`.
    #[must_use]
    pub const fn believes(self, claimed: Self) -> bool {
        claimed.0.saturating_sub(self.0) <= JUMP_MAX
    }

    /// Takes over a larger generation; true when that changed anything.
    pub fn merge(&mut self, other: Self) -> bool {
        let changed = other > *self;
        *self = (*self).max(other);
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn turning_moves_to_the_next_number_of_the_right_parity() {
        let start = KillGeneration::default();
        assert!(!start.is_killed());
        let killed = start.turned(true);
        assert!(killed.is_killed());
        assert_eq!(killed.turned(true), killed);
        assert!(killed.turned(false) > killed);
    }

    proptest! {
        #[test]
        fn any_order_of_merges_ends_the_same(mut generations: Vec<u64>) {
            let merged = |all: &[u64]| {
                all.iter().fold(KillGeneration::default(), |mut g, n| { g.merge(KillGeneration(*n)); g })
            };
            let forward = merged(&generations);
            generations.reverse();
            prop_assert_eq!(forward, merged(&generations));
        }
    }
}
