//! Every key that the controller tells apart, and what was counted of it. A tenant nobody lists that has not been heard of
//! for long gives its place to others: a fleet may see any number of them pass.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use plimsoll_core::names::{Bucket, Key, KeyId, KeyTable, Tenant};
use plimsoll_core::report::{Entry, Ledger, New, Place, Tally};
use plimsoll_core::quantity::MonoTime;

/// A key without counts for this long may be forgotten. By then a zone that fell silent counts no more.
pub(crate) const IDLE: Duration = Duration::from_secs(600);
/// The search for them looks at every key once in so many ticks.
const SEARCH_TICKS: usize = 120;

/// The keys by id.
#[derive(Debug)]
pub(crate) struct Keys {
    table: KeyTable,
    accounts: Vec<Account>,
    /// Given out since this was last asked.
    new: Vec<KeyId>,
    now: MonoTime,
    /// How far the search for idle keys has come.
    searched: usize,
}

/// What is known of one key.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    total: Tally,
    /// Which use of the id this is.
    generation: u32,
    /// When it last had counts.
    heard: MonoTime,
}

impl Keys {
    pub(crate) fn new(now: MonoTime, keys_max: usize) -> Self {
        Self { table: KeyTable::new(keys_max), accounts: Vec::new(), new: Vec::new(), now, searched: 0 }
    }

    /// The bucket's class `default`, which must find room before tenants fold into it.
    pub(crate) fn declare(&mut self, bucket: &Bucket) {
        self.open(&default_of(bucket));
    }

    /// Every key with its id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (KeyId, &Key)> {
        let all = (0..).map(KeyId).zip(self.table.keys());
        all.filter(|(id, key)| self.table.get(key) == Some(*id))
    }

    /// Every key and what was counted of it in all; of one that was forgotten, with the class `default`.
    pub(crate) fn totals(&self) -> impl Iterator<Item = (&Key, Tally)> {
        self.iter().map(|(id, key)| (key, self.total(id)))
    }

    /// What was counted of a key in all.
    pub(crate) fn total(&self, id: KeyId) -> Tally {
        self.accounts.get(id.index()).map_or(Tally::ZERO, |account| account.total)
    }

    /// What was added to a key came too late to say anything about the present rate.
    pub(crate) fn note_late(&mut self, id: KeyId, delta: Tally) {
        if let Some(account) = self.accounts.get_mut(id.index()) {
            account.total.late = account.total.late.plus(delta.counts.since(delta.late));
        }
    }

    /// The keys that were given ids since this was last asked.
    pub(crate) fn take_new(&mut self) -> Vec<(KeyId, Key)> {
        let new = std::mem::take(&mut self.new);
        new.into_iter().filter_map(|id| Some((id, self.table.keys().get(id.index())?.clone()))).collect()
    }

    /// Into which the entries of one report go.
    pub(crate) fn entering(&mut self) -> Entering<'_> {
        Entering { keys: self, entries: Vec::new() }
    }

    /// Time passes: looks through a part of the keys for those that had no counts for long and of which `may_leave` says
    /// yes. They are forgotten, and their ids go to others; returns which, by bucket.
    pub(crate) fn on_tick(
        &mut self,
        now: MonoTime,
        may_leave: impl Fn(KeyId, &Key) -> bool,
    ) -> HashMap<Bucket, HashSet<KeyId>> {
        self.now = now;
        let from = if self.searched >= self.accounts.len() { 0 } else { self.searched };
        let to = (from + self.accounts.len().div_ceil(SEARCH_TICKS)).min(self.accounts.len());
        self.searched = to;
        let mut gone: HashMap<Bucket, HashSet<KeyId>> = HashMap::new();
        for id in (from..to).map(|at| KeyId(at as u32)) {
            let Some(key) = self.table.keys().get(id.index()) else { continue };
            let heard = self.accounts.get(id.index()).map_or(now, |account| account.heard);
            let is_held = self.table.get(key) == Some(id);
            if now.since(heard) < IDLE || key.tenant.is_default_class() || !is_held || !may_leave(id, key) {
                continue;
            }
            gone.entry(key.bucket.clone()).or_default().insert(id);
            self.forget(id);
        }
        gone
    }

    /// What was counted of the key stays, with the class `default`.
    fn forget(&mut self, id: KeyId) {
        let Some(key) = self.table.keys().get(id.index()) else { return };
        let default = self.table.get(&default_of(&key.bucket));
        self.table.remove(id);
        let Some(account) = self.accounts.get_mut(id.index()) else { return };
        let Account { total, generation, heard } = *account;
        *account = Account { total: Tally::ZERO, generation: generation.wrapping_add(1), heard };
        if let Some(default) = default.and_then(|default| self.accounts.get_mut(default.index())) {
            default.total = default.total.plus(total);
        }
    }

    fn place(&mut self, key: &Key) -> Option<Place> {
        self.open(key).or_else(|| self.open(&default_of(&key.bucket)))
    }

    fn open(&mut self, key: &Key) -> Option<Place> {
        let before = self.table.len();
        let id = self.table.intern(key)?;
        if self.accounts.len() <= id.index() {
            self.accounts.resize(id.index() + 1, Account::default());
        }
        let account = self.accounts.get_mut(id.index())?;
        if self.table.len() > before {
            account.heard = self.now;
            self.new.push(id);
        }
        Some(Place { id, generation: account.generation })
    }
}

/// One report on its way in.
#[derive(Debug)]
pub(crate) struct Entering<'a> {
    keys: &'a mut Keys,
    /// What it added, by key.
    pub(crate) entries: Vec<Entry>,
}

impl Ledger for Entering<'_> {
    fn place(&mut self, key: &Key) -> Option<Place> {
        self.keys.place(key)
    }

    fn add(&mut self, place: Option<Place>, key: &Key, new: New) -> Option<Place> {
        let is_current = |place: &Place| {
            let account = self.keys.accounts.get(place.id.index());
            account.is_some_and(|account| account.generation == place.generation)
        };
        let place = place.filter(is_current).or_else(|| self.keys.place(key));
        let own = place.map(|place| place.id);
        if let Some(account) = own.and_then(|own| self.keys.accounts.get_mut(own.index())) {
            account.total = account.total.plus(new.delta);
            account.heard = self.keys.now;
        }
        self.entries.push(Entry { own, delta: new.delta, pedigree: new.pedigree });
        place
    }
}

fn default_of(bucket: &Bucket) -> Key {
    Key { bucket: bucket.clone(), tenant: Tenant::default_class() }
}
