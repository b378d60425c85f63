//! The differences between two policies, field by field. An operator reviews them before a release, and the log
//! has them after a reload.

mod effect;
mod fields;
mod guardrails;
mod quotas;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use plimsoll_core::names::{Bucket, Name, Tenant};
use serde::{Deserialize, Serialize};

use self::fields::Fields;
use crate::{BucketPolicy, Policy};

pub use effect::{Offered, Regime};
pub use guardrails::{
    ADMITTED_LOST_MIN, LIMIT_FACTOR_MAX, REASONS_MAX, REFUSED_MORE_MAX, TENANTS_REMOVED_MAX, reasons_to_hold,
};

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The field, such as `buckets.checkout.limit`.
    pub path: String,
    /// The old value; `None` if the field is new.
    pub from: Option<String>,
    /// The new value; `None` if the field was removed.
    pub to: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, from, to } = self;
        match (from, to) {
            (None, to) => write!(f, "+ {path}: {}", to.as_deref().unwrap_or_default()),
            (Some(from), None) => write!(f, "- {path}: {from}"),
            (Some(from), Some(to)) => write!(f, "~ {path}: {from} -> {to}"),
        }
    }
}

/// Returns the differences from `from` to `to`. Linear in both, except for matching names with patterns.
pub fn differences(from: &Policy, to: &Policy) -> Vec<Difference> {
    let mut found = Vec::new();
    compare("", &Fields::of_policy(from), &Fields::of_policy(to), &mut found);
    let names: BTreeSet<&Bucket> =
        from.exact_buckets().chain(to.exact_buckets()).map(|(name, _)| name).collect();
    for name in names {
        // Compares the policy in force for the name, also by a pattern: a removed entry may leave its limit to a
        // pattern.
        if from.bucket(name) == to.bucket(name) && from.entry(name) == to.entry(name) {
            continue;
        }
        let fields = |policy: &Policy| Some(Fields::of_bucket(policy.bucket(name)?, &policy.entry(name)?));
        compare_entry(&format!("buckets.{name}"), fields(from), fields(to), &mut found);
    }
    let by_pattern = |policy| Policy::patterns(policy).collect::<BTreeMap<_, _>>();
    let (from_patterns, to_patterns) = (by_pattern(from), by_pattern(to));
    for pattern in from_patterns.keys().chain(to_patterns.keys()).collect::<BTreeSet<_>>() {
        let fields = |patterns: &BTreeMap<String, &BucketPolicy>| {
            Some(Fields::of_bucket(patterns.get(pattern)?, pattern))
        };
        let path = format!("buckets.{pattern}");
        compare_entry(&path, fields(&from_patterns), fields(&to_patterns), &mut found);
    }
    let names: BTreeSet<&Name> = from.quotas().chain(to.quotas()).map(|quota| &quota.name).collect();
    for name in names {
        let fields = |policy: &Policy| policy.quota(name.as_str()).map(|quota| Fields::of_quota(quota));
        compare_entry(&format!("quotas.{name}"), fields(from), fields(to), &mut found);
    }
    let tenants: BTreeSet<&Tenant> = from.tenants().chain(to.tenants()).map(|(tenant, _)| tenant).collect();
    for tenant in tenants {
        let fields =
            |policy: &Policy| policy.is_listed(tenant).then(|| Fields::of_tenant(policy.tenant(tenant)));
        compare_entry(&format!("tenants.{tenant}"), fields(from), fields(to), &mut found);
    }
    found
}

/// Adds the differences between two versions of a part.
fn compare(path: &str, from: &Fields, to: &Fields, found: &mut Vec<Difference>) {
    let new = to.names().filter(|name| from.get(name).is_none());
    for name in from.names().chain(new) {
        let (one, other) = (from.get(name), to.get(name));
        if one != other {
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            found.push(Difference { path, from: one.cloned(), to: other.cloned() });
        }
    }
}

/// Adds the differences between two versions of a bucket or tenant. One that is new or removed is shown without
/// its defaults.
fn compare_entry(path: &str, from: Option<Fields>, to: Option<Fields>, found: &mut Vec<Difference>) {
    match (from, to) {
        (Some(from), Some(to)) => compare(path, &from, &to, found),
        (from, to) => {
            let part = |fields: Option<Fields>| fields.unwrap_or_default().without_defaults();
            compare(path, &part(from), &part(to), found);
        }
    }
}
