//! The responses to requests: durations and outcomes by bucket and cohort. The middleware writes
//! them; reports and metrics read them off the request path.

mod blocks;
mod cohort;
mod events;
mod grpc;
mod recorder;

pub(crate) use cohort::Cohort;
#[cfg(feature = "middleware")]
pub(crate) use grpc::GRPC_UNKNOWN;
pub(crate) use recorder::Recorder;

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use plimsoll_core::report::Side;
use plimsoll_core::stats::{BINS, Histogram};

use blocks::{Blocks, STATUSES};
use events::EventGate;
use grpc::LABELS;

/// The upper bounds of the exported histogram's buckets, in milliseconds.
const EDGES_MS: [u64; 15] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// A response with this HTTP status.
    Status(u16),
    /// A gRPC response with this code, in its headers or trailers.
    Grpc(u8),
    /// An error of the service, without a response.
    Error,
    /// The caller cancelled the request, or left before the end of a gRPC response.
    Aborted,
}

/// The responses of all buckets of a limiter. A bucket is allocated with its first response or
/// [`prepare`](Self::prepare), and takes memory for the threads that serve it.
#[derive(Debug)]
pub(crate) struct Responses {
    /// The number of the limiter in this process, for [`Recorder`]s.
    limiter: u64,
    /// The number of threads with counters of their own.
    thread_slots: usize,
    /// By bucket: the cohort of this instance, as [`Cohort::to_bits`].
    cohorts: Box<[AtomicU8]>,
    buckets: Box<[OnceLock<Blocks>]>,
    /// By bucket: its name, once it is declared.
    names: Box<[OnceLock<Arc<str>>]>,
    /// By bucket: true after a request passed two layers for it.
    stacked: Box<[AtomicBool]>,
    /// True after that for any bucket.
    is_stacked: AtomicBool,
    /// By bucket: the gate of the events about refusals.
    events: Box<[EventGate]>,
}

/// The counters up to the last report.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    bins: Vec<u64>,
    failed: u64,
}

