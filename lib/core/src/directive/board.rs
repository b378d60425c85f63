//! The current directives at one parent, versioned, so that each reader gets only what changed
//! since it last read.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fanout::{Audiences, Seen, UpdateCache};
use super::{Audience, AudienceUpdate, BucketDirective, BucketUpdate, KeyDirective, Terms, Values};
use crate::names::{Bucket, DEFAULT_TENANT, Tenant, own_name, split_class};
use crate::quantity::Limit;

/// Holds the whole state of every bucket and numbers its changes. A reader asks for the changes since the
/// version it saw last, so slow readers are conflated here, before anything is encoded. Updates that many
/// readers need are composed once.
#[derive(Debug, Default)]
pub struct Board {
    version: u64,
    buckets: BTreeMap<Bucket, Posted>,
    cache: UpdateCache,
    audiences: Audiences,
}

/// One bucket on the board.
#[derive(Debug, Default)]
pub struct Posted {
    terms: Terms,
    keys: Vec<PostedKey>,
    /// The version of its latest change.
    changed: u64,
    /// The version of the change before that.
    before: u64,
    /// The version when the bucket was new, or keys were last removed: a reader from before needs the whole state.
    reshaped: u64,
    quotas_changed: u64,
}

#[derive(Debug)]
struct PostedKey {
    tenant: Tenant,
    values: Values,
    changed: u64,
}

impl Board {
    /// The version of the latest change; 0 before the first.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Returns the state of a bucket.
    pub fn get(&self, bucket: &Bucket) -> Option<&Posted> {
        self.buckets.get(bucket)
    }

    /// Every bucket, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&Bucket, &Posted)> {
        self.buckets.iter()
    }

    /// Removes buckets that no reader needs any more.
    pub fn remove(&mut self, buckets: &BTreeSet<Bucket>) {
        buckets
            .iter()
            .for_each(|bucket| drop(self.buckets.remove(bucket)));
        self.cache.clear();
    }

    /// Applies a directive; returns true if it changed the state. An absent value keeps the held one, a limit
    /// without a number clears all values but entitlements, and a whole directive removes the tenants that it does
    /// not name.
    /// Linear in the keys if they are in the order of names, as they should be.
    pub fn apply(&mut self, directive: &BucketDirective) -> bool {
        let next = self.version + 1;
        let is_new = !self.buckets.contains_key(&directive.bucket);
        let posted = self.buckets.entry(directive.bucket.clone()).or_default();
        let terms = directive.terms.clone().or(&posted.terms);
        let retermed = posted.terms != terms;
        if posted.terms.quotas != terms.quotas {
            posted.quotas_changed = next;
        }
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
        self.cache.clear();
        // New terms without other changes keep the shape: they are sent with every directive, and a
        // hold changes all the time.
        if is_new || removed {
            posted.reshaped = next;
        }
        self.version = next;
        true
    }

    /// Returns the changes of a bucket since version `seen`; `None` if there are none.
    pub fn since(&self, bucket: &Bucket, seen: u64) -> Option<BucketDirective> {
        let posted = self.buckets.get(bucket)?;
        (posted.changed > seen).then(|| {
            posted.since(
                bucket,
                Seen {
                    version: seen,
                    values: true,
                },
            )
        })
    }

    /// Returns the same as [`Self::since`], shared by all readers of the same version. Readers of
    /// the version before the latest get only the latest change; slower readers, all but a few, get
    /// the whole state. Without `values`, the values of keys are left out, and with them headroom,
    /// pool, cut and the terms of plans.
    pub fn update(
        &mut self,
        bucket: &Bucket,
        seen: u64,
        values: bool,
    ) -> Option<Arc<BucketUpdate>> {
        let posted = self.buckets.get(bucket)?;
        if posted.changed <= seen {
            return None;
        }
        // The bucket did not change between the change before the latest and the latest.
        let version = if seen >= posted.before {
            posted.before
        } else {
            seen
        };
        let version = if posted.reshaped > version {
            0
        } else {
            version
        };
        let compose = |seen| posted.since(bucket, seen);
        Some(
            self.cache
                .of_bucket(bucket, Seen { version, values }, compose),
        )
    }

    /// Returns the changes since version `seen` for an audience; `None` if there are none. The result is
    /// shared: it costs one reference count per child, and time linear in the buckets for the first child
    /// after a change.
    pub fn audience_update(
        &mut self,
        audience: &Audience,
        seen: u64,
        values: bool,
    ) -> Option<AudienceUpdate> {
        if seen >= self.version || audience.is_empty() {
            return None;
        }
        let key = Seen {
            version: seen,
            values,
        };
        if let Some(update) = self.cache.audience_update(audience, key) {
            return update;
        }
        let news: Vec<Arc<BucketUpdate>> = audience
            .iter()
            .filter_map(|bucket| self.update(bucket, seen, values))
            .collect();
        let update = (!news.is_empty()).then(|| news.into());
        self.cache.keep(audience, key, &update);
        update
    }

    /// Returns the audience that is subscribed to these buckets, posted or not.
    pub fn audience(&mut self, buckets: BTreeSet<Bucket>) -> Audience {
        self.audiences.of(buckets)
    }
}

