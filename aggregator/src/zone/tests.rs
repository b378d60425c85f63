//! The zone between scripted clients and a scripted controller: what it must pass on, and what it must not renew.

use std::time::Duration;

use super::*;
use plimsoll_core::bucket::{Name, Zone as ZoneName};
use plimsoll_core::directive::{BucketDirective, KeyDirective};
use plimsoll_core::rate::{Limit, Rate};
use plimsoll_core::ratio::DropRatio;
use plimsoll_core::report::InstanceId;
use plimsoll_core::rollout::Mode;

fn at(ms: u64) -> MonoTime {
    MonoTime::from_elapsed(Duration::from_millis(ms))
}

fn identity(role: Role, instance: u128) -> Identity {
    Identity {
        instance: InstanceId(instance),
        name: Name::new(&format!("host:{instance}")).unwrap(),
        service: Name::new("shop").unwrap(),
        zone: ZoneName::new("a").unwrap(),
        role,
    }
}

const CONTROLLER: InstanceId = InstanceId(200);

fn zone() -> Zone {
    let mut zone = Zone::new(identity(Role::Aggregator, 100), Bounds::default());
    zone.on_open(at(0));
    zone
}

/// A zone whose controller has answered, and knows of no clients from before.
fn answered() -> Zone {
    let mut zone = zone();
    zone.report(at(0));
    zone.on_directives(at(0), directives(1, 1, Some(7))).unwrap();
    zone
}

fn bucket() -> Bucket {
    Bucket::new("api").unwrap()
}

fn key(tenant: &str) -> Key {
    Key { bucket: bucket(), tenant: Tenant::new(tenant).unwrap() }
}

/// A client that counts requests of one key.
struct Client {
    stream: StreamId,
    identity: Identity,
    outbox: Outbox,
    offered: u64,
    greeted: bool,
    epoch: Option<Epoch>,
}

impl Client {
    fn new(instance: u128) -> Self {
        let mut outbox = Outbox::default();
        outbox.open();
        outbox.on_answer(InstanceId(100));
        let stream = StreamId(instance as u64);
        Self {
            stream,
            identity: identity(Role::Client, instance),
            outbox,
            offered: 0,
            greeted: false,
            epoch: None,
        }
    }

    fn reconnect(&mut self, stream: u64) {
        self.outbox.open();
        self.outbox.on_answer(InstanceId(100));
        self.stream = StreamId(stream);
        self.greeted = false;
    }

    fn report(&mut self, now: MonoTime) -> Report {
        let mut report = Report {
            identity: (!self.greeted).then(|| self.identity.clone()),
            time: Some(now),
            epoch: self.epoch,
            asked: vec![bucket()],
            ..Report::default()
        };
        self.greeted = true;
        let counts = Counts { offered: self.offered, ..Counts::ZERO };
        self.outbox.fill(&mut report, &[key("acme")], |_| Tally { counts, late: Counts::ZERO });
        report
    }

    fn speak(&mut self, zone: &mut Zone, now: MonoTime) {
        let report = self.report(now);
        zone.on_report(now, self.stream, report).unwrap();
    }
}

/// A message of the controller that covers everything it was told.
fn directives(seq: u64, covered: u64, ratio: Option<u32>) -> Directives {
    let keys = ["acme", "default"].map(|tenant| KeyDirective {
        tenant: Tenant::new(tenant).unwrap(),
        ratio: ratio.map(|units| DropRatio::new(units).unwrap()),
    });
    let directive = BucketDirective {
        bucket: bucket(),
        whole: true,
        limit: Limit::PerSecond(Rate::new(1000.0).unwrap()),
        mode: Mode::Enforce,
        keys: keys.to_vec(),
    };
    Directives {
        epoch: Some(Epoch(1)),
        seq,
        echo: Echo { covered, confirmed: covered },
        upstream_age: Some(Duration::ZERO),
        parent: (seq == 1).then_some(CONTROLLER),
        buckets: vec![directive],
        ..Directives::default()
    }
}

fn ratio(directives: &Directives) -> Option<u32> {
    directives.buckets.first().and_then(|bucket| bucket.keys.first()?.ratio).map(DropRatio::units)
}

