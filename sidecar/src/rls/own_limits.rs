//! Limits that descriptors bring along: a token bucket on this sidecar for each descriptor and limit.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use foldhash::quality::RandomState;
use siphasher::sip128::{Hasher128, SipHasher13};

/// The most limits that are kept; beyond, the least recently used one of a part of the table leaves, and begins full when it
/// returns.
const OWN_LIMITS_MAX: usize = 16_384;
/// The parts of the table, each with a lock of its own.
const PARTS: usize = 64;

/// The limits of descriptors. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct OwnLimits {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The key of the hashes, so that no caller can make two descriptors collide.
    key: [u64; 2],
    parts: [Mutex<HashMap<u128, TokenBucket, RandomState>>; PARTS],
}

/// The identity of a limit: the hash of its domain, its descriptor and itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LimitId(u128);

/// A limit in requests per unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnLimit {
    pub(super) requests: u32,
    pub(super) unit: Unit,
}

#[derive(Clone, Copy, Debug)]
struct TokenBucket {
    tokens: f64,
    at: Instant,
}

impl OwnLimits {
    pub(crate) fn new() -> Self {
        let random = RandomState::default();
        let key = [random.hash_one(0), random.hash_one(1)];
        let parts = std::array::from_fn(|_| Mutex::default());
        Self { inner: Arc::new(Inner { key, parts }) }
    }

    /// Returns the identity of a descriptor's limit.
    pub(super) fn id(&self, domain: &str, descriptor: &RateLimitDescriptor, limit: OwnLimit) -> LimitId {
        let [first, second] = self.inner.key;
        let mut hasher = SipHasher13::new_with_keys(first, second);
        let entries = descriptor.entries.iter().flat_map(|entry| [&entry.key, &entry.value]);
        for text in std::iter::once(domain).chain(entries.map(String::as_str)) {
            hasher.write_usize(text.len());
            hasher.write(text.as_bytes());
        }
        hasher.write_u32(limit.requests);
        hasher.write_i32(limit.unit.into());
        LimitId(hasher.finish128().as_u128())
    }

    /// Takes `hits` tokens, or returns the time until there are as many. 0 hits look for one token and take none.
    pub(super) fn take(&self, id: LimitId, limit: OwnLimit, hits: u64, now: Instant) -> Result<(), Duration> {
        let mut part = self.part(id);
        if part.len() >= OWN_LIMITS_MAX / PARTS && !part.contains_key(&id.0) {
            let oldest = part.iter().min_by_key(|(_, bucket)| bucket.at).map(|(id, _)| *id);
            oldest.and_then(|id| part.remove(&id));
        }
        let depth = f64::from(limit.requests);
        let bucket = part.entry(id.0).or_insert(TokenBucket { tokens: depth, at: now });
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.tokens = (bucket.tokens + passed * limit.per_second()).min(depth);
        bucket.at = bucket.at.max(now);
        let wanted = hits.max(1) as f64;
        if bucket.tokens >= wanted {
            bucket.tokens -= hits as f64;
            return Ok(());
        }
        // A request for more than the depth is never admitted; it may be smaller after a whole unit.
        let missing = (wanted.min(depth.max(1.0)) - bucket.tokens) / limit.per_second();
        Err(Duration::try_from_secs_f64(missing).map_or(limit.length(), |wait| wait.min(limit.length())))
    }

    /// Gives tokens back: the request was refused for another reason.
    pub(super) fn give_back(&self, id: LimitId, limit: OwnLimit, hits: u64) {
        if let Some(bucket) = self.part(id).get_mut(&id.0) {
            bucket.tokens = (bucket.tokens + hits as f64).min(f64::from(limit.requests));
        }
    }

