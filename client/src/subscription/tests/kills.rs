//! Modes under kills of single buckets, the kill fields of reports, and the kill switch of this
//! process.

use super::*;
use plimsoll_core::kill::drill::Drill;
use plimsoll_core::report::ReportedMode;

fn killed(name: &str, generation: u64) -> BTreeMap<Bucket, KillGeneration> {
    [(Bucket::new(name).unwrap(), KillGeneration(generation))].into()
}

fn enforcing() -> TestClient {
    let mut client = TestClient::new();
    client.enforce(&[("default", ratio(1.0))]);
    client
}

fn apply_kills(client: &mut TestClient, kills: BTreeMap<Bucket, KillGeneration>) {
    let mut message = client.message(Terms::default(), &[]);
    message.kills.buckets = kills;
    message.buckets.clear();
    client.receive(message).unwrap();
}

/// Directs what was decided with knowledge of these generations.
fn decide(client: &mut TestClient, fleet: u64, bucket: u64) {
    let [fleet, bucket] = [fleet, bucket].map(KillGeneration);
    let terms = Terms {
        kill: Kill { fleet, bucket },
        ..limited(Mode::Enforce)
    };
    client.direct(terms, &[("default", ratio(1.0))]);
}

#[test]
fn bucket_kill_ends_with_a_knowing_decision() {
    let mut client = enforcing();
    apply_kills(&mut client, killed("web", 1));
    client.check(&[("acme", 1.0)]);
    apply_kills(&mut client, killed("api", 1));
    client.check(&[("acme", 0.0)]);
    assert_eq!(client.subscription.mode_of(&api()), Some(Mode::Shadow));
    apply_kills(&mut client, killed("api", 2));
    client.check(&[("acme", 0.0)]);
    for (known, share) in [(0, 0.0), (1, 0.0), (2, 1.0)] {
        decide(&mut client, 0, known);
        client.check(&[("acme", share)]);
    }
    // The claim of a decision is capped, so a later kill voids it.
    decide(&mut client, 99, 99);
    apply_kills(&mut client, killed("api", 4));
    client.check(&[("acme", 0.0)]);
}

#[test]
fn generations_are_repeated_every_512_reports() {
    let mut client = enforcing();
    apply_kills(&mut client, killed("api", 2));
    client.subscription.on_open(now());
    let reports = (0..1_100).map(|_| client.subscription.report(now()));
    let filled: Vec<u64> = reports
        .filter(|report| !report.kills.buckets.is_empty())
        .map(|report| report.seq)
        .collect();
    assert_eq!(filled, [1, 512, 1_024]);
}

#[test]
fn generations_are_reported_on_change() {
    let mut client = enforcing();
    apply_kills(&mut client, killed("api", 2));
    assert_eq!(
        client.subscription.report(now()).kills.buckets,
        killed("api", 2)
    );
    assert!(client.subscription.report(now()).kills.buckets.is_empty());
    assert!(!client.subscription.is_report_due());
    let mut drill = client.message(Terms::default(), &[]);
    drill.kills.drill = Drill(5);
    drill.buckets.clear();
    client.receive(drill).unwrap();
    assert!(client.subscription.is_report_due());
    assert_eq!(client.subscription.report(now()).kills.drill, Drill(5));
    assert!(!client.subscription.is_report_due());
    client.check(&[("acme", 0.0)]);
    client.subscription.on_open(now());
    assert_eq!(
        client.subscription.report(now()).kills.buckets,
        killed("api", 2),
        "a new stream starts with all generations"
    );
    let mut liar = client.message(Terms::default(), &[]);
    liar.kills.buckets = killed("web", u64::MAX);
    assert!(matches!(
        client.receive(liar),
        Err(StaleDirective::KillJump { .. })
    ));
}

#[test]
fn kill_is_saved_and_voids_older_directives() {
    let mut client = enforcing();
    let (version, before) = client.subscription.unsaved().unwrap();
    client.subscription.directives.saved = version;
    assert_eq!(client.subscription.unsaved_kills(), None);
    apply_kills(&mut client, killed("api", 1));
    assert!(
        client.subscription.unsaved_kills().is_some(),
        "from the old file the next process would enforce"
    );
    let (version, after) = client.subscription.unsaved().unwrap();
    client.subscription.directives.saved = version;
    assert_eq!(client.subscription.unsaved_kills(), None);
    // The next process, from either file, without a connection.
    for (kept, share) in [(before, 1.0), (after, 0.0)] {
        let mut next = TestClient::new();
        next.subscription.restore(kept);
        next.check(&[("acme", share)]);
        assert_eq!(next.subscription.unsaved_kills(), None);
    }
}

fn unapplied(clients: u32) -> BTreeMap<Bucket, ReportedMode> {
    [(
        api(),
        ReportedMode {
            directed: None,
            unapplied: clients,
        },
    )]
    .into()
}

/// A controller that was restored from an older state decides without the latest generation.
#[test]
fn mode_decided_without_the_generation_is_reported() {
    let mut client = enforcing();
    apply_kills(&mut client, killed("api", 2));
    assert_eq!(client.subscription.report(now()).modes, unapplied(1));
    decide(&mut client, 0, 2);
    assert_eq!(client.subscription.report(now()).modes, unapplied(0));
}

#[test]
fn process_kill_switch_only_observes() {
    let mut client = enforcing();
    assert!(client.subscription.observe(true) && !client.subscription.observe(true));
    client.check(&[("acme", 0.0)]);
    client.enforce(&[("default", ratio(1.0))]);
    client.check(&[("acme", 0.0)]);
    assert_eq!(client.subscription.mode_of(&api()), Some(Mode::Shadow));
    let report = client.subscription.report(now());
    assert_eq!(
        (report.kills.fleet, report.clients.killed_locally),
        (KillGeneration(0), 1),
        "it kills no other process"
    );
    assert_eq!(report.modes, unapplied(1));
    assert!(
        client.subscription.report(now()).modes.is_empty(),
        "it is reported once"
    );
    assert!(client.subscription.observe(false));
    let report = client.subscription.report(now());
    assert_eq!(
        (report.clients.killed_locally, report.modes),
        (0, unapplied(0))
    );
    client.check(&[("acme", 1.0)]);
}
