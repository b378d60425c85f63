//! The zone's key table: the counts of each name, and the lines that they are rolled up in.

mod admission;
mod bucket_place;
mod lines;

use std::collections::HashMap;

use plimsoll_core::names::{
    Bucket, DECLARED_MAX, DEFAULT_TENANT, Key, KeyId, KeyTable, TablePlace, Tenant,
    is_class_of_plan,
};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Counts, Outbox};

use crate::tails::Tails;
use crate::zone::bounds::Bounds;
use admission::{Admission, Quota};
pub(crate) use lines::Lines;

/// A key without counts for this many seconds is forgotten, except for the class `default` of a bucket.
const IDLE: u32 = 60;
/// The same for an established name.
const ESTABLISHED_IDLE: u32 = 600;
/// Periods of the fast loop between halvings of recent counts: a second.
const HALVED_EVERY: usize = 10;
/// Periods of the fast loop between two looks at a name: 10 s.
const LOOKED_AT_EVERY: usize = 100;

#[derive(Debug)]
pub(crate) struct KeyCounts {
    keys: KeyTable<Account>,
    pub(crate) lines: Lines,
    quotas: Vec<Quota>,
    free_quotas: Vec<u32>,
    by_bucket: HashMap<Bucket, u32>,
    keys_max: usize,
    admission: Admission,
    /// Seconds since the start, as of the latest tick.
    second: u32,
}

#[derive(Clone, Copy, Debug)]
struct Account {
    /// Requests, halved each second, as of `second`, when the key last had counts.
    recent: u32,
    second: u32,
    /// Index of the bucket's quota.
    quota: u32,
    line: KeyId,
    source: Source,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Source {
    /// No name, an invalid one, or one without room: the class itself.
    #[default]
    Unnamed,
    /// A tenant that the policy lists.
    Listed,
    /// A name that the policy does not list.
    Name,
}

/// The kind of a key that is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Listed,
    /// The class of a plan.
    Class,
    /// A name of the class with this id.
    Name(KeyId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) place: TablePlace,
    /// The line of the key if it was added; `None` if it shares the place of its class.
    pub(crate) new: Option<KeyId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) line: KeyId,
    pub(crate) source: Source,
}

impl Counted {
    /// An entry that was not counted yet.
    pub(crate) const NOTHING: Self = Self {
        line: KeyId(u32::MAX),
        source: Source::Unnamed,
    };
}

impl Default for Account {
    fn default() -> Self {
        Self {
            recent: 0,
            second: 0,
            quota: 0,
            line: KeyId(u32::MAX),
            source: Source::default(),
        }
    }
}

