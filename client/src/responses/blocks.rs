//! The counters of one bucket's responses, in a row for each thread: a block for each cohort.

use std::ops::Range;
use std::time::Duration;

use plimsoll_core::stats::{BINS, Bin};

use super::grpc::{FAILURES, LABELS, place};
use super::{Cohort, Ending};
use crate::hot::thread_counters::{Row, Rows};

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
const FIRST_BIN: usize = FIRST_CODE + LABELS.len();
const WORDS: usize = FIRST_BIN + BINS;

/// The bins of one bit.
const CHUNK: usize = BINS.div_ceil(u64::BITS as usize);

/// The blocks of one bucket. A page takes no memory before a thread writes to it.
#[derive(Debug)]
pub(super) struct Blocks(Rows);

/// The block of one cohort in the row of a thread.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    row: Row<'a>,
    first: usize,
}

impl Blocks {
    pub(super) fn new(thread_slots: usize) -> Self {
        Self(Rows::new(thread_slots, Cohort::COUNT * WORDS))
    }

    #[inline]
    pub(super) fn of_current_thread(&self, cohort: Cohort) -> Block<'_> {
        Block {
            row: self.0.of_current_thread(),
            first: first_word(cohort),
        }
    }

    fn sum(&self, cohorts: &[Cohort], word: usize) -> u64 {
        let counters = cohorts.iter().map(|cohort| first_word(*cohort) + word);
        counters.map(|counter| self.0.total(counter)).sum()
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
        let chunks = cohorts
            .iter()
            .flat_map(|cohort| self.0.each(first_word(*cohort) + CHUNKS));
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
        self.row.set(self.first + CHUNKS, 1 << (bin / CHUNK));
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
        self.row.add(self.first + word, n);
    }
}

#[inline]
fn first_word(cohort: Cohort) -> usize {
    usize::from(cohort.to_bits()) * WORDS
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
