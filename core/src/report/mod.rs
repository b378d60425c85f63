//! What a child tells its parent: cumulative counts, so that loss, repetition and reordering are harmless.

mod books;
mod evidence;
mod identity;
mod ingest;
mod outbox;
mod rejected;
mod tallies;
#[cfg(test)]
mod tests;

pub use books::Books;
pub use evidence::{Batches, CohortKey, Evidence, Outcomes, STANDS_MAX, Side};
pub use identity::{Identity, InstanceId, Role};
pub use ingest::{Entered, Entry, Ledger, New, Origin};
pub use outbox::{Handover, Outbox};
pub use rejected::InvalidReport;
pub use tallies::Tallies;

use std::collections::{BTreeMap, BTreeSet};

use crate::directive::Epoch;
use crate::exchange::Path;
use crate::kill::drill::{Drill, Spread};
use crate::kill::{KillGeneration, Scope};
use crate::names::{Bucket, Key, KeyId, Zone};
use crate::quantity::MonoTime;
use crate::quantity::Rate;

/// Requests of one key since the counting process began. Only ever grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that asked.
    pub offered: u64,
    /// Requests that the coin refused.
    pub dropped: u64,
    /// Requests that the guard refused, after the coin had let them pass.
    pub guard_dropped: u64,
    /// Refusals decided but not carried out: in shadow, while killed, outside the canary.
    pub would_dropped: u64,
    /// Those among `would_dropped` that the guard decided.
    pub would_guard_dropped: u64,
}

impl Counts {
    /// Nothing counted.
    pub const ZERO: Self =
        Self { offered: 0, dropped: 0, guard_dropped: 0, would_dropped: 0, would_guard_dropped: 0 };

    /// Requests that were refused, by coin or guard.
    #[must_use]
    pub const fn refused(self) -> u64 {
        self.dropped.saturating_add(self.guard_dropped)
    }

    /// Requests that were let through.
    #[must_use]
    pub const fn admitted(self) -> u64 {
        self.offered.saturating_sub(self.refused())
    }

    /// What is let through, *or would be under enforcement*: what the law works on. Worked on what shadow let pass,
    /// its balance would sink to the bottom before anything is enforced.
    #[must_use]
    pub const fn passed(self) -> u64 {
        self.admitted().saturating_sub(self.would_dropped)
    }

    /// What the guard decided to refuse, carried out or not.
    #[must_use]
    pub const fn guarded(self) -> u64 {
        self.guard_dropped.saturating_add(self.would_guard_dropped)
    }

    /// Whether no more was refused, or would have been, than was offered.
    #[inline]
    #[must_use]
    pub fn is_consistent(self) -> bool {
        let refused = self.dropped.checked_add(self.guard_dropped);
        let decided = refused.and_then(|refused| refused.checked_add(self.would_dropped));
        decided.is_some_and(|decided| decided <= self.offered)
            && self.would_guard_dropped <= self.would_dropped
    }

    /// Whether every column is at or above that of `other`.
    #[inline]
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        self.offered >= other.offered
            && self.dropped >= other.dropped
            && self.guard_dropped >= other.guard_dropped
            && self.would_dropped >= other.would_dropped
            && self.would_guard_dropped >= other.would_guard_dropped
    }

    /// The join of two states of one cumulative count: the larger of each column. Associative, commutative,
    /// idempotent.
    #[inline]
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        self.zip(other, u64::max)
    }

    /// What was counted since `earlier`; columns that went back count as nothing.
    #[inline]
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.zip(earlier, u64::saturating_sub)
    }

    /// The sum of the counts of two sources.
    #[inline]
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    #[inline]
    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            offered: f(self.offered, other.offered),
            dropped: f(self.dropped, other.dropped),
            guard_dropped: f(self.guard_dropped, other.guard_dropped),
            would_dropped: f(self.would_dropped, other.would_dropped),
            would_guard_dropped: f(self.would_guard_dropped, other.would_guard_dropped),
        }
    }
}

/// The counts of one key, and the part of them that came too late to say anything about the present rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All requests counted.
    pub counts: Counts,
    /// Those among them that moved the books only: a client back after a cut must not look like a surge.
    pub late: Counts,
}

impl Tally {
    /// Nothing counted.
    pub const ZERO: Self = Self { counts: Counts::ZERO, late: Counts::ZERO };

    /// Whether both parts are at or above those of `other`.
    #[inline]
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        self.counts.covers(other.counts) && self.late.covers(other.late)
    }

    /// The join of two states of one tally.
    #[inline]
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self { counts: self.counts.merge(other.counts), late: self.late.merge(other.late) }
    }

    /// What was counted since `earlier`.
    #[inline]
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self { counts: self.counts.since(earlier.counts), late: self.late.since(earlier.late) }
    }

    /// The sum of two sources.
    #[inline]
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { counts: self.counts.plus(other.counts), late: self.late.plus(other.late) }
    }
}

