//! The start of a controller: without any traffic known, or with zones that live on holds from an earlier
//! controller.

use super::*;

fn three_zones() -> Vec<Scripted> {
    ["a", "b", "c"]
        .into_iter()
        .zip(1..)
        .map(|(zone, number)| Scripted::new(zone, number).offering("acme", 2000.0))
        .collect()
}

#[test]
fn new_zones_shrink_the_even_part() {
    let mut fleet = Fleet::new(enforced(), three_zones());
    let now = fleet.now();
    for joined in 1..=3 {
        let Fleet { brain, zones, .. } = &mut fleet;
        zones[joined - 1].exchange(brain, now);
        for zone in &mut zones[..joined] {
            zone.receive(brain, now);
            check_near(zone.hold().unwrap(), LIMIT / joined as f64, 1e-6);
            assert_eq!((zone.ratio("acme"), zone.rate("acme")), (None, None));
        }
    }
    fleet.leaves(2);
    save(&mut fleet.brain);
    fleet.zones[0].receive(&mut fleet.brain, now);
    assert_eq!(
        fleet.zones[0].hold(),
        Some(500.0),
        "and grows as zones leave"
    );
}

#[test]
fn known_zones_are_expected_from_the_start() {
    let mut fleet = Fleet::new(enforced(), three_zones());
    fleet.run(1.0);
    let known = fleet.brain.durable().clone();
    let mut fleet = Fleet::restored(known, enforced(), three_zones());
    let now = fleet.now();
    let Fleet { brain, zones, .. } = &mut fleet;
    let report = zones[0].report(now);
    brain.on_report(now, zones[0].stream, report).unwrap();
    let first = zones[0].receive(brain, now).unwrap();
    let hold = first.buckets[0].terms.hold.unwrap().per_second();
    check_near(hold, LIMIT / 3.0, 1e-6);
    check_near(fleet.presences(), 3.0, 1e-6);
}

#[test]
fn rates_wait_for_every_zones_traffic() {
    let mut fleet = Fleet::new(enforced(), two_zones());
    // The greeting, the first counts, and the counts half a second later, which give a rate.
    for (seconds, leading) in [(0.5, false), (0.5, false), (0.5, true)] {
        fleet.run(seconds);
        assert_eq!(
            (
                fleet.brain.downstream.takeover.leading,
                fleet.zones[0].rate("acme").is_some()
            ),
            (leading, leading)
        );
    }
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.01);
}

fn restarted() -> Fleet {
    restarted_with("")
}

fn restarted_with(more: &str) -> Fleet {
    let tenants = "tenants: { default: {}, acme: {} }\n";
    let mut fleet = settled(policy_of(&enforced_with(more), tenants));
    fleet
        .zones
        .iter()
        .for_each(|zone| check_near(zone.hold().unwrap(), 500.0, 5.0));
    fleet.restarts();
    fleet
}

#[test]
fn restarted_controller_leaves_zones_on_hold() {
    let mut fleet = restarted();
    let epoch = fleet.zones[0].epoch.unwrap();
    let (ratio, hold) = (fleet.zones[0].ratio("acme"), fleet.zones[0].hold());
    let now = fleet.now();
    for zone in &mut fleet.zones {
        let report = zone.report(now);
        assert_eq!(report.greeting.holds.len(), 1);
        fleet.brain.on_report(now, zone.stream, report).unwrap();
        save(&mut fleet.brain);
        let first = zone.receive(&mut fleet.brain, now).unwrap();
        assert_eq!(first.lead.epoch(), Some(Epoch(epoch.0 + 1)));
        assert_eq!(
            first.buckets[0].terms.hold, None,
            "a hold that a zone brings stays as it is"
        );
        assert!(
            first.buckets[0]
                .keys
                .iter()
                .all(|key| key.values.ratio.is_none()
                    && key.values.rate.is_none()
                    && key.values.cap.is_none())
        );
    }
    fleet.run(0.5);
    assert_eq!(
        (fleet.zones[0].ratio("acme"), fleet.zones[0].hold()),
        (ratio, hold)
    );
    assert!(!fleet.brain.downstream.takeover.leading);
    fleet.run(0.5);
    assert!(fleet.brain.downstream.takeover.leading);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.01);
    fleet.run(20.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.002);
}

#[test]
fn restarted_controller_reserves_missing_shares() {
    let mut fleet = restarted();
    fleet.zones[1].cut = true;
    fleet.run(25.0);
    // All of the limit would make it 0.5.
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.01);
    check_near(fleet.zones[0].hold().unwrap(), 500.0, 10.0);
    fleet.run(20.0);
    check_near(
        fleet.zones[0].ratio("acme").unwrap(),
        1.0 - 750.0 / 2000.0,
        0.02,
    );
    fleet.run(25.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.5, 0.005);
    check_near(fleet.zones[0].hold().unwrap(), LIMIT, 5.0);
}

/// A zone with a broken stream returns with the hold that this controller gave it. Counting that
/// hold would free the share of missing zones.
#[test]
fn own_hold_is_not_brought() {
    let mut fleet = restarted();
    fleet.zones[1].cut = true;
    fleet.run(44.5);
    fleet.zones[0].reconnects();
    fleet.run(0.5);
    check_near(
        fleet.zones[0].ratio("acme").unwrap(),
        1.0 - 750.0 / 2000.0,
        0.02,
    );
}

