//! Numbers of exact quotas for single tenants and plans: read with their entries, then given to the quotas.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::names::{Name, Tenant};
use plimsoll_core::quota::{BucketQuotas, Quota, QuotaKey, QuotaRate};

use super::{TenantPolicy, Tenants};
use crate::buckets::Buckets;
use crate::buckets::quotas::{tokens, unknown};
use crate::spec::OverrideSpec;
use crate::yaml::{Checked, Field, PolicyFault, Source, SourcePlace};

/// The quotas that a policy defines.
pub(crate) type Quotas = BTreeMap<Name, Arc<Quota>>;

/// Reads the numbers of a tenant or a plan, by quota. An absent `refill` is that of the quota, or `max` where the quota
/// refills whole.
pub(super) fn overrides(
    specs: BTreeMap<String, OverrideSpec>,
    field: &Field<'_>,
    defined: &Quotas,
) -> Checked<BTreeMap<Name, QuotaRate>> {
    let each = specs.into_iter().map(|(name, spec)| {
        let field = field.then(&name);
        let Some(quota) = defined.get(name.as_str()) else {
            return Err(unknown(&name, defined.keys().map(Name::as_str), &field));
        };
        if quota.key == QuotaKey::Global {
            let why = "`key: global` counts all tenants together: none has a number of its own";
            let hint = "remove it, or give the quota `key: tenant`";
            return Err(field.refuse_name(why, hint));
        }
        let own = quota.rate;
        let max = tokens(spec.max, &field.then("max"))?;
        let refill = match spec.refill {
            Some(refill) => tokens(refill, &field.then("refill"))?,
            None if own.refill() == own.max() => max,
            None => own.refill(),
        };
        let rate = QuotaRate::new(max, refill, own.every_ms());
        let rate = rate.map_err(|error| field.refuse(error, "write smaller numbers"))?;
        Ok((quota.name.clone(), rate))
    });
    each.collect()
}

impl TenantPolicy {
    fn quota(&self, name: &Name) -> Option<QuotaRate> {
        let of_plan = || self.plan.as_ref()?.quotas.get(name);
        self.quotas.get(name).or_else(of_plan).copied()
    }
}

impl Tenants {
    /// Gives the quotas of a policy, and those of its buckets, the numbers of tenants and plans.
    pub(crate) fn override_quotas(
        &self,
        quotas: &mut Quotas,
        buckets: &mut Buckets,
        (source, at): (Source<'_>, SourcePlace),
    ) -> Checked<()> {
        let refuse = |error: &dyn std::fmt::Display| {
            let hint = "attach fewer quotas to one bucket, or list fewer tenants: plans are for any number of them";
            PolicyFault::new(source, at, "buckets", &error.to_string(), hint)
        };
        for quota in quotas.values_mut() {
            let overrides = self.overrides_of(quota);
            if !overrides.is_empty() {
                let overridden = Quota::clone(quota).with_overrides(overrides);
                *quota = Arc::new(overridden.map_err(|error| refuse(&error))?);
            }
        }
        let exact = buckets.exact.values_mut();
        for bucket in exact.chain(buckets.patterns.values_mut()) {
            let attached = bucket.quotas.iter();
            let attached = attached.filter_map(|quota| quotas.get(&quota.name).cloned());
            bucket.quotas =
                BucketQuotas::new(attached.collect()).map_err(|error| refuse(&error))?;
        }
        Ok(())
    }

    /// Returns the numbers of each entry. Where a class has its own, an entry without any needs those of the quota: the
    /// service may name a plan for a listed tenant, and a plan without numbers is not `default`.
    fn overrides_of(&self, quota: &Quota) -> BTreeMap<Tenant, QuotaRate> {
        let entries = || {
            let listed = self.listed.iter();
            listed.map(|(entry, tenant)| (entry, tenant.quota(&quota.name)))
        };
        let is_of_class = entries().any(|(entry, rate)| entry.is_class() && rate.is_some());
        let others = is_of_class.then_some(quota.rate);
        let rates = entries().filter_map(|(entry, rate)| Some((entry.clone(), rate.or(others)?)));
        rates.collect()
    }
}
