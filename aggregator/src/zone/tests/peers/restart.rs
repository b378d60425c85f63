//! The restart of an aggregator whose clients keep running.

use super::*;
use plimsoll_core::decision::Mode;
use plimsoll_core::directive::Values;
use plimsoll_core::kill::KillGeneration;

/// A restarted zone and its first client, which already holds directives.
fn restarted(script: Script) -> Scene {
    let mut client = Client::new(1).offering("acme", 1000.0);
    client.epoch = Some(Epoch(1));
    client.counts("acme").offered = 5_000;
    let mut scene = Scene::new(script, vec![client]);
    scene.roll_up();
    scene
}

#[test]
fn restarted_zone_withholds_until_clients_return() {
    let mut scene = restarted(Script::rates(&[("acme", 500.0), ("default", 0.0)]));
    scene.run(0.5);
    assert_eq!(
        scene.clients[0].values("acme"),
        Values::default(),
        "values are withheld"
    );
    assert_eq!(
        scene.clients[0].posted().terms().mode,
        Mode::Enforce,
        "the mode is sent"
    );
    let report = scene.zone.report(scene.now());
    assert_eq!(
        (report.time, report.tallies.len()),
        (None, 0),
        "the report carries no counts"
    );
    scene.run(1.5);
    assert!(scene.zone.warmup.withholds(), "more clients might return");
    scene.run(0.1);
    assert!(!scene.zone.warmup.withholds());
    // Withheld values are sent immediately: the fast loop has followed the traffic in the meantime.
    let ratio = scene.clients[0].ratio("acme");
    assert!((ratio - 0.5).abs() < 0.01, "{ratio}");
    let unchanged = scene.clients[0].values("default").ratio;
    assert_eq!(
        unchanged,
        Some(DropRatio::NONE),
        "unchanged values are sent as well"
    );
    assert!(
        scene.zone.report(scene.now()).time.is_some(),
        "counts are reported"
    );
}

#[test]
fn warmup_delays_no_kill_or_mode() {
    let script = Script::rates(&[("acme", 500.0), ("default", 0.0)]);
    let mut scene = restarted(script.clone());
    scene.run(0.5);
    let now = at(scene.now + 10);
    let mut shadowed = script;
    shadowed.terms.mode = Mode::Shadow;
    let kill = KillGeneration(3);
    let message = Directives {
        kills: kill.into(),
        ..shadowed.message(9, 0)
    };
    scene.zone.on_directives(now, message).unwrap();
    assert!(scene.zone.warmup.withholds());
    let received = scene.clients[0].receive(&mut scene.zone, now).unwrap();
    assert_eq!(
        (received.kills.fleet, received.buckets[0].terms.mode),
        (kill, Mode::Shadow)
    );
    assert_eq!(scene.clients[0].values("acme"), Values::default());
}
