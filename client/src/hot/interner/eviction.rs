//! The choice of keys to evict: idle keys, and the least frequent ones when ids are scarce. Pure, and off the
//! request path.

use std::time::Duration;

use plimsoll_core::quantity::MonoTime;

use crate::hot::interner::Capacity;
use crate::hot::interner::frequency::WaitingCounts;

/// The time without requests after which a key is evicted.
const IDLE: Duration = Duration::from_secs(60);
/// The same time while more than 3/4 of the ids are taken.
const IDLE_WHEN_CROWDED: Duration = Duration::from_secs(10);
/// One id of this many is kept free for names that become frequent.
const RESERVE: u32 = 16;
/// A key is evicted in favor of a name only if the name is this many times as frequent.
const DISPLACED_BY: u32 = 2;

#[derive(Default)]
pub(crate) struct Eviction {
    keys: Vec<Activity>,
}

#[derive(Clone, Copy)]
struct Activity {
    /// Requests counted up to the last sweep.
    seen: u64,
    /// Decaying requests up to the last sweep, halved with each sweep. `None` before the first sweep.
    recent: Option<u32>,
    /// The time of the last sweep that found new requests, or of the first sweep.
    active: Option<MonoTime>,
}

/// A key that may be evicted, and the requests counted for its id so far. Requests refused from the memory of a
/// quota count: a tenant that asks on is not idle.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) id: u32,
    pub(crate) asked: u64,
    /// True if the key must not be evicted.
    pub(crate) is_protected: bool,
}

impl Eviction {
    /// Tracks a key that has taken an id. `asked` requests were counted for the id before.
    pub(crate) fn insert(&mut self, id: u32, asked: u64) {
        let fresh = Activity {
            seen: asked,
            recent: None,
            active: None,
        };
        let at = id as usize;
        if at >= self.keys.len() {
            self.keys.resize(at + 1, fresh);
        }
        self.keys[at] = fresh;
    }

    /// Measures every key once a second; returns the keys to evict. `tombstoned` ids will be free soon;
    /// `waiting` are the names without an id. Linear in the keys; when few ids are free, n log n in the
    /// candidates.
    pub(crate) fn sweep(
        &mut self,
        now: MonoTime,
        candidates: impl Iterator<Item = Candidate>,
        capacity: Capacity,
        tombstoned: u32,
        waiting: &WaitingCounts,
    ) -> Vec<u32> {
        let taken = capacity
            .ids
            .saturating_sub(capacity.free)
            .saturating_sub(tombstoned);
        let idle_after = if taken > capacity.ids - capacity.ids / 4 {
            IDLE_WHEN_CROWDED
        } else {
            IDLE
        };
        let mut evicted = Vec::new();
        let mut others = Vec::new();
        for Candidate {
            id,
            asked,
            is_protected,
        } in candidates
        {
            let Some(key) = self.keys.get_mut(id as usize) else {
                continue;
            };
            let was_measured = key.recent.is_some();
            let active = key.measure(now, asked);
            if is_protected {
                continue;
            }
            if now.since(active) >= idle_after {
                evicted.push(id);
            } else if was_measured {
                others.push((key.recent.unwrap_or_default(), id));
            }
        }
        let soon_free =
            capacity.free + tombstoned + u32::try_from(evicted.len()).unwrap_or(u32::MAX);
        let wanted = capacity.ids.div_ceil(RESERVE).saturating_sub(soon_free);
        if wanted > 0 {
            others.sort_unstable();
            let displaced = others
                .into_iter()
                .zip(waiting.most_frequent_first())
                .take(wanted as usize);
            let displaced = displaced.take_while(|((recent, _), requests)| {
                recent.saturating_mul(DISPLACED_BY) <= *requests
            });
            evicted.extend(displaced.map(|((_, id), _)| id));
        }
        evicted
    }
}

