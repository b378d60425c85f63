//! The kill switch as one growing number: whoever holds the larger number is right, odd means killed.

pub mod drill;
mod held;
mod scope;

pub use held::{KILLED_BUCKETS_MAX, Kills, NoRoom};
pub use scope::Scope;

use serde::{Deserialize, Serialize};

use crate::decision::Mode;

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

/// The two generations that concern a bucket: as somebody holds them, or as they were known when its mode was decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kill {
    /// That of the whole fleet.
    pub fleet: KillGeneration,
    /// That of the bucket alone; 0 for one that was never killed.
    pub bucket: KillGeneration,
}

impl Kill {
    /// Whether either stops enforcement.
    #[must_use]
    pub const fn is_on(self) -> bool {
        self.fleet.is_killed() || self.bucket.is_killed()
    }

    /// What is left of a mode that was decided by somebody who knew the generations `known`, where these are held: shadow
    /// while killed, and also where whoever decided had not heard of the latest turn. So a mode from before a kill is void
    /// for ever, in whatever order, from whomever and after however many restarts it comes.
    #[must_use]
    pub const fn of(self, mode: Mode, known: Self) -> Mode {
        let knew = known.fleet.0 >= self.fleet.0 && known.bucket.0 >= self.bucket.0;
        if self.is_on() || !knew { Mode::Shadow } else { mode }
    }

    /// These generations, but no higher than `held`: nobody knows of a turn that nobody has heard of.
    #[must_use]
    pub fn at_most(self, held: Self) -> Self {
        Self { fleet: self.fleet.min(held.fleet), bucket: self.bucket.min(held.bucket) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_mode_holds_while_nothing_is_killed_and_whoever_decided_it_knew_of_the_latest_turn() {
        // (held, known when it was decided) and what is left of `enforce`
        for (held, known, enforces) in [
            ((0, 0), (0, 0), true),
            ((1, 0), (0, 0), false),
            ((1, 0), (1, 0), false),
            ((2, 0), (0, 0), false),
            ((2, 0), (1, 0), false),
            ((2, 0), (2, 0), true),
            ((2, 0), (4, 0), true),
            ((0, 1), (0, 1), false),
            ((0, 2), (0, 0), false),
            ((0, 2), (0, 2), true),
            ((2, 2), (2, 0), false),
            ((2, 2), (0, 2), false),
            ((2, 3), (2, 3), false),
            ((3, 2), (3, 2), false),
        ] {
            let kill =
                |(fleet, bucket)| Kill { fleet: KillGeneration(fleet), bucket: KillGeneration(bucket) };
            for mode in [Mode::Shadow, Mode::Canary, Mode::Enforce] {
                let due = if enforces { mode } else { Mode::Shadow };
                assert_eq!(kill(held).of(mode, kill(known)), due, "{held:?} {known:?}");
            }
            // Whatever somebody claims to know, the next turn makes it void.
            let known = kill((u64::MAX, u64::MAX)).at_most(kill(held));
            let later = Kill { fleet: KillGeneration(held.0 + 2 - held.0 % 2), ..kill(held) };
            assert_eq!(later.of(Mode::Enforce, known), Mode::Shadow, "{held:?}");
        }
    }

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
