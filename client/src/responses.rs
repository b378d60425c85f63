//! What became of requests that were let through: how long each took and how it ended, by bucket and side of the canary.
//! Written by the middleware, read off the request path.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_core::report::Side;
use plimsoll_core::stats::{BINS, Bin, Histogram};

/// Statuses that are told apart: 100 to 599.
const STATUSES: std::ops::Range<u16> = 100..600;
/// The upper edges of the buckets that Prometheus is shown, in milliseconds.
const EDGES_MS: [u64; 15] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With a response of this HTTP status.
    Status(u16),
    /// With an error of the service, and no response.
    Error,
    /// Nobody waited for the response any longer.
    Aborted,
}

/// All responses that are watched. A bucket takes room, 21 KB a side, from the first one on, or before.
#[derive(Debug)]
pub(crate) struct Responses {
    /// By bucket: whether this instance is in the cohort.
    canary: Box<[AtomicBool]>,
    /// By bucket: its two sides.
    seen: Box<[OnceLock<[Seen; 2]>]>,
}

/// The responses of one bucket on one side.
#[derive(Debug)]
struct Seen {
    bins: Box<[AtomicU64]>,
    micros: AtomicU64,
    statuses: Box<[AtomicU64]>,
    errors: AtomicU64,
    aborted: AtomicU64,
}

/// How far responses were told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    bins: Vec<u64>,
    failed: u64,
}

/// How long requests took, as Prometheus is shown.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Durations {
    /// Upper edges in seconds, and how many took no longer.
    pub(crate) buckets: Vec<(f64, u64)>,
    /// Seconds in all.
    pub(crate) sum: f64,
    pub(crate) count: u64,
}

impl Responses {
    pub(crate) fn new(buckets_max: usize) -> Self {
        Self {
            canary: (0..buckets_max).map(|_| AtomicBool::new(false)).collect(),
            seen: (0..buckets_max).map(|_| OnceLock::new()).collect(),
        }
    }

    /// This instance is on this side of a bucket's canary from now on.
    pub(crate) fn set_side(&self, bucket: usize, side: Side) {
        if let Some(canary) = self.canary.get(bucket) {
            canary.store(side == Side::Canary, Ordering::Relaxed);
        }
    }

    /// Responses of a bucket will be watched: takes the room for them now.
    pub(crate) fn prepare(&self, bucket: usize) {
        if let Some(seen) = self.seen.get(bucket) {
            seen.get_or_init(Default::default);
        }
    }

    /// On which side a request stands that asks now.
    pub(crate) fn side(&self, bucket: usize) -> Side {
        let canary = self.canary.get(bucket).is_some_and(|canary| canary.load(Ordering::Relaxed));
        if canary { Side::Canary } else { Side::Control }
    }

    /// A request that was let through has ended. Allocates with the first of a bucket, never again.
    pub(crate) fn ended(&self, bucket: usize, side: Side, took: Duration, ending: Ending) {
        let Some(seen) = self.seen.get(bucket).map(|seen| &seen.get_or_init(Default::default)[side as usize])
        else {
            return;
        };
        if let Some(bin) = seen.bins.get(usize::from(Bin::of(took).number())) {
            bin.fetch_add(1, Ordering::Relaxed);
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        seen.micros.fetch_add(micros, Ordering::Relaxed);
        seen.count(ending);
    }

    /// A request was answered in the service's place. That is quick, and says nothing about the service.
    pub(crate) fn refused(&self, bucket: usize, side: Side, status: u16) {
        if let Some(seen) = self.seen.get(bucket) {
            seen.get_or_init(Default::default)[side as usize].count(Ending::Status(status));
        }
    }

    /// What came since it was last told: how many failed, and how long all took.
    pub(crate) fn since(&self, bucket: usize, side: Side, told: &mut Told) -> (u64, Histogram) {
        let mut latency = Histogram::default();
        let Some(seen) = self.seen.get(bucket).and_then(OnceLock::get).map(|seen| &seen[side as usize])
        else {
            return (0, latency);
        };
        told.bins.resize(BINS, 0);
        for (number, (bin, told)) in (0..).zip(seen.bins.iter().zip(&mut told.bins)) {
            let now = bin.load(Ordering::Relaxed);
            if now > *told
                && let Some(bin) = Bin::new(number)
            {
                latency.add(bin, now - std::mem::replace(told, now));
            }
        }
        let failed = seen.failed();
        (failed.saturating_sub(std::mem::replace(&mut told.failed, failed)), latency)
    }

    /// All there is to show: by code how many, and how long they took. `None` while nothing was watched.
    pub(crate) fn snapshot(&self, bucket: usize, side: Side) -> Option<(Vec<(String, u64)>, Durations)> {
        let seen = &self.seen.get(bucket)?.get()?[side as usize];
        let statuses = STATUSES.zip(seen.statuses.iter()).map(|(status, count)| (status.to_string(), count));
        let others = [("error".to_owned(), &seen.errors), ("aborted".to_owned(), &seen.aborted)];
        let codes = statuses.chain(others).map(|(code, count)| (code, count.load(Ordering::Relaxed)));
        Some((codes.filter(|(_, count)| *count > 0).collect(), seen.durations()))
    }
}

impl Default for Seen {
    fn default() -> Self {
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            bins: zeros(BINS),
            micros: AtomicU64::new(0),
            statuses: zeros(STATUSES.len()),
            errors: AtomicU64::new(0),
            aborted: AtomicU64::new(0),
        }
    }
}

