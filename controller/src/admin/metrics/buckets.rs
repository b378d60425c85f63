//! The metrics of buckets, their limits and gates, and of aggregators.

use std::collections::BTreeMap;

use plimsoll_core::decision::ShownMode;
use plimsoll_core::stats::metrics::{Series, Value, rows};

use super::{M, Source};
use crate::admin::status::{AggregatorStatus, BucketStatus};
use crate::state::Cause;

pub(super) fn of_limits<'a>() -> Vec<M<'a>> {
    vec![
        M::counter(
            "plimsoll_limit_queries_total",
            &["result"],
            "Queries to Prometheus servers for limits: `answered`, `failed`.",
            |s| s.counters.limit_queries.named(["answered", "failed"]),
        ),
        M::counter(
            "plimsoll_rollout_queries_total",
            &["result"],
            "Queries to Prometheus servers for extra gates: `answered` with a finite number, `failed`.",
            |s| s.counters.gate_queries.named(["answered", "failed"]),
        ),
        M::gauge(
            "plimsoll_rollout_gate",
            &["entry", "result"],
            "1 for the result of the gate to the next stage, by entry of the policy: `pass`, `fail`, `inconclusive`; absent \
             for an enforced entry.",
            |s| {
                let judged = s.brain.policy().entries().filter_map(|(entry, policy)| {
                    let judged = s.brain.judgement(s.now, &entry, &policy.rollout)?.as_str();
                    let row = |result: &str| ([entry.clone(), result.to_owned()], judged == result);
                    Some(["pass", "fail", "inconclusive"].map(row))
                });
                rows(judged.flatten())
            },
        ),
        M::gauge(
            "plimsoll_rollout_last_breach_timestamp_seconds",
            &["entry"],
            "Unix time at which the gate of canary last failed and returned the entry to shadow; absent before the first time.",
            |s| {
                let breaches = s
                    .brain
                    .durable()
                    .history
                    .iter()
                    .filter(|change| change.cause == Cause::Breach)
                    .filter_map(|change| Some((change.entry.as_str(), change.at_s?)));
                let last: BTreeMap<&str, i64> = breaches.collect();
                rows(last.into_iter().map(|(entry, at_s)| ([entry], at_s as f64)))
            },
        ),
        M::gauge(
            "plimsoll_rollout_query_value",
            &["entry", "query"],
            "Last value of an extra gate, by entry of the policy; absent without a current answer.",
            |s| {
                rows(s.brain.policy().entries().flat_map(|(entry, policy)| {
                    let found = s
                        .brain
                        .rollouts
                        .evidence(s.now, &entry, &policy.rollout)
                        .queries
                        .into_iter();
                    found.filter_map(move |query| Some(([entry.clone(), query.name], query.value?)))
                }))
            },
        ),
        M::gauge(
            "plimsoll_bucket_learned_limit",
            &["bucket"],
            "Learned limit in requests/s; absent before there is one.",
            |s| buckets(s, |b| b.learned.as_ref()?.limit_rps),
        ),
        M::gauge(
            "plimsoll_bucket_learned_days",
            &["bucket"],
            "Days whose peaks count for the learned limit.",
            |s| buckets(s, |b| Some(b.learned.as_ref()?.days_counted)),
        ),
        M::gauge(
            "plimsoll_bucket_query_age_seconds",
            &["bucket"],
            "Age of the last good answer of a Prometheus server for the limit, or time since the start if the answer was saved \
             before it; absent without one.",
            |s| buckets(s, |b| Some(b.queried?.age_s)),
        ),
    ]
}

