//! Evidence for rollout gates: summed in the zone and reported to the parent once.

use plimsoll_core::decision::Mode;
use plimsoll_core::directive::{BucketDirective, Values};
use plimsoll_core::report::{CohortKey, Outcomes, Side};

use super::*;

fn observed(seq: u64, name: &str, offered: u64) -> Batches {
    let stand = CohortKey { bucket: Bucket::new(name).unwrap(), mode: Mode::Enforce, side: Side::Canary };
    let mut evidence = Evidence::default();
    evidence.add(&stand, &Outcomes { offered, ..Outcomes::default() }, 1);
    Batches::one(seq, evidence)
}

/// The requests of each bucket in the evidence of the next roll-up.
fn reported(zone: &mut Zone, now: MonoTime) -> Vec<(String, u64)> {
    let report = zone.report(now);
    report.evidence.after(0).map(|(stand, outcomes)| (stand.bucket.to_string(), outcomes.offered)).collect()
}

#[test]
fn evidence_is_summed_and_reported_once() {
    let mut scene =
        Scene::new(Script::of(&[("acme", Values::default())]), vec![Client::new(1), Client::new(2)]);
    scene.run(5.0);
    let (now, zone) = (scene.now(), &mut scene.zone);
    reported(zone, now);
    for client in &mut scene.clients {
        let report = client.report(now);
        let (seq, evidence) = (report.seq, observed(report.seq, "api", 10));
        zone.on_report(now, client.stream, Report { evidence: evidence.clone(), ..report }).unwrap();
        // The next report repeats the evidence of a report whose acknowledgement was lost.
        let report = client.report(now);
        let evidence = evidence.merge(observed(seq + 1, "api", 5));
        zone.on_report(now, client.stream, Report { evidence, ..report }).unwrap();
    }
    assert_eq!(reported(zone, now), [("api".to_owned(), 30)]);
    assert_eq!(reported(zone, now), []);

    let client = &mut scene.clients[0];
    let report = client.report(now);
    let evidence = observed(report.seq, "unknown", 10);
    zone.on_report(now, client.stream, Report { evidence, ..report }).unwrap();
    assert_eq!(reported(zone, now), [], "no policy has this bucket");

    let report = client.report(now);
    let evidence = observed(report.seq, "api", 10);
    zone.on_report(now, client.stream, Report { evidence, ..report }).unwrap();
    zone.on_open(now);
    zone.report(now);
    let answer = Directives { seq: 1, parent: Some(InstanceId(7)), ..Directives::default() };
    zone.on_directives(now, answer).unwrap();
    assert_eq!(reported(zone, now), [], "evidence that no parent received may be of a stage that is over");
}

#[test]
fn evidence_of_a_late_report_is_left_out() {
    let mut scene = Scene::new(Script::of(&[("acme", Values::default())]), vec![Client::new(1)]);
    scene.run(5.0);
    let (now, zone, client) = (scene.now(), &mut scene.zone, &mut scene.clients[0]);
    reported(zone, now);
    let cut_off = now + Duration::from_secs(60);
    for (now, expected) in
        [(cut_off, vec![]), (cut_off + Duration::from_millis(100), vec![("api".to_owned(), 10)])]
    {
        let report = client.report(now);
        let evidence = observed(report.seq, "api", 10);
        zone.on_report(now, client.stream, Report { evidence, ..report }).unwrap();
        assert_eq!(reported(zone, now), expected);
    }
}

#[test]
fn hostile_client_weighs_at_most_five_times_the_median_client() {
    let clients = (1..=21).map(Client::new).collect();
    let mut scene = Scene::new(Script::of(&[("acme", Values::default())]), clients);
    scene.run(5.0);
    let (now, zone) = (scene.now(), &mut scene.zone);
    reported(zone, now);
    for (number, client) in scene.clients.iter_mut().enumerate() {
        let report = client.report(now);
        // The first to report is the hostile one. It calls itself many instances.
        let offered = if number == 0 { 50_000 } else { 100 };
        let outcomes = Outcomes { offered, instances: 9_000, ..Outcomes::default() };
        let stand =
            CohortKey { bucket: Bucket::new("api").unwrap(), mode: Mode::Enforce, side: Side::Canary };
        let mut evidence = Evidence::default();
        evidence.add(&stand, &outcomes, 1);
        let evidence = Batches::one(report.seq, evidence);
        zone.on_report(now, client.stream, Report { evidence, ..report }).unwrap();
    }
    let report = zone.report(now);
    let (_, outcomes) = report.evidence.after(0).next().unwrap();
    assert_eq!((outcomes.offered, outcomes.instances), (20 * 100 + 500, 21));
}

#[test]
fn evidence_of_buckets_and_modes_that_the_child_does_not_have_is_left_out_and_counted() {
    let mut scene = Scene::new(Script::of(&[("acme", Values::default())]), vec![Client::new(1)]);
    scene.run(5.0);
    let (now, zone, client) = (scene.now(), &mut scene.zone, &mut scene.clients[0]);
    let other = BucketDirective { bucket: Bucket::new("other").unwrap(), ..scene_directive(zone) };
    zone.on_directives(
        now,
        Directives { epoch: Some(Epoch(1)), seq: 10_000, buckets: vec![other], ..Directives::default() },
    )
    .unwrap();
    reported(zone, now);
    let before = zone.evidence_left_out();
    let mut evidence = Evidence::default();
    for (name, mode, offered) in [
        ("api", Mode::Enforce, 1),
        ("api", Mode::Shadow, 2),
        ("api", Mode::Canary, 4),
        ("other", Mode::Enforce, 8),
    ] {
        let stand = CohortKey { bucket: Bucket::new(name).unwrap(), mode, side: Side::Canary };
        evidence.add(&stand, &Outcomes { offered, ..Outcomes::default() }, 9);
    }
    let report = client.report(now);
    let evidence = Batches::one(report.seq, evidence);
    zone.on_report(now, client.stream, Report { evidence, ..report }).unwrap();
    assert_eq!(reported(zone, now), [("api".to_owned(), 1)]);
    assert_eq!(zone.evidence_left_out() - before, 2 + 4 + 8);
}

/// The directive of the scripted bucket.
fn scene_directive(zone: &Zone) -> BucketDirective {
    zone.board().since(&bucket(), 0).unwrap()
}

#[test]
fn unobserved_requests_are_summed_and_more_than_were_offered_are_left_out() {
    let clients = (1..=3).map(Client::new).collect();
    let mut scene = Scene::new(Script::of(&[("acme", Values::default())]), clients);
    scene.run(5.0);
    let (now, zone) = (scene.now(), &mut scene.zone);
    reported(zone, now);
    let before = zone.evidence_left_out();
    for (client, unobserved) in scene.clients.iter_mut().zip([10, 7, 11]) {
        let report = client.report(now);
        let stand =
            CohortKey { bucket: Bucket::new("api").unwrap(), mode: Mode::Enforce, side: Side::Canary };
        let mut evidence = Evidence::default();
        evidence.add(&stand, &Outcomes { offered: 10, unobserved, ..Outcomes::default() }, 1);
        let evidence = Batches::one(report.seq, evidence);
        zone.on_report(now, client.stream, Report { evidence, ..report }).unwrap();
    }
    let report = zone.report(now);
    let (_, outcomes) = report.evidence.after(0).next().unwrap();
    assert_eq!((outcomes.offered, outcomes.unobserved, outcomes.instances), (20, 17, 2));
    assert_eq!(zone.evidence_left_out() - before, 11);
}
