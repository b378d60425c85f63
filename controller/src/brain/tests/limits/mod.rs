//! One limit for the whole fleet: its division, its balance, and buckets without a limit to divide.

mod learned;

use super::*;
use plimsoll_core::quantity::DropRatio;
use plimsoll_core::quantity::Limit;

/// The requests that two zones with 2,000 requests/s each admit at these ratios, as a multiple of the limit.
fn admitted(ratios: [f64; 2]) -> f64 {
    ratios
        .iter()
        .map(|ratio| 2000.0 * (1.0 - ratio))
        .sum::<f64>()
        / LIMIT
}

fn check_limit_is_kept(ratios: [f64; 2]) -> Result<(), f64> {
    let admitted = admitted(ratios);
    if (admitted - 1.0).abs() < 0.03 {
        Ok(())
    } else {
        Err(admitted)
    }
}

#[test]
fn limit_covers_all_zones_each_second() {
    let fleet = settled(enforced());
    let ratios = [0, 1].map(|zone: usize| fleet.zones[zone].ratio("acme").unwrap());
    check_limit_is_kept(ratios).unwrap();

    // The same check finds two common mistakes. Each zone counts 1,000 requests in half a second.
    let excess = |offered: f64| (offered - LIMIT) / offered;
    let count_of_half_a_second = excess(1000.0 + 1000.0);
    assert_eq!(check_limit_is_kept([count_of_half_a_second; 2]), Err(2.0));
    let rate_of_one_zone = excess(2000.0);
    assert_eq!(check_limit_is_kept([rate_of_one_zone; 2]), Err(2.0));
}

#[test]
fn rates_follow_traffic_and_caps_sum_up() {
    let mut zones = two_zones();
    zones[0].offers("acme", 6000.0);
    let mut fleet = Fleet::new(enforced(), zones);
    fleet.run(20.0);
    for (zone, part) in fleet.zones.iter().zip([750.0, 250.0]) {
        check_near(zone.rate("acme").unwrap(), part, 0.01 * part);
        check_near(zone.hold().unwrap(), part, 0.01 * part);
    }
    let caps = fleet
        .zones
        .iter()
        .map(|zone| zone.values("acme").unwrap().cap.unwrap().per_second());
    check_near(caps.sum::<f64>(), LIMIT, 1.0);
    assert_eq!(fleet.presences(), 2.0);
}

#[test]
fn tenant_limit_overloads_no_other_tenant() {
    let tenants = "tenants: { default: {}, acme: {}, free: {} }\n";
    let policy = policy_of(&enforced_with(", tenant_limit: 200"), tenants);
    let zone = Scripted::new("a", 1)
        .offering("acme", 5_000.0)
        .offering("free", 100.0);
    let mut fleet = Fleet::new(policy, vec![zone]);
    fleet.run(20.0);
    let zone = &fleet.zones[0];
    check_near(zone.ratio("acme").unwrap(), 0.96, 1e-3);
    assert_eq!(zone.values("acme").unwrap().at_tenant_limit, Some(true));
    assert_eq!(zone.ratio("free"), Some(0.0));
    assert_eq!(zone.values("free").unwrap().at_tenant_limit, Some(false));
    let headroom = zone
        .board
        .get(&bucket())
        .unwrap()
        .terms()
        .headroom
        .unwrap()
        .rate()
        .unwrap();
    check_near(headroom.per_second(), LIMIT + 125.0 - 300.0, 10.0);
}

#[test]
fn rate_below_the_limit_has_noise_margin() {
    let mut fleet = Fleet::new(
        enforced(),
        vec![Scripted::new("a", 1).offering("acme", 400.0)],
    );
    fleet.run(10.0);
    let values = fleet.zones[0].values("acme").unwrap();
    assert_eq!(fleet.zones[0].ratio("acme"), Some(0.0));
    let (rate, cap) = (
        values.rate.unwrap().per_second(),
        values.cap.unwrap().per_second(),
    );
    check_near(
        rate,
        cap + plimsoll_core::law::parameters::margin(cap),
        1e-3,
    );
}

