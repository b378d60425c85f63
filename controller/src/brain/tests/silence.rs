//! Zones that fall silent: held, released, and accounted for once.

use super::*;

/// Zone a lives on, zone b is cut off for so long; both as they were before.
fn after_silence_of(seconds: f64, policy: Arc<Policy>) -> Fleet {
    let mut fleet = settled(policy);
    fleet.zones[1].cut = true;
    fleet.run(seconds);
    fleet
}

#[test]
fn a_silent_zone_is_held_and_then_released() {
    let mut fleet = after_silence_of(29.0, enforced());
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.002);
    assert_eq!(fleet.presences(), 2.0);
    fleet.run(16.0);
    check_near(fleet.presences(), 1.5, 1e-3);
    // Half of the 500 that it had is free.
    check_near(fleet.zones[0].ratio("acme").unwrap(), 1.0 - 750.0 / 2000.0, 0.02);
    fleet.run(16.0);
    check_near(fleet.presences(), 1.0, 1e-3);
    fleet.run(10.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.5, 0.002);
    check_near(fleet.zones[0].hold().unwrap(), LIMIT, 5.0);
    assert_eq!(fleet.brain.durable().children.len(), 1, "and then forgotten");
}

/// What a silent zone is taken to pass is a part of the hold it was sent last, however little of it is left to it: a
/// part of a part would give the others too much.
#[test]
fn a_silent_zone_is_taken_to_live_on_the_hold_it_has() {
    let fleet = after_silence_of(45.0, policy(&enforced_with(", burst_s: 2")));
    check_near(fleet.zones[0].ratio("acme").unwrap(), 1.0 - 750.0 / 2000.0, 0.01);
}

#[test]
fn a_share_that_is_never_released_is_kept_for_good_and_a_farewell_frees_it() {
    let never = policy(&enforced_with(", release: never"));
    let mut fleet = after_silence_of(1_000.0, never);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.002);
    assert_eq!(fleet.presences(), 2.0);
    let now = fleet.now();
    let farewell = Report { leaving: true, ..fleet.zones[1].report(now) };
    fleet.brain.on_report(now, fleet.zones[1].stream, farewell).unwrap();
    fleet.tick();
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.5, 0.005);
}

#[test]
fn a_controller_that_hears_nobody_releases_nobody() {
    let mut fleet = settled(enforced());
    let balance = fleet.balance();
    fleet.zones.iter_mut().for_each(|zone| zone.cut = true);
    fleet.run(300.0);
    assert_eq!(fleet.brain.sources().iter().map(|(_, source)| source.presence()).sum::<f64>(), 2.0);
    assert_eq!(fleet.balance(), balance, "and assumes nothing");
}

/// Zone b passes less than its even part, so what it would have been credited and what it passed differ.
#[test]
fn what_passes_in_silence_is_accounted_for_once() {
    let mut zones = two_zones();
    zones[0].offers("acme", 3000.0);
    zones[1].offers("acme", 1000.0);
    let mut fleet = Fleet::new(enforced(), zones);
    fleet.run(20.0);
    check_near(fleet.balance(), 0.0, 20.0);
    fleet.zones[1].cut = true;
    // It takes a moment to be sure of the silence; then it is accounted for from its beginning.
    fleet.run(12.0);
    check_near(fleet.balance(), 0.0, 20.0);
    fleet.zones[1].cut = false;
    fleet.run(0.5);
    // It passed 250 a second where 500 a second were its even part: 3,000 requests that must not be credited again.
    check_near(fleet.balance(), 0.0, 40.0);
    fleet.run(0.5);
    check_near(fleet.balance(), 0.0, 40.0);
}

/// A silent zone whose clients are gone passed nothing: what was assumed of it is made good when it says so.
#[test]
fn what_was_assumed_wrongly_is_made_good() {
    let mut fleet = settled(enforced());
    fleet.zones[1].cut = true;
    fleet.zones[1].offers("acme", 0.0);
    let before = fleet.zones[0].counts("acme").passed();
    fleet.run(10.0);
    let alone = (fleet.zones[0].counts("acme").passed() - before) as f64;
    check_near(alone, 5_000.0, 250.0);
    fleet.zones[1].cut = false;
    fleet.run(0.5);
    assert_eq!(fleet.balance(), 250.0, "as much as may be saved");
}

#[test]
fn a_zone_that_takes_its_leave_is_released_at_once() {
    let mut fleet = settled(enforced());
    let now = fleet.now();
    let farewell = Report { leaving: true, ..fleet.zones[1].report(now) };
    fleet.brain.on_report(now, fleet.zones[1].stream, farewell).unwrap();
    assert!(fleet.brain.is_superseded(fleet.zones[1].stream));
    fleet.zones.truncate(1);
    fleet.run(0.5);
    assert!(fleet.zones[0].ratio("acme").unwrap() < 0.55);
    assert_eq!(fleet.presences(), 1.0);
    fleet.run(10.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.5, 0.005);
}

#[test]
fn a_new_process_of_an_aggregator_inherits_the_old_ones_traffic() {
    let mut fleet = settled(enforced());
    let rate = fleet.zones[1].rate("acme");
    let mut born_again = Scripted::new("b", 3);
    let now = fleet.now();
    born_again.exchange(&mut fleet.brain, now);
    assert!(fleet.brain.is_superseded(fleet.zones[1].stream), "the old process is replaced");
    assert_eq!(born_again.rate("acme"), rate, "what it may pass is known from the start");
    fleet.zones[1] = born_again;
    fleet.run(0.5);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.01);
}

#[test]
fn counts_that_come_late_enter_the_books_and_not_the_rate() {
    let mut fleet = settled(enforced());
    // A client of zone a is back after a minute and brings 120,000 requests at once.
    fleet.zones[0].finds(120_000);
    fleet.run(0.5);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.01);
    check_near(fleet.balance(), 0.0, 20.0);
    let counted: u64 = fleet.brain.totals().map(|(_, tally)| tally.counts.offered).sum();
    assert_eq!(counted, fleet.zones.iter().map(|zone| zone.counts("acme").offered).sum::<u64>());
}