/// An aggregator that restarted with the controller has no hold, and is not given the part of a missing one.
#[test]
fn restarted_aggregator_leaves_missing_shares() {
    let mut fleet = restarted();
    fleet.zones[0] = Scripted::new("a", 3).offering("acme", 2000.0);
    fleet.zones[1].cut = true;
    fleet.run(25.0);
    check_near(fleet.zones[0].rate("acme").unwrap(), LIMIT / 2.0, 15.0);
}

/// An aggregator that restarts while the controller is away has lost its hold, and no zone is missing.
#[test]
fn complete_fleet_needs_no_reserve() {
    let policy = policy_of(&enforced_with(""), "tenants: { default: {}, acme: {} }\n");
    let zone = |name, number, rate| Scripted::new(name, number).offering("acme", rate);
    let mut fleet = Fleet::new(policy, vec![zone("a", 1, 200.0), zone("b", 2, 3800.0)]);
    fleet.run(20.0);
    fleet.restarts();
    fleet.zones[1] = zone("b", 3, 3800.0);
    fleet.run(6.0);
    check_near(
        fleet
            .zones
            .iter()
            .map(|zone| zone.rate("acme").unwrap())
            .sum(),
        LIMIT,
        10.0,
    );
}

#[test]
fn unreleased_share_survives_a_restart() {
    let mut fleet = restarted_with(", release: never");
    fleet.zones[1].cut = true;
    fleet.run(200.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.01);
    assert_eq!(fleet.brain.durable().children.len(), 2);
    fleet.zones[1].cut = false;
    fleet.zones[1].reconnects();
    fleet.run(20.0);
    check_near(
        fleet
            .zones
            .iter()
            .map(|zone| zone.rate("acme").unwrap())
            .sum(),
        LIMIT,
        10.0,
    );
}

#[test]
fn missing_zone_is_expected_briefly() {
    let mut known = DurableState::first_start();
    let gone = Scripted::new("gone", 7).identity;
    known.children.insert((gone.zone, gone.name));
    let mut fleet = Fleet::restored(
        known,
        enforced(),
        vec![Scripted::new("a", 1).offering("acme", 2000.0)],
    );
    fleet.run(0.5);
    assert_eq!(
        fleet.zones[0].hold(),
        Some(500.0),
        "half of the limit is reserved for the zone known before"
    );
    fleet.run(29.0);
    assert_eq!(fleet.brain.durable().children.len(), 2);
    fleet.run(1.0);
    assert_eq!(
        fleet.brain.durable().children.len(),
        1,
        "the missing zone is forgotten"
    );
    // Its clients may live on; the share is released from then on.
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.02);
    fleet.run(35.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.5, 0.002);
}

#[test]
fn zone_without_counts_delays_others_briefly() {
    let mut fleet = Fleet::new(enforced(), two_zones());
    fleet.zones[1].timeless = true;
    fleet.run(4.5);
    assert_eq!(fleet.zones[0].ratio("acme"), None);
    fleet.run(0.5);
    assert!(fleet.zones[0].ratio("acme").is_some());
}

#[test]
fn policy_held_at_peak_stays_held() {
    let low = policy(&enforced_with("").replace("1000", "500"));
    let hash = low.hash();
    let restarted = || {
        let mut fleet = settled(enforced());
        assert_eq!(fleet.brain.offer(Arc::clone(&low)), Offer::Held);
        fleet
            .zones
            .iter_mut()
            .for_each(|zone| zone.offers("acme", 100.0));
        fleet.run(310.0);
        for _ in 0..2 {
            let since_s = fleet.brain.durable().held_since_s(&hash.to_string());
            fleet.restarts();
            assert!(since_s.is_some() && fleet.brain.held_before(&hash));
            assert_eq!(fleet.brain.offer(Arc::clone(&low)), Offer::Held);
            fleet.run(5.0);
            assert_eq!(
                fleet.brain.durable().held_since_s(&hash.to_string()),
                since_s,
                "it is held since the first process"
            );
            let reasons = &fleet.brain.policies.held.as_ref().unwrap().reasons;
            assert_eq!(*reasons, ["held back earlier, and not acknowledged"]);
        }
        fleet
    };
    let mut fleet = restarted();
    assert_eq!(fleet.brain.acknowledge(&hash.to_string(), hash), Ok(hash));
    fleet.restarts();
    assert_eq!(fleet.brain.offer(Arc::clone(&low)), Offer::Taken);
    assert_eq!(fleet.brain.policy().hash(), hash);

    let mut fleet = restarted();
    assert_eq!(fleet.brain.offer(enforced()), Offer::Taken);
    fleet.restarts();
    assert_eq!(
        fleet.brain.offer(Arc::clone(&low)),
        Offer::Taken,
        "it was recalled, and passes by its effect"
    );
}

#[test]
fn held_policy_activates_without_comparison() {
    let mut fleet = settled(enforced());
    let low = policy(&enforced_with("").replace("1000", "500"));
    assert_eq!(fleet.brain.offer(Arc::clone(&low)), Offer::Held);
    fleet.restarts_with(Arc::clone(&low));
    assert_eq!(fleet.brain.offer(low), Offer::Taken);
}
