//! The Prometheus collector of a limiter and its feed.

mod families;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_core::decision::Mode;
use plimsoll_core::names::Bucket;
use plimsoll_core::report::Counts;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use self::families::{Families, Row, flag, plain};

use crate::assignment::endpoints::Aggregators;
use crate::cache::Restored;
use crate::feed::Feed;
use crate::limiter::Limiter;
use crate::subscription::BucketResponses;

const DECISIONS: &str = "plimsoll_decisions_total";
const CONNECTED: &str = "plimsoll_feed_connected";
const DISCONNECTS: &str = "plimsoll_feed_disconnects_total";
const REJECTED: &str = "plimsoll_directives_rejected_total";
const EPOCH: &str = "plimsoll_epoch";
const LAST_UPDATE: &str = "plimsoll_directive_last_update_timestamp_seconds";
const LOCAL_KILL: &str = "plimsoll_local_kill";
const UNTRACKED: &str = "plimsoll_decisions_untracked_total";
const ENDPOINT_CONNECTED: &str = "plimsoll_endpoint_connected";
const ENDPOINT_BUCKETS: &str = "plimsoll_endpoint_buckets";
const MOVED: &str = "plimsoll_buckets_moved_total";
const RESOLVE_FAILURES: &str = "plimsoll_resolve_failures_total";
const CACHE_IN_USE: &str = "plimsoll_directive_cache_in_use";
const CACHE_AGE: &str = "plimsoll_directive_cache_age_seconds";
const CACHE_REJECTED: &str = "plimsoll_directive_cache_rejected";
const CACHE_WRITE_FAILURES: &str = "plimsoll_directive_cache_write_failures_total";
const RESPONSES: &str = "plimsoll_responses_total";
const DURATIONS: &str = "plimsoll_request_duration_seconds";

/// A Prometheus collector of a limiter and its feed. It reads the counters when it is scraped, which costs
/// the request path nothing.
#[derive(Debug)]
pub struct Metrics {
    limiter: Limiter,
    feed: Feed,
    descs: Vec<Desc>,
    /// The decisions of each bucket by mode, as of the last scrape.
    decisions: Mutex<HashMap<Bucket, ByMode>>,
}

/// The counts of one bucket by the mode in which they were made.
#[derive(Debug)]
struct ByMode {
    mode: Mode,
    counts: Counts,
    by_mode: BTreeMap<Mode, Counts>,
}

impl Metrics {
    /// Makes a collector, to be registered with a `prometheus::Registry`.
    ///
    /// # Errors
    /// When a metric's name is invalid, which a test excludes.
    pub fn new(limiter: &Limiter, feed: &Feed) -> Result<Self, prometheus::Error> {
        let desc = |name: &str, labels: &[&str]| {
            let labels = labels.iter().map(|label| (*label).to_owned()).collect();
            Desc::new(name.to_owned(), "A metric of a Plimsoll limiter.".to_owned(), labels, HashMap::new())
        };
        let mut descs = vec![desc(DECISIONS, &["bucket", "mode", "result"])?];
        for name in [CONNECTED, DISCONNECTS, REJECTED, EPOCH, LOCAL_KILL, LAST_UPDATE, UNTRACKED] {
            descs.push(desc(name, &[])?);
        }
        for name in [ENDPOINT_CONNECTED, ENDPOINT_BUCKETS] {
            descs.push(desc(name, &["endpoint"])?);
        }
        for name in [MOVED, RESOLVE_FAILURES, CACHE_IN_USE, CACHE_AGE, CACHE_WRITE_FAILURES] {
            descs.push(desc(name, &[])?);
        }
        descs.push(desc(CACHE_REJECTED, &["reason"])?);
        descs.push(desc(RESPONSES, &["bucket", "cohort", "code"])?);
        descs.push(desc(DURATIONS, &["bucket", "cohort"])?);
        Ok(Self {
            limiter: limiter.clone(),
            feed: feed.clone(),
            descs,
            decisions: Mutex::new(HashMap::new()),
        })
    }

    fn families(&self) -> Families {
        let mut families = Families::default();
        let help = "Decisions by bucket, mode and result (admit, drop, guard_drop, would_drop).";
        families.counter(DECISIONS, help, &["bucket", "mode", "result"], self.decisions());

        let (epoch, age, rejected, local_kill) = self.feed.subscription.with(|subscription, now| {
            let age = subscription.upstream_age(now);
            (subscription.epoch(), age, subscription.rejected(), subscription.observes())
        });
        let health = &self.feed.health;
        let connected = flag(health.connected.load(Ordering::Relaxed) > 0);
        families.gauge(CONNECTED, "1 while the feed is connected to an aggregator.", &[], plain(connected));
        let disconnects = health.disconnects.load(Ordering::Relaxed) as f64;
        let help = "Streams to aggregators that were lost.";
        families.counter(DISCONNECTS, help, &[], plain(disconnects));
        let rejected = rejected + health.invalid.load(Ordering::Relaxed);
        let help = "Directives rejected because they were invalid or stale.";
        families.counter(REJECTED, help, &[], plain(rejected as f64));
        let epoch = epoch.map_or(0, |epoch| epoch.0) as f64;
        families.gauge(EPOCH, "The highest controller epoch applied, 0 before the first.", &[], plain(epoch));
        let help =
            "1 while the kill file or PLIMSOLL_KILL puts every bucket of this process into shadow mode.";
        families.gauge(LOCAL_KILL, help, &[], plain(flag(local_kill)));
        let updated = age.and_then(|age| SystemTime::now().checked_sub(age));
        let updated = updated.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or(Duration::ZERO);
        let help = "Unix time of the newest controller update that reached this client, 0 before the first.";
        families.gauge(LAST_UPDATE, help, &[], plain(updated.as_secs_f64()));
        let help =
            "Requests admitted without a key to count them for: their bucket has no room or an invalid name.";
        families.counter(UNTRACKED, help, &[], plain(self.limiter.table.untracked() as f64));
        self.add_endpoints(&mut families);
        self.add_cache(&mut families);
        self.add_responses(&mut families);
        families
    }

