//! The differences between two policies, field by field. An operator reviews them before a release, and the log
//! has them after a reload.

mod effect;
mod forecast;
mod guardrails;
mod quotas;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::yaml::Document;
use crate::{Policy, Source};

pub use effect::{Offered, Regime};
pub use forecast::{FORECAST_MAX, Forecast, Shift, Shifts, forecast};
pub use guardrails::{
    ADMITTED_LOST_MIN, CATALOGUE_CHANGED_MAX, LIMIT_FACTOR_MAX, REASONS_MAX, REFUSED_MORE_MAX,
    TENANTS_REMOVED_MAX, reasons_to_hold,
};

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// The field, such as `buckets.checkout.limit`, or `catalogue`.
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

/// Returns the differences from `from` to `to`, as they are written in the files, in the order of paths.
pub fn differences(from: &Policy, to: &Policy) -> Vec<Difference> {
    let of_catalogue = to.catalogue_changes(from).shown();
    let (from, to) = (values(from), values(to));
    let paths: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    let differing = paths
        .into_iter()
        .filter(|path| from.get(*path) != to.get(*path));
    differing
        .map(|path| Difference {
            path: path.clone(),
            from: from.get(path).cloned(),
            to: to.get(path).cloned(),
        })
        .chain(of_catalogue)
        .collect()
}

fn values(policy: &Policy) -> BTreeMap<String, String> {
    let texts = policy.texts();
    let documents =
        [&texts.policy, &texts.tenants].map(|text| Document::open(Source { name: "", text }));
    // Both were read before, so neither has a fault.
    documents
        .iter()
        .flatten()
        .flat_map(|document| document.root().values())
        .collect()
}
