//! The differences between two policies, and which of them are large enough to be held back until an operator
//! confirms.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{BucketPolicy, Policy, QueryGate};
use plimsoll_core::names::{Bucket, Name};
use plimsoll_core::quantity::{Limit, Rate};

/// The share of the listed tenants that may be removed at once.
pub const TENANTS_REMOVED_MAX: f64 = 0.2;
/// The factor by which a limit may move at once.
pub const LIMIT_FACTOR_MAX: f64 = 2.0;

/// One difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The field, such as `buckets.checkout.limit`.
    pub path: String,
    /// The old value; `None` if the field is new.
    pub from: Option<String>,
    /// The new value; `None` if the field was removed.
    pub to: Option<String>,
    /// The reason why an operator has to confirm it, if so.
    pub drastic: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.from, &self.to) {
            (None, Some(to)) => write!(f, "+ {}: {to}", self.path)?,
            (Some(from), None) => write!(f, "- {}: {from}", self.path)?,
            (from, to) => {
                let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
                write!(f, "~ {}: {} -> {}", self.path, or_none(from), or_none(to))?;
            }
        }
        match &self.drastic {
            Some(why) => write!(f, "   ! {why}"),
            None => Ok(()),
        }
    }
}

/// Returns the differences from `from` to `to`, drastic ones first. Linear in both, except for matching names
/// with patterns.
pub fn differences(from: &Policy, to: &Policy) -> Vec<Difference> {
    let mut found = Differences::default();
    found.note("kill_switch", Some(from.kill_switch()), Some(to.kill_switch()), None);
    found.note("guardrails", Some(from.guardrails()), Some(to.guardrails()), None);
    found.buckets(from, to);
    found.tenants(from, to);
    let mut all = found.0;
    all.sort_by_key(|difference| difference.drastic.is_none());
    all
}

#[derive(Default)]
struct Differences(Vec<Difference>);

impl Differences {
    /// Adds a difference, unless both values are equal.
    fn note<T: ToString + PartialEq>(
        &mut self,
        path: impl Into<String>,
        from: Option<T>,
        to: Option<T>,
        drastic: Option<String>,
    ) {
        if from != to {
            let text = |value: Option<T>| value.map(|value| value.to_string());
            self.0.push(Difference { path: path.into(), from: text(from), to: text(to), drastic });
        }
    }

    fn buckets(&mut self, from: &Policy, to: &Policy) {
        let names: BTreeSet<&Bucket> =
            from.exact_buckets().chain(to.exact_buckets()).map(|(name, _)| name).collect();
        for name in names {
            // Compares the policy in force for the name, also by a pattern: a removed entry may leave its
            // limit to a pattern.
            self.bucket(name.as_str(), from.bucket(name), to.bucket(name));
        }
        let by_pattern = |policy| Policy::patterns(policy).collect::<BTreeMap<_, _>>();
        let (from, to) = (by_pattern(from), by_pattern(to));
        for pattern in from.keys().chain(to.keys()).collect::<BTreeSet<_>>() {
            self.bucket(pattern, from.get(pattern).copied(), to.get(pattern).copied());
        }
    }

    fn bucket(&mut self, name: &str, from: Option<&BucketPolicy>, to: Option<&BucketPolicy>) {
        let path = |field: &str| format!("buckets.{name}.{field}");
        self.note(path("limit"), from.map(limit_text), to.map(limit_text), moved(from, to));
        self.note(path("mode"), from.map(|entry| entry.mode), to.map(|entry| entry.mode), None);
        let tenant_limit = |entry: &BucketPolicy| entry.tenant_limit.map(Rate::per_second);
        let (one, other) = (from.and_then(tenant_limit), to.and_then(tenant_limit));
        let drastic = one.zip(other).and_then(|(one, other)| factor(one, other));
        self.note(path("tenant_limit"), one, other, drastic);
        let candidate = |entry: &BucketPolicy| entry.candidate.map(Rate::per_second);
        self.note(path("candidate"), from.and_then(candidate), to.and_then(candidate), None);
        if let Some((from, to)) = from.zip(to) {
            let (from, to) = (&from.rollout, &to.rollout);
            let gates = path("rollout.require_gates");
            self.note(gates, Some(from.require_gates), Some(to.require_gates), None);
            self.queries(&path("rollout.queries"), &from.queries, &to.queries);
        }
    }

