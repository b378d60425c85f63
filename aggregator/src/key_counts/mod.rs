//! The zone's key table: the cumulative counts of each key, and the tenants that share the class `default`
//! because there is no room for them.

mod admission;
mod bucket_place;
mod columns;

use std::collections::HashMap;
use std::time::Duration;

use plimsoll_core::names::{Bucket, DECLARED_MAX, Key, KeyId, KeyTable, Place, Tenant};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Counts, Outbox, Tally};

use crate::zone::Bounds;
use admission::{Admission, Quota};
use columns::{CoinColumns, QuotaColumns};

/// A key without counts for this many seconds is evicted.
const IDLE: u32 = 60;
/// Period in which recent counts are halved.
const HALVED_EVERY: Duration = Duration::from_secs(1);

/// The cumulative counts of all keys.
#[derive(Debug)]
pub(crate) struct KeyCounts {
    keys: KeyTable<Account>,
    /// The late parts by id; empty until there is one.
    late: Vec<Counts>,
    /// The columns of exact quotas by id; empty until there is one.
    of_quotas: Vec<QuotaColumns>,
    quotas: Vec<Quota>,
    /// Quotas of buckets that are gone.
    free_quotas: Vec<u32>,
    by_bucket: HashMap<Bucket, u32>,
    /// Keys of tenants that the policy does not list find room up to here.
    keys_max: usize,
    /// Keys that are no longer counted and are removed once the controller has confirmed their counts.
    leaving: Vec<KeyId>,
    admission: Admission,
    /// The present second.
    second: u32,
}

/// The counts of one key: all that most report entries touch, on one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Account {
    counts: CoinColumns,
    /// Requests, halved each second, as of `second`.
    recent: u32,
    second: u32,
    /// Index of the bucket's quota.
    quota: u32,
    is_leaving: bool,
    /// True for every key but the class `default`.
    may_leave: bool,
    /// True for a tenant that the policy lists.
    is_listed: bool,
}

const _: () = assert!(size_of::<Account>() == 64);

/// The place for the counts of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) place: Place,
    /// True if the key at this place was added by the search.
    pub(crate) is_new: bool,
}

impl KeyCounts {
    /// An empty table. `seed` should be unique to this process; see [`Admission`].
    pub(crate) fn new(seed: u128, bounds: &Bounds) -> Self {
        Self {
            keys: KeyTable::new(bounds.keys_max.saturating_add(DECLARED_MAX)),
            late: Vec::new(),
            of_quotas: Vec::new(),
            quotas: Vec::new(),
            free_quotas: Vec::new(),
            keys_max: bounds.keys_max,
            by_bucket: HashMap::new(),
            leaving: Vec::new(),
            admission: Admission::new(seed, bounds.keys_max, bounds.tenants_per_bucket_max),
            second: 0,
        }
    }

    /// All keys by id; see [`KeyTable::keys`].
    pub(crate) fn keys(&self) -> &[Key] {
        self.keys.keys()
    }

    /// The key with this id.
    pub(crate) fn key(&self, id: KeyId) -> &Key {
        self.keys.key(id)
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The cumulative counts of a key.
    pub(crate) fn tally(&self, id: KeyId) -> Tally {
        let late = self.late.get(id.index()).copied().unwrap_or_default();
        Tally { counts: self.with_quotas(id, self.keys.value(id).counts), late }
    }

    /// Adds the columns of exact quotas to a key's other counts.
    fn with_quotas(&self, id: KeyId, counts: CoinColumns) -> Counts {
        counts.with(self.of_quotas.get(id.index()).copied().unwrap_or_default())
    }

    /// Every key with its cumulative counts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, Counts)> {
        self.keys.iter().map(|(id, key, account)| (key, self.with_quotas(id, account.counts)))
    }

    /// Finds the place of a key that brings `came` requests: its own, or the bucket's class `default` where
    /// there is no room for it. A tenant that the policy lists always has room; `is_listed` is called only for a
    /// key without a place. `None` for a bucket that was not [declared](Self::declare).
    pub(crate) fn find(&mut self, key: &Key, came: u64, is_listed: impl FnOnce() -> bool) -> Option<Found> {
        let known = self.keys.get(key);
        if let Some(id) = known
            && !self.keys.value(id).is_leaving
        {
            return Some(Found { place: self.keys.place(id), is_new: false });
        }
        let index = *self.by_bucket.get(&key.bucket)?;
        let default = self.quotas[index as usize].default;
        self.take_back(default);
        if key.tenant.is_default_class() {
            return Some(Found { place: self.keys.place(default), is_new: false });
        }
        let is_full = self.keys.len() >= self.keys_max;
        let quota = &mut self.quotas[index as usize];
        let is_listed = is_listed();
        let is_admitted =
            is_listed || self.admission.admits(key, came, quota, is_full) && (known.is_some() || !is_full);
        let own = if is_admitted { self.admit(key, known, index, is_listed) } else { None };
        own.or(Some(Found { place: Place::shared(default), is_new: false }))
    }

