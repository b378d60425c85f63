//! The checks of a list of rules: what could never apply is an error at the start, and not a limit that is missing.

use super::error::{KEYS_MAX, RulesError};
use super::pattern::PathPattern;
use super::rule::Rule;

#[derive(Clone, Debug)]
pub(super) struct Checked {
    pub(super) rule: Rule,
    pub(super) path: Option<PathPattern>,
    /// The rule for errors: its number in the list, from 1 on, and its parts.
    pub(super) name: String,
    /// Index in the list as the service wrote it.
    index: usize,
}

impl Checked {
    fn new(index: usize, rule: Rule) -> Result<Self, RulesError> {
        let name = rule.describe(index + 1);
        let path = rule
            .path
            .as_ref()
            .map(|(kind, text)| PathPattern::parse(*kind, text));
        let path = path.transpose().map_err(|fault| RulesError::Path {
            rule: name.clone(),
            fault,
        })?;
        if rule.methods.as_ref().is_some_and(Vec::is_empty) {
            return Err(RulesError::NoMethods { rule: name });
        }
        let has_condition = path.is_some() || rule.methods.is_some();
        if rule.is_otherwise && has_condition {
            return Err(RulesError::OtherwiseWithCondition { rule: name });
        }
        if rule.bucket.is_none() && rule.cost.is_some() {
            return Err(RulesError::UnlimitedWithCost { rule: name });
        }
        if let Some(fault) = fault_of_also(&rule) {
            return Err(RulesError::Also { rule: name, fault });
        }
        Ok(Self {
            rule,
            path,
            name,
            index,
        })
    }

    /// Returns true if this rule matches every request that `other` matches. Never true by mistake.
    fn covers(&self, other: &Self) -> bool {
        let of_path = self.path.as_ref().is_none_or(|path| {
            path.is_everything() || other.path.as_ref().is_some_and(|other| path.covers(other))
        });
        let of_methods = self.rule.methods.as_ref().is_none_or(|methods| {
            let others = other.rule.methods.as_ref();
            others.is_some_and(|others| others.iter().all(|method| methods.contains(method)))
        });
        of_path && of_methods
    }
}

fn fault_of_also(rule: &Rule) -> Option<&'static str> {
    const _: () = assert!(KEYS_MAX == 8);
    let is_plain = |other: &Rule| {
        let has_condition = other.path.is_some() || other.methods.is_some() || other.is_otherwise;
        other.bucket.is_some() && other.also.is_empty() && !has_condition
    };
    if rule.bucket.is_none() && (rule.tenant.is_some() || !rule.also.is_empty()) {
        Some(
            "an unlimited request counts for no bucket: remove `tenant` and `also`, or use `Rule::bucket`",
        )
    } else if rule.also.len() >= KEYS_MAX {
        Some("a request counts for at most 8 buckets: remove some of `also`")
    } else if !rule.also.iter().all(is_plain) {
        Some(
            "a rule in `also` is a bucket with a tenant and a cost: remove its conditions and its own `also`, and use \
             `Rule::bucket`",
        )
    } else {
        None
    }
}

pub(super) fn check(rules: &[Rule]) -> Result<Vec<Checked>, RulesError> {
    let (checked, faults) = review(rules);
    match faults.into_iter().next() {
        Some((_, error)) => Err(error),
        None if checked.is_empty() => Err(RulesError::Empty),
        None => Ok(checked),
    }
}

/// Returns the well-formed rules in their order of precedence, and the fault of each faulty rule with its index in
/// the list. A rule that never applies is in both.
pub(super) fn review(rules: &[Rule]) -> (Vec<Checked>, Vec<(usize, RulesError)>) {
    let mut faults = Vec::new();
    let mut checked = Vec::with_capacity(rules.len());
    for (index, rule) in rules.iter().enumerate() {
        match Checked::new(index, rule.clone()) {
            Ok(rule) => checked.push(rule),
            Err(error) => faults.push((index, error)),
        }
    }
    // A stable order: only rules for the rest move.
    checked.sort_by_key(|checked| checked.rule.is_otherwise);
    faults.extend(never_applied(&checked).map(|(rule, error)| (rule.index, error)));
    (checked, faults)
}

