//! Damaged policies: no text panics, and every fault has its place.

use proptest::prelude::*;

use super::*;

/// Lines that nearly form a policy, so that some combinations are valid.
fn nearly_a_policy() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        any::<f64>().prop_map(|n| format!("{n}")),
        any::<f64>().prop_map(|n| format!("{n:e}")),
        Just(".nan".to_owned()),
        Just("-.inf".to_owned()),
        Just("1e999".to_owned()),
        Just("unlimited".to_owned()),
        Just(String::new()),
        (0.0..1e6).prop_map(|n| format!("{n}")),
    ];
    let field = prop_oneof![
        Just("limit"),
        Just("burst_s"),
        Just("tenant_limit"),
        Just("candidate"),
        Just("mode"),
        Just("limit: { learned: { min"),
    ];
    proptest::collection::vec((field, number), 0..5).prop_map(|fields| {
        let mut text = "buckets:\n  b:\n    mode: shadow\n".to_owned();
        for (field, number) in fields {
            let close = if field.contains('{') { " } }" } else { "" };
            text.push_str(&format!("    {field}: {number}{close}\n"));
        }
        text
    })
}

fn finite(policy: &Policy) -> bool {
    let whole = |r: Rate| (Rate::ZERO..=Rate::MAX).contains(&r);
    policy.entries().all(|(_, b)| {
        b.limit().per_second().is_none_or(whole)
            && b.tenant_limit.is_none_or(whole)
            && b.candidate.is_none_or(whole)
            && match &b.source {
                LimitSource::Learned(l) => {
                    l.percentile.is_finite()
                        && l.headroom.is_finite()
                        && l.bounds.min().is_none_or(whole)
                        && l.bounds.max().is_none_or(whole)
                }
                _ => true,
            }
    })
}

proptest! {
    #[test]
    fn no_text_panics(policy in "\\PC{0,200}", tenants in "[ \\n\\t:{}\\[\\]&*!|>'\"%@`#,?a-f0-9.~-]{0,200}") {
        let _ = read(&policy, &tenants);
        let _ = read(&tenants, &policy);
    }

    #[test]
    fn a_damaged_policy_does_not_panic_and_every_fault_has_its_place(
        at in 0..FULL_POLICY.len(),
        cut in 0..40_usize,
        put in "[ \\n:{}\\[\\]&*!'\"#,a-f0-9.~-]{0,10}",
    ) {
        let mut text = FULL_POLICY.to_owned();
        text.replace_range(at..(at + cut).min(FULL_POLICY.len()), &put);
        if let Err(error) = read(&text, FULL_TENANTS) {
            prop_assert!(!error.faults().is_empty() && error.faults().len() <= FAULTS_MAX);
            for fault in error.faults() {
                prop_assert!(fault.place.line >= 1 && fault.place.line <= text.lines().count() + 1, "{}", fault);
                prop_assert!(fault.place.column >= 1 && !fault.hint.is_empty());
            }
        }
    }

    #[test]
    fn no_number_that_is_accepted_is_infinite_or_negative(text in nearly_a_policy()) {
        if let Ok((policy, _)) = read(&text, ONE_CLASS_TENANTS) {
            prop_assert!(finite(&policy), "{}", text);
        }
    }
}