    /// Adds the responses that the middleware has recorded.
    fn add_responses(&self, families: &mut Families) {
        let watched = self.feed.subscription.with(|subscription, _| subscription.responses());
        let labels =
            |watched: &BucketResponses| vec![watched.bucket.to_string(), watched.side.as_str().to_owned()];
        let codes = watched.iter().flat_map(|watched| {
            let row = |(code, count): &(String, u64)| {
                ([labels(watched), vec![code.clone()]].concat(), *count as f64)
            };
            watched.codes.iter().map(row).collect::<Vec<Row>>()
        });
        let help = "Responses, refusals included, by bucket, cohort (canary, control) and HTTP status; error: the \
                    service failed without a response, aborted: the caller cancelled the request.";
        families.counter(RESPONSES, help, &["bucket", "cohort", "code"], codes);
        let durations = watched.iter().map(|watched| (labels(watched), watched.durations.clone()));
        let help = "Duration of admitted requests, until the service responds or the caller cancels.";
        families.histogram(DURATIONS, help, &["bucket", "cohort"], durations);
    }

    /// Adds the metrics of several aggregators.
    fn add_endpoints(&self, families: &mut Families) {
        if matches!(self.feed.aggregators, Aggregators::None | Aggregators::One(_)) {
            return;
        }
        let endpoints = self.feed.subscription.with(|subscription, _| subscription.endpoints());
        let each = |value: fn(bool, usize) -> f64| {
            let row =
                |(name, live, buckets): &(String, bool, usize)| (vec![name.clone()], value(*live, *buckets));
            endpoints.each.iter().map(row).collect::<Vec<Row>>()
        };
        let help = "1 while this aggregator is connected and has answered.";
        families.gauge(ENDPOINT_CONNECTED, help, &["endpoint"], each(|live, _| flag(live)));
        let help = "Buckets assigned to this aggregator.";
        families.gauge(ENDPOINT_BUCKETS, help, &["endpoint"], each(|_, buckets| buckets as f64));
        let help = "Buckets moved from one aggregator to another.";
        families.counter(MOVED, help, &[], plain(endpoints.moved as f64));
        let failures = self.feed.health.resolve_failures.load(Ordering::Relaxed) as f64;
        let help = "Failed DNS resolutions of the aggregators; the known addresses stay in use.";
        families.counter(RESOLVE_FAILURES, help, &[], plain(failures));
    }

    /// Adds the metrics of the directive cache.
    fn add_cache(&self, families: &mut Families) {
        if self.feed.cache.is_none() {
            return;
        }
        let health = &self.feed.health;
        let in_force = self.feed.subscription.with(|subscription, _| subscription.is_restored());
        let help = "1 while decisions use cached directives, before the first ones from an aggregator.";
        families.gauge(CACHE_IN_USE, help, &[], plain(flag(in_force)));
        if let Restored::Directives(age) = health.restored {
            let help = "Age of the cached directives when this process started.";
            families.gauge(CACHE_AGE, help, &[], plain(age.as_secs_f64()));
        }
        if let Restored::Rejected(reason) = health.restored {
            let help = "1 if the directive cache was rejected at the start, by reason.";
            families.gauge(CACHE_REJECTED, help, &["reason"], vec![(vec![reason.to_owned()], 1.0)]);
        }
        let failures = health.save_failures.load(Ordering::Relaxed) as f64;
        families.counter(CACHE_WRITE_FAILURES, "Failed writes of the directive cache.", &[], plain(failures));
    }

    fn decisions(&self) -> Vec<Row> {
        let counted: Vec<(Bucket, Counts, Mode)> = self.feed.subscription.with(|subscription, _| {
            let mut buckets: BTreeMap<Bucket, Counts> = BTreeMap::new();
            for (key, counts) in subscription.counts() {
                let sum = buckets.entry(key.bucket).or_default();
                *sum = sum.plus(counts);
            }
            let with_mode = |(bucket, counts)| {
                let mode = subscription.mode_of(&bucket).unwrap_or_default();
                (bucket, counts, mode)
            };
            buckets.into_iter().map(with_mode).collect()
        });
        let mut decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rows = Vec::new();
        for (bucket, counts, mode) in counted {
            let seen = decisions.entry(bucket.clone()).or_insert_with(|| ByMode {
                mode,
                counts: Counts::ZERO,
                by_mode: BTreeMap::new(),
            });
            // Decisions since the last scrape count for the mode of the last scrape.
            let sum = seen.by_mode.entry(seen.mode).or_default();
            *sum = sum.plus(counts.since(seen.counts));
            (seen.mode, seen.counts) = (mode, counts);
            for (mode, counts) in &seen.by_mode {
                for (result, count) in [
                    ("admit", counts.passed()),
                    ("drop", counts.dropped),
                    ("guard_drop", counts.guard_dropped),
                    ("would_drop", counts.would_dropped),
                ] {
                    let labels = vec![bucket.to_string(), mode.to_string(), result.to_owned()];
                    rows.push((labels, count as f64));
                }
            }
        }
        rows
    }
}

impl Collector for Metrics {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.families().into_vec()
    }
}
