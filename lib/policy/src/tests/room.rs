//! Policies that no controller, aggregator or client has room for are refused, with the name of the bound.

use super::*;

fn buckets(count: usize) -> String {
    let entries: String = (0..count)
        .map(|at| format!("  b{at}: {{ limit: 1 }}\n"))
        .collect();
    format!("buckets:\n{entries}")
}

fn tenants(count: usize) -> String {
    let entries: String = (1..count).map(|at| format!("  t{at}: {{}}\n")).collect();
    format!("tenants:\n  default: {{}}\n{entries}")
}

fn refused(policy: &str, tenants: &str, at: (usize, usize), path: &str, bound: &str) {
    let error = read(policy, tenants).map(drop).expect_err(bound);
    let fault = &error.faults()[0];
    let (line, column) = at;
    assert_eq!(
        (fault.place, fault.path.as_str()),
        (SourcePlace { line, column }, path),
        "{fault}"
    );
    assert!(
        fault.message.contains(bound) && !fault.hint.is_empty(),
        "{fault}"
    );
}

#[test]
fn buckets_are_accepted_up_to_their_room() {
    let (policy, _) = accepted(&buckets(BUCKETS_MAX), ONE_CLASS_TENANTS);
    assert_eq!(policy.exact_buckets().count(), BUCKETS_MAX);
    let beyond = format!("buckets.b{BUCKETS_MAX}");
    let more = buckets(BUCKETS_MAX + 1);
    refused(
        &more,
        ONE_CLASS_TENANTS,
        (BUCKETS_MAX + 2, 3),
        &beyond,
        "BUCKETS_MAX",
    );
    refused(
        &buckets(11_001),
        ONE_CLASS_TENANTS,
        (BUCKETS_MAX + 2, 3),
        &beyond,
        "10000",
    );
    // A pattern takes a place, too.
    let with_pattern = format!("{}  \"api/*\": {{ limit: 1 }}\n", buckets(BUCKETS_MAX));
    refused(
        &with_pattern,
        ONE_CLASS_TENANTS,
        (BUCKETS_MAX + 2, 3),
        "buckets.api/*",
        "BUCKETS_MAX",
    );
}

#[test]
fn tenants_are_accepted_up_to_their_room() {
    let (policy, _) = accepted("buckets: {}\n", &tenants(TENANTS_MAX));
    assert_eq!(policy.tenants().count(), TENANTS_MAX);
    let beyond = format!("tenants.t{TENANTS_MAX}");
    refused(
        "buckets: {}\n",
        &tenants(TENANTS_MAX + 1),
        (TENANTS_MAX + 2, 3),
        &beyond,
        "TENANTS_MAX",
    );
}

#[test]
fn learning_buckets_are_accepted_up_to_histories() {
    let learned = |count: usize| buckets(count).replace("limit: 1 ", "limit: { learned: {} } ");
    accepted(&learned(LEARNED_MAX), ONE_CLASS_TENANTS);
    let error = read(&learned(LEARNED_MAX + 1), ONE_CLASS_TENANTS).unwrap_err();
    assert!(
        error.to_string().contains("LEARNED_MAX") && error.faults()[0].path.ends_with(".limit"),
        "{error}"
    );
    let pattern = "  'api/*': { limit: { learned: {} } }\n";
    accepted(
        &format!("{}{pattern}", learned(LEARNED_MAX)),
        ONE_CLASS_TENANTS,
    );
}

#[test]
fn tenants_times_buckets_have_room() {
    let most = KEYS_MAX / TENANTS_MAX;
    accepted(&buckets(most), &tenants(TENANTS_MAX));
    refused(
        &buckets(most + 1),
        &tenants(TENANTS_MAX),
        (1, 1),
        "buckets",
        "KEYS_MAX",
    );
    accepted(&buckets(BUCKETS_MAX), &tenants(KEYS_MAX / BUCKETS_MAX));
}
