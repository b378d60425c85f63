//! The tenants of one bucket as the law divides among them: every tenant that the policy lists, and the classes of all
//! other names.

use std::collections::{HashMap, HashSet};

use plimsoll_core::directive::LimitOwner;
use plimsoll_core::names::{Bucket, KeyId, Tenant};
use plimsoll_core::quantity::Rate;
use plimsoll_policy::Policy;

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
    by_name: HashMap<Tenant, usize>,
    /// The keys of tenants that were listed before, until they are idle.
    pooled: Vec<KeyId>,
}

impl BucketTenants {
    pub(crate) fn new(policy: &Policy, bucket: &Bucket) -> Self {
        let tenants = policy.tenants().map(|(tenant, _)| tenant);
        let entries: Vec<BucketTenant> = tenants
            .map(|tenant| {
                let limit = policy.tenant_limit(tenant, bucket);
                BucketTenant {
                    name: tenant.clone(),
                    floor: policy.floor(tenant),
                    limit: limit.map(|(rate, _)| rate),
                    limit_owner: limit.map(|(_, owner)| owner).unwrap_or_default(),
                    key: None,
                }
            })
            .collect();
        let classes = entries.iter().enumerate();
        let classes = classes
            .filter(|(_, entry)| entry.name.is_class())
            .map(|(at, _)| at);
        let classes = classes.collect();
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
            classes,
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
