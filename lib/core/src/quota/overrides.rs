//! The rates of tenants and plans that differ from a quota's own: which entry of the policy counts for a request.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::definition::{InvalidQuota, Quota, QuotaKey};
use super::rate::QuotaRate;
use crate::names::{DEFAULT_TENANT, Planned, Tenant, check_plan};

/// Maximum size of the overrides of one bucket in bytes. With the other terms of the bucket they fit into a message.
pub const OVERRIDES_BYTES_MAX: usize = 192 * 1024;
/// Maximum size of one override in bytes, without its name.
const OVERRIDE_BYTES: usize = 26;

/// Quotas by entry: the name of a listed tenant, `default`, or the class of a plan.
pub(super) type Overrides = BTreeMap<Tenant, Arc<Quota>>;

impl Quota {
    /// Gives entries rates of their own. A lease of theirs is at most their `max`.
    ///
    /// # Errors
    /// If all tenants share the quota.
    pub fn with_overrides(
        mut self,
        rates: impl IntoIterator<Item = (Tenant, QuotaRate)>,
    ) -> Result<Self, InvalidQuota> {
        self.overrides.clear();
        let plain = self.clone();
        let overridden = |(entry, rate): (Tenant, QuotaRate)| {
            let quota = Self {
                rate,
                lease: plain.lease.min(rate.max()),
                ..plain.clone()
            };
            (entry, Arc::new(quota))
        };
        self.overrides = rates.into_iter().map(overridden).collect();
        if self.key == QuotaKey::Global && !self.overrides.is_empty() {
            return Err(InvalidQuota::GlobalOverride);
        }
        Ok(self)
    }

    /// The quotas of the entries that have rates of their own, in the order of names.
    pub const fn overrides(&self) -> &BTreeMap<Tenant, Arc<Self>> {
        &self.overrides
    }

    /// Returns the quota of a tenant: that of its own entry, of the class of its plan, of the class `default`, or this
    /// one. `plan` may be empty.
    pub fn of_tenant<'a>(self: &'a Arc<Self>, tenant: &str, plan: &str) -> &'a Arc<Self> {
        let class = check_plan(plan).ok().and_then(|()| Planned::of("", plan));
        let entries = [
            // Requests without a tenant have this name, too, and may have a plan.
            Some(tenant).filter(|tenant| *tenant != DEFAULT_TENANT),
            class.as_deref(),
            Some(DEFAULT_TENANT),
        ];
        let mut entries = entries.into_iter().flatten();
        entries
            .find_map(|entry| self.overrides.get(entry))
            .unwrap_or(self)
    }

    pub(super) fn overrides_bytes(&self) -> usize {
        let bytes = |entry: &Tenant| entry.as_str().len() + OVERRIDE_BYTES;
        self.overrides.keys().map(bytes).sum()
    }
}
