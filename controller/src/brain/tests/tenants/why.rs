//! Why a tenant is refused, and what the remedies do once they are in the policy.

use super::*;

fn policy_with(limit: f64, listed: &str) -> Arc<Policy> {
    let policy = enforced_with("").replace("limit: 1000", &format!("limit: {limit}"));
    policy_of(&policy, &tenants(listed, 0))
}

#[test]
fn remedies_do_what_is_said_of_them() {
    let (gold, plain) = ("gold: { weight: 4 }", "plain: { weight: 1 }");
    let offered = [("gold", 1000.0), ("plain", 900.0), ("default", 300.0)];
    let start = || steady(policy_with(1000.0, &format!("{gold}, {plain}")), &offered);
    let why = start().brain.why(&tenant("plain"), None, None).unwrap();
    assert_eq!(
        (&why.counted_as, &why.bucket),
        (&tenant("plain"), &bucket())
    );
    let requests = why.requests.unwrap();
    check_near(requests.ratio(), 0.81, 0.03);
    assert_eq!(
        requests.reasons().first().map(|(reason, _)| *reason),
        Some("overload")
    );
    assert!(
        why.summary.starts_with("plain is refused in api since ") && why.summary.contains(", 8"),
        "{}",
        why.summary
    );
    assert!(
        why.summary
            .contains("limit of 1000/s (the policy); by weight 1 it may pass 1")
    );
    let others: Vec<&str> = why
        .others
        .iter()
        .map(|other| other.tenant.as_str())
        .collect();
    assert_eq!(others, ["gold", "default"]);
    // A floor of 900 would leave others a tenth of what they ask for.
    assert_eq!(why.remedies.len(), 2);
    for remedy in &why.remedies {
        let (setting, rest) = remedy.change.split_once(' ').unwrap();
        let (value, owner) = rest.split_once(" of ").unwrap();
        let changed = match (setting, owner) {
            ("limit", "api") => policy_with(value.parse().unwrap(), &format!("{gold}, {plain}")),
            (_, "plain") => {
                let plain = format!("plain: {{ {setting}: {value} }}");
                policy_with(1000.0, &format!("{gold}, {plain}"))
            }
            other => panic!("{other:?}"),
        };
        let mut fleet = start();
        fleet.brain.on_policy(changed);
        fleet.run(40.0);
        let after = fleet.brain.why(&tenant("plain"), None, None).unwrap();
        let ratio = after.requests.unwrap().ratio();
        check_near(ratio, remedy.refused_after, 0.05);
        let moved = remedy
            .others
            .iter()
            .find(|moved| moved.tenant.as_str() == "gold");
        if let Some(moved) = moved {
            let gold = after
                .others
                .iter()
                .find(|other| other.tenant == moved.tenant);
            check_near(gold.unwrap().requests.ratio(), moved.refused_after, 0.05);
        }
    }
}

#[test]
fn past_moment_is_not_explained_by_the_present_policy() {
    let (plain, offered) = ("plain: { weight: 1 }", [("plain", 2000.0)]);
    let mut fleet = steady(policy_with(1000.0, plain), &offered);
    let then = fleet.brain.why(&tenant("plain"), None, None).unwrap();
    assert_eq!(then.policy_since_s, None);
    fleet.brain.on_policy(policy_with(1800.0, plain));
    fleet.run(30.0);
    let past = fleet.brain.why(&tenant("plain"), None, Some(then.at_s));
    let past = past.unwrap();
    assert!(past.policy_since_s >= Some(then.at_s) && past.allocated_rps.is_none());
    assert!(
        past.summary
            .contains("overload, while another policy was in force"),
        "{}",
        past.summary
    );
    let now = fleet.brain.why(&tenant("plain"), None, None).unwrap();
    assert_eq!(now.policy_since_s, None);
    assert!(now.summary.contains("limit of 1800/s"), "{}", now.summary);
}

#[test]
fn moments_without_a_record_are_named() {
    let fleet = steady(policy_with(1000.0, WEIGHTS), &[("plain", 2000.0)]);
    let why = |name: &str, of: Option<&Bucket>, at_s| {
        let answer = fleet.brain.why(&tenant(name), of, at_s);
        answer.map_err(|error| error.to_string())
    };
    let now = why("plain", None, None).unwrap();
    let before = why("plain", None, Some(now.at_s - 5)).unwrap();
    assert_eq!((before.at_s, before.remedies.len()), (now.at_s, 0));
    let error = why("plain", None, Some(now.at_s - 3_600)).unwrap_err();
    assert!(error.starts_with("that moment is not recorded"), "{error}");
    let error = why("free", None, None).unwrap_err();
    assert!(error.starts_with("free has had no requests"), "{error}");
    let other = Bucket::new("other").unwrap();
    let error = why("plain", Some(&other), None).unwrap_err();
    assert!(error.starts_with("no bucket other had requests"), "{error}");
    let unlisted = why("nobody-listed", Some(&bucket()), None).unwrap();
    assert_eq!(
        (unlisted.counted_as.as_str(), unlisted.requests),
        ("default", None)
    );
}
