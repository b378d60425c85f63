//! The keys of one bucket as the law sees them: every tenant that policy lists, the class `default`, and of all others
//! those that matter most.

use std::collections::{HashMap, HashSet};

use plimsoll_core::names::{KeyId, Tenant};
use plimsoll_core::law::Class;
use plimsoll_policy::Policy;

/// Tenants that are not listed and yet told apart, by bucket: those with the most traffic. All others count as the
/// class `default`.
pub(crate) const UNLISTED_MAX: usize = 1_000;
/// Requests/s below which a tenant that is not listed is told apart no longer.
const UNLISTED_RATE_MIN: f64 = 0.01;

/// One key that the law divides for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Whose.
    pub tenant: Tenant,
    /// Its entry in the division.
    pub class: Class,
    /// Its id, once it had traffic.
    key: Option<KeyId>,
}

/// The keys of one bucket.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// In the order of names.
    members: Vec<Member>,
    default: usize,
    by_tenant: HashMap<Tenant, usize>,
    /// Keys of tenants that are not listed.
    unlisted: Vec<(KeyId, Tenant)>,
    /// Which of them are told apart, by their places in the list, ascending.
    apart: Vec<u32>,
    /// Keys of those that are not.
    pooled: Vec<KeyId>,
    /// Rates and places, kept for their room.
    ranked: Vec<(f64, u32)>,
}

impl Members {
    /// The tenants of a policy. Keys have to be added again.
    #[must_use]
    pub(crate) fn new(policy: &Policy) -> Self {
        let class = |tenant: &Tenant| {
            if tenant.is_default_class() { Class::Default } else { Class::Listed }
        };
        let members: Vec<Member> = policy
            .tenants()
            .map(|(tenant, _)| Member { tenant: tenant.clone(), class: class(tenant), key: None })
            .collect();
        let mut members = Self { members, ..Self::default() };
        members.index();
        members
    }

    fn index(&mut self) {
        self.by_tenant = self.members.iter().map(|member| member.tenant.clone()).zip(0..).collect();
        self.default = self.by_tenant.get(&Tenant::default_class()).copied().unwrap_or_default();
    }

    /// A key of the bucket has appeared.
    pub(crate) fn add(&mut self, key: KeyId, tenant: &Tenant) {
        match self.by_tenant.get(tenant).and_then(|at| self.members.get_mut(*at)) {
            Some(member) if member.class != Class::Unlisted => member.key = Some(key),
            _ => {
                self.unlisted.push((key, tenant.clone()));
                self.pooled.push(key);
            }
        }
    }

    /// Keys of tenants that are not listed are gone; true when any of them was told apart. Linear in the bucket's keys.
    pub(crate) fn remove(&mut self, gone: &HashSet<KeyId>) -> bool {
        let chosen = self.apart.iter().filter_map(|at| self.unlisted.get(*at as usize));
        let chosen: HashSet<KeyId> = chosen.map(|(key, _)| *key).collect();
        self.unlisted.retain(|(key, _)| !gone.contains(key));
        self.apart.clear();
        let still = (0..).zip(&self.unlisted).filter(|(_, (key, _))| chosen.contains(key));
        self.apart.extend(still.map(|(at, _)| at));
        self.tell_apart();
        self.apart.len() < chosen.len()
    }

    /// Chooses anew which unlisted tenants are told apart, by `rate` of a key in requests/s; true when that changed
    /// who they are. Linear in the bucket's keys; names are touched only when the choice changes.
    pub(crate) fn choose(&mut self, rate: impl Fn(KeyId) -> f64) -> bool {
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
        let changed = !ranked.iter().map(|(_, at)| at).eq(&self.apart);
        if changed {
            self.apart.clear();
            self.apart.extend(ranked.iter().map(|(_, at)| at));
            self.tell_apart();
        }
        self.ranked = ranked;
        changed
    }

    /// Makes members of those that were chosen, and of nobody else who is not listed.
    fn tell_apart(&mut self) {
        self.members.retain(|member| member.class != Class::Unlisted);
        let chosen = self.apart.iter().filter_map(|at| self.unlisted.get(*at as usize));
        self.members.extend(chosen.map(|(key, tenant)| Member {
            tenant: tenant.clone(),
            class: Class::Unlisted,
            key: Some(*key),
        }));
        self.members.sort_unstable_by(|a, b| a.tenant.cmp(&b.tenant));
        self.index();
        let mut apart = self.apart.iter().peekable();
        let pooled = (0..).zip(&self.unlisted).filter(|(at, _)| apart.next_if_eq(&at).is_none());
        self.pooled = pooled.map(|(_, (key, _))| *key).collect();
    }

