//! Metrics by bucket: limits, learning, traffic and modes.

use plimsoll_admin::metrics_page::{Page, Row, flag, plain};
use plimsoll_core::decision::Mode;

use crate::admin::metrics::for_capacity;
use crate::admin::status::{BucketStatus, Status, Traffic};
use crate::history::{History, LearningStatus};

/// Adds limits, traffic and modes.
pub(super) fn buckets(page: &mut Page, status: &Status) {
    let each = |value: &dyn Fn(&BucketStatus) -> Option<f64>| -> Vec<Row> {
        let rows = status.buckets.iter();
        rows.filter_map(|(name, bucket)| Some((vec![name.to_string()], value(bucket)?))).collect()
    };
    page.gauge(
        "plimsoll_bucket_limit",
        "The limit in requests/s; absent without one.",
        &["bucket"],
        each(&|b| b.limit_rps),
    );
    page.gauge(
        "plimsoll_bucket_offered",
        "Requests/s offered, over all zones.",
        &["bucket"],
        each(&|b| Some(b.traffic.offered_rps)),
    );
    page.gauge(
        "plimsoll_bucket_drop_ratio",
        "The drop ratio over all tenants; absent before there is one.",
        &["bucket"],
        each(&|b| b.traffic.drop_ratio),
    );
    page.gauge(
        "plimsoll_bucket_balance",
        "Unused requests of the limit, or requests above it if negative; absent without a limit.",
        &["bucket"],
        each(&|b| b.limit_rps.map(|_| b.balance)),
    );
    page.gauge(
        "plimsoll_candidate_limit",
        "The candidate limit in requests/s, which is only evaluated; absent without one.",
        &["bucket"],
        each(&|b| b.candidate.map(|c| c.limit_rps)),
    );
    page.gauge(
        "plimsoll_candidate_drop_ratio",
        "The share of requests that the candidate limit would refuse now.",
        &["bucket"],
        each(&|b| b.candidate.map(|c| c.drop_ratio)),
    );
    page.counter(
        "plimsoll_candidate_offered_total",
        "Requests for which the candidate limit was evaluated.",
        &["bucket"],
        each(&|b| b.candidate.map(|c| c.offered as f64)),
    );
    page.counter(
        "plimsoll_candidate_would_drop_total",
        "Requests that the candidate limit would have refused.",
        &["bucket"],
        each(&|b| b.candidate.map(|c| c.would_dropped as f64)),
    );
    let modes = status.buckets.iter().flat_map(|(name, bucket)| {
        [Mode::Shadow, Mode::Canary, Mode::Enforce]
            .map(|mode| (vec![name.to_string(), mode.to_string()], flag(bucket.mode == mode)))
    });
    page.gauge("plimsoll_bucket_mode", "1 for the mode in force.", &["bucket", "mode"], modes);
    page.gauge(
        "plimsoll_bucket_killed",
        "1 while the bucket is killed, alone or with the whole fleet.",
        &["bucket"],
        each(&|b| Some(flag(b.killed))),
    );
    let differs = each(&|b| Some(flag(b.file_mode.is_some_and(|file| file != b.mode))));
    page.gauge(
        "plimsoll_bucket_mode_differs_from_file",
        "1 while the mode in force differs from the mode in the policy file.",
        &["bucket"],
        differs,
    );
    let requests = status.buckets.iter().flat_map(|(name, bucket)| {
        results(&bucket.traffic)
            .map(|(result, count)| (vec![name.to_string(), result.to_owned()], count as f64))
    });
    page.counter(
        "plimsoll_fleet_decisions_total",
        "Decisions of the whole fleet, as reported by the zones.",
        &["bucket", "result"],
        requests,
    );
}

fn results(traffic: &Traffic) -> [(&'static str, u64); 4] {
    [
        ("admit", traffic.admitted.saturating_sub(traffic.would_dropped)),
        ("drop", traffic.dropped),
        ("guard_drop", traffic.guard_dropped),
        ("would_drop", traffic.would_dropped),
    ]
}

/// Adds learned and queried limits, and the losses of the history.
pub(super) fn history(page: &mut Page, status: &Status, history: &History) {
    let each = |value: &dyn Fn(&LearningStatus) -> Option<f64>| -> Vec<Row> {
        let learned =
            status.buckets.iter().filter_map(|(name, bucket)| Some((name, bucket.learned.as_ref()?)));
        learned.filter_map(|(name, learning)| Some((vec![name.to_string()], value(learning)?))).collect()
    };
    page.gauge(
        "plimsoll_bucket_learned_limit",
        "The learned limit in requests/s; absent before there is one.",
        &["bucket"],
        each(&|learning| learning.limit_rps),
    );
    page.gauge(
        "plimsoll_bucket_learned_days",
        "Days whose peaks count for the learned limit.",
        &["bucket"],
        each(&|learning| Some(learning.days_counted as f64)),
    );
    let age = |name: &_, bucket: &BucketStatus| {
        bucket.queried.map(|queried| (vec![ToString::to_string(name)], queried.age_s))
    };
    page.gauge(
        "plimsoll_bucket_query_age_seconds",
        "Age of the last good answer of a Prometheus server for the limit, or time since the start if the answer was \
         saved before it; absent without one.",
        &["bucket"],
        status.buckets.iter().filter_map(|(name, bucket)| age(name, bucket)),
    );
    let counters = history.counters();
    page.counter(
        "plimsoll_history_minutes_lost_total",
        "Minutes that could not be saved, so that nothing was learned from them.",
        &[],
        plain(counters.minutes_lost as f64),
    );
    page.counter(
        "plimsoll_history_samples_rejected_total",
        "Samples that the history rejected, by reason: capacity if there was no room for the bucket.",
        &["reason"],
        for_capacity(counters.rejected),
    );
    page.gauge(
        "plimsoll_history_failing",
        "1 while the history cannot be saved, so that nothing is learned.",
        &[],
        plain(flag(counters.failing)),
    );
}
