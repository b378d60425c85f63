//! What the controller exports, in the words of the whole house.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_core::decision::Mode;
use plimsoll_core::quantity::MonoTime;
use plimsoll_proto::page::{Page, Row, flag, plain};
use plimsoll_proto::refusals::Refusals;

use crate::brain::{Brain, Figures};
use crate::history::{History, Standing};
use crate::aggregators::Place;
use crate::admin::status::{Status, Traffic};

/// What happened outside the brain since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    counts: Arc<Mutex<Counts>>,
    /// Streams of children that were refused.
    pub(crate) refusals: Refusals,
}

#[derive(Debug, Default)]
struct Counts {
    reloads_accepted: u64,
    reloads_refused: u64,
    last_reload_refused: bool,
    queries_answered: u64,
    queries_failed: u64,
    gate_queries_answered: u64,
    gate_queries_failed: u64,
}

impl Events {
    fn with<R>(&self, f: impl FnOnce(&mut Counts) -> R) -> R {
        f(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn on_query(&self, answered: bool) {
        self.with(|counts| {
            let count = if answered { &mut counts.queries_answered } else { &mut counts.queries_failed };
            *count += 1;
        });
    }

    pub(crate) fn on_gate_query(&self, answered: bool) {
        self.with(|counts| {
            let count =
                if answered { &mut counts.gate_queries_answered } else { &mut counts.gate_queries_failed };
            *count += 1;
        });
    }

    pub(crate) fn on_reload(&self, accepted: bool) {
        self.with(|counts| {
            counts.last_reload_refused = !accepted;
            let count = if accepted { &mut counts.reloads_accepted } else { &mut counts.reloads_refused };
            *count += 1;
        });
    }
}

impl Counts {
    fn add_queries_to(&self, page: &mut Page) {
        let rows = |answered: u64, failed: u64| {
            [("answered", answered), ("failed", failed)]
                .map(|(result, count)| (vec![result.to_owned()], count as f64))
        };
        page.counter(
            "plimsoll_limit_queries_total",
            "Questions to Prometheus servers for limits, by what became of them.",
            &["result"],
            rows(self.queries_answered, self.queries_failed),
        );
        page.counter(
            "plimsoll_rollout_queries_total",
            "Questions to Prometheus servers for extra gates, by what became of them.",
            &["result"],
            rows(self.gate_queries_answered, self.gate_queries_failed),
        );
    }
}

/// The page of this moment.
pub(crate) fn page(brain: &Brain, status: &Status, events: &Events, now: MonoTime) -> Page {
    let mut page = Page::default();
    events.refusals.add_to(&mut page);
    controller(&mut page, status, brain.figures());
    history(&mut page, status, brain.history());
    buckets(&mut page, status);
    aggregators(&mut page, status);
    events.with(|counts| {
        reloads(&mut page, counts);
        counts.add_queries_to(&mut page);
    });
    rollout(&mut page, brain, now);
    page
}

fn controller(page: &mut Page, status: &Status, figures: Figures) {
    let info = [(vec![status.policy_hash.clone()], 1.0)];
    page.gauge("plimsoll_epoch", "The controller's epoch.", &[], plain(status.epoch as f64));
    page.gauge("plimsoll_policy_info", "The hash of the policy in force.", &["hash"], info);
    page.gauge("plimsoll_killed", "1 while the kill switch is on.", &[], plain(flag(status.killed)));
    page.gauge(
        "plimsoll_kill_generation",
        "The kill generation; odd means killed.",
        &[],
        plain(status.kill_generation as f64),
    );
    page.gauge(
        "plimsoll_leading",
        "1 once rates are being sent; 0 while zones live on what they brought, or have shown no traffic yet.",
        &[],
        plain(flag(status.leading)),
    );
    let help = "Requests given up because nobody can tell whether they were counted before.";
    page.counter("plimsoll_counts_unconfirmed_total", help, &[], plain(figures.unconfirmed as f64));
    page.counter(
        "plimsoll_keys_homeless_total",
        "Keys and buckets for which there was no room.",
        &[],
        plain(figures.homeless as f64),
    );
    page.counter(
        "plimsoll_state_save_failures_total",
        "Writes of the durable state that failed.",
        &[],
        plain(figures.saves_failed as f64),
    );
}

fn history(page: &mut Page, status: &Status, history: &History) {
    let each = |value: &dyn Fn(&Standing) -> Option<f64>| -> Vec<Row> {
        let learned =
            status.buckets.iter().filter_map(|(name, bucket)| Some((name, bucket.learned.as_ref()?)));
        learned.filter_map(|(name, standing)| Some((vec![name.to_string()], value(standing)?))).collect()
    };
    page.gauge(
        "plimsoll_bucket_learned_limit",
        "Requests/s that were learned as the limit; absent as long as none were.",
        &["bucket"],
        each(&|standing| standing.limit_rps),
    );
    page.gauge(
        "plimsoll_bucket_learned_days",
        "Days whose peaks the learned limit is taken over, or would be.",
        &["bucket"],
        each(&|standing| Some(standing.days_counted as f64)),
    );
    let age = |name: &_, bucket: &crate::admin::status::BucketStatus| {
        bucket.queried.map(|queried| (vec![ToString::to_string(name)], queried.age_s))
    };
    page.gauge(
        "plimsoll_bucket_query_age_seconds",
        "How long ago the limit was last answered by a Prometheus server, or how long ago this controller began with an \
         earlier answer; absent without one.",
        &["bucket"],
        status.buckets.iter().filter_map(|(name, bucket)| age(name, bucket)),
    );
    let figures = history.figures();
    page.counter(
        "plimsoll_history_minutes_lost_total",
        "Minutes that could not be written, so that nothing was learned from them.",
        &[],
        plain(figures.minutes_lost as f64),
    );
    page.counter(
        "plimsoll_history_homeless_total",
        "Samples of buckets for which the history had no room.",
        &[],
        plain(figures.homeless as f64),
    );
    page.gauge(
        "plimsoll_history_failing",
        "1 while the history cannot be written, so that nothing is learned.",
        &[],
        plain(flag(figures.failing)),
    );
}

fn buckets(page: &mut Page, status: &Status) {
    let each = |value: &dyn Fn(&crate::admin::status::BucketStatus) -> Option<f64>| -> Vec<Row> {
        let rows = status.buckets.iter();
        rows.filter_map(|(name, bucket)| Some((vec![name.to_string()], value(bucket)?))).collect()
    };
    page.gauge(
        "plimsoll_bucket_limit",
        "Requests/s that may be admitted; absent without a limit.",
        &["bucket"],
        each(&|b| b.limit_rps),
    );
    page.gauge(
        "plimsoll_bucket_offered",
        "Requests/s offered over all zones.",
        &["bucket"],
        each(&|b| Some(b.traffic.offered_rps)),
    );
    page.gauge(
        "plimsoll_bucket_drop_ratio",
        "The drop ratio over all tenants; absent while there is none.",
        &["bucket"],
        each(&|b| b.traffic.drop_ratio),
    );
    page.gauge(
        "plimsoll_bucket_balance",
        "Requests saved up, or owed when negative; absent without a limit.",
        &["bucket"],
        each(&|b| b.limit_rps.map(|_| b.balance)),
    );
    page.gauge(
        "plimsoll_candidate_limit",
        "Requests/s of a second limit that is only evaluated; absent without one.",
        &["bucket"],
        each(&|b| b.candidate.map(|c| c.limit_rps)),
    );
    page.gauge(
        "plimsoll_candidate_drop_ratio",
        "The share of requests that the second limit would refuse now.",
        &["bucket"],
        each(&|b| b.candidate.map(|c| c.drop_ratio)),
    );
    page.counter(
        "plimsoll_candidate_offered_total",
        "Requests that the second limit was held against.",
        &["bucket"],
        each(&|b| b.candidate.map(|c| c.offered as f64)),
    );
    page.counter(
        "plimsoll_candidate_would_drop_total",
        "Requests that the second limit would have refused.",
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
        "1 while the mode in force is not the one the policy file asks for.",
        &["bucket"],
        differs,
    );
    let requests = status.buckets.iter().flat_map(|(name, bucket)| {
        results(&bucket.traffic)
            .map(|(result, count)| (vec![name.to_string(), result.to_owned()], count as f64))
    });
    page.counter(
        "plimsoll_fleet_decisions_total",
        "Decisions of the whole fleet as they were reported.",
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

fn aggregators(page: &mut Page, status: &Status) {
    let each = |value: &dyn Fn(&crate::admin::status::AggregatorStatus) -> f64| -> Vec<Row> {
        status.aggregators.iter().map(|a| (vec![a.zone.clone(), a.name.clone()], value(a))).collect()
    };
    page.gauge(
        "plimsoll_aggregator_connected",
        "1 while the aggregator has a stream.",
        &["zone", "aggregator"],
        each(&|a| flag(a.connected)),
    );
    page.gauge(
        "plimsoll_aggregator_silent_seconds",
        "How long nothing was heard of it while others were.",
        &["zone", "aggregator"],
        each(&|a| a.silent_s),
    );
}

fn rollout(page: &mut Page, brain: &Brain, now: MonoTime) {
    let judged = brain.rollouts().into_iter().filter_map(|(entry, policy)| {
        let judgement = brain.judgement(now, &entry, policy.rollout())?;
        Some((entry, judgement.as_str()))
    });
    let gates = judged.flat_map(|(entry, said)| {
        ["pass", "fail", "inconclusive"]
            .map(|result| (vec![entry.clone(), result.to_owned()], flag(said == result)))
    });
    let help =
        "1 for what the gate to the next stage says of an entry of the policy; absent where it is enforced.";
    page.gauge("plimsoll_rollout_gate", help, &["entry", "result"], gates.collect::<Vec<Row>>());
    let values = brain.rollouts().into_iter().flat_map(|(entry, policy)| {
        let found = brain.exhibit(now, &entry, policy.rollout()).queries;
        found.into_iter().filter_map(move |query| Some((vec![entry.clone(), query.name], query.value?)))
    });
    let help = "What an extra gate of an entry of the policy found last; absent where there is no answer that counts.";
    page.gauge("plimsoll_rollout_query_value", help, &["entry", "query"], values.collect::<Vec<Row>>());
    let stale: BTreeSet<&Place> = brain.stale_feeds(now).map(|(place, _)| place).collect();
    let known = brain.sources().iter().map(|(place, _)| place).chain(stale.iter().copied());
    let feeds = known
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|place| (vec![place.0.to_string(), place.1.to_string()], flag(stale.contains(place))));
    let help = "1 while nothing has been heard of the aggregator for so long that what is in canary returns to shadow.";
    page.gauge("plimsoll_feed_stale", help, &["zone", "aggregator"], feeds.collect::<Vec<Row>>());
    let help = "1 while a policy that was read is held back because it changes very much.";
    page.gauge("plimsoll_policy_held", help, &[], plain(flag(brain.held().is_some())));
}

fn reloads(page: &mut Page, counts: &Counts) {
    let reloads = [("accepted", counts.reloads_accepted), ("refused", counts.reloads_refused)]
        .map(|(result, count)| (vec![result.to_owned()], count as f64));
    page.counter(
        "plimsoll_policy_reloads_total",
        "Changes of the policy files, by what became of them.",
        &["result"],
        reloads,
    );
    page.gauge(
        "plimsoll_policy_refused",
        "1 while the files as they are were refused and an earlier policy is in force.",
        &[],
        plain(flag(counts.last_reload_refused)),
    );
}
