//! The responses to admitted requests: durations and statuses by bucket and cohort. The middleware writes
//! them; reports and metrics read them off the request path.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_core::report::Side;
use plimsoll_core::stats::{BINS, Bin, Histogram};

/// The HTTP statuses with a counter of their own.
const STATUSES: std::ops::Range<u16> = 100..600;
/// The upper bounds of the exported histogram's buckets, in milliseconds.
const EDGES_MS: [u64; 15] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// A response with this HTTP status.
    Status(u16),
    /// An error of the service, without a response.
    Error,
    /// The caller cancelled the request.
    Aborted,
}

/// The responses of all buckets. A bucket takes 21 KB for each side, from its first response or
/// [`prepare`](Self::prepare) on.
#[derive(Debug)]
pub(crate) struct Responses {
    /// By bucket: true while this instance is in the canary cohort.
    canary: Box<[AtomicBool]>,
    /// By bucket: the responses of its two sides.
    sides: Box<[OnceLock<[SideStats; 2]>]>,
}

/// The responses of one bucket on one side.
#[derive(Debug)]
struct SideStats {
    bins: Box<[AtomicU64]>,
    micros: AtomicU64,
    statuses: Box<[AtomicU64]>,
    errors: AtomicU64,
    aborted: AtomicU64,
}

/// The counters up to the last report.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    bins: Vec<u64>,
    failed: u64,
}

/// The durations of requests as a cumulative histogram.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Durations {
    /// Upper bounds in seconds, each with the number of requests up to it.
    pub(crate) buckets: Vec<(f64, u64)>,
    /// The sum of all durations in seconds.
    pub(crate) sum: f64,
    pub(crate) count: u64,
}

