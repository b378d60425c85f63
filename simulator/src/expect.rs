//! What is expected of a scenario, and which expectations were broken.

use std::collections::BTreeMap;
use std::fmt;

use plimsoll_core::policy::Field;
use serde_json::Value;

use crate::check::{Checked, within};
use crate::outcome::BucketOutcome;
use crate::scenario::{Protected, Scenario};
use crate::series::Run;
use crate::spec::{ExpectSpec, Few, Judgement};

/// With fewer seeds than this a 95th percentile says nothing, so it is not judged.
pub const P95_SEEDS: usize = 20;

/// The figures of a bucket that may be bounded, as the document has them.
const FIGURES: [&str; 14] = [
    "admitted_rps",
    "conformance_burst_s",
    "error_60s",
    "goodput_lost",
    "long_run_error",
    "mean_ratio",
    "offered_rps",
    "p99_10s",
    "p99_1s",
    "settle_s.median",
    "settle_s.p95",
    "would_drop_ratio",
    "worst_10s",
    "worst_1s",
];
/// Every tenant's deviation.
const TENANT_DEVIATION: &str = "tenant_deviation";
/// The offered rate from which on deviations are judged; a tenant below it must have `small_tenant_drop_ratio`.
const SMALL_TENANT: &str = "small_tenant_rps";
const SMALL_TENANT_DROPS: &str = "small_tenant_drop_ratio";
const OF_TENANT: [&str; 5] = ["offered_rps", "admitted_rps", "share_rps", "deviation", "drop_ratio"];

/// One set of bounds for one bucket.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expectation {
    /// Index into the scenario's buckets.
    bucket: usize,
    window_s: Option<(f64, f64)>,
    v: bool,
    /// Holds at this tick only, in ms, and there instead of the same bound of all ticks.
    tick_ms: Option<u32>,
    small_tenant_rps: f64,
    bounds: Vec<(String, f64, f64)>,
}

/// A figure that is not within its bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Broken {
    /// Whose.
    pub bucket: String,
    /// Which.
    pub figure: String,
    /// The least and the most that was expected.
    pub bounds: (f64, f64),
    /// What it is; absent where there is no such figure.
    pub value: Option<f64>,
    /// In which span of the run, in seconds.
    pub window_s: (f64, f64),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bucket, figure, bounds: (min, max), value, window_s: (from, to) } = self;
        write!(f, "{bucket}: {figure} ")?;
        match value {
            Some(value) => write!(f, "is {value:.4}")?,
            None => write!(f, "has no value")?,
        }
        write!(f, ", expected {min} to {max}, from {from} s to {to} s")
    }
}

/// Reads the expectations of some buckets.
pub(crate) fn read(
    spec: &BTreeMap<String, Few<ExpectSpec>>,
    field: &Field<'_>,
    buckets: &[Protected],
    duration_s: f64,
    tick_ms: Option<u32>,
    into: &mut Vec<Expectation>,
) -> Checked<()> {
    for (name, Few(some, listed)) in spec {
        let field = field.then(name);
        let Some(bucket) = buckets.iter().position(|bucket| bucket.name.as_str() == name) else {
            let known: Vec<&str> = buckets.iter().map(|bucket| bucket.name.as_str()).collect();
            let hint = format!("there is traffic for: {}", known.join(", "));
            return Err(field.refuse_name(format_args!("no traffic goes to a bucket `{name}`"), &hint));
        };
        for (index, spec) in some.iter().enumerate() {
            let field = if *listed { field.then(&index.to_string()) } else { field.clone() };
            into.push(one(spec, &field, bucket, buckets, duration_s, tick_ms)?);
        }
    }
    Ok(())
}

fn one(
    spec: &ExpectSpec,
    field: &Field<'_>,
    bucket: usize,
    buckets: &[Protected],
    duration_s: f64,
    tick_ms: Option<u32>,
) -> Checked<Expectation> {
    let mut expectation =
        Expectation { bucket, window_s: None, v: false, tick_ms, small_tenant_rps: 0.0, bounds: Vec::new() };
    for (name, judgement) in spec {
        let field = field.then(name);
        let pair = match judgement {
            Judgement::Numbers(numbers) => match numbers[..] {
                [from, to] => Some((from, to)),
                _ => None,
            },
            Judgement::Number(_) | Judgement::Flag(_) => None,
        };
        match (name.as_str(), judgement, pair) {
            ("v", Judgement::Flag(v), _) => expectation.v = *v,
            ("v", ..) => return Err(field.refuse("not a truth value", "write `true` or `false`")),
            (SMALL_TENANT, Judgement::Number(rps), _) => {
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
                // Without a word on which of the two, the median is meant.
                let name = if name == "settle_s" { "settle_s.median" } else { name };
                expectation.bounds.push((name.to_owned(), min.0, max.0));
            }
            (name, ..) if name == "window_s" || name == SMALL_TENANT || is_figure(name, &buckets[bucket]) => {
                let hint =
                    if name == SMALL_TENANT { "write a number" } else { "write two numbers: [least, most]" };
                return Err(field.refuse("not of the right form", hint));
            }
            (name, ..) => {
                let others = [TENANT_DEVIATION, SMALL_TENANT, SMALL_TENANT_DROPS, "window_s", "v"];
                let known = [&FIGURES[..], &others[..]].concat().join(", ");
                let hint = format!("known: {known}, tenants.NAME.deviation and so on");
                return Err(field.refuse_name(format_args!("no figure is called `{name}`"), &hint));
            }
        }
    }
    Ok(expectation)
}

