//! The listing of tenants: a listed tenant has its own line in roll-ups, and all other names are in
//! the line of their class.

use plimsoll_core::directive::BucketDirective;
use plimsoll_core::names::{Key, KeyId};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::Report;

use super::Zone;
use super::locate::Locator;
use crate::key_counts::Source;

impl Zone {
    /// Gives tenants that a directive has made listed their own lines, and moves the others back to their class.
    /// Returns true if an entry ended: its names may be of another class now.
    pub(super) fn relist(&mut self, now: MonoTime, directive: &BucketDirective) -> bool {
        let bucket = &directive.bucket;
        let default = self.keys.default_line(bucket);
        let Some((posted, default)) = self.board.get(bucket).zip(default) else {
            return false;
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
        let is_new = |id: &KeyId| self.keys.counted(*id).source == Source::Name;
        let listed: Vec<KeyId> = tenants.filter_map(id_of).filter(is_new).collect();
        if listed.is_empty() && unlisted.is_empty() {
            return false;
        }
        for id in &listed {
            let class = self.keys.counted(*id).line;
            self.fast_loop.tails.close(class, *id);
        }
        for id in &unlisted {
            if !self.keys.is_class_of_plan(*id) {
                // A name that was listed was not invented by a caller: it is established.
                self.fast_loop.tails.open(now, default, *id, true);
            }
        }
        for line in self
            .keys
            .relist(&listed, &unlisted, default, &mut self.upstream.outbox)
        {
            self.fast_loop
                .open_later(line, &self.keys.lines.keys()[line.index()]);
        }
        !unlisted.is_empty()
    }

    /// Takes the names that a client held as established under an earlier process of this aggregator.
    pub(super) fn recall(&mut self, now: MonoTime, report: &Report) {
        for key in &report.greeting.established {
            let mut locator = Locator {
                now,
                keys: &mut self.keys,
                fast_loop: &mut self.fast_loop,
                posted: self.board.get(&key.bucket),
                catalogue: &mut self.upstream.catalogue,
                outbox: &mut self.upstream.outbox,
            };
            let Some(class) = locator.class_of(key) else {
                continue;
            };
            let class = locator.keys.counted(class).line;
            if !locator.fast_loop.tails.takes_claims(now, class) {
                continue;
            }
            let known = locator.keys.known(key);
            let place = known.or_else(|| locator.find(key, 0));
            let name = place.filter(|place| self.keys.counted(place.id).source == Source::Name);
            if let Some(name) = name {
                self.fast_loop.tails.claim(class, name.id);
            }
        }
    }
}
