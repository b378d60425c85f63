//! The expectations of a scenario: bounds of figures by bucket.

use std::collections::BTreeMap;

use super::TargetBucket;
use super::bounds::{Checked, within};
use super::spec::{BoundSpec, ExpectSpec, OneOrMany};
use plimsoll_policy::Field;

/// Figures of a bucket that may be bounded, named as in the outcome.
const FIGURES: [&str; 16] = [
    "admitted_rps",
    "conformance_burst_s",
    "error_60s",
    "goodput_lost",
    "long_run_error",
    "lost",
    "mean_ratio",
    "offered_rps",
    "optimum_ratio",
    "p99_10s",
    "p99_1s",
    "settle_s.median",
    "settle_s.p95",
    "would_drop_ratio",
    "worst_10s",
    "worst_1s",
];
pub(crate) const TENANT_DEVIATION: &str = "tenant_deviation";
pub(crate) const TENANT_DROPS: &str = "tenant_drop_ratio";
pub(crate) const TENANT_LOST: &str = "tenant_lost";
const OF_TENANTS: [&str; 4] = [
    TENANT_DEVIATION,
    TENANT_DROPS,
    TENANT_LOST,
    SMALL_TENANT_DROPS,
];
/// Minimum offered rate for judging tenants; smaller tenants are judged only by
/// `small_tenant_drop_ratio`.
const SMALL_TENANT: &str = "small_tenant_rps";
pub(crate) const SMALL_TENANT_DROPS: &str = "small_tenant_drop_ratio";
const OF_TENANT: [&str; 7] = [
    "offered_rps",
    "admitted_rps",
    "share_rps",
    "deviation",
    "drop_ratio",
    "lost",
    "own_limit",
];
/// Figures of names, over all names and over one tenant's.
const OF_NAMES: [&str; 5] = ["min", "p1", "mean", "p99", "beyond"];

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expectation {
    /// Index into the scenario's buckets.
    pub(crate) bucket: usize,
    /// `None` for the whole run after the warm-up.
    pub(crate) window_s: Option<(f64, f64)>,
    /// True if requests count as admitted only if enforcement would admit them.
    pub(crate) v: bool,
    /// Tick of the controller in ms, or `None` for any. Bounds for one tick replace those of the same
    /// figure for any tick.
    pub(crate) tick_ms: Option<u32>,
    pub(crate) small_tenant_rps: f64,
    /// Figure, minimum and maximum.
    pub(crate) bounds: Vec<(String, f64, f64)>,
}

pub(crate) fn read(
    spec: &BTreeMap<String, OneOrMany<ExpectSpec>>,
    field: &Field<'_>,
    buckets: &[TargetBucket],
    duration_s: f64,
    tick_ms: Option<u32>,
    into: &mut Vec<Expectation>,
) -> Checked<()> {
    for (name, OneOrMany { values, is_list }) in spec {
        let field = field.then(name);
        let Some(bucket) = buckets
            .iter()
            .position(|bucket| bucket.name.as_str() == name)
        else {
            let known: Vec<&str> = buckets.iter().map(|bucket| bucket.name.as_str()).collect();
            let hint = format!("buckets with traffic: {}", known.join(", "));
            return Err(field.refuse_name(format_args!("bucket `{name}` has no traffic"), &hint));
        };
        for (index, spec) in values.iter().enumerate() {
            let field = if *is_list {
                field.then(&index.to_string())
            } else {
                field.clone()
            };
            into.push(one(spec, &field, bucket, buckets, duration_s, tick_ms)?);
        }
    }
    Ok(())
}

fn one(
    spec: &ExpectSpec,
    field: &Field<'_>,
    bucket: usize,
    buckets: &[TargetBucket],
    duration_s: f64,
    tick_ms: Option<u32>,
) -> Checked<Expectation> {
    let mut expectation = Expectation {
        bucket,
        window_s: None,
        v: false,
        tick_ms,
        small_tenant_rps: 0.0,
        bounds: Vec::new(),
    };
    for (name, judgement) in spec {
        let field = field.then(name);
        let pair = match judgement {
            BoundSpec::Numbers(numbers) => match numbers[..] {
                [from, to] => Some((from, to)),
                _ => None,
            },
            BoundSpec::Number(_) | BoundSpec::Flag(_) => None,
        };
        match (name.as_str(), judgement, pair) {
            ("v", BoundSpec::Flag(v), _) => expectation.v = *v,
            ("v", ..) => return Err(field.refuse("not a truth value", "write `true` or `false`")),
            (SMALL_TENANT, BoundSpec::Number(rps), _) => {
                expectation.small_tenant_rps = within(*rps, &field, 0.0, 1e9)?;
            }
            ("window_s", _, Some((from, to))) => {
                let from = within(from, &field, 0.0, duration_s - 0.1)?;
                expectation.window_s = Some((from, within(to, &field, from + 0.1, duration_s)?));
            }
            (name, _, Some((min, max))) if is_figure(name, &buckets[bucket]) => {
                if min.0.is_nan() || max.0.is_nan() || min.0 > max.0 {
                    return Err(field.refuse("no value can be within", "write [least, most]"));
                }
                // The default is the median.
                let name = if name == "settle_s" {
                    "settle_s.median"
                } else {
                    name
                };
                expectation.bounds.push((name.to_owned(), min.0, max.0));
            }
            (name, ..)
                if name == "window_s"
                    || name == SMALL_TENANT
                    || is_figure(name, &buckets[bucket]) =>
            {
                let hint = if name == SMALL_TENANT {
                    "write a number"
                } else {
                    "write two numbers: [least, most]"
                };
                return Err(field.refuse("not of the right form", hint));
            }
            (name, ..) => {
                let others = [SMALL_TENANT, "window_s", "v"];
                let known = [&FIGURES[..], &OF_TENANTS[..], &others[..]]
                    .concat()
                    .join(", ");
                let hint = format!("known: {known}, tenants.NAME.deviation, names.p99 and so on");
                return Err(field.refuse_name(format_args!("no figure is called `{name}`"), &hint));
            }
        }
    }
    Ok(expectation)
}

fn is_figure(name: &str, bucket: &TargetBucket) -> bool {
    FIGURES.contains(&name)
        || OF_TENANTS.contains(&name)
        || name == "settle_s"
        || of_tenant(name).is_some_and(|(tenant, figure)| {
            OF_TENANT.contains(&figure)
                && bucket.tenants.iter().any(|known| known.as_str() == tenant)
        })
        || of_names(name).is_some_and(|(tenant, figure)| {
            let known = |at: usize| {
                bucket.names[at] > 0 && (tenant.is_empty() || bucket.tenants[at].as_str() == tenant)
            };
            OF_NAMES.contains(&figure) && (0..bucket.tenants.len()).any(known)
        })
}

/// Splits `tenants.NAME.FIGURE`; names may contain dots, figures of tenants do not.
pub(crate) fn of_tenant(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("tenants.")?.rsplit_once('.')
}

/// Splits `names.FIGURE` and `names.NAME.FIGURE`.
pub(crate) fn of_names(name: &str) -> Option<(&str, &str)> {
    let name = name.strip_prefix("names.")?;
    Some(name.rsplit_once('.').unwrap_or(("", name)))
}
