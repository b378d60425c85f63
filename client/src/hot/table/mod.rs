//! The table that decisions read and write: interned names, the directive of each key, the tokens of guards and
//! of headroom, and the counters of each thread.

mod classes;

use classes::PlanClasses;
pub(crate) use classes::{ClassWords, PLAN_CLASSES_MAX};

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll_core::names::{DEFAULT_TENANT, Encoded, InvalidName, Planned, check_name, check_plan};

use crate::hot::decision::{COST_MAX, Peek};
use crate::hot::directive_word::{DirectiveWord, KeyWord};
use crate::hot::guard_pool::GuardPool;
use crate::hot::interner::{Interner, Lookup};
use crate::hot::shared_key::SharedKey;
use crate::hot::sync::{AtomicU32, AtomicU64, Ordering};
use crate::hot::thread_counters::Passes;
use crate::hot::thread_counters::ThreadCounters;
use crate::limiter::layered::Layered;
use crate::limiter::limits::{Limits, TenantLimit};
use crate::limiter::quotas::QuotaDefinitions;
use crate::limiter::waiting::Waiting;
use crate::responses::Responses;
use crate::setup::{SetupProblem, SetupProblems, Wirings};

/// The default number of buckets.
pub const BUCKETS_MAX_DEFAULT: usize = 1_024;
/// Maximum number of buckets, also in a cached directive file.
pub(crate) const BUCKETS_MAX: usize = 4_096;
/// One bucket of this many has room only if the service itself declares it, and not if only requests name it.
const DECLARED_ONLY: usize = 2;
/// One key of this many, at most one for each bucket, is kept for the default classes of such buckets.
const DECLARED_KEYS: usize = 10;

/// A bucket, found by its name. A slot is where the interner keeps the word of a key, without a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BucketPlace {
    pub(crate) bucket: u32,
    /// The key of the default class, which empty tenants and those without room share.
    pub(crate) default_key: u32,
    pub(crate) default_slot: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyPlace {
    pub(crate) key: u32,
    pub(crate) slot: u32,
    /// The key of its bucket's default class; in a handle, of the class of its plan. That directive applies while the
    /// key has none.
    pub(crate) default_key: u32,
    pub(crate) default_slot: u32,
}

/// The key that a request counts for, and the directive that decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) key: u32,
    /// The directive, with the id of the key that it belongs to: the key itself or its class.
    follows: KeyWord,
}

impl Target {
    /// Returns the key that the directive belongs to.
    #[inline]
    pub(crate) const fn source(self) -> u32 {
        self.follows.id()
    }

    #[inline]
    pub(crate) const fn word(self) -> DirectiveWord {
        self.follows.directive()
    }
}

/// Tokens of a bucket's headroom, on their own cache line: threads that draw on the headroom of one
/// bucket do not slow down threads of another bucket.
#[derive(Default)]
#[repr(align(64))]
struct Headroom(GuardPool);

/// All buckets and keys of one limiter: names, directives and counters. Everything is allocated at the start.
pub(crate) struct Table {
    pub(crate) buckets: Interner,
    pub(crate) keys: Interner,
    /// The key of each bucket's default class plus one; 0 until it is assigned.
    default_keys: Box<[AtomicU32]>,
    /// By bucket: [`ClassWords::established`] of the default class.
    established: Box<[AtomicU64]>,
    pub(crate) classes: PlanClasses,
    pub(crate) counters: ThreadCounters,
    /// By key: the tokens of its guard.
    guards: Box<[GuardPool]>,
    /// By bucket: the tokens of its headroom, which its keys share. Their ids follow the ids of the
    /// keys.
    headrooms: Box<[Headroom]>,
    pub(crate) limits: Limits,
    pub(crate) quotas: QuotaDefinitions,
    pub(crate) layered: Layered,
    /// The word of a bucket without a known policy: refuses all, or nothing.
    pub(crate) before_policy: DirectiveWord,
    pub(crate) draw_key: SharedKey,
    /// Counts the refills of guards and headrooms.
    refills: AtomicU32,
    /// Requests admitted without a key to count them for: the bucket has no room or an invalid name.
    untracked: AtomicU64,
    invalid_tenants: AtomicU64,
    /// Requests with another plan than the one that their tenant's key has.
    other_plans: AtomicU64,
    pub(crate) passes: Passes,
    pub(crate) responses: Arc<Responses>,
    pub(crate) problems: SetupProblems,
    pub(crate) wirings: Wirings,
    /// True once requests named a bucket that found no room.
    is_full_raised: AtomicBool,
    pub(crate) waiting: Waiting,
    #[cfg(feature = "testing")]
    pub(crate) hooks: crate::testing::Hooks,
}

