//! The relay between clients and controller: values, acknowledgements, ages, epochs and kills.

mod quotas;

use super::*;
use plimsoll_core::kill::KillGeneration;

#[test]
fn absent_controller_means_no_values() {
    let mut zone = zone();
    let mut client = Client::new(1);
    client.send_report(&mut zone, at(0));
    let first = zone.directives(at(0), client.stream).unwrap();
    assert_eq!((first.lead.leader, first.upstream_age), (None, None));
    assert!(first.buckets.is_empty());
}

#[test]
fn report_is_confirmed_with_its_covered_rollup() {
    let mut zone = answered();
    let mut client = Client::new(1);
    client.counts("acme").offered = 5;
    client.send_report(&mut zone, at(0));
    let rollup = zone.report(at(100));
    client.counts("acme").offered = 9;
    client.send_report(&mut zone, at(200));
    zone.on_directives(at(300), Script::nothing().message(2, rollup.seq))
        .unwrap();
    let message = zone.directives(at(300), client.stream).unwrap();
    assert_eq!(
        message.echo,
        Echo {
            covered: 2,
            confirmed: 1
        }
    );
}

#[test]
fn kill_withstands_old_messages_and_clients() {
    let mut zone = zone();
    let mut client = Client::new(1);
    client.send_report(&mut zone, at(0));
    zone.directives(at(0), client.stream);
    zone.on_directives(at(10), Script::nothing().message(5, 0))
        .unwrap();
    let stale = Directives {
        kills: KillGeneration(3).into(),
        ..Script::nothing().message(5, 0)
    };
    zone.on_directives(at(20), stale).unwrap_err();
    assert_eq!(
        zone.directives(at(20), client.stream).unwrap().kills.fleet,
        KillGeneration(3)
    );
    zone.on_directives(
        at(30),
        Directives {
            kills: KillGeneration(2).into(),
            ..Script::nothing().message(6, 0)
        },
    )
    .unwrap();
    assert_eq!(zone.kills().fleet(), KillGeneration(3));

    let from_below = Report {
        kills: KillGeneration(5).into(),
        ..client.report(at(40))
    };
    assert!(
        !zone.on_report(at(40), client.stream, from_below).unwrap(),
        "it concerns no other child"
    );
    let report = zone.report(at(50));
    let claims: Vec<_> = report
        .kills_below
        .claims
        .values()
        .map(|claim| (claim.generation.0, claim.name.as_str()))
        .collect();
    assert_eq!(
        (report.kills.fleet, claims),
        (KillGeneration(3), vec![(5, "host:1")]),
        "the parent is sent its name"
    );
    assert!(
        zone.report(at(60)).kills_below.claims.is_empty(),
        "once on a stream"
    );
    let liar = Report {
        kills: KillGeneration(u64::MAX).into(),
        ..client.report(at(70))
    };
    assert_eq!(
        zone.on_report(at(70), client.stream, liar),
        Ok(false),
        "claims reject no stream"
    );
    assert_eq!(
        (zone.kills().fleet(), zone.kills.claims().ignored),
        (KillGeneration(3), 2)
    );
}

#[test]
fn buckets_and_children_are_bounded() {
    let bounds = Bounds {
        children_max: 1,
        keys_per_child_max: 9,
        keys_max: 2,
        buckets_max: 1,
        ..Bounds::default()
    };
    let mut zone = Zone::new(
        identity(Role::Aggregator, 100),
        bounds,
        Parameters::default(),
    );
    let mut client = Client::new(1);
    let mut report = client.report(at(0));
    report.subscriptions.added = ["api", "b", "c"]
        .map(|name| Bucket::new(name).unwrap())
        .to_vec();
    zone.on_report(at(0), client.stream, report).unwrap();
    assert_eq!(
        (
            zone.counters().rejected,
            zone.report(at(1)).subscriptions.added.len()
        ),
        (2, 1)
    );
    let mut second = Client::new(2);
    let report = second.report(at(0));
    assert_eq!(
        zone.on_report(at(0), second.stream, report),
        Err(StreamRejected::Full(1))
    );
}
