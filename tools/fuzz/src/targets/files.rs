//! Targets for files that a process wrote, and that a disk or a person may have changed. A checksum
//! is corrected, because no mutation would match it, so that the code behind it is reached.

use plimsoll_client::internals as client;
use plimsoll_controller::parsers as controller;
use plimsoll_controller::state::DurableState;
use plimsoll_core::exchange::Child;
use plimsoll_core::report::Role;
use plimsoll_policy::ONE_CLASS_TENANTS;

use super::tiers::{self, POLICY, START, later, save};

/// A state file, as it is and as the content of a sound one.
pub(super) fn state(data: &[u8]) {
    if let Some(durable) = controller::state(data) {
        run(durable);
    }
    if let Ok(durable) = serde_json::from_slice(data) {
        run(durable);
    }
}

fn run(durable: DurableState) {
    let policy = tiers::policy(POLICY, ONE_CLASS_TENANTS).unwrap();
    let mut brain = tiers::brain(START, policy, durable);
    for step in 1..4 {
        brain.on_tick(later(START, 500 * step), 1_800_000_000);
        save(&mut brain);
    }
}

pub(super) fn kept_directives(data: &[u8]) {
    for bytes in [data.to_owned(), client::with_checksum(data)] {
        let (limiter, mut subscription) = tiers::client(3, "zone-a");
        let key = limiter.bucket("checkout").unwrap().key("default");
        client::restore(
            &mut subscription,
            tiers::identity(Role::Client, 3, "zone-a"),
            &bytes,
        );
        subscription.on_open(START);
        for step in 1..4 {
            let now = later(START, 100 * step);
            subscription.on_tick(now);
            let _ = (key.check(), key.peek(), subscription.report(now));
        }
    }
}

/// An import of a text, and a file of the history. The controller learns a limit from them.
pub(super) fn history(data: &[u8]) {
    let policy = || tiers::policy(LEARNED, ONE_CLASS_TENANTS).unwrap();
    let mut brain = tiers::brain(START, policy(), DurableState::first_start());
    if let Ok(text) = std::str::from_utf8(data) {
        controller::history_import(text, &policy(), &mut brain, controller::today(NOW_S));
    }
    controller::history_file(data, &mut brain, START);
    for step in 1..4 {
        brain.on_tick(
            later(START, 60_000 * step),
            NOW_S + 86_400 * i64::try_from(step).unwrap_or_default(),
        );
        save(&mut brain);
    }
}

/// Later than the days of the corpus.
const NOW_S: i64 = 1_800_000_000;
const LEARNED: &str = "\
buckets:
  checkout: { limit: { learned: { min: 10, max: 1000, until_history: 100 } }, mode: shadow }
  search: { limit: { prometheus: { url: \"http://prometheus:9090\", query: q, min: 1, max: 100 } }, mode: shadow }
";