/// In shadow every request passes, yet the law must count would-be drops as drops. Otherwise its balance, and
/// with it the ratio, would sink to the lowest value.
#[test]
fn would_be_drops_count_as_drops() {
    let mut fleet = settled(policy("buckets: { api: { limit: 1000 } }\n"));
    fleet
        .zones
        .iter_mut()
        .for_each(|zone| zone.in_shadow = true);
    fleet.run(20.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 1e-3);
    check_near(fleet.balance(), 0.0, 20.0);
}

#[test]
fn ratio_waits_for_a_known_rate() {
    let mut fleet = Fleet::new(
        enforced(),
        vec![Scripted::new("a", 1).offering("acme", 5000.0)],
    );
    fleet.run(0.5);
    let zone = &fleet.zones[0];
    let posted = zone.board.get(&bucket()).unwrap();
    assert_eq!(
        posted.terms().limit,
        Limit::PerSecond(Rate::new(LIMIT).unwrap())
    );
    assert_eq!(
        zone.ratio("acme"),
        None,
        "terms are sent at once, a ratio is not invented"
    );
    assert_eq!(zone.rate("acme"), None);
    fleet.run(0.5);
    assert_eq!(
        fleet.zones[0].ratio("acme"),
        None,
        "one report gives a count and no rate"
    );
}

#[test]
fn bucket_outside_the_policy_has_unknown_limit() {
    let mut fleet = Fleet::new(
        policy("buckets: {}\n"),
        vec![Scripted::new("a", 1).offering("acme", 2000.0)],
    );
    fleet.run(5.0);
    let posted = fleet.zones[0].board.get(&bucket()).unwrap();
    assert_eq!(posted.terms().limit, Limit::Unknown);
    assert_eq!(
        (fleet.zones[0].ratio("acme"), fleet.zones[0].hold()),
        (None, None)
    );
}

#[test]
fn limit_of_zero_denies_in_every_directive() {
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
        assert_eq!(
            fleet.zones[0].hold(),
            None,
            "a hold would outlive the limit of zero"
        );
        assert_eq!(
            fleet.brain.downstream.takeover.leading,
            step >= 2,
            "it denies also before rates are sent"
        );
        fleet.run(0.5);
    }
}

#[test]
fn limit_that_becomes_zero_denies_at_once() {
    let mut fleet = settled(enforced());
    let zero = "buckets: { api: { limit: 0, mode: enforce } }\nrollout: { require_gates: false }\n";
    fleet.brain.on_policy(policy(zero));
    save(&mut fleet.brain);
    let now = fleet.now();
    let Fleet { brain, zones, .. } = &mut fleet;
    zones[0].receive(brain, now);
    assert_eq!(zones[0].ratio("acme"), Some(1.0));
    let shares: Vec<DropRatio> = brain.buckets.states[&bucket()]
        .shares()
        .filter_map(|(_, share)| share.ratio)
        .collect();
    assert!(
        !shares.is_empty() && shares.iter().all(|ratio| *ratio == DropRatio::ALL),
        "{shares:?}"
    );
}

#[test]
fn limit_raised_from_zero_divides_next_tick() {
    let zero = policy(
        "buckets: { api: { limit: 0, mode: enforce } }\nrollout: { require_gates: false }\n",
    );
    let mut fleet = Fleet::new(zero, two_zones());
    fleet.run(10.0);
    fleet.brain.on_policy(enforced());
    fleet.run(20.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 1e-3);
    check_near(fleet.zones[0].hold().unwrap(), 500.0, 5.0);
}

#[test]
fn limit_raised_while_away_divides_immediately() {
    let zero = policy(
        "buckets: { api: { limit: 0, mode: enforce } }\nrollout: { require_gates: false }\n",
    );
    let mut fleet = Fleet::new(zero, two_zones());
    fleet.run(10.0);
    fleet.restarts_with(enforced());
    fleet.run(5.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.02);
}