/// Leaves out the contents: they are megabytes, and the draw key is a secret.
impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (buckets_max, keys_max) = (self.default_keys.len(), self.keys_max());
        let mut table = f.debug_struct("Table");
        table
            .field("buckets_max", &buckets_max)
            .field("keys_max", &keys_max)
            .finish_non_exhaustive()
    }
}

impl Table {
    /// Makes a table for at most `keys_max` keys, the default number of buckets and `thread_slots`
    /// threads with their own counters.
    pub(crate) fn new(keys_max: usize, thread_slots: usize, seed: u64) -> Self {
        Self::with_buckets(keys_max, BUCKETS_MAX_DEFAULT, thread_slots, seed)
    }

    pub(crate) fn with_buckets(
        keys_max: usize,
        buckets_max: usize,
        thread_slots: usize,
        seed: u64,
    ) -> Self {
        let keys_max = keys_max.max(1);
        let declared_keys = buckets_max.min(keys_max / DECLARED_KEYS);
        // Every bucket takes at least one key, that of its default class.
        let buckets_max = buckets_max.min(keys_max);
        Self {
            buckets: Interner::new(buckets_max, seed).reserving(buckets_max / DECLARED_ONLY),
            keys: Interner::new(keys_max, seed).reserving(declared_keys),
            default_keys: (0..buckets_max).map(|_| AtomicU32::new(0)).collect(),
            established: (0..buckets_max).map(|_| AtomicU64::new(0)).collect(),
            classes: PlanClasses::new(keys_max),
            // Threads hold batches of tokens by key and, after those, by bucket.
            counters: ThreadCounters::new(keys_max + buckets_max, thread_slots),
            guards: (0..keys_max).map(|_| GuardPool::default()).collect(),
            headrooms: (0..buckets_max).map(|_| Headroom::default()).collect(),
            limits: Limits::new(buckets_max),
            quotas: QuotaDefinitions::new(buckets_max),
            layered: Layered::new(buckets_max),
            before_policy: DirectiveWord::NOTHING,
            draw_key: SharedKey::default(),
            refills: AtomicU32::new(0),
            untracked: AtomicU64::new(0),
            invalid_tenants: AtomicU64::new(0),
            other_plans: AtomicU64::new(0),
            passes: Passes::new(thread_slots),
            responses: Responses::new(buckets_max, thread_slots),
            problems: SetupProblems::default(),
            wirings: Wirings::default(),
            is_full_raised: AtomicBool::new(false),
            waiting: Waiting::default(),
            #[cfg(feature = "testing")]
            hooks: crate::testing::Hooks::default(),
        }
    }

    pub(crate) fn keys_max(&self) -> usize {
        self.guards.len()
    }

    /// Makes room for a bucket, also where requests have none; `None` if there is none left.
    pub(crate) fn declare(&self, bucket: &str) -> Result<Option<BucketPlace>, InvalidName> {
        check_name(bucket)?;
        let Some(id) = self.buckets.intern(0, bucket) else {
            return Ok(None);
        };
        Ok(self
            .keys
            .pin(id, DEFAULT_TENANT)
            .and_then(|key| self.set_default_key(id, key)))
    }

    fn bucket(&self, bucket: &str) -> Option<BucketPlace> {
        let id = self.buckets.look_up(0, bucket).id()?;
        match self.default_key(id) {
            None => self.set_default_key(id, self.keys.try_pin(id, DEFAULT_TENANT).id()?),
            Some(default_key) => Some(self.bucket_place(id, default_key)),
        }
    }

    fn bucket_place(&self, bucket: u32, default_key: u32) -> BucketPlace {
        BucketPlace {
            bucket,
            default_key,
            default_slot: self.keys.slot_of(default_key),
        }
    }

