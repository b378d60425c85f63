//! The tenants of one bucket as the law divides among them: every tenant that the policy lists, and the classes of all
//! other names.

use std::collections::HashSet;

use plimsoll_core::directive::LimitOwner;
use plimsoll_core::names::{Bucket, Key, KeyId, Tenant};
use plimsoll_core::quantity::Rate;
use plimsoll_policy::Policy;

use super::active_rows::RowChanges;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BucketTenant {
    pub(crate) name: Tenant,
    /// Of each name, if this is a class.
    pub(crate) floor: Rate,
    /// Of each name, if this is a class.
    pub(crate) limit: Option<Rate>,
    pub(crate) limit_owner: LimitOwner,
    /// The id of its key, once it had traffic.
    key: Option<KeyId>,
}

#[derive(Debug, Default)]
pub(crate) struct BucketTenants {
    /// Sorted by name.
    entries: Vec<BucketTenant>,
    /// The entries that are classes, and of these `default`.
    classes: Vec<usize>,
    default: usize,
    /// The keys of tenants without an entry, until they are evicted.
    pooled: Vec<KeyId>,
}

impl BucketTenant {
    fn new(policy: &Policy, bucket: &Bucket, tenant: &Tenant, key: Option<KeyId>) -> Self {
        let limit = policy.tenant_limit(tenant, bucket);
        Self {
            name: tenant.clone(),
            floor: policy.floor(tenant),
            limit: limit.map(|(rate, _)| rate),
            limit_owner: limit.map(|(_, owner)| owner).unwrap_or_default(),
            key,
        }
    }
}

impl BucketTenants {
    pub(crate) fn new(policy: &Policy, bucket: &Bucket) -> Self {
        let tenants = policy.tenants().map(|(tenant, _)| tenant);
        let entries = tenants.map(|tenant| BucketTenant::new(policy, bucket, tenant, None));
        let mut new = Self {
            entries: entries.collect(),
            ..Self::default()
        };
        new.find_classes();
        new
    }

    /// Lists rows of the catalogue, and ends others. Their keys, which `known` finds, stay.
    pub(crate) fn relist(
        &mut self,
        policy: &Policy,
        bucket: &Bucket,
        changes: &RowChanges,
        known: impl Fn(&Key) -> Option<KeyId>,
    ) {
        for tenant in &changes.ended {
            if let Some(at) = self.position(tenant) {
                self.pooled.extend(self.entries.remove(at).key);
            }
        }
        for tenant in &changes.listed {
            let name = Key {
                bucket: bucket.clone(),
                tenant: tenant.clone(),
            };
            let key = known(&name);
            self.pooled.retain(|pooled| Some(*pooled) != key);
            let entry = BucketTenant::new(policy, bucket, tenant, key);
            let at = self.entries.partition_point(|entry| entry.name < *tenant);
            self.entries.insert(at, entry);
        }
        self.find_classes();
    }

    fn find_classes(&mut self) {
        let classes = self.entries.iter().enumerate();
        let classes = classes.filter(|(_, entry)| entry.name.is_class());
        self.classes = classes.map(|(at, _)| at).collect();
        self.default = self.position(&Tenant::default_class()).unwrap_or_default();
    }

    fn position(&self, tenant: &Tenant) -> Option<usize> {
        self.entries
            .binary_search_by(|entry| entry.name.cmp(tenant))
            .ok()
    }

    pub(crate) fn add(&mut self, key: KeyId, tenant: &Tenant) {
        let at = self.position(tenant);
        match at.and_then(|at| self.entries.get_mut(at)) {
            Some(entry) => entry.key = Some(key),
            None => self.pooled.push(key),
        }
    }

    /// Returns the index of the entry that a tenant counts for: its own, or that of the class `default`.
    pub(super) fn entry_of(&self, tenant: &Tenant) -> usize {
        self.position(tenant).unwrap_or(self.default)
    }

    /// Returns the key of a listed tenant, once it had traffic.
    pub(crate) fn key_of(&self, tenant: &Tenant) -> Option<KeyId> {
        self.entries.get(self.position(tenant)?)?.key
    }

    /// Drops evicted keys: only tenants without an entry have some.
    pub(crate) fn remove(&mut self, gone: &HashSet<KeyId>) {
        self.pooled.retain(|key| !gone.contains(key));
    }

    /// The tenants, sorted by name.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, BucketTenant> {
        self.entries.iter()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = KeyId> {
        self.entries
            .iter()
            .filter_map(|entry| entry.key)
            .chain(self.pooled.iter().copied())
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entries that are classes, with their indices.
    pub(crate) fn classes(&self) -> impl Iterator<Item = (usize, &BucketTenant)> {
        let entry = |at: &usize| Some((*at, self.entries.get(*at)?));
        self.classes.iter().filter_map(entry)
    }

    pub(crate) fn have_limits(&self) -> bool {
        self.entries.iter().any(|entry| entry.limit.is_some())
    }

    /// Fills `into` with the `value` of each tenant's key, in order. Keys of other tenants add to the class `default`.
    pub(crate) fn gather(&self, value: impl Fn(KeyId) -> f64, into: &mut Vec<f64>) {
        into.clear();
        let entries = self.entries.iter();
        into.extend(entries.map(|entry| entry.key.map_or(0.0, &value)));
        debug_assert!(
            self.default < into.len() || self.pooled.is_empty(),
            "every policy has the class `default`"
        );
        if let Some(default) = into.get_mut(self.default) {
            *default += self.pooled.iter().map(|key| value(*key)).sum::<f64>();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::brain::tests::policy_of;

    #[test]
    fn unlisted_tenant_counts_once_in_its_class() {
        let policy = policy_of("buckets: {}\n", "tenants: { default: {}, listed: {} }\n");
        let mut tenants = BucketTenants::new(&policy, &Bucket::new("b").unwrap());
        let mut gathered = Vec::new();
        tenants.gather(|_| 5.0, &mut gathered);
        assert_eq!(
            gathered,
            [0.0, 0.0],
            "a listed tenant is there before it has a key"
        );
        for (key, name) in [(0, "default"), (1, "listed"), (2, "zoe"), (3, "adam")] {
            tenants.add(KeyId(key), &Tenant::new(name).unwrap());
        }
        let value = |key: KeyId| [1.0, 2.0, 4.0, 8.0][key.index()];
        tenants.gather(value, &mut gathered);
        assert_eq!(gathered, [1.0 + 4.0 + 8.0, 2.0]);
        tenants.remove(&HashSet::from([KeyId(2)]));
        tenants.gather(value, &mut gathered);
        assert_eq!(gathered, [1.0 + 8.0, 2.0]);
    }
}
