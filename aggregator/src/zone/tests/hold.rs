//! On hold: the zone lives on its own part of the limit while no controller leads.

use super::*;
use plimsoll_core::directive::{KeyDirective, Values};
use plimsoll_core::directive::OnSilence;
use plimsoll_core::law::presence::Presences;

/// What passes of what a tenant offers.
fn passing(scene: &Scene, name: &str, rps: f64) -> f64 {
    rps * (1.0 - scene.clients[0].ratio(name))
}

/// A zone whose controller has given these rates, the sum of them as hold, and then fell silent.
fn silent(said: Said, client: Client) -> Scene {
    let mut scene = Scene::new(said, vec![client]);
    scene.run(5.0);
    scene.controller = None;
    scene.run(5.0);
    scene
}

#[test]
fn a_controller_that_confirms_nothing_for_two_seconds_is_taken_as_silent() {
    let mut scene = Scene::new(Said::rates(&[("acme", 500.0), ("default", 0.0)]), vec![Client::new(1)]);
    assert!(scene.is_on_hold(), "nobody has led yet");
    scene.run(5.0);
    assert!(!scene.is_on_hold());
    scene.controller = None;
    scene.run(2.0);
    assert!(!scene.is_on_hold());
    scene.run(0.1);
    assert!(scene.is_on_hold());
    scene.controller = Some(Said::rates(&[("acme", 500.0), ("default", 0.0)]));
    scene.run(0.5);
    assert!(!scene.is_on_hold(), "and back at once");
}

/// A policy that only names a tenant says nothing of its rate yet.
#[test]
fn a_tenant_that_is_new_does_not_put_the_others_on_hold() {
    let mut scene = Scene::new(Said::rates(&[("acme", 500.0), ("default", 0.0)]), vec![Client::new(1)]);
    scene.run(5.0);
    let mut news = scene.controller.clone().unwrap().message(1_000, 0);
    let entitlement = Some(entitled(1.0));
    news.buckets[0].whole = false;
    news.buckets[0].keys =
        vec![KeyDirective { tenant: tenant("new"), values: Values { entitlement, ..Values::default() } }];
    scene.zone.on_directives(scene.now(), news).unwrap();
    assert!(!scene.is_on_hold());
}

/// A frozen ratio would let six times as much pass.
#[test]
fn a_zone_on_hold_keeps_to_its_hold_whatever_the_traffic_does() {
    let said = Said::rates(&[("acme", 500.0), ("default", 0.0)]);
    let mut scene = silent(said, Client::new(1).offering("acme", 1000.0));
    for rps in [1000.0, 6000.0, 600.0, 3000.0] {
        scene.clients[0].offers("acme", rps);
        scene.run(4.0);
        let passing = passing(&scene, "acme", rps);
        assert!((passing - 500.0).abs() < 5.0, "{passing} of {rps}");
    }
    scene.clients[0].offers("acme", 300.0);
    scene.run(4.0);
    assert_eq!(scene.clients[0].ratio("acme"), 0.0, "and refuses nothing below it");
    assert!(scene.clients[0].guard("acme") >= 1.5 * 300.0);
}

#[test]
fn a_zone_on_hold_divides_between_its_own_tenants() {
    let said = Said::rates(&[("acme", 200.0), ("free", 300.0), ("default", 0.0)])
        .with("acme", |values| values.entitlement = Some(entitled(4.0)));
    let client = Client::new(1).offering("acme", 200.0).offering("free", 1000.0);
    let mut scene = silent(said, client);
    assert!((passing(&scene, "free", 1000.0) - 300.0).abs() < 5.0, "all that acme leaves");
    scene.clients[0].offers("acme", 2000.0);
    scene.run(4.0);
    for (name, rps, expected) in [("acme", 2000.0, 400.0), ("free", 1000.0, 100.0)] {
        let passing = passing(&scene, name, rps);
        assert!((passing - expected).abs() < 0.02 * expected, "{name}: {passing}");
    }
}

#[test]
fn a_zone_on_hold_takes_its_part_of_a_tenants_limit() {
    let mut said = Said::rates(&[("acme", 400.0), ("default", 100.0)]).with("acme", |values| {
        values.entitlement = Some(Entitlement { tenant_limit: Some(per_second(600.0)), ..entitled(1.0) });
    });
    said.terms.presences = Some(Presences::new(3_000).unwrap());
    let scene = silent(said, Client::new(1).offering("acme", 1000.0));
    let passing = passing(&scene, "acme", 1000.0);
    assert!((passing - 200.0).abs() < 2.0, "a third of 600: {passing}");
}

#[test]
fn a_bucket_may_keep_its_ratio_instead() {
    let mut said = Said::rates(&[("acme", 500.0), ("default", 0.0)]).with("acme", |values| {
        values.ratio = Some(ratio_of(0.5));
    });
    said.terms.on_silence = OnSilence::Ratio;
    let said = said.with("default", |values| values.ratio = Some(ratio_of(0.5)));
    let mut scene = silent(said, Client::new(1).offering("acme", 1000.0));
    for rps in [1000.0, 6000.0, 100.0] {
        scene.clients[0].offers("acme", rps);
        scene.run(4.0);
        assert!((scene.clients[0].ratio("acme") - 0.5).abs() < 1e-6, "{rps}");
    }
}

#[test]
fn a_new_controller_that_has_seen_nothing_leaves_the_zone_on_its_old_hold() {
    let said = Said::rates(&[("acme", 500.0), ("default", 0.0)]);
    let mut scene = silent(said.clone(), Client::new(1).offering("acme", 1000.0));
    let fresh = Said { epoch: 2, ..said.clone().without_values() };
    scene.reconnects(fresh.clone());
    scene.zone.report(scene.now());
    scene.reconnects(fresh);
    let greeting = scene.zone.report(scene.now());
    assert_eq!(
        greeting.holds,
        [(bucket(), per_second(500.0))].into(),
        "a greeting reports it, on every stream"
    );
    scene.reconnects(Said { epoch: 2, ..said.clone().without_values() });
    scene.clients[0].offers("acme", 2000.0);
    scene.run(5.0);
    assert!(scene.is_on_hold(), "it confirms, but it does not lead");
    assert_eq!(scene.zone.epoch(), Some(Epoch(2)));
    let passing = passing(&scene, "acme", 2000.0);
    assert!((passing - 500.0).abs() < 5.0, "{passing}");
    scene.controller = Some(Said { epoch: 2, ..Said::rates(&[("acme", 800.0), ("default", 0.0)]) });
    scene.run(0.5);
    assert!(!scene.is_on_hold());
    assert!((scene.clients[0].ratio("acme") - 0.6).abs() < 1e-3);
}

#[test]
fn where_few_come_a_longer_look_tells() {
    let said = Said::rates(&[("acme", 20.0), ("default", 0.0)]);
    let scene = silent(said, Client::new(1).offering("acme", 40.0));
    let passing = passing(&scene, "acme", 40.0);
    assert!((passing - 20.0).abs() < 0.5, "{passing}");
}

#[test]
fn without_a_hold_what_was_said_last_stays() {
    let mut scene = Scene::new(Said::ratio(7), vec![Client::new(1).offering("acme", 1000.0)]);
    scene.run(5.0);
    scene.controller = None;
    scene.run(10.0);
    assert!(scene.is_on_hold());
    assert_eq!(scene.clients[0].values("acme").ratio.map(DropRatio::units), Some(7));
}
