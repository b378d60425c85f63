//! What a service exports about its limiter, in the words of the whole house.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_core::names::Bucket;
use plimsoll_core::report::Counts;
use plimsoll_core::decision::Mode;
use plimsoll_proto::page::{Buckets, Page, Row, flag, plain};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use crate::assignment::endpoints::Aggregators;
use crate::feed::Feed;
use crate::cache::file::Found;
use crate::limiter::Limiter;
use crate::responses::Durations;
use crate::subscription::Watched;

const DECISIONS: &str = "plimsoll_decisions_total";
const CONNECTED: &str = "plimsoll_feed_connected";
const DISCONNECTS: &str = "plimsoll_feed_disconnects_total";
const REFUSED: &str = "plimsoll_directives_refused_total";
const EPOCH: &str = "plimsoll_epoch";
const LAST_UPDATE: &str = "plimsoll_directive_last_update_timestamp_seconds";
const OBSERVES: &str = "plimsoll_observing";
const UNPLACED: &str = "plimsoll_decisions_unplaced_total";
const ENDPOINT_CONNECTED: &str = "plimsoll_endpoint_connected";
const ENDPOINT_BUCKETS: &str = "plimsoll_endpoint_buckets";
const MOVED: &str = "plimsoll_buckets_moved_total";
const RESOLVE_FAILURES: &str = "plimsoll_resolve_failures_total";
const KEPT: &str = "plimsoll_kept_in_force";
const KEPT_AGE: &str = "plimsoll_kept_age_seconds";
const KEPT_REFUSED: &str = "plimsoll_kept_refused";
const KEEP_FAILURES: &str = "plimsoll_keep_failures_total";
const RESPONSES: &str = "plimsoll_responses_total";
const DURATIONS: &str = "plimsoll_request_duration_seconds";

/// A Prometheus collector over a limiter and its feed. Reads the counts when it is scraped and costs the request
/// path nothing.
#[derive(Debug)]
pub struct Metrics {
    limiter: Limiter,
    feed: Feed,
    descs: Vec<Desc>,
    /// What was counted in which mode, up to when the mode was last seen to change.
    seen: Mutex<HashMap<Bucket, Seen>>,
}

/// The counts of one bucket, told apart by the mode they were made in.
#[derive(Debug)]
struct Seen {
    mode: Mode,
    counts: Counts,
    by_mode: BTreeMap<Mode, Counts>,
}

impl Metrics {
    /// A collector to register with a `prometheus::Registry`.
    ///
    /// # Errors
    /// When Prometheus finds fault with a metric's name.
    pub fn new(limiter: &Limiter, feed: &Feed) -> Result<Self, prometheus::Error> {
        let desc = |name: &str, labels: &[&str]| {
            let labels = labels.iter().map(|label| (*label).to_owned()).collect();
            Desc::new(name.to_owned(), "Of a Plimsoll limiter.".to_owned(), labels, HashMap::new())
        };
        let mut descs = vec![desc(DECISIONS, &["bucket", "mode", "result"])?];
        for name in [CONNECTED, DISCONNECTS, REFUSED, EPOCH, OBSERVES, LAST_UPDATE, UNPLACED] {
            descs.push(desc(name, &[])?);
        }
        for name in [ENDPOINT_CONNECTED, ENDPOINT_BUCKETS] {
            descs.push(desc(name, &["endpoint"])?);
        }
        for name in [MOVED, RESOLVE_FAILURES, KEPT, KEPT_AGE, KEEP_FAILURES] {
            descs.push(desc(name, &[])?);
        }
        descs.push(desc(KEPT_REFUSED, &["reason"])?);
        descs.push(desc(RESPONSES, &["bucket", "cohort", "code"])?);
        descs.push(desc(DURATIONS, &["bucket", "cohort"])?);
        Ok(Self { limiter: limiter.clone(), feed: feed.clone(), descs, seen: Mutex::new(HashMap::new()) })
    }

