//! Holds: the zone lives on its own part of the limit while no controller leads.

use super::*;
use plimsoll_core::directive::{KeyDirective, Values};

fn passing(scene: &Scene, name: &str, rps: f64) -> f64 {
    rps * (1.0 - scene.clients[0].ratio(name))
}

/// A zone with a controller that sent these rates, with their sum as the hold, and then fell
/// silent.
fn silent(script: Script, client: Client) -> Scene {
    let mut scene = Scene::new(script, vec![client]);
    scene.run(5.0);
    scene.controller = None;
    scene.run(5.0);
    scene
}

#[test]
fn controller_is_silent_after_two_unconfirmed_seconds() {
    let mut scene = Scene::new(
        Script::rates(&[("acme", 500.0), ("default", 0.0)]),
        vec![Client::new(1)],
    );
    assert!(scene.is_on_hold(), "no controller has led yet");
    scene.run(5.0);
    assert!(!scene.is_on_hold());
    scene.controller = None;
    scene.run(2.0);
    assert!(!scene.is_on_hold());
    scene.run(0.1);
    assert!(scene.is_on_hold());
    scene.controller = Some(Script::rates(&[("acme", 500.0), ("default", 0.0)]));
    scene.run(0.5);
    assert!(!scene.is_on_hold(), "the first confirmation ends the hold");
}

/// A policy that lists a new tenant carries no rate for it yet.
#[test]
fn new_tenant_triggers_no_hold() {
    let mut scene = Scene::new(
        Script::rates(&[("acme", 500.0), ("default", 0.0)]),
        vec![Client::new(1)],
    );
    scene.run(5.0);
    let mut news = scene.controller.clone().unwrap().message(1_000, 0);
    let entitlement = Some(entitled(1.0));
    news.buckets[0].whole = false;
    news.buckets[0].keys = vec![KeyDirective {
        tenant: tenant("new"),
        values: Values {
            entitlement,
            ..Values::default()
        },
    }];
    scene.zone.on_directives(scene.now(), news).unwrap();
    assert!(!scene.is_on_hold());
}

/// With a frozen ratio six times as much would pass.
#[test]
fn hold_stays_under_any_traffic() {
    let script = Script::rates(&[("acme", 500.0), ("default", 0.0)]);
    let mut scene = silent(script, Client::new(1).offering("acme", 1000.0));
    for rps in [1000.0, 6000.0, 600.0, 3000.0] {
        scene.clients[0].offers("acme", rps);
        scene.run(4.0);
        let passing = passing(&scene, "acme", rps);
        assert!((passing - 500.0).abs() < 5.0, "{passing} of {rps}");
    }
    scene.clients[0].offers("acme", 300.0);
    scene.run(4.0);
    assert_eq!(
        scene.clients[0].ratio("acme"),
        0.0,
        "nothing is dropped below the hold"
    );
    assert!(scene.clients[0].guard("acme") >= 1.5 * 300.0);
}

#[test]
fn controller_without_counts_leaves_the_hold() {
    let script = Script::rates(&[("acme", 500.0), ("default", 0.0)]);
    let mut scene = silent(script.clone(), Client::new(1).offering("acme", 1000.0));
    let fresh = Script {
        epoch: 2,
        ..script.clone().without_values()
    };
    scene.reconnect(fresh.clone());
    scene.zone.report(scene.now());
    scene.reconnect(fresh);
    let greeting = scene.zone.report(scene.now());
    assert_eq!(
        greeting.greeting.holds,
        [(bucket(), per_second(500.0))].into(),
        "the greeting of every stream reports the hold"
    );
    scene.reconnect(Script {
        epoch: 2,
        ..script.clone().without_values()
    });
    scene.clients[0].offers("acme", 2000.0);
    scene.run(5.0);
    assert!(scene.is_on_hold(), "it confirms reports and sends no rates");
    assert_eq!(scene.zone.upstream.epoch(), Some(Epoch(2)));
    let passing = passing(&scene, "acme", 2000.0);
    assert!((passing - 500.0).abs() < 5.0, "{passing}");
    scene.controller = Some(Script {
        epoch: 2,
        ..Script::rates(&[("acme", 800.0), ("default", 0.0)])
    });
    scene.run(0.5);
    assert!(!scene.is_on_hold());
    assert!((scene.clients[0].ratio("acme") - 0.6).abs() < 1e-3);
}

#[test]
fn longer_window_applies_where_requests_are_few() {
    let script = Script::rates(&[("acme", 20.0), ("default", 0.0)]);
    let scene = silent(script, Client::new(1).offering("acme", 40.0));
    let passing = passing(&scene, "acme", 40.0);
    assert!((passing - 20.0).abs() < 0.5, "{passing}");
}

#[test]
fn without_a_hold_the_latest_ratio_stays() {
    let mut scene = Scene::new(
        Script::ratio(7),
        vec![Client::new(1).offering("acme", 1000.0)],
    );
    scene.run(5.0);
    scene.controller = None;
    scene.run(10.0);
    assert!(scene.is_on_hold());
    assert_eq!(
        scene.clients[0].values("acme").ratio.map(DropRatio::units),
        Some(7)
    );
}

#[test]
fn requests_before_the_first_directives_are_of_no_later_second() {
    let script = Script::rates(&[("acme", 100.0), ("default", 0.0)]);
    let mut scene = Scene::new(script.clone(), vec![Client::new(1).offering("acme", 170.0)]);
    scene.controller = None;
    scene.run(60.0);
    scene.controller = Some(script);
    for _ in 0..80 {
        scene.clients[0].counts("acme").dropped += 17;
        scene.run(0.1);
    }
    let figures = scene.zone.admission_figures(&bucket());
    assert!(figures.refused_ratio > Some(0.6), "{figures:?}");
}

#[test]
fn zone_below_its_part_is_underadmitting() {
    for (refused_of_ten, limited, expected) in [
        (9, false, Some(true)),
        (4, false, Some(false)),
        (9, true, None),
    ] {
        let limit = limited.then(|| per_second(50.0));
        let script = Script::rates(&[("acme", 100.0), ("default", 0.0)]).with("acme", |values| {
            values.entitlement.as_mut().unwrap().tenant_limit = limit
        });
        let mut scene = Scene::new(script, vec![Client::new(1).offering("acme", 170.0)]);
        for _ in 0..150 {
            scene.clients[0].counts("acme").dropped += 17 * refused_of_ten / 10;
            scene.run(0.1);
        }
        let figures = scene.zone.admission_figures(&bucket());
        assert_eq!(
            figures.underadmitting, expected,
            "{refused_of_ten} of ten: {figures:?}"
        );
        let refused = figures.refused_ratio.unwrap();
        assert!(
            (refused - refused_of_ten as f64 / 10.0).abs() < 0.06,
            "{figures:?}"
        );
    }
}
