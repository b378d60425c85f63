//! Shared headroom: the room of a zone below the limit, and the pools of its clients.

use plimsoll_core::directive::{Headroom, PoolDepth, ZonePool};

use super::tree::Tree;
use super::*;

fn script(headroom: Headroom) -> Script {
    let mut script =
        Script::rates(&[("acme", 100.0), ("free", 100.0), ("default", 0.0)]).holding(1_000.0);
    script.terms.headroom = Some(headroom);
    script
}

fn shared(rate: f64) -> Headroom {
    Headroom::Shared(per_second(rate))
}

fn client(acme: f64, free: f64) -> Client {
    Client::new(1).offering("acme", acme).offering("free", free)
}

fn settled(script: Script, client: Client) -> Scene {
    let mut scene = Scene::new(script, vec![client]);
    scene.run(10.0);
    scene
}

fn pool(client: &Client) -> ZonePool {
    client.posted().terms().pool.unwrap()
}

fn pool_rate(client: &Client) -> Option<f64> {
    pool(client).rate.rate().map(Rate::per_second)
}

#[test]
fn headroom_gives_clients_a_pool() {
    let mut scene = settled(script(shared(800.0)), client(100.0, 300.0));
    let sent = pool(&scene.clients[0]);
    assert_eq!(pool_rate(&scene.clients[0]), Some(1.5 * 800.0));
    assert!(
        (sent.offered.per_second() - 400.0).abs() < 20.0,
        "of all keys: {sent:?}"
    );
    assert_eq!((sent.depth, sent.burst.as_f64()), (PoolDepth::MIN, 500.0));
    assert!(
        (scene.clients[0].guard("acme") - 150.0).abs() < 1e-9,
        "its own guard has its cap alone"
    );

    scene.controller = Some(script(Headroom::None));
    scene.run(1.0);
    assert_eq!(pool_rate(&scene.clients[0]), None);
    assert!(
        (scene.clients[0].ratio("free") - 2.0 / 3.0).abs() < 1e-3,
        "in overload its rate counts"
    );
}

#[test]
fn tenant_at_its_limit_gets_no_headroom() {
    let limited = script(shared(800.0)).with("acme", |values| {
        values.ratio = Some(ratio_of(0.5));
        values.at_tenant_limit = Some(true);
    });
    let scene = settled(limited, client(400.0, 700.0));
    let client = &scene.clients[0];
    assert!(
        (client.ratio("acme") - 0.75).abs() < 1e-3,
        "its rate counts: {}",
        client.ratio("acme")
    );
    assert_eq!(client.values("acme").at_tenant_limit, Some(true));
    assert_eq!(
        (client.ratio("free"), client.values("free").at_tenant_limit),
        (0.0, Some(false))
    );
}

#[test]
fn holding_zone_shares_what_keys_leave() {
    let mut scene = settled(script(Headroom::None), client(100.0, 300.0));
    assert_eq!(pool_rate(&scene.clients[0]), None);
    scene.controller = None;
    scene.run(5.0);
    let shared = pool_rate(&scene.clients[0]).unwrap();
    assert!(
        (shared - 1.5 * 600.0).abs() < 30.0,
        "of a hold of 1,000: {shared}"
    );
    assert_eq!(
        (
            scene.clients[0].ratio("acme"),
            scene.clients[0].ratio("free")
        ),
        (0.0, 0.0)
    );
    scene.clients[0].offers("acme", 9_000.0);
    scene.run(4.0);
    assert_eq!(pool_rate(&scene.clients[0]), None, "the hold is used up");
    let passing = 9_000.0 * (1.0 - scene.clients[0].ratio("acme"));
    assert!((passing - 700.0).abs() < 10.0, "{passing}");
}

#[test]
fn headroom_parts_below_sum_to_the_whole() {
    let below = |instance, acme, free| {
        Client::new(instance)
            .offering("acme", acme)
            .offering("free", free)
    };
    let clients = vec![below(3, 50.0, 10.0)];
    let mut tree = Tree::new(
        script(shared(800.0)),
        vec![below(1, 20.0, 60.0), below(2, 30.0, 30.0)],
        clients,
    );
    tree.run(10.0);
    let headroom = |tree: &Tree, lower: usize| {
        let board = &tree.lowers[lower].zone.board;
        let headroom = board.get(&bucket()).unwrap().terms().headroom;
        headroom.and_then(Headroom::rate).unwrap().per_second()
    };
    let own = pool_rate(&tree.clients[0]).unwrap() / 1.5;
    for (part, share) in [
        (headroom(&tree, 0), 0.4),
        (headroom(&tree, 1), 0.3),
        (own, 0.3),
    ] {
        let due = 800.0 * (0.9 * share + 0.1 / 3.0);
        assert!((part - due).abs() < 0.05 * due, "{part} instead of {due}");
    }
    assert!((headroom(&tree, 0) + headroom(&tree, 1) + own - 800.0).abs() < 0.01);
    assert!(
        tree.lowers
            .iter()
            .all(|lower| lower.clients[0].ratio("acme") == 0.0)
    );

    tree.controller = None;
    tree.run(5.0);
    let own = pool_rate(&tree.clients[0]).unwrap() / 1.5;
    let sum = headroom(&tree, 0) + headroom(&tree, 1) + own;
    assert!(
        (sum - 800.0).abs() < 20.0,
        "what 200 requests/s leave of the hold: {sum}"
    );
}
