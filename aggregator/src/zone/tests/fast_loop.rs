//! The fast loop: the directives that clients are sent every tenth of a second, from the rates of the
//! controller.

use super::*;
use plimsoll_core::decision::Coin;
use plimsoll_core::decision::coherent::{Coherence, CoinKey};
use plimsoll_core::quantity::Limit;

fn led(rate: f64, client: Client) -> Scene {
    let mut scene = Scene::new(
        Script::rates(&[("acme", rate), ("default", rate)]),
        vec![client],
    );
    scene.roll_up();
    scene.run(5.0);
    scene
}

#[test]
fn surge_is_dropped_before_the_controller_reacts() {
    let mut scene = led(1000.0, Client::new(1).offering("acme", 800.0));
    assert_eq!(scene.clients[0].ratio("acme"), 0.0);
    scene.clients[0].offers("acme", 10_000.0);
    scene.run(0.3);
    // The controller's ratio is still 0.
    let ratio = scene.clients[0].ratio("acme");
    assert!((ratio - 0.9).abs() < 0.01, "{ratio}");
    scene.clients[0].offers("acme", 800.0);
    scene.run(0.5);
    assert_eq!(
        scene.clients[0].ratio("acme"),
        0.0,
        "nothing is dropped after the surge"
    );
}

#[test]
fn reports_that_waited_together_are_no_surge() {
    let mut scene = led(1_000.0, Client::new(1).offering("acme", 200.0));
    let waiting: Vec<Report> = (0..20)
        .map(|_| {
            scene.now += 100;
            let now = scene.now();
            scene.clients[0].offer(100);
            scene.clients[0].report(now)
        })
        .collect();
    let stream = scene.clients[0].stream;
    for report in waiting {
        scene.zone.on_report(scene.now(), stream, report).unwrap();
    }
    for _ in 0..10 {
        scene.run(0.1);
        let client = &scene.clients[0];
        assert_eq!(client.ratio("acme"), 0.0);
        let offered = client.offered("acme");
        assert!((offered - 200.0).abs() < 25.0, "{offered}");
    }
}

#[test]
fn sparse_requests_follow_the_controllers_ratio() {
    let script = Script::rates(&[("acme", 10.0), ("default", 10.0)])
        .with("acme", |values| values.ratio = Some(ratio_of(0.25)));
    let mut scene = Scene::new(script, vec![Client::new(1).offering("acme", 40.0)]);
    scene.run(5.0);
    // 12 requests in the window are too few for their own ratio.
    assert!((scene.clients[0].ratio("acme") - 0.25).abs() < 1e-6);
    scene.clients[0].offers("acme", 80.0);
    scene.run(1.0);
    assert!((scene.clients[0].ratio("acme") - 0.875).abs() < 0.01);
}

#[test]
fn zero_limit_drops_all_and_none_clears() {
    let mut scene = led(1000.0, Client::new(1).offering("acme", 10.0));
    let mut script = Script::rates(&[("acme", 1000.0), ("default", 1000.0)]);
    script.terms.limit = Limit::PerSecond(Rate::ZERO);
    scene.controller = Some(script.clone());
    scene.run(0.5);
    let values = scene.clients[0].values("acme");
    assert_eq!(
        (values.ratio, values.guard),
        (Some(DropRatio::ALL), Some(Rate::ZERO))
    );
    script.terms.limit = Limit::Unlimited;
    scene.controller = Some(script);
    scene.run(0.5);
    let values = scene.clients[0].values("acme");
    assert_eq!((values.ratio, values.guard), (None, None));
}

#[test]
fn every_client_is_sent_the_same_guard() {
    let clients = (1..=3)
        .map(|n| Client::new(n).offering("acme", 300.0))
        .collect();
    let mut script = Script::rates(&[("acme", 900.0), ("default", 0.0)])
        .with("acme", |values| values.cap = Some(per_second(800.0)));
    let coherence = Coherence {
        key: CoinKey::from_bytes([7; 16]),
        salt: 1,
    };
    (script.terms.coin, script.terms.coherence) = (Coin::Coherent, Some(coherence));
    let mut scene = Scene::new(script, clients);
    scene.run(5.0);
    for client in &scene.clients {
        assert_eq!(client.guard("acme"), 1.5 * 800.0);
        assert_eq!(client.posted().terms().clients, Some(3));
    }
    let now = at(scene.now + 100);
    for client in &mut scene.clients {
        client.counts("acme").offered += 100;
        client.send_report(&mut scene.zone, now);
    }
    scene.zone.on_tick(now);
    let sent: Vec<_> = scene
        .clients
        .iter_mut()
        .map(|client| client.receive(&mut scene.zone, now).unwrap().buckets)
        .collect();
    assert!(!sent[0].is_empty());
    assert!(sent[0] == sent[1] && sent[1] == sent[2]);
    let values = sent[0][0].keys[0].values;
    assert_eq!(
        (values.rate, values.cap, values.entitlement),
        (None, None, None),
        "values for zones are not sent to clients"
    );
    let terms = &sent[0][0].terms;
    assert_eq!((terms.hold, terms.presences), (None, None));
    assert_eq!(
        terms.coherence,
        Some(coherence),
        "sent as the controller sent it"
    );
}

/// Tenants that policy lists have a directive before they have traffic.
#[test]
fn listed_tenant_never_counts_as_default() {
    let mut scene = Scene::new(
        Script::rates(&[("acme", 900.0), ("default", 500.0)]),
        vec![Client::new(1)],
    );
    scene.run(2.0);
    scene
        .clients
        .push(Client::new(2).offering("default", 400.0));
    let mut late = Client::new(3).offering("late", 0.0);
    late.counts.remove(&tenant("acme"));
    scene.controller = Some(Script::rates(&[
        ("acme", 900.0),
        ("default", 500.0),
        ("late", 900.0),
    ]));
    scene.run(1.0);
    late.offers("late", 900.0);
    scene.clients.push(late);
    scene.controller = None;
    scene.run(1.8);
    assert!(!scene.is_on_hold());
    assert_eq!(scene.clients[0].ratio("default"), 0.0);
    let offered = scene.clients[0].offered("default");
    assert!(offered < 420.0, "{offered}");
}
