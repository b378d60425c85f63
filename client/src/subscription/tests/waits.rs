//! The time to retry that refusals name: spread at random, and as long as the overload is expected to last.

use std::ops::Range;

use super::guards::{guard, shared_by};
use super::*;

impl TestClient {
    fn waits(&mut self, tenant: &str, n: usize) -> Vec<Duration> {
        let mut waits = Vec::new();
        for _ in 0..1_000 * n {
            if let Verdict::Refuse(refusal) = self.admit(tenant) {
                waits.push(refusal.retry_after());
            }
            if waits.len() == n {
                return waits;
            }
        }
        panic!("only {} requests of {tenant} are refused", waits.len());
    }

    fn pass(&mut self, seconds: f64) {
        for _ in 0..(seconds * 10.0) as u32 {
            self.now = self.now + Duration::from_millis(100);
            self.subscription.on_tick(self.now);
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// Every fourth of the span from 1 to 3 s has about a fourth of the waits.
fn assert_spread(waits: &[Duration], name: &str) {
    let fourth = |wait: &Duration| ((wait.as_secs_f64() - 1.0) * 2.0) as usize;
    let mut counts = [0_usize; 4];
    waits.iter().for_each(|wait| counts[fourth(wait)] += 1);
    let expected = waits.len() / 4;
    assert!(
        counts
            .iter()
            .all(|count| count.abs_diff(expected) < expected / 2),
        "{name}: {counts:?}"
    );
}

#[test]
fn waits_are_spread_under_any_overload() {
    for coin in [Coin::Dithered, Coin::Coherent] {
        for refused in [1.0, 0.999, 0.5, 0.01] {
            let mut client = TestClient::new();
            client.direct(
                Terms {
                    coin,
                    ..shared_by(1, Mode::Enforce)
                },
                &[("default", ratio(refused))],
            );
            assert_spread(
                &client.waits("acme", 400),
                &format!("{coin:?} at {refused}"),
            );
        }
        let mut client = TestClient::new();
        client.direct(
            Terms {
                coin,
                ..shared_by(1, Mode::Enforce)
            },
            &[("default", guard(0.0, 1e9))],
        );
        assert_spread(&client.waits("acme", 400), &format!("{coin:?}, guarded"));
    }
}

#[test]
fn wait_grows_with_overload_without_directives() {
    let mut client = TestClient::new();
    client.enforce(&[("default", ratio(1.0)), ("own", ratio(0.5))]);
    for (passed, span) in [
        (0.0, 1..3),
        (10.0, 8..22),
        (50.0, 50..128),
        (200.0, 120..241),
        (200.0, 120..241),
    ] {
        client.pass(passed);
        let span: Range<Duration> = SECOND * span.start..SECOND * span.end;
        for tenant in ["acme", "own"] {
            let waits = client.waits(tenant, 40);
            assert!(
                waits.iter().all(|wait| span.contains(wait)),
                "{tenant}: {waits:?} outside {span:?}"
            );
        }
    }
}

#[test]
fn directive_that_is_withdrawn_ends_its_overload() {
    let mut client = TestClient::new();
    client.enforce(&[("default", ratio(0.5)), ("own", ratio(0.5))]);
    client.pass(60.0);
    client.enforce(&[("default", ratio(0.5))]);
    assert!(
        client
            .waits("own", 10)
            .iter()
            .all(|wait| *wait > 40 * SECOND),
        "follows its default class"
    );
    client.pass(10.0);
    client.enforce(&[("default", ratio(0.5)), ("own", ratio(0.5))]);
    assert!(
        client
            .waits("own", 10)
            .iter()
            .all(|wait| *wait < 3 * SECOND),
        "a new overload"
    );
}
