//! The kill switch: stops all refusals, of the fleet or of one bucket, from any tier.
//!
//! # Rules
//! 1. **A generation for the fleet and one for each bucket that ever had its own kill.** It only
//!    grows; odd means killed. Generations travel with every message between client, aggregator and
//!    controller, in both directions, and merge by maximum; upwards under the conditions of rule 5.
//! 2. **A mode carries the generations known when it was decided.** A process applies a mode only
//!    if nothing is killed and the decision knew the latest generation that the process holds;
//!    otherwise the mode counts as shadow. The controller also moves killed entries of the policy
//!    to shadow (of a pattern, only the killed bucket is held in shadow), so the end of a kill
//!    restores nothing: the entry has to be raised again.
//! 3. **A kill ordered at an aggregator is also kept as a kill order**, until the controller has
//!    confirmed a report with it. The maximum is not enough: two processes that count independently
//!    reach the same numbers, so the end of one kill (2) could hide another kill (1). While an
//!    order is active, the generation of its scope is raised to odd again after every merge. While
//!    it is kept, active or ended, its buckets stay in shadow.
//! 4. **An order has an identity**, its scope and the process where it was given: its end is
//!    recognised by it. Orders and ends are sent once per stream, and a parent aggregator relays
//!    them. A scope stays killed until its last order has ended.
//! 5. **A generation without an order is a claim.** What a parent sends is taken. A child's claim moves nothing,
//!    except at an aggregator that has no state since its start: no directives of a controller, and no order
//!    given there or below. There it counts as *evidence* of an earlier kill until a controller's directives
//!    arrive. A controller that has lost its state takes the generations of aggregators as evidence, too. The
//!    claims that moved nothing are passed upwards with the name of the process that made them, and
//!    the next command or order of an operator for the scope moves its generation past them.
//! 6. **The controller gives no orders, unless it cannot save a command.** It stores the commands of operators, and raises
//!    the generations that it sends. A command that an elected one cannot save is an order in its directives: aggregators
//!    below it repeat the order until a controller has saved it. A command that ends a kill also ends every order for the scope
//!    that is older, even if the controller learns of the order only later.
//!
//! A *drill* is a number in the same messages. It changes no mode, and measures the time that a kill would
//! take to reach the clients.
//!
//! ```text
//! kill order at an aggregator:  none, ended ------ order -----------------------> in force
//!                               in force --------- end -------------------------> ended
//!                               in force, ended -- the controller confirms -----> none
//! ```

mod claims;
pub mod drill;
mod generations;
mod news;
mod order;
mod relay;
mod scope;

pub use claims::{CLAIMS_MAX, Claims, KillClaim};
pub use generations::{KILLED_BUCKETS_MAX, KilledBucketsFull, Kills, LEARNED_BUCKETS_MAX};
pub use news::{KillNews, KillsBelow};
pub use order::{KILL_ORDERS_MAX, KillOrder, OrderId};
pub use relay::{KillRelay, SentKills};
pub use scope::Scope;

use serde::{Deserialize, Serialize};

use crate::decision::Mode;

/// Maximum step of a controller's epoch, from the one held to the next that a child takes. A larger step is a broken or
/// hostile peer, which must not be able to exhaust the numbers. Generations have bounds of their own, below.
pub const EPOCH_JUMP_MAX: u64 = 1 << 32;
/// The generation or drill number up to which a child may claim any, regardless of the one held. All tiers have the
/// same base, so a parent takes no number that its own parent ignores.
const CLAIM_BASE: u64 = 1 << 62;
/// Maximum step of a claim above [`CLAIM_BASE`], or above the number held if that is higher. It leaves room for 2^46
/// such claims.
const CLAIM_STEP: u64 = 1 << 16;
/// The highest generation that a parent may send. No sound process reaches it.
const SENT_MAX: u64 = 1 << 63;

/// Returns the highest number that a child may claim at a process that holds `held`.
const fn claimable(held: u64) -> u64 {
    let base = if held > CLAIM_BASE { held } else { CLAIM_BASE };
    base.saturating_add(CLAIM_STEP)
}