/// The responses of a cohort so far.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Snapshot {
    /// The number of responses by code.
    pub(crate) codes: Vec<(String, u64)>,
    pub(crate) durations: Durations,
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
    pub(crate) fn new(buckets_max: usize, thread_slots: usize) -> Arc<Self> {
        recorder::register(|limiter| Self {
            limiter,
            thread_slots,
            cohorts: (0..buckets_max).map(|_| AtomicU8::default()).collect(),
            buckets: (0..buckets_max).map(|_| OnceLock::new()).collect(),
            names: (0..buckets_max).map(|_| OnceLock::new()).collect(),
            stacked: (0..buckets_max).map(|_| AtomicBool::new(false)).collect(),
            is_stacked: AtomicBool::new(false),
            events: (0..buckets_max).map(|_| EventGate::default()).collect(),
        })
    }

    /// Sets the side of a bucket's canary that this instance is on.
    pub(crate) fn set_side(&self, bucket: usize, side: Side) {
        self.change_cohort(bucket, |cohort| Cohort { side, ..cohort });
    }

    /// Sets whether a bucket is in canary.
    pub(crate) fn set_in_canary(&self, bucket: usize, in_canary: bool) {
        self.change_cohort(bucket, |cohort| Cohort { in_canary, ..cohort });
    }

    /// Changes the cohort of this instance in a bucket. Directives are published by one thread at a time.
    fn change_cohort(&self, bucket: usize, change: impl FnOnce(Cohort) -> Cohort) {
        if let Some(bits) = self.cohorts.get(bucket) {
            bits.store(change(self.cohort(bucket)).to_bits(), Ordering::Relaxed);
        }
    }

    /// Returns the number of the limiter in this process.
    pub(crate) const fn limiter(&self) -> u64 {
        self.limiter
    }

    /// Records that a request passed two layers for a bucket. Returns true for the first of each bucket.
    pub(crate) fn on_stacked(&self, bucket: u32) -> bool {
        self.is_stacked.store(true, Ordering::Relaxed);
        self.stacked.get(bucket as usize).is_some_and(|stacked| !stacked.swap(true, Ordering::Relaxed))
    }

    /// Keeps the name of a bucket, which is declared and so never has another one.
    pub(crate) fn set_name(&self, bucket: u32, name: &str) {
        if let Some(kept) = self.names.get(bucket as usize) {
            kept.get_or_init(|| name.into());
        }
    }

    /// Returns the name of a declared bucket.
    pub(crate) fn name(&self, bucket: u32) -> Option<&str> {
        Some(self.names.get(bucket as usize)?.get()?)
    }

    /// Allocates the counters of a bucket, so that its first response allocates nothing.
    pub(crate) fn prepare(&self, bucket: usize) {
        self.blocks(bucket);
    }

    /// Returns the cohort of this instance in a bucket.
    #[inline]
    pub(crate) fn cohort(&self, bucket: usize) -> Cohort {
        self.cohorts
            .get(bucket)
            .map_or_else(Cohort::default, |bits| Cohort::from_bits(bits.load(Ordering::Relaxed)))
    }

    /// Returns the recorder of the response to one request of a bucket.
    pub(crate) fn recorder(&self, bucket: u32) -> Recorder {
        Recorder { limiter: self.limiter, bucket, cohort: self.cohort(bucket as usize) }
    }

    /// Records the duration of an admitted request, and its end unless only the body will show it. Allocates
    /// with the first response of a bucket only.
    pub(crate) fn ended(&self, bucket: usize, cohort: Cohort, took: Duration, ending: Option<Ending>) {
        if let Some(blocks) = self.blocks(bucket) {
            let block = blocks.of_current_thread(cohort);
            block.add_duration(took);
            ending.into_iter().for_each(|ending| block.count(ending));
        }
    }

    /// Records an end alone, that of a body.
    pub(crate) fn count(&self, bucket: usize, cohort: Cohort, ending: Ending) {
        if let Some(blocks) = self.blocks(bucket) {
            blocks.of_current_thread(cohort).count(ending);
        }
    }

    /// Records a refusal. Its duration is not recorded, because it does not measure the service.
    pub(crate) fn refused(&self, bucket: usize, cohort: Cohort, ending: Ending) {
        if let Some(blocks) = self.blocks(bucket) {
            let block = blocks.of_current_thread(cohort);
            block.count(ending);
            block.count_refusal();
        }
    }

    /// Returns the refusals of a bucket since its last event, without the present one, if an event is due. `now` is
    /// the time since any fixed moment.
    pub(crate) fn event(&self, bucket: usize, now: Duration) -> Option<u64> {
        self.events.get(bucket)?.pass(now, || self.buckets.get(bucket)?.get().map(Blocks::refusals))
    }

    /// Returns the counters of a bucket, allocated with the first call.
    fn blocks(&self, bucket: usize) -> Option<&Blocks> {
        Some(self.buckets.get(bucket)?.get_or_init(|| Blocks::new(self.thread_slots)))
    }

    /// Returns the failures and durations since the last report on one side of the canary, whether the bucket was in
    /// canary or not.
    pub(crate) fn since(&self, bucket: usize, side: Side, reported: &mut Reported) -> (u64, Histogram) {
        let mut latency = Histogram::default();
        let Some(blocks) = self.buckets.get(bucket).and_then(OnceLock::get) else { return (0, latency) };
        let cohorts = [false, true].map(|in_canary| Cohort { side, in_canary });
        reported.bins.resize(BINS, 0);
        for (bin, now) in blocks.durations(&cohorts) {
            let before = &mut reported.bins[usize::from(bin.number())];
            latency.add(bin, now.saturating_sub(std::mem::replace(before, now)));
        }
        let failed = blocks.failed(&cohorts);
        (failed.saturating_sub(std::mem::replace(&mut reported.failed, failed)), latency)
    }

    /// Returns the responses of a bucket by the label of their cohort, of those that have any.
    pub(crate) fn snapshots(&self, bucket: usize) -> Vec<(&'static str, Snapshot)> {
        let Some(blocks) = self.buckets.get(bucket).and_then(OnceLock::get) else { return Vec::new() };
        let all = cohort::LABELS.into_iter().map(|(label, cohorts)| (label, Snapshot::of(blocks, cohorts)));
        all.filter(|(_, snapshot)| !snapshot.is_empty()).collect()
    }
}

