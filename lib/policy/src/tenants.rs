//! Tenants and fairness: weights, boosts, bursts and floors, used when a bucket is overloaded.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::spec::{Algorithm, FairnessSpec, TenantSpec};
use crate::timestamp::UnixSeconds;
use crate::yaml::{Checked, Field};
use plimsoll_core::law::Weight;
use plimsoll_core::names::{DEFAULT_TENANT, Tenant};
use plimsoll_core::quantity::Rate;

/// Default interval between updates of weights and floors in the law.
pub const REWEIGHT_INTERVAL_DEFAULT: Duration = Duration::from_secs(5);

/// The default floor in requests/s of a `fairness` block; without such a block the floor is zero.
const MIN_FLOOR_DEFAULT_RPS: f64 = 5.0;

/// Factor on a tenant's share during a burst: from 1 to 1,000,000.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct BurstMultiplier(f64);

/// A number that cannot be a burst multiplier.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a burst multiplier is 1 or more and at most 1000000, not {0}")]
pub struct InvalidBurstMultiplier(f64);

/// A temporary factor on a tenant's weight. The boosted weight is a valid weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Boost {
    /// The factor on the weight: finite and above 0.
    pub factor: f64,
    pub(crate) weight: Weight,
    /// The end of the boost.
    pub until: UnixSeconds,
}

/// The entry of one tenant, or of the class of all unlisted tenants.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantPolicy {
    /// The weight without a boost.
    pub weight: Weight,
    /// The burst multiplier.
    pub burst_multiplier: BurstMultiplier,
    /// The operator's notes.
    pub notes: Option<String>,
    /// The boost, also after its end.
    pub boost: Option<Boost>,
}

/// The fairness settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Fairness {
    /// The algorithm as written.
    pub algorithm: Algorithm,
    /// Interval between updates of weights and floors in the law; never zero.
    pub reweight_interval: Duration,
    /// The floor: the rate below which a tenant is never dropped, while all floors together can be met.
    pub min_floor: Rate,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tenants {
    pub(crate) listed: BTreeMap<Tenant, TenantPolicy>,
    pub(crate) default_class: TenantPolicy,
}

// === impl BurstMultiplier ===

impl BurstMultiplier {
    /// No burst, the default.
    pub const ONE: Self = Self(1.0);

    /// Validates a burst multiplier.
    ///
    /// # Errors
    /// Below 1, above 1,000,000, or not a number.
    pub fn new(factor: f64) -> Result<Self, InvalidBurstMultiplier> {
        if (1.0..=1e6).contains(&factor) {
            Ok(Self(factor))
        } else {
            Err(InvalidBurstMultiplier(factor))
        }
    }

    /// The factor.
    pub const fn get(self) -> f64 {
        self.0
    }
}

// === impl TenantPolicy ===

impl TenantPolicy {
    /// Returns the weight at a time in seconds since 1970, including a boost that has not ended.
    pub fn weight_at(&self, unix_s: i64) -> Weight {
        self.boost
            .filter(|boost| unix_s < boost.until.as_secs())
            .map_or(self.weight, |boost| boost.weight)
    }

    pub(crate) fn read(spec: TenantSpec, field: &Field<'_>) -> Checked<Self> {
        let weight = spec.weight.map_or(Ok(Weight::ONE), |n| {
            Weight::new(n.0).map_err(|e| {
                field
                    .then("weight")
                    .refuse(e, "only the ratios of weights matter")
            })
        })?;
        let burst_multiplier = spec
            .burst_multiplier
            .map_or(Ok(BurstMultiplier::ONE), |n| {
                BurstMultiplier::new(n.0)
                    .map_err(|e| field.then("burst_multiplier").refuse(e, "1 means no burst"))
            })?;
        let boost = match (spec.boost, spec.boost_until) {
            (None, None) => None,
            (Some(factor), Some(until)) => Some(Boost::read(factor.0, &until, weight, field)?),
            // A boost without an end is refused: it would be a weight, and would be forgotten.
            (Some(_), None) => {
                let hint = "add `boost_until: 2026-12-01T00:00:00Z`, or change `weight` for good";
                return Err(field.then("boost").refuse("a boost needs an end", hint));
            }
            (None, Some(_)) => {
                let hint = "add `boost: 2.0`, or remove `boost_until`";
                return Err(field
                    .then("boost_until")
                    .refuse("there is no boost to end", hint));
            }
        };
        spec.notes
            .as_ref()
            .map_or(Ok(()), |notes| field.then("notes").printable(notes))?;
        Ok(Self {
            weight,
            burst_multiplier,
            notes: spec.notes,
            boost,
        })
    }
}

impl Boost {
    fn read(factor: f64, until: &str, weight: Weight, field: &Field<'_>) -> Checked<Self> {
        let boost = field.then("boost");
        boost.not_negative(factor)?;
        let boosted = Weight::new(weight.get() * factor).map_err(|e| {
            boost.refuse(
                format_args!("times the weight {}: {e}", weight.get()),
                "choose a factor such as 2.0",
            )
        })?;
        let until = UnixSeconds::parse(until).map_err(|e| {
            field
                .then("boost_until")
                .refuse(e, "write YYYY-MM-DDThh:mm:ssZ")
        })?;
        Ok(Self {
            factor,
            weight: boosted,
            until,
        })
    }
}

// === impl Fairness ===

impl Default for Fairness {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::default(),
            reweight_interval: REWEIGHT_INTERVAL_DEFAULT,
            min_floor: Rate::ZERO,
        }
    }
}

impl Fairness {
    pub(crate) fn read(spec: &FairnessSpec, field: &Field<'_>) -> Checked<Self> {
        let interval = field.then("reweight_interval_s");
        let reweight_interval = match spec.reweight_interval_s {
            None => REWEIGHT_INTERVAL_DEFAULT,
            Some(seconds) => interval.span(seconds.0, Duration::from_secs(1))?,
        };
        if reweight_interval.is_zero() {
            return Err(interval.refuse(
                "an interval of nothing",
                "write a number of seconds above 0, such as 5",
            ));
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
        Some(Self {
            listed,
            default_class,
        })
    }

    pub(crate) fn get(&self, name: &Tenant) -> &TenantPolicy {
        self.listed.get(name).unwrap_or(&self.default_class)
    }
}
