//! The metrics of the controller.

use plimsoll_admin::metrics_page::{Page, Row, flag, plain};
use plimsoll_core::decision::ShownMode;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::stats::AdmissionFigures;

use crate::admin::status::{AggregatorStatus, BucketStatus, Status};
use crate::brain::Brain;
use crate::tasks::events::Events;

/// Returns all metrics at this moment.
pub(crate) fn page(brain: &Brain, status: &Status, events: &Events, now: MonoTime) -> Page {
    let mut page = Page::default();
    controller(&mut page, status, brain);
    buckets(&mut page, status);
    for (name, help, value) in AdmissionFigures::GAUGES {
        let rows = status.buckets.iter();
        let rows =
            rows.filter_map(|(name, bucket)| Some((vec![name.to_string()], value(&bucket.admissions)?)));
        page.gauge(name, help, &["bucket"], rows);
    }
    modes_and_decisions(&mut page, status);
    aggregators(&mut page, status);
    rollout(&mut page, brain, now);
    events.add_to(&mut page);
    page
}

fn controller(page: &mut Page, status: &Status, brain: &Brain) {
    let info = [(vec![status.policy_hash.clone()], 1.0)];
    page.gauge(
        "plimsoll_policy_info",
        "1, with the hash of the policy in force as a label.",
        &["hash"],
        info,
    );
    let history = brain.limits.history.counters;

    let mut gauge = |name, help, value| page.gauge(name, help, &[], plain(value));
    let help = "The epoch of the controller; it grows with every start.";
    gauge("plimsoll_epoch", help, status.epoch as f64);
    let help = "1 while another controller runs at the epoch of this one, or leads in its place.";
    let has_conflict =
        status.lost_lead.is_some() || status.other_controllers.iter().any(|other| other.same_epoch);
    gauge("plimsoll_controller_conflict", help, flag(has_conflict));
    let help = "Aggregators that name a later epoch, of themselves or of a client, without effect.";
    let claims = status.other_controllers.iter().filter(|other| !other.same_epoch).count();
    gauge("plimsoll_epoch_claims", help, claims as f64);
    gauge("plimsoll_killed", "1 while the kill switch is on.", flag(status.killed));
    let help = "The kill generation; odd means killed.";
    gauge("plimsoll_kill_generation", help, status.kill_generation as f64);
    let help = "Scopes of which an aggregator or a client holds a higher kill generation without an order; it stays in \
        shadow.";
    gauge("plimsoll_kill_claims", help, status.kill_claims.len() as f64);
    let help =
        "Buckets without room, which are unprotected whatever the policy says; 64 of them are told apart.";
    gauge("plimsoll_buckets_unprotected", help, brain.buckets.no_room.iter().count() as f64);
    let help = "1 once the controller sends its own rates; 0 during a takeover, while zones keep the rates they have, and before the \
        first traffic.";
    gauge("plimsoll_takeover_complete", help, flag(status.leading));
    let help =
        "1 while the state cannot be saved, so that epoch, kills and stages would be lost with a restart.";
    gauge("plimsoll_state_unsaved", help, flag(brain.pending_saves.failure.is_some()));
    let help =
        "1 after the state was lost, or restored from an older one, until an operator acknowledges it.";
    gauge("plimsoll_state_lost", help, flag(status.state_lost.is_some()));
    gauge("plimsoll_fleet_clients", "Connected clients.", f64::from(status.clients));
    let help = "1 while the history cannot be saved, so that nothing is learned.";
    gauge("plimsoll_history_failing", help, flag(history.failing));
    let help = "1 while a drastic change of the policy waits for acknowledgement.";
    gauge("plimsoll_policy_held", help, flag(brain.policies.held.is_some()));

    let mut counter = |name, help, value: u64| page.counter(name, help, &[], plain(value as f64));
    let help = "Requests left out of the totals because an earlier parent may have counted them.";
    counter("plimsoll_counts_unconfirmed_total", help, brain.aggregators.unconfirmed);
    let help =
        "Requests that were not counted, because the aggregator's clients cannot have decided so many.";
    counter("plimsoll_counts_cut_total", help, brain.aggregators.cut);
    let help = "Requests in reports that are no evidence for a gate: late, of a bucket or mode that the aggregator does not have, above \
        its weight, or without room.";
    counter("plimsoll_evidence_left_out_total", help, brain.evidence_left_out());
    let help = "Kill generations that no order explained and that were higher than those before.";
    counter("plimsoll_kill_claims_total", help, brain.kill_claims().ignored());
    let help = "Failed saves of the durable state.";
    counter("plimsoll_state_save_failures_total", help, brain.pending_saves.failures);
    let help = "Minutes that could not be saved, so that nothing was learned from them.";
    counter("plimsoll_history_minutes_lost_total", help, history.minutes_lost);

    let mut rejected = |name, help, count: u64| {
        page.counter(name, help, &["reason"], [(vec!["capacity".to_owned()], count as f64)]);
    };
    let help = "Keys and buckets that were rejected, by reason: capacity if there was no room.";
    rejected(
        "plimsoll_keys_rejected_total",
        help,
        brain.aggregators.rejected_keys + brain.buckets.no_room.count,
    );
    let help = "Samples that the history rejected, by reason: capacity if there was no room for the bucket.";
    rejected("plimsoll_history_samples_rejected_total", help, history.rejected);
}

