//! The hooks of a table for tests: draws that follow a seed, and the directive of buckets that are declared later.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::hot::directive_word::DirectiveWord;
use crate::hot::rng::{Draw, DrawSource, ThreadRng};
use crate::hot::sync::lock;
use crate::hot::table::Table;

/// The step of the seeded sequence (the golden ratio of 2^64).
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The hooks of one table. Without a [`ControlPlane`](super::ControlPlane) they change nothing.
#[derive(Default)]
pub(crate) struct Hooks {
    seeded: OnceLock<AtomicU64>,
    /// The directive of buckets without their own rule.
    fallback: Mutex<Option<DirectiveWord>>,
}

impl Hooks {
    /// Lets every draw of the limiter follow a seed, in the order of its decisions. Only the first call counts.
    pub(super) fn seed(&self, seed: u64) {
        self.seeded.get_or_init(|| AtomicU64::new(mix(seed)));
    }

    pub(super) fn set_fallback(&self, word: DirectiveWord) {
        *lock(&self.fallback) = Some(word);
    }

    pub(crate) fn fallback(&self) -> Option<DirectiveWord> {
        *lock(&self.fallback)
    }
}

pub(crate) struct Draws<'a>(pub(crate) &'a Table);

impl DrawSource for Draws<'_> {
    #[inline]
    fn draw(&mut self) -> Draw {
        match self.0.hooks.seeded.get() {
            None => ThreadRng.draw(),
            Some(state) => seeded(state),
        }
    }

    // A seeded limiter has no counters of threads, and its decisions then spread waits by their draw.
    #[inline]
    fn jitter(&mut self) -> u32 {
        ThreadRng.jitter()
    }
}

/// Draws from a seeded sequence. Kept out of the code of decisions, which tests of their cost count.
#[cold]
#[inline(never)]
fn seeded(state: &AtomicU64) -> Draw {
    Draw::of(mix(state.fetch_add(STEP, Ordering::Relaxed)))
}

/// Mixes the bits of a number (the finalizer of SplitMix64).
const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}