fn never_applied(checked: &[Checked]) -> impl Iterator<Item = (&Checked, RulesError)> {
    checked.iter().enumerate().filter_map(|(at, later)| {
        let earlier = checked
            .iter()
            .take(at)
            .find(|earlier| earlier.covers(later))?;
        let is_equal = later.covers(earlier);
        let (rule, earlier) = (later.name.clone(), earlier.name.clone());
        let error = match is_equal {
            true => RulesError::Duplicate { rule, earlier },
            false => RulesError::Unreachable { rule, earlier },
        };
        Some((later, error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    #[test]
    fn inapplicable_rule_error_has_a_remedy() {
        let a = || Rule::bucket("a");
        let none: [Method; 0] = [];
        for (rules, expected) in [
            (
                vec![],
                "the list of rules is empty, so that no request is limited: add a rule, such as Rule::otherwise(\"rest\")",
            ),
            (
                vec![a().path("/a"), a().path("/b").methods(none)],
                "rule 2 (bucket `a`, path `/b`, methods ): the list of methods is empty, so that no request matches: name \
                 one, or leave `methods` out for all",
            ),
            (
                vec![a().path("/orders/*")],
                "rule 1 (bucket `a`, path `/orders/*`): `*` alone is no wildcard: write .prefix(\"/orders\") for the path \
                 and all below it, or .path(\"/orders/{*rest}\") for those below it alone; a literal `*` takes .exact(..)",
            ),
            (
                vec![a().path("/*")],
                "rule 1 (bucket `a`, path `/*`): `*` alone is no wildcard: write .prefix(\"/\") for the path \
                 and all below it, or .path(\"/{*rest}\") for those below it alone; a literal `*` takes .exact(..)",
            ),
            (
                vec![a().exact("/orders?all=1")],
                "rule 1 (bucket `a`, exact `/orders?all=1`): a path has no query: remove `?` and what follows it; a literal \
                 `?` is written `%3F`",
            ),
            (
                vec![a().path("/orders"), Rule::bucket("b").path("/orders")],
                "rule 2 (bucket `b`, path `/orders`): rule 1 (bucket `a`, path `/orders`) matches the same requests and \
                 applies first: remove one of the two",
            ),
            (
                vec![a(), Rule::unlimited().exact("/healthz")],
                "rule 2 (unlimited, exact `/healthz`): it never applies, because rule 1 (bucket `a`) matches all its \
                 requests first: list the narrower rule first",
            ),
            (
                vec![Rule::otherwise("rest"), a()],
                "rule 1 (bucket `rest` otherwise): rule 2 (bucket `a`) matches the same requests and applies first: remove \
                 one of the two",
            ),
            (
                vec![
                    Rule::otherwise("rest"),
                    a().path("/a"),
                    Rule::otherwise("more"),
                ],
                "rule 3 (bucket `more` otherwise): rule 1 (bucket `rest` otherwise) matches the same requests and applies \
                 first: remove one of the two",
            ),
            (
                vec![Rule::otherwise("rest").path("/a")],
                "rule 1 (bucket `rest` otherwise, path `/a`): `Rule::otherwise` takes all other requests and no \
                 condition: use `Rule::bucket` for a condition",
            ),
            (
                vec![Rule::unlimited().path("/a").cost(|_| 2)],
                "rule 1 (unlimited, path `/a`): an unlimited request has no cost: remove `cost`, or use `Rule::bucket`",
            ),
            (
                vec![a().path("/a").also(a().also(a()))],
                "rule 1 (bucket `a`, path `/a`, also bucket `a`, also bucket `a`): a rule in `also` is a bucket with a tenant \
                 and a cost: remove its conditions and its own `also`, and use `Rule::bucket`",
            ),
            (
                vec![(0..8).fold(Rule::otherwise("a"), |rule, _| rule.also(a()))],
                &format!(
                    "rule 1 (bucket `a` otherwise{}): a request counts for at most 8 buckets: remove some of `also`",
                    ", also bucket `a`".repeat(8)
                ),
            ),
        ] {
            assert_eq!(check(&rules).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn every_list_fault_has_its_rule_index() {
        let a = || Rule::bucket("a");
        let rules = [
            Rule::otherwise("rest"),
            a().path("/a"),
            a().path("b"),
            a().prefix("/a"),
            a().exact("/a"),
            a().methods([]),
            Rule::otherwise("more"),
        ];
        let (_, faults) = review(&rules);
        let indexes: Vec<usize> = faults.iter().map(|(index, _)| *index).collect();
        assert_eq!(indexes, [2, 5, 4, 6], "{faults:?}");
        let first = check(&rules).unwrap_err();
        assert_eq!(Some(&first), faults.first().map(|(_, error)| error));
    }

    #[test]
    fn only_covering_rules_make_others_unreachable() {
        let (get, both) = ([Method::GET], [Method::GET, Method::PUT]);
        let rule = || Rule::bucket("a");
        for (earlier, later, is_reachable) in [
            (rule().prefix("/a"), rule().path("/a/{id}"), false),
            (rule().prefix("/"), rule().methods(get.clone()), false),
            (rule().prefix("/"), rule(), false),
            (
                rule().path("/{id}"),
                rule().exact("/a").methods(get.clone()),
                false,
            ),
            (rule().path("/a/{id}"), rule().path("/a/{other}"), false),
            (
                rule().methods(both.clone()),
                rule().path("/a").methods(get.clone()),
                false,
            ),
            (
                rule().prefix("/a").methods(both.clone()),
                rule().prefix("/a/b").methods(get.clone()),
                false,
            ),
            (
                rule().prefix("/a").methods(get.clone()),
                rule().prefix("/a").methods(both.clone()),
                true,
            ),
            (
                rule().prefix("/a").methods(get.clone()),
                rule().prefix("/a"),
                true,
            ),
            (rule().path("/a/{id}"), rule().prefix("/a"), true),
            (rule().path("/a/{*rest}"), rule().prefix("/a"), true),
            (rule().path("/{*rest}"), rule(), true),
            (rule().exact("/a"), rule().exact("/b"), true),
        ] {
            assert_eq!(
                check(&[earlier.clone(), later.clone()]).is_ok(),
                is_reachable,
                "{earlier:?} {later:?}"
            );
        }
    }
}