/// Adds the metrics with one value for each bucket, or none.
fn buckets(page: &mut Page, status: &Status) {
    type Value = fn(&BucketStatus) -> Option<f64>;
    let each = |value: Value| -> Vec<Row> {
        let rows = status.buckets.iter();
        rows.filter_map(|(name, bucket)| Some((vec![name.to_string()], value(bucket)?))).collect()
    };
    let mut gauge = |name, help, value: Value| page.gauge(name, help, &["bucket"], each(value));
    gauge("plimsoll_bucket_limit", "The limit in requests/s; absent without one.", |b| b.limit_rps);
    gauge("plimsoll_bucket_offered", "Requests/s offered, over all zones.", |b| Some(b.traffic.offered_rps));
    let help = "The share that the law means to refuse, over all tenants and without guards; absent without a limit.";
    gauge("plimsoll_bucket_law_ratio", help, |b| b.traffic.law_ratio);
    let help = "Unused requests of the limit, or requests above it if negative; absent without a limit.";
    gauge("plimsoll_bucket_balance", help, |b| b.limit_rps.map(|_| b.balance));
    let help = "Requests/s of the limit that belong to silent and expired aggregators and are divided among the others; their \
        clients may still admit as much beyond the limit.";
    gauge("plimsoll_bucket_released", help, |b| Some(b.released_rps));
    let help = "Requests/s that silent aggregators offered last and that plimsoll_bucket_offered no longer contains.";
    gauge("plimsoll_bucket_unheard", help, |b| Some(b.unheard_rps));
    let help = "Connected clients that carry out less than the mode in force: killed locally, or by a kill that the controller does \
        not know.";
    gauge("plimsoll_bucket_clients_unapplied", help, |b| Some(f64::from(b.clients_unapplied)));
    let help = "The candidate limit in requests/s, which is only evaluated; absent without one.";
    gauge("plimsoll_candidate_limit", help, |b| Some(b.candidate?.limit_rps));
    let help = "The share of requests that the candidate limit would refuse now.";
    gauge("plimsoll_candidate_drop_ratio", help, |b| Some(b.candidate?.drop_ratio));
    let help = "1 while the bucket is killed, alone or with the whole fleet.";
    gauge("plimsoll_bucket_killed", help, |b| Some(flag(b.killed)));
    let help = "1 while the mode in force differs from the mode in the policy file.";
    gauge("plimsoll_bucket_mode_differs_from_file", help, |b| {
        Some(flag(b.file_mode.is_some_and(|file| b.mode != file)))
    });
    let help = "The learned limit in requests/s; absent before there is one.";
    gauge("plimsoll_bucket_learned_limit", help, |b| b.learned.as_ref()?.limit_rps);
    let help = "Days whose peaks count for the learned limit.";
    gauge("plimsoll_bucket_learned_days", help, |b| Some(b.learned.as_ref()?.days_counted as f64));
    let help = "Age of the last good answer of a Prometheus server for the limit, or time since the start if the answer was \
        saved before it; absent without one.";
    gauge("plimsoll_bucket_query_age_seconds", help, |b| Some(b.queried?.age_s));

    let mut counter = |name, help, value: Value| page.counter(name, help, &["bucket"], each(value));
    let help = "Requests for which the candidate limit was evaluated.";
    counter("plimsoll_candidate_offered_total", help, |b| Some(b.candidate?.offered as f64));
    let help = "Requests that the candidate limit would have refused.";
    counter("plimsoll_candidate_would_drop_total", help, |b| Some(b.candidate?.would_dropped as f64));
}