impl Snapshot {
    fn of(blocks: &Blocks, cohorts: &[Cohort]) -> Self {
        let endings = STATUSES.map(|status| (status.to_string(), Ending::Status(status)));
        let grpc = (0..).zip(LABELS).map(|(code, label)| (label.to_owned(), Ending::Grpc(code)));
        let others = [("error".to_owned(), Ending::Error), ("aborted".to_owned(), Ending::Aborted)];
        let all = endings.chain(grpc).chain(others);
        let codes = all.map(|(code, ending)| (code, blocks.total(cohorts, ending)));
        Self {
            codes: codes.filter(|(_, count)| *count > 0).collect(),
            durations: Durations::of(blocks, cohorts),
        }
    }

    const fn is_empty(&self) -> bool {
        self.codes.is_empty() && self.durations.count == 0
    }
}

impl Durations {
    fn of(blocks: &Blocks, cohorts: &[Cohort]) -> Self {
        let mut edges = EDGES_MS.into_iter().map(Duration::from_millis).peekable();
        let (mut buckets, mut count) = (Vec::with_capacity(EDGES_MS.len()), 0);
        for (bin, requests) in blocks.durations(cohorts) {
            // A bin counts for the first bound at or above its lower edge, which is exact within 0.8 %.
            while edges.peek().is_some_and(|edge| bin.from() >= *edge) {
                buckets.extend(edges.next().map(|edge| (edge.as_secs_f64(), count)));
            }
            count += requests;
        }
        buckets.extend(edges.map(|edge| (edge.as_secs_f64(), count)));
        Self { buckets, sum: blocks.micros(cohorts) as f64 / 1e6, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::stats::Bin;

    const MS: Duration = Duration::from_millis(1);
    const CONTROL: Cohort = Cohort { side: Side::Control, in_canary: false };
    const OWN: Cohort = Cohort { side: Side::Canary, in_canary: true };

    /// Returns the responses outside of canary.
    fn snapshot(responses: &Responses, bucket: usize) -> Option<(Vec<(String, u64)>, Durations)> {
        let all = responses.snapshots(bucket).into_iter().find(|(label, _)| label.is_empty())?.1;
        Some((all.codes, all.durations))
    }

    fn histogram(durations: &[Duration]) -> Histogram {
        let mut histogram = Histogram::default();
        durations.iter().for_each(|duration| histogram.add(Bin::of(*duration), 1));
        histogram
    }

    #[test]
    fn responses_are_reported_once_by_side() {
        let responses = Responses::new(2, 4);
        let mut reported = Reported::default();
        assert_eq!(responses.since(1, Side::Control, &mut reported), (0, Histogram::default()));
        assert_eq!(snapshot(&responses, 1), None);
        for (took, ending) in [
            (MS, Ending::Status(200)),
            (MS * 9, Ending::Status(503)),
            (MS * 9, Ending::Error),
            (MS, Ending::Aborted),
            (MS, Ending::Status(404)),
        ] {
            responses.ended(1, CONTROL, took, Some(ending));
        }
        responses.refused(1, CONTROL, Ending::Status(429));
        let all = histogram(&[MS, MS * 9, MS * 9, MS, MS]);
        assert_eq!(responses.since(1, Side::Control, &mut reported), (3, all));
        assert_eq!(responses.since(1, Side::Control, &mut reported), (0, Histogram::default()));
        responses.ended(1, CONTROL, MS * 3, Some(Ending::Status(201)));
        assert_eq!(responses.since(1, Side::Control, &mut reported), (0, histogram(&[MS * 3])));
        assert_eq!(responses.since(1, Side::Canary, &mut Reported::default()), (0, Histogram::default()));

        let (codes, durations) = snapshot(&responses, 1).unwrap();
        let due = [("200", 1), ("201", 1), ("404", 1), ("429", 1), ("503", 1), ("error", 1), ("aborted", 1)];
        assert_eq!(codes, due.map(|(code, count)| (code.to_owned(), count)));
        assert_eq!((durations.count, durations.sum), (6, 0.024), "a refusal has no duration");
        let up_to = |s: f64| durations.buckets.iter().find(|(edge, _)| *edge == s).unwrap().1;
        assert_eq!([up_to(0.002), up_to(0.005), up_to(0.01), up_to(60.0)], [3, 4, 6, 6]);
        responses.ended(9, CONTROL, MS, Some(Ending::Error));
        responses.ended(0, CONTROL, MS, Some(Ending::Status(7)));
        assert_eq!(snapshot(&responses, 0).unwrap().0, [("error".to_owned(), 1)]);
    }

    #[test]
    fn grpc_codes_are_labelled_and_fail_like_server_errors() {
        let responses = Responses::new(1, 4);
        for code in 0..=20 {
            responses.ended(0, CONTROL, MS, None);
            (0..=code).for_each(|_| responses.count(0, CONTROL, Ending::Grpc(code)));
        }
        let (codes, durations) = snapshot(&responses, 0).unwrap();
        let count = |label: &str| codes.iter().find(|(code, _)| code == label).map_or(0, |code| code.1);
        let counts = ["grpc_ok", "grpc_cancelled", "grpc_unavailable", "grpc_unauthenticated"].map(count);
        assert_eq!(counts, [1, 2, 15, 17]);
        // A code that gRPC does not define counts as UNKNOWN, as at a caller.
        assert_eq!((count("grpc_unknown"), codes.len()), (3 + 18 + 19 + 20 + 21, LABELS.len()));
        assert_eq!(durations.count, 21);
        let failed = [2, 4, 12, 13, 14, 15].map(|code| code + 1).iter().sum::<u64>() + 18 + 19 + 20 + 21;
        assert_eq!(responses.since(0, Side::Control, &mut Reported::default()).0, failed);
    }

    #[test]
    fn refusals_are_logged_once_a_second_with_the_number_of_others() {
        let responses = Responses::new(2, 4);
        let seconds = |at| Duration::from_secs_f64(at);
        let mut logged = 0;
        for (at, refusals, suppressed) in [
            (0.0, 1, Some(0)),
            (0.5, 1, None),
            (0.999, 3, None),
            (1.0, 1, Some(4)),
            (1.5, 1, None),
            (9.0, 1, Some(1)),
            (9.9, 1, None),
            (10.0, 2, Some(2)),
        ] {
            (0..refusals).for_each(|n| {
                let side = if n % 2 == 0 { Side::Control } else { Side::Canary };
                responses.refused(1, Cohort { side, in_canary: n > 1 }, Ending::Status(429));
            });
            assert_eq!(responses.event(1, seconds(at)), suppressed, "{at} s");
            logged += suppressed.map_or(0, |suppressed| suppressed + 1);
        }
        assert_eq!(logged, 11, "each refusal is a part of one event");
        responses.refused(0, CONTROL, Ending::Status(429));
        assert_eq!(responses.event(0, seconds(10.0)), Some(0), "each bucket has events of its own");
        assert_eq!(responses.event(7, seconds(10.0)), None);
    }

    #[test]
    fn bucket_keeps_its_first_name() {
        let responses = Responses::new(1, 4);
        assert_eq!(responses.name(0), None);
        ["orders", "other"].into_iter().for_each(|name| responses.set_name(0, name));
        responses.set_name(7, "outside");
        assert_eq!((responses.name(0), responses.name(7)), (Some("orders"), None));
    }

    #[test]
    fn cohort_of_an_instance_is_settable_by_bucket() {
        let responses = Responses::new(1, 4);
        assert_eq!(responses.cohort(0), CONTROL);
        responses.set_side(0, Side::Canary);
        responses.set_in_canary(0, true);
        assert_eq!((responses.cohort(0), responses.cohort(7)), (OWN, CONTROL));
        responses.set_in_canary(0, false);
        assert_eq!(responses.cohort(0), Cohort { in_canary: false, ..OWN });
        responses.set_side(0, Side::Control);
        assert_eq!(responses.cohort(0), CONTROL);
    }

    #[test]
    fn responses_have_a_cohort_while_the_bucket_is_in_canary() {
        let responses = Responses::new(1, 4);
        let sides = [Side::Control, Side::Canary];
        let cohorts = [false, true].map(|in_canary| sides.map(|side| Cohort { side, in_canary }));
        for (n, cohort) in cohorts.into_iter().flatten().enumerate() {
            responses.set_side(0, cohort.side);
            responses.set_in_canary(0, cohort.in_canary);
            (0..=n).for_each(|_| responses.recorder(0).ended(MS, Some(Ending::Status(500))));
        }
        let counts: Vec<(&str, u64)> =
            responses.snapshots(0).into_iter().map(|(label, all)| (label, all.codes[0].1)).collect();
        assert_eq!(counts, [("", 3), ("control", 3), ("canary", 4)]);
        // Gates see the sides in every mode.
        let failed = sides.map(|side| responses.since(0, side, &mut Reported::default()).0);
        assert_eq!(failed, [4, 6]);
    }
}
