//! The tenants of one bucket as the law divides among them: every tenant that the policy lists, and the class `default`
//! for all other names.

use std::collections::{HashMap, HashSet};

use plimsoll_core::names::{KeyId, Tenant};
use plimsoll_policy::Policy;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BucketTenant {
    pub(crate) name: Tenant,
    /// The id of its key, once it had traffic.
    key: Option<KeyId>,
}

#[derive(Debug, Default)]
pub(crate) struct BucketTenants {
    /// Sorted by name.
    entries: Vec<BucketTenant>,
    default: usize,
    by_name: HashMap<Tenant, usize>,
    /// The keys of tenants that were listed before, until they are idle.
    pooled: Vec<KeyId>,
}

impl BucketTenants {
    pub(crate) fn new(policy: &Policy) -> Self {
        let tenants = policy.tenants().map(|(tenant, _)| tenant);
        let entries: Vec<BucketTenant> = tenants
            .map(|tenant| BucketTenant {
                name: tenant.clone(),
                key: None,
            })
            .collect();
        let by_name: HashMap<Tenant, usize> = entries
            .iter()
            .map(|entry| entry.name.clone())
            .zip(0..)
            .collect();
        let default = by_name
            .get(&Tenant::default_class())
            .copied()
            .unwrap_or_default();
        Self {
            entries,
            default,
            by_name,
            pooled: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, key: KeyId, tenant: &Tenant) {
        match self
            .by_name
            .get(tenant)
            .and_then(|at| self.entries.get_mut(*at))
        {
            Some(entry) => entry.key = Some(key),
            None => self.pooled.push(key),
        }
    }

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

    pub(crate) const fn class(&self) -> usize {
        self.default
    }

    /// Fills `into` with the `value` of each tenant's key, in order. Keys of other tenants add to the class `default`.
    pub(crate) fn gather(&self, value: impl Fn(KeyId) -> f64, into: &mut Vec<f64>) {
        into.clear();
        into.extend(
            self.entries
                .iter()
                .map(|entry| entry.key.map_or(0.0, &value)),
        );
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
    use plimsoll_policy::Source;

    #[test]
    fn unlisted_tenant_counts_once_in_its_class() {
        let tenants = "tenants: { default: {}, listed: {} }\n";
        let policy = Source {
            name: "policy.yaml",
            text: "buckets: {}\n",
        };
        let policy = Policy::read(
            policy,
            Source {
                name: "tenants.yaml",
                text: tenants,
            },
        )
        .unwrap()
        .0;
        let mut tenants = BucketTenants::new(&policy);
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
