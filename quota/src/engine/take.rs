//! A take from several buckets: all of them, or none.

use std::sync::MutexGuard;

use plimsoll_core::quota::{Balance, lease};
use smallvec::SmallVec;

use super::apply::balance;
use super::shard::Shard;
use super::shard::place::{Moment, Place};
use super::shared::Shared;
use crate::operation::{Demand, Taken};
use crate::store::{Kind, State};

impl Shared {
    /// Takes from different buckets if all are in memory, and returns the result of each. Otherwise
    /// returns `None` and takes nothing.
    pub(super) fn take(
        &self,
        demands: &[Demand<'_>],
        moment: &mut Moment,
    ) -> Option<SmallVec<[Taken; 1]>> {
        let places: SmallVec<[Place; 1]> = demands
            .iter()
            .map(|demand| self.place(Kind::Tokens(demand.bucket.rate).row_key(demand.bucket.key)))
            .collect();
        let mut shards: SmallVec<[usize; 1]> = places.iter().map(|place| place.shard).collect();
        // All takes lock in this order.
        shards.sort_unstable();
        shards.dedup();
        let mut guards: SmallVec<[MutexGuard<'_, Shard>; 1]> =
            shards.iter().map(|shard| self.lock(*shard)).collect();
        let now_ms = moment.now_ms;
        // Guard, slot and balance of each bucket.
        let found: Option<SmallVec<[(usize, u32, Balance); 1]>> = demands
            .iter()
            .zip(&places)
            .map(|(demand, place)| {
                let guard = shards.binary_search(&place.shard).ok()?;
                let shard = guards.get(guard)?;
                let slot = shard.find(place)?;
                let rate = demand.bucket.rate;
                Some((
                    guard,
                    slot,
                    balance(shard.entry(slot)?.state, rate, now_ms).refilled(rate, now_ms),
                ))
            })
            .collect();
        let found = found?;
        let is_granted = demands
            .iter()
            .zip(&found)
            .all(|(demand, found)| found.2.tokens >= demand.least);
        let taken = demands
            .iter()
            .zip(found)
            .map(|(demand, (guard, slot, mut balance))| {
                let granted = if is_granted {
                    lease(balance.tokens, demand.least, demand.wanted)
                } else {
                    0
                };
                balance.tokens -= granted;
                if let Some(shard) = guards.get_mut(guard)
                    && let Some(entry) = shard.entry_mut(slot)
                {
                    entry.count(moment.minute, !is_granted);
                    if granted > 0 {
                        entry.set(Some(State::Tokens(balance)), now_ms, now_ms);
                        moment.note_commit(shard.set_changed(slot));
                    }
                }
                let rate = demand.bucket.rate;
                Taken {
                    granted,
                    remaining: balance.tokens,
                    refill_in_ms: balance.next_refill_ms(rate).saturating_sub(now_ms),
                    holds_in_ms: balance
                        .holds_at_ms(rate, demand.least)
                        .map(|then| then.saturating_sub(now_ms)),
                }
            });
        let taken = taken.collect();
        self.note(moment);
        Some(taken)
    }
}
