//! Targets for a sidecar: the rules that an operator writes, and the descriptors that a proxy sends.

use std::sync::LazyLock;

use plimsoll_client::Limiter;
use plimsoll_policy::Source;
use plimsoll_sidecar::limits::Limits;
use plimsoll_sidecar::rules::{ENTRIES_MAX, ENTRY_BYTES_MAX, Found, Rules};

/// The example of the reference, which has every field.
static EXAMPLE: LazyLock<&str> = LazyLock::new(|| {
    let (_, from) = include_str!("../../../../docs/reference/sidecar-rules.md")
        .split_once("```yaml\n")
        .unwrap();
    from.split_once("```").unwrap().0
});

static RULES: LazyLock<Rules> = LazyLock::new(|| {
    Rules::read(Source {
        name: "rules.yaml",
        text: &EXAMPLE,
    })
    .unwrap()
    .0
});

/// Valid rules can be applied, and compare any descriptor.
pub(super) fn rules(data: &[u8]) {
    let Ok(source) = Source::from_bytes("rules.yaml", data) else {
        return;
    };
    match Rules::read(source) {
        Ok((rules, _)) => {
            // The words of the file itself are the likeliest to match.
            let words: Vec<&str> = source.text.split_whitespace().collect();
            for pair in words.windows(2).take(ENTRIES_MAX) {
                check(&rules, pair[0], &[(pair[0], pair[1])]);
            }
            let (limiter, _feed) = Limiter::builder("sidecar")
                .buckets_max(1_000)
                .build_detached()
                .unwrap();
            let has_room = rules.buckets().count() < 1_000;
            assert!(
                Limits::new(limiter, rules).is_ok() || !has_room,
                "rules that were read can be used"
            );
        }
        Err(error) => assert!(!error.faults().is_empty(), "a refusal has a reason"),
    }
}

pub(super) fn rules_seeds() -> Vec<Vec<u8>> {
    vec![EXAMPLE.as_bytes().to_vec()]
}

/// Reads a domain and entries, in lines, within the bounds of a request.
pub(super) fn descriptor(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text
        .lines()
        .map(|line| line.get(..ENTRY_BYTES_MAX).unwrap_or(line));
    let domain = lines.next().unwrap_or_default();
    let entries: Vec<(&str, &str)> = lines
        .take(ENTRIES_MAX)
        .map(|line| line.split_once('=').unwrap_or((line, "")))
        .collect();
    check(&RULES, domain, &entries);
    check(&Rules::built_in(), domain, &entries);
}

/// Compares a descriptor with rules: the answer has the names of the file or of the descriptor,
/// within bounds.
fn check(rules: &Rules, domain: &str, entries: &[(&str, &str)]) {
    let Found::Limited(ask) = rules.descriptor(domain, entries.iter().copied()) else {
        return;
    };
    assert!((1..=10_000).contains(&ask.cost));
    let is_of_file = rules.buckets().any(|bucket| bucket.as_str() == ask.bucket);
    assert!(
        is_of_file || rules.takes(ask.bucket),
        "no other bucket: {ask:?}"
    );
    let is_of_descriptor =
        entries.iter().any(|(_, value)| *value == ask.tenant) || ask.tenant.contains('|');
    assert!(
        is_of_descriptor || plimsoll_core::names::check_name(&ask.tenant).is_ok(),
        "no other tenant: {ask:?}"
    );
}
