//! Admission of new streams at the rate that a parent can bear, so that a fleet that reconnects does not starve
//! the streams that are open.

use std::collections::HashMap;
use std::time::Duration;

use super::Source;
use crate::quantity::{MonoTime, TokenBucket};

/// The range of the rate, in streams per second. The lower bound lets ten thousand children return within two
/// minutes even if the measured load never falls.
const RATE_MIN: f64 = 100.0;
const RATE_MAX: f64 = 3_000.0;
/// The rate at the start, before any measurement.
const RATE_FIRST: f64 = 1_000.0;
/// The streams that may be admitted in a row, as a time at the present rate.
const BURST: Duration = Duration::from_millis(500);
/// The connections that are accepted for each stream that is admitted: most streams of a storm are turned away
/// at first.
const CONNECTIONS_PER_STREAM: f64 = 2.0;
/// The connections accepted in a second at least, so that none waits in the queue of the system for longer than
/// its child waits for an answer.
const CONNECTIONS_MIN: f64 = 500.0;
/// The shortest time between two changes of the rate.
const ADAPT_INTERVAL: Duration = Duration::from_millis(250);
/// A task that was woken at most this late shows that there is room for more.
const CALM: Duration = Duration::from_millis(50);
/// A task that was woken later than this shows that open streams wait, too.
const OVERLOADED: Duration = Duration::from_millis(400);
/// The factors of a change.
const GROWTH: f64 = 1.25;
const REDUCTION: f64 = 0.7;
/// Time that a child is asked to stay away if its connection opens streams too fast.
pub const CONNECTION_WAIT: Duration = Duration::from_secs(1);
/// Maximum time that a child is asked to stay away.
pub const RETRY_MAX: Duration = Duration::from_secs(30);

/// The part of the rate that one source has for certain, and of the tokens that it leaves to the others, as a divisor.
const SOURCE_PART: f64 = 2.0;
/// Maximum number of sources that are distinguished. Streams of further ones are admitted from the
/// tokens of all.
const SOURCES_MAX: usize = 16_384;

/// The streams that one connection may open in a row. A child opens one, and the next after a failure.
const PER_CONNECTION_BURST: f64 = 8.0;
/// The streams that it may open in a second after that.
const PER_CONNECTION_RATE: f64 = 1.0;

/// The rate of streams that a parent admits, and the times promised to the children it turned away.
#[derive(Debug)]
pub struct Admission {
    /// Streams per second.
    rate: f64,
    tokens: TokenBucket,
    /// The longest delay since the latest change of the rate, and the time of that change.
    late: Duration,
    adapted: MonoTime,
    /// The time until which the rate is promised to children that were turned away.
    promised: MonoTime,
    sources: HashMap<Source, Share>,
}

/// The part of the rate that one source has taken, and the time until which it is promised to children of that source.
#[derive(Debug)]
struct Share {
    tokens: TokenBucket,
    promised: MonoTime,
}

impl Admission {
    /// Begins with room for a burst.
    pub fn new(now: MonoTime) -> Self {
        let tokens = TokenBucket::new(now, RATE_FIRST * BURST.as_secs_f64());
        Self {
            rate: RATE_FIRST,
            tokens,
            late: Duration::ZERO,
            adapted: now,
            promised: now,
            sources: HashMap::new(),
        }
    }

    /// The present rate in streams per second.
    pub const fn rate(&self) -> f64 {
        self.rate
    }

    /// Takes a measurement of the load: the delay of a task of the parent that was woken.
    pub fn on_lateness(&mut self, now: MonoTime, late: Duration) {
        self.late = self.late.max(late);
        if now.since(self.adapted) < ADAPT_INTERVAL {
            return;
        }
        let factor = match self.late {
            late if late <= CALM => GROWTH,
            late if late <= OVERLOADED => 1.0,
            _ => REDUCTION,
        };
        self.rate = (self.rate * factor).clamp(RATE_MIN, RATE_MAX);
        (self.late, self.adapted) = (Duration::ZERO, now);
        // A share is full again after this time, as if it were new.
        self.sources
            .retain(|_, share| now.since(share.tokens.updated()) < BURST || share.promised > now);
    }

    /// Returns the number of connections to accept for the time since the last ones.
    pub fn connections(&self, passed: Duration) -> usize {
        let rate = (self.rate * CONNECTIONS_PER_STREAM).max(CONNECTIONS_MIN);
        (rate * passed.min(BURST).as_secs_f64()).ceil() as usize
    }

