//! Tenants and their plans: weights, boosts, bursts, floors, limits and quotas.

pub(crate) mod catalogue;
mod fairness;
mod plans;
mod quotas;

pub use fairness::{Fairness, REWEIGHT_INTERVAL_DEFAULT};
pub use plans::Plan;
pub(crate) use plans::Plans;
pub(crate) use quotas::Quotas;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::buckets::ByBucket;
use crate::spec::TenantSpec;
use crate::timestamp::UnixSeconds;
use crate::yaml::{Checked, Field};
use plimsoll_core::directive::LimitOwner;
use plimsoll_core::law::Weight;
use plimsoll_core::names::{Bucket, DEFAULT_TENANT, Name, Tenant, split_class};
use plimsoll_core::quantity::Rate;
use plimsoll_core::quota::QuotaRate;

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

/// The entry of one tenant, or of a class of unlisted tenants.
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
    /// The plan.
    pub plan: Option<Arc<Plan>>,
    /// The rate below which it is never dropped, while all floors together can be met. `None`: that of
    /// [`Fairness::min_floor`].
    pub floor: Option<Rate>,
    pub(crate) limits: ByBucket<Rate>,
    pub(crate) quotas: BTreeMap<Name, QuotaRate>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tenants {
    /// As `tenants.yaml` has them.
    pub(crate) written: Arc<BTreeMap<Tenant, TenantPolicy>>,
    /// These, and rows of the catalogue.
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

    /// Returns the limit of the tenant in a bucket, or of each of its names if it is a class, and the entry that sets
    /// it. `None` if neither the tenant nor its plan sets one: that of the bucket applies.
    pub fn limit_in(&self, bucket: &Bucket) -> Option<(Rate, LimitOwner)> {
        let own = self
            .limits
            .get(bucket)
            .map(|rate| (*rate, LimitOwner::Tenant));
        own.or_else(|| {
            let rate = self.plan.as_ref()?.limits.get(bucket)?;
            Some((*rate, LimitOwner::Plan))
        })
    }

    /// Returns the class of the entry's plan: `default` without one.
    pub fn class(&self) -> Tenant {
        let plan = self.plan.as_ref().map(|plan| plan.name.as_str());
        let plan = plan.filter(|plan| *plan != DEFAULT_TENANT);
        let class = plan.and_then(|plan| Tenant::class_of_plan(plan).ok());
        class.unwrap_or_else(Tenant::default_class)
    }

    /// Returns true if the limits of this entry and its plan are those of another one.
    pub fn has_limits_of(&self, other: &Self) -> bool {
        let [one, two] = [self, other].map(|tenant| tenant.plan.as_ref().map(|plan| &plan.limits));
        self.limits == other.limits && one == two
    }

    /// Returns an entry without anything of its own.
    pub(crate) fn of_plan(plan: Option<Arc<Plan>>) -> Self {
        let of_plan = plan.as_deref();
        Self {
            weight: of_plan.map_or(Weight::ONE, |plan| plan.weight),
            burst_multiplier: of_plan.map_or(BurstMultiplier::ONE, |plan| plan.burst_multiplier),
            notes: None,
            boost: None,
            floor: of_plan.and_then(|plan| plan.floor),
            limits: ByBucket::default(),
            quotas: BTreeMap::new(),
            plan,
        }
    }

    /// Reads an entry of `tenants`. Absent values are those of its plan.
    pub(crate) fn read(spec: TenantSpec, field: &Field<'_>, plans: &Plans<'_>) -> Checked<Self> {
        let plan = match &spec.plan {
            None => None,
            Some(name) => Some(plans.find(name, &field.then("plan"))?),
        };
        let of_plan = Self::of_plan(plan);
        let weight = match spec.weight {
            None => of_plan.weight,
            Some(n) => Weight::new(n.0).map_err(|e| {
                field
                    .then("weight")
                    .refuse(e, "only the ratios of weights matter")
            })?,
        };
        let burst_multiplier = match spec.burst_multiplier {
            None => of_plan.burst_multiplier,
            Some(n) => BurstMultiplier::new(n.0)
                .map_err(|e| field.then("burst_multiplier").refuse(e, "1 means no burst"))?,
        };
        let floor = match spec.floor_rps {
            None => of_plan.floor,
            Some(n) => Some(field.then("floor_rps").rate(n.0)?),
        };
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
            floor,
            limits: plans::limits(spec.limits, &field.then("limits"))?,
            quotas: match plans.quotas {
                Some(defined) => quotas::overrides(spec.quotas, &field.then("quotas"), defined)?,
                None => BTreeMap::new(),
            },
            plan: of_plan.plan,
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

// === impl Tenants ===

impl Tenants {
    /// `None` without a class [`DEFAULT_TENANT`].
    pub(crate) fn new(listed: BTreeMap<Tenant, TenantPolicy>) -> Option<Self> {
        let default_class = listed.get(DEFAULT_TENANT)?.clone();
        Some(Self {
            written: Arc::new(listed.clone()),
            listed,
            default_class,
        })
    }

    pub(crate) fn get(&self, name: &Tenant) -> &TenantPolicy {
        let (own, class) = split_class(name.as_str());
        let listed = self.listed.get(own).or_else(|| self.listed.get(class));
        listed.unwrap_or(&self.default_class)
    }
}
