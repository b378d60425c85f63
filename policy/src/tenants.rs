//! Who gets how much when there is not enough.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::spec::{FairnessSpec, TenantSpec};
use crate::timestamp::UnixSeconds;
use crate::yaml::Checked;
use crate::yaml::Field;
use plimsoll_core::law::Weight;
use plimsoll_core::names::{DEFAULT_TENANT, Tenant};
use plimsoll_core::quantity::Rate;

/// How often weights and floors enter the law where the policy does not say.
pub const REWEIGHT_INTERVAL_DEFAULT: Duration = Duration::from_secs(5);

/// The floor in requests/s of a `fairness` block that does not say; without such a block it is zero.
const MIN_FLOOR_DEFAULT_RPS: f64 = 5.0;

/// How far above its share a tenant may go for a moment, as a factor: finite, 1 or more.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct BurstMultiplier(f64);

/// A number that is no burst multiplier.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a burst multiplier is a finite number of 1 or more, not {0}")]
pub struct InvalidBurstMultiplier(f64);

/// A factor on a tenant's weight until some point in time. The boosted weight is a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Boost {
    factor: f64,
    weight: Weight,
    until: UnixSeconds,
}

/// What one tenant, or the class of all tenants not named, is entitled to.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantPolicy {
    weight: Weight,
    burst_multiplier: BurstMultiplier,
    notes: Option<String>,
    boost: Option<Boost>,
}

/// How shares are worked out.
#[derive(Clone, Debug, PartialEq)]
pub struct Fairness {
    algorithm: Algorithm,
    reweight_interval: Duration,
    min_floor: Rate,
}

/// The two names of one thing: the long-run shares of deficit round robin are weighted max-min.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// The default.
    #[default]
    DeficitRoundRobin,
    /// The same here.
    WeightedMaxMin,
}

/// The tenants that are listed, the class of the others among them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tenants {
    pub(crate) listed: BTreeMap<Tenant, TenantPolicy>,
    pub(crate) default_class: TenantPolicy,
}

// === impl BurstMultiplier ===

impl BurstMultiplier {
    /// No burst; the value where the policy does not say.
    pub const ONE: Self = Self(1.0);

    /// Validates a burst multiplier.
    ///
    /// # Errors
    /// Below 1, infinite, or not a number.
    pub fn new(factor: f64) -> Result<Self, InvalidBurstMultiplier> {
        if factor.is_finite() && factor >= 1.0 {
            Ok(Self(factor))
        } else {
            Err(InvalidBurstMultiplier(factor))
        }
    }

    /// The factor.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

// === impl Boost ===

impl Boost {
    /// The factor on the weight: finite and above 0.
    #[must_use]
    pub const fn factor(&self) -> f64 {
        self.factor
    }

    /// When the boost ends.
    #[must_use]
    pub const fn until(&self) -> UnixSeconds {
        self.until
    }
}

// === impl TenantPolicy ===

impl TenantPolicy {
    /// The share relative to other tenants, without any boost.
    #[must_use]
    pub const fn weight(&self) -> Weight {
        self.weight
    }

    /// The weight at a point in time in seconds since 1970, a boost that has not ended included.
    #[must_use]
    pub fn weight_at(&self, unix_s: i64) -> Weight {
        self.boost.filter(|boost| unix_s < boost.until.as_secs()).map_or(self.weight, |boost| boost.weight)
    }

    /// How far above its share the tenant may go for a moment.
    #[must_use]
    pub const fn burst_multiplier(&self) -> BurstMultiplier {
        self.burst_multiplier
    }

    /// What the operator noted.
    #[must_use]
    pub fn notes(&self) -> Option<&str> {
        self.notes.as_deref()
    }

    /// The temporary factor on the weight, whether it has ended or not.
    #[must_use]
    pub const fn boost(&self) -> Option<&Boost> {
        self.boost.as_ref()
    }