fn is_figure(name: &str, bucket: &Protected) -> bool {
    FIGURES.contains(&name)
        || [TENANT_DEVIATION, SMALL_TENANT_DROPS, "settle_s"].contains(&name)
        || of_tenant(name).is_some_and(|(tenant, figure)| {
            OF_TENANT.contains(&figure) && bucket.tenants.iter().any(|known| known.as_str() == tenant)
        })
}

/// The tenant and the figure of `tenants.NAME.FIGURE`; names may have dots in them, figures of tenants have none.
fn of_tenant(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("tenants.")?.rsplit_once('.')
}

/// Which expectations the runs of a scenario break. A 95th percentile is judged from [`P95_SEEDS`] seeds on.
#[must_use]
pub fn broken(scenario: &Scenario, runs: &[Run]) -> Vec<Broken> {
    let tick = u32::try_from(scenario.tick.as_millis()).ok();
    let (of_all, of_tick): (Vec<&Expectation>, Vec<&Expectation>) = scenario
        .expectations
        .iter()
        .filter(|expectation| expectation.tick_ms.is_none() || expectation.tick_ms == tick)
        .partition(|expectation| expectation.tick_ms.is_none());
    let mut broken = Vec::new();
    for expectation in of_all.iter().chain(&of_tick) {
        let replaced = |name: &str| {
            expectation.tick_ms.is_none()
                && of_tick.iter().any(|other| {
                    (other.bucket, other.window_s, other.v)
                        == (expectation.bucket, expectation.window_s, expectation.v)
                        && other.bounds.iter().any(|(bound, ..)| bound == name)
                })
        };
        let judged = |name: &str| !replaced(name) && (!name.ends_with(".p95") || runs.len() >= P95_SEEDS);
        let window_s = expectation.window_s.unwrap_or(scenario.window());
        let outcome = BucketOutcome::of(scenario, runs, expectation.bucket, window_s, expectation.v);
        for (name, min, max) in expectation.bounds.iter().filter(|(name, ..)| judged(name)) {
            for (figure, value) in values(&outcome, name, expectation.small_tenant_rps) {
                if !value.is_some_and(|value| (*min..=*max).contains(&value)) {
                    let bucket = scenario.buckets[expectation.bucket].name.to_string();
                    broken.push(Broken { bucket, figure, bounds: (*min, *max), value, window_s });
                }
            }
        }
    }
    broken
}

/// The values that a bound is about: one figure, or one of every tenant.
fn values(outcome: &BucketOutcome, name: &str, small_tenant_rps: f64) -> Vec<(String, Option<f64>)> {
    let of_tenants = |small: bool, figure: fn(&crate::outcome::TenantOutcome) -> Option<f64>, word: &str| {
        let tenants = outcome.tenants.iter();
        tenants
            .filter(|(_, tenant)| tenant.offered_rps > 0.0)
            .filter(|(_, tenant)| (tenant.offered_rps < small_tenant_rps) == small)
            .map(|(name, tenant)| (format!("tenants.{name}.{word}"), figure(tenant)))
            .collect()
    };
    match name {
        TENANT_DEVIATION => of_tenants(false, |tenant| tenant.deviation, "deviation"),
        SMALL_TENANT_DROPS => of_tenants(true, |tenant| tenant.drop_ratio, "drop_ratio"),
        _ => {
            let document = serde_json::to_value(outcome).unwrap_or_default();
            let value = match of_tenant(name) {
                Some((tenant, figure)) => document["tenants"][tenant][figure].as_f64(),
                None => name.split('.').fold(&document, |value: &Value, part| &value[part]).as_f64(),
            };
            vec![(name.to_owned(), value)]
        }
    }
}