    /// Admits one more stream, of the given source if it is known. One source takes the whole rate while the others
    /// need none of it, but never the last half of the tokens at more than half of the rate.
    ///
    /// # Errors
    /// Time that the child should stay away, if the parent has admitted as many streams lately as
    /// it can bear. Children that are turned away one after the other are sent different times, up to 30 s.
    pub fn admit(&mut self, now: MonoTime, source: Option<Source>) -> Result<(), Duration> {
        let (rate, depth) = (self.rate, self.rate * BURST.as_secs_f64());
        self.tokens.refill(now, rate, depth);
        let has_room = self.sources.len() < SOURCES_MAX;
        let known = source.filter(|source| has_room || self.sources.contains_key(source));
        if let Some(source) = known {
            let tokens = TokenBucket::new(now, depth / SOURCE_PART);
            let share = self.sources.entry(source).or_insert(Share {
                tokens,
                promised: now,
            });
            let is_within_share =
                share
                    .tokens
                    .take(now, rate / SOURCE_PART, depth / SOURCE_PART, 1.0);
            if !is_within_share && self.tokens.left() < depth / SOURCE_PART + 1.0 {
                // Its own queue, so that the others are not sent longer waits.
                return Err(promise(&mut share.promised, now, rate));
            }
        }
        if self.tokens.take(now, rate, depth, 1.0) {
            return Ok(());
        }
        Err(promise(&mut self.promised, now, rate))
    }
}

/// Promises the next place of a queue that is served at `rate`, and returns the time until then.
fn promise(promised: &mut MonoTime, now: MonoTime, rate: f64) -> Duration {
    let queued = promised.since(now) + Duration::from_secs_f64(1.0 / rate);
    let wait = queued.min(RETRY_MAX);
    *promised = now + wait;
    wait
}

/// The streams that one connection may open, so that one peer cannot use up the rate of all.
#[derive(Debug)]
pub struct ConnectionBudget(TokenBucket);

impl Default for ConnectionBudget {
    fn default() -> Self {
        Self(TokenBucket::new(MonoTime::ZERO, PER_CONNECTION_BURST))
    }
}

