//! One limit for the whole fleet: what is divided, what is remembered, and where there is nothing to divide.

mod learned;

use super::*;
use plimsoll_core::quantity::Limit;
use plimsoll_core::quantity::DropRatio;

/// What two zones with 2,000 requests/s each admit in all at these ratios, as a multiple of the limit.
fn admitted(ratios: [f64; 2]) -> f64 {
    ratios.iter().map(|ratio| 2000.0 * (1.0 - ratio)).sum::<f64>() / LIMIT
}

fn check_limit_is_kept(ratios: [f64; 2]) -> Result<(), f64> {
    let admitted = admitted(ratios);
    if (admitted - 1.0).abs() < 0.03 { Ok(()) } else { Err(admitted) }
}

#[test]
fn a_limit_is_per_second_and_for_all_zones_together() {
    let fleet = settled(enforced());
    let ratios = [0, 1].map(|zone: usize| fleet.zones[zone].ratio("acme").unwrap());
    check_limit_is_kept(ratios).unwrap();

    // The same check finds the textbook mistakes. In half a second each zone counts 1,000 requests.
    let excess = |offered: f64| (offered - LIMIT) / offered;
    let count_of_half_a_second = excess(1000.0 + 1000.0);
    assert_eq!(check_limit_is_kept([count_of_half_a_second; 2]), Err(2.0));
    let rate_of_one_zone = excess(2000.0);
    assert_eq!(check_limit_is_kept([rate_of_one_zone; 2]), Err(2.0));
}

#[test]
fn rates_follow_the_traffic_and_caps_and_holds_make_up_the_limit() {
    let mut zones = two_zones();
    zones[0].offers("acme", 6000.0);
    let mut fleet = Fleet::new(enforced(), zones);
    fleet.run(20.0);
    for (zone, part) in fleet.zones.iter().zip([750.0, 250.0]) {
        check_near(zone.rate("acme").unwrap(), part, 0.01 * part);
        check_near(zone.hold().unwrap(), part, 0.01 * part);
    }
    let caps = fleet.zones.iter().map(|zone| zone.values("acme").unwrap().cap.unwrap().per_second());
    check_near(caps.sum::<f64>(), LIMIT, 1.0);
    assert_eq!(fleet.presences(), 2.0);
}

#[test]
fn a_rate_that_is_not_scarce_has_a_margin_for_chance() {
    let mut fleet = Fleet::new(enforced(), vec![Scripted::new("a", 1).offering("acme", 400.0)]);
    fleet.run(10.0);
    let values = fleet.zones[0].values("acme").unwrap();
    assert_eq!(fleet.zones[0].ratio("acme"), Some(0.0));
    let (rate, cap) = (values.rate.unwrap().per_second(), values.cap.unwrap().per_second());
    check_near(rate, cap + Parameters::default().margin(cap), 1e-3);
}

#[test]
fn overshoot_is_remembered_and_repaid() {
    let mut fleet = settled(enforced());
    check_near(fleet.balance(), 0.0, 20.0);
    fleet.zones[0].offers("acme", 6000.0);
    let passed = |fleet: &Fleet| -> u64 { fleet.zones.iter().map(|zone| zone.counts("acme").passed()).sum() };
    let before = passed(&fleet);
    fleet.run(0.5);
    // Twice the traffic at the old ratio: half a second's worth was admitted twice.
    check_near((passed(&fleet) - before) as f64, LIMIT, 10.0);
    check_near(fleet.balance(), -500.0, 10.0);
    // A law without memory would ask for 0.875.
    check_near(fleet.zones[0].ratio("acme").unwrap(), 1.0 - (1000.0 - 250.0) / 8000.0, 1e-3);
    fleet.run(14.5);
    check_near((passed(&fleet) - before) as f64, 15.0 * LIMIT, 20.0);
    check_near(fleet.balance(), 0.0, 20.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.875, 1e-3);
}

#[test]
fn what_is_left_over_is_saved_up_to_the_burst() {
    let mut fleet = Fleet::new(enforced(), vec![Scripted::new("a", 1).offering("acme", 500.0)]);
    fleet.run(30.0);
    assert_eq!(fleet.balance(), 250.0, "a quarter of a second and no more");
}

