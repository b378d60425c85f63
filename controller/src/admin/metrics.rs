//! The metrics of the controller.

use plimsoll_admin::security::{ACCESS, CERTIFICATES, Opened};
use plimsoll_admin::{ports, rejected_streams};
use plimsoll_core::decision::ShownMode;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::stats::metrics::{self, About, Family, Metric, Series, Value, families, one, rows};
use plimsoll_core::stats::{ADMISSIONS, BucketFigures};

use crate::admin::Commands;
use crate::admin::status::{AggregatorStatus, BucketStatus, Status};
use crate::audit::AuditLog;
use crate::brain::Brain;
use crate::tasks::events::{Counts, Events};

/// What the metrics of a controller are read from, at one moment.
struct Source<'a> {
    brain: &'a Brain,
    status: Status,
    events: Counts,
    audit: &'a AuditLog,
    now: MonoTime,
}

/// Returns the metrics at this moment.
pub(crate) fn page(commands: &Commands, events: &Events, security: &Opened) -> Vec<Family> {
    let own = commands.brain.with(|brain, now| {
        let status = Status::of(brain, now);
        let figures = status.buckets.iter().map(|(name, bucket)| (name.to_string(), bucket.admissions));
        let admissions = families(&ADMISSIONS, &figures.collect::<BucketFigures>());
        let source =
            Source { brain, status, events: events.with(|counts| *counts), audit: &commands.audit, now };
        [families(&table(), &source), admissions].concat()
    });
    [
        own,
        families(&rejected_streams::METRICS, &events.rejected_streams),
        families(&ports::METRICS, &events.ports.named()),
        families(&CERTIFICATES, security),
        families(&ACCESS, security),
    ]
    .concat()
}

/// Returns the descriptions of all metrics.
pub(crate) fn described() -> Vec<About> {
    [
        metrics::described(&table()),
        metrics::described(&ADMISSIONS),
        metrics::described(&rejected_streams::METRICS),
        metrics::described(&ports::METRICS),
        metrics::described(&CERTIFICATES),
        metrics::described(&ACCESS),
    ]
    .concat()
}

type M<'a> = Metric<Source<'a>>;

fn table<'a>() -> Vec<M<'a>> {
    let parts = [of_the_process(), of_counts_and_disks(), of_limits(), of_buckets(), of_aggregators()];
    parts.into_iter().flatten().collect()
}

fn of_the_process<'a>() -> Vec<M<'a>> {
    vec![
        M::gauge("plimsoll_epoch", &[], "Epoch of the controller; it grows with every start.", |s| {
            one(s.status.epoch)
        }),
        M::gauge(
            "plimsoll_controller_conflict",
            &[],
            "1 while another controller runs at the epoch of this one, and for 60 s after; also while another leads in its \
             place.",
            |s| {
                let has_rival = s.status.other_controllers.iter().any(|other| other.same_epoch);
                one(has_rival || s.status.lost_lead.is_some())
            },
        ),
        M::gauge(
            "plimsoll_epoch_claims",
            &[],
            "Aggregators that name a later epoch, of themselves or of a client, without effect.",
            |s| one(s.status.other_controllers.iter().filter(|other| !other.same_epoch).count()),
        ),
        M::gauge("plimsoll_policy_info", &["hash"], "1, with the hash of the policy in force.", |s| {
            rows([([s.status.policy_hash.as_str()], true)])
        }),
        M::gauge(
            "plimsoll_policy_refused",
            &[],
            "1 while the policy files were refused and an earlier policy is in force.",
            |s| one(s.events.last_reload_refused),
        ),
        M::gauge(
            "plimsoll_policy_held",
            &[],
            "1 while a drastic change of the policy waits for acknowledgement.",
            |s| one(s.brain.policies.held.is_some()),
        ),
        M::counter(
            "plimsoll_policy_reloads_total",
            &["result"],
            "Changes of the policy files: `accepted`, `refused`.",
            |s| s.events.reloads.named(["accepted", "refused"]),
        ),
        M::gauge(
            "plimsoll_policy_last_read_timestamp_seconds",
            &[],
            "Unix time at which the policy files were last read, changed or not; at least every 15 s.",
            |s| one(s.events.policy_read_s as f64),
        ),
        M::gauge(
            "plimsoll_takeover_complete",
            &[],
            "1 once the controller sends its own rates; 0 during a takeover, while zones keep the rates they have, and before \
             the first traffic.",
            |s| one(s.status.leading),
        ),
        M::gauge("plimsoll_killed", &[], "1 while the kill switch of the fleet is on.", |s| {
            one(s.status.killed)
        })
        .first(),
        M::gauge("plimsoll_kill_generation", &[], "Kill generation of the fleet; odd means killed.", |s| {
            one(s.status.kill_generation)
        }),
        M::gauge(
            "plimsoll_kill_claims",
            &[],
            "Scopes of which an aggregator or a client holds a higher kill generation without an order; it stays in shadow.",
            |s| one(s.status.kill_claims.len()),
        ),
        M::counter(
            "plimsoll_kill_claims_total",
            &[],
            "Kill generations that no order explained and that were higher than those before.",
            |s| one(s.brain.kill_claims().ignored()),
        ),
        M::gauge("plimsoll_fleet_clients", &[], "Connected clients.", |s| one(s.status.clients)),
        M::gauge(
            "plimsoll_state_lost",
            &[],
            "1 after the state was lost, or restored from an older one, until an operator acknowledges it.",
            |s| one(s.status.state_lost.is_some()),
        ),
        M::gauge(
            "plimsoll_state_unsaved",
            &[],
            "1 while the state cannot be saved, so that epoch, kills and stages would be lost with a restart.",
            |s| one(s.status.state_unsaved.is_some()),
        ),
        M::counter("plimsoll_state_save_failures_total", &[], "Failed saves of the durable state.", |s| {
            one(s.brain.pending_saves.failures)
        }),
        M::gauge(
            "plimsoll_audit_failing",
            &[],
            "1 while the audit log cannot be written, so that whatever may add refusals is refused.",
            |s| one(s.audit.failure().is_some()),
        ),
        M::counter("plimsoll_audit_entries_total", &[], "Lines written to the audit log.", |s| {
            one(s.audit.written())
        }),
    ]
}

