//! The publisher: turns the directive of a bucket into what the request path reads, a directive word and a
//! guard per key, and a headroom pool.

mod division;
mod names;
mod plans;
mod waits;

use std::collections::{BTreeMap, HashMap};

use plimsoll_core::decision::coherent::Coherence;
use plimsoll_core::decision::{Coin, Mode};
use plimsoll_core::directive::{Posted, Terms, Values};
use plimsoll_core::law::ZoneGuard;
use plimsoll_core::law::tail::Standing;
use plimsoll_core::names::{Bucket, DEFAULT_TENANT, Key, Tenant, own_name};
use plimsoll_core::quantity::{DropRatio, Limit, MonoTime, Rate};
use plimsoll_core::report::Side;

use super::enforcement::{Division, Enforcement, Stance};
use crate::hot::directive_word::DirectiveWord;
use crate::hot::guards::Guards;
use crate::hot::interner::key_registry::KeyRegistry;
use crate::hot::table::Table;
use crate::responses::Cohort;
use division::Divisions;
use names::{Names, has_plans};
use plans::Plans;
use waits::Waits;

#[derive(Default)]
pub(super) struct Publisher {
    pub(super) guards: Guards,
    /// By bucket: the keys with their own directive word, sorted.
    own_words: HashMap<Bucket, Vec<u32>>,
    waits: Waits,
    divisions: Divisions,
    pub(super) names: Names,
    plans: Plans,
    coherence: Option<Coherence>,
    /// By bucket: the rate that the service itself has set for the time without directives. It applies from
    /// the next publication on.
    pub(super) cold_rates: BTreeMap<Bucket, Rate>,
}

#[derive(Clone, Copy)]
pub(super) struct Published<'a> {
    pub(super) id: u32,
    pub(super) bucket: &'a Bucket,
    /// `None` before the first directive.
    pub(super) stance: Option<Stance<'a>>,
    pub(super) enforcement: &'a Enforcement,
    pub(super) registry: &'a KeyRegistry,
}

// === Time ===

impl Publisher {
    pub(super) fn set_time(&mut self, now: MonoTime) {
        self.waits.set_time(now);
    }

    pub(super) fn on_tick(&mut self, now: MonoTime, table: &Table) {
        self.guards.refill(now, table);
        self.waits.renew(now, table);
    }
}

// === Directives ===

impl Publisher {
    /// Returns true while a canary is divided by key, so that each new key has its own side.
    pub(super) fn is_divided(&self) -> bool {
        !self.divisions.marked.is_empty()
    }

    /// Publishes a bucket, and withdraws the words of keys that do not have their own anymore.
    pub(super) fn publish(&mut self, table: &Table, published: Published<'_>) {
        let Published {
            id, bucket, stance, ..
        } = published;
        let posted = stance.map(|stance| stance.posted);
        let terms = posted.map(Posted::terms);
        if let Some(coherence) = terms.and_then(|terms| terms.coherence) {
            self.set_coherence(table, coherence);
        }
        let quotas = terms.and_then(|terms| terms.quotas.as_ref());
        table.quotas.set(id, quotas);
        if let Some(terms) = terms {
            table.limits.set(id, terms.limit);
        }
        if let Some(stance) = &stance {
            self.divisions.begin(table, published, &self.names, stance);
        }
        let cold_rate = self.cold_rate(bucket, posted);
        let pool = terms.filter(|_| cold_rate.is_none());
        let pool = pool.and_then(|terms| Some((terms.pool?, terms.clients?, terms.limit)));
        self.guards.set_pool(table, id, pool);
        let own = match (cold_rate, &stance) {
            (Some(rate), _) => self.publish_cold(table, published, rate),
            (None, Some(stance)) => self.publish_directive(table, id, stance),
            (None, None) if table.before_policy.is_held() => {
                publish_before_policy(table, published)
            }
            (None, None) => return,
        };
        let before = self.own_words.get(bucket).into_iter().flatten();
        for key in before.filter(|key| own.binary_search(key).is_err()) {
            let tenant = published
                .registry
                .keys()
                .get(*key as usize)
                .map(|key| key.tenant.as_str());
            let word = stance
                .zip(tenant)
                .map(|(stance, tenant)| self.names.word(*key, tenant, &stance));
            table.publish(*key, word.unwrap_or(DirectiveWord::NOTHING));
            self.guards.remove(*key);
            self.waits.class(*key, None);
            table.limits.set_tenant(*key, None);
        }
        self.own_words.insert(bucket.clone(), own);
        if let Some(stance) = &stance {
            self.publish_names(table, published, stance);
            self.divisions.end(table, published, &self.names, stance);
        }
    }