    fn page(&self) -> Page {
        let mut page = Page::default();
        let help = "Decisions by bucket, mode and result (admit, drop, guard_drop, would_drop).";
        page.counter(DECISIONS, help, &["bucket", "mode", "result"], self.decisions());

        let (epoch, age, refused, observes) = self.feed.subscription.with(|subscription, now| {
            let age = subscription.upstream_age(now);
            (subscription.epoch(), age, subscription.refused(), subscription.observes())
        });
        let health = &self.feed.health;
        let connected = flag(health.connected.load(Ordering::Relaxed) > 0);
        page.gauge(CONNECTED, "1 while the feed has a stream to an aggregator.", &[], plain(connected));
        let disconnects = health.disconnects.load(Ordering::Relaxed) as f64;
        let help = "Streams to aggregators that ended.";
        page.counter(DISCONNECTS, help, &[], plain(disconnects));
        let refused = refused + health.invalid.load(Ordering::Relaxed);
        let help = "Messages refused because they were out of range, or older than what is held.";
        page.counter(REFUSED, help, &[], plain(refused as f64));
        let epoch = epoch.map_or(0, |epoch| epoch.0) as f64;
        page.gauge(EPOCH, "The highest controller epoch applied; 0 before the first.", &[], plain(epoch));
        let help =
            "1 while this process alone only observes, because its kill file or its environment says so.";
        page.gauge(OBSERVES, help, &[], plain(flag(observes)));
        let heard = age.and_then(|age| SystemTime::now().checked_sub(age));
        let heard = heard.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or(Duration::ZERO);
        let help =
            "When the controller last heard of this zone, by the waits of all hops; 0 if it never did.";
        page.gauge(LAST_UPDATE, help, &[], plain(heard.as_secs_f64()));
        let help =
            "Requests admitted without a count of their own: no room for their bucket, or an invalid name.";
        page.counter(UNPLACED, help, &[], plain(self.limiter.table.unplaced() as f64));
        self.several(&mut page);
        self.keeping(&mut page);
        self.responses(&mut page);
        page
    }

    /// What the middleware has seen of responses; nothing where there is none.
    fn responses(&self, page: &mut Page) {
        let watched = self.feed.subscription.with(|subscription, _| subscription.watched());
        let labels = |watched: &Watched| vec![watched.bucket.to_string(), watched.side.as_str().to_owned()];
        let codes = watched.iter().flat_map(|watched| {
            let row = |(code, count): &(String, u64)| {
                ([labels(watched), vec![code.clone()]].concat(), *count as f64)
            };
            watched.codes.iter().map(row).collect::<Vec<Row>>()
        });
        let help = "Responses by bucket, cohort (canary, control) and HTTP status; error: there was none, aborted: \
                    the caller went away. Refusals are among them.";
        page.counter(RESPONSES, help, &["bucket", "cohort", "code"], codes);
        let durations = watched.iter().map(|watched| {
            let Durations { buckets, sum, count } = watched.durations.clone();
            (labels(watched), Buckets { up_to: buckets, sum, count })
        });
        let help = "How long requests took that were let through, until the service answered or the caller went away.";
        page.histogram(DURATIONS, help, &["bucket", "cohort"], durations);
    }

    /// What there is to say where there may be several aggregators.
    fn several(&self, page: &mut Page) {
        if matches!(self.feed.aggregators, Aggregators::None | Aggregators::One(_)) {
            return;
        }
        let endpoints = self.feed.subscription.with(|subscription, _| subscription.endpoints());
        let each = |value: fn(bool, usize) -> f64| {
            let row =
                |(name, live, buckets): &(String, bool, usize)| (vec![name.clone()], value(*live, *buckets));
            endpoints.each.iter().map(row).collect::<Vec<Row>>()
        };
        let help = "1 while there is a stream to this aggregator and it has answered.";
        page.gauge(ENDPOINT_CONNECTED, help, &["endpoint"], each(|live, _| flag(live)));
        let help = "Buckets whose counts go to this aggregator.";
        page.gauge(ENDPOINT_BUCKETS, help, &["endpoint"], each(|_, buckets| buckets as f64));
        let help = "Buckets that went from one aggregator to another.";
        page.counter(MOVED, help, &[], plain(endpoints.moved as f64));
        let failures = self.feed.health.resolve_failures.load(Ordering::Relaxed) as f64;
        let help = "Times the aggregators' name could not be resolved; those known stayed.";
        page.counter(RESOLVE_FAILURES, help, &[], plain(failures));
    }

    /// What there is to say where directives are kept for a later process.
    fn keeping(&self, page: &mut Page) {
        if self.feed.keepsake.is_none() {
            return;
        }
        let health = &self.feed.health;
        let in_force = self.feed.subscription.with(|subscription, _| subscription.is_from_kept());
        let help = "1 while decisions rest on what an earlier process kept, because nobody has spoken since.";
        page.gauge(KEPT, help, &[], plain(flag(in_force)));
        if let Found::Directives(age) = health.found {
            let help = "How old the directives were that this process started from.";
            page.gauge(KEPT_AGE, help, &[], plain(age.as_secs_f64()));
        }
        if let Found::Refused(reason) = health.found {
            let help = "1: the file with directives was not taken up at the start, and why.";
            page.gauge(KEPT_REFUSED, help, &["reason"], vec![(vec![reason.to_owned()], 1.0)]);
        }
        let failures = health.keep_failures.load(Ordering::Relaxed) as f64;
        page.counter(KEEP_FAILURES, "Times the directives could not be kept.", &[], plain(failures));
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
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rows = Vec::new();
        for (bucket, counts, mode) in counted {
            let seen = seen.entry(bucket.clone()).or_insert_with(|| Seen {
                mode,
                counts: Counts::ZERO,
                by_mode: BTreeMap::new(),
            });
            // What was counted since the last look belongs to the mode of that time.
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
        self.page().families()
    }
}
