//! From what is directed to what the request path reads: one word for each key, and its guard.

use plimsoll_core::names::{Bucket, DEFAULT_TENANT};
use plimsoll_core::decision::coherent::Coherence;
use plimsoll_core::directive::{Terms, Values};
use plimsoll_core::law::ZoneGuard;
use plimsoll_core::decision::Coin;
use plimsoll_core::quantity::{Limit, Rate};
use plimsoll_core::quantity::DropRatio;
use plimsoll_core::decision::Mode;

use super::Subscription;
use crate::hot::guards::Guards;
use crate::hot::table::Table;
use crate::hot::directive_word::Word;

impl Subscription {
    /// What is left of the mode that a bucket's terms tell.
    pub(super) fn mode(&self, bucket: &Bucket, terms: &Terms) -> Mode {
        if self.observes { Mode::Shadow } else { self.kills.mode(bucket, terms) }
    }

    /// The same where nobody has told any, for a rate that the service itself has set.
    fn mode_untold(&self, bucket: &Bucket) -> Mode {
        self.mode(bucket, &Terms { mode: Mode::Enforce, ..Terms::default() })
    }

    /// Whether refusals are carried out here and now.
    pub(super) fn enforces(&self, bucket: &Bucket, terms: &Terms) -> bool {
        match self.mode(bucket, terms) {
            Mode::Shadow => false,
            Mode::Canary => terms.cohort.contains(&self.identity.name),
            Mode::Enforce => true,
        }
    }

    /// What becomes of a bucket's refusals here and now, shadow while killed; `None` before the first directive, unless
    /// the service itself has set a rate for that time.
    pub(crate) fn mode_of(&self, bucket: &Bucket) -> Option<Mode> {
        match self.board.get(bucket) {
            Some(posted) => Some(self.mode(bucket, posted.terms())),
            None => self.cold.get(bucket).map(|_| self.mode_untold(bucket)),
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

    /// Takes up what coherent coins draw by, before any word goes by it. Of several aggregators one may still be in an
    /// earlier epoch than another: the latest salt holds, for all buckets.
    fn take_key(&mut self, told: Coherence) {
        if self.coherence.is_none_or(|held| told.salt >= held.salt && told != held) {
            self.coherence = Some(told);
            self.table.draw_key.store(told.draw_key());
        }
    }

    /// Publishes what holds for the bucket with this id.
    pub(super) fn publish(&mut self, id: usize) {
        let Some(bucket) = self.buckets.get(id) else { return };
        if let Some(told) = self.board.get(bucket).and_then(|posted| posted.terms().coherence) {
            self.take_key(told);
        }
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
        let Some(bucket) = self.buckets.get(id) else { return own };
        let Some(posted) = self.board.get(bucket) else { return own };
        let enforced = self.enforces(bucket, posted.terms());
        self.table.responses.stand(id, self.side(posted));
        for (tenant, values) in posted.keys() {
            // A key that nobody asks for takes an id only while there are plenty; else it has its words when it enters.
            let Some(key) = self.table.keys.intern_sparingly(id as u32, tenant.as_str()) else { continue };
            direct(&self.table, &mut self.guards, key, posted.terms(), &values, enforced);
            own.push(key);
        }
        own.sort_unstable();
        own
    }

    /// Publishes what holds for a key that has just entered.
    pub(super) fn publish_key(&mut self, id: u32) {
        let Some(key) = self.roll.keys().get(id as usize) else { return };
        let Some(posted) = self.board.get(&key.bucket) else { return };
        let Some(values) = posted.own(key.tenant.as_str()) else { return };
        let enforced = self.enforces(&key.bucket, posted.terms());
        direct(&self.table, &mut self.guards, id, posted.terms(), &values, enforced);
        let own = self.own.entry(key.bucket.clone()).or_default();
        if let Err(at) = own.binary_search(&id) {
            own.insert(at, id);
        }
    }

    /// Publishes the service's own rate for a bucket nothing is known of: one guard for all its tenants.
    fn publish_cold(&mut self, id: usize, rate: Rate) -> Vec<u32> {
        let Some(bucket) = self.buckets.get(id) else { return Vec::new() };
        let enforced = match self.board.get(bucket) {
            Some(posted) => self.enforces(bucket, posted.terms()),
            None => self.mode_untold(bucket) == Mode::Enforce,
        };
        let key = self.table.keys.intern(id as u32, DEFAULT_TENANT);
        if let Some(key) = key {
            self.guards.set_alone(&self.table, key, rate);
            self.table.publish(key, Word::new(DropRatio::NONE).enforced(enforced).guarded(true));
        }
        key.into_iter().collect()
    }
}

/// Publishes what holds for one key.
fn direct(table: &Table, guards: &mut Guards, key: u32, terms: &Terms, values: &Values, enforced: bool) {
    let guard = guard_of(terms, values);
    match guard {
        // The tokens are there before anybody can miss them.
        Some(guard) => guards.set(table, key, guard),
        None => guards.remove(key),
    }
    let word = match (values.ratio, guard) {
        (None, None) => Word::NOTHING,
        (ratio, guard) => {
            let word = Word::new(ratio.unwrap_or_default()).enforced(enforced).guarded(guard.is_some());
            let coherent = terms.coin == Coin::Coherent && terms.coherence.is_some();
            word.coin(terms.coin).coherent(coherent)
        }
    };
    table.publish(key, word);
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
