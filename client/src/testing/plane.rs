//! The control plane of a test: rules by bucket, published to a limiter as a feed publishes directives.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_core::decision::{Reason, WaitClass};
use plimsoll_core::names::Name;
use plimsoll_core::quantity::{DropRatio, Limit, Rate};
use plimsoll_core::quota::{BucketQuotas, OnStoreError, Quota, QuotaKey, QuotaRate};
use plimsoll_core::report::Counts;

use super::error::RuleError;
use super::ledger::QuotaLedger;
use super::rule::{Rule, VirtualLimit};
use crate::hot::directive_word::DirectiveWord;
use crate::hot::sync::lock;
use crate::hot::table::BUCKETS_MAX_DEFAULT;
use crate::hot::table::{BucketPlace, Table};
use crate::limiter::Limiter;

/// The number of keys of a limiter for tests; further tenants share their bucket's default class.
pub const KEYS_MAX: usize = 4_096;

/// The control plane of a test: decides by the rules of the test for each bucket. See the
/// [module](super).
///
/// Clones share the rules. A limiter keeps its rules when its control plane is dropped.
#[derive(Clone, Debug)]
pub struct ControlPlane {
    limiter: Limiter,
    state: Arc<Mutex<State>>,
    ledger: QuotaLedger,
}

/// The decisions on the requests of a bucket. Requests that are refused from the memory of a quota's refusal are no
/// part of them: they are not offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Requests that arrived.
    pub offered: u64,
    /// Requests that were let through, including `would_refuse`.
    pub admitted: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Refusals that were decided and not carried out: in shadow mode, and while killed.
    pub would_refuse: u64,
}

#[derive(Debug, Default)]
struct State {
    buckets: BTreeMap<u32, OfBucket>,
    fallback: Rule,
    is_killed: bool,
}

#[derive(Debug, Default)]
struct OfBucket {
    /// `None` for the rule of all buckets without their own.
    rule: Option<Rule>,
    limit: Option<VirtualLimit>,
    is_shadowed: bool,
    wait: WaitClass,
    has_quotas: bool,
}