impl Activity {
    /// Records the requests counted so far. Returns the time of the key's last activity.
    fn measure(&mut self, now: MonoTime, asked: u64) -> MonoTime {
        // A sum read during writes may be lower than the previous one.
        let fresh = asked.saturating_sub(self.seen);
        self.seen += fresh;
        let active = self.active.filter(|_| fresh == 0).unwrap_or(now);
        self.active = Some(active);
        let fresh = u32::try_from(fresh).unwrap_or(u32::MAX);
        self.recent = Some((self.recent.unwrap_or_default() / 2).saturating_add(fresh));
        active
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    fn at(seconds: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_secs(1_000 + seconds))
    }

    /// Sweeps keys with these rates every second until `until`; returns the evicted keys and the second of
    /// each.
    fn evicted(
        ids: u32,
        rates: &[u64],
        protected: &[u32],
        until: u64,
        waiting: &[u32],
    ) -> Vec<(u32, u64)> {
        let mut eviction = Eviction::default();
        let mut evicted: Vec<(u32, u64)> = Vec::new();
        let keys = || 0..rates.len() as u32;
        keys().for_each(|id| eviction.insert(id, 7));
        let mut names = WaitingCounts::default();
        waiting.iter().for_each(|count| names.add(*count));
        for second in 1..=until {
            let present: Vec<u32> = keys()
                .filter(|id| evicted.iter().all(|(other, _)| other != id))
                .collect();
            let (taken, tombstoned) = (rates.len() as u32, evicted.len() as u32);
            let capacity = Capacity {
                ids,
                free: ids - taken,
            };
            let candidates = present.into_iter().map(|id| Candidate {
                id,
                asked: 7 + rates[id as usize] * second,
                is_protected: protected.contains(&id),
            });
            let newly_evicted =
                eviction.sweep(at(second), candidates, capacity, tombstoned, &names);
            evicted.extend(newly_evicted.into_iter().map(|id| (id, second)));
        }
        evicted
    }

    #[test]
    fn idle_key_leaves_sooner_when_crowded() {
        assert_eq!(evicted(8, &[1, 0, 1], &[], 70, &[]), [(1, 61)]);
        assert_eq!(
            evicted(8, &[1, 0, 1, 1, 1, 1], &[], 70, &[]),
            [(1, 61)],
            "3/4 is not more than 3/4"
        );
        assert_eq!(evicted(8, &[1, 0, 1, 1, 1, 1, 1], &[], 70, &[]), [(1, 11)]);
        assert_eq!(
            evicted(8, &[1, 0, 1], &[1], 700, &[]),
            [],
            "it is protected"
        );
    }

    #[test]
    fn full_table_evicts_for_twice_the_frequency() {
        let rates: Vec<u64> = (1..=32).rev().collect();
        for (waiting, expected) in [
            (&[][..], &[][..]),
            (&[1][..], &[]),
            (&[3][..], &[(31, 2)]),
            (&[100][..], &[(31, 2), (30, 3)]),
            (&[100, 1][..], &[(31, 2), (30, 3)]),
            (&[100, 100][..], &[(31, 2), (30, 2)]),
            (&[4_095; 9][..], &[(31, 2), (30, 2)]),
        ] {
            assert_eq!(
                evicted(32, &rates, &[], 40, waiting),
                expected,
                "{waiting:?}"
            );
        }
        assert_eq!(
            evicted(32, &rates, &[31, 30], 3, &[4_095; 9]),
            [(29, 2), (28, 2)]
        );
        assert_eq!(
            evicted(34, &rates, &[], 3, &[4_095; 9]),
            [(31, 2)],
            "two of 34 are free, three are kept"
        );
        assert_eq!(
            evicted(40, &rates, &[], 40, &[4_095; 9]),
            [],
            "there is room enough"
        );
    }

    #[test]
    fn waiting_names_displace_no_frequent_key() {
        assert_eq!(evicted(4, &[2_000; 4], &[], 40, &[4_095; 100]), []);
    }

    #[test]
    fn key_is_measured_before_comparison() {
        assert_eq!(evicted(2, &[1, 1], &[], 1, &[4_095; 9]), []);
        assert_eq!(evicted(2, &[1, 1], &[], 2, &[4_095; 9]), [(0, 2)]);
    }
}