/// Sorts the keys by name; of two with one name, the later one is kept.
fn in_order(keys: &[KeyDirective]) -> Vec<KeyDirective> {
    let by_name: BTreeMap<&Tenant, &KeyDirective> =
        keys.iter().map(|key| (&key.tenant, key)).collect();
    by_name.into_values().cloned().collect()
}

impl Posted {
    /// The terms of all keys.
    pub const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The tenants with their own directive, classes included, with their values, in the
    /// order of names.
    pub fn keys(&self) -> impl Iterator<Item = (&Tenant, Values)> {
        self.keys.iter().map(|key| (&key.tenant, key.values))
    }

    /// Returns the values of a tenant by its own name; `None` without its own directive.
    pub fn own(&self, tenant: &str) -> Option<Values> {
        let at = self
            .keys
            .binary_search_by(|key| key.tenant.as_str().cmp(tenant))
            .ok()?;
        self.keys.get(at).map(|key| key.values)
    }

    /// Returns the values of a tenant: its own, or else the values of its class.
    pub fn values(&self, tenant: &Tenant) -> Option<Values> {
        self.own(self.entry_of(tenant.as_str()))
    }

    /// Returns the name of the entry that a tenant has: its own, or else that of its class. A plan without an entry
    /// is the default class.
    pub fn entry_of<'a>(&self, tenant: &'a str) -> &'a str {
        let own = own_name(tenant);
        if self.own(own).is_some() {
            own
        } else {
            self.class_of(tenant)
        }
    }

    /// Returns the class of an unlisted tenant.
    pub fn class_of<'a>(&self, tenant: &'a str) -> &'a str {
        let (_, class) = split_class(tenant);
        if self.own(class).is_some() {
            class
        } else {
            DEFAULT_TENANT
        }
    }

    fn since(&self, bucket: &Bucket, seen: Seen) -> BucketDirective {
        let whole = self.reshaped > seen.version;
        let is_sent = |key: &&PostedKey| whole || key.changed > seen.version;
        let keys = self.keys.iter().filter(is_sent).map(|key| KeyDirective {
            tenant: key.tenant.clone(),
            values: if seen.values {
                key.values
            } else {
                Values::default()
            },
        });
        let mut terms = self.terms.clone();
        if !seen.values {
            (terms.headroom, terms.pool, terms.cut) = (None, None, None);
            terms.plans.clear();
        }
        // Definitions change rarely, and terms are sent with every directive.
        if self.quotas_changed <= seen.version {
            terms.quotas = None;
        }
        BucketDirective {
            bucket: bucket.clone(),
            whole,
            terms,
            keys: keys.collect(),
        }
    }

    /// Merges keys in the order of names; returns whether any value changed, and whether any key was removed.
    fn take(&mut self, news: &[KeyDirective], whole: bool, version: u64) -> (bool, bool) {
        let limited = matches!(self.terms.limit, Limit::PerSecond(_));
        let settle = |values: Values| {
            if limited {
                values
            } else {
                values.without_limit()
            }
        };
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
