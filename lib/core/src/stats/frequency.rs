//! A sketch of frequent names: decaying counts in a table of a size that does not depend on the
//! number of names.
//!
//! A fixed table of saturating counts that are halved every second, as in per-partition rate limits
//! of databases. Names that do not recur are not remembered, so that a flood of invented names
//! cannot displace a name that recurs.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Entries of one set: one cache line.
const WAYS: usize = 16;
/// The smallest table.
const SLOTS_MIN: usize = 64;

/// Decaying counts of names by their hashes, which threads may share without a lock.
///
/// At a steady `v` requests a second, counts that are halved each second run between `v` and `2 v`. An entry
/// has 32 bits: `COUNT_BITS` for the count, the others for a tag from the hash. A name belongs to one set of
/// 16 entries. Two names of one set with the same tag share an entry; else no name is counted for another. A
/// name that finds its set full reduces the lowest count of the set by its own, and takes the entry when
/// nothing is left of it.
#[derive(Debug)]
pub struct FrequencySketch<const COUNT_BITS: u32> {
    /// An entry with a count of zero is free.
    entries: Box<[AtomicU32]>,
    /// False while all counts are zero.
    has_counts: AtomicBool,
    /// The first entry that the next [`decay_part`](Self::decay_part) halves.
    next: usize,
}

impl<const COUNT_BITS: u32> FrequencySketch<COUNT_BITS> {
    /// The largest count, and the bits of an entry that hold it.
    const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;
    const TAG_MASK: u32 = !Self::COUNT_MAX;

    /// Makes a table with `slots` entries of 4 bytes, rounded up to a power of two of at least 64.
    pub fn new(slots: usize) -> Self {
        let slots = slots.max(SLOTS_MIN).next_power_of_two();
        Self {
            entries: (0..slots).map(|_| AtomicU32::new(0)).collect(),
            has_counts: AtomicBool::new(false),
            next: 0,
        }
    }

    /// Counts `n` more requests of the name with this hash. Returns its count as of the last second or two,
    /// or `n` if the name has no entry, or another thread has changed the entry meanwhile. O(1); allocates
    /// nothing and does not wait.
    pub fn add(&self, hash: u64, n: u64) -> u32 {
        let n = u32::try_from(n).unwrap_or(u32::MAX).min(Self::COUNT_MAX);
        if n == 0 {
            return self.get(hash);
        }
        let (set, tag) = self.place(hash);
        let (mut lowest, mut lowest_count) = (None, u32::MAX);
        for entry in set {
            let seen = entry.load(Ordering::Relaxed);
            let count = seen & Self::COUNT_MAX;
            if seen & Self::TAG_MASK == tag && count != 0 {
                let sum = (count + n).min(Self::COUNT_MAX);
                return if replace(entry, seen, tag | sum) {
                    sum
                } else {
                    n
                };
            }
            if count < lowest_count {
                (lowest, lowest_count) = (Some((entry, seen)), count);
            }
        }
        debug_assert!(lowest.is_some(), "a set is never empty");
        let Some((entry, seen)) = lowest else {
            return n;
        };
        let next = if n >= lowest_count {
            tag | (n - lowest_count).max(1)
        } else {
            seen - n
        };
        replace(entry, seen, next);
        // After the count, so that a decay that runs meanwhile sees one of both. A store each time would take the cache
        // line from the other threads.
        if !self.has_counts.load(Ordering::Relaxed) {
            self.has_counts.store(true, Ordering::Relaxed);
        }
        n
    }

    /// Returns the count of a name; 0 if it has none. O(1).
    pub fn get(&self, hash: u64) -> u32 {
        let (set, tag) = self.place(hash);
        let mut entries = set.iter().map(|entry| entry.load(Ordering::Relaxed));
        let found =
            entries.find(|seen| seen & Self::TAG_MASK == tag && seen & Self::COUNT_MAX != 0);
        found.map_or(0, |seen| seen & Self::COUNT_MAX)
    }

    /// Removes a name.
    pub fn remove(&self, hash: u64) {
        let (set, tag) = self.place(hash);
        for entry in set {
            let seen = entry.load(Ordering::Relaxed);
            if seen & Self::TAG_MASK == tag {
                replace(entry, seen, 0);
            }
        }
    }