    /// Publishes the word of a key that has taken an id or was revived.
    pub(super) fn publish_key(&mut self, table: &Table, id: u32, key: &Key, stance: &Stance<'_>) {
        let tenant = key.tenant.as_str();
        table.responses.set_side(id, stance.side(tenant));
        let Some(values) = stance.posted.own(own_name(tenant)) else {
            let word = self.names.word(id, tenant, stance);
            if word != DirectiveWord::NOTHING {
                table.publish(id, word);
            }
            return;
        };
        self.publish_values(table, id, tenant, &values, stance);
        let own = self.own_words.entry(key.bucket.clone()).or_default();
        if let Err(at) = own.binary_search(&id) {
            own.insert(at, id);
        }
    }

    /// Publishes the words that the unlisted names of a bucket follow. Names with a known rate have
    /// their own ratios.
    fn publish_names(&mut self, table: &Table, published: Published<'_>, stance: &Stance<'_>) {
        let Published {
            id,
            bucket,
            registry,
            ..
        } = published;
        let established = table.default_key(id).map_or(DirectiveWord::NOTHING, |key| {
            plans::established(table, key, stance.posted, DEFAULT_TENANT)
        });
        table.publish_established(id, established);
        if self.plans.publish(table, id, stance.posted) {
            for (key, name) in registry.present(table, id) {
                let class = self.names.class_of(key, name.tenant.as_str());
                self.plans.set_class(table, id, key, class);
                self.names.publish(table, key, name, stance);
            }
        }
        // Reading the words in the table would miss the cache for each name.
        let own = self.own_words.get(bucket).map_or(&[][..], Vec::as_slice);
        for key in self
            .names
            .counted(id)
            .filter(|key| own.binary_search(key).is_err())
        {
            let tenant = registry
                .keys()
                .get(key as usize)
                .map_or(DEFAULT_TENANT, |key| key.tenant.as_str());
            table.publish(key, self.names.word(key, tenant, stance));
        }
    }

    /// Sets the class that a key follows when it has taken an id.
    pub(super) fn set_class(&mut self, table: &Table, id: u32, key: &Key) {
        let class = self.names.class_of(id, key.tenant.as_str());
        self.plans
            .set_class(table, table.keys.owner_of(id), id, class);
    }

    /// Sets the class of a name whose requests bring no plan.
    pub(super) fn set_catalogued(
        &mut self,
        table: &Table,
        published: Published<'_>,
        key: u32,
        class: &Tenant,
    ) {
        self.names.set_class(key, class);
        self.plans
            .set_class(table, published.id, key, class.as_str());
        self.publish_name(table, published, key);
    }

    pub(super) fn set_standing(
        &mut self,
        table: &Table,
        published: Published<'_>,
        key: u32,
        standing: Standing,
    ) {
        self.names.set(published.id, key, standing);
        self.publish_name(table, published, key);
    }

    /// Publishes the word of a name without its own directive.
    fn publish_name(&self, table: &Table, published: Published<'_>, key: u32) {
        let name = published.registry.keys().get(key as usize);
        if let (Some(stance), Some(name)) = (&published.stance, name) {
            self.names.publish(table, key, name, stance);
        }
    }

    /// Withdraws the standing, guard and wait of a key before another key may take the id. Its word is
    /// withdrawn already.
    pub(super) fn withdraw_key(&mut self, bucket: u32, id: u32) {
        self.names.remove(bucket, id);
        self.guards.remove(id);
        self.waits.remove(id);
        self.own_words
            .values_mut()
            .for_each(|own| own.retain(|key| *key != id));
    }

    /// Publishes a directive. Returns the keys with a word of their own, sorted.
    fn publish_directive(&mut self, table: &Table, bucket: u32, stance: &Stance<'_>) -> Vec<u32> {
        let side = match stance.division() {
            Division::Whole(side) => side,
            // The keys have their own sides. A bucket's side is the side of refusals, and only keys
            // in the cohort refuse.
            Division::ByKey(_) => Side::Canary,
        };
        let in_canary = stance.mode == Mode::Canary;
        table
            .responses
            .set_cohort(bucket as usize, Cohort { side, in_canary });
        let mut own = Vec::new();
        for (tenant, values) in stance.posted.keys() {
            // A tenant without requests gets a key only while there are plenty; else its directive is
            // published when it enters.
            let name = tenant.as_str();
            let key = match tenant.plan() {
                Some(_) => self.plans.key_of_class(table, bucket, name),
                // The first request enters the tenant, with its plan.
                None if has_plans(stance.posted) && name != DEFAULT_TENANT => {
                    table.keys.known(bucket, name).map(|word| word.id())
                }
                None => table.keys.intern_if_roomy(bucket, name),
            };
            if let Some(key) = key {
                self.publish_values(table, key, name, &values, stance);
                own.push(key);
            }
        }
        own.sort_unstable();
        own
    }