    fn part(&self, id: LimitId) -> MutexGuard<'_, HashMap<u128, TokenBucket, RandomState>> {
        let [part, ..] = &self.inner.parts;
        let part = self.inner.parts.get(id.0 as usize % PARTS).unwrap_or(part);
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OwnLimit {
    /// Reads a limit; `None` if its unit is unknown.
    pub(super) fn of(limit: &RateLimitOverride) -> Option<Self> {
        let unit = Unit::try_from(limit.unit).ok()?;
        (unit != Unit::Unknown).then_some(Self { requests: limit.requests_per_unit, unit })
    }

    /// The length of the unit. A month is a twelfth of a year, which is that of the Gregorian calendar on average.
    fn length(self) -> Duration {
        const DAY: u64 = 86_400;
        const YEAR: u64 = 31_556_952;
        Duration::from_secs(match self.unit {
            Unit::Unknown | Unit::Second => 1,
            Unit::Minute => 60,
            Unit::Hour => 3_600,
            Unit::Day => DAY,
            Unit::Week => 7 * DAY,
            Unit::Month => YEAR / 12,
            Unit::Year => YEAR,
        })
    }

    fn per_second(self) -> f64 {
        f64::from(self.requests) / self.length().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limit(requests: u32, unit: Unit) -> OwnLimit {
        OwnLimit { requests, unit }
    }

    fn admitted(limits: &OwnLimits, limit: OwnLimit, now: Instant, n: u32) -> u32 {
        (0..n).map(|_| u32::from(limits.take(LimitId(7), limit, 1, now).is_ok())).sum()
    }

    #[test]
    fn limit_admits_its_requests_in_each_unit() {
        let began = Instant::now();
        for (unit, length_s) in [
            (Unit::Second, 1),
            (Unit::Minute, 60),
            (Unit::Hour, 3_600),
            (Unit::Day, 86_400),
            (Unit::Week, 604_800),
            (Unit::Month, 2_629_746),
            (Unit::Year, 31_556_952),
        ] {
            let limits = OwnLimits::new();
            let ten = limit(10, unit);
            assert_eq!(admitted(&limits, ten, began, 25), 10, "{unit:?}");
            let length = SECOND * length_s;
            let wait = limits.take(LimitId(7), ten, 1, began).unwrap_err();
            assert!(wait > length * 9 / 100 && wait <= length / 10 + SECOND / 1_000, "{unit:?} {wait:?}");
            let half = began + length / 2;
            assert!((4..=5).contains(&admitted(&limits, ten, half, 25)), "{unit:?}");
            assert!(
                (9..=10).contains(&admitted(&limits, ten, half + length * 2, 25)),
                "{unit:?}: no more is saved up"
            );
        }
    }

    #[test]
    fn limit_of_zero_admits_nothing_and_names_a_wait() {
        let (limits, now) = (OwnLimits::new(), Instant::now());
        let zero = limit(0, Unit::Minute);
        assert_eq!(limits.take(LimitId(1), zero, 1, now), Err(SECOND * 60));
        assert_eq!(limits.take(LimitId(1), zero, 0, now + SECOND * 999), Err(SECOND * 60));
    }

    #[test]
    fn check_takes_no_token_and_tokens_are_given_back() {
        let (limits, now) = (OwnLimits::new(), Instant::now());
        let two = limit(2, Unit::Hour);
        assert!((0..9).all(|_| limits.take(LimitId(1), two, 0, now).is_ok()));
        assert!(limits.take(LimitId(1), two, 2, now).is_ok());
        assert!(limits.take(LimitId(1), two, 0, now).is_err());
        limits.give_back(LimitId(1), two, 2);
        assert!(limits.take(LimitId(1), two, 3, now).is_err(), "more than the depth");
        assert!(limits.take(LimitId(1), two, 2, now).is_ok());
    }

    #[test]
    fn table_is_bounded_and_keeps_what_is_in_use() {
        let (limits, now) = (OwnLimits::new(), Instant::now());
        let one = limit(1, Unit::Year);
        assert!(limits.take(LimitId(0), one, 1, now).is_ok());
        for id in 1..40_000_u128 {
            let now = now + Duration::from_micros(id as u64);
            let _ = limits.take(LimitId(id), one, 1, now);
            assert!(limits.take(LimitId(0), one, 1, now).is_err(), "in use: it stays, at {id}");
        }
        let kept: usize = limits.inner.parts.iter().map(|part| part.lock().unwrap().len()).sum();
        assert_eq!(kept, OWN_LIMITS_MAX);
    }
}
