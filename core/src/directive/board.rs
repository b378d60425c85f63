//! The directives in force at one place, and what of them a reader has not seen yet.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fanout::{Audiences, Readings, Seen};
use super::{Audience, BucketDirective, Edition, Fanout, KeyDirective, Terms, Values};
use crate::names::{Bucket, DEFAULT_TENANT, Tenant};
use crate::quantity::Limit;

/// Holds the whole state of every bucket and numbers its changes, so that any reader can be told only what changed
/// since it last looked, however long ago that was: slow readers are conflated here, before anything is encoded. What
/// many readers have to hear alike is composed once.
#[derive(Debug, Default)]
pub struct Board {
    version: u64,
    buckets: BTreeMap<Bucket, Posted>,
    readings: Readings,
    audiences: Audiences,
}

/// One bucket on the board.
#[derive(Debug, Default)]
pub struct Posted {
    terms: Terms,
    /// In the order of names.
    keys: Vec<PostedKey>,
    changed: u64,
    /// The change before the latest.
    before: u64,
    reshaped: u64,
}

/// One key on the board.
#[derive(Debug)]
struct PostedKey {
    tenant: Tenant,
    values: Values,
    changed: u64,
}

impl Board {
    /// The number of the latest change; 0 before the first.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// What is posted for a bucket.
    #[must_use]
    pub fn get(&self, bucket: &Bucket) -> Option<&Posted> {
        self.buckets.get(bucket)
    }

    /// Every bucket, in name order.
    pub fn iter(&self) -> impl Iterator<Item = (&Bucket, &Posted)> {
        self.buckets.iter()
    }

    /// Number of buckets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buckets.len()
    }

    /// Whether nothing is posted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// Applies a directive; true when it changed anything. An absent value keeps the one held, a limit without a
    /// number clears all of them, a whole directive takes away the tenants it does not name. Linear in the keys when
    /// they come in the order of names, as they should.
    pub fn apply(&mut self, directive: &BucketDirective) -> bool {
        let next = self.version + 1;
        let is_new = !self.buckets.contains_key(&directive.bucket);
        let posted = self.buckets.entry(directive.bucket.clone()).or_default();
        let terms = Terms { hold: directive.terms.hold.or(posted.terms.hold), ..directive.terms };
        let retermed = posted.terms != terms;
        posted.terms = terms;
        let sorted;
        let keys = if directive.keys.is_sorted_by(|a, b| a.tenant < b.tenant) {
            &directive.keys
        } else {
            sorted = in_order(&directive.keys);
            &sorted
        };
        let (changed, removed) = posted.take(keys, directive.whole, next);
        if !(is_new || retermed || changed || removed) {
            return false;
        }
        (posted.before, posted.changed) = (posted.changed, next);
        self.readings.clear();
        // New terms alone reshape nothing: they are told with every directive, and a hold changes all the time.
        if is_new || removed {
            posted.reshaped = next;
        }
        self.version = next;
        true
    }

    /// What a reader that last saw version `seen` of a bucket has to be told; `None` when it knows everything.
    #[must_use]
    pub fn since(&self, bucket: &Bucket, seen: u64) -> Option<BucketDirective> {
        let posted = self.buckets.get(bucket)?;
        (posted.changed > seen).then(|| posted.since(bucket, Seen { version: seen, values: true }))
    }

    /// The same, shared by all who have seen as much: those who saw the change before the latest hear of the latest
    /// alone, and of those who saw less all but a few hear the whole. Without `values` they are left out.
    pub fn news(&mut self, bucket: &Bucket, seen: u64, values: bool) -> Option<Arc<Fanout>> {
        let posted = self.buckets.get(bucket)?;
        if posted.changed <= seen {
            return None;
        }
        // Nothing of the bucket changed between the change before the latest and now.
        let version = if seen >= posted.before { posted.before } else { seen };
        let version = if posted.reshaped > version { 0 } else { version };
        let compose = |seen| posted.since(bucket, seen);
        Some(self.readings.of_bucket(bucket, Seen { version, values }, compose))
    }

    /// What an audience that last saw version `seen` has to be told; `None` when it knows everything. The same for all
    /// of its children at the price of one reference; linear in its buckets for the first of them after a change.
    pub fn edition(&mut self, audience: &Audience, seen: u64, values: bool) -> Option<Edition> {
        if seen >= self.version || audience.is_empty() {
            return None;
        }
        let key = Seen { version: seen, values };
        if let Some(edition) = self.readings.edition(audience, key) {
            return edition;
        }
        let news: Vec<Arc<Fanout>> =
            audience.iter().filter_map(|bucket| self.news(bucket, seen, values)).collect();
        let edition = (!news.is_empty()).then(|| news.into());
        self.readings.keep(audience, key, &edition);
        edition
    }

    /// The audience that hears about these buckets, whether they are posted or not.
    pub fn audience(&mut self, buckets: BTreeSet<Bucket>) -> Audience {
        self.audiences.of(buckets)
    }
}

