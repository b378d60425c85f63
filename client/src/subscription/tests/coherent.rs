//! Coherent coins: decisions by the trace of a request, under the key and salt of the fleet.

use super::*;
use crate::hot::decision::Part;
use plimsoll_core::decision::coherent::{Coherence, CoinKey};
use plimsoll_core::decision::trace::TraceId;

fn salted(salt: u64) -> Coherence {
    Coherence {
        key: CoinKey::from_bytes(*b"the fleet's own."),
        salt,
    }
}

fn trace(id: u128) -> TraceId {
    TraceId::new(id).unwrap()
}

fn coherent(coherence: Option<Coherence>) -> Terms {
    Terms {
        coin: Coin::Coherent,
        coherence,
        ..limited(Mode::Enforce)
    }
}

fn due(coherence: Coherence, share: f64) -> Vec<bool> {
    let key = coherence.draw_key();
    let ratio = ratio(share).ratio.unwrap();
    (1..=400)
        .map(|id| plimsoll_core::decision::coin::refuses(ratio, key.draw(trace(id))))
        .collect()
}

impl TestClient {
    fn admit_traced(&mut self, bucket: &str, tenant: &str, id: Option<u128>) -> Verdict {
        let target = self.table.target_by_names(bucket, tenant).unwrap();
        let desk = DecideCtx {
            counters: self.slab.block(0),
            draws: &mut self.draws,
        };
        self.table.decide_traced(target, || id.map(trace), desk)
    }

    fn refusals(&mut self, tenant: &str) -> Vec<bool> {
        (1..=400)
            .map(|id| !self.admit_traced("api", tenant, Some(id)).is_admit())
            .collect()
    }
}

#[test]
fn trace_is_decided_alike_on_every_instance() {
    let expected = due(salted(1), 0.5);
    for name in ["host:1", "host:2"] {
        let mut client = TestClient::named(name);
        client.direct(
            coherent(Some(salted(1))),
            &[("default", ratio(0.5)), ("acme", ratio(0.25))],
        );
        assert_eq!(client.refusals("globex"), expected, "{name}");
        assert_eq!(
            client.refusals("globex"),
            expected,
            "{name}: the second time"
        );
        assert_eq!(client.refusals("acme"), due(salted(1), 0.25));
        let counts = client.subscription.counts();
        let of = |tenant: &str| {
            counts
                .iter()
                .find(|(key, _)| key.tenant.as_str() == tenant)
                .unwrap()
                .1
        };
        let refused = expected.iter().filter(|refused| **refused).count() as u64;
        assert_eq!(
            (of("globex").offered, of("globex").dropped),
            (800, 2 * refused)
        );
    }
}

#[test]
fn shadow_and_guard_apply_to_traced_requests() {
    let expected = due(salted(1), 0.5);
    let refused = expected.iter().filter(|refused| **refused).count() as u64;
    let mut client = TestClient::new();
    client.direct(
        Terms {
            mode: Mode::Shadow,
            ..coherent(Some(salted(1)))
        },
        &[("default", ratio(0.5))],
    );
    assert!(client.refusals("globex").iter().all(|refused| !refused));
    assert_eq!(client.counts().would_dropped, refused);

    // The guard admits fewer than the coin, and a request refused by the coin takes no token.
    let mut client = TestClient::new();
    let guarded = Values {
        guard: Some(rate(100.0)),
        ..ratio(0.5)
    };
    client.direct(
        Terms {
            clients: Some(1),
            ..coherent(Some(salted(1)))
        },
        &[("default", guarded)],
    );
    let passed = client
        .refusals("globex")
        .iter()
        .zip(&expected)
        .filter(|(now, due)| !**now && **due)
        .count();
    assert_eq!(passed, 0, "the guard refuses more, never less");
    let total = client.counts();
    assert_eq!((total.dropped, total.offered), (refused, 400));
    assert!(
        total.guard_dropped > 0 && total.guard_dropped < 400 - refused,
        "{total:?}"
    );
}

#[test]
fn draws_without_a_trace_are_independent() {
    for (terms, id) in [
        (coherent(None), Some(7)),
        (coherent(Some(salted(1))), None),
        (
            Terms {
                coherence: Some(salted(1)),
                coin: Coin::Dithered,
                ..limited(Mode::Enforce)
            },
            Some(7),
        ),
        (
            Terms {
                coherence: Some(salted(1)),
                ..limited(Mode::Enforce)
            },
            Some(7),
        ),
    ] {
        let mut client = TestClient::new();
        client.direct(terms.clone(), &[("default", ratio(0.5))]);
        let refused = (0..400)
            .filter(|_| !client.admit_traced("api", "acme", id).is_admit())
            .count();
        // Ten standard deviations of an independent coin.
        assert!(
            (100..=300).contains(&refused),
            "{refused} of 400, {terms:?}"
        );
    }
}

