//! The zone's own table of keys: what was counted of each, who has a key of its own, and who shares the class `default`
//! because there is no room.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use plimsoll_core::names::{Bucket, Key, KeyId, KeyTable, Tenant};
use plimsoll_core::stats::FrequencySketch;
use plimsoll_core::report::{Counts, Outbox, Place, Tally};
use plimsoll_core::quantity::MonoTime;

use crate::zone::Bounds;

/// A key without counts for this long leaves.
const IDLE: u32 = 60;
/// Places of the table that tells who is hot among those without a key: 1 MiB.
const HOT_SLOTS: usize = 1 << 18;
/// Requests in the last second or two from which on a tenant is given a key where room is scarce.
const HOT_MIN: u32 = 8;
/// Room is scarce from this share of a bucket's keys on.
const SCARCE: f64 = 0.75;
/// The generation of a place that is shared: no key has it.
const SHARED: u32 = u32::MAX;
/// How often counts are halved.
const HALVED_EVERY: Duration = Duration::from_secs(1);

/// What was counted of all keys, by id.
#[derive(Debug)]
pub(crate) struct KeyCounts {
    keys: KeyTable,
    accounts: Vec<Account>,
    /// Which use of its id each is: dense, because every entry of a report is held against it.
    generations: Vec<u32>,
    /// The late parts; empty until there is one.
    late: Vec<Counts>,
    crowds: Vec<Crowd>,
    by_bucket: HashMap<Bucket, u32>,
    /// Keys that count no more and leave once the controller has everything.
    closing: Vec<KeyId>,
    /// Tenants without a key.
    hot: FrequencySketch,
    /// Keeps others from choosing names that look alike.
    seed: u128,
    per_bucket_max: u32,
    second: u32,
    /// How far the search for idle keys has come.
    searched: usize,
}

/// One key: all that a count touches, on one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Account {
    counts: Counts,
    /// Requests lately, halved each second, as of `second`.
    recent: u32,
    second: u32,
    crowd: u32,
    closing: bool,
    /// It may leave: any but the class `default`.
    may_leave: bool,
}

/// The keys of one bucket.
#[derive(Clone, Copy, Debug)]
struct Crowd {
    default: KeyId,
    /// How many have a key that is not closing.
    keys: u32,
    /// Hot tenants that found no room since the last tick, counted each time, and the hottest of them.
    wanted: u32,
    hottest: u32,
    /// What a tenant must come to, to be given a key where room is scarce: of those who want one the hotter half.
    bar: u32,
}

/// Where a key's counts go, and whether it was given its key just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) place: Place,
    pub(crate) is_new: bool,
}

impl KeyCounts {
    pub(crate) fn new(seed: u128, bounds: &Bounds) -> Self {
        Self {
            keys: KeyTable::new(bounds.keys_max),
            accounts: Vec::new(),
            generations: Vec::new(),
            late: Vec::new(),
            crowds: Vec::new(),
            by_bucket: HashMap::new(),
            closing: Vec::new(),
            hot: FrequencySketch::new(HOT_SLOTS.min(bounds.keys_max.saturating_mul(4))),
            seed,
            per_bucket_max: u32::try_from(bounds.tenants_per_bucket_max).unwrap_or(u32::MAX).max(1),
            second: 0,
            searched: 0,
        }
    }

    /// All keys by id; see [`KeyTable::keys`].
    pub(crate) fn keys(&self) -> &[Key] {
        self.keys.keys()
    }

    /// How many keys there are.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// What was counted of a key.
    pub(crate) fn tally(&self, id: KeyId) -> Tally {
        let counts = self.accounts.get(id.index()).map_or(Counts::ZERO, |account| account.counts);
        Tally { counts, late: self.late.get(id.index()).copied().unwrap_or_default() }
    }

