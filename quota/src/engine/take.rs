//! A take from several buckets at once: from all of them, or from none.

use std::sync::{MutexGuard, PoisonError};

use plimsoll_core::quota::{Balance, lease};
use smallvec::SmallVec;

use super::apply::balance;
use super::shard::Shard;
use super::shared::{Moment, Place, Shared};
use crate::operation::{Demand, Taken};
use crate::store::{Kind, State};

/// The shards of a take, locked in their order.
type Guards<'a> = SmallVec<[(usize, MutexGuard<'a, Shard>); 1]>;

/// A bucket of a take.
#[derive(Clone, Copy)]
struct Found {
    guard: usize,
    slot: u32,
    balance: Balance,
}

impl Shared {
    /// Takes, if all buckets are in memory. Otherwise returns `None`, and nothing is taken.
    pub(super) fn take(&self, demands: &[Demand<'_>], moment: &mut Moment) -> Option<SmallVec<[Taken; 1]>> {
        let places: SmallVec<[Place; 1]> = demands
            .iter()
            .map(|demand| self.place(Kind::Tokens(demand.bucket.rate).row_key(demand.bucket.key)))
            .collect();
        let mut guards = self.lock_all(&places);
        let found: Option<SmallVec<[Found; 1]>> = demands
            .iter()
            .zip(&places)
            .map(|(demand, place)| {
                let guard = guards.iter().position(|(shard, _)| *shard == place.shard)?;
                let shard = &guards.get(guard)?.1;
                let slot = shard.find(place.hash, &place.key)?;
                let state = shard.entry(slot)?.state;
                let balance = balance(state, demand.bucket.rate, moment.now_ms)
                    .refilled(demand.bucket.rate, moment.now_ms);
                Some(Found { guard, slot, balance })
            })
            .collect();
        let found = found?;
        let taken = Self::take_found(demands, &found, &mut guards, moment);
        self.note(moment);
        Some(taken)
    }

    fn lock_all(&self, places: &[Place]) -> Guards<'_> {
        let mut shards: SmallVec<[usize; 1]> = places.iter().map(|place| place.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        let lock = |shard: usize| {
            let mutex = self.shards.get(shard)?;
            Some((shard, mutex.lock().unwrap_or_else(PoisonError::into_inner)))
        };
        shards.into_iter().filter_map(lock).collect()
    }

    fn take_found(
        demands: &[Demand<'_>],
        found: &[Found],
        guards: &mut Guards<'_>,
        moment: &mut Moment,
    ) -> SmallVec<[Taken; 1]> {
        // The demands of one bucket add up.
        let of_bucket = |at: usize, range: std::ops::Range<usize>| -> u64 {
            let is_same = |other: &Found| {
                found.get(at).is_some_and(|this| (this.guard, this.slot) == (other.guard, other.slot))
            };
            let demands = demands.get(range.clone()).unwrap_or_default();
            let found = found.get(range).unwrap_or_default();
            let same = demands.iter().zip(found).filter(|(_, found)| is_same(found));
            same.fold(0, |sum, (demand, _)| sum.saturating_add(demand.least))
        };
        let count = demands.len();
        let is_granted = (0..count)
            .all(|at| found.get(at).is_some_and(|found| found.balance.tokens >= of_bucket(at, 0..count)));
        demands
            .iter()
            .zip(found)
            .enumerate()
            .map(|(at, (demand, found))| {
                let rate = demand.bucket.rate;
                let shard = guards.get_mut(found.guard).map(|(_, shard)| shard);
                // Another demand of this take may have changed it.
                let mut new = shard
                    .as_ref()
                    .and_then(|shard| shard.entry(found.slot))
                    .map_or(found.balance, |entry| balance(entry.state, rate, moment.now_ms))
                    .refilled(rate, moment.now_ms);
                let later = of_bucket(at, at + 1..count);
                let granted = if is_granted {
                    lease(new.tokens.saturating_sub(later), demand.least, demand.wanted)
                } else {
                    0
                };
                new.tokens -= granted;
                if let Some(shard) = shard {
                    if let Some(entry) = shard.entry_mut(found.slot) {
                        entry.count(moment.minute, !is_granted);
                        if granted > 0 {
                            entry.set(Some(State::Tokens(new)), moment.now_ms, moment.now_ms);
                        }
                    }
                    if granted > 0 {
                        moment.note_commit(shard.set_changed(found.slot));
                    }
                }
                let holds = new.holds_at_ms(rate, of_bucket(at, 0..count));
                Taken {
                    granted,
                    remaining: new.tokens,
                    refill_in_ms: new.next_refill_ms(rate).saturating_sub(moment.now_ms),
                    holds_in_ms: holds.map(|then| then.saturating_sub(moment.now_ms)),
                }
            })
            .collect()
    }
}
