//! The exchange with aggregators apart from the law: epochs, kills, names, and rejected streams.

use std::collections::HashSet;

use super::*;
use plimsoll_core::directive::{EPOCH_STEP_MAX, Leader};
use plimsoll_core::exchange::Path;
use plimsoll_core::kill::drill::Drill;
use plimsoll_core::kill::{KillGeneration, KillNews, KillOrder, OrderId, Scope};
use plimsoll_core::names::KeyId;
use plimsoll_core::report::{Counts, Identity, Tally};

fn brain() -> Brain {
    Fleet::new(enforced(), Vec::new()).brain
}

#[test]
fn later_child_epoch_is_exceeded() {
    let mut brain = brain();
    let mut zone = Scripted::new("a", 1);
    zone.epoch = Some(Epoch(41));
    let report = zone.report(at(0));
    brain.on_report(at(0), zone.stream, report).unwrap();
    assert_eq!(
        brain.directives(at(0), zone.stream),
        None,
        "the epoch is not saved yet"
    );
    save(&mut brain);
    assert_eq!(
        brain.directives(at(0), zone.stream).unwrap().lead.epoch(),
        Some(Epoch(42))
    );

    let mut liar = Scripted::new("b", 2);
    for epoch in [u64::MAX, u64::MAX - 1, 43 + EPOCH_STEP_MAX] {
        let report = Report {
            lead: Some(Leader::from(Epoch(epoch))).into(),
            ..liar.report(at(0))
        };
        brain.on_report(at(0), liar.stream, report).unwrap();
        assert_eq!(brain.durable().epoch, Epoch(42));
    }
}

#[test]
fn client_rejection_names_an_aggregator_port() {
    let mut brain = brain();
    let mut client = Scripted::new("a", 1);
    client.identity.role = Role::Client;
    let report = client.report(at(0));
    let refused = brain.on_report(at(0), client.stream, report).unwrap_err();
    assert!(
        refused.to_string().contains("aggregator of its zone"),
        "{refused}"
    );
}

#[test]
fn names_beyond_bounds_fold_into_default() {
    let mut brain = brain();
    brain.keys = Keys::new(at(0), 3);
    brain.keys.declare(&bucket());
    let mut zone = Scripted::new("a", 1);
    let names: Vec<Key> = (0..10)
        .map(|n| Key {
            bucket: bucket(),
            tenant: tenant(&format!("t{n}")),
        })
        .collect();
    let mut report = Report {
        greeting: Some(zone.identity.clone()).into(),
        time: Some(at(0)),
        ..Report::default()
    };
    let counts = Counts {
        offered: 7,
        ..Counts::ZERO
    };
    zone.outbox.on_answer(InstanceId(9_999));
    zone.outbox.fill(&mut report, &names, |_| Tally {
        counts,
        late: Counts::ZERO,
    });
    brain.on_report(at(0), zone.stream, report).unwrap();
    assert_eq!(brain.keys.totals().count(), 3);
    assert_eq!(
        brain
            .keys
            .totals()
            .map(|(_, tally)| tally.counts.offered)
            .sum::<u64>(),
        70,
        "no count is lost"
    );
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
        buckets: [(other.clone(), KillGeneration(5))].into(),
        orders: [(order_id, order)].into(),
        drill: Drill(5),
    };
    report.children = 4;
    report.clients.killed_locally = 3;
    report.subscriptions.added = vec![other.clone()];
    report.greeting.holds = [(other, Rate::new(5.0).unwrap())].into();
    report.leaving = true;
    report
}

#[track_caller]
fn check_unmoved(
    brain: &mut Brain,
    cause: &str,
    stream: StreamId,
    report: Report,
) -> StreamRejected {
    let (before, seen) = (
        format!("{brain:#?}"),
        brain.downstream.sessions.iter().count(),
    );
    let refused = brain.on_report(at(300), stream, loaded(report));
    let after = format!("{brain:#?}");
    let lines: HashSet<&str> = before.lines().collect();
    let moved: Vec<&str> = after.lines().filter(|line| !lines.contains(line)).collect();
    assert!(before == after, "{cause}: moved {moved:#?}");
    assert_eq!(
        brain.downstream.sessions.iter().count(),
        seen,
        "{cause}: a session is left"
    );
    refused.expect_err(cause)
}

#[test]
fn refused_report_changes_nothing_whatever_the_cause() {
    let mut brain = brain();
    let mut zone = Scripted::new("a", 20).offering("acme", 100.0);
    for ms in [0, 100] {
        zone.passes(Duration::from_secs(1));
        zone.exchange(&mut brain, at(ms));
    }
    zone.passes(Duration::from_secs(1));
    let next = zone.report(at(200));
    let greeting = Scripted::new("b", 21)
        .offering("acme", 100.0)
        .report(at(200));
    let identity = greeting.greeting.identity.clone().unwrap();
    let tallies = |id, offered, dropped| {
        let counts = Counts {
            offered,
            dropped,
            ..Counts::ZERO
        };
        let tally = Tally {
            counts,
            late: Counts::ZERO,
        };
        [(KeyId(id), tally)].into_iter().collect()
    };
    let deep = Path([1, 2, 3, 4, 5].map(InstanceId).into());
    let own = Identity {
        instance: brain.downstream.sessions.own(),
        ..identity.clone()
    };
    let client = Identity {
        role: Role::Client,
        ..identity
    };
    type Change<'a> = (&'a str, &'a dyn Fn(&mut Report));
    let of_greetings: [Change<'_>; 7] = [
        ("nameless", &|it| it.greeting.identity = None),
        ("client", &|it| it.greeting.identity = Some(client.clone())),
        ("number", &|it| it.seq = 0),
        ("undefined", &|it| it.tallies = tallies(9, 1, 0)),
        ("inconsistent", &|it| it.tallies = tallies(0, 1, 2)),
        ("itself", &|it| it.greeting.identity = Some(own.clone())),
        ("deep", &|it| it.path = deep.clone()),
    ];
    let named = |it: &mut Report| it.greeting.identity = Some(zone.identity.clone());
    let of_reports: [Change<'_>; 7] = [
        ("named twice", &named),
        ("number", &|it| it.seq = 1),
        ("no time", &|it| it.time = None),
        ("undefined", &|it| it.tallies = tallies(9, 1, 0)),
        ("inconsistent", &|it| it.tallies = tallies(0, 900, 901)),
        ("went back", &|it| it.tallies = tallies(0, 1, 0)),
        ("deep", &|it| it.path = deep.clone()),
    ];
    let of_others: [Change<'_>; 1] = [("overtaken", &named)];
    for (stream, report, changes) in [
        (StreamId(21), &greeting, &of_greetings[..]),
        (StreamId(19), &greeting, &of_others[..]),
        (zone.stream, &next, &of_reports[..]),
    ] {
        for (cause, change) in changes {
            let mut report = report.clone();
            change(&mut report);
            check_unmoved(&mut brain, cause, stream, report);
        }
    }
    for number in 1..CHILDREN_MAX as u64 {
        let mut one = Scripted::new(&format!("z{number}"), 100 + number);
        let report = one.report(at(250));
        brain.on_report(at(250), one.stream, report).unwrap();
    }
    let refused = check_unmoved(&mut brain, "full", StreamId(9_000), greeting);
    assert_eq!(refused, StreamRejected::Full(CHILDREN_MAX));
    brain.on_report(at(300), zone.stream, next).unwrap();
}
