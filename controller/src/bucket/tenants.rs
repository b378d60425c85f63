//! The tenants of one bucket as the law divides among them: every tenant that the policy lists, the class
//! `default`, and the unlisted tenants with the most traffic.

use std::collections::{HashMap, HashSet};

use plimsoll_core::law::Class;
use plimsoll_core::names::{KeyId, Tenant};
use plimsoll_policy::Policy;

/// Unlisted tenants with an entry of their own, at most, by bucket. All others count as the class `default`.
pub(crate) const UNLISTED_MAX: usize = 1_000;
/// Requests/s below which an unlisted tenant loses its entry.
const UNLISTED_RATE_MIN: f64 = 0.01;

/// One tenant with an entry of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BucketTenant {
    /// The name of the tenant.
    pub(crate) name: Tenant,
    /// Its class in the division.
    pub(crate) class: Class,
    /// The id of its key, once it had traffic.
    key: Option<KeyId>,
}

/// The tenants of one bucket.
#[derive(Debug, Default)]
pub(crate) struct BucketTenants {
    /// The tenants with entries of their own, sorted by name.
    entries: Vec<BucketTenant>,
    /// The position of the class `default` in `entries`.
    default: usize,
    by_name: HashMap<Tenant, usize>,
    /// The keys of all unlisted tenants.
    unlisted: Vec<(KeyId, Tenant)>,
    /// The positions in `unlisted` of the tenants with entries, ascending.
    selected: Vec<u32>,
    /// The keys of the unlisted tenants without entries.
    pooled: Vec<KeyId>,
    /// Rates and positions in `unlisted`; kept as a buffer.
    ranked: Vec<(f64, u32)>,
}

// === impl BucketTenants ===

impl BucketTenants {
    /// The tenants that a policy lists, without keys.
    pub(crate) fn new(policy: &Policy) -> Self {
        let entries: Vec<BucketTenant> = policy
            .tenants()
            .map(|(tenant, _)| BucketTenant {
                name: tenant.clone(),
                class: Class::of(tenant, true),
                key: None,
            })
            .collect();
        let mut tenants = Self { entries, ..Self::default() };
        tenants.index();
        tenants
    }

    fn index(&mut self) {
        self.by_name = self.entries.iter().map(|entry| entry.name.clone()).zip(0..).collect();
        self.default = self.by_name.get(&Tenant::default_class()).copied().unwrap_or_default();
    }

    /// Adds a key of the bucket.
    pub(crate) fn add(&mut self, key: KeyId, tenant: &Tenant) {
        match self.by_name.get(tenant).and_then(|at| self.entries.get_mut(*at)) {
            Some(entry) if entry.class != Class::Unlisted => entry.key = Some(key),
            _ => {
                self.unlisted.push((key, tenant.clone()));
                self.pooled.push(key);
            }
        }
    }

    /// Removes keys of unlisted tenants. Returns true if one of them had an entry. Linear in the bucket's
    /// keys.
    pub(crate) fn remove(&mut self, gone: &HashSet<KeyId>) -> bool {
        let before: HashSet<KeyId> = self.selected().map(|(key, _)| *key).collect();
        self.unlisted.retain(|(key, _)| !gone.contains(key));
        self.selected.clear();
        let still = (0..).zip(&self.unlisted).filter(|(_, (key, _))| before.contains(key));
        self.selected.extend(still.map(|(at, _)| at));
        self.rebuild();
        self.selected.len() < before.len()
    }

    /// Selects the unlisted tenants with entries of their own by the `rate` of their keys in requests/s.
    /// Returns true if the selection changed. Linear in the bucket's keys; names are compared only if the
    /// selection changes.
    pub(crate) fn select(&mut self, rate: impl Fn(KeyId) -> f64) -> bool {
        if self.unlisted.is_empty() {
            return false;
        }
        let mut ranked = std::mem::take(&mut self.ranked);
        ranked.clear();
        let rated = (0..).zip(&self.unlisted).map(|(at, (key, _))| (rate(*key), at));
        ranked.extend(rated.filter(|(rate, _)| *rate >= UNLISTED_RATE_MIN));
        if ranked.len() > UNLISTED_MAX {
            ranked.select_nth_unstable_by(UNLISTED_MAX, |a, b| b.0.total_cmp(&a.0));
            ranked.truncate(UNLISTED_MAX);
            ranked.sort_unstable_by_key(|(_, at)| *at);
        }
        let changed = !ranked.iter().map(|(_, at)| at).eq(&self.selected);
        if changed {
            self.selected.clear();
            self.selected.extend(ranked.iter().map(|(_, at)| at));
            self.rebuild();
        }
        self.ranked = ranked;
        changed
    }

    /// The unlisted tenants that are selected.
    fn selected(&self) -> impl Iterator<Item = &(KeyId, Tenant)> {
        self.selected.iter().filter_map(|at| {
            let unlisted = self.unlisted.get(*at as usize);
            debug_assert!(unlisted.is_some(), "a selected position is one of the list");
            unlisted
        })
    }

    /// Rebuilds the entries after the selection changed.
    fn rebuild(&mut self) {
        let selected: Vec<BucketTenant> = self
            .selected()
            .map(|(key, name)| BucketTenant { name: name.clone(), class: Class::Unlisted, key: Some(*key) })
            .collect();
        self.entries.retain(|entry| entry.class != Class::Unlisted);
        self.entries.extend(selected);
        self.entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.index();
        let mut selected = self.selected.iter().peekable();
        let pooled = (0..).zip(&self.unlisted).filter(|(at, _)| selected.next_if_eq(&at).is_none());
        self.pooled = pooled.map(|(_, (key, _))| *key).collect();
    }