/// The keys in the order of names; of two with one name, the later one.
fn in_order(keys: &[KeyDirective]) -> Vec<KeyDirective> {
    let by_name: BTreeMap<&Tenant, &KeyDirective> = keys.iter().map(|key| (&key.tenant, key)).collect();
    by_name.into_values().cloned().collect()
}

impl Posted {
    /// What holds for all keys.
    #[must_use]
    pub const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The tenants with a directive of their own, the default class among them, and their values, in the order of
    /// names.
    pub fn keys(&self) -> impl Iterator<Item = (&Tenant, Values)> {
        self.keys.iter().map(|key| (&key.tenant, key.values))
    }

    /// What holds for a tenant by its own name; `None` where it has no directive of its own.
    #[must_use]
    pub fn own(&self, tenant: &str) -> Option<Values> {
        let at = self.keys.binary_search_by(|key| key.tenant.as_str().cmp(tenant)).ok()?;
        self.keys.get(at).map(|key| key.values)
    }

    /// What holds for a tenant: its own values, or else those of the default class.
    #[must_use]
    pub fn values(&self, tenant: &Tenant) -> Option<Values> {
        self.own(tenant.as_str()).or_else(|| self.own(DEFAULT_TENANT))
    }

    /// What one who has `seen` so much has to be told.
    fn since(&self, bucket: &Bucket, seen: Seen) -> BucketDirective {
        let whole = self.reshaped > seen.version;
        let told = |key: &&PostedKey| whole || key.changed > seen.version;
        let told = self.keys.iter().filter(told).map(|key| KeyDirective {
            tenant: key.tenant.clone(),
            values: if seen.values { key.values } else { Values::default() },
        });
        BucketDirective { bucket: bucket.clone(), whole, terms: self.terms, keys: told.collect() }
    }

    /// Merges keys that come in the order of names; says whether any value changed, and whether any key went.
    fn take(&mut self, news: &[KeyDirective], whole: bool, version: u64) -> (bool, bool) {
        let limited = matches!(self.terms.limit, Limit::PerSecond(_));
        let settle = |values: Values| if limited { values } else { values.without_limit() };
        let (mut changed, mut removed) = (false, false);
        let mut news = news.iter().peekable();
        let held = std::mem::take(&mut self.keys);
        self.keys.reserve(held.len());
        let enter = |news: &KeyDirective| PostedKey {
            tenant: news.tenant.clone(),
            values: settle(news.values),
            changed: version,
        };
        for mut key in held {
            while let Some(new) = news.next_if(|new| new.tenant < key.tenant) {
                self.keys.push(enter(new));
                changed = true;
            }
            let named = news.next_if(|new| new.tenant.cmp(&key.tenant) == Ordering::Equal);
            if whole && named.is_none() {
                removed = true;
                continue;
            }
            let values = settle(named.map_or(key.values, |new| new.values.or(key.values)));
            if values != key.values {
                (key.values, key.changed) = (values, version);
                changed = true;
            }
            self.keys.push(key);
        }
        for new in news {
            self.keys.push(enter(new));
            changed = true;
        }
        (changed, removed)
    }
}