    fn publish_values(
        &mut self,
        table: &Table,
        key: u32,
        tenant: &str,
        values: &Values,
        stance: &Stance<'_>,
    ) {
        let terms = stance.posted.terms();
        let guard = guard_of(terms, values);
        match guard {
            // Before the word, so that no request finds a guard without tokens.
            Some(guard) => self.guards.set(table, key, guard),
            None => self.guards.remove(key),
        }
        table.limits.set_tenant(key, values.entitlement);
        let class = self.waits.class(key, values.ratio);
        let word = match (values.ratio, guard) {
            (None, None) => self.names.word(key, tenant, stance),
            (ratio, guard) => {
                let is_coherent = terms.coin == Coin::Coherent && terms.coherence.is_some();
                let word =
                    DirectiveWord::new(ratio.unwrap_or_default()).enforced(stance.enforces(tenant));
                let word = word
                    .guarded(guard.is_some())
                    .independent(terms.coin == Coin::Coherent)
                    .coherent(is_coherent);
                word.at_tenant_limit(values.at_tenant_limit.unwrap_or_default())
                    .wait(class)
            }
        };
        table.publish(key, word);
    }

    /// Publishes the key and salt of coherent coins, before any word that refers to them. While one
    /// aggregator is still in an earlier epoch than another, the latest salt applies to all buckets.
    fn set_coherence(&mut self, table: &Table, new: Coherence) {
        if self
            .coherence
            .is_none_or(|held| new.salt >= held.salt && new != held)
        {
            self.coherence = Some(new);
            table.draw_key.store(new.draw_key());
        }
    }
}

impl Published<'_> {
    /// Returns true if the refusals of the default class are carried out, also before the first directive.
    fn is_enforced(&self) -> bool {
        match &self.stance {
            Some(stance) => stance.enforces(DEFAULT_TENANT),
            None => self.enforcement.mode_without_terms(self.bucket) == Mode::Enforce,
        }
    }
}

fn publish_before_policy(table: &Table, published: Published<'_>) -> Vec<u32> {
    let key = table.keys.intern(published.id, DEFAULT_TENANT);
    if let Some(key) = key {
        let word = table.before_policy.enforced(published.is_enforced());
        table.publish(key, word);
    }
    key.into_iter().collect()
}

/// Returns the guard directed for a key. Without the number of clients that share it there is none.
fn guard_of(terms: &Terms, values: &Values) -> Option<ZoneGuard> {
    Some(ZoneGuard {
        limit: terms.limit,
        rate: values.guard?,
        offered: values.offered,
        clients: terms.clients?,
    })
}

// === Rates of the service itself ===

impl Publisher {
    /// Returns the service's rate while it applies: before the first directive, and while an aggregator directs
    /// neither ratio nor guard for a limited bucket, because it has just started.
    fn cold_rate(&self, bucket: &Bucket, posted: Option<&Posted>) -> Option<Rate> {
        let rate = *self.cold_rates.get(bucket)?;
        let Some(posted) = posted else {
            return Some(rate);
        };
        let is_empty = |values: Values| values.ratio.is_none() && values.guard.is_none();
        let is_limited = matches!(posted.terms().limit, Limit::PerSecond(_));
        (is_limited && posted.keys().all(|(_, values)| is_empty(values))).then_some(rate)
    }

    fn publish_cold(&mut self, table: &Table, published: Published<'_>, rate: Rate) -> Vec<u32> {
        let key = table.keys.intern(published.id, DEFAULT_TENANT);
        if let Some(key) = key {
            self.guards.set_alone(table, key, rate);
            self.waits.class(key, None);
            let word = DirectiveWord::new(DropRatio::NONE).cold(true);
            table.publish(key, word.enforced(published.is_enforced()).guarded(true));
        }
        key.into_iter().collect()
    }
}
