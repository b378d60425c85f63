//! The counters of one bucket's responses: a block for each thread and cohort, so that threads
//! that serve requests never write to one cache line.

use std::ops::Range;
use std::time::Duration;

use plimsoll_core::stats::{BINS, Bin};

use super::grpc::{FAILURES, LABELS, place};
use super::{Cohort, Ending};
use crate::hot::sync::{self, AtomicU64, Ordering, zeroed};
use crate::hot::thread_counters::slots;

pub(super) const STATUSES: Range<u16> = 100..600;
/// The lowest status that counts as a failure of the service.
const FIRST_FAILURE: u16 = 500;

// The words of a block: what every response writes, a counter for each status and each gRPC code, and the bins
// of durations.
/// The sum of durations in µs.
const MICROS: usize = 0;
/// One bit for each [`CHUNK`] of bins that may have counts.
const CHUNKS: usize = 1;
const ERRORS: usize = 2;
const ABORTED: usize = 3;
const REFUSALS: usize = 4;
/// The refusals with a status or code that is a failure in other responses.
const REFUSALS_LIKE_FAILURES: usize = 5;
const SUCCESSES: usize = 6;
const FIRST_STATUS: usize = 7;
const FIRST_CODE: usize = FIRST_STATUS + (STATUSES.end - STATUSES.start) as usize;
const FIRST_BIN: usize = (FIRST_CODE + LABELS.len()).next_multiple_of(LINE);
const WORDS: usize = FIRST_BIN + BINS;

/// The bins of one bit.
const CHUNK: usize = BINS.div_ceil(u64::BITS as usize);
/// A cache line, in words.
const LINE: usize = 64 / size_of::<AtomicU64>();

/// The blocks of one bucket. A page takes no memory before a thread writes to it.
#[derive(Debug)]
pub(super) struct Blocks {
    /// By thread slot, and last the block of all threads without a slot; within each, by cohort.
    words: Vec<AtomicU64>,
    thread_slots: usize,
}

#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    words: &'a [AtomicU64],
    /// True for the block that several threads may write to.
    is_shared: bool,
}

impl Blocks {
    pub(super) fn new(thread_slots: usize) -> Self {
        let words = (thread_slots + 1) * Cohort::COUNT * WORDS;
        Self {
            words: zeroed(words),
            thread_slots,
        }
    }

    #[inline]
    pub(super) fn of_current_thread(&self, cohort: Cohort) -> Block<'_> {
        let slot = slots::current(self.thread_slots);
        Block {
            words: self.words(slot.unwrap_or(self.thread_slots), cohort),
            is_shared: slot.is_none(),
        }
    }

    #[inline]
    fn words(&self, slot: usize, cohort: Cohort) -> &[AtomicU64] {
        let from = (slot * Cohort::COUNT + usize::from(cohort.to_bits())) * WORDS;
        self.words.get(from..from + WORDS).unwrap_or_default()
    }

    fn sum(&self, cohorts: &[Cohort], word: usize) -> u64 {
        let words = self
            .of_all_threads(cohorts)
            .filter_map(|words| words.get(word));
        words.map(|word| word.load(Ordering::Relaxed)).sum()
    }

    fn of_all_threads(&self, cohorts: &[Cohort]) -> impl Iterator<Item = &[AtomicU64]> {
        let used = slots::high_watermark().min(self.thread_slots);
        let slots = move || (0..used).chain([self.thread_slots]);
        cohorts
            .iter()
            .flat_map(move |cohort| slots().map(|slot| self.words(slot, *cohort)))
    }

    pub(super) fn total(&self, cohorts: &[Cohort], ending: Ending) -> u64 {
        self.sum(cohorts, word_of(ending))
    }

    /// Returns the number of responses that count as failures of the service. A refusal is not one,
    /// with any status.
    pub(super) fn failed(&self, cohorts: &[Cohort]) -> u64 {
        let server_errors = (FIRST_FAILURE..STATUSES.end).map(Ending::Status);
        let failures = server_errors
            .chain(FAILURES.map(Ending::Grpc))
            .chain([Ending::Error, Ending::Aborted]);
        let all: u64 = failures.map(|ending| self.total(cohorts, ending)).sum();
        all.saturating_sub(self.sum(cohorts, REFUSALS_LIKE_FAILURES))
    }

    pub(super) fn refusals(&self) -> u64 {
        (0..Cohort::COUNT as u8)
            .map(|bits| self.sum(&[Cohort::from_bits(bits)], REFUSALS))
            .sum()
    }

    pub(super) fn micros(&self, cohorts: &[Cohort]) -> u64 {
        self.sum(cohorts, MICROS)
    }

    /// Returns the bins that may have counts, ascending.
    pub(super) fn durations<'a>(
        &'a self,
        cohorts: &'a [Cohort],
    ) -> impl Iterator<Item = (Bin, u64)> + 'a {
        let blocks = self.of_all_threads(cohorts);
        let chunks = blocks.filter_map(|words| Some(words.get(CHUNKS)?.load(Ordering::Relaxed)));
        let chunks = chunks.fold(0, |all, chunks| all | chunks);
        let written = (0..BINS).filter(move |bin| chunks >> (bin / CHUNK) & 1 == 1);
        let bins = written.filter_map(|bin| Some((bin, Bin::new(u16::try_from(bin).ok()?)?)));
        bins.map(move |(at, bin)| (bin, self.sum(cohorts, FIRST_BIN + at)))
    }
}

impl Block<'_> {
    #[inline]
    pub(super) fn add_duration(self, took: Duration) {
        let bin = usize::from(Bin::of(took).number());
        self.add(MICROS, u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        self.add(FIRST_BIN + bin, 1);
        self.set(CHUNKS, 1 << (bin / CHUNK));
    }

    #[inline]
    pub(super) fn count(self, ending: Ending) {
        self.add(word_of(ending), 1);
    }

    #[inline]
    pub(super) fn count_refusal(self, ending: Ending) {
        self.count(ending);
        self.add(REFUSALS, 1);
        if is_failure(ending) {
            self.add(REFUSALS_LIKE_FAILURES, 1);
        }
    }

    #[inline]
    fn add(self, word: usize, n: u64) {
        if let Some(word) = self.words.get(word) {
            sync::add(word, n, self.is_shared);
        }
    }

    #[inline]
    fn set(self, word: usize, bits: u64) {
        let Some(word) = self.words.get(word) else {
            return;
        };
        if word.load(Ordering::Relaxed) & bits != bits {
            word.fetch_or(bits, Ordering::Relaxed);
        }
    }
}

#[inline]
fn word_of(ending: Ending) -> usize {
    match ending {
        Ending::Status(status) if STATUSES.contains(&status) => {
            FIRST_STATUS + usize::from(status - STATUSES.start)
        }
        Ending::Grpc(code) => FIRST_CODE + place(code),
        Ending::Status(_) | Ending::Error => ERRORS,
        Ending::Aborted => ABORTED,
        Ending::Success => SUCCESSES,
    }
}

fn is_failure(ending: Ending) -> bool {
    match ending {
        Ending::Status(status) => !(STATUSES.start..FIRST_FAILURE).contains(&status),
        Ending::Grpc(code) => FAILURES
            .iter()
            .any(|failure| place(*failure) == place(code)),
        Ending::Error | Ending::Aborted => true,
        Ending::Success => false,
    }
}
