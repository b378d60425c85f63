//! The tenants of one bucket as the law divides among them: every tenant that the policy lists, the class
//! `default`, the established unlisted tenants, and the new ones with the most traffic.

use std::collections::{HashMap, HashSet};

use std::time::Duration;

use plimsoll_core::law::{Class, Parameters};
use plimsoll_core::names::{KeyId, Tenant};
use plimsoll_policy::Policy;

use super::growth::{ESTABLISHED_MAX, Growth, Standing};

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
    /// All unlisted tenants with keys, in the order in which they became known.
    unlisted: Vec<Unlisted>,
    pub(super) growth: Growth,
    /// Earlier standings of tenants whose keys are added again.
    standings: HashMap<Tenant, Standing>,
    /// The positions in `unlisted` of the tenants with entries, ascending.
    selected: Vec<u32>,
    /// The keys of the unlisted tenants without entries.
    pooled: Vec<KeyId>,
    /// Positions in `unlisted` of tenants with traffic, and the rates of new ones; kept as a buffer.
    ranked: Vec<(f64, u32)>,
}

/// A tenant that the policy does not list.
#[derive(Clone, Debug)]
struct Unlisted {
    key: KeyId,
    name: Tenant,
    standing: Standing,
}

// === impl BucketTenants ===

impl BucketTenants {
    /// The tenants that a policy lists, without keys.
    pub(crate) fn new(policy: &Policy) -> Self {
        let entries: Vec<BucketTenant> = policy
            .tenants()
            .map(|(tenant, _)| BucketTenant {
                name: tenant.clone(),
                class: Class::of(tenant, true, false),
                key: None,
            })
            .collect();
        let mut tenants = Self { entries, ..Self::default() };
        tenants.index();
        tenants
    }

    /// The tenants that another policy lists, without keys. Unlisted tenants whose keys are added again keep
    /// their standing.
    pub(crate) fn configured(self, policy: &Policy) -> Self {
        let standings = self.unlisted.into_iter().map(|unlisted| (unlisted.name, unlisted.standing));
        Self { standings: standings.collect(), growth: self.growth, ..Self::new(policy) }
    }

    /// Takes over which unlisted tenants were established under an earlier controller, in the bucket's first
    /// minutes under this one. Their keys are known. Returns true if that changed the entries.
    pub(crate) fn recall(&mut self, tenants: &HashSet<&Tenant>, parameters: &Parameters) -> bool {
        let mut established = self.established();
        let before = established;
        if !self.growth.is_young {
            return false;
        }
        for unlisted in &mut self.unlisted {
            if established < ESTABLISHED_MAX
                && !unlisted.standing.is_established
                && tenants.contains(&unlisted.name)
            {
                unlisted.standing = Standing::ESTABLISHED;
                established += 1;
            }
        }
        if established > before {
            self.growth.limit(established, parameters);
            // They have entries at once: without one, the next directive would count them as new.
            let all = (0..).zip(&self.unlisted).filter(|(_, unlisted)| unlisted.standing.is_established);
            self.selected = all.map(|(at, _)| at).collect();
            self.rebuild();
        }
        established > before
    }

    fn established(&self) -> usize {
        self.unlisted.iter().filter(|unlisted| unlisted.standing.is_established).count()
    }

    fn index(&mut self) {
        self.by_name = self.entries.iter().map(|entry| entry.name.clone()).zip(0..).collect();
        self.default = self.by_name.get(&Tenant::default_class()).copied().unwrap_or_default();
    }

    /// Adds a key of the bucket.
    pub(crate) fn add(&mut self, key: KeyId, tenant: &Tenant) {
        match self.by_name.get(tenant).and_then(|at| self.entries.get_mut(*at)) {
            Some(entry) if !entry.class.is_unlisted() => entry.key = Some(key),
            _ => {
                let standing = self.standings.remove(tenant).unwrap_or_default();
                self.unlisted.push(Unlisted { key, name: tenant.clone(), standing });
                self.pooled.push(key);
            }
        }
    }