#[test]
fn the_first_state_answers_a_greeting_with_everything_held() {
    let mut zone = answered();
    let mut client = Client::new(1);
    client.speak(&mut zone, at(10));
    let first = zone.directives(at(10), client.stream).unwrap();
    assert_eq!((first.epoch, first.seq, ratio(&first)), (Some(Epoch(1)), 1, Some(7)));
    assert!(first.buckets[0].whole);
    assert_eq!(first.echo, Echo { covered: 1, confirmed: 0 });
    assert_eq!(zone.directives(at(11), client.stream), None, "nothing is said twice");
}

#[test]
fn without_a_controller_there_are_no_values_and_no_epoch() {
    let mut zone = zone();
    let mut client = Client::new(1);
    client.speak(&mut zone, at(0));
    let first = zone.directives(at(0), client.stream).unwrap();
    assert_eq!((first.epoch, first.upstream_age), (None, None));
    assert!(first.buckets.is_empty());
}

#[test]
fn a_stamp_is_not_renewed_by_the_one_in_the_middle() {
    let mut zone = zone();
    let mut client = Client::new(1);
    client.speak(&mut zone, at(0));
    let seq = zone.report(at(500)).seq;
    zone.on_directives(at(510), directives(1, seq, Some(7))).unwrap();

    // The zone goes on talking to its client, and the parent to the zone, but no receipt moves.
    let check = |zone: &mut Zone, now: u64, stamp: &dyn Fn(&Directives) -> Duration| {
        let message = zone.directives(at(now), StreamId(1)).expect("a heartbeat is due");
        stamp(&message) >= at(now).since(at(510))
    };
    let said = |message: &Directives| message.upstream_age.unwrap();
    zone.on_directives(at(5_000), directives(2, seq, Some(7))).unwrap();
    assert!(check(&mut zone, 10_000, &said));
    zone.on_open(at(20_000));
    zone.on_directives(at(20_010), directives(1, 0, Some(7))).unwrap();
    assert!(check(&mut zone, 30_000, &said), "a new stream alone is no receipt either");
    // A relay that stamps what it sends by its own clock would pass for fresh for ever.
    assert!(!check(&mut zone, 40_000, &|_| Duration::ZERO));

    let seq = zone.report(at(40_500)).seq;
    zone.on_directives(at(40_510), directives(2, seq, Some(7))).unwrap();
    assert!(zone.upstream_age(at(40_600)).unwrap() < Duration::from_millis(100));
}

#[test]
fn a_report_is_confirmed_once_the_controller_has_covered_a_rollup_that_contains_it() {
    let mut zone = answered();
    let mut client = Client::new(1);
    client.offered = 5;
    client.speak(&mut zone, at(0));
    let rollup = zone.report(at(100));
    client.offered = 9;
    client.speak(&mut zone, at(200));
    zone.on_directives(at(300), directives(2, rollup.seq, None)).unwrap();
    let message = zone.directives(at(300), client.stream).unwrap();
    assert_eq!(message.echo, Echo { covered: 2, confirmed: 1 });
}

#[test]
fn a_client_back_after_a_cut_brings_late_counts_and_loses_none() {
    let mut zone = answered();
    let mut client = Client::new(1);
    client.speak(&mut zone, at(0));
    client.offered = 10;
    client.speak(&mut zone, at(100));
    zone.on_close(at(150), client.stream);
    client.offered = 5_010;
    client.reconnect(2);
    client.speak(&mut zone, at(10_000));
    client.offered = 5_030;
    client.speak(&mut zone, at(10_100));
    let report = zone.report(at(10_200));
    let tally = report.tallies.values().find(|tally| tally.counts.offered > 0).unwrap();
    assert_eq!(tally.counts.offered, 5_030);
    assert_eq!(tally.late.offered, 5_000);
    assert_eq!(zone.figures().unconfirmed, 0);
}

