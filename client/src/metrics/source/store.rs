//! The store of exact quotas: its calls, and the decisions without it.

use plimsoll_core::stats::metrics::{Metric, Series, Value, maybe, rows};

use super::Source;
use crate::limiter::layered::Store;
use crate::limiter::quota::StoreCounters;

/// The metrics of the store. A limiter without one has no series.
pub(super) const STORE: [Metric<Source>; 8] = [
    Metric::counter(
        "plimsoll_quota_store_requests_total",
        &["result"],
        "Calls to the store of exact quotas: `granted`, `refused`, and the failures; `not_asked` while the circuit breaker is \
         open.",
        |source| {
            let requests = counters(source).into_iter().flat_map(|store| store.requests);
            rows(requests.map(|(result, count)| ([result], count)))
        },
    ),
    Metric::histogram(
        "plimsoll_quota_store_request_duration_seconds",
        &[],
        "Time of calls to the store of exact quotas that were answered.",
        |source| each(source, |store| store.durations.clone()),
    ),
    Metric::gauge(
        "plimsoll_quota_store_up",
        &[],
        "1 while the store of exact quotas answers, 0 while the circuit breaker keeps requests from it.",
        |source| each(source, |store| store.is_up),
    ),
    Metric::counter(
        "plimsoll_quota_degraded_total",
        &["policy"],
        "Decisions about exact quotas without an answer of the store, by the `on_store_error` of the quota: `allow_bounded`, \
         `allow`, `deny`.",
        |source| {
            let degraded = counters(source).into_iter().flat_map(|store| store.degraded);
            rows(degraded.map(|(policy, count)| ([policy], count)))
        },
    ),
    Metric::counter(
        "plimsoll_quota_late_answers_total",
        &[],
        "Answers of the store of exact quotas after the request had stopped waiting; what no request uses is given back.",
        |source| each(source, |store| store.late),
    ),
    Metric::counter(
        "plimsoll_quota_lost_tokens_total",
        &["quota"],
        "Tokens that the store has debited and that were neither used nor given back, by quota: their lease ended, or the \
         store was away until the refill. 1,000 quotas by name, further ones as `other`.",
        |source| {
            let lost = counters(source).into_iter().flat_map(|store| store.lost);
            rows(lost.map(|(quota, lost)| ([quota], lost)))
        },
    ),
    Metric::gauge(
        "plimsoll_quota_leased_tokens",
        &[],
        "Tokens that this instance has leased from the store of exact quotas and not used.",
        |source| each(source, |store| store.leased),
    ),
    Metric::gauge(
        "plimsoll_quota_keys",
        &[],
        "Keys of exact quotas with a state in this instance.",
        |source| each(source, |store| store.keys),
    ),
];

fn counters(source: &Source) -> Option<StoreCounters> {
    match source.limiter.table.layered.store() {
        Some(Store::Remote(quotas)) => Some(quotas.counters()),
        _ => None,
    }
}

fn each<V: Into<Value>>(source: &Source, read: fn(&StoreCounters) -> V) -> Vec<Series> {
    maybe(counters(source).as_ref().map(read))
}
