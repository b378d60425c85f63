//! The states of the dithered coins: one for each thread and key, so that no thread waits for another.

use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_core::coin::Dither;

/// How many threads have states of their own; further ones share theirs.
pub(crate) const STRIPES: usize = 8;

/// Where an owner of decisions keeps the states of its coins.
pub(crate) trait Coins {
    /// Runs `f` on the state of a key's coin.
    fn with<R>(&mut self, key: u32, f: impl FnOnce(&mut Dither) -> R) -> R;
}

/// The states of all threads of a process, allocated at the start: a thread's first decision allocates nothing.
#[derive(Debug)]
pub(crate) struct Stripes {
    keys: usize,
    /// Stripe after stripe, so that two threads do not write to one cache line.
    words: Box<[AtomicU64]>,
}

/// The states that one thread uses.
pub(crate) struct Stripe<'a>(&'a [AtomicU64]);

impl Stripes {
    pub(crate) fn new(keys: usize) -> Self {
        Self { keys, words: (0..keys * STRIPES).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The states of the thread with this number.
    #[inline]
    pub(crate) fn of_thread(&self, thread: usize) -> Stripe<'_> {
        let first = thread % STRIPES * self.keys;
        Stripe(self.words.get(first..first + self.keys).unwrap_or_default())
    }
}

impl Coins for Stripe<'_> {
    /// Loads, then stores. When two threads share a stripe, an update may be lost; the state stays whole, since it is
    /// one word, and two requests were decided from it where one is remembered. Each of the two was refused with the
    /// ratio's probability all the same: they only fell alike.
    #[inline]
    fn with<R>(&mut self, key: u32, f: impl FnOnce(&mut Dither) -> R) -> R {
        let Some(word) = self.0.get(key as usize) else { return f(&mut Dither::default()) };
        let mut state = Dither::from_bits(word.load(Ordering::Relaxed));
        let result = f(&mut state);
        word.store(state.to_bits(), Ordering::Relaxed);
        result
    }
}

/// The states of one owner that is no thread; they grow with the keys it decides for.
impl Coins for Vec<Dither> {
    fn with<R>(&mut self, key: u32, f: impl FnOnce(&mut Dither) -> R) -> R {
        let key = key as usize;
        if key >= self.len() {
            self.resize(key + 1, Dither::default());
        }
        f(&mut self[key])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::ratio::DropRatio;

    fn step(coins: &mut impl Coins, key: u32) -> Dither {
        coins.with(key, |state| {
            state.refuses(DropRatio::new(DropRatio::ONE / 4).unwrap(), || 1 << 31);
            *state
        })
    }

    #[test]
    fn each_thread_and_key_has_a_state_of_its_own_as_far_as_the_stripes_go() {
        let stripes = Stripes::new(3);
        let first = step(&mut stripes.of_thread(0), 1);
        assert_eq!(step(&mut stripes.of_thread(1), 1), first, "begun anew");
        assert_eq!(step(&mut stripes.of_thread(0), 2), first, "begun anew");
        assert_ne!(step(&mut stripes.of_thread(STRIPES), 1), first, "gone on with");
        let mut own = Vec::new();
        assert_eq!((step(&mut own, 7), own.len()), (first, 8));
        assert_ne!(step(&mut own, 7), first, "gone on with");
    }

    #[test]
    fn threads_on_one_stripe_keep_to_the_ratio() {
        let stripes = Stripes::new(1);
        let ratio = DropRatio::new(DropRatio::ONE / 10 * 3).unwrap();
        let refused = |seed: u32| {
            let (mut coins, mut draw) = (stripes.of_thread(5), seed);
            let mut refuses = || {
                coins.with(0, |state| {
                    state.refuses(ratio, || {
                        draw = draw.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
                        draw
                    })
                })
            };
            (0..100_000).filter(|_| refuses()).count()
        };
        let all: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || refused(seed))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        let share = all as f64 / 400_000.0;
        assert!((share - 0.3).abs() < 0.01, "{share}");
    }
}