    /// Adds a bucket that is not known yet, and returns the id of its class `default`.
    pub(crate) fn declare(&mut self, bucket: &Bucket) -> Option<KeyId> {
        if self.by_bucket.contains_key(bucket) {
            return None;
        }
        let index = self.free_quotas.pop().or_else(|| u32::try_from(self.quotas.len()).ok())?;
        let default = self.open(&Key { bucket: bucket.clone(), tenant: Tenant::default_class() }, index)?;
        match self.quotas.get_mut(index as usize) {
            Some(free) => *free = Quota::new(default),
            None => self.quotas.push(Quota::new(default)),
        }
        self.by_bucket.insert(bucket.clone(), index);
        Some(default)
    }

    /// Removes a bucket that has no traffic, once the controller has confirmed its counts. Returns true if it
    /// is not, or no longer, known.
    pub(crate) fn retire(&mut self, bucket: &Bucket) -> bool {
        let Some(index) = self.by_bucket.get(bucket) else { return true };
        let Quota { default, keys, .. } = self.quotas[*index as usize];
        let account = self.keys.value_mut(default);
        // Its tenants are evicted first.
        if keys == 1 && !account.is_leaving && self.second.saturating_sub(account.second) >= IDLE {
            account.is_leaving = true;
            self.keys.renew(default);
            self.leaving.push(default);
        }
        false
    }

    /// Counts a leaving key again.
    fn take_back(&mut self, id: KeyId) {
        let account = self.keys.value_mut(id);
        if std::mem::take(&mut account.is_leaving) {
            account.second = self.second;
            self.leaving.retain(|other| *other != id);
        }
    }

    /// Adds a key, or takes it back if it was leaving.
    fn admit(&mut self, key: &Key, leaving: Option<KeyId>, quota: u32, is_listed: bool) -> Option<Found> {
        let id = match leaving {
            Some(id) => {
                self.take_back(id);
                id
            }
            None => self.open(key, quota)?,
        };
        let account = self.keys.value_mut(id);
        (account.quota, account.is_listed) = (quota, is_listed);
        self.quotas[quota as usize].keys += 1;
        Some(Found { place: self.keys.place(id), is_new: leaving.is_none() })
    }

    fn open(&mut self, key: &Key, quota: u32) -> Option<KeyId> {
        let (Place { id, .. }, is_new) = self.keys.intern(key)?;
        debug_assert!(is_new, "{key:?} has a key already");
        let (second, may_leave) = (self.second, !key.tenant.is_default_class());
        *self.keys.value_mut(id) = Account { second, quota, may_leave, ..Account::default() };
        Some(id)
    }

    /// Returns true if a place still belongs to the key that it was given out for.
    #[inline]
    pub(crate) fn is_current(&self, place: Place) -> bool {
        self.keys.is_current(place)
    }

    /// Adds counts to a key.
    #[inline]
    pub(crate) fn add(&mut self, id: KeyId, counts: Counts) {
        let second = self.second;
        let account = self.keys.value_mut(id);
        account.counts.add(counts);
        if account.second != second {
            account.recent = faded(account.recent, account.second, second);
            account.second = second;
        }
        let asked = u32::try_from(counts.asked()).unwrap_or(u32::MAX);
        account.recent = account.recent.saturating_add(asked);
        if !QuotaColumns::of(counts).is_zero() {
            self.add_of_quotas(id, counts);
        }
    }

    #[cold]
    fn add_of_quotas(&mut self, id: KeyId, counts: Counts) {
        if self.of_quotas.len() < self.keys().len() {
            self.of_quotas.resize(self.keys().len(), QuotaColumns::default());
        }
        self.of_quotas[id.index()].add(counts);
    }

