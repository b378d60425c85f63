//! The keys of the fleet and the requests counted for each. A tenant that policy does not list and that has
//! been idle for long is evicted: any number of tenants may pass through a fleet over time.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use plimsoll_core::names::{
    Bucket, DECLARED_MAX, DEFAULT_TENANT, Key, KeyId, KeyTable, TablePlace, Tenant,
};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Entry, Ledger, New, Tally};
use plimsoll_policy::Policy;

/// A key without counts for this long may be evicted, unless a silent aggregator still has a rate of it.
pub(crate) const IDLE: Duration = Duration::from_secs(600);
/// Number of ticks that the search for idle keys takes to visit every key.
const SEARCH_TICKS: usize = 120;

#[derive(Debug)]
pub(crate) struct Keys {
    table: KeyTable<Account>,
    /// The keys that their buckets do not have yet.
    new: Vec<KeyId>,
    /// Keys of tenants that the policy does not list find room up to here.
    keys_max: usize,
    listed: HashSet<Tenant>,
    /// The time of the latest tick.
    now: MonoTime,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    total: Tally,
    /// The tick before its latest counts.
    counted: MonoTime,
}

impl Keys {
    pub(crate) fn new(now: MonoTime, keys_max: usize) -> Self {
        let table = KeyTable::new(keys_max.saturating_add(DECLARED_MAX));
        Self {
            table,
            new: Vec::new(),
            keys_max,
            listed: HashSet::new(),
            now,
        }
    }

    pub(crate) fn on_policy(&mut self, policy: &Policy) {
        self.listed = policy.tenants().map(|(tenant, _)| tenant.clone()).collect();
    }

    /// Adds the bucket's class `default`, which must find room before tenants fold into it.
    pub(crate) fn declare(&mut self, bucket: &Bucket) {
        self.open(&default_of(bucket));
    }

    pub(crate) fn is_idle(&self, now: MonoTime, id: KeyId) -> bool {
        now.since(self.table.value(id).counted) >= IDLE
    }

    /// Removes keys with their counts: their buckets were removed.
    pub(crate) fn remove(&mut self, gone: &HashSet<KeyId>) {
        for id in gone {
            self.table.remove(*id);
        }
        self.new.retain(|id| !gone.contains(id));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (KeyId, &Key)> {
        self.table.iter().map(|(id, key, _)| (id, key))
    }

    pub(crate) fn known(&self, key: &Key) -> Option<KeyId> {
        self.table.get(key)
    }

    pub(crate) fn key(&self, id: KeyId) -> &Key {
        self.table.key(id)
    }

    /// Every key with its total counts. The counts of evicted keys are part of the class `default`.
    pub(crate) fn totals(&self) -> impl Iterator<Item = (&Key, Tally)> {
        self.table
            .iter()
            .map(|(_, key, account)| (key, account.total))
    }

    pub(crate) fn total(&self, id: KeyId) -> Tally {
        self.table.value(id).total
    }

    /// Marks counts that were added to a key as late: they show nothing about the present rate.
    pub(crate) fn note_late(&mut self, id: KeyId, delta: Tally) {
        let total = &mut self.table.value_mut(id).total;
        total.late = total.late.plus(delta.counts.since(delta.late));
    }

    pub(crate) fn take_new(&mut self) -> Vec<(KeyId, Key)> {
        let new = std::mem::take(&mut self.new);
        new.into_iter()
            .map(|id| (id, self.table.key(id).clone()))
            .collect()
    }

    /// Returns the ledger that takes one report.
    pub(crate) fn entering(&mut self) -> Entering<'_> {
        Entering {
            keys: self,
            entries: Vec::new(),
        }
    }

    /// Evicts idle keys in a part of the table if `may_leave` allows it, and returns them by bucket. Their
    /// ids are reused, and their counts stay, with the class `default`.
    pub(crate) fn on_tick(
        &mut self,
        now: MonoTime,
        may_leave: impl Fn(KeyId, &Key) -> bool,
    ) -> HashMap<Bucket, HashSet<KeyId>> {
        self.now = now;
        let mut evicted: HashMap<Bucket, HashSet<KeyId>> = HashMap::new();
        for (id, key, account) in self.table.next_part(SEARCH_TICKS) {
            let is_idle =
                now.since(account.counted) >= IDLE && key.tenant.as_str() != DEFAULT_TENANT;
            if is_idle && may_leave(id, key) {
                evicted.entry(key.bucket.clone()).or_default().insert(id);
            }
        }
        for (bucket, ids) in &evicted {
            let totals = ids
                .iter()
                .filter_map(|id| self.table.remove(*id))
                .map(|account| account.total);
            let total = totals.fold(Tally::ZERO, Tally::plus);
            let default = self.table.get(&default_of(bucket));
            if let Some(default) = default.map(|default| self.table.value_mut(default)) {
                default.total = default.total.plus(total);
            }
        }
        evicted
    }

    /// The place of a key: its own, or that of the class `default` where there is no room for it. `None` for a
    /// bucket that was not [declared](Self::declare).
    fn place(&mut self, key: &Key) -> Option<TablePlace> {
        if let Some(id) = self.table.get(key) {
            return Some(self.table.place(id));
        }
        let default = self.table.get(&default_of(&key.bucket))?;
        let has_room = self.table.len() < self.keys_max || self.listed.contains(&key.tenant);
        let own = if has_room { self.open(key) } else { None };
        own.or_else(|| Some(self.table.place(default)))
    }

    fn open(&mut self, key: &Key) -> Option<TablePlace> {
        let (place, is_new) = self.table.intern(key)?;
        if is_new {
            self.table.value_mut(place.id).counted = self.now;
            self.new.push(place.id);
        }
        Some(place)
    }
}

/// The ledger of one report: adds its counts to the keys, and lists its entries.
#[derive(Debug)]
pub(crate) struct Entering<'a> {
    keys: &'a mut Keys,
    pub(crate) entries: Vec<Entry>,
}

impl Ledger for Entering<'_> {
    fn place(&mut self, _: KeyId, key: &Key) -> Option<TablePlace> {
        self.keys.place(key)
    }

    fn add(
        &mut self,
        place: Option<TablePlace>,
        _: KeyId,
        key: &Key,
        new: New,
    ) -> Option<TablePlace> {
        let place = place
            .filter(|place| self.keys.table.is_current(*place))
            .or_else(|| self.keys.place(key));
        let own = place.map(|place| place.id);
        if let Some(account) = own.map(|own| self.keys.table.value_mut(own)) {
            account.total = account.total.plus(new.delta);
            account.counted = self.keys.now;
        }
        self.entries.push(Entry {
            own,
            delta: new.delta,
            origin: new.origin,
        });
        place
    }
}

fn default_of(bucket: &Bucket) -> Key {
    Key {
        bucket: bucket.clone(),
        tenant: Tenant::default_class(),
    }
}
