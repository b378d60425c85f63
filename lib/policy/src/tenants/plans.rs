//! Plans: the weight, floor, limits and quotas that many tenants have in common. The unlisted tenants of a plan are one class.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::law::Weight;
use plimsoll_core::names::{DEFAULT_TENANT, Name, PLANS_MAX, Tenant, nearest};
use plimsoll_core::quantity::Rate;
use plimsoll_core::quota::QuotaRate;

use super::{BurstMultiplier, Quotas, TenantPolicy};
use crate::buckets::{BucketKey, ByBucket};
use crate::spec::TenantSpec;
use crate::yaml::{Checked, Field, Number, PolicyFault, check_entries};

const PLAN_HINT: &str = "1 to 32 letters, digits and . _ : / @ -";

/// What the tenants of a plan have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The name.
    pub name: String,
    pub(crate) weight: Weight,
    pub(crate) burst_multiplier: BurstMultiplier,
    pub(crate) floor: Option<Rate>,
    pub(super) limits: ByBucket<Rate>,
    pub(super) quotas: BTreeMap<Name, QuotaRate>,
}

/// The plans while the tenants are read.
#[derive(Debug)]
pub(crate) struct Plans<'a> {
    by_name: BTreeMap<String, Arc<Plan>>,
    /// The quotas that entries may have numbers of; `None` if the file that defines them has faults.
    pub(super) quotas: Option<&'a Quotas>,
}

impl<'a> Plans<'a> {
    /// Reads the mapping `plans`, and adds the class of each plan to `listed`. Adds the fault of each plan that is not
    /// valid.
    pub(crate) fn read(
        specs: BTreeMap<String, TenantSpec>,
        field: &Field<'_>,
        listed: &mut BTreeMap<Tenant, TenantPolicy>,
        faults: &mut Vec<PolicyFault>,
        quotas: Option<&'a Quotas>,
    ) -> Checked<Self> {
        check_entries(
            field,
            PLANS_MAX,
            "PLANS_MAX",
            "give single tenants limits of their own under `tenants`",
        )?;
        let mut plans = Self {
            by_name: BTreeMap::new(),
            quotas,
        };
        for (name, spec) in specs {
            match plans.add(&name, spec, &field.then(&name)) {
                Ok((class, policy)) => drop(listed.insert(class, policy)),
                Err(fault) => faults.push(*fault),
            }
        }
        Ok(plans)
    }

    fn add(
        &mut self,
        name: &str,
        spec: TenantSpec,
        field: &Field<'_>,
    ) -> Checked<(Tenant, TenantPolicy)> {
        let class = match name {
            DEFAULT_TENANT => Tenant::default_class(),
            plan => {
                Tenant::class_of_plan(plan).map_err(|error| field.refuse_name(error, PLAN_HINT))?
            }
        };
        if spec.plan.is_some() {
            let hint = "remove it: only tenants have plans";
            return Err(field.then("plan").refuse("a plan has no plan", hint));
        }
        let mut policy = TenantPolicy::read(spec, field, self)?;
        let plan = Arc::new(Plan {
            name: name.to_owned(),
            weight: policy.weight,
            burst_multiplier: policy.burst_multiplier,
            floor: policy.floor,
            limits: std::mem::take(&mut policy.limits),
            quotas: std::mem::take(&mut policy.quotas),
        });
        policy.plan = Some(Arc::clone(&plan));
        self.by_name.insert(name.to_owned(), plan);
        Ok((class, policy))
    }

    pub(super) fn find(&self, name: &str, field: &Field<'_>) -> Checked<Arc<Plan>> {
        self.by_name.get(name).cloned().ok_or_else(|| {
            let hint = match nearest(name, self.by_name.keys().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`? Define each plan under `plans`"),
                None => "define it under `plans`".to_owned(),
            };
            field.refuse(format_args!("there is no valid plan `{name}`"), &hint)
        })
    }
}

/// Reads the limits of a tenant or a plan, by the names or patterns of buckets.
pub(super) fn limits(
    specs: BTreeMap<String, Number>,
    field: &Field<'_>,
) -> Checked<ByBucket<Rate>> {
    let mut limits = ByBucket::default();
    for (name, rate) in specs {
        let field = field.then(&name);
        let hint = "the name of a bucket, or a pattern such as \"api/*\"";
        let key = BucketKey::parse(&name).map_err(|error| field.refuse_name(error, hint))?;
        limits.insert(key, field.rate(rate.0)?);
    }
    Ok(limits)
}
