//! The fields of a policy as text, under the names and in the units of the files.
//!
//! Each part is taken apart by a pattern that names all of its fields, so that the compiler reports a new field
//! that is missing here.

use std::fmt;
use std::time::Duration;

use plimsoll_core::decision::{Coin, Mode};
use plimsoll_core::law::Weight;
use plimsoll_core::quantity::Rate;
use plimsoll_core::quota::{BucketQuotas, Quota};
use plimsoll_core::rollout::{CanaryGate, ShadowGate};
use serde::Serialize;

use crate::buckets::BURST_DEFAULT;
use crate::buckets::quotas::every_text;
use crate::{
    Boost, BucketPolicy, BurstMultiplier, Fairness, Learned, LimitSource, Policy, Prometheus, Release,
    RolloutPolicy, TenantPolicy,
};

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// The entry of the policy that covers a bucket: its own name, or a pattern.
const ENTRY: &str = "entry";

/// The fields of one part of a policy by their names.
#[derive(Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// The settings that apply to the policy as a whole.
    pub(super) fn of_policy(policy: &Policy) -> Self {
        let Policy {
            kill_switch,
            guardrails,
            buckets: _,
            quotas: _,
            tenants: _,
            fairness,
            hash: _,
            texts: _,
        } = policy;
        let Fairness { algorithm, reweight_interval, min_floor } = fairness;
        let mut fields = Self::default();
        fields.add("kill_switch", kill_switch);
        fields.add("guardrails", if *guardrails { "on" } else { "off" });
        fields.add("fairness.algorithm", Word(algorithm));
        fields.add("fairness.reweight_interval_s", InUnits(*reweight_interval, SECOND));
        fields.add("fairness.min_floor_rps", min_floor.per_second());
        fields
    }

    /// The settings of a bucket or pattern that is covered by `entry`.
    pub(super) fn of_bucket(bucket: &BucketPolicy, entry: &str) -> Self {
        let BucketPolicy { source, tenant_limit, burst, release, coin, candidate, mode, quotas, rollout } =
            bucket;
        let mut fields = Self::default();
        fields.add(ENTRY, entry);
        fields.add_source(source);
        fields.add_rate("tenant_limit", *tenant_limit);
        fields.add("burst_s", InUnits(*burst, SECOND));
        fields.add("release", Word(release));
        fields.add("coin", Word(coin));
        fields.add_rate("candidate", *candidate);
        fields.add("mode", mode);
        if !quotas.is_empty() {
            let names: Vec<&str> = quotas.iter().map(|quota| quota.name.as_str()).collect();
            fields.add("quotas", names.join(", "));
        }
        fields.add_rollout(rollout);
        fields
    }

    /// The settings of an exact quota.
    pub(super) fn of_quota(quota: &Quota) -> Self {
        let Quota { name: _, rate, key, on_store_error, .. } = quota;
        let mut fields = Self::default();
        fields.add("max", quota.rate.max());
        fields.add("refill", rate.refill());
        fields.add("every", every_text(*rate));
        fields.add("key", Word(key));
        fields.add("on_store_error", Word(on_store_error));
        fields.add("lease", quota.lease());
        fields
    }

    /// The settings of a tenant.
    pub(super) fn of_tenant(tenant: &TenantPolicy) -> Self {
        let TenantPolicy { weight, burst_multiplier, notes, boost } = tenant;
        let mut fields = Self::default();
        fields.add("weight", weight.get());
        fields.add("burst_multiplier", burst_multiplier.get());
        if let Some(Boost { factor, weight: _, until }) = boost {
            fields.add("boost", factor);
            fields.add("boost_until", until);
        }
        if let Some(notes) = notes {
            fields.add("notes", notes);
        }
        fields
    }

    fn add_source(&mut self, source: &LimitSource) {
        match source {
            LimitSource::Unlimited => self.add("limit", "unlimited"),
            LimitSource::PerSecond(rate) => self.add("limit", rate.per_second()),
            LimitSource::Learned(Learned { percentile, days, headroom, bounds, until_history }) => {
                self.add("limit", "learned");
                self.add("limit.learned.percentile", percentile);
                self.add("limit.learned.days", days);
                self.add("limit.learned.headroom", headroom);
                self.add_rate("limit.learned.min", bounds.min());
                self.add_rate("limit.learned.max", bounds.max());
                self.add_rate("limit.learned.until_history", *until_history);
            }
            LimitSource::Prometheus(Prometheus { url, query, bounds }) => {
                self.add("limit", "prometheus");
                self.add("limit.prometheus.url", url);
                self.add("limit.prometheus.query", query);
                self.add_rate("limit.prometheus.min", bounds.min());
                self.add_rate("limit.prometheus.max", bounds.max());
            }
        }
    }

    fn add_rollout(&mut self, rollout: &RolloutPolicy) {
        let RolloutPolicy {
            canary_percent,
            auto_promote,
            shadow: ShadowGate { min: shadow_min, window: shadow_window, max_drop_ratio: shadow_ratio },
            canary: CanaryGate { min, window, max_drop_ratio, max_p99_delta },
            min_samples,
            require_gates,
            queries,
        } = rollout;
        self.add("rollout.canary_percent", canary_percent.get());
        self.add("rollout.auto_promote", auto_promote);
        self.add("rollout.shadow.min_days", InUnits(*shadow_min, DAY));
        self.add("rollout.shadow.window_h", InUnits(*shadow_window, HOUR));
        self.add("rollout.shadow.max_drop_ratio", shadow_ratio);
        self.add("rollout.canary.min_hours", InUnits(*min, HOUR));
        self.add("rollout.canary.window_min", InUnits(*window, MINUTE));
        self.add("rollout.canary.max_drop_ratio", max_drop_ratio);
        self.add("rollout.canary.max_p99_delta_ms", InUnits(*max_p99_delta, MILLISECOND));
        self.add("rollout.min_samples", min_samples);
        self.add("rollout.require_gates", require_gates);
        for query in queries.iter() {
            self.add(format!("rollout.queries.{}", query.name), query);
        }
    }

    fn add(&mut self, name: impl Into<String>, value: impl ToString) {
        self.0.push((name.into(), value.to_string()));
    }

    fn add_rate(&mut self, name: &str, rate: Option<Rate>) {
        rate.into_iter().for_each(|rate| self.add(name, rate.per_second()));
    }

    /// Returns the value of a field.
    pub(super) fn get(&self, name: &str) -> Option<&String> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    /// The names of the fields.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Removes the fields that have their defaults, as they say little of a part that is new or removed.
    pub(super) fn without_defaults(mut self) -> Self {
        let defaults = [Self::of_bucket(&default_bucket(), ""), Self::of_tenant(&default_tenant())];
        self.0.retain(|(name, value)| match name.as_str() {
            "limit" | "mode" | "weight" => true,
            ENTRY => false,
            name => defaults.iter().all(|part| part.get(name) != Some(value)),
        });
        self
    }
}

/// A bucket without settings of its own.
fn default_bucket() -> BucketPolicy {
    BucketPolicy {
        source: LimitSource::Unlimited,
        tenant_limit: None,
        burst: BURST_DEFAULT,
        release: Release::default(),
        coin: Coin::default(),
        candidate: None,
        mode: Mode::default(),
        quotas: BucketQuotas::default(),
        rollout: RolloutPolicy::default(),
    }
}

/// A tenant without settings of its own.
const fn default_tenant() -> TenantPolicy {
    TenantPolicy { weight: Weight::ONE, burst_multiplier: BurstMultiplier::ONE, notes: None, boost: None }
}

/// A value of an enumeration as its word in the files.
struct Word<'a, T>(&'a T);

impl<T: Serialize> fmt::Display for Word<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.serialize(f)
    }
}

/// A span of time in a unit, without the noise of binary fractions.
struct InUnits(Duration, Duration);

impl fmt::Display for InUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = self.0.as_secs_f64() / self.1.as_secs_f64();
        write!(f, "{}", (units * 1e9).round() / 1e9)
    }
}