    fn queries(&mut self, path: &str, from: &[QueryGate], to: &[QueryGate]) {
        let by_name = |queries: &[QueryGate]| -> BTreeMap<Name, String> {
            queries.iter().map(|query| (query.name.clone(), query.to_string())).collect()
        };
        let (from, to) = (by_name(from), by_name(to));
        for name in from.keys().chain(to.keys().filter(|name| !from.contains_key(*name))) {
            self.note(format!("{path}.{name}"), from.get(name), to.get(name), None);
        }
    }

    fn tenants(&mut self, from: &Policy, to: &Policy) {
        let listed = from.tenants().count();
        let removed = from.tenants().filter(|(tenant, _)| !to.is_listed(tenant)).count();
        let too_many = (removed as f64 > TENANTS_REMOVED_MAX * listed as f64).then(|| {
            let percent = TENANTS_REMOVED_MAX * 100.0;
            format!("{removed} of {listed} tenants are removed, more than {percent} %")
        });
        let new = to.tenants().filter(|(tenant, _)| !from.is_listed(tenant));
        for (tenant, _) in from.tenants().chain(new) {
            let weight =
                |policy: &Policy| policy.is_listed(tenant).then(|| policy.tenant(tenant).weight.get());
            let drastic = too_many.clone().filter(|_| !to.is_listed(tenant));
            self.note(format!("tenants.{tenant}.weight"), weight(from), weight(to), drastic);
        }
    }
}

fn limit_text(entry: &BucketPolicy) -> String {
    match entry.limit() {
        Limit::PerSecond(rate) => rate.per_second().to_string(),
        Limit::Unlimited => "unlimited".to_owned(),
        Limit::Unknown => "from a source".to_owned(),
    }
}

/// Returns the reason to confirm a change of a limit. A new bucket has no limit that could have changed.
fn moved(from: Option<&BucketPolicy>, to: Option<&BucketPolicy>) -> Option<String> {
    match (from?.limit(), to.map(BucketPolicy::limit)) {
        (Limit::PerSecond(one), Some(Limit::PerSecond(other))) => {
            factor(one.per_second(), other.per_second())
        }
        (Limit::PerSecond(_), None) => Some("the limit is removed".to_owned()),
        (Limit::PerSecond(_), Some(_)) => Some("the limit is no longer a number".to_owned()),
        (Limit::Unlimited, Some(Limit::PerSecond(_))) => Some("the bucket had no limit before".to_owned()),
        _ => None,
    }
}

