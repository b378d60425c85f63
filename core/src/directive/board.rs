//! The directives in force at one place, and what of them a reader has not seen yet.

use std::collections::{BTreeMap, BTreeSet};

use super::{BucketDirective, KeyDirective};
use crate::bucket::{Bucket, DEFAULT_TENANT, Tenant};
use crate::rate::Limit;
use crate::ratio::DropRatio;
use crate::rollout::Mode;

/// Holds the whole state of every bucket and numbers its changes, so that any reader can be told only what changed
/// since it last looked, however long ago that was: slow readers are conflated here, before anything is encoded.
#[derive(Debug, Default)]
pub struct Board {
    version: u64,
    buckets: BTreeMap<Bucket, Posted>,
}

/// One bucket on the board.
#[derive(Debug, Default)]
pub struct Posted {
    limit: Limit,
    mode: Mode,
    keys: BTreeMap<Tenant, (Option<DropRatio>, u64)>,
    changed: u64,
    reshaped: u64,
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

    /// Applies a directive; true when it changed anything. An absent ratio keeps the one held, a limit without a
    /// number clears all of them, a whole directive takes away the tenants it does not name.
    pub fn apply(&mut self, directive: &BucketDirective) -> bool {
        let next = self.version + 1;
        let is_new = !self.buckets.contains_key(&directive.bucket);
        let posted = self.buckets.entry(directive.bucket.clone()).or_default();
        let mut reshaped = is_new || posted.limit != directive.limit || posted.mode != directive.mode;
        let mut changed = reshaped;
        (posted.limit, posted.mode) = (directive.limit, directive.mode);
        if directive.whole {
            let before = posted.keys.len();
            let named: BTreeSet<&Tenant> = directive.keys.iter().map(|key| &key.tenant).collect();
            posted.keys.retain(|tenant, _| named.contains(tenant));
            reshaped |= posted.keys.len() != before;
        }
        for key in &directive.keys {
            let is_new = !posted.keys.contains_key(&key.tenant);
            let held = posted.keys.entry(key.tenant.clone()).or_insert((None, next));
            let ratio = match directive.limit {
                Limit::PerSecond(_) => key.ratio.or(held.0),
                Limit::Unlimited | Limit::Unknown => None,
            };
            if is_new || ratio != held.0 {
                *held = (ratio, next);
                changed = true;
            }
        }
        if directive.limit.per_second().is_none() {
            for held in posted.keys.values_mut().filter(|held| held.0.is_some()) {
                *held = (None, next);
                changed = true;
            }
        }
        changed |= reshaped;
        if changed {
            posted.changed = next;
            if reshaped {
                posted.reshaped = next;
            }
            self.version = next;
        }
        changed
    }

    /// What a reader that last saw version `seen` of a bucket has to be told; `None` when it knows everything.
    #[must_use]
    pub fn since(&self, bucket: &Bucket, seen: u64) -> Option<BucketDirective> {
        let posted = self.buckets.get(bucket)?;
        if posted.changed <= seen {
            return None;
        }
        let whole = posted.reshaped > seen;
        let keys = posted
            .keys
            .iter()
            .filter(|(_, (_, changed))| whole || *changed > seen)
            .map(|(tenant, (ratio, _))| KeyDirective { tenant: tenant.clone(), ratio: *ratio })
            .collect();
        Some(BucketDirective { bucket: bucket.clone(), whole, limit: posted.limit, mode: posted.mode, keys })
    }
}

impl Posted {
    /// What the bucket may admit.
    #[must_use]
    pub const fn limit(&self) -> Limit {
        self.limit
    }

    /// What becomes of its refusals.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The tenants with a directive of their own, the default class among them, and their ratios.
    pub fn ratios(&self) -> impl Iterator<Item = (&Tenant, Option<DropRatio>)> {
        self.keys.iter().map(|(tenant, (ratio, _))| (tenant, *ratio))
    }

    /// The ratio for a tenant: its own, or else that of the default class.
    #[must_use]
    pub fn ratio(&self, tenant: &Tenant) -> Option<DropRatio> {
        let held = |tenant: &str| self.keys.get(tenant).and_then(|(ratio, _)| *ratio);
        held(tenant.as_str()).or_else(|| held(DEFAULT_TENANT))
    }
}
