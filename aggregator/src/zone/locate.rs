//! The place of a key that a child reports: its own if the policy lists the tenant, else that of a name in the class of
//! its plan, or in the class `default`.

use plimsoll_core::directive::Posted;
use plimsoll_core::names::{Bucket, DEFAULT_TENANT, Key, KeyId, Place, Tenant, is_class};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::Outbox;

use super::Zone;
use crate::fast_loop::FastLoop;
use crate::key_counts::{KeyCounts, Kind, Source};

/// The tables that a new key enters. `posted` are the directives of its bucket.
pub(super) struct Locator<'a> {
    pub(super) now: MonoTime,
    pub(super) keys: &'a mut KeyCounts,
    pub(super) fast_loop: &'a mut FastLoop,
    pub(super) posted: Option<&'a Posted>,
    pub(super) outbox: &'a mut Outbox,
}

impl Locator<'_> {
    /// Finds or adds a key without a place, which brings `came` requests. `None` for a bucket that was not declared.
    pub(super) fn find(&mut self, key: &Key, came: u64) -> Option<Place> {
        let tenant = key.tenant.as_str();
        let entry = entry_of(self.posted, tenant);
        if !is_class(entry) || entry == tenant {
            return self.entry(&key.bucket, entry, came);
        }
        let class = self.entry(&key.bucket, entry, 0)?.id;
        if key.tenant.is_class() {
            return Some(Place::shared(class));
        }
        self.open(key, came, Kind::Name(class))
    }

    /// Finds or adds the class of a key. `None` for a tenant that the policy lists, and for a bucket that was not
    /// declared.
    pub(super) fn class_of(&mut self, key: &Key) -> Option<KeyId> {
        let entry = entry_of(self.posted, key.tenant.as_str());
        let class = is_class(entry).then(|| self.entry(&key.bucket, entry, 0))?;
        Some(class?.id)
    }

    /// Finds or adds the key of an entry of the policy.
    fn entry(&mut self, bucket: &Bucket, entry: &str, came: u64) -> Option<Place> {
        let key = Key {
            bucket: bucket.clone(),
            tenant: Tenant::new(entry).ok()?,
        };
        let kind = match is_class(entry) {
            true => Kind::Class,
            false => Kind::Listed,
        };
        let known = self.keys.known(&key);
        known.or_else(|| self.open(&key, came, kind))
    }

    fn open(&mut self, key: &Key, came: u64, kind: Kind) -> Option<Place> {
        let found = self.keys.open(key, came, kind, self.outbox)?;
        if let Some(line) = found.new {
            match kind {
                Kind::Name(_) => self
                    .fast_loop
                    .tails
                    .open(self.now, line, found.place.id, false),
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
        let board = &self.board;
        let is_misplaced = |key: &Key, line: KeyId| {
            let entry = entry_of(board.get(&key.bucket), key.tenant.as_str());
            self.keys.lines.keys()[line.index()].tenant.as_str() != entry
        };
        let planned = self.keys.iter().filter(|(_, key, counted)| {
            counted.source == Source::Name && key.tenant.plan().is_some()
        });
        let misplaced: Vec<(KeyId, KeyId)> = planned
            .filter(|(_, key, counted)| is_misplaced(key, counted.line))
            .map(|(id, _, counted)| (id, counted.line))
            .collect();
        for (id, line) in misplaced {
            self.fast_loop.tails.close(line, id);
            self.keys.remove_name(id);
        }
    }
}

fn entry_of<'a>(posted: Option<&Posted>, tenant: &'a str) -> &'a str {
    posted.map_or(DEFAULT_TENANT, |posted| posted.entry_of(tenant))
}
