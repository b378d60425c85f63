//! The place of a key that a child reports: its own if the policy lists the tenant, else that of a name in the class of
//! its plan, or in the class `default`. A line is the row that a key is added up in: its own, or for a name that of its
//! class.

use plimsoll_core::directive::Posted;
use plimsoll_core::names::{Bucket, DEFAULT_TENANT, Key, KeyId, TablePlace, Tenant};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::Outbox;

use super::Zone;
use crate::fast_loop::FastLoop;
use crate::key_counts::{KeyCounts, Kind, Source};
use crate::upstream::Catalogue;

/// The tables that a new key enters. `posted` are the directives of its bucket.
pub(super) struct Locator<'a> {
    pub(super) now: MonoTime,
    pub(super) keys: &'a mut KeyCounts,
    pub(super) fast_loop: &'a mut FastLoop,
    pub(super) posted: Option<&'a Posted>,
    pub(super) catalogue: &'a mut Catalogue,
    pub(super) outbox: &'a mut Outbox,
}

impl Locator<'_> {
    /// Returns the place of a key that brings `came` requests, which is added if it is new; without room for a name, the
    /// place of its class. `None` for a bucket that was not declared.
    pub(super) fn find(&mut self, key: &Key, came: u64) -> Option<TablePlace> {
        let tenant = key.tenant.as_str();
        let entry = Tenant::new(entry_of(self.posted, self.catalogue, tenant)).ok()?;
        // Listed tenants too: the plan that the catalogue has for them is that of their exact quotas.
        if !key.tenant.is_class() && key.tenant.plan().is_none() {
            self.catalogue.ask(&key.tenant);
        }
        if !entry.is_class() || entry == key.tenant {
            return self.entry(&key.bucket, entry, came);
        }
        let class = self.entry(&key.bucket, entry, 0)?.id;
        // A plan that the policy does not have: its requests are those of `default`.
        if key.tenant.is_class() {
            return Some(TablePlace::shared(class));
        }
        self.open(key, came, Kind::Name(class))
    }

    /// Finds or adds the class of a key. `None` for a tenant that the policy lists, and for a bucket that was not
    /// declared.
    pub(super) fn class_of(&mut self, key: &Key) -> Option<KeyId> {
        let entry = entry_of(self.posted, self.catalogue, key.tenant.as_str());
        let class = Tenant::new(entry).ok().filter(Tenant::is_class)?;
        Some(self.entry(&key.bucket, class, 0)?.id)
    }

    /// Finds or adds the key of an entry of the policy.
    fn entry(&mut self, bucket: &Bucket, entry: Tenant, came: u64) -> Option<TablePlace> {
        let kind = match entry.is_class() {
            true => Kind::Class,
            false => Kind::Listed,
        };
        let key = Key {
            bucket: bucket.clone(),
            tenant: entry,
        };
        let known = self.keys.known(&key);
        known.or_else(|| self.open(&key, came, kind))
    }

    fn open(&mut self, key: &Key, came: u64, kind: Kind) -> Option<TablePlace> {
        let found = self.keys.open(key, came, kind, self.outbox)?;
        if let Some(line) = found.new {
            let is_known = false;
            match kind {
                Kind::Name(_) => {
                    self.fast_loop
                        .tails
                        .open(self.now, line, found.place.id, is_known)
                }
                Kind::Listed | Kind::Class => self.fast_loop.open(line, key),
            }
        }
        Some(found.place)
    }
}

impl Zone {
    /// Removes the names whose class is another one under the present directives, or whose tenant is listed now. They
    /// are found anew with their next counts. Linear in the keys.
    pub(super) fn regroup(&mut self) {
        let (board, catalogue) = (&self.board, &self.upstream.catalogue);
        let is_misplaced = |key: &Key, line: KeyId| {
            let entry = entry_of(board.get(&key.bucket), catalogue, key.tenant.as_str());
            self.keys.lines.keys()[line.index()].tenant.as_str() != entry
        };
        let all = self.keys.iter();
        let names = all.filter(|(.., counted)| counted.source == Source::Name);
        let misplaced: Vec<(KeyId, KeyId)> = names
            .filter(|(_, key, counted)| is_misplaced(key, counted.line))
            .map(|(id, _, counted)| (id, counted.line))
            .collect();
        for (id, line) in misplaced {
            self.fast_loop.tails.close(line, id);
            self.keys.remove(id);
        }
    }
}

/// Returns the name of the entry of the policy for a tenant: its own, else that of the class of its plan, which its
/// requests bring or else the catalogue has.
fn entry_of<'a>(posted: Option<&Posted>, catalogue: &'a Catalogue, tenant: &'a str) -> &'a str {
    let Some(posted) = posted else {
        return DEFAULT_TENANT;
    };
    match posted.entry_of(tenant) {
        DEFAULT_TENANT => {
            let class = catalogue.class_of(tenant);
            class.map_or(DEFAULT_TENANT, |class| posted.class_of(class))
        }
        entry => entry,
    }
}
