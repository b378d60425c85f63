//! The responses to requests: durations and outcomes by bucket and cohort. The middleware writes
//! them; reports and metrics read them off the request path.

mod blocks;
mod cohort;
mod events;
mod grpc;
mod observed;
#[cfg(feature = "internals")]
#[allow(missing_docs)]
pub(crate) mod recorded;
mod recorder;
#[cfg(test)]
mod tests;

pub(crate) use cohort::Cohort;
pub use grpc::GRPC_UNKNOWN;
pub use observed::ObservedResponse;
pub use recorder::Recorder;

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use plimsoll_core::report::Side;
use plimsoll_core::stats::metrics::Durations;
use plimsoll_core::stats::{BINS, Histogram};

use blocks::{Block, Blocks, STATUSES};
use events::EventGate;
use grpc::LABELS;

const EDGES_MS: [u64; 15] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000,
];

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// An HTTP response with this status.
    Status(u16),
    /// A gRPC response with this code, in its headers or trailers.
    Grpc(u8),
    /// A failure without a response, or without a known status.
    Error,
    /// A response without an error. Nothing more is known of it.
    Success,
    /// The caller cancelled the request, or left before the end of a gRPC response.
    Aborted,
}

pub(crate) struct Responses {
    /// The number of the limiter in this process, for [`Recorder`]s.
    pub(crate) limiter: u32,
    thread_slots: usize,
    buckets: Box<[OfBucket]>,
    /// By key: true on the side of the canary. Set where a canary is divided by key.
    key_sides: OnceLock<Box<[AtomicBool]>>,
    /// True after a request passed two layers for one bucket.
    is_stacked: AtomicBool,
}

/// The responses of one bucket, and the facts about the bucket that recorders read.
#[derive(Debug, Default)]
struct OfBucket {
    /// The cohort of this instance, as [`Cohort::to_bits`].
    cohort: AtomicU8,
    /// Allocated with the first use. Takes memory for the threads that serve the bucket.
    blocks: OnceLock<Blocks>,
    /// The name, once the bucket is declared.
    name: OnceLock<Box<str>>,
    is_stacked: AtomicBool,
    events: EventGate,
}

/// The counts of one bucket on one side that were reported.
#[derive(Default)]
pub(crate) struct Reported {
    bins: Vec<u64>,
    failed: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) codes: Vec<(String, u64)>,
    pub(crate) durations: Durations,
}

impl Responses {
    pub(crate) fn new(buckets_max: usize, thread_slots: usize) -> Arc<Self> {
        recorder::register(|limiter| Self {
            limiter,
            thread_slots,
            buckets: (0..buckets_max).map(|_| OfBucket::default()).collect(),
            key_sides: OnceLock::new(),
            is_stacked: AtomicBool::new(false),
        })
    }

    pub(crate) fn divide_by_key(&self, keys_max: usize) {
        self.key_sides
            .get_or_init(|| (0..keys_max).map(|_| AtomicBool::new(false)).collect());
    }

    pub(crate) fn set_side(&self, key: u32, side: Side) {
        if let Some(is_canary) = self
            .key_sides
            .get()
            .and_then(|sides| sides.get(key as usize))
        {
            is_canary.store(side == Side::Canary, Ordering::Relaxed);
        }
    }

    /// Returns the side of a key; `None` where the whole instance is on one side.
    #[inline]
    pub(crate) fn side(&self, key: u32) -> Option<Side> {
        let is_canary = |is_canary: &AtomicBool| is_canary.load(Ordering::Relaxed);
        let sides = self.key_sides.get()?;
        let is_canary = sides.get(key as usize).is_some_and(is_canary);
        Some(if is_canary {
            Side::Canary
        } else {
            Side::Control
        })
    }