    /// Every member, in the order of names.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Member> {
        self.members.iter()
    }

    /// Every key that has had traffic, told apart or not.
    pub(crate) fn keys(&self) -> impl Iterator<Item = KeyId> {
        let listed = self.members.iter().filter(|member| member.class != Class::Unlisted);
        listed.filter_map(|member| member.key).chain(self.unlisted.iter().map(|(key, _)| *key))
    }

    /// How many there are.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Gathers a figure of each key by member, in order: what is not told apart adds to the class `default`.
    pub(crate) fn gather(&self, figure: impl Fn(KeyId) -> f64, into: &mut Vec<f64>) {
        into.clear();
        into.extend(self.members.iter().map(|member| member.key.map_or(0.0, &figure)));
        if let Some(default) = into.get_mut(self.default) {
            *default += self.pooled.iter().map(|key| figure(*key)).sum::<f64>();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_policy::Source;

    fn members() -> Members {
        let tenants = "tenants: { default: {}, listed: {} }\n";
        let policy = Source { name: "policy.yaml", text: "buckets: {}\n" };
        let policy = Policy::read(policy, Source { name: "tenants.yaml", text: tenants }).unwrap().0;
        Members::new(&policy)
    }

    fn add(members: &mut Members, key: u32, name: &str) {
        members.add(KeyId(key), &Tenant::new(name).unwrap());
    }

    fn names(members: &Members) -> Vec<(&str, Class)> {
        members.iter().map(|member| (member.tenant.as_str(), member.class)).collect()
    }

    #[test]
    fn who_is_not_listed_is_told_apart_while_it_has_traffic() {
        let mut members = members();
        for (key, name) in [(0, "default"), (1, "listed"), (2, "zoe"), (3, "adam")] {
            add(&mut members, key, name);
        }
        assert_eq!(names(&members), [("default", Class::Default), ("listed", Class::Listed)]);
        let rates = |adam: f64, zoe: f64| move |key: KeyId| [1.0, 2.0, zoe, adam][key.index()];
        assert!(members.choose(rates(30.0, 0.0)));
        let with_adam = [("adam", Class::Unlisted), ("default", Class::Default), ("listed", Class::Listed)];
        assert_eq!(names(&members), with_adam);
        assert!(!members.choose(rates(10.0, 0.001)), "the same as before");
        assert!(members.choose(rates(0.0, 5.0)));
        assert_eq!(names(&members).last(), Some(&("zoe", Class::Unlisted)));
    }

    #[test]
    fn what_is_not_told_apart_counts_as_the_default_class_and_nothing_is_counted_twice() {
        let mut members = members();
        for (key, name) in [(0, "default"), (1, "listed"), (2, "zoe"), (3, "adam")] {
            add(&mut members, key, name);
        }
        let figure = |key: KeyId| [1.0, 2.0, 4.0, 8.0][key.index()];
        let mut gathered = Vec::new();
        members.gather(figure, &mut gathered);
        assert_eq!(gathered, [1.0 + 4.0 + 8.0, 2.0]);
        members.choose(|key| if key == KeyId(3) { 9.0 } else { 0.0 });
        members.gather(figure, &mut gathered);
        assert_eq!(gathered, [8.0, 1.0 + 4.0, 2.0]);
    }

    #[test]
    fn those_with_the_most_traffic_are_told_apart_up_to_a_bound() {
        let mut members = members();
        let most = UNLISTED_MAX as u32 + 500;
        (0..most).for_each(|key| add(&mut members, key, &format!("t{key:05}")));
        assert!(members.choose(|key| f64::from(key.0) + 1.0));
        assert_eq!(members.len(), 2 + UNLISTED_MAX);
        let least = members.iter().find(|member| member.class == Class::Unlisted).unwrap();
        assert_eq!(least.tenant.as_str(), "t00500");
        let mut gathered = Vec::new();
        members.gather(|_| 1.0, &mut gathered);
        assert_eq!(gathered.iter().sum::<f64>(), f64::from(most), "the others are in the class");
    }

    #[test]
    fn keys_that_are_gone_are_nobodys_and_the_others_keep_their_places() {
        let mut members = members();
        for (key, name) in [(0, "default"), (1, "listed"), (2, "zoe"), (3, "adam"), (4, "eve"), (5, "bob")] {
            add(&mut members, key, name);
        }
        members.choose(|key| if key.0 >= 4 { 9.0 } else { 0.0 });
        assert!(!members.remove(&HashSet::from([KeyId(2)])), "nobody who was told apart");
        assert!(members.remove(&HashSet::from([KeyId(4)])));
        let left = [("bob", Class::Unlisted), ("default", Class::Default), ("listed", Class::Listed)];
        assert_eq!(names(&members), left);
        let mut gathered = Vec::new();
        members.gather(|key| f64::from(1 << key.0), &mut gathered);
        assert_eq!(gathered, [32.0, 1.0 + 8.0, 2.0]);
    }

    /// A tenant that policy lists is an entry of its own without traffic, and its key finds it.
    #[test]
    fn a_listed_tenant_has_its_place_before_it_has_a_key() {
        let mut members = members();
        let mut gathered = Vec::new();
        members.gather(|_| 5.0, &mut gathered);
        assert_eq!(gathered, [0.0, 0.0]);
        add(&mut members, 9, "listed");
        members.gather(|_| 5.0, &mut gathered);
        assert_eq!(gathered, [0.0, 5.0]);
        assert!(!members.choose(|_| 5.0), "nobody else is there to be chosen");
    }
}
