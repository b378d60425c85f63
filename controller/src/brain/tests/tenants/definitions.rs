//! Definitions of exact quotas: sent to every aggregator with the policy, changed by a reload, ended by an empty list.

use plimsoll_core::quota::BucketQuotas;

use super::*;

/// The quotas that each zone holds for the bucket, by name and size; `None` before any were sent.
fn held(fleet: &Fleet) -> Vec<Option<Vec<(String, u64)>>> {
    let shown = |quotas: &BucketQuotas| {
        quotas
            .iter()
            .map(|quota| (quota.name.to_string(), quota.rate.max()))
            .collect::<Vec<_>>()
    };
    let of_zone = |zone: &Scripted| {
        zone.board
            .get(&bucket())
            .and_then(|posted| posted.terms().quotas.as_ref().map(shown))
    };
    fleet.zones.iter().map(of_zone).collect()
}

fn with_quota(max: u64) -> Arc<Policy> {
    let text = enforced_with(", quotas: [calls]");
    policy(&format!(
        "{text}quotas: {{ calls: {{ max: {max}, every: 1h }}, other: {{ max: 1, every: 1s }} }}\n"
    ))
}

#[test]
fn aggregators_are_sent_every_quota_change() {
    let mut fleet = Fleet::new(with_quota(10), two_zones());
    fleet.run(5.0);
    let calls = |max| Some(vec![("calls".to_owned(), max)]);
    assert_eq!(held(&fleet), [calls(10), calls(10)]);
    fleet.brain.on_policy(with_quota(20));
    fleet.run(1.0);
    assert_eq!(held(&fleet), [calls(20), calls(20)]);
    fleet.brain.on_policy(enforced());
    fleet.run(1.0);
    assert_eq!(
        held(&fleet),
        [Some(vec![]), Some(vec![])],
        "a bucket without quotas ends the earlier ones"
    );
}

#[test]
fn status_lists_the_quotas_of_a_bucket() {
    let quotas = settled(with_quota(10)).bucket_status().quotas;
    assert_eq!(
        serde_json::to_value(quotas).unwrap(),
        serde_json::json!([{
            "name": "calls", "max": 10, "refill": 10, "every": "1h",
            "key": "tenant", "on_store_error": "allow_bounded", "lease": 1,
        }])
    );
}

#[test]
fn status_shows_quotas_of_tenants_and_plans() {
    let text = enforced_with(", quotas: [calls, pages]")
        + "quotas: { calls: { max: 9, every: 1h }, pages: { max: 5, every: 1h } }\n";
    let tenants = "
plans: { free: { quotas: { calls: { max: 2 } } } }
tenants: { default: {}, acme: { quotas: { calls: { max: 70 } } }, tiny: { plan: free }, plain: {} }
";
    let mut fleet = Fleet::new(policy_of(&text, tenants), two_zones());
    fleet.run(5.0);
    let grants = fleet.bucket_status().grants;
    let shown = grants.iter().map(|(entry, of)| {
        let quotas = of.quotas.iter();
        let quotas: Vec<_> = quotas.map(|of| (of.name.as_str(), of.max)).collect();
        (entry.as_str(), quotas)
    });
    let expected = [
        ("%~free", vec![("calls", 2)]),
        ("acme", vec![("calls", 70)]),
        ("tiny", vec![("calls", 2)]),
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
    let held = fleet.zones[0].board.get(&bucket()).unwrap().terms();
    let held = held.quotas.clone().unwrap().of_tenant("jo", "free");
    assert_eq!(held[0].rate.max(), 2, "aggregators are sent the numbers");
}
