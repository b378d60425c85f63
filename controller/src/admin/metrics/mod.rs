//! The metrics of the controller.

mod buckets;

use std::collections::BTreeSet;

use plimsoll_admin::metrics_page::{Page, Row, flag, plain};
use plimsoll_core::quantity::MonoTime;

use crate::admin::status::{AggregatorStatus, Status};
use crate::aggregators::Place;
use crate::brain::{Brain, Counters};
use crate::tasks::events::Events;

/// Returns all metrics at this moment.
pub(crate) fn page(brain: &Brain, status: &Status, events: &Events, now: MonoTime) -> Page {
    let mut page = Page::default();
    controller(&mut page, status, brain.counters());
    buckets::history(&mut page, status, brain.history());
    buckets::buckets(&mut page, status);
    aggregators(&mut page, status);
    events.add_to(&mut page);
    rollout(&mut page, brain, now);
    page
}

fn controller(page: &mut Page, status: &Status, counters: Counters) {
    let info = [(vec![status.policy_hash.clone()], 1.0)];
    page.gauge(
        "plimsoll_epoch",
        "The epoch of the controller; it grows with every start.",
        &[],
        plain(status.epoch as f64),
    );
    page.gauge(
        "plimsoll_policy_info",
        "1, with the hash of the policy in force as a label.",
        &["hash"],
        info,
    );
    page.gauge("plimsoll_killed", "1 while the kill switch is on.", &[], plain(flag(status.killed)));
    page.gauge(
        "plimsoll_kill_generation",
        "The kill generation; odd means killed.",
        &[],
        plain(status.kill_generation as f64),
    );
    page.gauge(
        "plimsoll_takeover_complete",
        "1 once the controller sends its own rates; 0 during a takeover, while zones keep the rates they have, and before the \
         first traffic.",
        &[],
        plain(flag(status.leading)),
    );
    let help = "Requests left out of the totals because an earlier parent may have counted them.";
    page.counter("plimsoll_counts_unconfirmed_total", help, &[], plain(counters.unconfirmed as f64));
    page.counter(
        "plimsoll_keys_rejected_total",
        "Keys and buckets that were rejected, by reason: capacity if there was no room.",
        &["reason"],
        for_capacity(counters.rejected),
    );
    page.counter(
        "plimsoll_state_save_failures_total",
        "Failed saves of the durable state.",
        &[],
        plain(counters.saves_failed as f64),
    );
}

fn aggregators(page: &mut Page, status: &Status) {
    let each = |value: &dyn Fn(&AggregatorStatus) -> f64| -> Vec<Row> {
        status.aggregators.iter().map(|a| (vec![a.zone.clone(), a.name.clone()], value(a))).collect()
    };
    page.gauge(
        "plimsoll_aggregator_connected",
        "1 while the aggregator has a stream to the controller.",
        &["zone", "aggregator"],
        each(&|a| flag(a.connected)),
    );
    page.gauge(
        "plimsoll_aggregator_silent_seconds",
        "Time since the last report of the aggregator, while others reported.",
        &["zone", "aggregator"],
        each(&|a| a.silent_s),
    );
}

fn rollout(page: &mut Page, brain: &Brain, now: MonoTime) {
    let judged = brain.policy().entries().filter_map(|(entry, policy)| {
        let judgement = brain.judgement(now, &entry, policy.rollout())?;
        Some((entry, judgement.as_str()))
    });
    let gates = judged.flat_map(|(entry, said)| {
        ["pass", "fail", "inconclusive"]
            .map(|result| (vec![entry.clone(), result.to_owned()], flag(said == result)))
    });
    let help = "1 for the result of the gate to the next stage, by entry of the policy; absent for an enforced entry.";
    page.gauge("plimsoll_rollout_gate", help, &["entry", "result"], gates.collect::<Vec<Row>>());
    let values = brain.policy().entries().flat_map(|(entry, policy)| {
        let found = brain.evidence(now, &entry, policy.rollout()).queries;
        found.into_iter().filter_map(move |query| Some((vec![entry.clone(), query.name], query.value?)))
    });
    let help = "The last value of an extra gate, by entry of the policy; absent without a current answer.";
    page.gauge("plimsoll_rollout_query_value", help, &["entry", "query"], values.collect::<Vec<Row>>());
    let stale: BTreeSet<&Place> = brain.stale_aggregators(now).map(|(place, _)| place).collect();
    let known = brain.aggregators().iter().map(|(place, _)| place).chain(stale.iter().copied());
    let feeds = known
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|place| (vec![place.0.to_string(), place.1.to_string()], flag(stale.contains(place))));
    let help = "1 while the aggregator has not reported for so long that buckets in canary return to shadow.";
    page.gauge("plimsoll_aggregator_stale", help, &["zone", "aggregator"], feeds.collect::<Vec<Row>>());
    let help = "1 while a drastic change of the policy waits for acknowledgement.";
    page.gauge("plimsoll_policy_held", help, &[], plain(flag(brain.held_policy().is_some())));
}

/// Returns the one row of a counter by reason.
fn for_capacity(count: u64) -> Vec<Row> {
    vec![(vec!["capacity".to_owned()], count as f64)]
}
