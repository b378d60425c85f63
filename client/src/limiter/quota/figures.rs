//! Counters of the exact layer, exported as metrics.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_core::quota::{OnStoreError, Quota};
use plimsoll_core::stats::metrics::Durations;

use super::store::Failure;
use crate::hot::sync::lock;

/// The upper bounds of the times of calls in seconds; one more bin is for longer ones.
const CALL_SECONDS: [f64; 11] = [
    0.000_25, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0,
];
/// Maximum number of quotas with their own count of lost tokens. Further ones count for `other`.
pub(crate) const LOST_NAMES_MAX: usize = 1_000;
const OTHER: &str = "other";
const ANSWERS: [&str; 2] = ["granted", "refused"];
const POLICIES: [&str; 3] = ["allow_bounded", "allow", "deny"];
const _: () =
    assert!(OnStoreError::AllowBounded as usize == 0 && OnStoreError::Allow as usize == 1);

#[derive(Default)]
pub(super) struct Figures {
    answers: [AtomicU64; ANSWERS.len()],
    failures: [AtomicU64; Failure::WORDS.len()],
    degraded: [AtomicU64; POLICIES.len()],
    late: AtomicU64,
    given: AtomicU64,
    lost: Mutex<BTreeMap<String, u64>>,
    bins: [AtomicU64; CALL_SECONDS.len() + 1],
    micros: AtomicU64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoreCounters {
    /// Calls to the store by result: `granted`, `refused`, and the failures. Among them are calls that a bound kept
    /// from the store (`overflow`), or that an open breaker or a caller that does not wait did (`not_asked`).
    pub(crate) requests: Vec<(&'static str, u64)>,
    /// Decisions about a quota without its store, by policy: `allow_bounded`, `allow`, `deny`.
    pub(crate) degraded: Vec<(&'static str, u64)>,
    /// Answers that arrived after the request had stopped waiting.
    pub(crate) late: u64,
    /// Tokens given back to the store.
    pub(crate) given: u64,
    /// Tokens that were neither used nor given back, by quota.
    pub(crate) lost: Vec<(String, u64)>,
    /// False while a breaker is open.
    pub(crate) is_up: bool,
    pub(crate) keys: u64,
    pub(crate) leased: u64,
    /// The times of calls that were answered before their deadline.
    pub(crate) durations: Durations,
}

impl Figures {
    pub(super) fn answered(&self, is_granted: bool) {
        add(&self.answers[usize::from(!is_granted)], 1);
    }

    pub(super) fn failed(&self, failure: Failure) {
        add(&self.failures[failure as usize], 1);
    }

    pub(super) fn took(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bin = CALL_SECONDS.partition_point(|bound| *bound < seconds);
        add(&self.bins[bin], 1);
        add(
            &self.micros,
            u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        );
    }

    pub(super) fn degraded(&self, policy: OnStoreError) {
        add(&self.degraded[policy as usize], 1);
    }

    pub(super) fn late(&self) {
        add(&self.late, 1);
    }

    pub(super) fn given(&self, tokens: u64) {
        add(&self.given, tokens);
    }

    pub(super) fn lost(&self, quota: &Quota, tokens: u64) {
        if tokens == 0 {
            return;
        }
        let mut lost = lock(&self.lost);
        let is_known = lost.contains_key(quota.name.as_str()) || lost.len() < LOST_NAMES_MAX;
        let name = if is_known { quota.name.as_str() } else { OTHER };
        let sum = lost.entry(name.to_owned()).or_default();
        *sum = sum.saturating_add(tokens);
    }

    pub(super) fn counters(&self, is_up: bool, (keys, leased): (usize, u64)) -> StoreCounters {
        let results = ANSWERS.into_iter().chain(Failure::WORDS);
        let requests = self.answers.iter().chain(&self.failures).map(get);
        let mut count = 0;
        let buckets = CALL_SECONDS.iter().zip(&self.bins).map(|(bound, counter)| {
            count += get(counter);
            (*bound, count)
        });
        let buckets = buckets.collect();
        let count = count + self.bins.last().map_or(0, get);
        StoreCounters {
            requests: results.zip(requests).collect(),
            degraded: POLICIES
                .into_iter()
                .zip(self.degraded.iter().map(get))
                .collect(),
            late: get(&self.late),
            given: get(&self.given),
            lost: lock(&self.lost).clone().into_iter().collect(),
            is_up,
            keys: keys as u64,
            leased,
            durations: Durations {
                buckets,
                sum: get(&self.micros) as f64 / 1e6,
                count,
            },
        }
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