impl Seen {
    fn count(&self, ending: Ending) {
        let count = match ending {
            Ending::Status(status) => {
                let at = status.checked_sub(STATUSES.start).map(usize::from);
                at.and_then(|at| self.statuses.get(at)).unwrap_or(&self.errors)
            }
            Ending::Error => &self.errors,
            Ending::Aborted => &self.aborted,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn failed(&self) -> u64 {
        let server_errors = self.statuses.iter().skip(usize::from(500 - STATUSES.start));
        let others = [&self.errors, &self.aborted];
        server_errors.chain(others).map(|count| count.load(Ordering::Relaxed)).sum()
    }

    fn durations(&self) -> Durations {
        let mut edges = EDGES_MS.into_iter().map(Duration::from_millis).peekable();
        let (mut buckets, mut count) = (Vec::with_capacity(EDGES_MS.len()), 0);
        for (number, bin) in (0..).zip(self.bins.iter()) {
            // A bin belongs to the first edge at or above its lower one: within 0.8 % of where it would be.
            while Bin::new(number).zip(edges.peek()).is_some_and(|(bin, edge)| bin.from() >= *edge) {
                buckets.extend(edges.next().map(|edge| (edge.as_secs_f64(), count)));
            }
            count += bin.load(Ordering::Relaxed);
        }
        buckets.extend(edges.map(|edge| (edge.as_secs_f64(), count)));
        Durations { buckets, sum: self.micros.load(Ordering::Relaxed) as f64 / 1e6, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_came_is_told_once_and_by_side() {
        let responses = Responses::new(2);
        let mut told = Told::default();
        assert_eq!(responses.since(1, Side::Control, &mut told), (0, Histogram::default()));
        assert_eq!(responses.snapshot(1, Side::Control), None);
        for (took, ending) in [
            (MS, Ending::Status(200)),
            (MS * 9, Ending::Status(503)),
            (MS * 9, Ending::Error),
            (MS, Ending::Aborted),
            (MS, Ending::Status(404)),
        ] {
            responses.ended(1, Side::Control, took, ending);
        }
        responses.refused(1, Side::Control, 429);
        let all: Histogram = [MS, MS * 9, MS * 9, MS, MS].into_iter().collect();
        assert_eq!(responses.since(1, Side::Control, &mut told), (3, all));
        assert_eq!(responses.since(1, Side::Control, &mut told), (0, Histogram::default()));
        responses.ended(1, Side::Control, MS * 3, Ending::Status(201));
        assert_eq!(responses.since(1, Side::Control, &mut told), (0, [MS * 3].into_iter().collect()));
        assert_eq!(responses.since(1, Side::Canary, &mut Told::default()), (0, Histogram::default()));

        let (codes, durations) = responses.snapshot(1, Side::Control).unwrap();
        let due = [("200", 1), ("201", 1), ("404", 1), ("429", 1), ("503", 1), ("error", 1), ("aborted", 1)];
        assert_eq!(codes, due.map(|(code, count)| (code.to_owned(), count)));
        assert_eq!((durations.count, durations.sum), (6, 0.024), "a refusal is not the service's");
        let up_to = |s: f64| durations.buckets.iter().find(|(edge, _)| *edge == s).unwrap().1;
        assert_eq!([up_to(0.002), up_to(0.005), up_to(0.01), up_to(60.0)], [3, 4, 6, 6]);
        responses.ended(9, Side::Control, MS, Ending::Error);
        responses.ended(0, Side::Control, MS, Ending::Status(7));
        assert_eq!(responses.snapshot(0, Side::Control).unwrap().0, [("error".to_owned(), 1)]);
    }

    #[test]
    fn an_instance_stands_on_the_side_it_was_put_on() {
        let responses = Responses::new(1);
        assert_eq!(responses.side(0), Side::Control);
        responses.set_side(0, Side::Canary);
        assert_eq!((responses.side(0), responses.side(7)), (Side::Canary, Side::Control));
        responses.set_side(0, Side::Control);
        assert_eq!(responses.side(0), Side::Control);
    }
}
