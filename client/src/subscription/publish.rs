//! From what is directed to what the request path reads: one word for each key, and its guard.

use plimsoll_core::bucket::{Bucket, DEFAULT_TENANT};
use plimsoll_core::directive::{Terms, Values};
use plimsoll_core::law::ZoneGuard;
use plimsoll_core::rate::{Limit, Rate};
use plimsoll_core::ratio::DropRatio;
use plimsoll_core::rollout::Mode;

use super::Subscription;
use crate::word::Word;

impl Subscription {
    const fn mode(&self, directed: Mode) -> Mode {
        if self.kill.is_killed() { Mode::Shadow } else { directed }
    }

    /// Whether refusals are carried out here and now.
    pub(super) fn enforces(&self, terms: &Terms) -> bool {
        match self.mode(terms.mode) {
            Mode::Shadow => false,
            Mode::Canary => terms.cohort.contains(&self.identity.name),
            Mode::Enforce => true,
        }
    }

    /// What becomes of a bucket's refusals here and now, shadow while killed; `None` before the first directive, unless
    /// the service itself has set a rate for that time.
    pub(crate) fn mode_of(&self, bucket: &Bucket) -> Option<Mode> {
        match self.board.get(bucket) {
            Some(posted) => Some(self.mode(posted.terms().mode)),
            None => self.cold.get(bucket).map(|_| self.mode(Mode::Enforce)),
        }
    }

    /// What the service lets pass of a bucket while nobody has said anything about its rate: before the first
    /// directive, and while an aggregator that has just started keeps its ratios to itself.
    fn cold_rate(&self, bucket: &Bucket) -> Option<Rate> {
        let rate = *self.cold.get(bucket)?;
        let Some(posted) = self.board.get(bucket) else { return Some(rate) };
        let is_silent = |values: Values| values.ratio.is_none() && values.guard.is_none();
        let limited = matches!(posted.terms().limit, Limit::PerSecond(_));
        (limited && posted.keys().all(|(_, values)| is_silent(values))).then_some(rate)
    }

    /// Publishes what holds for the bucket with this id.
    pub(super) fn publish(&mut self, id: usize) {
        let Some(bucket) = self.buckets.get(id) else { return };
        let own = match (self.cold_rate(bucket), self.board.get(bucket)) {
            (Some(rate), _) => self.publish_cold(id, rate),
            (None, Some(_)) => self.publish_directed(id),
            (None, None) => return,
        };
        let Some(bucket) = self.buckets.get(id) else { return };
        let before = self.own.insert(bucket.clone(), own.clone()).unwrap_or_default();
        for key in before.into_iter().filter(|key| own.binary_search(key).is_err()) {
            self.table.publish(key, Word::NOTHING);
            self.guards.remove(key);
        }
    }

    /// Publishes what is directed for a bucket; yields the keys with a word of their own, in order.
    fn publish_directed(&mut self, id: usize) -> Vec<u32> {
        let mut own = Vec::new();
        let Some(posted) = self.buckets.get(id).and_then(|bucket| self.board.get(bucket)) else { return own };
        let enforced = self.enforces(posted.terms());
        for (tenant, values) in posted.keys() {
            let Some(key) = self.table.keys.intern_patiently(id as u32, tenant.as_str()) else { continue };
            let guard = guard_of(posted.terms(), &values);
            match guard {
                // The tokens are there before anybody can miss them.
                Some(guard) => self.guards.set(&self.table, key, guard),
                None => self.guards.remove(key),
            }
            let word = match (values.ratio, guard) {
                (None, None) => Word::NOTHING,
                (ratio, guard) => Word::new(ratio.unwrap_or_default())
                    .enforced(enforced)
                    .guarded(guard.is_some())
                    .coin(posted.terms().coin),
            };
            self.table.publish(key, word);
            own.push(key);
        }
        own.sort_unstable();
        own
    }

    /// Publishes the service's own rate for a bucket nothing is known of: one guard for all its tenants.
    fn publish_cold(&mut self, id: usize, rate: Rate) -> Vec<u32> {
        let Some(bucket) = self.buckets.get(id) else { return Vec::new() };
        let enforced = match self.board.get(bucket) {
            Some(posted) => self.enforces(posted.terms()),
            None => self.mode(Mode::Enforce) == Mode::Enforce,
        };
        let key = self.table.keys.intern_patiently(id as u32, DEFAULT_TENANT);
        if let Some(key) = key {
            self.guards.set_alone(&self.table, key, rate);
            self.table.publish(key, Word::new(DropRatio::NONE).enforced(enforced).guarded(true));
        }
        key.into_iter().collect()
    }
}

/// The guard that is directed for a key. Without the number of clients to divide it among there is none.
fn guard_of(terms: &Terms, values: &Values) -> Option<ZoneGuard> {
    Some(ZoneGuard {
        limit: terms.limit,
        rate: values.guard?,
        offered: values.offered,
        clients: terms.clients?,
    })
}