    /// Removes keys of unlisted tenants. Returns true if one of them had an entry. Linear in the bucket's
    /// keys.
    pub(crate) fn remove(&mut self, gone: &HashSet<KeyId>) -> bool {
        let before: HashSet<KeyId> = self.selected().map(|unlisted| unlisted.key).collect();
        self.unlisted.retain(|unlisted| !gone.contains(&unlisted.key));
        self.selected.clear();
        let still = (0..).zip(&self.unlisted).filter(|(_, unlisted)| before.contains(&unlisted.key));
        self.selected.extend(still.map(|(at, _)| at));
        self.rebuild();
        self.selected.len() < before.len()
    }

    /// Selects the unlisted tenants with entries of their own by the `rate` of their keys in requests/s: all
    /// established ones with traffic, then the new ones with the most. Time since the last call is `elapsed`.
    /// Returns true if the entries changed. Linear in the bucket's keys; names are compared only if the
    /// entries change.
    pub(crate) fn select(
        &mut self,
        rate: impl Fn(KeyId) -> f64,
        elapsed: Duration,
        parameters: &Parameters,
    ) -> bool {
        if self.unlisted.is_empty() {
            return false;
        }
        let is_look_due = self.growth.advance(elapsed, self.established(), parameters);
        let (mut ranked, mut selected) = (std::mem::take(&mut self.ranked), Vec::new());
        ranked.clear();
        let mut has_new_standings = false;
        for (at, unlisted) in (0..).zip(&mut self.unlisted) {
            let rate = rate(unlisted.key);
            if rate < UNLISTED_RATE_MIN {
                continue;
            }
            has_new_standings |= is_look_due && self.growth.look(&mut unlisted.standing, parameters);
            if unlisted.standing.is_established {
                selected.push(at);
            } else {
                ranked.push((rate, at));
            }
        }
        let room = UNLISTED_MAX.saturating_sub(selected.len());
        if ranked.len() > room {
            if room > 0 {
                ranked.select_nth_unstable_by(room, |a, b| b.0.total_cmp(&a.0));
            }
            ranked.truncate(room);
        }
        selected.extend(ranked.iter().map(|(_, at)| at));
        selected.sort_unstable();
        self.ranked = ranked;
        let changed = has_new_standings || selected != self.selected;
        if changed {
            self.selected = selected;
            self.rebuild();
        }
        changed
    }

    /// The unlisted tenants that are selected.
    fn selected(&self) -> impl Iterator<Item = &Unlisted> {
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
            .map(|Unlisted { key, name, standing }| BucketTenant {
                name: name.clone(),
                class: Class::of(name, false, standing.is_established),
                key: Some(*key),
            })
            .collect();
        self.entries.retain(|entry| !entry.class.is_unlisted());
        self.entries.extend(selected);
        self.entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.index();
        let mut selected = self.selected.iter().peekable();
        let pooled = (0..).zip(&self.unlisted).filter(|(at, _)| selected.next_if_eq(&at).is_none());
        self.pooled = pooled.map(|(_, unlisted)| unlisted.key).collect();
    }