    /// Halves every count, and passes the counts before to `visit`: to be called once a second. Linear in the
    /// table, or O(1) while all counts are zero.
    pub fn decay(&self, mut visit: impl FnMut(u32)) {
        if !self.has_counts.swap(false, Ordering::Relaxed) {
            return;
        }
        for entry in &self.entries {
            let count = Self::halve(entry);
            if count > 0 {
                visit(count);
                self.has_counts.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Halves every count of a part of the table, `1 / parts` of it, and of the next part on the next call:
    /// for callers that tick more often than once a second. O(1) while all counts are zero.
    pub fn decay_part(&mut self, parts: usize) {
        let from = if self.next >= self.entries.len() {
            0
        } else {
            self.next
        };
        if from == 0 && !self.has_counts.swap(false, Ordering::Relaxed) {
            return;
        }
        let to = (from + self.entries.len().div_ceil(parts.max(1))).min(self.entries.len());
        for entry in self.entries.get(from..to).unwrap_or_default() {
            if Self::halve(entry) > 0 {
                self.has_counts.store(true, Ordering::Relaxed);
            }
        }
        self.next = to;
    }

    /// Halves the count of an entry; returns the count before. A request that another thread counts meanwhile
    /// keeps the entry as it is until the next time.
    fn halve(entry: &AtomicU32) -> u32 {
        let seen = entry.load(Ordering::Relaxed);
        let count = seen & Self::COUNT_MAX;
        if count > 0 {
            replace(entry, seen, (seen & Self::TAG_MASK) | (count / 2));
        }
        count
    }

    fn place(&self, hash: u64) -> (&[AtomicU32], u32) {
        let set = (hash >> 20) as usize & (self.entries.len() / WAYS - 1);
        let entries = self
            .entries
            .get(set * WAYS..(set + 1) * WAYS)
            .unwrap_or_default();
        // The multiplication mixes the low bits, which choose no set, into the high ones, which are the tag.
        let tag = (hash as u32).wrapping_mul(0x9E37_79B9) & Self::TAG_MASK;
        (entries, tag)
    }
}

fn replace(entry: &AtomicU32, seen: u32, next: u32) -> bool {
    entry
        .compare_exchange(seen, next, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    type Sketch = FrequencySketch<20>;

    fn hash(name: u64) -> u64 {
        let mut hash = name.wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ (hash >> 31)
    }

    #[test]
    fn steady_count_stays_within_twice_the_rate() {
        let hot = Sketch::new(1 << 10);
        let mut seen = Vec::new();
        for _ in 0..20 {
            seen = (0..300).map(|_| hot.add(hash(1), 1)).collect();
            hot.decay(|_| ());
        }
        assert!(
            (299..=301).contains(&seen[0]) && (598..=600).contains(&seen[299]),
            "{seen:?}"
        );
        assert_eq!(hot.get(hash(2)), 0);
        (0..10).for_each(|_| hot.decay(|_| ()));
        assert_eq!(
            hot.get(hash(1)),
            0,
            "a name that does not recur is forgotten"
        );
    }

    #[test]
    fn count_saturates() {
        let hot = Sketch::new(64);
        assert_eq!(hot.add(hash(1), u64::MAX), Sketch::COUNT_MAX);
        assert_eq!(hot.add(hash(1), u64::MAX), Sketch::COUNT_MAX);
        assert_eq!(hot.get(hash(1)), Sketch::COUNT_MAX);
    }

    #[test]
    fn name_flood_displaces_no_recurring_name() {
        let hot = Sketch::new(1 << 12);
        let regulars: Vec<u64> = (0..100).map(hash).collect();
        let mut name = 1_000;
        for _ in 0..5 {
            for _ in 0..100 {
                for regular in &regulars {
                    hot.add(*regular, 1);
                }
                // A thousand names that never recur, for each hundred requests of the regulars.
                for _ in 0..1_000 {
                    hot.add(hash(name), 1);
                    name += 1;
                }
            }
            for (at, regular) in regulars.iter().enumerate() {
                let count = hot.get(*regular);
                assert!((90..=260).contains(&count), "{at}: {count}");
            }
            hot.decay(|_| ());
        }
        let strangers = (name..name + 1_000)
            .filter(|name| hot.add(hash(*name), 1) > 30)
            .count();
        assert!(
            strangers < 30,
            "{strangers} of a thousand strangers pass for regulars"
        );
    }

    #[test]
    fn newly_frequent_name_gets_an_entry() {
        let hot = Sketch::new(64);
        (0..64 * 50).for_each(|name| {
            hot.add(hash(name % 500), 1);
        });
        let counts: Vec<u32> = (0..200).map(|_| hot.add(hash(9_999), 1)).collect();
        assert!(counts[199] > 100, "{counts:?}");
    }

    fn counts(sketch: &Sketch) -> Vec<u32> {
        sketch
            .entries
            .iter()
            .map(|entry| entry.load(Ordering::Relaxed))
            .collect()
    }

    #[test]
    fn partial_decays_add_up() {
        let (whole, mut parts) = (Sketch::new(1 << 8), Sketch::new(1 << 8));
        for name in 0..100 {
            whole.add(hash(name), 7 + name);
            parts.add(hash(name), 7 + name);
        }
        whole.decay(|_| ());
        (0..10).for_each(|_| parts.decay_part(10));
        assert_eq!(counts(&whole), counts(&parts));
        parts.decay_part(10);
        assert_ne!(counts(&whole), counts(&parts), "and begin again");
    }

    #[test]
    fn partial_decays_rest_at_zero() {
        let mut sketch = Sketch::new(1 << 8);
        (0..25).for_each(|_| sketch.decay_part(10));
        for name in 0..100 {
            sketch.add(hash(name), 64);
        }
        for halved in 1..=7 {
            (0..10).for_each(|_| sketch.decay_part(10));
            let left: Vec<u32> = (0..100).map(|name| sketch.get(hash(name))).collect();
            assert!(
                left.iter().all(|count| *count <= 64 >> halved),
                "{left:?} after {halved} rounds"
            );
        }
        assert_eq!(
            counts(&sketch)
                .iter()
                .map(|entry| entry & Sketch::COUNT_MAX)
                .max(),
            Some(0)
        );
        // The last round has found every count zero.
        (0..10).for_each(|_| sketch.decay_part(10));
        assert!(!sketch.has_counts.load(Ordering::Relaxed));
    }

    #[test]
    fn million_names_counted_once_never_look_frequent() {
        let sketch = FrequencySketch::<12>::new(10_000);
        let most = (1..1_000_000).map(|name| sketch.add(hash(name), 1)).max();
        assert!(most <= Some(2), "{most:?}");
    }

    #[test]
    fn frequent_name_is_noticed_among_a_million() {
        let sketch = FrequencySketch::<12>::new(10_000);
        let mut requests = 0;
        let noticed = (1..1_000_000).find(|name| {
            sketch.add(hash(*name), 1);
            // One request in a thousand.
            name % 1_000 == 0 && {
                requests += 1;
                sketch.add(hash(0), 1) >= 8
            }
        });
        assert!(noticed.is_some() && requests < 16, "{requests} requests");
    }

    #[test]
    fn removed_name_starts_again() {
        let sketch = Sketch::new(64);
        sketch.add(hash(1), 9);
        sketch.add(hash(2), 3);
        sketch.remove(hash(1));
        assert_eq!((sketch.get(hash(1)), sketch.get(hash(2))), (0, 3));
        assert_eq!(sketch.add(hash(1), 1), 1);
    }

    proptest! {
        /// Errors arise only from equal tags.
        #[test]
        fn counts_are_exact_with_enough_entries(steps in vec((0..40u64, 1..50u64), 0..200)) {
            let hot = Sketch::new(1 << 12);
            let mut naive = std::collections::HashMap::new();
            for (name, n) in steps {
                *naive.entry(name).or_insert(0) += n;
                prop_assert_eq!(u64::from(hot.add(hash(name), n)), naive[&name]);
            }
        }
    }
}