    /// Marks counts that were added to a key as late.
    pub(crate) fn add_late(&mut self, id: KeyId, counts: Counts) {
        debug_assert!(id.index() < self.keys().len(), "{id:?} is not of this table");
        if self.late.len() < self.keys().len() {
            self.late.resize(self.keys().len(), Counts::ZERO);
        }
        let late = &mut self.late[id.index()];
        *late = late.plus(counts);
    }

    /// Evicts idle keys, and the coldest ones where frequent tenants found no room. `period` is the time
    /// since the last call. Returns keys that are removed: the controller has confirmed all of their counts,
    /// and their ids are reused.
    pub(crate) fn on_tick(&mut self, now: MonoTime, period: Duration, outbox: &mut Outbox) -> Vec<KeyId> {
        self.second = u32::try_from(now.since(MonoTime::ZERO).as_secs()).unwrap_or(u32::MAX);
        let parts = HALVED_EVERY.as_nanos() / period.as_nanos().max(1);
        let parts = usize::try_from(parts).unwrap_or(1).max(1);
        self.admission.sketch.decay_part(parts);
        self.evict_idle(parts);
        self.evict_coldest();
        self.remove_settled(outbox)
    }

    /// Evicts idle keys in a part of the table.
    fn evict_idle(&mut self, parts: usize) {
        let second = self.second;
        let is_idle = |account: &Account| {
            account.may_leave && !account.is_leaving && second.saturating_sub(account.second) >= IDLE
        };
        let part = self.keys.next_part(parts);
        let idle: Vec<KeyId> = part.filter(|(.., account)| is_idle(account)).map(|(id, ..)| id).collect();
        idle.into_iter().for_each(|id| self.evict(id));
    }

    /// Evicts keys with less than half the traffic of a tenant that found no room.
    fn evict_coldest(&mut self) {
        if self.quotas.iter().all(Quota::is_at_rest) {
            return;
        }
        // Where the whole table is full, leaving keys make room first.
        let is_table_full = self.keys.len() >= self.keys_max && self.leaving.is_empty();
        let mut coldest: HashMap<u32, Vec<(u32, KeyId)>> = HashMap::new();
        for (id, _, account) in self.keys.iter() {
            let quota = &self.quotas[account.quota as usize];
            let is_full = self.admission.is_full(quota) || is_table_full;
            if quota.contenders == 0
                || !is_full
                || account.is_leaving
                || !account.may_leave
                || account.is_listed
            {
                continue;
            }
            let recent = faded(account.recent, account.second, self.second);
            if recent < quota.contenders_most / 2 {
                coldest.entry(account.quota).or_default().push((recent, id));
            }
        }
        for (quota, mut keys) in coldest {
            let evicted_max = self.quotas[quota as usize].evicted_max();
            keys.sort_unstable();
            keys.into_iter().take(evicted_max).for_each(|(_, id)| self.evict(id));
        }
        self.quotas.iter_mut().for_each(Quota::on_tick);
    }

    /// Stops counting a key. Its tenant shares the class `default` until it is admitted again.
    fn evict(&mut self, id: KeyId) {
        let account = self.keys.value_mut(id);
        debug_assert!(!account.is_leaving && account.may_leave, "{id:?} cannot be evicted");
        account.is_leaving = true;
        let quota = &mut self.quotas[account.quota as usize];
        quota.keys = quota.keys.saturating_sub(1);
        self.keys.renew(id);
        self.leaving.push(id);
    }

    /// Removes leaving keys whose counts the controller has confirmed.
    fn remove_settled(&mut self, outbox: &mut Outbox) -> Vec<KeyId> {
        let (settled, leaving) = std::mem::take(&mut self.leaving)
            .into_iter()
            .partition::<Vec<KeyId>, _>(|id| outbox.is_settled(*id, self.tally(*id)));
        self.leaving = leaving;
        for id in &settled {
            outbox.release(*id);
            let account = self.keys.remove(*id);
            if let Some(Account { quota, may_leave: false, .. }) = account {
                self.by_bucket.remove(&self.keys.key(*id).bucket);
                self.free_quotas.push(quota);
            }
            if let Some(late) = self.late.get_mut(id.index()) {
                *late = Counts::ZERO;
            }
            if let Some(of_quotas) = self.of_quotas.get_mut(id.index()) {
                *of_quotas = QuotaColumns::default();
            }
        }
        settled
    }
}

/// The value at second `now` of a count that is halved each second.
const fn faded(recent: u32, then: u32, now: u32) -> u32 {
    let seconds = now.saturating_sub(then);
    if seconds < u32::BITS { recent >> seconds } else { 0 }
}
