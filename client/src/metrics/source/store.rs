//! The store of exact quotas: its calls, and the decisions without it.

use crate::hot::table::Table;
use crate::limiter::layered::Store;
use crate::limiter::quota::StoreCounters;
use crate::metrics::model::{Family, flag, plain};

/// Returns the families of the store. A limiter without one has no series.
pub(super) fn families(table: &Table) -> [Family; 8] {
    let counters = match table.layered.store() {
        Some(Store::Remote(quotas)) => Some(quotas.counters()),
        _ => None,
    };
    let counters = counters.as_ref();
    let labelled = |pairs: &[(&'static str, u64)]| -> Vec<(Vec<String>, u64)> {
        pairs.iter().map(|(label, count)| (vec![(*label).to_owned()], *count)).collect()
    };
    let one = |read: fn(&StoreCounters) -> u64| plain(counters.map(read));
    [
        Family::counter(
            "plimsoll_quota_store_requests_total",
            "Calls to the store of exact quotas by result (granted, refused, and the failures; not_asked: the circuit \
             breaker was open, or the request did not wait).",
            &["result"],
            counters.map(|counters| labelled(&counters.requests)).unwrap_or_default(),
        ),
        Family::histogram(
            "plimsoll_quota_store_request_duration_seconds",
            "Time of calls to the store of exact quotas that were answered.",
            &[],
            plain(counters.map(|counters| counters.durations.clone())),
        ),
        Family::gauge(
            "plimsoll_quota_store_up",
            "1 while the store of exact quotas answers, 0 while the circuit breaker keeps requests from it.",
            &[],
            plain(counters.map(|counters| flag(counters.is_up))),
        ),
        Family::counter(
            "plimsoll_quota_degraded_total",
            "Decisions about exact quotas without an answer of their store, by policy (allow_bounded, allow, deny).",
            &["policy"],
            counters.map(|counters| labelled(&counters.degraded)).unwrap_or_default(),
        ),
        Family::counter(
            "plimsoll_quota_late_answers_total",
            "Answers of the store of exact quotas after the request had stopped waiting.",
            &[],
            one(|counters| counters.late),
        ),
        Family::counter(
            "plimsoll_quota_lost_tokens_total",
            "Tokens that the store of exact quotas has debited here and that were neither used nor given back, by quota.",
            &["quota"],
            counters
                .map(|counters| {
                    counters.lost.iter().map(|(quota, lost)| (vec![quota.clone()], *lost)).collect::<Vec<_>>()
                })
                .unwrap_or_default(),
        ),
        Family::gauge(
            "plimsoll_quota_leased_tokens",
            "Tokens that this instance has leased from the store of exact quotas and not used.",
            &[],
            plain(counters.map(|counters| counters.leased as f64)),
        ),
        Family::gauge(
            "plimsoll_quota_keys",
            "Keys of exact quotas with a state in this instance.",
            &[],
            plain(counters.map(|counters| counters.keys as f64)),
        ),
    ]
}
