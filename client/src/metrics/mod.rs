//! The Prometheus collector of a limiter and its feed.

mod families;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_core::decision::{Mode, Reason};
use plimsoll_core::names::Bucket;
use plimsoll_core::report::Counts;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use self::families::Value::{Counter, Gauge, Histogram};
use self::families::{Families, Row, Value, flag, plain};
use crate::feed::Control;
use crate::feed::cache::Restored;
use crate::limiter::Limiter;
use crate::subscription::BucketResponses;

/// A Prometheus collector of a limiter and its feed. It reads the counters when it is scraped, which costs
/// the request path nothing.
#[derive(Debug)]
pub struct Metrics {
    limiter: Limiter,
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
    pub fn new(limiter: &Limiter) -> Result<Self, prometheus::Error> {
        let mut metrics = Self { limiter: limiter.clone(), descs: Vec::new(), decisions: Mutex::default() };
        // Without decisions: the mode they are counted for is that of the first scrape.
        metrics.descs = metrics.families(Vec::new()).descs()?;
        Ok(metrics)
    }

    fn families(&self, decisions: Vec<Row>) -> Families {
        let mut families = Families::default();
        let help = "Decisions by bucket, mode and result (admit, drop, guard_drop, would_drop).";
        families.add("plimsoll_decisions_total", help, &["bucket", "mode", "result"], decisions);
        let untracked = self.limiter.table.untracked() as f64;
        let help =
            "Requests admitted without a key to count them for: their bucket has no room or an invalid name.";
        families.add("plimsoll_decisions_untracked_total", help, &[], plain(Counter(untracked)));
        if let Some(control) = &self.limiter.control {
            Self::add_refusals(control, &mut families);
            Self::add_feed(control, &mut families);
            Self::add_trust(control, &mut families);
            Self::add_endpoints(control, &mut families);
            Self::add_cache(control, &mut families);
            Self::add_responses(control, &mut families);
        }
        families
    }

    /// Adds the refusals by reason.
    fn add_refusals(control: &Control, families: &mut Families) {
        let refusals = control.subscription.with(|subscription, _| subscription.refusals());
        let rows = refusals.iter().flat_map(|(bucket, by_reason)| {
            Reason::ALL.iter().zip(by_reason).flat_map(move |(reason, refused)| {
                [("true", refused.enforced), ("false", refused.would)].map(|(enforced, count)| {
                    let labels = [bucket.as_str(), reason.as_str(), enforced].map(str::to_owned);
                    (labels.to_vec(), Counter(count as f64))
                })
            })
        });
        let help = "Refusals by bucket and reason (cluster_overload, tenant_limit, burst_guard, cold_start); \
                    enforced=false: admitted, because the refusal is not enforced here.";
        families.add("plimsoll_refusals_total", help, &["bucket", "reason", "enforced"], rows);
    }

    /// Adds the metrics of the streams and their directives.
    fn add_feed(control: &Control, families: &mut Families) {
        let (epoch, age, stale, local_kill, conflict) = control.subscription.with(|subscription, now| {
            let age = subscription.upstream_age(now);
            let conflict = subscription.other_controllers.has_rival(now);
            (subscription.epoch(), age, subscription.rejected, subscription.observes(), conflict)
        });
        let counters = &control.counters;
        let connected = flag(counters.connected.load(Ordering::Relaxed) > 0);
        let help = "1 while the feed is connected to an aggregator.";
        families.add("plimsoll_feed_connected", help, &[], plain(connected));
        let help = "Streams to aggregators that were lost.";
        families.add("plimsoll_feed_disconnects_total", help, &[], plain(count(&counters.disconnects)));
        let rejected = stale + counters.invalid.load(Ordering::Relaxed);
        let help = "Directives rejected because they were invalid or stale.";
        families.add("plimsoll_directives_rejected_total", help, &[], plain(Counter(rejected as f64)));
        let epoch = epoch.map_or(0, |epoch| epoch.0) as f64;
        let help = "The highest controller epoch applied, 0 before the first.";
        families.add("plimsoll_epoch", help, &[], plain(Gauge(epoch)));
        let help = "1 while directives of two controllers at one epoch arrive; those of one are refused.";
        families.add("plimsoll_controller_conflict", help, &[], plain(flag(conflict)));
        let help =
            "1 while the kill file or PLIMSOLL_KILL puts every bucket of this process into shadow mode.";
        families.add("plimsoll_local_kill", help, &[], plain(flag(local_kill)));
        let updated = age.and_then(|age| SystemTime::now().checked_sub(age));
        let updated = updated.map_or(0.0, unix_seconds);
        let name = "plimsoll_directive_last_update_timestamp_seconds";
        let help = "Unix time at which the controller last covered a report of this client's aggregator; of several aggregators, the oldest \
            among those that own a bucket; 0 before the first.";
        families.add(name, help, &[], plain(Gauge(updated)));
    }

