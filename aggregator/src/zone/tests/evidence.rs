//! What gates judge by passes through a zone added up, once, and only upwards to who listens.

use plimsoll_core::directive::Values;
use plimsoll_core::report::{CohortKey, Outcomes, Side};
use plimsoll_core::decision::Mode;

use super::*;

fn saw(seq: u64, name: &str, offered: u64) -> Batches {
    let stand = CohortKey { bucket: Bucket::new(name).unwrap(), mode: Mode::Canary, side: Side::Canary };
    let mut evidence = Evidence::default();
    evidence.add(&stand, &Outcomes { offered, ..Outcomes::default() }, 1);
    Batches::one(seq, evidence)
}

/// What the zone tells of each bucket in its next roll-up.
fn told(zone: &mut Zone, now: MonoTime) -> Vec<(String, u64)> {
    let report = zone.report(now);
    report.evidence.after(0).map(|(stand, outcomes)| (stand.bucket.to_string(), outcomes.offered)).collect()
}

#[test]
fn evidence_is_added_up_and_told_once() {
    let mut scene =
        Scene::new(Said::of(&[("acme", Values::default())]), vec![Client::new(1), Client::new(2)]);
    scene.run(5.0);
    let (now, zone) = (scene.now(), &mut scene.zone);
    told(zone, now);
    for client in &mut scene.clients {
        let report = client.report(now);
        let (seq, evidence) = (report.seq, saw(report.seq, "api", 10));
        zone.on_report(now, client.stream, Report { evidence: evidence.clone(), ..report }).unwrap();
        // The next report carries that of one that was lost, and one that was not comes again.
        let report = client.report(now);
        let evidence = evidence.merge(saw(seq + 1, "api", 5));
        zone.on_report(now, client.stream, Report { evidence, ..report }).unwrap();
    }
    assert_eq!(told(zone, now), [("api".to_owned(), 30)]);
    assert_eq!(told(zone, now), []);

    let client = &mut scene.clients[0];
    let report = client.report(now);
    let evidence = saw(report.seq, "unheard-of", 10);
    zone.on_report(now, client.stream, Report { evidence, ..report }).unwrap();
    assert_eq!(told(zone, now), [], "no policy knows it");

    let report = client.report(now);
    let evidence = saw(report.seq, "api", 10);
    zone.on_report(now, client.stream, Report { evidence, ..report }).unwrap();
    zone.on_open(now);
    zone.report(now);
    let answer = Directives { seq: 1, parent: Some(InstanceId(7)), ..Directives::default() };
    zone.on_directives(now, answer).unwrap();
    assert_eq!(told(zone, now), [], "what nobody above listened to may be of a stage that is over");
}