/// The generation of a kill switch; odd means killed. Generations are merged by maximum, so no loss, repetition
/// or reordering of messages can undo a merged kill. Independent kills may reach the same number; the relay keeps
/// orders for that reason.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct KillGeneration(pub u64);

impl KillGeneration {
    /// Returns true if enforcement is stopped.
    pub const fn is_killed(self) -> bool {
        self.0 % 2 == 1
    }

    /// Returns the next generation that is killed (`true`) or not (`false`), which may be this one.
    pub const fn switched(self, killed: bool) -> Self {
        if self.is_killed() == killed {
            self
        } else {
            Self(self.0.saturating_add(1))
        }
    }

    /// Returns true if a child may claim this generation, seen from a process that holds `self`.
    pub const fn accepts(self, claimed: Self) -> bool {
        claimed.0 <= claimable(self.0)
    }

    /// Takes a larger generation. Returns true if it changed.
    pub fn merge(&mut self, other: Self) -> bool {
        let changed = other > *self;
        *self = (*self).max(other);
        changed
    }
}

/// The two generations that concern a bucket: as a process holds them, or as they were known when a mode was
/// decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kill {
    /// The generation of the whole fleet.
    pub fleet: KillGeneration,
    /// The bucket's own generation; 0 if it never had its own kill.
    pub bucket: KillGeneration,
}

impl Kill {
    /// Returns true if either generation stops enforcement.
    pub const fn is_on(self) -> bool {
        self.fleet.is_killed() || self.bucket.is_killed()
    }

    /// Returns the current mode at a process that holds `self`, for a mode `decided` with the
    /// generations `known`. It is shadow while killed, and while the decision did not know the
    /// latest generation. So no decision from before a kill takes effect again, in any order of
    /// arrival, as long as it states honestly what it knew and a process on its way still holds the
    /// generation.
    pub const fn mode(self, decided: Mode, known: Self) -> Mode {
        let is_known = known.fleet.0 >= self.fleet.0 && known.bucket.0 >= self.bucket.0;
        if self.is_on() || !is_known {
            Mode::Shadow
        } else {
            decided
        }
    }

    /// Caps both generations at `held`, so that a peer cannot claim a generation that this process
    /// has not seen.
    pub fn capped_at(self, held: Self) -> Self {
        Self {
            fleet: self.fleet.min(held.fleet),
            bucket: self.bucket.min(held.bucket),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mode_needs_a_decision_knowing_the_kill() {
        // (held, known when it was decided) and whether `enforce` is active.
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
            let kill = |(fleet, bucket)| Kill {
                fleet: KillGeneration(fleet),
                bucket: KillGeneration(bucket),
            };
            for mode in [Mode::Shadow, Mode::Canary, Mode::Enforce] {
                let due = if enforces { mode } else { Mode::Shadow };
                assert_eq!(
                    kill(held).mode(mode, kill(known)),
                    due,
                    "{held:?} {known:?}"
                );
            }
            // A claim is capped, so the next generation voids it.
            let known = kill((u64::MAX, u64::MAX)).capped_at(kill(held));
            let later = Kill {
                fleet: KillGeneration(held.0 + 2 - held.0 % 2),
                ..kill(held)
            };
            assert_eq!(later.mode(Mode::Enforce, known), Mode::Shadow, "{held:?}");
        }
    }

    #[test]
    fn switching_moves_to_the_right_parity() {
        let start = KillGeneration::default();
        assert!(!start.is_killed());
        let killed = start.switched(true);
        assert!(killed.is_killed());
        assert_eq!(killed.switched(true), killed);
        assert!(killed.switched(false) > killed);
    }

    proptest! {
        #[test]
        fn merge_is_independent_of_the_order(mut generations: Vec<u64>) {
            let merged = |all: &[u64]| {
                all.iter().fold(KillGeneration::default(), |mut g, n| { g.merge(KillGeneration(*n)); g })
            };
            let forward = merged(&generations);
            generations.reverse();
            prop_assert_eq!(forward, merged(&generations));
        }
    }
}
