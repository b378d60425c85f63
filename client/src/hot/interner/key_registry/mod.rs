//! The key registry of a limiter: the keys that were inserted and evicted, and the baseline of each key's
//! counts. Pure: the subscription passes the time.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::names::{Bucket, Key, KeyId, Tenant};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::Counts;

use crate::hot::directive_word::DirectiveWord;
use crate::hot::interner::eviction::{Candidate, Eviction};
use crate::hot::interner::log::{Event, Log};
use crate::hot::table::{KeyPlace, Table};

const SWEEP: Duration = Duration::from_secs(1);
/// Minimum age of a tombstone when its id is released for another key: longer than a thread is suspended in a
/// decision.
const TOMBSTONE_MIN: Duration = Duration::from_secs(10);

/// Every key with an id, and evicted keys with ids that no other key has taken.
///
/// The counts of an id are cumulative over all its keys; a key's own counts start at the baseline
/// when it took the id. An evicted key is still reported until another key takes its id; if it is
/// revived before, its counts continue.
#[derive(Default)]
pub(crate) struct KeyRegistry {
    keys: Vec<Key>,
    places: Vec<KeyPlace>,
    /// By id: the counts before the key took the id.
    baselines: Vec<Counts>,
    eviction: Eviction,
    evicted: BTreeMap<u32, Evicted>,
    swept: Option<MonoTime>,
}

#[derive(Clone, Copy)]
enum Evicted {
    Tombstoned(MonoTime),
    /// Its directive is removed, and another key may take the id. These are the last counts.
    Released(Counts),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A new key has an id that no key had before.
    Inserted(u32),
    /// A new key has the id of an evicted key.
    Replaced(u32),
    /// Another key may take the id. Its directive is removed already; the caller must remove all other state.
    Released(u32),
    /// An evicted key was revived with its id: its directive must be published again.
    Revived(u32),
}

impl KeyRegistry {
    pub(crate) fn keys(&self) -> &[Key] {
        &self.keys
    }

    pub(crate) fn places(&self) -> &[KeyPlace] {
        &self.places
    }

    /// Returns the keys of a bucket, without the keys whose id was released.
    pub(crate) fn present<'a>(
        &'a self,
        table: &'a Table,
        bucket: u32,
    ) -> impl Iterator<Item = (u32, &'a Key)> {
        let all = (0..)
            .zip(&self.keys)
            .filter(move |(id, _)| table.keys.owner_of(*id) == bucket);
        all.filter(|(id, _)| !matches!(self.evicted.get(id), Some(Evicted::Released(_))))
    }

    /// Returns the counts of a key since it took its id.
    pub(crate) fn counts(&self, table: &Table, id: KeyId) -> Counts {
        let counts = table.counters.counts(id.0);
        let own = self
            .baselines
            .get(id.index())
            .map_or(counts, |baseline| counts.since(*baseline));
        // A refusal by a quota that was counted only after another key took the id is no refusal of that key. A parent
        // would close the stream over it.
        own.consistent_part()
    }

    /// Registers the keys that the request path inserted or revived, by the [log](Log) of the
    /// table's keys. Linear in it. `buckets` are the known buckets, by id, including the buckets of
    /// all inserted keys.
    pub(crate) fn sync(&mut self, table: &Table, buckets: &[Bucket], log: &Log) -> Vec<Change> {
        let change = |event| match event {
            Event::Inserted { id, owner, name } => {
                let bucket = buckets.get(owner as usize);
                debug_assert!(
                    bucket.is_some(),
                    "bucket {owner} was inserted before its key {id}"
                );
                let key = Key {
                    bucket: bucket?.clone(),
                    tenant: Tenant::new(name).ok()?,
                };
                self.insert(table, id, owner, key)
            }
            Event::Revived(id) => {
                self.evicted.remove(&id)?;
                self.eviction.insert(id, table.counters.counts(id).asked());
                Some(Change::Revived(id))
            }
        };
        log.events().filter_map(change).collect()
    }

    fn insert(&mut self, table: &Table, id: u32, owner: u32, key: Key) -> Option<Change> {
        let at = id as usize;
        debug_assert!(
            at <= self.keys.len(),
            "ids are assigned in order: {id} before {}",
            self.keys.len()
        );
        // The default class's own key may appear a moment before it is stored as such.
        let place = table.place_of(id, table.default_key(owner).unwrap_or(id));
        let Some(known) = self.keys.get_mut(at) else {
            self.keys.push(key);
            self.places.push(place);
            self.baselines.push(Counts::ZERO);
            self.eviction.insert(id, 0);
            return Some(Change::Inserted(id));
        };
        let Some(Evicted::Released(last)) = self.evicted.remove(&id) else {
            return None;
        };
        *known = key;
        (self.places[at], self.baselines[at]) = (place, last);
        self.eviction.insert(id, last.asked());
        Some(Change::Replaced(id))
    }

    /// Evicts idle keys once a second, and releases ids with an old enough tombstone. Must follow a
    /// [`sync`](Self::sync). `is_protected` returns true for keys that must not be evicted.
    /// `is_settled` returns true if the controller has received these counts of a key, which are
    /// not reported anymore once another key has the id. Linear in the keys.
    pub(crate) fn sweep(
        &mut self,
        now: MonoTime,
        table: &Table,
        is_protected: impl Fn(u32) -> bool,
        is_settled: impl Fn(KeyId, Counts) -> bool,
    ) -> Vec<Change> {
        if self.swept.is_some_and(|at| now.since(at) < SWEEP) {
            return Vec::new();
        }
        self.swept = Some(now);
        let changes = self.release(now, table, is_settled);
        let waiting = table.keys.decay_waiting();
        let Self {
            keys,
            evicted,
            eviction,
            ..
        } = self;
        let present = (0..keys.len() as u32).filter(|id| !evicted.contains_key(id));
        let candidates = present.map(|id| Candidate {
            id,
            asked: table.counters.counts(id).asked(),
            is_protected: is_protected(id),
        });
        let tombstoned = evicted
            .values()
            .filter(|state| matches!(state, Evicted::Tombstoned(_)))
            .count() as u32;
        for id in eviction.sweep(now, candidates, table.keys.capacity(), tombstoned, &waiting) {
            if table.keys.tombstone(id) {
                evicted.insert(id, Evicted::Tombstoned(now));
            }
        }
        changes
    }

    fn release(
        &mut self,
        now: MonoTime,
        table: &Table,
        is_settled: impl Fn(KeyId, Counts) -> bool,
    ) -> Vec<Change> {
        let expired = self.evicted.iter().filter_map(|(id, state)| match state {
            Evicted::Tombstoned(since) if now.since(*since) >= TOMBSTONE_MIN => Some(*id),
            Evicted::Tombstoned(_) | Evicted::Released(_) => None,
        });
        let is_releasable = |id: &u32| is_settled(KeyId(*id), self.counts(table, KeyId(*id)));
        let is_releasable: Vec<u32> = expired.filter(is_releasable).collect();
        let mut changes = Vec::new();
        for id in is_releasable {
            // The next key must not be decided by this one's directive. If this one is revived just now, the
            // next `sync` reports it.
            table.publish(id, DirectiveWord::NOTHING);
            self.evicted
                .insert(id, Evicted::Released(table.counters.counts(id)));
            changes.push(Change::Released(id));
            table.keys.release(id);
        }
        changes
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests;
