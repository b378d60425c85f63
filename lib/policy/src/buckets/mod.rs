//! The policy of buckets: limit, coin, mode, quotas and rollout.

mod gates;
mod limits;
mod pattern;
mod queries;
pub(crate) mod quotas;

pub use gates::RolloutPolicy;
pub use limits::{Bounds, Learned, LimitSource, Prometheus};
pub(crate) use pattern::{BucketKey, Pattern};
pub use queries::{QUERIES_MAX, QueryGate};

use std::collections::BTreeMap;
use std::time::Duration;

use crate::buckets::quotas::Definitions;
use crate::spec::{BucketSpec, Release};
use crate::yaml::{Checked, Field, Number};
use plimsoll_core::decision::{Coin, Mode};
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::{Limit, Rate};
use plimsoll_core::quota::BucketQuotas;

/// The default of `burst_s`: the time's worth of the limit that may be saved up.
pub const BURST_DEFAULT: Duration = Duration::from_millis(250);

/// The longest `burst_s`: more saved up than an hour's worth of a limit is no limit.
const BURST_MAX: Duration = Duration::from_secs(3_600);

/// The policy of one bucket, or of every bucket that a pattern matches.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketPolicy {
    /// The source of the limit.
    pub source: LimitSource,
    /// The limit of each single tenant, regardless of room left in the bucket.
    pub tenant_limit: Option<Rate>,
    /// The time's worth of the limit that may be saved up.
    pub burst: Duration,
    /// The rule for the share of a silent zone.
    pub release: Release,
    /// The coin of clients.
    pub coin: Coin,
    /// A second limit that is only evaluated, alongside the real one.
    pub candidate: Option<Rate>,
    /// The mode as written in the file.
    pub mode: Mode,
    /// The exact quotas that its requests have to pass behind the coin.
    pub quotas: BucketQuotas,
    /// The rollout settings: the policy's rollout block with this bucket's own fields replaced.
    pub rollout: RolloutPolicy,
}

pub(crate) type Buckets = ByBucket<BucketPolicy>;

/// Values by the exact names of buckets and by patterns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ByBucket<T> {
    pub(crate) exact: BTreeMap<Bucket, T>,
    pub(crate) patterns: BTreeMap<Pattern, T>,
}

// === impl BucketPolicy ===

impl BucketPolicy {
    /// The limit that the policy itself states; unknown if a source provides it.
    pub const fn limit(&self) -> Limit {
        match self.source {
            LimitSource::Unlimited => Limit::Unlimited,
            LimitSource::PerSecond(rate) => Limit::PerSecond(rate),
            LimitSource::Learned(_) | LimitSource::Prometheus(_) => Limit::Unknown,
        }
    }

    /// The highest limit that the source can give; `None` without a bound. `until_history` is not considered.
    pub(crate) const fn highest_limit(&self) -> Option<Rate> {
        match &self.source {
            LimitSource::Unlimited => None,
            LimitSource::PerSecond(rate) => Some(*rate),
            LimitSource::Learned(learned) => learned.bounds.max(),
            LimitSource::Prometheus(source) => source.bounds.max(),
        }
    }

    pub(crate) fn read(
        spec: BucketSpec,
        field: &Field<'_>,
        rollout: &RolloutPolicy,
        quotas: &mut Definitions<'_>,
    ) -> Checked<Self> {
        let rate = |name: &str, number: Option<Number>| {
            number.map(|n| field.then(name).rate(n.0)).transpose()
        };
        let second = Duration::from_secs(1);
        Ok(Self {
            source: LimitSource::read(spec.limit, &field.then("limit"))?,
            tenant_limit: rate("tenant_limit", spec.tenant_limit)?,
            burst: match spec.burst_s {
                Some(seconds) => field
                    .then("burst_s")
                    .span_up_to(seconds.0, second, BURST_MAX)?,
                None => BURST_DEFAULT,
            },
            release: spec.release,
            coin: spec.coin,
            candidate: rate("candidate", spec.candidate)?,
            mode: spec.mode,
            quotas: quotas.attach(&spec.quotas, &field.then("quotas"))?,
            rollout: rollout.overridden(&spec.rollout, &field.then("rollout"))?,
        })
    }
}

// === impl ByBucket ===

impl<T> Default for ByBucket<T> {
    fn default() -> Self {
        Self {
            exact: BTreeMap::new(),
            patterns: BTreeMap::new(),
        }
    }
}

impl<T> ByBucket<T> {
    pub(crate) fn insert(&mut self, key: BucketKey, value: T) {
        match key {
            BucketKey::Exact(name) => self.exact.insert(name, value),
            BucketKey::Pattern(pattern) => self.patterns.insert(pattern, value),
        };
    }

    /// Returns the value under the exact name, else under the longest matching pattern.
    pub(crate) fn get(&self, name: &Bucket) -> Option<&T> {
        self.exact
            .get(name)
            .or_else(|| Some(pattern::longest_match(&self.patterns, name)?.1))
    }

    /// Returns all values by their names as written, exact names first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (String, &T)> {
        let exact = self.exact.iter();
        let exact = exact.map(|(name, value)| (name.to_string(), value));
        exact.chain(self.patterns())
    }

    pub(crate) fn patterns(&self) -> impl Iterator<Item = (String, &T)> {
        let patterns = self.patterns.iter();
        patterns.map(|(pattern, value)| (pattern.to_string(), value))
    }

    /// Returns the name or pattern of the entry that [`get`](Self::get) finds.
    pub(crate) fn entry(&self, name: &Bucket) -> Option<String> {
        if self.exact.contains_key(name) {
            return Some(name.to_string());
        }
        Some(pattern::longest_match(&self.patterns, name)?.0.to_string())
    }
}