/// Introduces a key on a stream, and says how far the books on it reach (see [`Books`]).
///
/// A stream's ids are dense: a new one is the number of those defined so far. One that is defined again has another key
/// from then on, which counts from zero; everything sent for the one before was confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDefinition {
    /// The key.
    pub key: Key,
    /// Its counts at the last confirmation by anyone; zero for a key this instance never sent before.
    pub base: Counts,
    /// Its counts in the last report sent on any earlier stream; zero likewise.
    pub sent: Counts,
    /// Whether the parent that answered on this stream was the last one that this instance sent counts of the key to, and
    /// is known to remember this very key. Any other forgets what it remembers of it: that no longer tells what was lost
    /// from what somebody else counted, nor one key from an earlier one of the same name.
    pub continues: bool,
}

/// One message from a child to its parent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Numbers the child's messages on this stream, from 1.
    pub seq: u64,
    /// Who speaks; in a greeting, the first report of a stream, and nowhere else.
    pub identity: Option<Identity>,
    /// The child's monotonic clock. Absent: "I am alive, but count nothing yet".
    pub time: Option<MonoTime>,
    /// The highest epoch held; absent when no directive ever came.
    pub epoch: Option<Epoch>,
    /// The highest kill generation held.
    pub kill: KillGeneration,
    /// Those of single buckets: all that are held in a greeting, and then what changed.
    pub kills: BTreeMap<Bucket, KillGeneration>,
    /// Of an aggregator: what was ordered killed there, or below it, without knowing that the controller has heard of it;
    /// once on a stream. Whatever generation it has come to, it is a new kill.
    pub ordered: BTreeSet<Scope>,
    /// Likewise what was ordered killed and has ended again: everything it concerns has to be in shadow, whatever was decided
    /// by those who knew nothing of it.
    pub ended: BTreeSet<Scope>,
    /// The latest drill heard of.
    pub drill: Drill,
    /// Of an aggregator: how long that drill took to reach the clients below it, by zone, if that changed.
    pub spreads: BTreeMap<Zone, Spread>,
    /// How many children the child itself has, connected now.
    pub children: u32,
    /// Of an aggregator: who stands below it now.
    pub path: Path,
    /// Buckets whose directives the child wants, new on this stream.
    pub asked: Vec<Bucket>,
    /// Of an aggregator, in a greeting: the parts of limits that it holds, from whichever controller.
    pub holds: BTreeMap<Bucket, Rate>,
    /// Keys new on this stream, by the child's ids. They hold before the tallies of the same report.
    pub definitions: BTreeMap<KeyId, KeyDefinition>,
    /// Cumulative counts by the child's ids; a key that is absent is unchanged.
    pub tallies: Tallies,
    /// What the gates of rollouts judge by.
    pub evidence: Batches,
    /// The child stops in good order: its share is free at once.
    pub leaving: bool,
}

impl Report {
    /// Joins two reports of one stream: associative, commutative and idempotent, so the parts of a message may be
    /// put together in any order and any part may come twice. What an id stood for before it was defined anew is
    /// dropped: it was confirmed.
    #[inline]
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        let (mut first, mut later) = if other.seq < self.seq { (other, self) } else { (self, other) };
        if first.seq < later.seq && !later.definitions.is_empty() {
            let is_replaced =
                |id| later.definitions.get(&id).is_some_and(|new| first.definitions.get(&id) != Some(new));
            first.tallies = first.tallies.retain(|id| !is_replaced(id));
        }
        // Of two that were said at once one is a part that leaves it out.
        first.path = if first.seq < later.seq { later.path } else { first.path.max(later.path) };
        first.seq = later.seq;
        first.identity = first.identity.or(later.identity);
        first.time = first.time.max(later.time);
        first.epoch = first.epoch.max(later.epoch);
        first.kill.merge(later.kill);
        for (bucket, generation) in later.kills {
            first.kills.entry(bucket).or_default().merge(generation);
        }
        first.ordered.append(&mut later.ordered);
        first.ended.append(&mut later.ended);
        first.drill = first.drill.max(later.drill);
        // What is said later of a zone stands; of two that were said at once each speaks of other zones.
        later.spreads.append(
            &mut first.spreads.into_iter().filter(|(zone, _)| !later.spreads.contains_key(zone)).collect(),
        );
        first.spreads = later.spreads;
        first.children = first.children.max(later.children);
        first.asked.append(&mut later.asked);
        first.asked.sort_unstable();
        first.asked.dedup();
        for (bucket, hold) in later.holds {
            first.holds.entry(bucket).or_insert(hold);
        }
        first.definitions.append(&mut later.definitions);
        first.tallies = first.tallies.merge(later.tallies);
        first.evidence = first.evidence.merge(later.evidence);
        first.leaving |= later.leaving;
        first
    }
}

/// A parent's receipt for what its child reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Echo {
    /// The highest report merged here; 0 when none was.
    pub covered: u64,
    /// The highest report contained in a roll-up that the controller has covered; 0 when none is.
    pub confirmed: u64,
}
