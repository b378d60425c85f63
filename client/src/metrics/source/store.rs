//! The store of exact quotas: its calls, and the decisions without it.

use plimsoll_core::stats::metrics::{Metric, one, rows};

use crate::limiter::quota::StoreCounters;

/// The metrics of the store. A limiter without one has no series.
pub(super) const STORE: [Metric<StoreCounters>; 8] = [
    Metric::counter(
        "plimsoll_quota_store_requests_total",
        &["result"],
        "Calls to the store of exact quotas: `granted`, `refused`, and the failures; `not_asked` while the circuit breaker is \
         open, or for a caller that does not wait.",
        |store| {
            let requests = store.requests.iter();
            rows(requests.map(|(result, count)| ([*result], *count)))
        },
    ),
    Metric::histogram(
        "plimsoll_quota_store_request_duration_seconds",
        &[],
        "Time of calls to the store of exact quotas that were answered before their deadline.",
        |store| one(store.durations.clone()),
    ),
    Metric::gauge(
        "plimsoll_quota_store_up",
        &[],
        "1 while the store of exact quotas answers, 0 while the circuit breaker keeps requests from it.",
        |store| one(store.is_up),
    ),
    Metric::counter(
        "plimsoll_quota_degraded_total",
        &["policy"],
        "Decisions about exact quotas without an answer of the store, by the `on_store_error` of the quota: `allow_bounded`, \
         `allow`, `deny`.",
        |store| {
            let degraded = store.degraded.iter();
            rows(degraded.map(|(policy, count)| ([*policy], *count)))
        },
    ),
    Metric::counter(
        "plimsoll_quota_late_answers_total",
        &[],
        "Answers of the store of exact quotas after the request had stopped waiting; what no request uses is given back.",
        |store| one(store.late),
    ),
    Metric::counter(
        "plimsoll_quota_lost_tokens_total",
        &["quota"],
        "Tokens that the store has debited and that were neither used nor given back, by quota: their lease ended, or the \
         store was away until the refill. 1,000 quotas by name, further ones as `other`.",
        |store| rows(store.lost.iter().map(|(quota, lost)| ([quota], *lost))),
    ),
    Metric::gauge(
        "plimsoll_quota_leased_tokens",
        &[],
        "Tokens that this instance has leased from the store of exact quotas and not used.",
        |store| one(store.leased),
    ),
    Metric::gauge(
        "plimsoll_quota_keys",
        &[],
        "Keys of exact quotas with a state in this instance.",
        |store| one(store.keys),
    ),
];
