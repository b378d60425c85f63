//! Exact quotas pass through a zone unchanged: immediately, on hold, and after a restart. So do the
//! counts of refusals.

use std::sync::Arc;

use plimsoll_core::names::Name;
use plimsoll_core::quota::{BucketQuotas, OnStoreError, Quota, QuotaKey, QuotaRate};

use super::*;

fn quotas(max: u64) -> BucketQuotas {
    let rate = QuotaRate::new(max, max, 3_600_000).unwrap();
    let name = Name::new("api_calls").unwrap();
    let quota = Quota::new(name, rate, QuotaKey::Tenant, OnStoreError::Deny, 1).unwrap();
    BucketQuotas::new(vec![Arc::new(quota)]).unwrap()
}

fn script(quotas: Option<BucketQuotas>) -> Script {
    let mut script = Script::rates(&[("acme", 500.0), ("default", 0.0)]);
    script.terms.quotas = quotas;
    script
}

fn held(client: &Client) -> Option<BucketQuotas> {
    client
        .board
        .get(&bucket())
        .and_then(|posted| posted.terms().quotas.clone())
}

#[test]
fn clients_receive_the_controllers_quotas_unchanged() {
    let mut scene = Scene::new(
        script(Some(quotas(10))),
        vec![Client::new(1).offering("acme", 100.0)],
    );
    scene.run(3.0);
    assert_eq!(held(&scene.clients[0]), Some(quotas(10)));

    // Directives of later roll-ups leave them out.
    scene.controller = Some(script(None));
    scene.run(3.0);
    assert_eq!(held(&scene.clients[0]), Some(quotas(10)));

    scene.controller = None;
    scene.run(5.0);
    assert!(scene.is_on_hold());
    scene.clients.push(Client::new(2).offering("acme", 100.0));
    scene.run(1.0);
    assert_eq!(
        held(&scene.clients[1]),
        Some(quotas(10)),
        "a client that joins a zone on hold has them too"
    );

    scene.reconnect(script(Some(BucketQuotas::default())));
    scene.run(3.0);
    for client in &scene.clients {
        assert_eq!(held(client), Some(BucketQuotas::default()));
    }
}

#[test]
fn clients_keep_quotas_while_their_aggregator_restarts() {
    let mut scene = Scene::new(
        script(Some(quotas(10))),
        vec![Client::new(1).offering("acme", 100.0)],
    );
    scene.run(3.0);
    scene.zone = zone();
    scene.clients[0].reconnect(2);
    scene.controller = None;
    scene.run(1.0);
    assert_eq!(
        held(&scene.clients[0]),
        Some(quotas(10)),
        "a zone without a controller changes nothing"
    );
    scene.reconnect(script(Some(quotas(20))));
    scene.run(3.0);
    assert_eq!(held(&scene.clients[0]), Some(quotas(20)));
}
