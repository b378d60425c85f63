//! Silent zones: their share is held, then released, and their requests are accounted for once.

use super::*;
use crate::aggregators::leadership::Mandate;

/// A fleet in steady state after zone b was cut off for some seconds.
fn after_silence_of(seconds: f64, policy: Arc<Policy>) -> Fleet {
    let mut fleet = settled(policy);
    fleet.zones[1].cut = true;
    fleet.run(seconds);
    fleet
}

#[test]
fn silent_zone_share_is_held_then_released() {
    let mut fleet = after_silence_of(29.0, enforced());
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.002);
    assert_eq!(fleet.presences(), 2.0);
    fleet.run(16.0);
    check_near(fleet.presences(), 1.5, 1e-3);
    // Half of its 500 requests/s is free.
    check_near(
        fleet.zones[0].ratio("acme").unwrap(),
        1.0 - 750.0 / 2000.0,
        0.02,
    );
    fleet.run(16.0);
    check_near(fleet.presences(), 1.0, 1e-3);
    fleet.run(10.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.5, 0.002);
    check_near(fleet.zones[0].hold().unwrap(), LIMIT, 5.0);
    assert_eq!(
        fleet.brain.durable().children.len(),
        1,
        "the silent zone is no longer waited for"
    );
}

#[test]
fn silent_zone_is_told_step_by_step() {
    use crate::tasks::journal::Snapshot;
    let mut fleet = settled(enforced());
    let mut before = Snapshot::of(&fleet.brain, None);
    let mut kinds = Vec::new();
    for (cut, seconds) in [(true, 100), (false, 10)] {
        fleet.zones[1].cut = cut;
        fleet.zones[1].reconnects();
        for _ in 0..seconds {
            fleet.run(1.0);
            let now = Snapshot::of(&fleet.brain, Some(&before));
            let told: Vec<_> = now.since(&before).collect();
            kinds.extend(told.into_iter().map(|event| (event.kind, event.text)));
            before = now;
        }
    }
    use crate::tasks::events::EventKind::{AggregatorExpired, AggregatorReturned};
    let found: Vec<_> = kinds.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(found, [AggregatorExpired, AggregatorReturned], "{kinds:#?}");
    assert!(
        kinds[0].1.contains("its share (api 500/s) is released"),
        "{}",
        kinds[0].1
    );
}

#[test]
fn loss_told_before_a_restart_is_followed_by_the_return() {
    use crate::tasks::events::{Event, EventKind};
    use crate::tasks::journal::Snapshot;
    use EventKind::{AggregatorLost, AggregatorReturned};
    let lost = || Event::new(AggregatorLost, "b/b-aggregator", "lost");
    let returned = || Event::new(AggregatorReturned, "b/b-aggregator", "returned");
    let rows = [
        (vec![], vec![]),
        (vec![lost()], vec![AggregatorReturned]),
        (vec![lost(), returned()], vec![]),
    ];
    for (earlier, expected) in rows {
        let mut fleet = settled(enforced());
        fleet.restarts();
        let mut before = Snapshot::of(&fleet.brain, None);
        before.recall_lost(&earlier);
        fleet.run(5.0);
        let now = Snapshot::of(&fleet.brain, Some(&before));
        let told: Vec<_> = now.since(&before).map(|event| event.kind).collect();
        assert_eq!(told, expected, "{earlier:?}");
    }
}

#[test]
fn unconfirmed_leader_releases_no_share() {
    let mut fleet = settled(enforced());
    fleet.brain.leadership.mandate = Mandate::Elected { confirmed: false };
    // The zone may report to another leader.
    fleet.zones[1].cut = true;
    fleet.run(200.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.002);
    assert_eq!(
        (fleet.presences(), fleet.brain.durable().children.len()),
        (2.0, 2)
    );
    fleet.brain.leadership.mandate = Mandate::Elected { confirmed: true };
    fleet.run(100.0);
    assert_eq!(fleet.brain.durable().children.len(), 1);
}

/// The requests that a silent zone is assumed to pass follow from its last hold, scaled by its presence once.
/// Scaling a hold that shrinks with its presence would scale twice, and give the other zones too much.
#[test]
fn silent_zone_is_assumed_on_its_hold() {
    let fleet = after_silence_of(45.0, policy(&enforced_with(", burst_s: 2")));
    check_near(
        fleet.zones[0].ratio("acme").unwrap(),
        1.0 - 750.0 / 2000.0,
        0.01,
    );
}

#[test]
fn unreleased_share_is_freed_only_by_farewell() {
    let never = policy(&enforced_with(", release: never"));
    let mut fleet = after_silence_of(1_000.0, never);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.002);
    assert_eq!(fleet.presences(), 2.0);
    fleet.leaves(1);
    fleet.tick();
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.5, 0.005);
}