#[test]
fn trace_is_read_only_when_needed() {
    let asks = |terms, values| {
        let mut client = TestClient::new();
        client.direct(terms, &[("default", values)]);
        let mut reads = 0;
        let target = client.table.target_by_names("api", "acme").unwrap();
        let desk = DecideCtx {
            counters: client.slab.block(0),
            draws: &mut client.draws,
        };
        let _ = client.table.decide_traced(
            target,
            || {
                reads += 1;
                None
            },
            desk,
        );
        reads
    };
    let with_key = coherent(Some(salted(1)));
    assert_eq!(asks(with_key.clone(), ratio(0.5)), 1);
    assert_eq!(
        asks(with_key.clone(), ratio(0.0)),
        0,
        "a ratio of zero needs no draw"
    );
    assert_eq!(asks(with_key, ratio(None)), 0, "no ratio is directed");
    assert_eq!(asks(coherent(None), ratio(0.5)), 0);
    assert_eq!(asks(limited(Mode::Enforce), ratio(0.5)), 0);
}

#[test]
fn latest_salt_applies() {
    let mut client = TestClient::new();
    let with_salt = |client: &mut TestClient, salt| {
        client.direct(coherent(Some(salted(salt))), &[("default", ratio(0.5))]);
        client.refusals("acme")
    };
    assert_eq!(with_salt(&mut client, 2), due(salted(2), 0.5));
    assert_eq!(with_salt(&mut client, 3), due(salted(3), 0.5));
    assert_ne!(due(salted(2), 0.5), due(salted(3), 0.5));
    // An aggregator that is still in an earlier epoch does not bring its salt back.
    assert_eq!(with_salt(&mut client, 2), due(salted(3), 0.5));
    // A fleet that lost its state has another key, possibly with the same salt.
    let other = Coherence {
        key: CoinKey::from_bytes([9; 16]),
        salt: 3,
    };
    client.direct(coherent(Some(other)), &[("default", ratio(0.5))]);
    assert_eq!(client.refusals("acme"), due(other, 0.5));
    // A bucket without a coherent coin ignores traces.
    client.enforce(&[("default", ratio(0.5))]);
    assert_ne!(client.refusals("acme"), due(other, 0.5));
}

#[test]
fn keys_of_a_request_share_its_draw() {
    let mut client = TestClient::new();
    client.table.declare("users").unwrap();
    client.subscription.report(now());
    client.direct(coherent(Some(salted(1))), &[("default", ratio(0.3))]);
    let users = Bucket::new("users").unwrap();
    let of_users = |terms, share| BucketDirective {
        bucket: users.clone(),
        whole: true,
        terms,
        keys: vec![KeyDirective {
            tenant: Tenant::default_class(),
            values: ratio(share),
        }],
    };
    let targets = |client: &TestClient| {
        ["api", "users"].map(|bucket| client.table.target_by_names(bucket, "acme").unwrap())
    };
    let refused = |client: &mut TestClient, trace: &dyn Fn(u128) -> Option<TraceId>| -> Vec<bool> {
        let targets = targets(client);
        let slab = Arc::clone(&client.slab);
        let mut all = Vec::new();
        for id in 1..=400 {
            let desk = DecideCtx {
                counters: slab.block(0),
                draws: &mut client.draws,
            };
            all.push(
                !client
                    .table
                    .decide_parts(
                        &mut targets.map(|target| Part::new(target, 1)),
                        trace(id),
                        desk,
                    )
                    .0
                    .is_admit(),
            );
        }
        all
    };
    for terms in [coherent(Some(salted(1))), limited(Mode::Enforce)] {
        let mut message = client.message(limited(Mode::Enforce), &[]);
        message.buckets = vec![of_users(terms, 0.5)];
        client.receive(message).unwrap();
        assert_eq!(
            refused(&mut client, &|id| Some(trace(id))),
            due(salted(1), 0.5),
            "the strictest decides"
        );
        assert_ne!(refused(&mut client, &|_| None), due(salted(1), 0.5));
    }
}

#[test]
fn fleet_draw_key_is_never_saved() {
    let mut client = TestClient::new();
    client.direct(coherent(Some(salted(1))), &[("default", ratio(0.5))]);
    let snapshot = client.subscription.unsaved().unwrap().1;
    let owner = crate::feed::cache::Owner {
        service: Name::new("shop").unwrap(),
        zone: Zone::new("a").unwrap(),
    };
    let bytes = crate::feed::cache::write(snapshot, &owner, Duration::ZERO);
    let (restored, _) = crate::feed::cache::read(&bytes, &owner).unwrap();
    assert_eq!(
        (
            restored.buckets[0].terms.coin,
            restored.buckets[0].terms.coherence
        ),
        (Coin::Coherent, None)
    );

    let mut later = TestClient::fresh("host:1");
    later.table.declare("api").unwrap();
    later.subscription.restore(restored);
    let refused = later.refusals("acme");
    assert_ne!(refused, due(salted(1), 0.5));
    assert!(
        refused.contains(&true) && refused.contains(&false),
        "drawn independently"
    );
}
