//! Evidence for rollout gates: summed in the zone and reported to the parent once.

use plimsoll_core::decision::Mode;
use plimsoll_core::directive::{BucketDirective, Values};
use plimsoll_core::report::{CohortKey, Outcomes, Side};

use super::*;

fn observed(name: &str, offered: u64) -> Evidence {
    let stand = CohortKey {
        bucket: Bucket::new(name).unwrap(),
        mode: Mode::Enforce,
        side: Side::Canary,
    };
    let mut evidence = Evidence::default();
    evidence.add(
        &stand,
        &Outcomes {
            offered,
            ..Outcomes::default()
        },
        1,
    );
    evidence
}

fn reported(zone: &mut Zone, now: MonoTime) -> Vec<(String, u64)> {
    let report = zone.report(now);
    report
        .evidence
        .iter()
        .map(|(stand, outcomes)| (stand.bucket.to_string(), outcomes.offered))
        .collect()
}

#[test]
fn evidence_is_summed_and_reported_once() {
    let mut scene = Scene::new(
        Script::of(&[("acme", Values::default())]),
        vec![Client::new(1), Client::new(2)],
    );
    scene.run(5.0);
    let (now, zone) = (scene.now(), &mut scene.zone);
    reported(zone, now);
    for client in &mut scene.clients {
        let report = client.report(now);
        zone.on_report(
            now,
            client.stream,
            Report {
                evidence: observed("api", 10),
                ..report
            },
        )
        .unwrap();
        let report = client.report(now);
        zone.on_report(
            now,
            client.stream,
            Report {
                evidence: observed("api", 5),
                ..report
            },
        )
        .unwrap();
    }
    assert_eq!(reported(zone, now), [("api".to_owned(), 30)]);
    assert_eq!(reported(zone, now), []);

    let client = &mut scene.clients[0];
    let report = client.report(now);
    let evidence = observed("unknown", 10);
    zone.on_report(now, client.stream, Report { evidence, ..report })
        .unwrap();
    assert_eq!(reported(zone, now), [], "no policy has this bucket");

    let report = client.report(now);
    let evidence = observed("api", 10);
    zone.on_report(now, client.stream, Report { evidence, ..report })
        .unwrap();
    zone.on_open(now);
    zone.report(now);
    let answer = Directives {
        seq: 1,
        parent: Some(InstanceId(7)),
        ..Directives::default()
    };
    zone.on_directives(now, answer).unwrap();
    assert_eq!(
        reported(zone, now),
        [],
        "evidence that no parent received may be of a stage that is over"
    );
}

#[test]
fn late_report_evidence_is_ignored() {
    let mut scene = Scene::new(
        Script::of(&[("acme", Values::default())]),
        vec![Client::new(1)],
    );
    scene.run(5.0);
    let (now, zone, client) = (scene.now(), &mut scene.zone, &mut scene.clients[0]);
    reported(zone, now);
    let cut_off = now + Duration::from_secs(60);
    for (now, expected) in [
        (cut_off, vec![]),
        (
            cut_off + Duration::from_millis(100),
            vec![("api".to_owned(), 10)],
        ),
    ] {
        let report = client.report(now);
        let evidence = observed("api", 10);
        zone.on_report(now, client.stream, Report { evidence, ..report })
            .unwrap();
        assert_eq!(reported(zone, now), expected);
    }
}

#[test]
fn evidence_without_a_matching_bucket_is_counted() {
    let mut scene = Scene::new(
        Script::of(&[("acme", Values::default())]),
        vec![Client::new(1)],
    );
    scene.run(5.0);
    let (now, zone, client) = (scene.now(), &mut scene.zone, &mut scene.clients[0]);
    let other = BucketDirective {
        bucket: Bucket::new("other").unwrap(),
        ..scene_directive(zone)
    };
    zone.on_directives(
        now,
        Directives {
            lead: Epoch(1).into(),
            seq: 10_000,
            buckets: vec![other],
            ..Directives::default()
        },
    )
    .unwrap();
    reported(zone, now);
    let before = zone.upstream.evidence.left_out();
    let mut evidence = Evidence::default();
    for (name, mode, offered) in [
        ("api", Mode::Enforce, 1),
        ("api", Mode::Shadow, 2),
        ("api", Mode::Canary, 4),
        ("other", Mode::Enforce, 8),
    ] {
        let stand = CohortKey {
            bucket: Bucket::new(name).unwrap(),
            mode,
            side: Side::Canary,
        };
        evidence.add(
            &stand,
            &Outcomes {
                offered,
                ..Outcomes::default()
            },
            9,
        );
    }
    let report = client.report(now);
    let evidence = evidence;
    zone.on_report(now, client.stream, Report { evidence, ..report })
        .unwrap();
    assert_eq!(reported(zone, now), [("api".to_owned(), 1)]);
    assert_eq!(zone.upstream.evidence.left_out() - before, 2 + 4 + 8);
}

fn scene_directive(zone: &Zone) -> BucketDirective {
    zone.board.since(&bucket(), 0).unwrap()
}
