//! What the controller exports, in the words of the whole house.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_core::rollout::Mode;
use plimsoll_proto::page::{Page, Row, flag, plain};
use plimsoll_proto::refusals::Refusals;

use crate::brain::{Brain, Figures};
use crate::status::{Status, Traffic};

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
}

impl Events {
    fn with<R>(&self, f: impl FnOnce(&mut Counts) -> R) -> R {
        f(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn on_reload(&self, accepted: bool) {
        self.with(|counts| {
            counts.last_reload_refused = !accepted;
            let count = if accepted { &mut counts.reloads_accepted } else { &mut counts.reloads_refused };
            *count += 1;
        });
    }
}

/// The page of this moment.
pub(crate) fn page(brain: &Brain, status: &Status, events: &Events) -> Page {
    let mut page = Page::default();
    events.refusals.add_to(&mut page);
    controller(&mut page, status, brain.figures());
    buckets(&mut page, status);
    aggregators(&mut page, status);
    events.with(|counts| reloads(&mut page, counts));
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

fn buckets(page: &mut Page, status: &Status) {
    let each = |value: &dyn Fn(&crate::status::BucketStatus) -> Option<f64>| -> Vec<Row> {
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
    let each = |value: &dyn Fn(&crate::status::AggregatorStatus) -> f64| -> Vec<Row> {
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
