//! Temporary weights of a tenant: an operator's boost, and the burst credit of an idle tenant.

use super::*;
use crate::tasks::journal::Snapshot;

/// 2026-12-01T00:00:00Z.
const ENDS: i64 = 1_796_083_200;

fn two_tenants(a: &str) -> Arc<Policy> {
    let tenants = format!("tenants: {{ default: {{}}, a: {{ {a} }}, b: {{ weight: 1 }} }}\n");
    policy_of(&enforced_with(""), &tenants)
}

#[test]
fn boost_lasts_until_its_end() {
    let boosted = two_tenants("weight: 1, boost: 3.0, boost_until: 2026-12-01T00:00:00Z");
    let zone = Scripted::new("a", 1)
        .offering("a", 2000.0)
        .offering("b", 2000.0);
    let mut fleet = Fleet::new(boosted, vec![zone]);
    fleet.unix_s = ENDS - 30;
    fleet.run(29.0);
    check_near(
        fleet.zones[0].ratio("a").unwrap(),
        1.0 - 750.0 / 2000.0,
        0.005,
    );
    check_near(
        fleet.zones[0].ratio("b").unwrap(),
        1.0 - 250.0 / 2000.0,
        0.005,
    );
    let weight = |fleet: &Fleet| {
        fleet.zones[0]
            .values("a")
            .unwrap()
            .entitlement
            .unwrap()
            .weight
            .get()
    };
    assert_eq!(weight(&fleet), 3.0, "zones on holds divide by it, too");
    fleet.run(2.0);
    check_near(fleet.zones[0].ratio("a").unwrap(), 0.75, 0.005);
    check_near(fleet.zones[0].ratio("b").unwrap(), 0.75, 0.005);
    assert_eq!(weight(&fleet), 1.0);
}

#[test]
fn boost_ends_in_time_or_with_an_edit() {
    let boosted = two_tenants("weight: 1, boost: 3.0, boost_until: 2026-12-01T00:00:00Z");
    for (removed, runs_s, text) in [
        (true, 1.0, "boost ended: the policy has none for a any more"),
        (false, 40.0, "boost ended: the weight of a is 1 again"),
    ] {
        let mut fleet = Fleet::new(Arc::clone(&boosted), Vec::new());
        fleet.unix_s = ENDS - 30;
        fleet.run(2.0);
        let before = Snapshot::of(&fleet.brain, None);
        if removed {
            fleet.brain.on_policy(two_tenants("weight: 1"));
        }
        fleet.run(runs_s);
        let now = Snapshot::of(&fleet.brain, Some(&before));
        let events = now.since(&before).map(|event| event.to_string());
        assert_eq!(events.collect::<Vec<_>>(), [text]);
    }
}

#[test]
fn start_judges_by_the_last_boosts() {
    let boosted = two_tenants("weight: 1, boost: 3.0, boost_until: 2026-12-01T00:00:00Z");
    let zone = Scripted::new("a", 1)
        .offering("a", 2000.0)
        .offering("b", 2000.0);
    let mut fleet = Fleet::new(boosted, vec![zone]);
    for (unix_s, offer) in [(ENDS - 300, Offer::Held), (ENDS, Offer::Taken)] {
        fleet.unix_s = unix_s;
        fleet.run(20.0);
        fleet.restarts();
        assert_eq!(
            fleet.brain.offer(two_tenants("weight: 1")),
            offer,
            "at {unix_s}"
        );
        fleet.brain.offer(Arc::clone(fleet.brain.policy()));
    }
}