    pub(crate) fn set_cohort(&self, bucket: usize, cohort: Cohort) {
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.cohort.store(cohort.to_bits(), Ordering::Relaxed);
        }
    }

    /// Records that a request passed two layers for a bucket. Returns true for the first of each bucket.
    pub(crate) fn on_stacked(&self, bucket: u32) -> bool {
        self.is_stacked.store(true, Ordering::Relaxed);
        let bucket = self.buckets.get(bucket as usize);
        bucket.is_some_and(|bucket| !bucket.is_stacked.swap(true, Ordering::Relaxed))
    }

    pub(crate) fn set_name(&self, bucket: u32, name: &str) {
        if let Some(bucket) = self.buckets.get(bucket as usize) {
            bucket.name.get_or_init(|| name.into());
        }
    }

    pub(crate) fn name(&self, bucket: u32) -> Option<&str> {
        Some(self.buckets.get(bucket as usize)?.name.get()?)
    }

    #[inline]
    pub(crate) fn cohort(&self, bucket: usize) -> Cohort {
        let bucket = self.buckets.get(bucket);
        bucket.map_or_else(Cohort::default, |of| {
            Cohort::from_bits(of.cohort.load(Ordering::Relaxed))
        })
    }

    pub(crate) fn recorder(&self, bucket: u32) -> Recorder {
        Recorder {
            limiter: self.limiter,
            bucket,
            key: u32::MAX,
            cohort: self.cohort(bucket as usize),
        }
    }

    #[inline]
    pub(crate) fn recorder_of_key(&self, bucket: u32, key: u32) -> Recorder {
        let recorder = Recorder {
            key,
            ..self.recorder(bucket)
        };
        match self.side(key) {
            None => recorder,
            Some(side) => Recorder {
                cohort: Cohort {
                    side,
                    ..recorder.cohort
                },
                ..recorder
            },
        }
    }

    /// Returns the refusals of a bucket since its last event, without the present one, if an event is due. `now` is
    /// the time since any fixed moment.
    pub(crate) fn event(&self, bucket: usize, now: Duration) -> Option<u64> {
        let bucket = self.buckets.get(bucket)?;
        bucket
            .events
            .pass(now, || bucket.blocks.get().map(Blocks::refusals))
    }

    /// Returns the counters of a response on this thread. Allocates with the first response of a bucket only.
    fn block(&self, of: Recorder) -> Option<Block<'_>> {
        Some(
            self.blocks(of.bucket as usize)?
                .of_current_thread(of.cohort),
        )
    }

    /// Returns the counters of a bucket, allocated with the first call.
    fn blocks(&self, bucket: usize) -> Option<&Blocks> {
        Some(
            self.buckets
                .get(bucket)?
                .blocks
                .get_or_init(|| Blocks::new(self.thread_slots)),
        )
    }

    fn used_blocks(&self, bucket: usize) -> Option<&Blocks> {
        self.buckets.get(bucket)?.blocks.get()
    }

    /// Returns the failures and durations since the last report on one side of the canary, whether the bucket was in
    /// canary or not.
    pub(crate) fn since(
        &self,
        bucket: usize,
        side: Side,
        reported: &mut Reported,
    ) -> (u64, Histogram) {
        let mut latency = Histogram::default();
        let Some(blocks) = self.used_blocks(bucket) else {
            return (0, latency);
        };
        let cohorts = [false, true].map(|in_canary| Cohort { side, in_canary });
        reported.bins.resize(BINS, 0);
        for (bin, now) in blocks.durations(&cohorts) {
            let before = &mut reported.bins[usize::from(bin.number())];
            latency.add(bin, now.saturating_sub(std::mem::replace(before, now)));
        }
        // A response that is being counted can be missing in one of the sums, so the difference may fall for a moment.
        let failed = blocks.failed(&cohorts).max(reported.failed);
        (
            failed - std::mem::replace(&mut reported.failed, failed),
            latency,
        )
    }

    pub(crate) fn snapshots(&self, bucket: usize) -> Vec<(&'static str, Snapshot)> {
        let Some(blocks) = self.used_blocks(bucket) else {
            return Vec::new();
        };
        let all = cohort::LABELS
            .into_iter()
            .map(|(label, cohorts)| (label, Snapshot::of(blocks, cohorts)));
        all.filter(|(_, snapshot)| !snapshot.is_empty()).collect()
    }
}

impl Snapshot {
    fn of(blocks: &Blocks, cohorts: &[Cohort]) -> Self {
        let endings = STATUSES.map(|status| (status.to_string(), Ending::Status(status)));
        let grpc = (0..)
            .zip(LABELS)
            .map(|(code, label)| (label.to_owned(), Ending::Grpc(code)));
        let others = [
            ("ok".to_owned(), Ending::Success),
            ("error".to_owned(), Ending::Error),
            ("aborted".to_owned(), Ending::Aborted),
        ];
        let all = endings.chain(grpc).chain(others);
        let codes = all.map(|(code, ending)| (code, blocks.total(cohorts, ending)));
        Self {
            codes: codes.filter(|(_, count)| *count > 0).collect(),
            durations: durations(blocks, cohorts),
        }
    }

    const fn is_empty(&self) -> bool {
        self.codes.is_empty() && self.durations.count == 0
    }
}

fn durations(blocks: &Blocks, cohorts: &[Cohort]) -> Durations {
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
    Durations {
        buckets,
        sum: blocks.micros(cohorts) as f64 / 1e6,
        count,
    }
}
