//! Compares the figures of runs with a scenario's expectations.

use std::fmt;

use serde_json::Value;

use super::outcome::{BucketOutcome, TenantOutcome};
use super::series::Run;
use crate::scenario::{
    Expectation, SMALL_TENANT_DROPS, Scenario, TENANT_DEVIATION, TENANT_DROPS, TENANT_LOST,
    of_names, of_tenant,
};

/// Minimum number of seeds for judging 95th percentiles.
pub const P95_SEEDS: usize = 20;

/// Figure with its bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// Name of the bucket.
    pub bucket: String,
    /// Name of the figure.
    pub figure: String,
    /// Minimum and maximum that was expected.
    pub bounds: (f64, f64),
    /// Value of the figure; absent if the runs do not have it.
    pub value: Option<f64>,
    /// Span of the run that the figure covers, in seconds.
    pub window_s: (f64, f64),
}

impl Judgement {
    /// Returns true if the figure has a value within its bounds.
    #[must_use]
    pub fn is_met(&self) -> bool {
        let (min, max) = self.bounds;
        self.value.is_some_and(|value| (min..=max).contains(&value))
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            bucket,
            figure,
            bounds: (min, max),
            value,
            window_s: (from, to),
        } = self;
        write!(f, "{bucket}: {figure} ")?;
        match value {
            Some(value) => write!(f, "is {}", (value * 1e5).round() / 1e5)?,
            None => write!(f, "has no value")?,
        }
        write!(f, ", expected {min} to {max}, from {from} s to {to} s")
    }
}

/// Returns the expectations that the runs of a scenario do not meet.
#[must_use]
pub fn broken(scenario: &Scenario, runs: &[Run]) -> Vec<Judgement> {
    judged(scenario, runs)
        .into_iter()
        .filter(|judgement| !judgement.is_met())
        .collect()
}

/// Returns every bounded figure of a scenario. A 95th percentile is judged from [`P95_SEEDS`] seeds
/// on.
#[must_use]
pub fn judged(scenario: &Scenario, runs: &[Run]) -> Vec<Judgement> {
    let tick = u32::try_from(scenario.tick.as_millis()).ok();
    let (of_all, of_tick): (Vec<&Expectation>, Vec<&Expectation>) = scenario
        .expectations
        .iter()
        .filter(|expectation| expectation.tick_ms.is_none() || expectation.tick_ms == tick)
        .partition(|expectation| expectation.tick_ms.is_none());
    let mut all = Vec::new();
    for expectation in of_all.iter().chain(&of_tick) {
        let replaced = |name: &str| {
            expectation.tick_ms.is_none()
                && of_tick.iter().any(|other| {
                    (other.bucket, other.window_s, other.v)
                        == (expectation.bucket, expectation.window_s, expectation.v)
                        && other.bounds.iter().any(|(bound, ..)| bound == name)
                })
        };
        let judged =
            |name: &str| !replaced(name) && (!name.ends_with(".p95") || runs.len() >= P95_SEEDS);
        let window_s = expectation.window_s.unwrap_or(scenario.window());
        let outcome =
            BucketOutcome::of(scenario, runs, expectation.bucket, window_s, expectation.v);
        for (name, min, max) in expectation.bounds.iter().filter(|(name, ..)| judged(name)) {
            for (figure, value) in values(&outcome, name, expectation.small_tenant_rps) {
                let bucket = scenario.buckets[expectation.bucket].name.to_string();
                all.push(Judgement {
                    bucket,
                    figure,
                    bounds: (*min, *max),
                    value,
                    window_s,
                });
            }
        }
    }
    all
}

/// Returns the named values that a bound covers: one figure, or one of every tenant. A single tenant below
/// `small_tenant_rps` is left out.
fn values(
    outcome: &BucketOutcome,
    name: &str,
    small_tenant_rps: f64,
) -> Vec<(String, Option<f64>)> {
    let of_tenants = |small: bool, figure: fn(&TenantOutcome) -> Option<f64>, word: &str| {
        let tenants = outcome.tenants.iter();
        tenants
            .filter(|(_, tenant)| tenant.offered_rps > 0.0)
            .filter(|(_, tenant)| (tenant.offered_rps < small_tenant_rps) == small)
            .map(|(name, tenant)| (format!("tenants.{name}.{word}"), figure(tenant)))
            .collect()
    };
    match name {
        TENANT_DEVIATION => of_tenants(false, |tenant| tenant.deviation, "deviation"),
        TENANT_DROPS => of_tenants(false, |tenant| tenant.drop_ratio, "drop_ratio"),
        TENANT_LOST => of_tenants(false, |tenant| tenant.lost, "lost"),
        SMALL_TENANT_DROPS => of_tenants(true, |tenant| tenant.drop_ratio, "drop_ratio"),
        _ => {
            let document = serde_json::to_value(outcome).unwrap_or_default();
            let value = match (of_tenant(name), of_names(name)) {
                (Some((tenant, _)), _)
                    if outcome.tenants[tenant].offered_rps < small_tenant_rps =>
                {
                    return Vec::new();
                }
                (Some((tenant, figure)), _) => document["tenants"][tenant][figure].as_f64(),
                (_, Some(("", figure))) => document["names"][figure].as_f64(),
                (_, Some((tenant, figure))) => document["names"][tenant][figure].as_f64(),
                _ => name
                    .split('.')
                    .fold(&document, |value: &Value, part| &value[part])
                    .as_f64(),
            };
            vec![(name.to_owned(), value)]
        }
    }
}