/// The clients of the silent zone have left and passed nothing. Its first report corrects the
/// assumption.
#[test]
fn wrong_assumption_about_silence_is_corrected() {
    let mut fleet = settled(enforced());
    fleet.zones[1].cut = true;
    fleet.zones[1].offers("acme", 0.0);
    let before = fleet.zones[0].counts("acme").passed();
    fleet.run(10.0);
    let alone = (fleet.zones[0].counts("acme").passed() - before) as f64;
    check_near(alone, 5_000.0, 250.0);
    fleet.zones[1].cut = false;
    fleet.run(0.5);
    assert_eq!(fleet.balance(), 250.0, "the most that may be saved");
}

#[test]
fn farewell_frees_a_share_at_once() {
    let mut fleet = settled(enforced());
    fleet.leaves(1);
    assert!(fleet.brain.is_superseded(fleet.zones[1].stream));
    fleet.zones.truncate(1);
    fleet.run(0.5);
    assert!(fleet.zones[0].ratio("acme").unwrap() < 0.55);
    assert_eq!(fleet.presences(), 1.0);
    fleet.run(10.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.5, 0.005);
}

fn expired(fleet: &Fleet) -> Vec<(String, f64)> {
    let expired = fleet.brain.durable().expired.iter();
    expired
        .map(|of| {
            (
                format!("{}/{}", of.zone, of.name),
                of.released[&bucket()].per_second(),
            )
        })
        .collect()
}

#[test]
fn expired_aggregator_is_remembered_until_its_return() {
    let mut fleet = after_silence_of(59.0, enforced());
    assert_eq!(expired(&fleet), []);
    fleet.run(3.0);
    let lost = expired(&fleet);
    assert_eq!(lost[0].0, "b/b-aggregator");
    check_near(lost[0].1, 500.0, 10.0);
    let last_report_s = fleet
        .brain
        .durable()
        .expired
        .iter()
        .next()
        .unwrap()
        .last_report_s;
    check_near(last_report_s as f64, 20.0, 1.0);
    fleet.restarts();
    fleet.run(60.0);
    assert_eq!(expired(&fleet), lost);
    assert!(fleet.brain.stale_aggregators().len() == 1);
    fleet.zones[1].cut = false;
    fleet.run(1.0);
    assert_eq!(expired(&fleet), []);
    assert!(fleet.brain.stale_aggregators().is_empty());
}

#[test]
fn only_disconnected_aggregators_can_be_forgotten() {
    let never = policy(&enforced_with(", release: never"));
    let mut fleet = after_silence_of(100.0, never);
    assert_eq!(
        expired(&fleet),
        [],
        "a share that is never released does not expire"
    );
    let unknown = fleet.brain.forget("b/b-agregator").unwrap_err().to_string();
    assert_eq!(
        unknown,
        "no aggregator `b/b-agregator` is known; did you mean `b/b-aggregator`?"
    );
    let connected = fleet
        .brain
        .forget("a/a-aggregator")
        .unwrap_err()
        .to_string();
    assert_eq!(
        connected,
        "aggregator `a/a-aggregator` is connected: stop it first, then forget it"
    );
    // The stream of a process that is cut off stays open until its keepalive fails.
    assert!(fleet.brain.forget("b/b-aggregator").is_err());
    let (now, stream) = (fleet.now(), fleet.zones[1].stream);
    fleet.brain.on_close(now, stream);
    fleet.brain.forget("b/b-aggregator").unwrap();
    assert!(!fleet.brain.is_saved(), "it is in effect once it is saved");
    fleet.run(10.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.5, 0.01);
    assert_eq!(fleet.brain.known_aggregators().len(), 1);
}

#[test]
fn saved_expiry_is_final() {
    let mut fleet = after_silence_of(62.0, enforced());
    let (now, stream) = (fleet.now(), fleet.zones[1].stream);
    fleet.brain.on_close(now, stream);
    save(&mut fleet.brain);
    assert!(fleet.brain.is_saved());
    fleet.brain.forget("b/b-aggregator").unwrap();
    assert!(!fleet.brain.is_saved());
    assert_eq!(expired(&fleet), []);
}

#[test]
fn signals_follow_the_release_of_a_share() {
    let mut fleet = settled(enforced());
    let gone = |fleet: &Fleet| {
        let status = fleet.status();
        let bucket = &status.buckets[&bucket()];
        let released = status
            .aggregators
            .iter()
            .find(|aggregator| aggregator.zone == "b")
            .unwrap()
            .released;
        (
            bucket.traffic.offered_rps + bucket.unheard_rps,
            bucket.released_rps,
            released,
        )
    };
    assert_eq!((gone(&fleet).1, gone(&fleet).2), (0.0, 0.0));
    fleet.zones[1].cut = true;
    let mut shown = Vec::new();
    for _ in 0..57 {
        fleet.run(1.0);
        let (known, released_rps, released) = gone(&fleet);
        check_near(known, 4000.0, 1.0);
        // Each zone holds half of the limit.
        check_near(released_rps, released * LIMIT / 2.0, 5.0);
        shown.push(released);
        // The other zone's rate is above its half as soon as anything is released.
        assert_eq!(released_rps > 0.0, fleet.presences() < 2.0);
    }
    assert!(shown[25] == 0.0 && shown[35] > 0.0 && shown.is_sorted());
}