    /// The tenants with entries of their own, sorted by name.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, BucketTenant> {
        self.entries.iter()
    }

    /// Every key that has had traffic, with or without an entry.
    pub(crate) fn keys(&self) -> impl Iterator<Item = KeyId> {
        let listed = self.entries.iter().filter(|entry| entry.class != Class::Unlisted);
        listed.filter_map(|entry| entry.key).chain(self.unlisted.iter().map(|(key, _)| *key))
    }

    /// The number of tenants with entries of their own.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Fills `into` with the `value` of each entry's key, in order. Keys without an entry add to the class
    /// `default`.
    pub(crate) fn gather(&self, value: impl Fn(KeyId) -> f64, into: &mut Vec<f64>) {
        into.clear();
        into.extend(self.entries.iter().map(|entry| entry.key.map_or(0.0, &value)));
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

    fn tenants() -> BucketTenants {
        let tenants = "tenants: { default: {}, listed: {} }\n";
        let policy = Source { name: "policy.yaml", text: "buckets: {}\n" };
        let policy = Policy::read(policy, Source { name: "tenants.yaml", text: tenants }).unwrap().0;
        BucketTenants::new(&policy)
    }

    fn add(tenants: &mut BucketTenants, key: u32, name: &str) {
        tenants.add(KeyId(key), &Tenant::new(name).unwrap());
    }

    fn names(tenants: &BucketTenants) -> Vec<(&str, Class)> {
        tenants.iter().map(|entry| (entry.name.as_str(), entry.class)).collect()
    }

    #[test]
    fn unlisted_tenant_has_an_entry_while_it_has_traffic() {
        let mut tenants = tenants();
        for (key, name) in [(0, "default"), (1, "listed"), (2, "zoe"), (3, "adam")] {
            add(&mut tenants, key, name);
        }
        assert_eq!(names(&tenants), [("default", Class::Default), ("listed", Class::Listed)]);
        let rates = |adam: f64, zoe: f64| move |key: KeyId| [1.0, 2.0, zoe, adam][key.index()];
        assert!(tenants.select(rates(30.0, 0.0)));
        let with_adam = [("adam", Class::Unlisted), ("default", Class::Default), ("listed", Class::Listed)];
        assert_eq!(names(&tenants), with_adam);
        assert!(!tenants.select(rates(10.0, 0.001)), "the same as before");
        assert!(tenants.select(rates(0.0, 5.0)));
        assert_eq!(names(&tenants).last(), Some(&("zoe", Class::Unlisted)));
    }

    #[test]
    fn tenant_without_an_entry_counts_once_as_the_default_class() {
        let mut tenants = tenants();
        for (key, name) in [(0, "default"), (1, "listed"), (2, "zoe"), (3, "adam")] {
            add(&mut tenants, key, name);
        }
        let value = |key: KeyId| [1.0, 2.0, 4.0, 8.0][key.index()];
        let mut gathered = Vec::new();
        tenants.gather(value, &mut gathered);
        assert_eq!(gathered, [1.0 + 4.0 + 8.0, 2.0]);
        tenants.select(|key| if key == KeyId(3) { 9.0 } else { 0.0 });
        tenants.gather(value, &mut gathered);
        assert_eq!(gathered, [8.0, 1.0 + 4.0, 2.0]);
    }

    #[test]
    fn unlisted_tenants_with_the_most_traffic_have_entries_up_to_a_bound() {
        let mut tenants = tenants();
        let most = UNLISTED_MAX as u32 + 500;
        (0..most).for_each(|key| add(&mut tenants, key, &format!("t{key:05}")));
        assert!(tenants.select(|key| f64::from(key.0) + 1.0));
        assert_eq!(tenants.len(), 2 + UNLISTED_MAX);
        let least = tenants.iter().find(|entry| entry.class == Class::Unlisted).unwrap();
        assert_eq!(least.name.as_str(), "t00500");
        let mut gathered = Vec::new();
        tenants.gather(|_| 1.0, &mut gathered);
        assert_eq!(gathered.iter().sum::<f64>(), f64::from(most), "the others are in the class");
    }

    #[test]
    fn removed_keys_count_no_more_and_the_others_keep_their_entries() {
        let mut tenants = tenants();
        for (key, name) in [(0, "default"), (1, "listed"), (2, "zoe"), (3, "adam"), (4, "eve"), (5, "bob")] {
            add(&mut tenants, key, name);
        }
        tenants.select(|key| if key.0 >= 4 { 9.0 } else { 0.0 });
        assert!(!tenants.remove(&HashSet::from([KeyId(2)])), "no tenant with an entry");
        assert!(tenants.remove(&HashSet::from([KeyId(4)])));
        let left = [("bob", Class::Unlisted), ("default", Class::Default), ("listed", Class::Listed)];
        assert_eq!(names(&tenants), left);
        let mut gathered = Vec::new();
        tenants.gather(|key| f64::from(1 << key.0), &mut gathered);
        assert_eq!(gathered, [32.0, 1.0 + 8.0, 2.0]);
    }

    #[test]
    fn listed_tenant_has_an_entry_before_it_has_a_key() {
        let mut tenants = tenants();
        let mut gathered = Vec::new();
        tenants.gather(|_| 5.0, &mut gathered);
        assert_eq!(gathered, [0.0, 0.0]);
        add(&mut tenants, 9, "listed");
        tenants.gather(|_| 5.0, &mut gathered);
        assert_eq!(gathered, [0.0, 5.0]);
        assert!(!tenants.select(|_| 5.0), "no unlisted tenant is there");
    }
}
