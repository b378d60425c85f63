//! What a service exports about its limiter, in the words of the whole house.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_core::bucket::Bucket;
use plimsoll_core::report::Counts;
use plimsoll_core::rollout::Mode;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, IntGauge, Opts};

use crate::feed::Feed;
use crate::limiter::Limiter;

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

fn decisions() -> Result<IntCounterVec, prometheus::Error> {
    let help = "Decisions by bucket, mode and result (admit, drop, would_drop).";
    IntCounterVec::new(Opts::new("plimsoll_decisions_total", help), &["bucket", "mode", "result"])
}

fn gauge(name: &str, help: &str, value: u64) -> Result<IntGauge, prometheus::Error> {
    let gauge = IntGauge::new(name, help)?;
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    Ok(gauge)
}

impl Metrics {
    /// A collector to register with a `prometheus::Registry`.
    ///
    /// # Errors
    /// When Prometheus finds fault with a metric's name.
    pub fn new(limiter: &Limiter, feed: &Feed) -> Result<Self, prometheus::Error> {
        let mut metrics = Self {
            limiter: limiter.clone(),
            feed: feed.clone(),
            descs: Vec::new(),
            seen: Mutex::new(HashMap::new()),
        };
        metrics.descs = decisions()?.desc().into_iter().cloned().collect();
        for gauge in metrics.gauges()? {
            metrics.descs.extend(gauge.desc().into_iter().cloned());
        }
        Ok(metrics)
    }

    fn gauges(&self) -> Result<Vec<IntGauge>, prometheus::Error> {
        let health = &self.feed.health;
        let (epoch, age, stale) = self.feed.subscription.with(|subscription, now| {
            (subscription.epoch(), subscription.upstream_age(now), subscription.refused())
        });
        let heard = age.and_then(|age| SystemTime::now().checked_sub(age));
        let heard = heard.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or(Duration::ZERO);
        Ok(vec![
            gauge(
                "plimsoll_feed_connected",
                "1 while the feed has a stream to its aggregator.",
                health.connected.load(Ordering::Relaxed).into(),
            )?,
            gauge(
                "plimsoll_feed_disconnects",
                "Streams to the aggregator that ended or could not begin, since the start.",
                health.disconnects.load(Ordering::Relaxed),
            )?,
            gauge(
                "plimsoll_directives_refused",
                "Messages refused because they were older than what is held.",
                stale,
            )?,
            gauge(
                "plimsoll_epoch",
                "The highest controller epoch applied; 0 before the first.",
                epoch.map_or(0, |epoch| epoch.0),
            )?,
            gauge(
                "plimsoll_directive_last_update_timestamp_seconds",
                "When the controller last heard of this zone, by the waits of all hops; 0 if it never did.",
                heard.as_secs(),
            )?,
            gauge(
                "plimsoll_decisions_unplaced",
                "Requests admitted without a count of their own: no room for their bucket, or an invalid name.",
                self.limiter.table.unplaced(),
            )?,
        ])
    }

    fn decisions(&self) -> Result<IntCounterVec, prometheus::Error> {
        let decisions = decisions()?;
        let (counts, modes) = self.feed.subscription.with(|subscription, _| {
            let mut buckets: BTreeMap<Bucket, Counts> = BTreeMap::new();
            for (key, counts) in subscription.counts() {
                let sum = buckets.entry(key.bucket).or_default();
                *sum = sum.plus(counts);
            }
            let modes: Vec<Mode> = buckets
                .keys()
                .map(|bucket| subscription.mode_of(bucket).unwrap_or_default())
                .collect();
            (buckets, modes)
        });
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for ((bucket, counts), mode) in counts.into_iter().zip(modes) {
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
                    ("admit", counts.admitted().saturating_sub(counts.would_dropped)),
                    ("drop", counts.dropped),
                    ("would_drop", counts.would_dropped),
                ] {
                    decisions.with_label_values(&[bucket.as_str(), mode.as_str(), result]).inc_by(count);
                }
            }
        }
        Ok(decisions)
    }
}

impl Collector for Metrics {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = Vec::new();
        match (self.decisions(), self.gauges()) {
            (Ok(decisions), Ok(gauges)) => {
                families.extend(decisions.collect());
                families.extend(gauges.iter().flat_map(Collector::collect));
            }
            (Err(error), _) | (_, Err(error)) => {
                tracing::error!(%error, "the limiter's metrics cannot be collected")
            }
        }
        families
    }
}
