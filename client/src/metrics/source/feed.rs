//! The feed: its streams and directives, the trust in it, its aggregators, and the directive cache.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_core::stats::metrics::{Metric, maybe, one, rows};

use crate::feed::Control;
use crate::subscription::assignment::Assignment;

pub(super) const FEED: [Metric<Control>; 18] = [
    Metric::gauge(
        "plimsoll_feed_connected",
        &[],
        "1 while the feed is connected to an aggregator.",
        |control| one(control.counters.connected.load(Ordering::Relaxed) > 0),
    ),
    Metric::counter(
        "plimsoll_feed_disconnects_total",
        &[],
        "Streams to aggregators that were lost.",
        |control| one(count(&control.counters.disconnects)),
    ),
    Metric::gauge(
        "plimsoll_feed_unreported",
        &[],
        "Decisions that no aggregator has acknowledged yet; after the end of the feed, those that were lost.",
        |control| one(control.unreported()),
    ),
    Metric::counter(
        "plimsoll_decisions_before_policy_total",
        &["policy"],
        "Requests decided before the policy of their bucket was known, by that decision: `allow`, `deny`.",
        |control| {
            let subscription = &control.subscription;
            let before = subscription.with(|feed, _| feed.decided_before_policy());
            rows([([control.before_policy.as_str()], before)])
        },
    ),
    Metric::counter(
        "plimsoll_directives_rejected_total",
        &[],
        "Directives rejected because they were invalid or stale.",
        |control| {
            let stale = control.subscription.with(|feed, _| feed.rejected);
            one(stale + count(&control.counters.invalid))
        },
    ),
    Metric::gauge(
        "plimsoll_epoch",
        &[],
        "Highest controller epoch applied; 0 before the first.",
        |control| {
            let subscription = &control.subscription;
            let epoch = subscription.with(|feed, _| feed.directives.epoch());
            one(epoch.map_or(0, |epoch| epoch.0))
        },
    ),
    Metric::gauge(
        "plimsoll_controller_conflict",
        &[],
        "1 while directives of two controllers at one epoch arrive; those of one are refused.",
        |control| {
            one(control
                .subscription
                .with(|feed, now| feed.other_controllers.has_rival(now)))
        },
    ),
    Metric::gauge(
        "plimsoll_local_kill",
        &[],
        "1 while the kill file puts every bucket of this process into shadow mode.",
        |control| {
            let subscription = &control.subscription;
            one(subscription.with(|feed, _| feed.enforcement.observes))
        },
    ),
    Metric::gauge(
        "plimsoll_directive_last_update_timestamp_seconds",
        &[],
        "Unix time at which the controller last covered a report of this client's aggregator; of several aggregators, the \
         oldest among those that own a bucket; 0 before the first.",
        |control| {
            let subscription = &control.subscription;
            let age = subscription.with(|feed, now| feed.upstream_age(now));
            let updated = age.and_then(|age| SystemTime::now().checked_sub(age));
            one(updated.map_or(0.0, unix_seconds))
        },
    ),
    Metric::gauge(
        "plimsoll_feed_refused",
        &["reason"],
        "Aggregators whose last connection was refused for lack of trust, at either end, by reason.",
        |control| {
            let refused = control.counters.lock_refusals();
            rows(
                refused
                    .iter()
                    .map(|(reason, aggregators)| ([*reason], *aggregators as f64)),
            )
        },
    ),
    Metric::gauge(
        "plimsoll_certificate_not_before_timestamp_seconds",
        &[],
        "Unix time from which the certificate in use is valid.",
        |control| {
            let health = control.certificate_health();
            maybe(health.map(|health| unix_seconds(health.not_before)))
        },
    ),
    Metric::gauge(
        "plimsoll_certificate_not_after_timestamp_seconds",
        &[],
        "Unix time at which the certificate in use expires.",
        |control| {
            let health = control.certificate_health();
            maybe(health.map(|health| unix_seconds(health.not_after)))
        },
    ),
    Metric::gauge(
        "plimsoll_certificate_untrusted",
        &[],
        "1 while no authority in `ca.crt` signs the certificate in use, so that peers refuse it.",
        |control| {
            let health = control.certificate_health();
            maybe(health.map(|health| health.is_untrusted))
        },
    ),
    Metric::gauge(
        "plimsoll_certificates_refused",
        &[],
        "1 while the certificate files cannot be used and those read before are in use.",
        |control| {
            let health = control.certificate_health();
            maybe(health.map(|health| health.files_refused.is_some()))
        },
    ),
    Metric::gauge(
        "plimsoll_endpoint_connected",
        &["endpoint"],
        "1 while this aggregator, one of several, is connected and has answered.",
        |control| {
            control.subscription.with(|subscription, _| {
                let each = subscription
                    .assignment()
                    .into_iter()
                    .flat_map(Assignment::endpoints);
                rows(each.map(|(name, is_live, _)| ([name], is_live)))
            })
        },
    ),
    Metric::counter(
        "plimsoll_buckets_moved_total",
        &[],
        "Buckets moved from one of several aggregators to another.",
        |control| {
            let subscription = &control.subscription;
            maybe(subscription.with(|feed, _| Some(feed.assignment()?.moves)))
        },
    ),
    Metric::gauge(
        "plimsoll_directive_cache_in_use",
        &[],
        "1 while decisions use cached directives, before the first ones from an aggregator.",
        |control| {
            let is_restored = |_: &_| {
                control
                    .subscription
                    .with(|feed, _| feed.directives.is_restored)
            };
            maybe(control.cache.as_ref().map(is_restored))
        },
    ),
    Metric::counter(
        "plimsoll_directive_cache_write_failures_total",
        &[],
        "Failed writes of the directive cache.",
        |control| {
            let cache = control.cache.as_ref();
            maybe(cache.map(|_| count(&control.counters.save_failures)))
        },
    ),
];

/// Returns the Unix time, 0 for any earlier one.
fn unix_seconds(at: SystemTime) -> f64 {
    at.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
