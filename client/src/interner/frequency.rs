//! How often names without an id were asked for lately, in a table of fixed size: what decides who gets one when ids
//! are scarce.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Entries of one set: one cache line.
const WAYS: usize = 16;
const SETS_MAX: usize = 1 << 12;
const COUNT_BITS: u32 = 12;
const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;
/// Classes of counts: 0, 1, 2 to 3, 4 to 7, and so on.
const CLASSES: usize = COUNT_BITS as usize + 1;

/// Decaying counts of names by hash. Halved every second, the count of a name that is asked for V times a second runs
/// between V and 2V.
///
/// In the manner of ScyllaDB's per-partition rate limit, but a name has one set of 16 entries, which is one cache
/// line, where there it has up to 32 places. An entry is 20 bits of the hash and 12 of the count. A name that finds
/// its set full takes 1 from the lowest count and, when that was the last, the entry: so no number of names asked for
/// once displaces one that is asked for often, and no name is ever taken for more frequent than it is, save where two
/// agree in the 20 bits and the set.
#[derive(Debug)]
pub(crate) struct Sketch {
    entries: Vec<AtomicU32>,
    /// Whether anything was counted since all counts were 0.
    counts: AtomicBool,
}

/// The names that are waiting for an id, by how often they were asked for lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting([u32; CLASSES]);

impl Waiting {
    /// Takes a name of this count into account.
    pub(crate) fn add(&mut self, count: u32) {
        if let Some(class) = self.0.get_mut((u32::BITS - count.leading_zeros()) as usize) {
            *class += 1;
        }
    }

    /// At least how often each was asked for, the most frequent first; counts below 1 do not appear.
    pub(crate) fn most_frequent_first(&self) -> impl Iterator<Item = u32> {
        let classes = self.0.iter().enumerate().skip(1).rev();
        classes.flat_map(|(class, names)| std::iter::repeat_n(1 << (class - 1), *names as usize))
    }
}

impl Sketch {
    /// A table for the names that wait beside `ids` that have an id: an entry for each, 256 to 65,536.
    pub(crate) fn new(ids: usize) -> Self {
        let entries = (0..Self::entries_for(ids)).map(|_| AtomicU32::new(0)).collect();
        Self { entries, counts: AtomicBool::new(false) }
    }

    /// Entries of 4 bytes.
    pub(crate) fn entries_for(ids: usize) -> usize {
        ids.div_ceil(WAYS).next_power_of_two().clamp(WAYS, SETS_MAX) * WAYS
    }

    /// Counts one request for a name; how many there were lately, this one included, or 0 where it could not be
    /// counted: its set is full of others, or another thread writes to the entry.
    pub(crate) fn count(&self, hash: u64) -> u32 {
        let (set, tag) = self.place(hash);
        let (mut lowest, mut count_of_lowest) = (None, COUNT_MAX + 1);
        for entry in set {
            let seen = entry.load(Ordering::Relaxed);
            let count = seen & COUNT_MAX;
            if seen & !COUNT_MAX == tag && count != 0 {
                let next = (count + 1).min(COUNT_MAX);
                return if replace(entry, seen, tag | next) { next } else { 0 };
            }
            if count < count_of_lowest {
                (lowest, count_of_lowest) = (Some((entry, seen)), count);
            }
        }
        let Some((entry, seen)) = lowest else { return 0 };
        if !self.counts.load(Ordering::Relaxed) {
            self.counts.store(true, Ordering::Relaxed);
        }
        if count_of_lowest <= 1 {
            return u32::from(replace(entry, seen, tag | 1));
        }
        replace(entry, seen, seen - 1);
        0
    }

    /// Forgets a name that waits no longer.
    pub(crate) fn forget(&self, hash: u64) {
        let (set, tag) = self.place(hash);
        for entry in set {
            let seen = entry.load(Ordering::Relaxed);
            if seen & !COUNT_MAX == tag {
                replace(entry, seen, 0);
            }
        }
    }

    /// A second has passed: halves every count, and says what they were.
    pub(crate) fn halve(&self) -> Waiting {
        let mut waiting = Waiting::default();
        if !self.counts.swap(false, Ordering::Relaxed) {
            return waiting;
        }
        for entry in &self.entries {
            let seen = entry.load(Ordering::Relaxed);
            let count = seen & COUNT_MAX;
            if count == 0 {
                continue;
            }
            waiting.add(count);
            // A request counted meanwhile is one more than was known; it is halved the next time.
            replace(entry, seen, if count == 1 { 0 } else { (seen & !COUNT_MAX) | (count / 2) });
            self.counts.store(true, Ordering::Relaxed);
        }
        waiting
    }

    /// The set of a name, and its tag within.
    fn place(&self, hash: u64) -> (&[AtomicU32], u32) {
        // The index takes the low bits of a hash, and its tags the high ones of the upper half.
        let set = (hash >> 20) as usize & (self.entries.len() / WAYS - 1);
        let entries = self.entries.get(set * WAYS..(set + 1) * WAYS).unwrap_or_default();
        (entries, (hash as u32).wrapping_mul(0x9E37_79B9) & !COUNT_MAX)
    }
}

fn replace(entry: &AtomicU32, seen: u32, next: u32) -> bool {
    entry.compare_exchange(seen, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    fn hash(name: u64) -> u64 {
        let mixed = (name + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
    }

    #[test]
    fn counts_run_between_the_rate_and_twice_the_rate() {
        let sketch = Sketch::new(10_000);
        for second in 0..10 {
            let counts: Vec<u32> = (0..100).map(|_| sketch.count(hash(7))).collect();
            let (first, last) = (counts[0], counts[99]);
            assert!(first <= 101 && (100..=200).contains(&last), "second {second}: {first} to {last}");
            let mut all = sketch.halve().most_frequent_first().collect::<Vec<_>>();
            assert_eq!(all.pop(), Some(if last < 128 { 64 } else { 128 }));
            assert!(all.is_empty());
        }
        sketch.forget(hash(7));
        assert_eq!(sketch.count(hash(7)), 1);
    }

    #[test]
    fn silence_is_forgotten() {
        let sketch = Sketch::new(100);
        (0..5_000).for_each(|_| _ = sketch.count(hash(7)));
        let seconds = (0..20).take_while(|_| sketch.halve() != Waiting::default()).count();
        assert_eq!(seconds, 12, "4095 is halved twelve times");
        assert_eq!(sketch.count(hash(7)), 1);
    }

    #[test]
    fn a_million_names_asked_for_once_are_never_taken_for_frequent() {
        let sketch = Sketch::new(10_000);
        let most = (1..1_000_000).map(|name| sketch.count(hash(name))).max();
        assert!(most <= Some(2), "{most:?}");
    }

    #[test]
    fn a_frequent_name_is_noticed_among_a_million_others() {
        let sketch = Sketch::new(10_000);
        let mut asked = 0;
        let noticed = (1..1_000_000).find(|name| {
            sketch.count(hash(*name));
            // One request in a thousand.
            name % 1_000 == 0 && {
                asked += 1;
                sketch.count(hash(0)) >= 8
            }
        });
        assert!(noticed.is_some() && asked < 16, "{asked} requests");
    }

    #[test]
    fn the_most_frequent_come_first() {
        let mut waiting = Waiting::default();
        [1, 9, 4_095, 8, 0].into_iter().for_each(|count| waiting.add(count));
        assert_eq!(waiting.most_frequent_first().collect::<Vec<_>>(), [2_048, 8, 8, 1]);
    }
}
