//! The rows of the catalogue that have a weight, floor or limits of their own, and requests: they are listed as if
//! `tenants.yaml` listed them, so that only tenants with traffic cost anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::names::Tenant;
use plimsoll_core::quantity::MonoTime;
use plimsoll_policy::{KEYS_MAX, Policy, TENANTS_MAX};

/// Time that a row stays listed at least.
const LISTED_MIN: Duration = Duration::from_secs(600);
/// Interval between two searches for rows without requests.
const SEARCH_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct ActiveRows {
    /// With the time since when each is listed.
    listed: BTreeMap<Tenant, MonoTime>,
    /// Rows that are listed with the next tick.
    wanted: BTreeSet<Tenant>,
    /// The time of the latest search for rows without requests.
    searched: MonoTime,
    /// The rows that may be listed beside the tenants of `tenants.yaml`.
    room: usize,
    /// Questions for rows that found no room. Such a tenant has the terms of its plan alone.
    pub(crate) no_room: u64,
}

/// Rows that begin and end to be listed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RowChanges {
    pub(crate) listed: Vec<Tenant>,
    pub(crate) ended: Vec<Tenant>,
}

impl ActiveRows {
    pub(crate) fn len(&self) -> usize {
        self.listed.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.listed.len() >= self.room
    }

    /// Takes a policy: rows that it does not have any more are not listed.
    pub(crate) fn on_policy(&mut self, policy: &Policy) {
        let buckets = policy.exact_buckets().count().max(1);
        let tenants = policy.written_tenants().len();
        self.room = TENANTS_MAX.min(KEYS_MAX / buckets).saturating_sub(tenants);
        let is_own = |tenant: &Tenant| policy.row(tenant.as_str()).is_some_and(|row| row.is_own);
        self.listed.retain(|tenant, _| is_own(tenant));
        self.wanted.retain(is_own);
        while self.listed.len() + self.wanted.len() > self.room {
            if self.wanted.pop_last().is_none() {
                self.listed.pop_last();
            }
        }
    }

    /// Returns a policy with the active rows listed.
    pub(crate) fn list_in(&self, policy: Arc<Policy>) -> Arc<Policy> {
        match policy.catalogue() {
            Some(_) => Arc::new(policy.listing(self.listed.keys().cloned())),
            None => policy,
        }
    }

    /// Returns the class of a name that has requests, and lists it if its row has terms of its own.
    pub(crate) fn answer(&mut self, policy: &Policy, tenant: &Tenant) -> Tenant {
        let Some(row) = policy.row(tenant.as_str()) else {
            return Tenant::default_class();
        };
        if row.is_own {
            self.want(tenant);
        }
        row.policy.class()
    }

    /// Lists a row with the next tick, if there is room.
    fn want(&mut self, tenant: &Tenant) {
        if self.listed.contains_key(tenant) || self.wanted.contains(tenant) {
            return;
        }
        match self.listed.len() + self.wanted.len() < self.room {
            true => drop(self.wanted.insert(tenant.clone())),
            false => self.no_room += 1,
        }
    }

    /// Lists the rows that are wanted, and, once a minute, ends those without a key that `has_requests`.
    pub(crate) fn on_tick(
        &mut self,
        now: MonoTime,
        has_requests: impl Fn(&Tenant) -> bool,
    ) -> RowChanges {
        let mut changes = RowChanges {
            listed: std::mem::take(&mut self.wanted).into_iter().collect(),
            ended: Vec::new(),
        };
        if now.since(self.searched) >= SEARCH_EVERY {
            self.searched = now;
            self.listed.retain(|tenant, since| {
                let stays = now.since(*since) < LISTED_MIN || has_requests(tenant);
                if !stays {
                    changes.ended.push(tenant.clone());
                }
                stays
            });
        }
        let listed = changes.listed.iter().map(|tenant| (tenant.clone(), now));
        self.listed.extend(listed);
        changes
    }
}

impl RowChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.listed.is_empty() && self.ended.is_empty()
    }
}