impl ConnectionBudget {
    /// Returns false if the connection has opened too many streams lately.
    pub fn take(&mut self, now: MonoTime) -> bool {
        self.0
            .take(now, PER_CONNECTION_RATE, PER_CONNECTION_BURST, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn host(number: u64) -> Option<Source> {
        Some(Source::from(IpAddr::from(Ipv4Addr::from_bits(
            number as u32,
        ))))
    }

    fn at(ms: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_millis(ms))
    }

    /// The time in ms until children that arrive within `spread_ms`, and stay away as long as
    /// asked, are all admitted, and the maximum number of attempts of any. They share some hosts.
    /// The parent is `late` at every measurement.
    fn storm(children: u64, hosts: u64, spread_ms: u64, late: Duration) -> (u64, u32) {
        let mut admission = Admission::new(at(0));
        let mut arrivals: BTreeMap<(u64, u64), u32> = (0..children)
            .map(|child| ((child * spread_ms / children, child), 1))
            .collect();
        let (mut end, mut most, mut measured) = (0, 0, 0);
        while let Some(((now, child), attempts)) = arrivals.pop_first() {
            while measured + 50 <= now {
                measured += 50;
                admission.on_lateness(at(measured), late);
            }
            most = most.max(attempts);
            match admission.admit(at(now), host(child % hosts)) {
                Ok(()) => end = now,
                // Jitter of 0 to 500 ms.
                Err(wait) => {
                    let back = now + wait.as_millis() as u64 + child * 7 % 500;
                    arrivals.insert((back, child), attempts + 1);
                }
            }
        }
        (end, most)
    }

    #[test]
    fn few_children_are_all_admitted_immediately() {
        assert_eq!(storm(500, 500, 1, Duration::ZERO), (0, 1));
        assert_eq!(storm(500, 2, 1, Duration::ZERO), (0, 1));
        let (end, most) = storm(500, 1, 1, Duration::ZERO);
        assert!(
            end < 1_000 && most <= 3,
            "one host: {end} ms, {most} attempts"
        );
    }

    #[test]
    fn storm_ends_at_the_parents_pace() {
        for hosts in [10_000, 100, 1] {
            let (end, most) = storm(10_000, hosts, 1_000, Duration::ZERO);
            assert!(
                end < 8_000 && most <= 6,
                "calm, {hosts} hosts: {end} ms, {most} attempts"
            );
            let (end, most) = storm(10_000, hosts, 1_000, Duration::from_millis(200));
            assert!(
                end < 12_000 && most <= 8,
                "busy, {hosts} hosts: {end} ms, {most} attempts"
            );
            let (end, most) = storm(10_000, hosts, 1_000, Duration::from_secs(5));
            assert!(
                end < 120_000 && most <= 12,
                "starved, {hosts} hosts: {end} ms, {most} attempts"
            );
        }
    }

    /// The honest streams, 50/s from other hosts, that are turned away in 20 s while one host opens
    /// 6,000/s.
    fn turned_away(late: Duration) -> Vec<Duration> {
        let mut admission = Admission::new(at(0));
        let mut waits = Vec::new();
        for now in 0..20_000 {
            if now % 50 == 0 {
                admission.on_lateness(at(now), late);
            }
            for _ in 0..6 {
                let _ = admission.admit(at(now), host(0));
            }
            if now % 20 == 0 {
                waits.extend(admission.admit(at(now), host(now + 1)).err());
            }
        }
        waits
    }

    #[test]
    fn flooding_host_turns_no_other_away() {
        for late in [0, 200] {
            assert_eq!(
                turned_away(Duration::from_millis(late)),
                [],
                "{late} ms late"
            );
        }
        // At the minimum rate, 100/s, the others have 50/s; streams that are turned away wait for
        // moments.
        let waits = turned_away(Duration::from_secs(5));
        let longest = waits.iter().max().copied().unwrap_or_default();
        assert!(
            waits.len() < 100 && longest < Duration::from_secs(1),
            "{}, {longest:?}",
            waits.len()
        );
    }

    #[test]
    fn unrivalled_source_has_the_whole_rate() {
        let mut admission = Admission::new(at(0));
        let admitted = (0..10_000)
            .filter(|now| admission.admit(at(*now), host(1)).is_ok())
            .count();
        assert!(
            (9_900..=10_250).contains(&admitted),
            "{admitted} in 10 s at {RATE_FIRST}/s"
        );
        admission.on_lateness(at(10_100), Duration::ZERO);
        assert_eq!(admission.sources.len(), 1);
        admission.on_lateness(at(50_000), Duration::ZERO);
        assert!(admission.sources.is_empty());
        for number in 0..20_000 {
            let _ = admission.admit(at(50_000), host(number));
        }
        assert_eq!(admission.sources.len(), SOURCES_MAX);
    }

    #[test]
    fn admission_rate_follows_task_delay_within_bounds() {
        let mut admission = Admission::new(at(0));
        let mut rates = |late: Duration, from: u64| -> Vec<f64> {
            let each = (1..=20).map(|count| {
                admission.on_lateness(at(from + count * 250), late);
                admission.rate()
            });
            each.collect()
        };
        let grown = rates(CALM, 0);
        assert!(grown.is_sorted() && grown[0] > RATE_FIRST && grown[19] == RATE_MAX);
        assert_eq!(rates(OVERLOADED, 10_000), [RATE_MAX; 20]);
        let fallen = rates(OVERLOADED + Duration::from_millis(1), 20_000);
        assert!(fallen.is_sorted_by(|a, b| a >= b) && fallen[19] == RATE_MIN);
    }

    #[test]
    fn connections_are_accepted_faster_than_streams() {
        let mut admission = Admission::new(at(0));
        let ms = Duration::from_millis;
        assert_eq!(
            [5, 50, 500, 60_000].map(|passed| admission.connections(ms(passed))),
            [10, 100, 1_000, 1_000]
        );
        (1..=20).for_each(|count| admission.on_lateness(at(count * 250), ms(1_000)));
        assert_eq!(
            [5, 50, 500, 60_000].map(|passed| admission.connections(ms(passed))),
            [3, 25, 250, 250]
        );
    }

    #[test]
    fn single_long_delay_is_not_overlooked() {
        let mut admission = Admission::new(at(0));
        admission.on_lateness(at(100), Duration::from_secs(1));
        admission.on_lateness(at(250), Duration::ZERO);
        assert!(admission.rate() < RATE_FIRST);
    }

    #[test]
    fn impatient_child_waits_within_the_bound() {
        let mut admission = Admission::new(at(0));
        let mut admitted = 0;
        for attempt in 0..1_000_000 {
            match admission.admit(at(attempt / 100), None) {
                Ok(()) => admitted += 1,
                Err(wait) => assert!(wait <= RETRY_MAX),
            }
        }
        assert!(
            admitted <= 500 + 10_000,
            "{admitted} in 10 s at {}/s",
            admission.rate()
        );
    }

    #[test]
    fn connection_opens_streams_at_a_pace() {
        let mut budget = ConnectionBudget::default();
        let opened =
            |budget: &mut ConnectionBudget, ms| (0..100).filter(|_| budget.take(at(ms))).count();
        assert_eq!(opened(&mut budget, 0), 8);
        assert_eq!(opened(&mut budget, 999), 0);
        assert_eq!(opened(&mut budget, 1_000), 1);
        assert_eq!(opened(&mut budget, 3_600_000), 8);
    }
}