impl ControlPlane {
    /// Makes a limiter that admits everything. Its draws follow `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // Without a thread's own counters all threads decide by one state of the coin.
        let table = Table::new(KEYS_MAX, 0, seed);
        table.hooks.seed(seed);
        let ledger = QuotaLedger::default();
        table.layered.set_store(ledger.clone());
        Self {
            limiter: Limiter {
                table: Arc::new(table),
                control: None,
            },
            state: Arc::default(),
            ledger,
        }
    }

    /// Returns the limiter, for the service under test.
    pub fn limiter(&self) -> Limiter {
        self.limiter.clone()
    }

    /// Refuses every request of a bucket, for this reason.
    ///
    /// # Errors
    /// If the bucket's name is invalid, or the limiter has no room for it.
    pub fn refuse(&self, bucket: &str, reason: Reason) -> Result<(), RuleError> {
        self.set(bucket, Rule::Refuse(reason))
    }

    /// Refuses every request of the buckets without their own rule, including buckets declared
    /// later.
    pub fn refuse_all(&self, reason: Reason) {
        lock(&self.state).fallback = Rule::Refuse(reason);
        self.publish_all();
    }

    /// Refuses a share of a bucket's requests, from 0 to 1, each by an independent draw.
    ///
    /// # Errors
    /// If the share is not from 0 to 1, the bucket's name is invalid, or the limiter has no room for it.
    pub fn drop_share(&self, bucket: &str, share: f64) -> Result<(), RuleError> {
        let is_valid = (0.0..=1.0).contains(&share);
        // A cast from a float saturates.
        let ratio = DropRatio::new((share * f64::from(DropRatio::ONE)).round() as u32);
        let ratio = ratio.ok().filter(|_| is_valid);
        let ratio = ratio.ok_or_else(|| RuleError::Share {
            bucket: bucket.to_owned(),
            share,
        })?;
        self.set(bucket, Rule::Drop(ratio))
    }

    /// Limits a bucket to `rps` requests/s of the virtual clock, which [`advance`](Self::advance)
    /// moves. All tenants share the limit. The requests of one second may arrive together, at the
    /// start too.
    ///
    /// # Errors
    /// If the limit is negative or not finite, the bucket's name is invalid, or the limiter has no
    /// room for it.
    pub fn limit(&self, bucket: &str, rps: f64) -> Result<(), RuleError> {
        let rate = Rate::new(rps).map_err(|source| RuleError::Rate {
            bucket: bucket.to_owned(),
            source,
        })?;
        self.set(bucket, Rule::Limit(rate))
    }

    /// Admits every request of a bucket again.
    ///
    /// # Errors
    /// If the bucket's name is invalid, or the limiter has no room for it.
    pub fn admit(&self, bucket: &str) -> Result<(), RuleError> {
        self.set(bucket, Rule::Admit)
    }

    /// Puts a bucket into shadow mode, so that refusals are only counted, or back.
    ///
    /// # Errors
    /// If the bucket's name is invalid, or the limiter has no room for it.
    pub fn shadow(&self, bucket: &str, is_shadowed: bool) -> Result<(), RuleError> {
        self.of(bucket, |of, _| of.is_shadowed = is_shadowed)
    }

    /// Asks refused callers of a bucket to wait for about `wait`, from 1 s to 120 s: their
    /// [`retry_after`](crate::Refusal::retry_after) is spread over `wait` to twice that, and over 2 s at least. Without
    /// it they are asked to wait for 1 s to 3 s.
    ///
    /// # Errors
    /// If the bucket's name is invalid, or the limiter has no room for it.
    pub fn retry_after(&self, bucket: &str, wait: Duration) -> Result<(), RuleError> {
        self.of(bucket, |of, _| of.wait = WaitClass::of(wait))
    }

    /// Sets the kill switch of all buckets: while it is on, refusals are only counted.
    pub fn kill(&self, is_killed: bool) {
        lock(&self.state).is_killed = is_killed;
        self.publish_all();
    }

    /// Moves the virtual clock, and refills limits and quotas.
    pub fn advance(&self, span: Duration) {
        let table = self.table();
        let mut state = lock(&self.state);
        let limits = state
            .buckets
            .values_mut()
            .filter_map(|of| of.limit.as_mut());
        limits.for_each(|limit| limit.advance(table, span));
        table.refill();
        self.ledger.advance(span);
    }

    /// Returns the decisions on all requests of a bucket so far.
    ///
    /// # Errors
    /// If the bucket's name is invalid, or the limiter has no room for it.
    pub fn counts(&self, bucket: &str) -> Result<Decisions, RuleError> {
        let bucket = self.limiter.bucket(bucket)?.place.bucket;
        let keys = &self.table().keys;
        let of_bucket = (0..KEYS_MAX as u32).filter(|key| keys.owner_of(*key) == bucket);
        let sum = of_bucket.fold(Counts::ZERO, |sum, key| {
            sum.plus(self.table().counters.counts(key))
        });
        Ok(sum.into())
    }

    /// Returns the decisions on the requests of one tenant of a bucket so far.
    ///
    /// # Errors
    /// If the bucket's name is invalid, or the limiter has no room for it.
    pub fn tenant_counts(&self, bucket: &str, tenant: &str) -> Result<Decisions, RuleError> {
        let key = self.limiter.bucket(bucket)?.resolve(tenant, "").place.key;
        Ok(self.table().counters.counts(key).into())
    }
}

// === Exact quotas ===

impl ControlPlane {
    /// Gives a bucket an exact quota of `max` requests in every `every` for each tenant, by an in-memory store under
    /// the virtual clock, for the middleware and [`Limiter::check_async`].
    ///
    /// # Errors
    /// If the quota is out of range, the bucket's name is invalid, or the limiter has no room for it.
    pub fn quota(&self, bucket: &str, max: u64, every: Duration) -> Result<(), RuleError> {
        let every_ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
        let invalid = |cause: String| RuleError::Quota {
            bucket: bucket.to_owned(),
            cause,
        };
        let rate =
            QuotaRate::new(max, max, every_ms).map_err(|error| invalid(error.to_string()))?;
        let name = Name::new(bucket).map_err(|error| invalid(error.to_string()))?;
        let quota = Quota::new(name, rate, QuotaKey::Tenant, OnStoreError::AllowBounded, 1);
        self.quotas(
            bucket,
            vec![quota.map_err(|error| invalid(error.to_string()))?],
        )
    }

