//! A refused report changes nothing, regardless of the cause.

use std::collections::{BTreeMap, HashSet};

use plimsoll_core::exchange::Path;
use plimsoll_core::kill::drill::Drill;
use plimsoll_core::kill::{KillGeneration, KillNews, KillOrder, OrderId, Scope};
use plimsoll_core::names::KeyId;
use plimsoll_core::report::{Greeting, InvalidReport, KeyDefinition, Tallies, Tally};

use super::*;

fn defined(name: &str) -> KeyDefinition {
    let key = Key {
        bucket: bucket(),
        tenant: tenant(name),
    };
    KeyDefinition {
        key,
        base: Counts::ZERO,
        sent: Counts::ZERO,
        continues: true,
    }
}

fn tallies(id: u32, counts: Counts) -> Tallies {
    [(
        KeyId(id),
        Tally {
            counts,
            late: Counts::ZERO,
        },
    )]
    .into_iter()
    .collect()
}

fn offered(offered: u64) -> Counts {
    Counts {
        offered,
        ..Counts::ZERO
    }
}

fn loaded(mut report: Report) -> Report {
    let other = Bucket::new("other").unwrap();
    let order = KillOrder {
        generation: KillGeneration(3),
        age: Duration::from_secs(1),
        ends_held: false,
    };
    let order_id = OrderId {
        scope: Scope::Bucket(other.clone()),
        given_at: InstanceId(77),
    };
    report.lead.leader = Some(Epoch(9).into());
    report.kills = KillNews {
        fleet: KillGeneration(7),
        buckets: BTreeMap::from([(other.clone(), KillGeneration(5))]),
        orders: BTreeMap::from([(order_id, order)]),
        drill: Drill(5),
    };
    report.children = 4;
    report.clients.killed_locally = 3;
    report.subscriptions.added = vec![other.clone()];
    report.greeting.holds = BTreeMap::from([(other, per_second(5.0))]);
    report.leaving = true;
    report
}

/// Breaks a report that has the definitions 0 and perhaps tallies, in every way that the books refuse.
fn broken(report: &Report, keys_max: u32) -> Vec<(&'static str, Report)> {
    let definitions = |defined: Vec<(u32, KeyDefinition)>| {
        let of_report = report
            .definitions
            .iter()
            .map(|(id, definition)| (*id, definition.clone()));
        of_report
            .chain(
                defined
                    .into_iter()
                    .map(|(id, definition)| (KeyId(id), definition)),
            )
            .collect()
    };
    let backwards = KeyDefinition {
        base: offered(9),
        sent: offered(1),
        ..defined("b")
    };
    let refused = Counts {
        offered: 1_000,
        dropped: 2_000,
        ..Counts::ZERO
    };
    let with = |report: Report| loaded(report);
    vec![
        (
            "number 0",
            with(Report {
                seq: 0,
                ..report.clone()
            }),
        ),
        (
            "no time",
            with(Report {
                time: None,
                tallies: tallies(0, offered(1_000)),
                ..report.clone()
            }),
        ),
        (
            "gap",
            with(Report {
                definitions: definitions(vec![(8, defined("b"))]),
                ..report.clone()
            }),
        ),
        (
            "undefined",
            with(Report {
                tallies: tallies(9, offered(1)),
                ..report.clone()
            }),
        ),
        (
            "inconsistent",
            with(Report {
                tallies: tallies(0, refused),
                ..report.clone()
            }),
        ),
        (
            "decreased",
            with(Report {
                definitions: definitions(vec![(1, backwards)]),
                ..report.clone()
            }),
        ),
        (
            "too many keys",
            with(Report {
                definitions: definitions(
                    (1..=keys_max)
                        .map(|id| (id, defined(&format!("t{id}"))))
                        .collect(),
                ),
                ..report.clone()
            }),
        ),
    ]
}

fn as_aggregator(report: &Report, path: &[u128]) -> Report {
    let identity = Identity {
        role: Role::Aggregator,
        ..report.greeting.identity.clone().unwrap()
    };
    let path = Path(path.iter().copied().map(InstanceId).collect());
    loaded(Report {
        greeting: Some(identity).into(),
        path,
        ..report.clone()
    })
}

