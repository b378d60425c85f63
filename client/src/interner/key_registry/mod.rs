//! The keys of a limiter as its subscription knows them: who entered, who left, and from where each one's counts
//! begin. Pure: the subscription says what time it is.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::names::{Bucket, Key, KeyId, Tenant};
use plimsoll_core::report::Counts;
use plimsoll_core::quantity::MonoTime;

use crate::interner::eviction::{Candidate, Idle};
use crate::hot::table::{KeyPlace, Table};
use crate::hot::directive_word::Word;

/// How often to see who is idle.
const SWEEP: Duration = Duration::from_secs(1);
/// How long a key rests before another may have its id: longer than a thread is stopped in the middle of a decision.
const REST: Duration = Duration::from_secs(10);

/// Every key that has an id, or had one that no other key has taken since.
///
/// The counts of an id go on for ever, whoever has it; those of a key begin where it took the id. A key that leaves is
/// still on the roll, and reported, until another has its id; if it is asked for before, it goes on as it was.
#[derive(Debug, Default)]
pub(crate) struct Roll {
    keys: Vec<Key>,
    places: Vec<KeyPlace>,
    /// By id: what was counted before the key took it.
    baselines: Vec<Counts>,
    idle: Idle,
    away: BTreeMap<u32, Away>,
    swept: Option<MonoTime>,
}

/// A key that was laid to rest.
#[derive(Clone, Copy, Debug)]
enum Away {
    /// Since then.
    Resting(MonoTime),
    /// What held for it is taken away, and another may have the id. These are the last counts.
    Offered(Counts),
}

/// What became of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A key took an id that none had before.
    Entered(u32),
    /// A key took the id of one that is gone.
    Replaced(u32),
    /// Another key may take the id any moment. Its word is taken away already; all else that holds for it must follow.
    Offered(u32),
    /// A key that was laid to rest is asked for again, and has its id still: what holds for it must be published again.
    Woke(u32),
}

impl Roll {
    /// All keys, by id.
    pub(crate) fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Where each of the keys stands, by id.
    pub(crate) fn places(&self) -> &[KeyPlace] {
        &self.places
    }

    /// What was decided for the key that has this id.
    pub(crate) fn counts(&self, table: &Table, id: KeyId) -> Counts {
        let counts = table.slabs.counts(id.0);
        self.baselines.get(id.index()).map_or(counts, |baseline| counts.since(*baseline))
    }

    /// Takes notice of keys that the request path entered or woke since the last time. Linear in them and in the keys
    /// that are away. `buckets` are those known, by id; a key that is seen before its bucket waits for the next time.
    pub(crate) fn look(&mut self, table: &Table, buckets: &[Bucket]) -> Vec<Change> {
        let mut changes = Vec::new();
        table.keys.entered(|id| {
            let Some((owner, name)) = table.keys.read(id) else { return true };
            let Some(bucket) = buckets.get(owner as usize) else { return false };
            let Ok(tenant) = Tenant::new(&name) else { return true };
            changes.extend(self.enter(table, id, owner, Key { bucket: bucket.clone(), tenant }));
            true
        });
        let Self { keys, away, idle, .. } = self;
        away.retain(|id, _| {
            // An id that is not resting may have been taken by another key just now, which the next look will see.
            let is_awake = !table.keys.is_resting(*id)
                && keys.get(*id as usize).zip(table.keys.read(*id)).is_some_and(|(key, (owner, name))| {
                    key.tenant.as_str() == name && buckets.get(owner as usize) == Some(&key.bucket)
                });
            if is_awake {
                idle.enter(*id, table.slabs.counts(*id).offered);
                changes.push(Change::Woke(*id));
            }
            !is_awake
        });
        changes
    }

    fn enter(&mut self, table: &Table, id: u32, owner: u32, key: Key) -> Option<Change> {
        let at = id as usize;
        // The default class's own key may be seen a moment before it is known as such.
        let place = KeyPlace { key: id, default_key: table.default_key(owner).unwrap_or(id) };
        let Some(known) = self.keys.get_mut(at) else {
            self.keys.push(key);
            self.places.push(place);
            self.baselines.push(Counts::ZERO);
            self.idle.enter(id, 0);
            return Some(Change::Entered(id));
        };
        // An id that was only passed over still has its name.
        if *known == key {
            return None;
        }
        let Some(Away::Offered(last)) = self.away.remove(&id) else { return None };
        *known = key;
        (self.places[at], self.baselines[at]) = (place, last);
        self.idle.enter(id, last.offered);
        Some(Change::Replaced(id))
    }

    /// Once a second: lays idle keys to rest, and offers the ids of those that rested long enough. To be called after
    /// a [look](Self::look). `stays` are those that are not to leave; `settled` says whether these counts of a key are
    /// known to have reached the controller, for they are reported no longer once another has the id. Linear in the
    /// keys.
    pub(crate) fn sweep(
        &mut self,
        now: MonoTime,
        table: &Table,
        stays: impl Fn(u32) -> bool,
        settled: impl Fn(KeyId, Counts) -> bool,
    ) -> Vec<Change> {
        if self.swept.is_some_and(|at| now.since(at) < SWEEP) {
            return Vec::new();
        }
        self.swept = Some(now);
        let changes = self.offer(now, table, settled);
        let waiting = table.keys.halve();
        let Self { keys, away, idle, .. } = self;
        let present = (0..keys.len() as u32).filter(|id| !away.contains_key(id));
        let candidates =
            present.map(|id| Candidate { id, offered: table.slabs.counts(id).offered, stays: stays(id) });
        let resting = away.values().filter(|state| matches!(state, Away::Resting(_))).count() as u32;
        for id in idle.sweep(now, candidates, table.keys.room(), resting, &waiting) {
            if table.keys.rest(id) {
                away.insert(id, Away::Resting(now));
            }
        }
        changes
    }

    fn offer(
        &mut self,
        now: MonoTime,
        table: &Table,
        settled: impl Fn(KeyId, Counts) -> bool,
    ) -> Vec<Change> {
        let rested = self.away.iter().filter_map(|(id, state)| match state {
            Away::Resting(since) if now.since(*since) >= REST => Some(*id),
            Away::Resting(_) | Away::Offered(_) => None,
        });
        let may_go = |id: &u32| settled(KeyId(*id), self.counts(table, KeyId(*id)));
        let may_go: Vec<u32> = rested.filter(may_go).collect();
        let mut changes = Vec::new();
        for id in may_go {
            // The next key must not be decided by what held for this one. Should this one wake just now, the next look
            // says so.
            table.publish(id, Word::NOTHING);
            self.away.insert(id, Away::Offered(table.slabs.counts(id)));
            changes.push(Change::Offered(id));
            if !table.keys.offer(id) && table.keys.is_resting(id) {
                self.away.insert(id, Away::Resting(now));
            }
        }
        changes
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests;
