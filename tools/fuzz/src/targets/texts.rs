//! Targets for the texts that operators write: policy, tenants, scenarios and histories.

use std::path::Path;

use plimsoll_controller::history::csv as history;
use plimsoll_controller::state::DurableState;
use plimsoll_policy::{ONE_CLASS_TENANTS, Policy, Source, differences};
use plimsoll_simulator::Scenario;

use super::tiers::{self, POLICY, START, later, save};

/// A controller can run any valid policy, and read it again.
pub(super) fn policy(data: &[u8]) {
    if let Ok(source) = Source::from_bytes("policy.yaml", data)
        && let Some(policy) = tiers::policy(source.text, ONE_CLASS_TENANTS)
    {
        run(policy);
    }
}

pub(super) fn tenants(data: &[u8]) {
    if let Ok(source) = Source::from_bytes("tenants.yaml", data)
        && let Some(policy) = tiers::policy(POLICY, source.text)
    {
        run(policy);
    }
}

fn run(policy: Policy) {
    let again = policy.texts().read().unwrap();
    assert!(
        differences(&policy, &again).is_empty(),
        "the saved texts are the same policy"
    );
    let mut brain = tiers::brain(START, policy, DurableState::first_start());
    for step in 1..4 {
        brain.on_tick(later(START, 500 * step), 1_800_000_000);
        save(&mut brain);
    }
}

pub(super) fn scenario(data: &[u8]) {
    if let Ok(source) = Source::from_bytes("scenario.yaml", data) {
        // Its files are in a folder that does not exist.
        let _ = Scenario::parse(source, Path::new("/nonexistent"));
    }
}

pub(super) fn csv(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    for row in history::rows(text).into_iter().flatten() {
        let Ok((line, row)) = row else { return };
        assert!(line > 0 && row.offered_rps.per_second().is_finite());
    }
}