    /// Gives a bucket these exact quotas in place of others. Quotas with a lease are decided
    /// without waiting.
    ///
    /// # Errors
    /// If the quotas cannot belong to one bucket, the bucket's name is invalid, or the limiter has
    /// no room for it.
    pub fn quotas(&self, bucket: &str, quotas: Vec<Quota>) -> Result<(), RuleError> {
        let quotas = BucketQuotas::new(quotas.into_iter().map(Arc::new).collect());
        let quotas = quotas.map_err(|error| RuleError::Quota {
            bucket: bucket.to_owned(),
            cause: error.to_string(),
        })?;
        self.of(bucket, |of, place| {
            self.table().quotas.set(place.bucket, Some(&quotas));
            of.has_quotas = !quotas.is_empty();
        })
    }

    /// Lets the store of quotas fail, so that their policies apply, or answer again.
    pub fn fail_quota_store(&self, is_failing: bool) {
        self.ledger.fail(is_failing);
    }

    /// Holds the answers of the store of quotas back, or sends them. What a request asks for is taken meanwhile.
    pub fn hold_quota_store(&self, is_held: bool) {
        self.ledger.hold(is_held);
    }

    /// Returns the questions that the store of quotas was asked.
    pub fn quota_requests(&self) -> u64 {
        self.ledger.asked()
    }
}

impl ControlPlane {
    fn set(&self, bucket: &str, rule: Rule) -> Result<(), RuleError> {
        // A guard has only the tokens of a limit.
        let (rate, limit) = match rule {
            Rule::Limit(rate) => (rate, Limit::PerSecond(rate)),
            _ => (Rate::ZERO, Limit::Unknown),
        };
        self.of(bucket, |of, place| {
            self.table().limits.set(place.bucket, limit);
            let limit = VirtualLimit::new(self.table(), place.default_key, rate);
            self.table().refill();
            (of.rule, of.limit) = (Some(rule), Some(limit));
        })
    }

    fn of(
        &self,
        bucket: &str,
        set: impl FnOnce(&mut OfBucket, BucketPlace),
    ) -> Result<(), RuleError> {
        let place = self.limiter.bucket(bucket)?.place;
        set(
            lock(&self.state).buckets.entry(place.bucket).or_default(),
            place,
        );
        self.publish_all();
        Ok(())
    }

    fn publish_all(&self) {
        let (table, state) = (self.table(), lock(&self.state));
        table.hooks.set_fallback(state.word(None));
        for bucket in 0..BUCKETS_MAX_DEFAULT as u32 {
            if let Some(key) = table.default_key(bucket) {
                table.publish(key, state.word(Some(bucket)));
            }
        }
    }

    fn table(&self) -> &Table {
        &self.limiter.table
    }
}

impl State {
    fn word(&self, bucket: Option<u32>) -> DirectiveWord {
        let none = OfBucket::default();
        let of = bucket
            .and_then(|bucket| self.buckets.get(&bucket))
            .unwrap_or(&none);
        let rule = match of.rule.unwrap_or(self.fallback) {
            // No directive enforces nothing, and refusals of quotas are carried out.
            Rule::Admit if of.has_quotas => Rule::Drop(DropRatio::NONE),
            rule => rule,
        };
        rule.word(!of.is_shadowed && !self.is_killed, of.wait)
    }
}

impl From<Counts> for Decisions {
    fn from(counts: Counts) -> Self {
        Self {
            offered: counts.offered,
            admitted: counts.admitted(),
            refused: counts.refused() + counts.quota_dropped,
            would_refuse: counts.would_dropped + counts.would_quota_dropped,
        }
    }
}
