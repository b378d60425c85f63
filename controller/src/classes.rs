//! Which tenants share: a tenant that policy lists stands for itself, all others for the default class.

use std::collections::HashMap;

use plimsoll_core::bucket::{Bucket, Key, Tenant};
use plimsoll_core::policy::Policy;

use crate::protected::Protected;
use crate::sources::Sources;

/// The tenant classes of a policy, and the class of every key.
#[derive(Debug)]
pub(crate) struct Classes {
    classes: Vec<Tenant>,
    by_tenant: HashMap<Tenant, usize>,
    default_class: usize,
    /// By key id: index of the bucket and of the class.
    assigned: Vec<(usize, usize)>,
    buckets: HashMap<Bucket, usize>,
}

impl Classes {
    /// The classes of a policy; no key is assigned yet.
    #[must_use]
    pub(crate) fn new(policy: &Policy) -> Self {
        let classes: Vec<Tenant> = policy.tenants().map(|(tenant, _)| tenant.clone()).collect();
        let by_tenant: HashMap<Tenant, usize> = classes.iter().cloned().zip(0..).collect();
        let default_class = by_tenant.get(&Tenant::default_class()).copied().unwrap_or_default();
        Self { classes, by_tenant, default_class, assigned: Vec::new(), buckets: HashMap::new() }
    }

    /// The class of a tenant.
    #[must_use]
    pub(crate) fn class<'a>(&'a self, tenant: &'a Tenant) -> &'a Tenant {
        self.classes.get(self.index(tenant)).unwrap_or(tenant)
    }

    fn index(&self, tenant: &Tenant) -> usize {
        self.by_tenant.get(tenant).copied().unwrap_or(self.default_class)
    }

    /// Assigns the keys that are new. Linear in what is new.
    pub(crate) fn assign(&mut self, keys: &[Key], buckets: &[Protected]) {
        for (index, bucket) in buckets.iter().enumerate().skip(self.buckets.len()) {
            self.buckets.insert(bucket.name().clone(), index);
        }
        for key in keys.iter().skip(self.assigned.len()) {
            let bucket = self.buckets.get(&key.bucket).copied().unwrap_or(usize::MAX);
            self.assigned.push((bucket, self.index(&key.tenant)));
        }
    }

    /// Sums the offered rates of all sources by bucket and class, each source by how much of it still counts.
    pub(crate) fn sum(&self, buckets: &mut [Protected], sources: &Sources) {
        for bucket in buckets.iter_mut() {
            bucket.clear_offered(self.classes.len());
        }
        for (_, source) in sources.iter() {
            let presence = source.presence();
            for (rate, (bucket, class)) in source.rates().iter().zip(&self.assigned) {
                if let Some(bucket) = buckets.get_mut(*bucket).filter(|_| *rate > 0.0) {
                    bucket.add_offered(*class, rate * presence);
                }
            }
        }
    }
}