fn of_counts_and_disks<'a>() -> Vec<M<'a>> {
    vec![
        M::gauge(
            "plimsoll_buckets_unprotected",
            &[],
            "Buckets without room, which are unprotected whatever the policy says; 64 of them are told apart.",
            |s| one(s.brain.buckets.no_room.iter().count()),
        ),
        M::counter(
            "plimsoll_counts_unconfirmed_total",
            &[],
            "Requests that were not counted, because an earlier parent may have counted them.",
            |s| one(s.brain.downstream.aggregators.unconfirmed),
        ),
        M::counter(
            "plimsoll_counts_cut_total",
            &[],
            "Requests that were not counted, because those who reported them cannot have decided so many.",
            |s| one(s.brain.downstream.aggregators.cut),
        ),
        M::counter(
            "plimsoll_evidence_left_out_total",
            &[],
            "Requests in reports that are no evidence for a gate: late, of a bucket or mode that the child does not have, \
             above its weight, or without room.",
            |s| one(s.brain.rollouts.weighing.left_out()),
        ),
        M::counter(
            "plimsoll_keys_rejected_total",
            &["reason"],
            "Keys and buckets that were not counted separately: `capacity` if there was no room.",
            |s| {
                let rejected = s.brain.downstream.aggregators.rejected_keys + s.brain.buckets.no_room.count;
                rows([(["capacity"], rejected)])
            },
        ),
        M::gauge(
            "plimsoll_history_failing",
            &[],
            "1 while the history cannot be saved, so that nothing is learned.",
            |s| one(s.brain.limits.history.counters.failing),
        ),
        M::counter(
            "plimsoll_history_minutes_lost_total",
            &[],
            "Minutes that could not be saved, so that nothing was learned from them.",
            |s| one(s.brain.limits.history.counters.minutes_lost),
        ),
        M::counter(
            "plimsoll_history_samples_rejected_total",
            &["reason"],
            "Samples that the history rejected: `capacity` if there was no room for the bucket.",
            |s| rows([(["capacity"], s.brain.limits.history.counters.rejected)]),
        ),
    ]
}

fn of_limits<'a>() -> Vec<M<'a>> {
    vec![
        M::counter(
            "plimsoll_limit_queries_total",
            &["result"],
            "Queries to Prometheus servers for limits: `answered`, `failed`.",
            |s| s.events.limit_queries.named(["answered", "failed"]),
        ),
        M::counter(
            "plimsoll_rollout_queries_total",
            &["result"],
            "Queries to Prometheus servers for extra gates: `answered` with a finite number, `failed`.",
            |s| s.events.gate_queries.named(["answered", "failed"]),
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
            "plimsoll_rollout_query_value",
            &["entry", "query"],
            "Last value of an extra gate, by entry of the policy; absent without a current answer.",
            |s| {
                rows(s.brain.policy().entries().flat_map(|(entry, policy)| {
                    let found = s.brain.rollouts.evidence(s.now, &entry, &policy.rollout).queries.into_iter();
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

fn of_buckets<'a>() -> Vec<M<'a>> {
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

fn of_aggregators<'a>() -> Vec<M<'a>> {
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

fn buckets<V: Into<Value>>(source: &Source<'_>, value: fn(&BucketStatus) -> Option<V>) -> Vec<Series> {
    rows(source.status.buckets.iter().filter_map(|(name, bucket)| Some(([name.as_str()], value(bucket)?))))
}

fn aggregators(source: &Source<'_>, value: fn(&AggregatorStatus) -> Value) -> Vec<Series> {
    rows(source.status.aggregators.iter().map(|a| ([a.zone.as_str(), a.name.as_str()], value(a))))
}

fn decisions(source: &Source<'_>) -> Vec<Series> {
    rows(source.status.buckets.iter().flat_map(|(name, BucketStatus { traffic, .. })| {
        let results = [
            ("admit", traffic.admitted.saturating_sub(traffic.would_dropped + traffic.would_quota_dropped)),
            ("drop", traffic.dropped),
            ("guard_drop", traffic.guard_dropped),
            ("would_drop", traffic.would_dropped),
            ("quota_drop", traffic.quota_dropped),
            ("would_quota_drop", traffic.would_quota_dropped),
            ("quota_repeated", traffic.quota_repeated),
        ];
        results.map(|(result, count)| ([name.as_str(), result], count))
    }))
}