/// In shadow everything passes, and yet the law must see what would have: else its balance sinks to the bottom and the
/// ratio with it.
#[test]
fn refusals_that_are_not_carried_out_count_as_refusals() {
    let mut fleet = settled(policy("buckets: { api: { limit: 1000 } }\n"));
    fleet.zones.iter_mut().for_each(|zone| zone.in_shadow = true);
    fleet.run(20.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 1e-3);
    check_near(fleet.balance(), 0.0, 20.0);
}

#[test]
fn nothing_is_said_of_what_was_not_seen() {
    let mut fleet = Fleet::new(enforced(), vec![Scripted::new("a", 1).offering("acme", 5000.0)]);
    fleet.run(0.5);
    let zone = &fleet.zones[0];
    let posted = zone.board.get(&bucket()).unwrap();
    assert_eq!(posted.terms().limit, Limit::PerSecond(Rate::new(LIMIT).unwrap()));
    assert_eq!(zone.ratio("acme"), None, "policy is told at once, a ratio is not made up");
    assert_eq!(zone.rate("acme"), None);
    fleet.run(0.5);
    assert_eq!(fleet.zones[0].ratio("acme"), None, "one report says how much, not how fast");
}

#[test]
fn a_name_without_policy_is_unknown_and_not_limited_to_zero() {
    let mut fleet = Fleet::new(policy("buckets: {}\n"), vec![Scripted::new("a", 1).offering("acme", 2000.0)]);
    fleet.run(5.0);
    let posted = fleet.zones[0].board.get(&bucket()).unwrap();
    assert_eq!(posted.terms().limit, Limit::Unknown);
    assert_eq!((fleet.zones[0].ratio("acme"), fleet.zones[0].hold()), (None, None));
}

#[test]
fn a_limit_of_zero_denies_in_every_directive() {
    let zero = policy("buckets: { api: { limit: 0, mode: enforce } }\n");
    let mut fleet = Fleet::new(zero, vec![Scripted::new("a", 1).offering("acme", 2.0)]);
    let now = fleet.now();
    let Fleet { brain, zones, .. } = &mut fleet;
    zones[0].exchange(brain, now);
    for step in 0..20 {
        let values = fleet.zones[0].values("acme").unwrap();
        assert_eq!(
            (values.ratio, values.rate, values.cap),
            (Some(DropRatio::ALL), Some(Rate::ZERO), Some(Rate::ZERO))
        );
        assert_eq!(fleet.zones[0].hold(), None, "which would outlive the limit");
        assert_eq!(fleet.brain.is_leading(), step >= 2, "also before rates are sent");
        fleet.run(0.5);
    }
}

#[test]
fn a_limit_that_becomes_zero_denies_at_once() {
    let mut fleet = settled(enforced());
    let zero = "buckets: { api: { limit: 0, mode: enforce } }\nrollout: { require_gates: false }\n";
    fleet.brain.on_policy(policy(zero));
    save(&mut fleet.brain);
    let now = fleet.now();
    let Fleet { brain, zones, .. } = &mut fleet;
    zones[0].hear(brain, now);
    assert_eq!(zones[0].ratio("acme"), Some(1.0));
    let shares: Vec<DropRatio> = brain.buckets()[0].shares().map(|(_, share)| share.ratio).collect();
    assert!(!shares.is_empty() && shares.iter().all(|ratio| *ratio == DropRatio::ALL), "{shares:?}");
}

#[test]
fn a_limit_that_was_zero_is_divided_from_the_next_tick_on() {
    let zero = policy("buckets: { api: { limit: 0, mode: enforce } }\nrollout: { require_gates: false }\n");
    let mut fleet = Fleet::new(zero, two_zones());
    fleet.run(10.0);
    fleet.brain.on_policy(enforced());
    fleet.run(20.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 1e-3);
    check_near(fleet.zones[0].hold().unwrap(), 500.0, 5.0);
}

#[test]
fn a_limit_that_was_raised_from_zero_while_the_controller_was_away_is_divided_at_once() {
    let zero = policy("buckets: { api: { limit: 0, mode: enforce } }\nrollout: { require_gates: false }\n");
    let mut fleet = Fleet::new(zero, two_zones());
    fleet.run(10.0);
    fleet.restarts_with(enforced());
    fleet.run(5.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.02);
}
