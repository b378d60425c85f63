//! Who is hot among names without end: counts that fade, in a table whose size does not depend on how many names there
//! are.
//!
//! The manner is that of per-partition rate limits in databases: a fixed table of saturating counts that are halved every
//! second, open addressing with bounded probing, and nothing remembered of names that did not come again. So a flood of
//! invented names cannot push out one that keeps coming.

/// How many slots are looked at for one name.
const PROBES: usize = 32;
/// The largest count that is kept.
const COUNT_MAX: u32 = (1 << 20) - 1;
/// The low bits of a slot hold the count, the others tell names apart.
const COUNT_BITS: u32 = 20;

/// Fading counts of names, by their hashes.
///
/// At a steady `v` requests a second, counts that are halved each second run between `v` and `2 v`. Two names whose
/// hashes agree in what is kept of them count as one: of a million names, one in some 120 shares its count with another.
#[derive(Debug)]
pub struct FrequencySketch {
    /// 12 bits of the hash and 20 bits of count; a count of zero is free.
    slots: Box<[u32]>,
    /// Where halving goes on: it is spread over calls so that none takes long.
    halved: usize,
}

impl FrequencySketch {
    /// A table with `slots` places, rounded up to a power of two and at least 64. It takes 4 bytes a place, whatever
    /// the number of names.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        let slots = slots.max(64).next_power_of_two();
        Self { slots: vec![0; slots].into_boxed_slice(), halved: 0 }
    }

    /// Counts `n` more requests of the name with this hash; returns how many there are, as of the last second or two. A
    /// name that finds no place takes away from the one that has the least, and stands at `n`. O(1).
    pub fn add(&mut self, hash: u64, n: u64) -> u32 {
        let n = u32::try_from(n).unwrap_or(COUNT_MAX).min(COUNT_MAX);
        let tag = tag(hash);
        let mut least = (usize::MAX, u32::MAX);
        for slot in self.probe(hash) {
            let Some(held) = self.slots.get_mut(slot) else { continue };
            let count = *held & COUNT_MAX;
            if count == 0 {
                *held = tag | n;
                return n;
            }
            if *held & !COUNT_MAX == tag {
                let sum = (count + n).min(COUNT_MAX);
                *held = tag | sum;
                return sum;
            }
            if count < least.1 {
                least = (slot, count);
            }
        }
        // All places are taken. Whoever comes once wears the least down by as much; only one who comes more often than
        // that takes its place.
        if let Some(held) = self.slots.get_mut(least.0) {
            *held = if n > least.1 { tag | (n - least.1) } else { *held - n };
        }
        n
    }

    /// The count of a name; 0 if it has none. O(1).
    #[must_use]
    pub fn get(&self, hash: u64) -> u32 {
        let tag = tag(hash);
        let slots = self.probe(hash).filter_map(|slot| self.slots.get(slot));
        let mut counted = slots.filter(|held| **held & COUNT_MAX != 0 && **held & !COUNT_MAX == tag);
        counted.next().map_or(0, |held| held & COUNT_MAX)
    }

    /// Halves every count: to be called once a second. Linear in the table.
    pub fn decay(&mut self) {
        self.halve(self.slots.len());
        self.halved = 0;
    }

    /// Halves a part of the table, `1 / parts` of it, and the next part the next time: for callers who tick more often
    /// than once a second.
    pub fn decay_part(&mut self, parts: usize) {
        self.halve(self.slots.len().div_ceil(parts.max(1)));
    }

    fn halve(&mut self, slots: usize) {
        let from = if self.halved >= self.slots.len() { 0 } else { self.halved };
        let to = (from + slots).min(self.slots.len());
        for held in self.slots.get_mut(from..to).unwrap_or_default() {
            *held = (*held & !COUNT_MAX) | ((*held & COUNT_MAX) >> 1);
        }
        self.halved = to;
    }

    /// How many places there are.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The places looked at for a hash: quadratic steps, so that crowded stretches are left soon.
    fn probe(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let mask = self.slots.len() - 1;
        let home = hash as usize;
        (0..PROBES).map(move |step| home.wrapping_add(step * (step + 1) / 2) & mask)
    }
}