pub(super) fn of_buckets<'a>() -> Vec<M<'a>> {
    vec![
        M::gauge("plimsoll_bucket_limit", &["bucket"], "Limit in requests/s; absent without one.", |s| {
            buckets(s, |b| b.limit_rps)
        })
        .first(),
        M::gauge("plimsoll_bucket_offered", &["bucket"], "Requests/s offered, over all zones.", |s| {
            buckets(s, |b| Some(b.traffic.offered_rps))
        })
        .first(),
        M::gauge(
            "plimsoll_bucket_mode",
            &["bucket", "mode"],
            "1 for the mode in force: `shadow`, `canary`, `enforce`; `unknown` if no policy names the bucket.",
            |s| {
                rows(s.status.buckets.iter().flat_map(|(name, bucket)| {
                    ShownMode::ALL.map(|mode| ([name.to_string(), mode.to_string()], bucket.mode == mode))
                }))
            },
        )
        .first(),
        M::gauge(
            "plimsoll_bucket_law_ratio",
            &["bucket"],
            "Share that the law means to refuse, over all tenants and without guards, carried out or not; absent without a \
             limit. What happened is in `plimsoll_refused_ratio`.",
            |s| buckets(s, |b| b.traffic.law_ratio),
        ),
        M::gauge(
            "plimsoll_bucket_balance",
            &["bucket"],
            "Unused requests of the limit, or requests above it if negative; absent without a limit.",
            |s| buckets(s, |b| b.limit_rps.map(|_| b.balance)),
        ),
        M::gauge(
            "plimsoll_bucket_released",
            &["bucket"],
            "Requests/s of the limit that belong to silent and expired aggregators and are divided among the others; their \
             clients may still admit as much beyond the limit.",
            |s| buckets(s, |b| Some(b.released_rps)),
        ),
        M::gauge(
            "plimsoll_bucket_unheard",
            &["bucket"],
            "Requests/s that silent aggregators offered last and that `plimsoll_bucket_offered` no longer contains.",
            |s| buckets(s, |b| Some(b.unheard_rps)),
        ),
        M::gauge(
            "plimsoll_bucket_mode_differs_from_file",
            &["bucket"],
            "1 while the mode in force differs from the mode in the policy file.",
            |s| buckets(s, |b| Some(b.file_mode.is_some_and(|file| b.mode != file))),
        ),
        M::gauge(
            "plimsoll_bucket_clients_unapplied",
            &["bucket"],
            "Connected clients that carry out less than the mode in force: killed locally, or by a kill that the controller \
             does not know.",
            |s| buckets(s, |b| Some(b.clients_unapplied)),
        ),
        M::gauge(
            "plimsoll_bucket_killed",
            &["bucket"],
            "1 while the bucket is killed, alone or with the whole fleet.",
            |s| buckets(s, |b| Some(b.killed)),
        ),
        M::counter(
            "plimsoll_fleet_decisions_total",
            &["bucket", "result"],
            "Decisions of the whole fleet, as reported by the zones: `admit`, `drop` (by the coin), `guard_drop` (by the \
             guard), `would_drop` (by either, not enforced), `quota_drop` (by an exact quota, after coin and guard let the \
             request pass), `would_quota_drop` (the same, not enforced), `quota_repeated` (from the memory of such a refusal, \
             before the coin).",
            decisions,
        ),
        M::counter(
            "plimsoll_fleet_retried_total",
            &["bucket"],
            "Requests of the whole fleet that their callers marked as sent again. Part of all results but `quota_repeated`.",
            |s| buckets(s, |b| Some(b.traffic.retried)),
        ),
        M::gauge(
            "plimsoll_candidate_limit",
            &["bucket"],
            "Candidate limit in requests/s, which is only evaluated; absent without one.",
            |s| buckets(s, |b| Some(b.candidate?.limit_rps)),
        ),
        M::gauge(
            "plimsoll_candidate_drop_ratio",
            &["bucket"],
            "Share of requests that the candidate limit would refuse now.",
            |s| buckets(s, |b| Some(b.candidate?.drop_ratio)),
        ),
        M::counter(
            "plimsoll_candidate_offered_total",
            &["bucket"],
            "Requests for which the candidate limit was evaluated.",
            |s| buckets(s, |b| Some(b.candidate?.offered)),
        ),
        M::counter(
            "plimsoll_candidate_would_drop_total",
            &["bucket"],
            "Requests that the candidate limit would have refused.",
            |s| buckets(s, |b| Some(b.candidate?.would_dropped)),
        ),
    ]
}

pub(super) fn of_aggregators<'a>() -> Vec<M<'a>> {
    vec![
        M::gauge(
            "plimsoll_aggregator_connected",
            &["zone", "aggregator"],
            "1 while the aggregator has a stream to the controller.",
            |s| aggregators(s, |a| a.connected.into()),
        ),
        M::gauge(
            "plimsoll_aggregator_silent_seconds",
            &["zone", "aggregator"],
            "Time since the last report of the aggregator, while others reported; of an expired one, since its last report.",
            |s| aggregators(s, |a| a.silent_s.into()),
        ),
        M::gauge(
            "plimsoll_aggregator_stale",
            &["zone", "aggregator"],
            "1 while the aggregator has not reported for so long (`--feed-stale`, 60 s) that buckets in canary return to \
             shadow, and while it is expired.",
            |s| aggregators(s, |a| a.stale.into()),
        )
        .first(),
        M::gauge(
            "plimsoll_aggregator_expired",
            &["zone", "aggregator"],
            "1 for an aggregator that went silent until its share was released: until it returns, is forgotten, or has been \
             gone for 7 days.",
            |s| aggregators(s, |a| a.expired.into()),
        ),
        M::gauge(
            "plimsoll_clients_killed_locally",
            &["zone", "aggregator"],
            "Connected clients below the aggregator that a kill file stops from refusing.",
            |s| aggregators(s, |a| a.killed_locally.into()),
        ),
        M::gauge(
            "plimsoll_aggregator_name_conflict",
            &["zone", "aggregator"],
            "1 while two processes with this zone and name replace each other, and for 60 s after.",
            |s| aggregators(s, |a| a.name_conflict.into()),
        ),
    ]
}

fn buckets<V: Into<Value>>(
    source: &Source<'_>,
    value: fn(&BucketStatus) -> Option<V>,
) -> Vec<Series> {
    rows(
        source
            .status
            .buckets
            .iter()
            .filter_map(|(name, bucket)| Some(([name.as_str()], value(bucket)?))),
    )
}

fn aggregators(source: &Source<'_>, value: fn(&AggregatorStatus) -> Value) -> Vec<Series> {
    rows(
        source
            .status
            .aggregators
            .iter()
            .map(|a| ([a.zone.as_str(), a.name.as_str()], value(a))),
    )
}

fn decisions(source: &Source<'_>) -> Vec<Series> {
    rows(
        source
            .status
            .buckets
            .iter()
            .flat_map(|(name, BucketStatus { traffic, .. })| {
                let results = [
                    (
                        "admit",
                        traffic
                            .admitted
                            .saturating_sub(traffic.would_dropped + traffic.would_quota_dropped),
                    ),
                    ("drop", traffic.dropped),
                    ("guard_drop", traffic.guard_dropped),
                    ("would_drop", traffic.would_dropped),
                    ("quota_drop", traffic.quota_dropped),
                    ("would_quota_drop", traffic.would_quota_dropped),
                    ("quota_repeated", traffic.quota_repeated),
                ];
                results.map(|(result, count)| ([name.as_str(), result], count))
            }),
    )
}