    /// Every key with what was counted of it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, Counts)> {
        let ids = (0..).map(KeyId);
        let all = ids.zip(self.keys.keys().iter().zip(&self.accounts));
        all.filter(|(id, (key, _))| self.keys.get(key) == Some(*id))
            .map(|(_, (key, account))| (key, account.counts))
    }

    /// The place of a key: its own, or a shared one where there is no room for it. `None` if not even its bucket has
    /// one. `came` are the requests that it brings.
    pub(crate) fn find(&mut self, key: &Key, came: u64) -> Option<Found> {
        let known = self.keys.get(key);
        if let Some(account) = known.and_then(|id| self.accounts.get(id.index()))
            && !account.closing
        {
            let id = known?;
            return Some(Found { place: self.place(id), is_new: false });
        }
        let crowd = match self.by_bucket.get(&key.bucket) {
            Some(crowd) => *crowd as usize,
            None => return self.found_bucket(key),
        };
        let Crowd { keys, default, bar, .. } = *self.crowds.get(crowd)?;
        let scarce = f64::from(keys) >= SCARCE * f64::from(self.per_bucket_max) || self.keys.is_full();
        let mut admitted = !scarce;
        if !admitted && came > 0 {
            let recent = self.hot.add(self.hash(key), came);
            admitted = recent >= bar && keys < self.per_bucket_max;
            if recent >= HOT_MIN
                && let Some(crowd) = self.crowds.get_mut(crowd)
            {
                crowd.wanted += 1;
                crowd.hottest = crowd.hottest.max(recent);
            }
        }
        let own = if admitted { self.admit(key, known, crowd as u32) } else { None };
        own.or(Some(Found { place: Place { id: default, generation: SHARED }, is_new: false }))
    }

    /// The first key of a bucket: the class that tenants share must find room before they do.
    fn found_bucket(&mut self, key: &Key) -> Option<Found> {
        let id = self.declare(&key.bucket)?;
        let shared = Place { id, generation: SHARED };
        Some(Found {
            place: if key.tenant.is_default_class() { self.place(id) } else { shared },
            is_new: true,
        })
    }

    /// The bucket is known from now on; the id of its class `default`, if there is room.
    pub(crate) fn declare(&mut self, bucket: &Bucket) -> Option<KeyId> {
        if let Some(crowd) = self.by_bucket.get(bucket) {
            return self.crowds.get(*crowd as usize).map(|crowd| crowd.default);
        }
        let crowd = u32::try_from(self.crowds.len()).ok()?;
        let default = self.open(&Key { bucket: bucket.clone(), tenant: Tenant::default_class() }, crowd)?;
        self.crowds.push(Crowd { default, keys: 1, wanted: 0, hottest: 0, bar: HOT_MIN });
        self.by_bucket.insert(bucket.clone(), crowd);
        Some(default)
    }

    /// Gives a key its place, or gives it back to one that was about to leave.
    fn admit(&mut self, key: &Key, closing: Option<KeyId>, crowd: u32) -> Option<Found> {
        let id = match closing {
            Some(id) => {
                self.closing.retain(|other| *other != id);
                let account = self.accounts.get_mut(id.index())?;
                (account.closing, account.second) = (false, self.second);
                id
            }
            None => self.open(key, crowd)?,
        };
        if let Some(crowd) = self.crowds.get_mut(crowd as usize) {
            crowd.keys += 1;
        }
        Some(Found { place: self.place(id), is_new: closing.is_none() })
    }

    fn open(&mut self, key: &Key, crowd: u32) -> Option<KeyId> {
        let id = self.keys.intern(key)?;
        if self.accounts.len() <= id.index() {
            self.accounts.resize(id.index() + 1, Account::default());
            self.generations.resize(id.index() + 1, 0);
        }
        let (second, may_leave) = (self.second, !key.tenant.is_default_class());
        *self.accounts.get_mut(id.index())? = Account { second, crowd, may_leave, ..Account::default() };
        Some(id)
    }

    /// The place of the key that has this id now.
    fn place(&self, id: KeyId) -> Place {
        Place { id, generation: self.generations.get(id.index()).copied().unwrap_or(SHARED) }
    }

    /// No place that was given out for this id so far is current any more.
    fn end_places(&mut self, id: KeyId) {
        if let Some(generation) = self.generations.get_mut(id.index()) {
            *generation = next(*generation);
        }
    }

    /// Whether a place is still that of the key it was given to.
    #[inline]
    pub(crate) fn is_current(&self, place: Place) -> bool {
        self.generations.get(place.id.index()) == Some(&place.generation)
    }

    /// Adds what came of a key to its place.
    #[inline]
    pub(crate) fn add(&mut self, id: KeyId, counts: Counts) {
        let Some(account) = self.accounts.get_mut(id.index()) else { return };
        account.counts = account.counts.plus(counts);
        if account.second != self.second {
            account.recent = faded(account.recent, account.second, self.second);
            account.second = self.second;
        }
        account.recent = account.recent.saturating_add(counts.offered as u32);
    }

    /// Says how much of that came late.
    pub(crate) fn add_late(&mut self, id: KeyId, counts: Counts) {
        if self.late.len() < self.accounts.len() {
            self.late.resize(self.accounts.len(), Counts::ZERO);
        }
        if let Some(late) = self.late.get_mut(id.index()) {
            *late = late.plus(counts);
        }
    }

    /// Time passes: `period` since the last time. Keys without traffic begin to leave, and where hot tenants find no room
    /// the coldest keys do. Returns keys that are gone: everything counted of them is with the controller, and their ids
    /// go to others.
    pub(crate) fn on_tick(&mut self, now: MonoTime, period: Duration, outbox: &mut Outbox) -> Vec<KeyId> {
        self.second = u32::try_from(now.since(MonoTime::ZERO).as_secs()).unwrap_or(u32::MAX);
        let parts = HALVED_EVERY.as_nanos() / period.as_nanos().max(1);
        self.hot.decay_part(usize::try_from(parts).unwrap_or(1).max(1));
        self.close_idle(usize::try_from(parts).unwrap_or(1).max(1));
        self.close_coldest();
        self.free_settled(outbox)
    }

    /// Looks through a part of the table.
    fn close_idle(&mut self, parts: usize) {
        let from = if self.searched >= self.accounts.len() { 0 } else { self.searched };
        let to = (from + self.accounts.len().div_ceil(parts)).min(self.accounts.len());
        self.searched = to;
        for at in from..to {
            let id = KeyId(at as u32);
            let is_idle = self.accounts.get(at).is_some_and(|account| {
                account.may_leave && !account.closing && self.second.saturating_sub(account.second) >= IDLE
            });
            if is_idle && self.keys.keys().get(at).and_then(|key| self.keys.get(key)) == Some(id) {
                self.close(id);
            }
        }
    }

    /// Where hot tenants found no room, keys that are colder than half of the hottest of them make room.
    fn close_coldest(&mut self) {
        if self.crowds.iter().all(|crowd| crowd.wanted == 0 && crowd.bar <= HOT_MIN) {
            return;
        }
        let mut coldest: HashMap<u32, Vec<(u32, KeyId)>> = HashMap::new();
        for (account, id) in self.accounts.iter().zip((0..).map(KeyId)) {
            let Some(crowd) = self.crowds.get(account.crowd as usize) else { continue };
            // Where the whole table is full, those that are about to leave make room first.
            let is_full = crowd.keys >= self.per_bucket_max || self.keys.is_full() && self.closing.is_empty();
            if crowd.wanted == 0 || !is_full || account.closing || !account.may_leave {
                continue;
            }
            let recent = faded(account.recent, account.second, self.second);
            if recent < crowd.hottest / 2
                && self.keys.keys().get(id.index()).is_some_and(|key| self.keys.get(key) == Some(id))
            {
                coldest.entry(account.crowd).or_default().push((recent, id));
            }
        }
        for (crowd, mut keys) in coldest {
            // No more at a time than a small part of a bucket: they might come back.
            let most =
                self.crowds.get(crowd as usize).map_or(0, |crowd| crowd.wanted.min(crowd.keys / 16 + 1));
            keys.sort_unstable();
            for (_, id) in keys.into_iter().take(most as usize) {
                self.close(id);
            }
        }
        for crowd in &mut self.crowds {
            // It sinks slowly: not everybody reports in every period.
            crowd.bar = (crowd.hottest / 2).max(crowd.bar - crowd.bar / 8).max(HOT_MIN);
            (crowd.wanted, crowd.hottest) = (0, 0);
        }
    }

    /// A key counts no more: its tenant shares the class `default` until it is hot again.
    fn close(&mut self, id: KeyId) {
        let Some(account) = self.accounts.get_mut(id.index()) else { return };
        account.closing = true;
        if let Some(crowd) = self.crowds.get_mut(account.crowd as usize) {
            crowd.keys = crowd.keys.saturating_sub(1);
        }
        self.end_places(id);
        self.closing.push(id);
    }

    fn free_settled(&mut self, outbox: &mut Outbox) -> Vec<KeyId> {
        let (gone, closing) = std::mem::take(&mut self.closing)
            .into_iter()
            .partition::<Vec<KeyId>, _>(|id| outbox.is_settled(*id, self.tally(*id)));
        self.closing = closing;
        for id in &gone {
            outbox.release(*id);
            self.keys.remove(*id);
            self.end_places(*id);
            if let Some(account) = self.accounts.get_mut(id.index()) {
                *account = Account::default();
            }
            if let Some(late) = self.late.get_mut(id.index()) {
                *late = Counts::ZERO;
            }
        }
        gone
    }

    fn hash(&self, key: &Key) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, key).hash(&mut hasher);
        hasher.finish()
    }
}

/// A count that is halved each second, as it is now.
const fn faded(recent: u32, then: u32, now: u32) -> u32 {
    let seconds = now.saturating_sub(then);
    if seconds < u32::BITS { recent >> seconds } else { 0 }
}

const fn next(generation: u32) -> u32 {
    let next = generation.wrapping_add(1);
    if next == SHARED { 0 } else { next }
}
