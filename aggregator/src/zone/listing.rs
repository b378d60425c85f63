//! The listing of tenants: a listed tenant has its own line in roll-ups, and all other names are in
//! the line of their class.

use plimsoll_core::directive::BucketDirective;
use plimsoll_core::names::{Key, KeyId};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::Report;

use super::Zone;
use crate::key_counts::Source;

impl Zone {
    /// Gives tenants that a directive has made listed their own lines, and moves the others back to their class.
    pub(super) fn relist(&mut self, now: MonoTime, directive: &BucketDirective) {
        let bucket = &directive.bucket;
        let Some((posted, class)) = self.board.get(bucket).zip(self.keys.class_of(bucket)) else {
            return;
        };
        let id_of = |tenant| {
            self.keys.get(&Key {
                bucket: bucket.clone(),
                tenant,
            })
        };
        let unlisted: Vec<KeyId> = self
            .fast_loop
            .unlisted(bucket, posted)
            .into_iter()
            .filter_map(id_of)
            .collect();
        let tenants = directive.keys.iter().map(|key| key.tenant.clone());
        let listed = tenants
            .filter_map(id_of)
            .filter(|id| self.keys.counted(*id).source == Source::Name);
        let listed: Vec<KeyId> = listed.collect();
        if listed.is_empty() && unlisted.is_empty() {
            return;
        }
        for id in &listed {
            self.fast_loop.tails.close(class, *id);
        }
        // A name that was listed was not invented by a caller: it is established.
        for id in &unlisted {
            self.fast_loop.tails.open(now, class, *id, true);
        }
        for line in self
            .keys
            .relist(&listed, &unlisted, class, &mut self.upstream.outbox)
        {
            self.fast_loop
                .open_later(line, &self.keys.lines.keys()[line.index()]);
        }
    }

    /// Takes the names that a client held as established under an earlier process of this aggregator.
    pub(super) fn recall(&mut self, now: MonoTime, report: &Report) {
        for key in &report.established {
            let Some(class) = self.keys.class_of(&key.bucket) else {
                continue;
            };
            if !self.fast_loop.tails.takes_claims(now, class) {
                continue;
            }
            let is_listed = self
                .board
                .get(&key.bucket)
                .is_some_and(|posted| posted.own(key.tenant.as_str()).is_some());
            let Some(id) = self.open_name(now, key).filter(|_| !is_listed) else {
                continue;
            };
            self.fast_loop.tails.claim(class, id);
        }
    }

    /// The id of an unlisted name, which is added if there is room.
    fn open_name(&mut self, now: MonoTime, key: &Key) -> Option<KeyId> {
        let found = self
            .keys
            .find(key, 0, || false, &mut self.upstream.outbox)?;
        let id = found.place.id;
        if let Some(line) = found.new {
            self.fast_loop.tails.open(now, line, id, false);
        }
        (self.keys.counted(id).source == Source::Name).then_some(id)
    }
}