impl KeyCounts {
    /// An empty table. `seed` should be unique to this process; see [`Admission`].
    pub(crate) fn new(seed: u128, bounds: &Bounds) -> Self {
        Self {
            keys: KeyTable::new(bounds.keys_max.saturating_add(DECLARED_MAX)),
            lines: Lines::default(),
            quotas: Vec::new(),
            free_quotas: Vec::new(),
            keys_max: bounds.keys_max,
            by_bucket: HashMap::new(),
            admission: Admission::new(seed, bounds.keys_max, bounds.tenants_per_bucket_max),
            second: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The line where a key is rolled up, and the source of its requests.
    #[inline]
    pub(crate) fn counted(&self, id: KeyId) -> Counted {
        let Account { line, source, .. } = *self.keys.value(id);
        Counted { line, source }
    }

    /// Returns a copy of `key` that shares the text of its names with the key at `id`; if that is the class `default`,
    /// only the text of the bucket.
    pub(crate) fn interned(&self, id: KeyId, key: &Key) -> Key {
        let held = self.keys.key(id);
        if held == key {
            held.clone()
        } else {
            Key {
                bucket: held.bucket.clone(),
                tenant: key.tenant.clone(),
            }
        }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<KeyId> {
        self.keys.get(key)
    }

    /// The line of the class `default` of a bucket.
    pub(crate) fn default_line(&self, bucket: &Bucket) -> Option<KeyId> {
        let quota = self.quotas.get(*self.by_bucket.get(bucket)? as usize)?;
        Some(self.keys.value(quota.default).line)
    }

    /// Returns the line of a known key.
    pub(crate) fn line(&self, key: &Key) -> Option<KeyId> {
        Some(self.keys.value(self.keys.get(key)?).line)
    }

    /// Returns true if the requests of a name bring its plan.
    pub(crate) fn brings_plan(&self, id: KeyId) -> bool {
        self.keys.key(id).tenant.plan().is_some()
    }

    pub(crate) fn is_class_of_plan(&self, id: KeyId) -> bool {
        is_class_of_plan(self.keys.key(id).tenant.as_str())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (KeyId, &Key, Counted)> {
        self.keys
            .iter()
            .map(|(id, key, Account { line, source, .. })| {
                let (line, source) = (*line, *source);
                (id, key, Counted { line, source })
            })
    }

    /// Returns the place of a known key.
    pub(crate) fn known(&mut self, key: &Key) -> Option<TablePlace> {
        let id = self.keys.get(key)?;
        if key.tenant.as_str() == DEFAULT_TENANT {
            self.take_back(id);
        }
        Some(self.keys.place(id))
    }

    /// Adds a key that brings `came` requests. Where there is no room for a name, its place is that of its class.
    /// Other kinds always have room. `None` for a bucket that was not [declared](Self::declare).
    pub(crate) fn open(
        &mut self,
        key: &Key,
        came: u64,
        kind: Kind,
        outbox: &mut Outbox,
    ) -> Option<Found> {
        let index = *self.by_bucket.get(&key.bucket)?;
        let is_full = self.keys.len() >= self.keys_max;
        let quota = &mut self.quotas[index as usize];
        let default = quota.default;
        let class = match kind {
            Kind::Name(class) => class,
            Kind::Listed | Kind::Class => default,
        };
        let shared = Found {
            place: TablePlace::shared(class),
            new: None,
        };
        let is_name = matches!(kind, Kind::Name(_));
        if is_name && (!self.admission.admits(key, came, quota, is_full) || is_full) {
            self.take_back(default);
            return Some(shared);
        }
        let Some((place, _)) = self.keys.intern(key) else {
            return Some(shared);
        };
        self.take_back(default);
        self.quotas[index as usize].keys += 1;
        let (line, source) = match kind {
            Kind::Listed => (self.lines.open(key, outbox), Source::Listed),
            Kind::Class => (self.lines.open(key, outbox), Source::Unnamed),
            Kind::Name(class) => (self.keys.value(class).line, Source::Name),
        };
        *self.keys.value_mut(place.id) = Account {
            second: self.second,
            quota: index,
            line,
            source,
            recent: 0,
        };
        Some(Found {
            place,
            new: Some(line),
        })
    }

    /// Adds a bucket with its class. Returns the line of the class; `None` if the bucket is known or has no room.
    pub(crate) fn declare(&mut self, bucket: &Bucket, outbox: &mut Outbox) -> Option<KeyId> {
        if self.by_bucket.contains_key(bucket) {
            return None;
        }
        let index = self
            .free_quotas
            .pop()
            .or_else(|| u32::try_from(self.quotas.len()).ok())?;
        let key = Key {
            bucket: bucket.clone(),
            tenant: Tenant::default_class(),
        };
        let (TablePlace { id, .. }, _) = self.keys.intern(&key)?;
        let line = self.lines.open(&key, outbox);
        *self.keys.value_mut(id) = Account {
            second: self.second,
            quota: index,
            line,
            ..Account::default()
        };
        match self.quotas.get_mut(index as usize) {
            Some(free) => *free = Quota::new(id),
            None => self.quotas.push(Quota::new(id)),
        }
        self.by_bucket.insert(bucket.clone(), index);
        Some(line)
    }

    /// Removes a bucket that has no traffic, once the controller has confirmed its counts. Returns
    /// true if the bucket is unknown now.
    pub(crate) fn retire(&mut self, bucket: &Bucket) -> bool {
        let Some(index) = self.by_bucket.get(bucket) else {
            return true;
        };
        let Quota {
            default,
            keys,
            is_leaving,
            ..
        } = self.quotas[*index as usize];
        let account = self.keys.value(default);
        // Its tenants are forgotten first.
        if keys == 1 && !is_leaving && self.second.saturating_sub(account.second) >= IDLE {
            self.lines.leave(account.line);
            self.quotas[*index as usize].is_leaving = true;
            self.keys.renew(default);
        }
        false
    }

    /// Keeps a bucket that waits to be removed, because a child reports a key of it again.
    fn take_back(&mut self, default: KeyId) {
        let Account { line, quota, .. } = *self.keys.value(default);
        let quota = &mut self.quotas[quota as usize];
        if std::mem::take(&mut quota.is_leaving) {
            self.lines.stay(line);
            self.keys.value_mut(default).second = self.second;
        }
    }

    /// Gives keys that are listed now their own lines, and moves other keys into the line of the class `default`.
    /// Returns the lines that begin.
    pub(crate) fn relist(
        &mut self,
        listed: &[KeyId],
        unlisted: &[KeyId],
        default: KeyId,
        outbox: &mut Outbox,
    ) -> Vec<KeyId> {
        for id in unlisted {
            let is_class = self.keys.key(*id).tenant.is_class();
            let account = self.keys.value_mut(*id);
            let line = std::mem::replace(&mut account.line, default);
            account.source = Source::Name;
            self.lines.leave(line);
            if is_class {
                // Its names are found anew, and its other requests count for the class `default`.
                self.remove(*id);
                continue;
            }
            // Requests of the tenant that have a plan are of its class now.
            self.keys.renew(*id);
        }
        let begin = listed.iter().map(|id| {
            let line = self.lines.open(self.keys.key(*id), outbox);
            let account = self.keys.value_mut(*id);
            (account.line, account.source) = (line, Source::Listed);
            line
        });
        begin.collect()
    }

    /// Removes a key, and returns its line, which keeps its counts; `None` if it was removed before.
    pub(crate) fn remove(&mut self, id: KeyId) -> Option<Counted> {
        let account = self.keys.remove(id)?;
        let quota = &mut self.quotas[account.quota as usize];
        quota.keys = quota.keys.saturating_sub(1);
        let Account { line, source, .. } = account;
        Some(Counted { line, source })
    }

    #[inline]
    pub(crate) fn is_current(&self, place: TablePlace) -> bool {
        self.keys.is_current(place)
    }

    #[inline]
    pub(crate) fn add(&mut self, id: KeyId, counts: Counts) -> Counted {
        let second = self.second;
        let account = self.keys.value_mut(id);
        if account.second != second {
            account.recent = faded(account.recent, account.second, second);
            account.second = second;
        }
        let asked = u32::try_from(counts.asked()).unwrap_or(u32::MAX);
        account.recent = account.recent.saturating_add(asked);
        let counted = Counted {
            line: account.line,
            source: account.source,
        };
        self.lines.add(counted.line, counts);
        counted
    }

    pub(crate) fn add_late(&mut self, id: KeyId, counts: Counts) {
        self.lines.add_late(self.keys.value(id).line, counts);
    }

    /// Advances to a period of the fast loop: looks at a part of the keys, each once in
    /// [`LOOKED_AT_EVERY`] periods, and forgets idle ones, and the coldest names where frequent
    /// ones found no room. Ends lines when the controller has confirmed all of their counts, with
    /// their buckets. Returns the lines of listed tenants and of plans that are forgotten.
    pub(crate) fn on_tick(
        &mut self,
        now: MonoTime,
        tails: &mut Tails,
        outbox: &mut Outbox,
    ) -> Vec<KeyId> {
        self.second = u32::try_from(now.since(MonoTime::ZERO).as_secs()).unwrap_or(u32::MAX);
        self.admission.sketch.decay_part(HALVED_EVERY);
        let second = self.second;
        let lines = &self.lines;
        let idle = self
            .keys
            .next_part(LOOKED_AT_EVERY)
            .filter_map(|(id, key, account)| {
                let idle = second.saturating_sub(account.second);
                let is_settled = || outbox.is_settled(account.line, lines.tally(account.line));
                let is_gone = match account.source {
                    Source::Unnamed if key.tenant.as_str() == DEFAULT_TENANT => false,
                    Source::Unnamed => {
                        idle >= IDLE && !tails.has_names(account.line) && is_settled()
                    }
                    Source::Name if tails.look(now, account.line, id) => idle >= ESTABLISHED_IDLE,
                    Source::Name => idle >= IDLE,
                    Source::Listed => idle >= IDLE && is_settled(),
                };
                is_gone.then_some(id)
            });
        let mut gone: Vec<KeyId> = idle.collect();
        gone.extend(self.coldest());
        let mut listed = Vec::new();
        for id in gone {
            let Some(Counted { line, source }) = self.remove(id) else {
                continue;
            };
            if source == Source::Name {
                tails.close(line, id);
            } else {
                self.lines.leave(line);
                listed.push(line);
            }
        }
        for line in self.lines.end_settled(outbox) {
            let key = &self.lines.keys()[line.index()];
            if key.tenant.is_class() {
                tails.end(line);
            }
            if key.tenant.as_str() != DEFAULT_TENANT {
                continue;
            }
            if let Some(quota) = self.by_bucket.remove(&key.bucket) {
                self.keys.remove(self.quotas[quota as usize].default);
                self.free_quotas.push(quota);
            }
        }
        listed
    }

    /// Returns names with less than half the traffic of the most frequent tenant that had no key, in buckets without
    /// room, some on each tick. Ends the tick of all quotas.
    fn coldest(&mut self) -> Vec<KeyId> {
        if self.quotas.iter().all(Quota::is_at_rest) {
            return Vec::new();
        }
        let is_table_full = self.keys.len() >= self.keys_max;
        let mut coldest: HashMap<u32, Vec<(u32, KeyId)>> = HashMap::new();
        for (id, _, account) in self
            .keys
            .iter()
            .filter(|(.., account)| account.source == Source::Name)
        {
            let quota = &self.quotas[account.quota as usize];
            let is_full = self.admission.is_full(quota) || is_table_full;
            if quota.contenders == 0 || !is_full {
                continue;
            }
            let recent = faded(account.recent, account.second, self.second);
            if recent < quota.contenders_most / 2 {
                coldest.entry(account.quota).or_default().push((recent, id));
            }
        }
        let mut evicted = Vec::new();
        for (quota, mut keys) in coldest {
            let evicted_max = self.quotas[quota as usize].evicted_max();
            keys.sort_unstable();
            evicted.extend(keys.into_iter().take(evicted_max).map(|(_, id)| id));
        }
        self.quotas.iter_mut().for_each(Quota::on_tick);
        evicted
    }
}

/// The value at second `now` of a count that is halved each second.
fn faded(recent: u32, then: u32, now: u32) -> u32 {
    recent.checked_shr(now.saturating_sub(then)).unwrap_or(0)
}