    pub(crate) fn default_key(&self, bucket: u32) -> Option<u32> {
        self.default_keys
            .get(bucket as usize)?
            .load(Ordering::Acquire)
            .checked_sub(1)
    }

    /// Two threads may set the same key.
    fn set_default_key(&self, bucket: u32, default_key: u32) -> Option<BucketPlace> {
        self.begin_bucket(bucket, default_key);
        self.default_keys
            .get(bucket as usize)?
            .store(default_key + 1, Ordering::Release);
        Some(self.bucket_place(bucket, default_key))
    }

    /// Returns the target of a tenant's requests: its own key, or the default class while the tenant is empty or has
    /// no id, as a rare one while ids are scarce.
    #[inline]
    pub(crate) fn target(&self, place: BucketPlace, tenant: &str) -> Target {
        let own = match self.keys.look_up(place.bucket, tenant) {
            Lookup::Found(own) => own,
            Lookup::Invalid => self.encoded(place, tenant),
            _ => self.keys.word(place.default_slot),
        };
        self.follow(own, place.default_slot)
    }

    /// Returns the target of a key by the state of its word: nothing, so that it follows its bucket's default class; a
    /// directive of its own; or a mark, so that it follows its class in some things and itself in others.
    #[inline]
    fn follow(&self, own: KeyWord, default_slot: u32) -> Target {
        let follows = match own.directive() {
            DirectiveWord::NOTHING => self.keys.word(default_slot),
            directive if directive.is_held() => own,
            _ => self.follow_marked(own, default_slot),
        };
        Target {
            key: own.id(),
            follows,
        }
    }

    /// Returns the word that a [marked](DirectiveWord::following) key follows.
    #[inline(never)]
    fn follow_marked(&self, own: KeyWord, default_slot: u32) -> KeyWord {
        let of_plan = self.classes.of_key(own.id()).map(|class| {
            let word = self.keys.word(self.keys.slot_of(class.key));
            (word, class.established)
        });
        let (class, established) = of_plan
            .filter(|(class, _)| class.directive().is_held())
            .unwrap_or_else(|| self.default_class(own, default_slot));
        KeyWord::new(
            class.id(),
            own.directive().resolve(class.directive(), established),
        )
    }

    /// Returns the word of the default class of a key's bucket, and that of its established tenants.
    fn default_class(&self, own: KeyWord, default_slot: u32) -> (KeyWord, DirectiveWord) {
        let bucket = self.keys.owner_of(own.id());
        let established = self.established.get(bucket as usize).map(KeyWord::load);
        let established = established.unwrap_or_default().directive();
        (self.keys.word(default_slot), established)
    }

    /// Returns the word of a tenant that is no name as it is. Counts an empty one, and logs the first.
    #[cold]
    #[inline(never)]
    fn encoded(&self, place: BucketPlace, tenant: &str) -> KeyWord {
        let found = Encoded::of(tenant).map(|name| self.keys.look_up_name(place.bucket, &name));
        if found.is_none() {
            self.count_invalid();
        }
        match found {
            Some(Lookup::Found(own)) => own,
            _ => self.keys.word(place.default_slot),
        }
    }

