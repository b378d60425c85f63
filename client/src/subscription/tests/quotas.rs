//! Exact quotas of directives, and the limiter without a store for them.

use plimsoll_core::quota::{BucketQuotas, OnStoreError, Quota, QuotaKey, QuotaRate};

use super::*;

fn with_quota(max: u64) -> Terms {
    let rate = QuotaRate::new(max, max, 3_600_000).unwrap();
    let name = Name::new("api_calls").unwrap();
    let quota = Quota::new(name, rate, QuotaKey::Tenant, OnStoreError::AllowBounded, 1).unwrap();
    let quotas = BucketQuotas::new(vec![Arc::new(quota)]).unwrap();
    Terms {
        quotas: Some(quotas),
        ..limited(Mode::Enforce)
    }
}

fn without_quotas() -> Terms {
    Terms {
        quotas: Some(BucketQuotas::default()),
        ..limited(Mode::Enforce)
    }
}

fn sizes(client: &TestClient) -> Vec<u64> {
    let place = client.table.known_bucket("api");
    let quotas = place.and_then(|place| client.table.quotas.get(place.bucket));
    let quotas = quotas.unwrap_or_default();
    quotas.iter().map(|quota| quota.rate.max()).collect()
}

#[test]
fn quotas_hold_until_a_directive_changes_them() {
    let mut client = TestClient::new();
    assert_eq!(sizes(&client), [0_u64; 0]);
    client.direct(with_quota(10), &[]);
    assert_eq!(sizes(&client), [10]);
    client.direct(limited(Mode::Shadow), &[]);
    assert_eq!(sizes(&client), [10], "absent is unchanged");
    client.direct(with_quota(20), &[]);
    assert_eq!(sizes(&client), [20]);
    client.direct(without_quotas(), &[]);
    assert_eq!(sizes(&client), [0_u64; 0]);
}

#[test]
fn quotas_refuse_by_their_buckets_mode() {
    let mut client = TestClient::new();
    for (mode, is_enforced) in [(Mode::Enforce, true), (Mode::Shadow, false)] {
        for limit in [Limit::Unlimited, Limit::Unknown] {
            client.direct(
                Terms {
                    limit,
                    mode,
                    ..with_quota(10)
                },
                &[("default", ratio(None))],
            );
            for tenant in ["default", "a"] {
                let target = client.table.target_by_names("api", tenant).unwrap();
                assert_eq!(
                    target.word().is_enforced(),
                    is_enforced,
                    "{tenant}, {limit:?}, {mode}"
                );
            }
            assert_eq!(
                client.admit("a"),
                Verdict::Admit,
                "the coin refuses nothing"
            );
        }
    }
}

#[test]
fn restarted_client_restores_quotas() {
    let mut client = TestClient::new();
    client.direct(with_quota(10), &[]);
    let (_, snapshot) = client.subscription.unsaved().unwrap();
    let mut restarted = TestClient::fresh("host:1");
    restarted.table.declare("api").unwrap();
    restarted.subscription.restore(snapshot);
    assert_eq!(sizes(&restarted), [10]);
}

#[test]
fn quotas_without_store_are_a_temporary_problem() {
    let mut client = TestClient::new();
    client.direct(with_quota(10), &[]);
    let problem = SetupProblem::QuotasWithoutStore {
        bucket: "api".to_owned(),
    };
    assert_eq!(client.table.problems.list(), std::slice::from_ref(&problem));
    assert!(
        problem.to_string().contains("PLIMSOLL_QUOTA_STORE"),
        "{problem}"
    );
    client.direct(without_quotas(), &[]);
    assert_eq!(client.table.problems.list(), []);

    let mut client = TestClient::new();
    #[cfg(feature = "testing")]
    client
        .table
        .layered
        .set_store(crate::testing::QuotaLedger::default());
    client.direct(with_quota(10), &[]);
    assert_eq!(client.table.problems.list(), [], "the limiter has a store");
}
