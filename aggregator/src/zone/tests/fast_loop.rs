//! The fast loop: the directives that clients are sent every tenth of a second, from the rates of the
//! controller.

use super::*;
use plimsoll_core::decision::Coin;
use plimsoll_core::decision::coherent::{Coherence, CoinKey};
use plimsoll_core::quantity::Limit;

fn led(rate: f64, client: Client) -> Scene {
    let mut scene = Scene::new(Script::rates(&[("acme", rate), ("default", rate)]), vec![client]);
    scene.roll_up();
    scene.run(5.0);
    scene
}

#[test]
fn surge_is_dropped_within_three_tenths_of_a_second_while_the_controllers_ratio_is_old() {
    let mut scene = led(1000.0, Client::new(1).offering("acme", 800.0));
    assert_eq!(scene.clients[0].ratio("acme"), 0.0);
    scene.clients[0].offers("acme", 10_000.0);
    scene.run(0.3);
    // The controller's ratio is still 0.
    let ratio = scene.clients[0].ratio("acme");
    assert!((ratio - 0.9).abs() < 0.01, "{ratio}");
    scene.clients[0].offers("acme", 800.0);
    scene.run(0.5);
    assert_eq!(scene.clients[0].ratio("acme"), 0.0, "nothing is dropped after the surge");
}

#[test]
fn controllers_ratio_is_passed_on_where_requests_are_few() {
    let script = Script::rates(&[("acme", 10.0), ("default", 10.0)])
        .with("acme", |values| values.ratio = Some(ratio_of(0.25)));
    let mut scene = Scene::new(script, vec![Client::new(1).offering("acme", 40.0)]);
    scene.run(5.0);
    // 12 requests in the window are too few for a ratio of their own.
    assert!((scene.clients[0].ratio("acme") - 0.25).abs() < 1e-6);
    scene.clients[0].offers("acme", 80.0);
    scene.run(1.0);
    assert!((scene.clients[0].ratio("acme") - 0.875).abs() < 0.01);
}

#[test]
fn limit_of_zero_drops_everything_and_no_limit_clears_ratio_and_guard() {
    let mut scene = led(1000.0, Client::new(1).offering("acme", 10.0));
    let mut script = Script::rates(&[("acme", 1000.0), ("default", 1000.0)]);
    script.terms.limit = Limit::PerSecond(Rate::ZERO);
    scene.controller = Some(script.clone());
    scene.run(0.5);
    let values = scene.clients[0].values("acme");
    assert_eq!((values.ratio, values.guard), (Some(DropRatio::ALL), Some(Rate::ZERO)));
    script.terms.limit = Limit::Unlimited;
    scene.controller = Some(script);
    scene.run(0.5);
    let values = scene.clients[0].values("acme");
    assert_eq!((values.ratio, values.guard), (None, None));
}

#[test]
fn guard_is_the_cap_with_slack_and_every_client_is_sent_the_same_bytes() {
    let clients = (1..=3).map(|n| Client::new(n).offering("acme", 300.0)).collect();
    let mut script = Script::rates(&[("acme", 900.0), ("default", 0.0)])
        .with("acme", |values| values.cap = Some(per_second(800.0)));
    let coherence = Coherence { key: CoinKey::from_bytes([7; 16]), salt: 1 };
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
    assert_eq!(terms.coherence, Some(coherence), "sent as the controller sent it");
}

/// Nine tenths of the cap are used and the guard drops all the same: it is too tight, so its slack grows.
#[test]
fn slack_of_a_guard_that_is_too_tight_grows() {
    let mut scene = led(1000.0, Client::new(1).offering("acme", 1000.0));
    for _ in 0..50 {
        scene.clients[0].counts("acme").guard_dropped += 10;
        scene.run(0.1);
    }
    let guard = scene.clients[0].guard("acme");
    assert!(guard > 1500.0 * 1.25 * 1.25, "{guard}");
    // Would-be drops of the guards in shadow have the same effect.
    let mut shadowed = led(1000.0, Client::new(1).offering("acme", 1000.0));
    for _ in 0..50 {
        let counts = shadowed.clients[0].counts("acme");
        counts.would_dropped += 10;
        counts.would_guard_dropped += 10;
        shadowed.run(0.1);
    }
    assert_eq!(shadowed.clients[0].guard("acme"), guard);
}

