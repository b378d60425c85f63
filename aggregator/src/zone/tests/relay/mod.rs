//! The relay between clients and controller: values, acknowledgements, ages, epochs and kills.

mod quotas;

use super::*;
use plimsoll_core::kill::KillGeneration;

#[test]
fn greeting_is_answered_with_every_directive_in_force() {
    let mut zone = answered();
    let mut client = Client::new(1);
    client.send_report(&mut zone, at(10));
    let first = zone.directives(at(10), client.stream).unwrap();
    assert_eq!((first.epoch, first.seq, ratio(&first)), (Some(Epoch(1)), 1, Some(7)));
    assert!(first.buckets[0].whole);
    assert_eq!(first.echo, Echo { covered: 1, confirmed: 0 });
    assert_eq!(zone.directives(at(11), client.stream), None, "nothing is sent twice");
}

#[test]
fn without_a_controller_no_values_and_no_epoch_are_sent() {
    let mut zone = zone();
    let mut client = Client::new(1);
    client.send_report(&mut zone, at(0));
    let first = zone.directives(at(0), client.stream).unwrap();
    assert_eq!((first.epoch, first.upstream_age), (None, None));
    assert!(first.buckets.is_empty());
}

#[test]
fn age_of_directives_is_not_renewed_by_the_aggregator() {
    let mut zone = zone();
    let mut client = Client::new(1);
    client.send_report(&mut zone, at(0));
    let seq = zone.report(at(500)).seq;
    zone.on_directives(at(510), Script::ratio(7).message(1, seq)).unwrap();

    // The zone keeps sending messages to its client, and the parent to the zone, without a new confirmation.
    let check = |zone: &mut Zone, now: u64, stamp: &dyn Fn(&Directives) -> Duration| {
        let message = zone.directives(at(now), StreamId(1)).expect("a heartbeat is due");
        stamp(&message) >= at(now).since(at(510))
    };
    let age = |message: &Directives| message.upstream_age.unwrap();
    zone.on_directives(at(5_000), Script::ratio(7).message(2, seq)).unwrap();
    assert!(check(&mut zone, 10_000, &age));
    zone.on_open(at(20_000));
    zone.on_directives(at(20_010), Script::ratio(7).message(1, 0)).unwrap();
    assert!(check(&mut zone, 30_000, &age), "a new stream is no confirmation");
    // An age of zero in every message would make directives look fresh for ever.
    assert!(!check(&mut zone, 40_000, &|_| Duration::ZERO));

    let seq = zone.report(at(40_500)).seq;
    zone.on_directives(at(40_510), Script::ratio(7).message(2, seq)).unwrap();
    assert!(zone.upstream_age(at(40_600)).unwrap() < Duration::from_millis(100));
}

#[test]
fn report_is_confirmed_once_the_controller_has_covered_a_rollup_that_contains_it() {
    let mut zone = answered();
    let mut client = Client::new(1);
    client.counts("acme").offered = 5;
    client.send_report(&mut zone, at(0));
    let rollup = zone.report(at(100));
    client.counts("acme").offered = 9;
    client.send_report(&mut zone, at(200));
    zone.on_directives(at(300), Script::nothing().message(2, rollup.seq)).unwrap();
    let message = zone.directives(at(300), client.stream).unwrap();
    assert_eq!(message.echo, Echo { covered: 2, confirmed: 1 });
}

#[test]
fn reconnected_client_reports_late_counts_and_loses_none() {
    let mut zone = answered();
    let mut client = Client::new(1);
    client.send_report(&mut zone, at(0));
    client.counts("acme").offered = 10;
    client.send_report(&mut zone, at(100));
    zone.on_close(at(150), client.stream);
    client.counts("acme").offered = 5_010;
    client.reconnect(2);
    client.send_report(&mut zone, at(10_000));
    client.counts("acme").offered = 5_030;
    client.send_report(&mut zone, at(10_100));
    let report = zone.report(at(10_200));
    let tally = report.tallies.iter().map(|(_, tally)| tally).find(|tally| tally.counts.offered > 0).unwrap();
    assert_eq!(tally.counts.offered, 5_030);
    assert_eq!(tally.late.offered, 5_000);
    assert_eq!(zone.counters().unconfirmed, 0);
}

#[test]
fn kill_of_the_parent_is_relayed_and_neither_an_older_message_nor_a_client_moves_it() {
    let mut zone = zone();
    let mut client = Client::new(1);
    client.send_report(&mut zone, at(0));
    zone.directives(at(0), client.stream);
    zone.on_directives(at(10), Script::nothing().message(5, 0)).unwrap();
    let stale = Directives { kill: KillGeneration(3), ..Script::nothing().message(5, 0) };
    zone.on_directives(at(20), stale).unwrap_err();
    assert_eq!(zone.directives(at(20), client.stream).unwrap().kill, KillGeneration(3));
    zone.on_directives(at(30), Directives { kill: KillGeneration(2), ..Script::nothing().message(6, 0) })
        .unwrap();
    assert_eq!(zone.kills().fleet(), KillGeneration(3));

    let from_below = Report { kill: KillGeneration(5), ..client.report(at(40)) };
    assert!(!zone.on_report(at(40), client.stream, from_below).unwrap(), "it concerns no other child");
    let report = zone.report(at(50));
    let claims: Vec<_> =
        report.claims.values().map(|claim| (claim.generation.0, claim.name.as_str())).collect();
    assert_eq!(
        (report.kill, claims),
        (KillGeneration(3), vec![(5, "host:1")]),
        "the parent is sent its name"
    );
    assert!(zone.report(at(60)).claims.is_empty(), "once on a stream");
    let liar = Report { kill: KillGeneration(u64::MAX), ..client.report(at(70)) };
    assert_eq!(zone.on_report(at(70), client.stream, liar), Ok(false), "claims reject no stream");
    assert_eq!((zone.kills().fleet(), zone.kill_claims().ignored()), (KillGeneration(3), 2));
}

#[test]
fn subscriptions_of_clients_are_sent_to_the_controller_once_per_stream() {
    let mut zone = zone();
    let mut client = Client::new(1);
    client.send_report(&mut zone, at(0));
    assert_eq!(zone.report(at(10)).subscriptions, [bucket()]);
    assert_eq!(zone.report(at(20)).subscriptions, []);
    zone.on_open(at(30));
    let greeting = zone.report(at(30));
    assert_eq!((greeting.subscriptions, greeting.identity.is_some()), (vec![bucket()], true));
}

#[test]
fn buckets_and_children_are_bounded() {
    let bounds =
        Bounds { children_max: 1, keys_per_child_max: 9, keys_max: 2, buckets_max: 1, ..Bounds::default() };
    let mut zone = Zone::new(identity(Role::Aggregator, 100), bounds, Parameters::default());
    let mut client = Client::new(1);
    let mut report = client.report(at(0));
    report.subscriptions = ["api", "b", "c"].map(|name| Bucket::new(name).unwrap()).to_vec();
    zone.on_report(at(0), client.stream, report).unwrap();
    assert_eq!((zone.counters().rejected, zone.report(at(1)).subscriptions.len()), (2, 1));
    let mut second = Client::new(2);
    let report = second.report(at(0));
    assert_eq!(zone.on_report(at(0), second.stream, report), Err(StreamRejected::Full(1)));
}
