//! Random rules and descriptors, compared with a model that tries every rule.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::rules::tree::{Level, Limited, NameOf, Node, Target, TenantOf, Values};

#[derive(Clone, Debug)]
struct Rule {
    key: String,
    values: Values,
    bucket: Option<String>,
    below: Vec<Rule>,
}

/// Few letters, so that values share beginnings.
fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[ab]{0,4}", "[ab\u{e9}]{0,3}"]
}

fn values() -> impl Strategy<Value = Values> {
    prop_oneof![
        text().prop_map(Values::Exactly),
        text()
            .prop_filter("not empty", |text| !text.is_empty())
            .prop_map(Values::From),
        Just(Values::Any),
    ]
}

/// Returns lists of siblings, each for different values.
fn siblings(depth: u32) -> BoxedStrategy<Vec<Rule>> {
    let below = if depth == 0 {
        Just(Vec::new()).boxed()
    } else {
        siblings(depth - 1)
    };
    let rule = ("[kl]", values(), proptest::option::of("[a-z]{6}"), below);
    let rule = rule.prop_map(|(key, values, bucket, below)| Rule {
        key,
        values,
        bucket,
        below,
    });
    let list = proptest::collection::vec(rule, 0..8);
    list.prop_map(|mut list| {
        let mut seen = HashSet::new();
        list.retain(|rule| seen.insert((rule.key.clone(), rule.values.clone())));
        list
    })
    .boxed()
}

fn level(rules: &[Rule]) -> Level {
    let limited = |bucket: &String| {
        let (bucket, tenant) = (
            NameOf::Fixed(bucket.as_str().into()),
            TenantOf::Fixed("default".into()),
        );
        let refusal = RefusalForm::default();
        Target::Limited(Limited {
            rule: 0,
            bucket,
            tenant,
            plan: None,
            cost: 1,
            refusal,
        })
    };
    Level::new(rules.iter().map(|rule| {
        let node = Node {
            target: rule.bucket.as_ref().map(limited),
            next: level(&rule.below),
        };
        (rule.key.clone(), rule.values.clone(), node)
    }))
}

fn model<'a>(rules: &'a [Rule], entries: &[(String, String)]) -> Option<&'a str> {
    let ((key, value), later) = entries.split_first()?;
    let precision = |rule: &&Rule| match &rule.values {
        Values::Exactly(exact) => (exact == value).then_some(usize::MAX),
        Values::From(prefix) => value.starts_with(prefix).then_some(prefix.len()),
        Values::Any => Some(0),
    };
    let of_key = rules.iter().filter(|rule| rule.key == *key);
    let matching = of_key.filter_map(|rule| Some((precision(&rule)?, rule)));
    let (_, rule) = matching.max_by_key(|(precision, _)| *precision)?;
    if later.is_empty() {
        rule.bucket.as_deref()
    } else {
        model(&rule.below, later)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn rule_tree_agrees_with_exhaustive_search(
        rules in siblings(2),
        descriptors in proptest::collection::vec(proptest::collection::vec(("[klm]", text()), 0..4), 1..8),
    ) {
        let tree = level(&rules);
        for entries in descriptors {
            let found = tree.find(entries.iter().map(|(key, value)| (key.as_str(), value.as_str())));
            let bucket = found.map(|target| match target {
                Target::Limited(Limited { bucket: NameOf::Fixed(bucket), .. }) => &**bucket,
                other => panic!("{other:?}"),
            });
            prop_assert_eq!(bucket, model(&rules, &entries), "{:?}", entries);
        }
    }

    #[test]
    fn any_rules_text_is_read_or_located(text in "[a-z:{}\\[\\], \n\"*-]{0,200}") {
        if let Err(error) = read(&text) {
            prop_assert!(!error.faults().is_empty());
        }
    }
}
