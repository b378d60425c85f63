//! Changes of the policy during a run, as an operator would edit its files.

use std::sync::Arc;

use plimsoll_policy::{Document, Field, Number, Policy, PolicyFault, PolicyTexts, Source};
use serde::Deserialize;
use serde_json::Value;

use super::TargetBucket;
use super::bounds::{Checked, RPS_MAX, entries, within};
use crate::error::ScenarioError;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeSpec {
    at_s: Number,
    bucket: Option<String>,
    limit: Option<Number>,
    tenant: Option<String>,
    weight: Option<Number>,
}

#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) at_s: f64,
    pub(crate) policy: Arc<Policy>,
    /// Index of the bucket in the scenario, and its new limit; `None` for a weight, or a bucket
    /// without traffic.
    pub(crate) limit: Option<(usize, f64)>,
}

/// Reads the changes. Each applies to the policy after the one before it.
pub(super) fn read(
    specs: Vec<ChangeSpec>,
    field: &Field<'_>,
    policy: &Policy,
    buckets: &[TargetBucket],
    duration_s: f64,
) -> Result<Vec<Change>, ScenarioError> {
    let mut changes: Vec<Change> = Vec::new();
    for (field, spec) in entries(field, specs) {
        let before_s = changes.last().map_or(0.0, |change| change.at_s);
        let at_s = within(spec.at_s, &field.then("at_s"), before_s, duration_s)?;
        let before = changes.last().map_or(policy, |change| &change.policy);
        let (part, path, number) = place(&spec, &field)?;
        let texts = edited(before.texts(), part, &path, number, &field)?;
        let policy = texts.read().map_err(|error| {
            let first = error.faults().first();
            let why = first.map(PolicyFault::summary).unwrap_or_default();
            field.refuse(why, "write a change that leaves the policy valid")
        })?;
        let changed = |bucket: &TargetBucket| Some(bucket.name.as_str()) == spec.bucket.as_deref();
        let limit = buckets
            .iter()
            .position(changed)
            .map(|bucket| (bucket, number));
        changes.push(Change {
            at_s,
            policy: Arc::new(policy),
            limit,
        });
    }
    Ok(changes)
}

/// Returns the file that a change edits, the place of its value there, and the value.
fn place(spec: &ChangeSpec, field: &Field<'_>) -> Checked<(&'static str, [String; 3], f64)> {
    match spec {
        ChangeSpec {
            bucket: Some(bucket),
            limit: Some(limit),
            tenant: None,
            weight: None,
            ..
        } => {
            let limit = within(*limit, &field.then("limit"), 1e-3, RPS_MAX)?;
            Ok((
                "policy",
                ["buckets".to_owned(), bucket.clone(), "limit".to_owned()],
                limit,
            ))
        }
        ChangeSpec {
            bucket: None,
            limit: None,
            tenant: Some(tenant),
            weight: Some(weight),
            ..
        } => {
            let weight = within(*weight, &field.then("weight"), 1e-3, 1e3)?;
            Ok((
                "tenants",
                ["tenants".to_owned(), tenant.clone(), "weight".to_owned()],
                weight,
            ))
        }
        _ => Err(field.refuse(
            "not a change",
            "write { at_s, bucket, limit } or { at_s, tenant, weight }",
        )),
    }
}

fn edited(
    texts: &PolicyTexts,
    part: &str,
    path: &[String; 3],
    number: f64,
    field: &Field<'_>,
) -> Result<PolicyTexts, ScenarioError> {
    let mut texts = serde_json::to_value(texts).map_err(|e| field.refuse(e, ""))?;
    let text = texts[part].as_str().unwrap_or_default();
    let mut file: Value = Document::open(Source { name: part, text })?.parse()?;
    let [top, name, value] = path;
    let Some(Value::Object(entry)) = file.get_mut(top).and_then(|entries| entries.get_mut(name))
    else {
        let why = format!("{part} has no `{name}` under `{top}`");
        return Err(field
            .refuse(why, "name an entry as the policy writes it")
            .into());
    };
    entry.insert(value.clone(), number.into());
    // JSON is YAML.
    texts[part] = file.to_string().into();
    Ok(serde_json::from_value(texts).map_err(|e| field.refuse(e, ""))?)
}
