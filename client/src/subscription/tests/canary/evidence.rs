//! The evidence in reports: every outcome once, under one constant mode and side.

use super::super::*;
use super::{canary, collected};
use crate::responses::{Ending, Recorder};
use plimsoll_core::report::Side;

const MS: Duration = Duration::from_millis(1);

fn send(client: &mut TestClient, requests: usize) -> usize {
    (0..requests)
        .filter(|_| client.admit("acme") != Verdict::Admit)
        .count()
}

#[test]
fn decisions_are_reported_per_side() {
    for (terms, side) in [
        (limited(Mode::Shadow), Side::Control),
        (canary(0.0), Side::Control),
        (canary(100.0), Side::Canary),
        (limited(Mode::Enforce), Side::Control),
    ] {
        let mut client = TestClient::new();
        client.direct(terms.clone(), &[("default", ratio(0.3))]);
        assert_eq!(collected(&mut client), []);
        let refused = send(&mut client, 1_000) as u64;
        let all = collected(&mut client);
        let [(stand, outcomes)] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!(
            (stand.bucket.as_str(), stand.mode, stand.side),
            ("api", terms.mode, side)
        );
        assert_eq!((outcomes.offered, outcomes.refused), (1_000, refused));
        let would_dropped = if refused == 0 { 300 } else { 0 };
        assert!(
            outcomes.would_dropped.abs_diff(would_dropped) < 20,
            "{outcomes:?}"
        );
        assert_eq!(collected(&mut client), [], "all of it was reported");
    }
}

#[test]
fn outcomes_across_a_change_are_dropped() {
    let mut client = TestClient::new();
    client.direct(canary(0.0), &[("default", ratio(0.3))]);
    collected(&mut client);
    for terms in [
        canary(100.0),
        limited(Mode::Enforce),
        limited(Mode::Shadow),
        canary(0.0),
    ] {
        send(&mut client, 50);
        client.direct(terms, &[("default", ratio(0.3))]);
        send(&mut client, 50);
        assert_eq!(
            collected(&mut client),
            [],
            "part of it was before the change"
        );
        send(&mut client, 50);
        assert_eq!(collected(&mut client)[0].1.offered, 50);
    }
    // A kill is a change of mode.
    send(&mut client, 50);
    client.seq += 1;
    let kill = Directives {
        seq: client.seq,
        kills: KillGeneration(1).into(),
        ..Directives::default()
    };
    client
        .receive(Directives {
            lead: Epoch(5).into(),
            ..kill
        })
        .unwrap();
    assert_eq!(collected(&mut client), []);
    send(&mut client, 50);
    assert_eq!(collected(&mut client)[0].0.mode, Mode::Shadow);
}

#[test]
fn evidence_follows_answers_twice_a_second() {
    let mut client = TestClient::new();
    client.direct(limited(Mode::Shadow), &[("default", ratio(0.0))]);
    collected(&mut client);
    send(&mut client, 10);
    client.now = client.now + MS * 499;
    assert!(client.subscription.report(client.now).evidence.is_empty());
    client.subscription.on_open(client.now);
    assert_eq!(
        collected(&mut client),
        [],
        "the aggregator has not answered on this stream"
    );
    client.answer();
    assert_eq!(collected(&mut client)[0].1.offered, 10);
}

#[test]
fn responses_are_reported_without_directives() {
    let mut client = TestClient::new();
    send(&mut client, 10);
    assert_eq!(collected(&mut client), []);
    client.direct(canary(100.0), &[("default", ratio(0.0))]);
    collected(&mut client);
    let own = client.table.responses.cohort(0);
    assert_eq!((own.side, own.in_canary), (Side::Canary, true));
    for (took, ending) in [(MS * 7, Ending::Status(200)), (MS * 9, Ending::Status(500))] {
        Recorder {
            cohort: own,
            ..client.table.responses.recorder(0)
        }
        .ended(took, Some(ending));
    }
    let all = collected(&mut client);
    assert_eq!(
        (
            all[0].1.failed,
            all[0].1.latency.samples(),
            all[0].1.offered
        ),
        (1, 2, 0)
    );
    assert_eq!(collected(&mut client), []);
    let watched = client.subscription.responses();
    let canary = watched
        .iter()
        .find(|watched| watched.cohort == "canary")
        .unwrap();
    assert_eq!(
        (canary.bucket.as_str(), canary.responses.durations.count),
        ("api", 2),
        "metrics keep the totals"
    );
}
