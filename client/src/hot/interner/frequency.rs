//! The names that wait for an id, by frequency: they decide which name gets one when ids are scarce.

use plimsoll_core::stats::FrequencySketch;

/// Bits of a count, whose maximum is 4,095. The other 20 bits of an entry tell its name from others in the same place.
const COUNT_BITS: u32 = 12;
const SLOTS_MIN: usize = 256;
const SLOTS_MAX: usize = 1 << 16;
/// Octaves of counts: 0, 1, 2 to 3, 4 to 7, and so on.
const OCTAVES: usize = COUNT_BITS as usize + 1;

/// Counts of names without an id, halved every second. The request path writes it, without waiting or
/// allocating.
pub(crate) type Sketch = FrequencySketch<COUNT_BITS>;

/// Makes the sketch for a table of `ids` ids, with at least a slot for each: a power of two from 256 to 65,536.
pub(crate) fn sketch_for(ids: usize) -> Sketch {
    Sketch::new(ids.clamp(SLOTS_MIN, SLOTS_MAX))
}

/// Halves the counts of a sketch, once a second; returns the counts before.
pub(crate) fn decay(sketch: &Sketch) -> WaitingCounts {
    let mut waiting = WaitingCounts::default();
    sketch.decay(|count| waiting.add(count));
    waiting
}

/// The number of names that wait for an id, by the octave of their counts: what [`Eviction`](super::eviction::Eviction)
/// compares with the keys that have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitingCounts([u32; OCTAVES]);

impl WaitingCounts {
    pub(crate) fn add(&mut self, count: u32) {
        if let Some(names) = self.0.get_mut((u32::BITS - count.leading_zeros()) as usize) {
            *names += 1;
        }
    }

    /// Returns a lower bound of each name's count, the most frequent first, without counts of 0.
    pub(crate) fn most_frequent_first(&self) -> impl Iterator<Item = u32> {
        let octaves = self.0.iter().enumerate().skip(1).rev();
        octaves.flat_map(|(octave, names)| std::iter::repeat_n(1 << (octave - 1), *names as usize))
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    const HASH: u64 = 0x9E37_79B9_7F4A_7C15;

    #[test]
    fn counted_frequency_stays_below_twice_the_rate() {
        let sketch = Sketch::new(10_000);
        for second in 0..10 {
            let counts: Vec<u32> = (0..100).map(|_| sketch.add(HASH, 1)).collect();
            let (first, last) = (counts[0], counts[99]);
            assert!(
                first <= 101 && (100..=200).contains(&last),
                "second {second}: {first} to {last}"
            );
            let mut all = decay(&sketch).most_frequent_first().collect::<Vec<_>>();
            assert_eq!(all.pop(), Some(if last < 128 { 64 } else { 128 }));
            assert!(all.is_empty());
        }
        sketch.remove(HASH);
        assert_eq!(sketch.add(HASH, 1), 1);
    }

    #[test]
    fn name_without_requests_is_forgotten() {
        let sketch = Sketch::new(100);
        (0..5_000).for_each(|_| _ = sketch.add(HASH, 1));
        let seconds = (0..20)
            .take_while(|_| decay(&sketch) != WaitingCounts::default())
            .count();
        assert_eq!(seconds, 12, "4095 is halved twelve times");
        assert_eq!(sketch.add(HASH, 1), 1);
    }

    #[test]
    fn most_frequent_names_come_first() {
        let mut waiting = WaitingCounts::default();
        [1, 9, 4_095, 8, 0]
            .into_iter()
            .for_each(|count| waiting.add(count));
        assert_eq!(
            waiting.most_frequent_first().collect::<Vec<_>>(),
            [2_048, 8, 8, 1]
        );
    }
}
