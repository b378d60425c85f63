//! A zone that restarts among clients that go on.

use super::*;
use plimsoll_core::decision::Mode;
use plimsoll_core::directive::Values;
use plimsoll_core::kill::KillGeneration;

/// A zone that has begun anew, and its first client back.
fn restarted(said: Said) -> Scene {
    let mut client = Client::new(1).offering("acme", 1000.0);
    client.epoch = Some(Epoch(1));
    client.counts("acme").offered = 5_000;
    let mut scene = Scene::new(said, vec![client]);
    scene.roll_up();
    scene
}

#[test]
fn a_restarted_zone_is_quiet_until_its_clients_are_back() {
    let mut scene = restarted(Said::rates(&[("acme", 500.0), ("default", 0.0)]));
    scene.run(0.5);
    assert_eq!(scene.clients[0].values("acme"), Values::default(), "no values");
    assert_eq!(scene.clients[0].posted().terms().mode, Mode::Enforce, "but the mode");
    let report = scene.zone.report(scene.now());
    assert_eq!((report.time, report.tallies.len()), (None, 0), "alive, but counting nothing");
    scene.run(1.5);
    assert!(scene.zone.is_warming_up(), "someone might still join");
    scene.run(0.1);
    assert!(!scene.zone.is_warming_up());
    // What was withheld is told at once: the fast loop has seen the traffic meanwhile.
    let ratio = scene.clients[0].ratio("acme");
    assert!((ratio - 0.5).abs() < 0.01, "{ratio}");
    let unchanged = scene.clients[0].values("default").ratio;
    assert_eq!(unchanged, Some(DropRatio::NONE), "also what has not changed meanwhile");
    assert!(scene.zone.report(scene.now()).time.is_some(), "and everybody is counted");
}

#[test]
fn kill_and_mode_pass_at_once_though_it_is_quiet() {
    let said = Said::rates(&[("acme", 500.0), ("default", 0.0)]);
    let mut scene = restarted(said.clone());
    scene.run(0.5);
    let now = at(scene.now + 10);
    let mut shadowed = said;
    shadowed.terms.mode = Mode::Shadow;
    let kill = KillGeneration(3);
    let message = Directives { kill, ..shadowed.message(9, 0) };
    scene.zone.on_directives(now, message).unwrap();
    assert!(scene.zone.is_warming_up());
    let told = scene.clients[0].hear(&mut scene.zone, now).unwrap();
    assert_eq!((told.kill, told.buckets[0].terms.mode), (kill, Mode::Shadow));
    assert_eq!(scene.clients[0].values("acme"), Values::default());
}