#[track_caller]
fn check_unmoved(zone: &mut Zone, cause: &str, stream: StreamId, report: Report) -> StreamRejected {
    let (before, seen) = (format!("{zone:#?}"), zone.sessions().iter().count());
    let refused = zone.on_report(at(300), stream, report);
    let after = format!("{zone:#?}");
    let lines: HashSet<&str> = before.lines().collect();
    let moved: Vec<&str> = after.lines().filter(|line| !lines.contains(line)).collect();
    assert!(before == after, "{cause}: moved {moved:#?}");
    assert_eq!(
        zone.sessions().iter().count(),
        seen,
        "{cause}: a session is left"
    );
    refused.expect_err(cause)
}

#[test]
fn refused_report_changes_nothing_whatever_the_cause() {
    let keys_max = 3;
    let bounds = Bounds {
        children_max: 2,
        keys_per_child_max: keys_max as usize,
        ..Bounds::default()
    };
    let mut zone = Zone::new(
        identity(Role::Aggregator, 100),
        bounds,
        Parameters::default(),
    );
    zone.on_open(at(0));
    zone.report(at(0));
    zone.on_directives(at(0), Script::ratio(7).message(1, 1))
        .unwrap();
    let mut client = Client::new(20).offering("acme", 100.0);
    client.offer(1_000);
    client.send_report(&mut zone, at(100));

    // A stream that never greeted.
    let greeting = Client::new(21).report(at(200));
    assert!(greeting.greeting.identity.is_some() && !greeting.definitions.is_empty());
    let nameless = loaded(Report {
        greeting: Greeting::default(),
        ..greeting.clone()
    });
    assert_eq!(
        check_unmoved(&mut zone, "nameless", StreamId(21), nameless),
        StreamRejected::Greeting
    );
    for (cause, report) in broken(&greeting, keys_max) {
        let refused = check_unmoved(&mut zone, cause, StreamId(21), report);
        assert!(
            matches!(refused, StreamRejected::Broken(_)),
            "{cause}: {refused}"
        );
    }
    let mut loop_ = as_aggregator(&greeting, &[]);
    loop_.greeting.identity.as_mut().unwrap().instance = InstanceId(100);
    assert_eq!(
        check_unmoved(&mut zone, "loop", StreamId(21), loop_),
        StreamRejected::Loop
    );
    let deep = as_aggregator(&greeting, &[1, 2, 3, 4, 5]);
    let refused = check_unmoved(&mut zone, "deep", StreamId(21), deep);
    assert!(
        matches!(refused, StreamRejected::TooDeep { .. }),
        "{refused}"
    );
    let overtaken = loaded(Report {
        greeting: Some(identity(Role::Client, 20)).into(),
        ..greeting.clone()
    });
    assert_eq!(
        check_unmoved(&mut zone, "overtaken", StreamId(19), overtaken),
        StreamRejected::Unknown
    );

    // The stream of a known child.
    client.offer(1_000);
    let next = client.report(at(200));
    for (cause, mut report) in broken(&next, keys_max) {
        // The known key has definition 0 already.
        report.definitions.remove(&KeyId(0));
        let refused = check_unmoved(&mut zone, cause, client.stream, report);
        assert!(
            matches!(refused, StreamRejected::Broken(_)),
            "{cause}: {refused}"
        );
    }
    let behind = loaded(Report {
        tallies: tallies(0, offered(1)),
        ..next.clone()
    });
    let refused = check_unmoved(&mut zone, "went back", client.stream, behind);
    assert!(
        matches!(refused, StreamRejected::Broken(InvalidReport::WentBack(_))),
        "{refused}"
    );
    let named = loaded(Report {
        greeting: Some(identity(Role::Client, 20)).into(),
        ..next.clone()
    });
    assert_eq!(
        check_unmoved(&mut zone, "named twice", client.stream, named),
        StreamRejected::Greeting
    );

    // No room for a third child.
    Client::new(30).send_report(&mut zone, at(250));
    let full = loaded(greeting);
    assert_eq!(
        check_unmoved(&mut zone, "full", StreamId(31), full),
        StreamRejected::Full(2)
    );

    client.send_report(&mut zone, at(300));
}