    /// Adds the metrics of refused connections, and of the certificate if there is one.
    fn add_trust(control: &Control, families: &mut Families) {
        let refused = control.counters.refused().clone();
        let refused = refused
            .into_iter()
            .map(|(reason, aggregators)| (vec![reason.to_owned()], Gauge(aggregators as f64)));
        let help =
            "Aggregators whose last connection was refused for lack of trust, at either end, by reason.";
        families.add("plimsoll_feed_refused", help, &["reason"], refused);
        let certificate = control.certificate_health();
        let certificate = certificate.as_ref();
        let not_before = certificate.map(|certificate| Gauge(unix_seconds(certificate.not_before)));
        let help = "Unix time from which the certificate of this service is valid.";
        families.add("plimsoll_certificate_not_before_timestamp_seconds", help, &[], plain(not_before));
        let not_after = certificate.map(|certificate| Gauge(unix_seconds(certificate.not_after)));
        let help = "Unix time at which the certificate of this service expires.";
        families.add("plimsoll_certificate_not_after_timestamp_seconds", help, &[], plain(not_after));
        let refused = certificate.map(|certificate| flag(certificate.files_refused.is_some()));
        let help = "1 while the certificate files are refused and the earlier ones stay in use.";
        families.add("plimsoll_certificates_refused", help, &[], plain(refused));
    }

    /// Adds the metrics of several aggregators, if there are several.
    fn add_endpoints(control: &Control, families: &mut Families) {
        let (endpoints, moved) = control.subscription.with(|subscription, _| {
            let assignment = subscription.assignment();
            let each = assignment.into_iter().flat_map(|assignment| assignment.endpoints());
            let each =
                each.map(|(name, live, buckets)| (vec![name.to_owned()], flag(live), Gauge(buckets as f64)));
            (each.collect::<Vec<_>>(), assignment.map(|assignment| Counter(assignment.moves as f64)))
        });
        let live = endpoints.iter().map(|(labels, live, _)| (labels.clone(), live.clone()));
        let help = "1 while this aggregator is connected and has answered.";
        families.add("plimsoll_endpoint_connected", help, &["endpoint"], live);
        let buckets = endpoints.iter().map(|(labels, _, buckets)| (labels.clone(), buckets.clone()));
        let help = "Buckets assigned to this aggregator.";
        families.add("plimsoll_endpoint_buckets", help, &["endpoint"], buckets);
        let help = "Buckets moved from one aggregator to another.";
        families.add("plimsoll_buckets_moved_total", help, &[], plain(moved.clone()));
        let failures = moved.map(|_| count(&control.counters.resolve_failures));
        let help = "Failed DNS resolutions of the aggregators; the known addresses stay in use.";
        families.add("plimsoll_resolve_failures_total", help, &[], plain(failures));
    }

    /// Adds the metrics of the directive cache, if there is one.
    fn add_cache(control: &Control, families: &mut Families) {
        let (cache, counters) = (control.cache.as_ref(), &control.counters);
        let (age, rejected) = match counters.restored {
            Restored::Nothing => (None, None),
            Restored::Directives(age) => (Some(Gauge(age.as_secs_f64())), None),
            Restored::Rejected(reason) => (None, Some((vec![reason.to_owned()], flag(true)))),
        };
        let in_use = cache.map(|_| control.subscription.with(|subscription, _| subscription.is_restored()));
        let help = "1 while decisions use cached directives, before the first ones from an aggregator.";
        families.add("plimsoll_directive_cache_in_use", help, &[], plain(in_use.map(flag)));
        let help = "Age of the cached directives when this process started.";
        families.add("plimsoll_directive_cache_age_seconds", help, &[], plain(age));
        let help = "1 if the directive cache was rejected at the start, by reason.";
        families.add("plimsoll_directive_cache_rejected", help, &["reason"], rejected);
        let failures = cache.map(|_| count(&counters.save_failures));
        let help = "Failed writes of the directive cache.";
        families.add("plimsoll_directive_cache_write_failures_total", help, &[], plain(failures));
    }

    /// Adds the responses that the middleware has recorded.
    fn add_responses(control: &Control, families: &mut Families) {
        let watched = control.subscription.with(|subscription, _| subscription.responses());
        let labels =
            |watched: &BucketResponses| vec![watched.bucket.to_string(), watched.side.as_str().to_owned()];
        let codes = watched.iter().flat_map(|watched| {
            let row = |(code, count): &(String, u64)| {
                ([labels(watched), vec![code.clone()]].concat(), Counter(*count as f64))
            };
            watched.codes.iter().map(row).collect::<Vec<Row>>()
        });
        let help = "Responses, refusals included, by bucket, cohort (canary, control) and HTTP status; error: the \
                    service failed without a response, aborted: the caller cancelled the request.";
        families.add("plimsoll_responses_total", help, &["bucket", "cohort", "code"], codes);
        let durations = watched.iter().map(|watched| (labels(watched), Histogram(watched.durations.clone())));
        let help = "Duration of admitted requests, until the service responds or the caller cancels.";
        families.add("plimsoll_request_duration_seconds", help, &["bucket", "cohort"], durations);
    }

    fn decisions(&self) -> Vec<Row> {
        let Some(control) = &self.limiter.control else { return Vec::new() };
        let counted: Vec<(Bucket, Counts, Mode)> = control.subscription.with(|subscription, _| {
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
            let unseen = || ByMode { mode, counts: Counts::ZERO, by_mode: BTreeMap::new() };
            let seen = decisions.entry(bucket.clone()).or_insert_with(unseen);
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
                    rows.push((labels, Counter(count as f64)));
                }
            }
        }
        rows
    }
}

/// Returns the Unix time, 0 for any earlier one.
fn unix_seconds(at: SystemTime) -> f64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn count(counter: &AtomicU64) -> Value {
    Counter(counter.load(Ordering::Relaxed) as f64)
}

impl Collector for Metrics {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.families(self.decisions()).into_vec()
    }
}