impl Responses {
    pub(crate) fn new(buckets_max: usize) -> Self {
        Self {
            canary: (0..buckets_max).map(|_| AtomicBool::new(false)).collect(),
            sides: (0..buckets_max).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Sets the side of a bucket's canary that this instance is on.
    pub(crate) fn set_side(&self, bucket: usize, side: Side) {
        if let Some(canary) = self.canary.get(bucket) {
            canary.store(side == Side::Canary, Ordering::Relaxed);
        }
    }

    /// Allocates the counters of a bucket, so that its first response allocates nothing.
    pub(crate) fn prepare(&self, bucket: usize) {
        self.sides(bucket);
    }

    /// Returns the side of a bucket's canary that this instance is on.
    pub(crate) fn side(&self, bucket: usize) -> Side {
        let canary = self.canary.get(bucket).is_some_and(|canary| canary.load(Ordering::Relaxed));
        if canary { Side::Canary } else { Side::Control }
    }

    /// Records the end of an admitted request. Allocates with the first response of a bucket only.
    pub(crate) fn ended(&self, bucket: usize, side: Side, took: Duration, ending: Ending) {
        let Some(sides) = self.sides(bucket) else { return };
        let seen = &sides[side as usize];
        if let Some(bin) = seen.bins.get(usize::from(Bin::of(took).number())) {
            bin.fetch_add(1, Ordering::Relaxed);
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        seen.micros.fetch_add(micros, Ordering::Relaxed);
        seen.count(ending);
    }

    /// Records a refusal. Its duration is not recorded, because it does not measure the service.
    pub(crate) fn refused(&self, bucket: usize, side: Side, status: u16) {
        if let Some(sides) = self.sides(bucket) {
            sides[side as usize].count(Ending::Status(status));
        }
    }

    /// Returns the responses of a bucket's two sides, allocated with the first call.
    fn sides(&self, bucket: usize) -> Option<&[SideStats; 2]> {
        Some(self.sides.get(bucket)?.get_or_init(Default::default))
    }

    /// Returns the failures and durations since the last report.
    pub(crate) fn since(&self, bucket: usize, side: Side, reported: &mut Reported) -> (u64, Histogram) {
        let mut latency = Histogram::default();
        let Some(seen) = self.sides.get(bucket).and_then(OnceLock::get).map(|seen| &seen[side as usize])
        else {
            return (0, latency);
        };
        reported.bins.resize(BINS, 0);
        for (number, (bin, before)) in (0..).zip(seen.bins.iter().zip(&mut reported.bins)) {
            let now = bin.load(Ordering::Relaxed);
            if now > *before
                && let Some(bin) = Bin::new(number)
            {
                latency.add(bin, now - std::mem::replace(before, now));
            }
        }
        let failed = seen.failed();
        (failed.saturating_sub(std::mem::replace(&mut reported.failed, failed)), latency)
    }

    /// Returns the number of responses by code, and their durations. `None` if none were recorded.
    pub(crate) fn snapshot(&self, bucket: usize, side: Side) -> Option<(Vec<(String, u64)>, Durations)> {
        let seen = &self.sides.get(bucket)?.get()?[side as usize];
        let statuses = STATUSES.zip(seen.statuses.iter()).map(|(status, count)| (status.to_string(), count));
        let others = [("error".to_owned(), &seen.errors), ("aborted".to_owned(), &seen.aborted)];
        let codes = statuses.chain(others).map(|(code, count)| (code, count.load(Ordering::Relaxed)));
        Some((codes.filter(|(_, count)| *count > 0).collect(), seen.durations()))
    }
}

impl Default for SideStats {
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

impl SideStats {
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
            // A bin counts for the first bound at or above its lower edge, which is exact within 0.8 %.
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

    fn histogram(durations: &[Duration]) -> Histogram {
        let mut histogram = Histogram::default();
        durations.iter().for_each(|duration| histogram.add(Bin::of(*duration), 1));
        histogram
    }

    #[test]
    fn responses_are_reported_once_by_side() {
        let responses = Responses::new(2);
        let mut reported = Reported::default();
        assert_eq!(responses.since(1, Side::Control, &mut reported), (0, Histogram::default()));
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
        let all = histogram(&[MS, MS * 9, MS * 9, MS, MS]);
        assert_eq!(responses.since(1, Side::Control, &mut reported), (3, all));
        assert_eq!(responses.since(1, Side::Control, &mut reported), (0, Histogram::default()));
        responses.ended(1, Side::Control, MS * 3, Ending::Status(201));
        assert_eq!(responses.since(1, Side::Control, &mut reported), (0, histogram(&[MS * 3])));
        assert_eq!(responses.since(1, Side::Canary, &mut Reported::default()), (0, Histogram::default()));

        let (codes, durations) = responses.snapshot(1, Side::Control).unwrap();
        let due = [("200", 1), ("201", 1), ("404", 1), ("429", 1), ("503", 1), ("error", 1), ("aborted", 1)];
        assert_eq!(codes, due.map(|(code, count)| (code.to_owned(), count)));
        assert_eq!((durations.count, durations.sum), (6, 0.024), "a refusal has no duration");
        let up_to = |s: f64| durations.buckets.iter().find(|(edge, _)| *edge == s).unwrap().1;
        assert_eq!([up_to(0.002), up_to(0.005), up_to(0.01), up_to(60.0)], [3, 4, 6, 6]);
        responses.ended(9, Side::Control, MS, Ending::Error);
        responses.ended(0, Side::Control, MS, Ending::Status(7));
        assert_eq!(responses.snapshot(0, Side::Control).unwrap().0, [("error".to_owned(), 1)]);
    }

    #[test]
    fn side_of_an_instance_is_settable_by_bucket() {
        let responses = Responses::new(1);
        assert_eq!(responses.side(0), Side::Control);
        responses.set_side(0, Side::Canary);
        assert_eq!((responses.side(0), responses.side(7)), (Side::Canary, Side::Control));
        responses.set_side(0, Side::Control);
        assert_eq!(responses.side(0), Side::Control);
    }
}