    /// The tenants with entries of their own, sorted by name.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, BucketTenant> {
        self.entries.iter()
    }

    /// Every key that has had traffic, with or without an entry.
    pub(crate) fn keys(&self) -> impl Iterator<Item = KeyId> {
        let listed = self.entries.iter().filter(|entry| !entry.class.is_unlisted());
        listed.filter_map(|entry| entry.key).chain(self.unlisted.iter().map(|unlisted| unlisted.key))
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
        BucketTenants::new(&policy())
    }

    fn policy() -> Policy {
        let tenants = "tenants: { default: {}, listed: {} }\n";
        let policy = Source { name: "policy.yaml", text: "buckets: {}\n" };
        Policy::read(policy, Source { name: "tenants.yaml", text: tenants }).unwrap().0
    }

    fn add(tenants: &mut BucketTenants, key: u32, name: &str) {
        tenants.add(KeyId(key), &Tenant::new(name).unwrap());
    }

    fn select(tenants: &mut BucketTenants, rate: impl Fn(KeyId) -> f64) -> bool {
        tenants.select(rate, Duration::from_millis(500), &Parameters::default())
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
        assert!(select(&mut tenants, rates(30.0, 0.0)));
        let with_adam = [("adam", Class::New), ("default", Class::Default), ("listed", Class::Listed)];
        assert_eq!(names(&tenants), with_adam);
        assert!(!select(&mut tenants, rates(10.0, 0.001)), "the same as before");
        assert!(select(&mut tenants, rates(0.0, 5.0)));
        assert_eq!(names(&tenants).last(), Some(&("zoe", Class::New)));
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
        select(&mut tenants, |key| if key == KeyId(3) { 9.0 } else { 0.0 });
        tenants.gather(value, &mut gathered);
        assert_eq!(gathered, [8.0, 1.0 + 4.0, 2.0]);
    }

    #[test]
    fn unlisted_tenants_with_the_most_traffic_have_entries_up_to_a_bound() {
        let mut tenants = tenants();
        let most = UNLISTED_MAX as u32 + 500;
        (0..most).for_each(|key| add(&mut tenants, key, &format!("t{key:05}")));
        assert!(select(&mut tenants, |key| f64::from(key.0) + 1.0));
        assert_eq!(tenants.len(), 2 + UNLISTED_MAX);
        let least = tenants.iter().find(|entry| entry.class == Class::New).unwrap();
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
        select(&mut tenants, |key| if key.0 >= 4 { 9.0 } else { 0.0 });
        assert!(!tenants.remove(&HashSet::from([KeyId(2)])), "no tenant with an entry");
        assert!(tenants.remove(&HashSet::from([KeyId(4)])));
        let left = [("bob", Class::New), ("default", Class::Default), ("listed", Class::Listed)];
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
        assert!(!select(&mut tenants, |_| 5.0), "no unlisted tenant is there");
    }

    #[test]
    fn established_tenants_keep_their_entries_in_a_flood_of_new_names() {
        let mut tenants = tenants();
        add(&mut tenants, 0, "adam");
        for _ in 0..6 {
            tenants.select(|_| 1.0, Duration::from_secs(10), &Parameters::default());
        }
        (1..3_000).for_each(|key| add(&mut tenants, key, &format!("t{key:05}")));
        select(&mut tenants, |key| f64::from(key.0) + 0.1);
        let class = |tenants: &BucketTenants, name: &str| {
            tenants.iter().find(|entry| entry.name.as_str() == name).map(|entry| entry.class)
        };
        assert_eq!(class(&tenants, "adam"), Some(Class::Established), "with the least traffic of all");
        assert_eq!(class(&tenants, "t02999"), Some(Class::New));
        assert_eq!(tenants.len(), 2 + UNLISTED_MAX);

        // Another policy, under which every key is added again.
        let mut tenants = tenants.configured(&policy());
        add(&mut tenants, 0, "adam");
        add(&mut tenants, 1, "eve");
        select(&mut tenants, |_| 1.0);
        assert_eq!(
            (class(&tenants, "adam"), class(&tenants, "eve")),
            (Some(Class::Established), Some(Class::New))
        );
    }

    #[test]
    fn recalled_tenants_are_established_before_they_have_traffic() {
        let mut tenants = tenants();
        (0..2_000).for_each(|key| add(&mut tenants, key, &format!("t{key:05}")));
        let names = ["t00003", "t00007", "t09999"].map(|name| Tenant::new(name).unwrap());
        assert!(tenants.recall(&names.iter().collect(), &Parameters::default()));
        assert!(!tenants.recall(&names.iter().collect(), &Parameters::default()), "once");
        let established = |tenants: &BucketTenants| {
            tenants.iter().filter(|entry| entry.class == Class::Established).count()
        };
        assert_eq!((tenants.len(), established(&tenants)), (4, 2));
        // After that a flood grows as slowly as beside tenants that this controller saw itself.
        for _ in 0..17 {
            tenants.select(|_| 1.0, Duration::from_secs(10), &Parameters::default());
        }
        assert_eq!(established(&tenants), 2 + Parameters::default().tenant_growth_min);
        let all: Vec<Tenant> = (0..2_000).map(|key| Tenant::new(&format!("t{key:05}")).unwrap()).collect();
        tenants.recall(&all.iter().collect(), &Parameters::default());
        assert_eq!(established(&tenants), ESTABLISHED_MAX);
    }
}