#[test]
fn a_restarted_zone_is_quiet_until_its_clients_are_back() {
    let mut zone = answered();
    let mut client = Client::new(1);
    client.epoch = Some(Epoch(1));
    client.offered = 100;
    client.speak(&mut zone, at(100));
    let first = zone.directives(at(100), client.stream).unwrap();
    assert_eq!(ratio(&first), None, "no values");
    assert_eq!(first.buckets[0].mode, Mode::Enforce, "but the mode");
    let report = zone.report(at(500));
    assert_eq!((report.time, report.tallies.len()), (None, 0), "alive, but counting nothing");

    zone.on_tick(at(1_000));
    assert_eq!(zone.report(at(1_000)).time, None);
    zone.on_tick(at(2_100));
    for (seq, now) in [(2, 2_500), (3, 3_000)] {
        let report = zone.report(at(now));
        assert!(report.time.is_some(), "everybody is back and is counted");
        zone.on_directives(at(now), directives(seq, report.seq, Some(9))).unwrap();
        let message = zone.directives(at(now), client.stream).unwrap();
        assert_eq!(ratio(&message), None, "but the ratios do not know of it yet");
    }
    let report = zone.report(at(3_500));
    zone.on_directives(at(3_500), directives(4, report.seq, Some(8))).unwrap();
    let message = zone.directives(at(3_500), client.stream).unwrap();
    assert_eq!(ratio(&message), Some(8), "what was withheld is told");
}

#[test]
fn a_kill_is_passed_on_from_either_side_and_an_older_message_cannot_undo_it() {
    let mut zone = zone();
    let mut client = Client::new(1);
    client.speak(&mut zone, at(0));
    zone.directives(at(0), client.stream);
    zone.on_directives(at(10), directives(5, 0, None)).unwrap();
    let stale = Directives { kill: KillGeneration(3), ..directives(5, 0, None) };
    zone.on_directives(at(20), stale).unwrap_err();
    assert_eq!(zone.directives(at(20), client.stream).unwrap().kill, KillGeneration(3));
    zone.on_directives(at(30), Directives { kill: KillGeneration(2), ..directives(6, 0, None) }).unwrap();
    assert_eq!(zone.kill(), KillGeneration(3));

    let from_below = Report { kill: KillGeneration(5), ..client.report(at(40)) };
    assert!(zone.on_report(at(40), client.stream, from_below).unwrap(), "others have to hear it");
    assert_eq!(zone.report(at(50)).kill, KillGeneration(5));
    let liar = Report { kill: KillGeneration(u64::MAX), ..client.report(at(60)) };
    assert!(matches!(zone.on_report(at(60), client.stream, liar), Err(Refused::KillJump { .. })));
}

#[test]
fn an_epoch_that_only_clients_remember_reaches_the_controller() {
    let mut zone = zone();
    let mut client = Client::new(1);
    client.epoch = Some(Epoch(41));
    client.speak(&mut zone, at(0));
    assert_eq!(zone.report(at(10)).epoch, Some(Epoch(41)));
    let mut liar = Client::new(2);
    liar.epoch = Some(Epoch(u64::MAX));
    let report = liar.report(at(20));
    let refused = zone.on_report(at(20), liar.stream, report);
    assert_eq!(refused, Err(Refused::EpochJump { claimed: u64::MAX, own: 41 }));
    assert_eq!(zone.report(at(30)).epoch, Some(Epoch(41)));
}

#[test]
fn buckets_that_clients_ask_for_are_asked_of_the_controller_once_and_on_every_new_stream() {
    let mut zone = zone();
    let mut client = Client::new(1);
    client.speak(&mut zone, at(0));
    assert_eq!(zone.report(at(10)).asked, [bucket()]);
    assert_eq!(zone.report(at(20)).asked, []);
    zone.on_open(at(30));
    let greeting = zone.report(at(30));
    assert_eq!((greeting.asked, greeting.identity.is_some()), (vec![bucket()], true));
}

#[test]
fn buckets_and_children_are_bounded() {
    let bounds = Bounds { children_max: 1, keys_per_child_max: 9, keys_max: 2, buckets_max: 1 };
    let mut zone = Zone::new(identity(Role::Aggregator, 100), bounds);
    let mut client = Client::new(1);
    let mut report = client.report(at(0));
    report.asked = ["api", "b", "c"].map(|name| Bucket::new(name).unwrap()).to_vec();
    zone.on_report(at(0), client.stream, report).unwrap();
    assert_eq!((zone.figures().homeless, zone.report(at(1)).asked.len()), (2, 1));
    let mut second = Client::new(2);
    let report = second.report(at(0));
    assert_eq!(zone.on_report(at(0), second.stream, report), Err(Refused::Full(1)));
}