    pub(crate) fn read(spec: TenantSpec, field: &Field<'_>) -> Checked<Self> {
        let weight = spec.weight.map_or(Ok(Weight::ONE), |n| {
            Weight::new(n.0).map_err(|e| field.then("weight").refuse(e, "only the ratios of weights matter"))
        })?;
        let burst_multiplier = spec.burst_multiplier.map_or(Ok(BurstMultiplier::ONE), |n| {
            BurstMultiplier::new(n.0)
                .map_err(|e| field.then("burst_multiplier").refuse(e, "1 means no burst"))
        })?;
        let boost = match (spec.boost, spec.boost_until) {
            (None, None) => None,
            (Some(factor), Some(until)) => Some(Boost::read(factor.0, &until, weight, field)?),
            // A boost without an end is a weight, and ends that nobody wrote are forgotten.
            (Some(_), None) => {
                let hint = "add `boost_until: 2026-12-01T00:00:00Z`, or change `weight` for good";
                return Err(field.then("boost").refuse("a boost needs an end", hint));
            }
            (None, Some(_)) => {
                let hint = "add `boost: 2.0`, or remove `boost_until`";
                return Err(field.then("boost_until").refuse("there is no boost to end", hint));
            }
        };
        Ok(Self { weight, burst_multiplier, notes: spec.notes, boost })
    }
}

impl Boost {
    fn read(factor: f64, until: &str, weight: Weight, field: &Field<'_>) -> Checked<Self> {
        let boost = field.then("boost");
        boost.not_negative(factor)?;
        let boosted = Weight::new(weight.get() * factor).map_err(|e| {
            boost
                .refuse(format_args!("times the weight {}: {e}", weight.get()), "choose a factor such as 2.0")
        })?;
        let until = UnixSeconds::parse(until)
            .map_err(|e| field.then("boost_until").refuse(e, "write YYYY-MM-DDThh:mm:ssZ"))?;
        Ok(Self { factor, weight: boosted, until })
    }
}

// === impl Fairness ===

impl Default for Fairness {
    /// What holds without a `fairness` block: no floor.
    fn default() -> Self {
        Self {
            algorithm: Algorithm::default(),
            reweight_interval: REWEIGHT_INTERVAL_DEFAULT,
            min_floor: Rate::ZERO,
        }
    }
}

impl Fairness {
    /// What the policy calls the way shares are worked out.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// How often weights and floors enter the law; never zero.
    #[must_use]
    pub const fn reweight_interval(&self) -> Duration {
        self.reweight_interval
    }

    /// The rate below which a tenant is never dropped, while all such floors together can be met.
    #[must_use]
    pub const fn min_floor(&self) -> Rate {
        self.min_floor
    }

    pub(crate) fn read(spec: &FairnessSpec, field: &Field<'_>) -> Checked<Self> {
        let interval = field.then("reweight_interval_s");
        let reweight_interval = match spec.reweight_interval_s {
            None => REWEIGHT_INTERVAL_DEFAULT,
            Some(seconds) => interval.span(seconds.0, Duration::from_secs(1))?,
        };
        if reweight_interval.is_zero() {
            return Err(
                interval.refuse("an interval of nothing", "write a number of seconds above 0, such as 5")
            );
        }
        let min_floor = spec.min_floor_rps.map_or(MIN_FLOOR_DEFAULT_RPS, |n| n.0);
        Ok(Self {
            algorithm: spec.algorithm,
            reweight_interval,
            min_floor: field.then("min_floor_rps").rate(min_floor)?,
        })
    }
}

// === impl Tenants ===

impl Tenants {
    /// `None` when the class [`DEFAULT_TENANT`] is not listed.
    pub(crate) fn new(listed: BTreeMap<Tenant, TenantPolicy>) -> Option<Self> {
        let default_class = listed.get(DEFAULT_TENANT)?.clone();
        Some(Self { listed, default_class })
    }

    pub(crate) fn get(&self, name: &Tenant) -> &TenantPolicy {
        self.listed.get(name).unwrap_or(&self.default_class)
    }
}
