//! The reason that a refusal names, and the refusals of a bucket by reason.

use plimsoll_core::decision::Reason;

use super::guards::{guard, shared_by, stopped};
use super::*;

impl TestClient {
    fn reason(&mut self, tenant: &str) -> Reason {
        for _ in 0..10_000 {
            if let Verdict::Refuse(refusal) = self.admit(tenant) {
                return refusal.reason();
            }
        }
        panic!("no request of {tenant} is refused");
    }

    /// Returns the refusals by reason: those carried out, and the others.
    fn by_reason(&mut self) -> [(u64, u64); Reason::ALL.len()] {
        let all = self.subscription.refusals();
        let (_, by_reason) = all
            .into_iter()
            .find(|(bucket, _)| bucket.as_str() == "api")
            .unwrap();
        by_reason.map(|refused| (refused.enforced, refused.would))
    }
}

#[test]
fn refusal_names_its_cause() {
    for coin in [Coin::Dithered, Coin::Coherent] {
        let mut client = TestClient::new();
        let terms = Terms {
            coin,
            ..shared_by(1, Mode::Enforce)
        };
        let keys = [
            ("burst", guard(0.0, 1e9)),
            ("default", ratio(0.5)),
            ("stopped", stopped(ratio(0.5))),
            ("stopped-burst", stopped(guard(0.0, 1e9))),
        ];
        client.direct(terms.clone(), &keys);
        for (tenant, reason) in [
            ("burst", Reason::BurstGuard),
            ("stranger", Reason::ClusterOverload),
            ("stopped", Reason::TenantLimit),
            ("stopped-burst", Reason::TenantLimit),
        ] {
            assert_eq!(client.reason(tenant), reason, "{tenant}, {coin:?}");
        }
        client.direct(
            terms,
            &[
                ("default", ratio(0.5)),
                (
                    "stopped",
                    Values {
                        at_tenant_limit: Some(false),
                        ..ratio(0.5)
                    },
                ),
            ],
        );
        assert_eq!(client.reason("stopped"), Reason::ClusterOverload);
    }
}

#[test]
fn service_rate_refuses_as_cold_start() {
    let mut client = TestClient::new();
    client.subscription.set_cold_rate(api(), rate(1.0));
    assert_eq!(client.reason("acme"), Reason::ColdStart);
    (0..9).for_each(|_| assert_eq!(client.reason("acme"), Reason::ColdStart));
    client.subscription.on_tick(client.now);
    client.guard_class(1, guard(0.0, 1e9));
    assert_eq!(client.reason("acme"), Reason::BurstGuard);
    assert_eq!(
        client.by_reason(),
        [(0, 0), (0, 0), (1, 0), (10, 0), (0, 0), (0, 0)]
    );
}

#[test]
fn refusals_count_by_reason_in_any_mode() {
    for (mode, is_enforced) in [(Mode::Enforce, true), (Mode::Shadow, false)] {
        let mut client = TestClient::new();
        let keys = [
            ("burst", guard(0.0, 1e9)),
            ("default", ratio(1.0)),
            ("stopped", stopped(ratio(1.0))),
        ];
        client.direct(shared_by(1, mode), &keys);
        for (tenant, times) in [("stranger", 10), ("stopped", 20), ("burst", 30)] {
            (0..times).for_each(|_| _ = client.admit(tenant));
        }
        client.subscription.report(client.now);
        let passed = super::guards::depth(0.0) as u64;
        let expected = [10, 20, 30 - passed, 0, 0, 0];
        let expected = expected.map(|n| if is_enforced { (n, 0) } else { (0, n) });
        assert_eq!(client.by_reason(), expected, "{mode}");
        // What was refused before a reason changes keeps the earlier one.
        client.direct(shared_by(1, mode), &[("default", ratio(1.0))]);
        assert_eq!(client.by_reason(), expected, "{mode}");
    }
}