/// What a slot keeps of a hash: bits that do not choose the place.
const fn tag(hash: u64) -> u32 {
    ((hash >> 52) as u32) << COUNT_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// A hash as good as any.
    fn hash(name: u64) -> u64 {
        let mut hash = name.wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ (hash >> 31)
    }

    #[test]
    fn at_a_steady_rate_a_count_runs_between_it_and_twice_it() {
        let mut hot = FrequencySketch::new(1 << 10);
        let mut seen = Vec::new();
        for _ in 0..20 {
            seen = (0..300).map(|_| hot.add(hash(1), 1)).collect();
            hot.decay();
        }
        assert!((299..=301).contains(&seen[0]) && (598..=600).contains(&seen[299]), "{seen:?}");
        assert_eq!(hot.get(hash(2)), 0);
        (0..10).for_each(|_| hot.decay());
        assert_eq!(hot.get(hash(1)), 0, "what does not come again is forgotten");
    }

    #[test]
    fn a_count_does_not_go_round() {
        let mut hot = FrequencySketch::new(64);
        assert_eq!(hot.add(hash(1), u64::MAX), COUNT_MAX);
        assert_eq!(hot.add(hash(1), u64::MAX), COUNT_MAX);
        assert_eq!(hot.get(hash(1)), COUNT_MAX);
    }

    #[test]
    fn a_flood_of_names_pushes_nobody_out_who_keeps_coming() {
        let mut hot = FrequencySketch::new(1 << 12);
        let regulars: Vec<u64> = (0..100).map(hash).collect();
        let mut name = 1_000;
        for _ in 0..5 {
            for _ in 0..100 {
                for regular in &regulars {
                    hot.add(*regular, 1);
                }
                // A thousand names that nobody will hear of again, for each hundred requests of those who stay.
                for _ in 0..1_000 {
                    hot.add(hash(name), 1);
                    name += 1;
                }
            }
            for (at, regular) in regulars.iter().enumerate() {
                let count = hot.get(*regular);
                assert!((90..=260).contains(&count), "{at}: {count}");
            }
            hot.decay();
        }
        let strangers = (name..name + 1_000).filter(|name| hot.add(hash(*name), 1) > 30).count();
        assert!(strangers < 30, "{strangers} of a thousand strangers pass for regulars");
    }

    #[test]
    fn one_who_becomes_hot_in_a_full_table_finds_a_place() {
        let mut hot = FrequencySketch::new(64);
        (0..64 * 50).for_each(|name| {
            hot.add(hash(name % 500), 1);
        });
        let counts: Vec<u32> = (0..200).map(|_| hot.add(hash(9_999), 1)).collect();
        assert!(counts[199] > 100, "{counts:?}");
    }

    #[test]
    fn parts_come_to_the_whole() {
        let (mut whole, mut parts) = (FrequencySketch::new(1 << 8), FrequencySketch::new(1 << 8));
        for name in 0..100 {
            whole.add(hash(name), 7 + name);
            parts.add(hash(name), 7 + name);
        }
        whole.decay();
        (0..10).for_each(|_| parts.decay_part(10));
        assert_eq!(whole.slots, parts.slots);
        parts.decay_part(10);
        assert_ne!(whole.slots, parts.slots, "and begin again");
    }

    proptest! {
        /// With room for all there are no errors but those of hashes that agree.
        #[test]
        fn with_room_for_all_it_counts_what_came(steps in vec((0..40u64, 1..50u64), 0..200)) {
            let mut hot = FrequencySketch::new(1 << 12);
            let mut naive = std::collections::HashMap::new();
            for (name, n) in steps {
                *naive.entry(name).or_insert(0) += n;
                prop_assert_eq!(u64::from(hot.add(hash(name), n)), naive[&name]);
            }
        }
    }
}
