//! The names of buckets and keys: names that the request path enters, idle keys that are evicted,
//! and buckets without a known policy.

use plimsoll_core::names::{Bucket, KeyId};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Counts, Handover};

use super::{ONLY, Subscription};
use crate::hot::interner::key_registry::Change;

impl Subscription {
    /// Takes over the buckets and keys that the request path has entered or revived, and publishes their directives.
    pub(super) fn sync_names(&mut self) {
        // Taken before the buckets: the bucket of each of these keys was inserted before.
        let keys = self.table.keys.take_log();
        let known = self.buckets.len();
        let buckets = self.table.buckets.take_log();
        self.buckets.extend(
            buckets
                .inserted()
                .filter_map(|(_, _, name)| Bucket::new(name).ok()),
        );
        self.table.buckets.return_log(buckets);
        for id in known..self.buckets.len() {
            if let Some(routing) = &mut self.routing {
                routing.add_bucket(&self.buckets[id]);
            }
            self.publish(id);
        }
        let changes = self.registry.sync(&self.table, &self.buckets, &keys);
        self.table.keys.return_log(keys);
        for change in changes {
            match change {
                Change::Inserted(id) => {
                    self.add_key(id, Handover::NEW_NAME);
                    self.publish_key(id);
                }
                Change::Replaced(id) => {
                    self.sessions.finish_key(id);
                    if let Some(routing) = &mut self.routing {
                        routing.remove_key(id);
                    }
                    self.add_key(id, Handover::REUSED_NAME);
                    self.publish_key(id);
                }
                Change::Revived(id) => self.publish_key(id),
                Change::Released(_) => {}
            }
        }
    }

    fn add_key(&mut self, id: u32, handover: Handover) {
        let Some(routing) = &mut self.routing else {
            return;
        };
        // The registry enters keys of known buckets only.
        let bucket = self.table.keys.owner_of(id) as usize;
        if let Some(owner) = routing.add_key(id, bucket) {
            let name = self.registry.keys()[id as usize].clone();
            self.sessions.assign_key(owner, id, name, handover);
        }
    }

    pub(super) fn evict_idle_keys(&mut self, now: MonoTime) {
        let capacity = self.table.keys.capacity();
        let is_crowded = capacity.free < capacity.ids / 2;
        // A key with its own directive stays while there is room: the next directive would enter it
        // again.
        let stays = |id| !is_crowded && self.table.has_own_directive(id);
        let is_settled = |KeyId(id), counts| match &self.routing {
            None => self
                .sessions
                .get(ONLY)
                .is_none_or(|session| session.is_settled(id, counts)),
            Some(routing) => {
                let session = routing
                    .owner_of_key(id)
                    .and_then(|owner| self.sessions.get(owner));
                session.map_or(counts == Counts::ZERO, |session| {
                    session.is_settled(id, counts)
                })
            }
        };
        for change in self.registry.sweep(now, &self.table, stays, is_settled) {
            if let Change::Released(id) = change {
                self.table.limits.set_tenant(id, None);
                self.publisher
                    .withdraw_key(self.table.keys.owner_of(id), id);
            }
        }
    }
}

// === The time before policies ===

impl Subscription {
    pub(crate) fn are_policies_known(&mut self) -> bool {
        self.sync_names();
        self.posted().all(|(_, posted)| posted.is_some())
    }

    pub(crate) fn decided_before_policy(&mut self) -> u64 {
        self.sync_names();
        let known: u64 = self.decided_before.iter().flatten().sum();
        known + self.decided(|id| self.decided_before.get(id).is_none_or(Option::is_none))
    }

    /// Fixes the number of requests decided before the policy of a bucket, with its first directive.
    pub(super) fn note_policy(&mut self, id: usize) {
        if self.decided_before.len() <= id {
            self.decided_before.resize(id + 1, None);
        }
        if self.decided_before[id].is_none() {
            self.decided_before[id] = Some(self.decided(|of| of == id));
        }
    }

    fn decided(&self, is_meant: impl Fn(usize) -> bool) -> u64 {
        let keys = (0..self.registry.keys().len() as u32)
            .filter(|key| is_meant(self.table.keys.owner_of(*key) as usize));
        keys.map(|key| self.registry.counts(&self.table, KeyId(key)).asked())
            .sum()
    }
}