fn factor(one: f64, other: f64) -> Option<String> {
    let factor = (one / other).max(other / one);
    let how = if other > one { "up" } else { "down" };
    let is_drastic = one != other && factor > LIMIT_FACTOR_MAX;
    is_drastic.then(|| match factor.is_finite() {
        true => format!("{:.1} times {how}, more than {LIMIT_FACTOR_MAX}", factor),
        false => format!("{how} {} 0", if other > one { "from" } else { "to" }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    fn policy(buckets: &str, tenants: &str) -> Policy {
        let text = format!("buckets: {buckets}\n");
        let tenants = format!("tenants: {tenants}\n");
        let source = Source { name: "policy.yaml", text: &text };
        Policy::read(source, Source { name: "tenants.yaml", text: &tenants }).unwrap().0
    }

    const ONE: &str = "{ default: {} }";

    /// The paths of drastic differences.
    fn drastic(from: &str, to: &str) -> Vec<String> {
        let all = differences(&policy(from, ONE), &policy(to, ONE));
        all.into_iter().filter(|difference| difference.drastic.is_some()).map(|d| d.path).collect()
    }

    #[test]
    fn a_limit_may_move_by_a_factor_of_two_and_no_further() {
        for (from, to, is_drastic) in [
            ("100", "200", false),
            ("100", "200.1", true),
            ("100", "50", false),
            ("100", "49.9", true),
            ("100", "0", true),
            ("0", "1", true),
            ("0", "0", false),
            ("100", "unlimited", true),
            ("unlimited", "100", true),
            ("100", "{ learned: {} }", true),
            ("{ learned: {} }", "100", false),
        ] {
            let bucket = |limit: &str| format!("{{ b: {{ limit: {limit} }} }}");
            let due: &[&str] = if is_drastic { &["buckets.b.limit"] } else { &[] };
            assert_eq!(drastic(&bucket(from), &bucket(to)), due, "{from} to {to}");
        }
    }

    #[test]
    fn the_limit_in_force_for_a_name_counts_wherever_it_is_written() {
        let exact = "{ api/a: { limit: 100 }, \"api/*\": { limit: 100 } }";
        assert!(drastic(exact, "{ \"api/*\": { limit: 100 } }").is_empty());
        assert_eq!(drastic(exact, "{ api/a: { limit: 100 } }"), ["buckets.api/*.limit"]);
        assert_eq!(drastic(exact, "{ b: { limit: 1 } }"), ["buckets.api/a.limit", "buckets.api/*.limit"]);
        assert!(
            drastic("{ b: { limit: 1 } }", "{ b: { limit: 1 }, c: { limit: 9, mode: enforce } }").is_empty()
        );
        let tenants = |limit: &str| format!("{{ b: {{ limit: 9, tenant_limit: {limit} }} }}");
        assert_eq!(drastic(&tenants("1"), &tenants("2.5")), ["buckets.b.tenant_limit"]);
        assert!(drastic("{ b: { limit: 9 } }", &tenants("1")).is_empty());
    }

    #[test]
    fn a_fifth_of_the_tenants_may_be_removed_and_no_more() {
        let listed = |names: &[&str]| {
            let all: Vec<String> = names.iter().map(|name| format!("{name}: {{}}")).collect();
            format!("{{ default: {{}}, {} }}", all.join(", "))
        };
        let five = policy("{ b: { limit: 1 } }", &listed(&["a", "b", "c", "d"]));
        for (left, is_drastic) in
            [(vec!["a", "b", "c"], false), (vec!["a", "b", "c", "x", "y"], false), (vec!["a", "b"], true)]
        {
            let to = policy("{ b: { limit: 1 } }", &listed(&left));
            let all = differences(&five, &to);
            assert_eq!(all.iter().any(|d| d.drastic.is_some()), is_drastic, "{left:?}: {all:?}");
        }
    }

    #[test]
    fn an_extra_gate_differs_by_its_name() {
        let bucket = |queries: &str| {
            let text = format!("{{ b: {{ limit: 1, rollout: {{ queries: [ {queries} ] }} }} }}");
            policy(&text, ONE)
        };
        let from = bucket(
            "{ name: a, url: http://p, query: up, max: 1 }, { name: b, url: http://p, query: up, min: 2 }",
        );
        let to = bucket(
            "{ name: b, url: http://p, query: up, min: 0.5 }, { name: c, url: http://p, query: 'x > 1', max: 3 }",
        );
        let said: Vec<String> = differences(&from, &to).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "- buckets.b.rollout.queries.a: up at http://p, maximum of 1",
                "~ buckets.b.rollout.queries.b: up at http://p, minimum of 2 -> up at http://p, minimum of 0.5",
                "+ buckets.b.rollout.queries.c: x > 1 at http://p, maximum of 3",
            ]
        );
    }

    #[test]
    fn a_difference_shows_the_old_and_the_new_value() {
        let from = policy("{ b: { limit: 100, mode: shadow }, c: { limit: 1 } }", ONE);
        let to = policy("{ b: { limit: 1000, mode: enforce }, d: { limit: unlimited } }", ONE);
        let said: Vec<String> = differences(&from, &to).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "~ buckets.b.limit: 100 -> 1000   ! 10.0 times up, more than 2",
                "- buckets.c.limit: 1   ! the limit is removed",
                "~ buckets.b.mode: shadow -> enforce",
                "- buckets.c.mode: shadow",
                "+ buckets.d.limit: unlimited",
                "+ buckets.d.mode: shadow",
            ]
        );
        assert!(differences(&to, &to).is_empty());
    }
}
