//! How a reign begins: with nothing known, or with zones that live on what another controller gave them.

use super::*;

fn three_zones() -> Vec<Scripted> {
    ["a", "b", "c"]
        .into_iter()
        .zip(1..)
        .map(|(zone, number)| Scripted::new(zone, number).offering("acme", 2000.0))
        .collect()
}

#[test]
fn whoever_comes_with_nothing_is_given_an_even_part_which_shrinks_as_others_join() {
    let mut fleet = Fleet::new(enforced(), three_zones());
    let now = fleet.now();
    for joined in 1..=3 {
        let Fleet { brain, zones, .. } = &mut fleet;
        zones[joined - 1].exchange(brain, now);
        for zone in &mut zones[..joined] {
            zone.hear(brain, now);
            check_near(zone.hold().unwrap(), LIMIT / joined as f64, 1e-6);
            assert_eq!((zone.ratio("acme"), zone.rate("acme")), (None, None));
        }
    }
    let farewell = Report { leaving: true, ..fleet.zones[2].report(now) };
    fleet.brain.on_report(now, fleet.zones[2].stream, farewell).unwrap();
    save(&mut fleet.brain);
    fleet.zones[0].hear(&mut fleet.brain, now);
    assert_eq!(fleet.zones[0].hold(), Some(500.0), "and grows as they leave");
}

#[test]
fn whoever_is_known_is_expected_from_the_first_state_on() {
    let mut fleet = Fleet::new(enforced(), three_zones());
    fleet.run(1.0);
    let known = fleet.brain.durable().clone();
    let mut fleet = Fleet::knowing(known, enforced(), three_zones());
    let now = fleet.now();
    let Fleet { brain, zones, .. } = &mut fleet;
    let report = zones[0].report(now);
    brain.on_report(now, zones[0].stream, report).unwrap();
    let first = zones[0].hear(brain, now).unwrap();
    let hold = first.buckets[0].terms.hold.unwrap().per_second();
    check_near(hold, LIMIT / 3.0, 1e-6);
    check_near(fleet.presences(), 3.0, 1e-6);
}

#[test]
fn a_start_leads_once_every_zone_has_shown_its_traffic() {
    let mut fleet = Fleet::new(enforced(), two_zones());
    // Greeting, the first counts, and the counts half a second later that say how fast.
    for (seconds, leading) in [(0.5, false), (0.5, false), (0.5, true)] {
        fleet.run(seconds);
        assert_eq!((fleet.brain.is_leading(), fleet.zones[0].rate("acme").is_some()), (leading, leading));
    }
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.01);
}

/// Zones on their holds, back at a controller that knows nothing of their traffic.
fn restarted() -> Fleet {
    restarted_with("")
}

/// The same, with something more said of the bucket.
fn restarted_with(more: &str) -> Fleet {
    let tenants = "tenants: { default: {}, acme: {} }\n";
    let mut fleet = settled(policy_of(&enforced_with(more), tenants));
    fleet.zones.iter().for_each(|zone| check_near(zone.hold().unwrap(), 500.0, 5.0));
    fleet.restarts();
    fleet
}

#[test]
fn a_restarted_controller_leaves_zones_on_their_holds_until_they_have_shown_their_traffic() {
    let mut fleet = restarted();
    let epoch = fleet.zones[0].epoch.unwrap();
    let (ratio, hold) = (fleet.zones[0].ratio("acme"), fleet.zones[0].hold());
    let now = fleet.now();
    for zone in &mut fleet.zones {
        let report = zone.report(now);
        assert_eq!(report.holds.len(), 1);
        fleet.brain.on_report(now, zone.stream, report).unwrap();
        save(&mut fleet.brain);
        let first = zone.hear(&mut fleet.brain, now).unwrap();
        assert_eq!(first.epoch, Some(Epoch(epoch.0 + 1)));
        assert_eq!(first.buckets[0].terms.hold, None, "what they hold is theirs");
        assert!(
            first.buckets[0].keys.iter().all(|key| key.values.ratio.is_none()
                && key.values.rate.is_none()
                && key.values.cap.is_none())
        );
    }
    fleet.run(0.5);
    assert_eq!((fleet.zones[0].ratio("acme"), fleet.zones[0].hold()), (ratio, hold));
    assert!(!fleet.brain.is_leading());
    fleet.run(0.5);
    assert!(fleet.brain.is_leading());
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.01);
    fleet.run(20.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.002);
}

#[test]
fn a_restarted_controller_divides_no_more_than_those_who_are_back_were_living_on() {
    let mut fleet = restarted();
    fleet.zones[1].cut = true;
    fleet.run(25.0);
    // All of the limit would make it 0.5.
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.01);
    check_near(fleet.zones[0].hold().unwrap(), 500.0, 10.0);
    fleet.run(20.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 1.0 - 750.0 / 2000.0, 0.02);
    fleet.run(25.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.5, 0.005);
    check_near(fleet.zones[0].hold().unwrap(), LIMIT, 5.0);
}

/// Or its stream would break, it would bring what it was given meanwhile, and the others would find it gone.
#[test]
fn what_a_zone_was_given_by_this_controller_is_not_what_it_was_living_on() {
    let mut fleet = restarted();
    fleet.zones[1].cut = true;
    fleet.run(44.5);
    fleet.zones[0].reconnects();
    fleet.run(0.5);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 1.0 - 750.0 / 2000.0, 0.02);
}

#[test]
fn what_is_never_released_is_not_released_by_a_restart() {
    let mut fleet = restarted_with(", release: never");
    fleet.zones[1].cut = true;
    fleet.run(200.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.01);
    assert_eq!(fleet.brain.durable().children.len(), 2);
    fleet.zones[1].cut = false;
    fleet.zones[1].reconnects();
    fleet.run(20.0);
    check_near(fleet.zones.iter().map(|zone| zone.rate("acme").unwrap()).sum(), LIMIT, 10.0);
}

#[test]
fn whoever_comes_back_later_brings_its_part_of_the_limit() {
    let mut fleet = restarted();
    fleet.zones[1].cut = true;
    fleet.run(10.0);
    fleet.zones[1].cut = false;
    fleet.zones[1].reconnects();
    fleet.run(20.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.005);
    check_near(fleet.zones.iter().map(|zone| zone.rate("acme").unwrap()).sum(), LIMIT, 10.0);
}

#[test]
fn a_zone_that_never_comes_back_is_expected_no_longer_than_it_may_take() {
    let mut known = Durable::first_start();
    let gone = Scripted::new("gone", 7).identity;
    known.children.insert((gone.zone, gone.name));
    let mut fleet = Fleet::knowing(known, enforced(), vec![Scripted::new("a", 1).offering("acme", 2000.0)]);
    fleet.run(0.5);
    assert_eq!(fleet.zones[0].hold(), Some(500.0), "half of it is for whom the last controller knew");
    fleet.run(29.0);
    assert_eq!(fleet.brain.durable().children.len(), 2);
    fleet.run(1.0);
    assert_eq!(fleet.brain.durable().children.len(), 1, "and then forgotten");
    // Nobody brought a hold, so nobody can be living on one.
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.5, 0.002);
}

#[test]
fn a_zone_that_shows_nothing_holds_nobody_up_for_long() {
    let mut fleet = Fleet::new(enforced(), two_zones());
    fleet.zones[1].timeless = true;
    fleet.run(4.5);
    assert_eq!(fleet.zones[0].ratio("acme"), None);
    fleet.run(0.5);
    assert!(fleet.zones[0].ratio("acme").is_some());
}