/// A period that is a tick longer would seem to use more of the cap than it did.
#[test]
fn ticks_that_are_a_little_early_change_nothing() {
    let guard = |early: u64| {
        let mut scene = led(1000.0, Client::new(1).offering("acme", 940.0));
        scene.early = early;
        for _ in 0..50 {
            scene.clients[0].counts("acme").guard_dropped += 10;
            scene.run(0.1);
        }
        scene.clients[0].guard("acme")
    };
    let exact = guard(0);
    assert!(exact > 1500.0, "{exact}");
    assert_eq!(guard(3), exact);
}

#[test]
fn offered_rate_is_smoothed_over_a_second() {
    let mut scene = led(9000.0, Client::new(1).offering("acme", 1000.0));
    let offered = scene.clients[0].offered("acme");
    // With one client the rate ripples by half a report interval.
    assert!((offered - 1000.0).abs() < 60.0, "{offered}");
    scene.clients[0].offers("acme", 2000.0);
    // A tenth of a second until the report, and the second of the smoothing.
    scene.run(1.1);
    let offered = scene.clients[0].offered("acme");
    assert!((offered - (2000.0 - 1000.0 / std::f64::consts::E)).abs() < 110.0, "{offered}");
}

#[test]
fn first_report_of_a_new_client_counts_at_once() {
    let mut scene = led(9000.0, Client::new(1).offering("acme", 1000.0));
    scene.clients.push(Client::new(2).offering("acme", 500.0));
    scene.run(0.1);
    let before = scene.clients[0].offered("acme");
    assert!((before - 1000.0).abs() < 60.0, "a greeting carries counts without a rate: {before}");
    scene.run(0.1);
    let offered = scene.clients[0].offered("acme");
    assert!((offered - 1500.0).abs() < 100.0, "{offered}");
    scene.run(5.0);
    let offered = scene.clients[0].offered("acme");
    assert!((offered - 1500.0).abs() < 90.0, "{offered}");
}

#[test]
fn client_counts_for_a_second_and_a_half_after_its_stream_closed() {
    let mut scene = led(1000.0, Client::new(1).offering("acme", 10.0));
    scene.clients.push(Client::new(2).offering("acme", 10.0));
    scene.run(1.0);
    let gone = scene.clients.pop().unwrap();
    scene.zone.on_close(scene.now(), gone.stream);
    let clients = |scene: &Scene| scene.clients[0].posted().terms().clients;
    scene.run(1.5);
    assert_eq!(clients(&scene), Some(2));
    scene.run(0.1);
    assert_eq!(clients(&scene), Some(1));
}

#[test]
fn tenant_without_a_directive_counts_as_the_default_class() {
    let client = Client::new(1).offering("acme", 1000.0).offering("stranger", 3000.0);
    let mut scene = Scene::new(Script::rates(&[("acme", 1000.0), ("default", 600.0)]), vec![client]);
    scene.run(5.0);
    let level = |scene: &Scene| scene.clients[0].posted().terms().cut.unwrap().level.map(Rate::per_second);
    let of_class = level(&scene).unwrap();
    assert!((of_class / 600.0 - 1.0).abs() < 0.06, "the only name may pass what its class may: {of_class}");
    assert_eq!(scene.clients[0].ratio("acme"), 0.0);
    let offered = scene.clients[0].offered("default");
    assert!((offered - 3000.0).abs() < 180.0, "{offered}");
    // With a directive of its own it no longer counts as the class.
    scene.controller = Some(Script::rates(&[("acme", 1000.0), ("default", 600.0), ("stranger", 1500.0)]));
    scene.run(5.0);
    assert!((scene.clients[0].ratio("stranger") - 0.5).abs() < 0.01);
    assert_eq!((scene.clients[0].ratio("default"), level(&scene)), (0.0, None));
}

/// Tenants that policy lists have a directive before they have traffic.
#[test]
fn tenant_with_a_directive_before_its_traffic_never_counts_as_the_default_class() {
    let mut scene = Scene::new(Script::rates(&[("acme", 900.0), ("default", 500.0)]), vec![Client::new(1)]);
    scene.run(2.0);
    scene.clients.push(Client::new(2).offering("default", 400.0));
    let mut late = Client::new(3).offering("late", 0.0);
    late.counts.remove(&tenant("acme"));
    scene.controller = Some(Script::rates(&[("acme", 900.0), ("default", 500.0), ("late", 900.0)]));
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