fn modes_and_decisions(page: &mut Page, status: &Status) {
    let modes = status.buckets.iter().flat_map(|(name, bucket)| {
        ShownMode::ALL.map(|mode| (vec![name.to_string(), mode.to_string()], flag(bucket.mode == mode)))
    });
    page.gauge(
        "plimsoll_bucket_mode",
        "1 for the mode in force; unknown if no policy names the bucket.",
        &["bucket", "mode"],
        modes,
    );
    let decisions = status.buckets.iter().flat_map(|(name, bucket)| {
        let traffic = &bucket.traffic;
        let results = [
            ("admit", traffic.admitted.saturating_sub(traffic.would_dropped + traffic.would_quota_dropped)),
            ("drop", traffic.dropped),
            ("guard_drop", traffic.guard_dropped),
            ("would_drop", traffic.would_dropped),
            ("quota_drop", traffic.quota_dropped),
            ("would_quota_drop", traffic.would_quota_dropped),
            ("quota_repeated", traffic.quota_repeated),
        ];
        results.map(|(result, count)| (vec![name.to_string(), result.to_owned()], count as f64))
    });
    let help = "Decisions of the whole fleet, as reported by the zones.";
    page.counter("plimsoll_fleet_decisions_total", help, &["bucket", "result"], decisions);
}

fn aggregators(page: &mut Page, status: &Status) {
    let mut gauge = |name, help, value: fn(&AggregatorStatus) -> f64| {
        let rows = status.aggregators.iter().map(|a| (vec![a.zone.clone(), a.name.clone()], value(a)));
        page.gauge(name, help, &["zone", "aggregator"], rows);
    };
    let help = "1 while the aggregator has a stream to the controller.";
    gauge("plimsoll_aggregator_connected", help, |a| flag(a.connected));
    let help = "Time since the last report of the aggregator, while others reported.";
    gauge("plimsoll_aggregator_silent_seconds", help, |a| a.silent_s);
    let help = "1 while the aggregator has not reported for so long that buckets in canary return to shadow, and while it is \
        expired.";
    gauge("plimsoll_aggregator_stale", help, |a| flag(a.stale));
    let help = "1 for an aggregator that went silent until its share was released: until it returns, is forgotten, or has been \
        gone for 7 days.";
    gauge("plimsoll_aggregator_expired", help, |a| flag(a.expired));
    let help = "Connected clients below the aggregator that a kill file stops from refusing.";
    gauge("plimsoll_clients_killed_locally", help, |a| f64::from(a.killed_locally));
    let help = "1 while two processes with this zone and name replace each other.";
    gauge("plimsoll_aggregator_name_conflict", help, |a| flag(a.name_conflict));
}

fn rollout(page: &mut Page, brain: &Brain, now: MonoTime) {
    let gates = brain.policy().entries().filter_map(|(entry, policy)| {
        let judged = brain.judgement(now, &entry, &policy.rollout)?.as_str();
        let row = |result: &str| (vec![entry.clone(), result.to_owned()], flag(judged == result));
        Some(["pass", "fail", "inconclusive"].map(row))
    });
    let help = "1 for the result of the gate to the next stage, by entry of the policy; absent for an enforced entry.";
    page.gauge("plimsoll_rollout_gate", help, &["entry", "result"], gates.flatten());
    let values = brain.policy().entries().flat_map(|(entry, policy)| {
        let found = brain.evidence(now, &entry, &policy.rollout).queries;
        found.into_iter().filter_map(move |query| Some((vec![entry.clone(), query.name], query.value?)))
    });
    let help = "The last value of an extra gate, by entry of the policy; absent without a current answer.";
    page.gauge("plimsoll_rollout_query_value", help, &["entry", "query"], values);
}