    fn count_invalid(&self) {
        if self.invalid_tenants.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(
                "tenant of a request is empty, logged once: it counts as the class of its plan, or `default`"
            );
        }
    }

    /// Returns the target of a tenant's requests with a plan. The plan of the first one counts until the key is evicted.
    pub(crate) fn target_in_plan(&self, place: BucketPlace, tenant: &str, plan: &str) -> Target {
        if check_plan(plan).is_err() {
            return self.target(place, tenant);
        }
        if tenant.is_empty() {
            self.count_invalid();
        }
        let own = own_of(tenant).map(|own| self.keys.look_up_in_plan(place.bucket, &own, plan));
        let own = match own {
            Some(Lookup::Found(own)) => Some(own),
            _ => None,
        };
        // The plan of a key without a directive is not recorded yet.
        if let Some(own) = own.filter(|own| own.directive() != DirectiveWord::NOTHING)
            && self
                .classes
                .plan_of(own.id())
                .is_some_and(|of_key| of_key != plan)
        {
            self.other_plans.fetch_add(1, Ordering::Relaxed);
        }
        self.follow_in_plan(place, own, plan)
    }

    /// Returns the target of a tenant without giving it a key. `plan` may be empty.
    pub(crate) fn known_target(&self, place: BucketPlace, tenant: &str, plan: &str) -> Target {
        let known = |own: Encoded<'_>| self.keys.known(place.bucket, &own);
        if check_plan(plan).is_ok() {
            return self.follow_in_plan(place, own_of(tenant).and_then(known), plan);
        }
        let own = Encoded::of(tenant).and_then(known);
        self.follow(
            own.unwrap_or_else(|| self.keys.word(place.default_slot)),
            place.default_slot,
        )
    }

    /// Returns the target of a request with a plan. A key without a directive follows the class of its plan, until the
    /// next report marks it; requests without a key count for that class.
    fn follow_in_plan(&self, place: BucketPlace, own: Option<KeyWord>, plan: &str) -> Target {
        let class = self.keys.slot_of(self.key_of_plan(place, plan));
        let own = own.unwrap_or_else(|| self.keys.word(class));
        match own.directive() {
            DirectiveWord::NOTHING => self.follow(own, class),
            _ => self.follow(own, place.default_slot),
        }
    }

    /// Returns the key of the class of a plan: of the class `default` for a plan that the policy does not have, and for
    /// an invalid one.
    pub(crate) fn key_of_plan(&self, place: BucketPlace, plan: &str) -> u32 {
        let class = check_plan(plan).ok().and_then(|()| Planned::of("", plan));
        let class = class.and_then(|class| self.keys.known(place.bucket, &class));
        let class = class.filter(|class| class.directive().is_held());
        class.map_or(place.default_key, KeyWord::id)
    }

    #[inline]
    pub(crate) fn target_of(&self, place: KeyPlace) -> Target {
        // Another key may have the slot by now; the request counts for its own.
        Target {
            key: place.key,
            ..self.follow(self.keys.word(place.slot), place.default_slot)
        }
    }

    /// Returns the limit of the tenant that a key belongs to: its own, or that of each name of its class.
    pub(crate) fn tenant_limit(&self, bucket: u32, key: u32) -> Option<TenantLimit> {
        let class = self.classes.of_key(key).map(|class| class.key);
        let of_class = || {
            self.limits
                .tenant(class.or_else(|| self.default_key(bucket))?)
        };
        self.limits.tenant(key).or_else(of_class)
    }

    pub(crate) fn publish_established(&self, bucket: u32, word: DirectiveWord) {
        if let Some(established) = self.established.get(bucket as usize) {
            KeyWord::new(0, word).store(established);
        }
    }

    pub(crate) fn place_of(&self, key: u32, default_key: u32) -> KeyPlace {
        let [slot, default_slot] = [key, default_key].map(|key| self.keys.slot_of(key));
        KeyPlace {
            key,
            slot,
            default_key,
            default_slot,
        }
    }

    pub(crate) fn peek(&self, target: Target) -> Peek {
        let word = target.word();
        let is_empty = |id| self.tokens(id).is_none_or(GuardPool::is_empty);
        Peek {
            ratio: word.ratio(),
            enforced: word.is_enforced(),
            exhausted: word.is_guarded()
                && is_empty(target.source())
                && self.headroom_for(target).is_none_or(is_empty),
        }
    }

    /// Returns true if guard or headroom could pay for a request of this cost now, or if there is no guard.
    pub(crate) fn has_tokens(&self, target: Target, cost: u32) -> bool {
        if !target.word().is_guarded() {
            return true;
        }
        let cost = cost.min(COST_MAX);
        let established = self.own_directive(target.key).is_established();
        let pays = |id| {
            self.tokens(id)
                .is_some_and(|tokens| tokens.pays(cost, established))
        };
        pays(target.source()) || self.headroom_for(target).is_some_and(pays)
    }

    pub(crate) fn known_bucket(&self, bucket: &str) -> Option<BucketPlace> {
        let id = self.buckets.known(0, bucket)?.id();
        Some(self.bucket_place(id, self.default_key(id)?))
    }

    pub(crate) fn target_by_names(&self, bucket: &str, tenant: &str) -> Option<Target> {
        self.target_in(bucket, |place| self.target(place, tenant))
    }

    /// Returns the target of a request by the name of its bucket; `None` where the bucket has no room or an invalid
    /// name. Such a request is counted as untracked.
    #[inline]
    pub(crate) fn target_in(
        &self,
        bucket: &str,
        find: impl FnOnce(BucketPlace) -> Target,
    ) -> Option<Target> {
        let target = self.bucket(bucket).map(find);
        if target.is_none() {
            self.untracked.fetch_add(1, Ordering::Relaxed);
            self.check_full(bucket);
        }
        target
    }

    /// Raises the setup problem once if a bucket with a valid name found no room.
    #[cold]
    fn check_full(&self, bucket: &str) {
        // The flag is not one of those that the model checker replaces.
        use std::sync::atomic::Ordering;
        let is_full = || self.buckets.capacity().free == 0 || self.keys.capacity().free == 0;
        if !self.is_full_raised.load(Ordering::Relaxed)
            && check_name(bucket).is_ok()
            && is_full()
            && !self.is_full_raised.swap(true, Ordering::Relaxed)
        {
            self.raise_full(bucket);
        }
    }

    /// Raises the setup problem of a bucket without room. Returns the setting that leaves none, and its value.
    pub(crate) fn raise_full(&self, bucket: &str) -> (&'static str, usize) {
        let (buckets_max, keys_max) = (self.default_keys.len(), self.keys_max());
        let has_no_key = self.buckets.known(0, bucket).is_some();
        let (setting, max) = if has_no_key || buckets_max == keys_max {
            ("keys_max", keys_max)
        } else {
            ("buckets_max", buckets_max)
        };
        self.problems.raise(SetupProblem::BucketsFull {
            bucket: bucket.to_owned(),
            setting,
            max,
        });
        (setting, max)
    }

    pub(crate) fn own_directive(&self, key: u32) -> DirectiveWord {
        self.keys.word(self.keys.slot_of(key)).directive()
    }

    pub(crate) fn has_own_directive(&self, key: u32) -> bool {
        self.own_directive(key).is_held()
    }

    /// Returns the number of the last refill, modulo 2^16.
    #[inline]
    pub(crate) fn refill_number(&self) -> u16 {
        self.refills.load(Ordering::Acquire) as u16
    }

    /// Returns the id of a bucket's headroom among the tokens.
    pub(crate) fn headroom(&self, bucket: u32) -> u32 {
        self.guards.len() as u32 + bucket
    }

    /// Returns the headroom that a request may take from when its guard has too few tokens; `None` for a key
    /// at its tenant limit.
    pub(super) fn headroom_for(&self, target: Target) -> Option<u32> {
        let may_draw = !target.word().is_at_tenant_limit();
        may_draw.then(|| self.headroom(self.keys.owner_of(target.source())))
    }

    /// Returns the tokens with this id: a key's guard or, after those, a bucket's headroom.
    pub(super) fn tokens(&self, id: u32) -> Option<&GuardPool> {
        let at = id as usize;
        self.guards
            .get(at)
            .or_else(|| Some(&self.headrooms.get(at - self.guards.len())?.0))
    }

    /// Begins a refill: voids the batches that threads hold, so that they take new ones from the pools.
    pub(crate) fn refill(&self) {
        self.refills.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn publish(&self, key: u32, word: DirectiveWord) {
        self.keys.publish(key, word);
    }

    pub(crate) fn invalid_tenants(&self) -> u64 {
        self.invalid_tenants.load(Ordering::Relaxed)
    }

    pub(crate) fn other_plans(&self) -> u64 {
        self.other_plans.load(Ordering::Relaxed)
    }

    pub(crate) fn untracked(&self) -> u64 {
        self.untracked.load(Ordering::Relaxed)
    }
}

/// Returns the name of a tenant; `None` for an empty one and the class `default`.
fn own_of(tenant: &str) -> Option<Encoded<'_>> {
    Encoded::of(tenant).filter(|own| **own != *DEFAULT_TENANT)
}
