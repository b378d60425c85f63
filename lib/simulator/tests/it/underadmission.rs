//! No tier reports underadmission while the law works as designed.

use plimsoll_simulator::simulate;

use crate::parse_all;

#[test]
fn overload_of_listed_tenants_raises_nothing() {
    for load in [
        "constant: 1.05 L",
        "constant: 3 L",
        "constant: 10 L",
        "steps: [ { at_s: 0, rps: 0.8 L }, { at_s: 15, rps: 10 L } ]",
    ] {
        let text = format!(
            "name: overload\nduration_s: 40\nzones: 1\nclients: 1\n\
             variants: [ {{ name: small, limit: 100 }}, {{ name: large, limit: 1000, zones: 3, clients: 6 }} ]\n\
             policy: {{ buckets: {{ api: {{ limit: 1 L, mode: enforce }} }} }}\n\
             tenants: {{ tenants: {{ default: {{}}, acme: {{}}, idle: {{}} }} }}\n\
             traffic: [ {{ bucket: api, tenant: acme, load: {{ {load} }} }} ]\n"
        );
        for scenario in parse_all(&text).unwrap() {
            for run in simulate(&scenario, 0..2, 1, &|_| {}) {
                assert_eq!(run.underadmitting, [], "{load}, seed {}", run.seed);
            }
        }
    }
}
