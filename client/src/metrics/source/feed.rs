//! The feed: its streams and directives, the trust in it, its aggregators, and the directive cache.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::feed::Control;
use crate::feed::cache::Restored;
use crate::metrics::model::{Family, flag, plain};

/// Returns the families of the feed.
pub(super) fn families(control: &Control) -> Vec<Family> {
    let groups = [streams(control), trust(control), endpoints(control), cache(control)];
    groups.into_iter().flatten().collect()
}

fn streams(control: &Control) -> Vec<Family> {
    let (epoch, age, stale, local_kill, conflict) = control.subscription.with(|subscription, now| {
        let age = subscription.upstream_age(now);
        let conflict = subscription.other_controllers.has_rival(now);
        (subscription.epoch(), age, subscription.rejected, subscription.observes(), conflict)
    });
    let before = control.subscription.with(|subscription, _| subscription.decided_before_policy());
    let counters = &control.counters;
    let connected = flag(counters.connected.load(Ordering::Relaxed) > 0);
    let rejected = stale + count(&counters.invalid);
    let epoch = epoch.map_or(0, |epoch| epoch.0) as f64;
    let updated = age.and_then(|age| SystemTime::now().checked_sub(age));
    let updated = updated.map_or(0.0, unix_seconds);
    vec![
        Family::gauge(
            "plimsoll_feed_connected",
            "1 while the feed is connected to an aggregator.",
            &[],
            plain(connected),
        ),
        Family::counter(
            "plimsoll_feed_disconnects_total",
            "Streams to aggregators that were lost.",
            &[],
            plain(count(&counters.disconnects)),
        ),
        Family::gauge(
            "plimsoll_feed_unreported",
            "Decisions that no aggregator has acknowledged yet; after a shutdown of the feed, those that were lost.",
            &[],
            plain(control.unreported() as f64),
        ),
        Family::counter(
            "plimsoll_decisions_before_policy_total",
            "Requests decided before the policy of their bucket was known, by that decision (allow, deny).",
            &["policy"],
            [(vec![control.before_policy.as_str().to_owned()], before)],
        ),
        Family::counter(
            "plimsoll_directives_rejected_total",
            "Directives rejected because they were invalid or stale.",
            &[],
            plain(rejected),
        ),
        Family::gauge(
            "plimsoll_epoch",
            "The highest controller epoch applied, 0 before the first.",
            &[],
            plain(epoch),
        ),
        Family::gauge(
            "plimsoll_controller_conflict",
            "1 while directives of two controllers at one epoch arrive; those of one are refused.",
            &[],
            plain(flag(conflict)),
        ),
        Family::gauge(
            "plimsoll_local_kill",
            "1 while the kill file puts every bucket of this process into shadow mode.",
            &[],
            plain(flag(local_kill)),
        ),
        Family::gauge(
            "plimsoll_directive_last_update_timestamp_seconds",
            "Unix time at which the controller last covered a report of this client's aggregator; of several aggregators, the \
             oldest among those that own a bucket; 0 before the first.",
            &[],
            plain(updated),
        ),
    ]
}

/// Returns the metrics of refused connections, and of the certificate if there is one.
fn trust(control: &Control) -> Vec<Family> {
    let refused = control.counters.refused().clone();
    let refused =
        refused.into_iter().map(|(reason, aggregators)| (vec![reason.to_owned()], aggregators as f64));
    let certificate = control.certificate_health();
    let certificate = certificate.as_ref();
    vec![
        Family::gauge(
            "plimsoll_feed_refused",
            "Aggregators whose last connection was refused for lack of trust, at either end, by reason.",
            &["reason"],
            refused,
        ),
        Family::gauge(
            "plimsoll_certificate_not_before_timestamp_seconds",
            "Unix time from which the certificate of this service is valid.",
            &[],
            plain(certificate.map(|certificate| unix_seconds(certificate.not_before))),
        ),
        Family::gauge(
            "plimsoll_certificate_not_after_timestamp_seconds",
            "Unix time at which the certificate of this service expires.",
            &[],
            plain(certificate.map(|certificate| unix_seconds(certificate.not_after))),
        ),
        Family::gauge(
            "plimsoll_certificate_untrusted",
            "1 while no authority in use signs the certificate of this service, so that aggregators refuse it.",
            &[],
            plain(certificate.map(|certificate| flag(certificate.is_untrusted))),
        ),
        Family::gauge(
            "plimsoll_certificates_refused",
            "1 while the certificate files are refused and the earlier ones stay in use.",
            &[],
            plain(certificate.map(|certificate| flag(certificate.files_refused.is_some()))),
        ),
    ]
}

/// Returns the metrics of several aggregators, if there are several.
fn endpoints(control: &Control) -> Vec<Family> {
    let (endpoints, moved) = control.subscription.with(|subscription, _| {
        let assignment = subscription.assignment();
        let each = assignment.into_iter().flat_map(|assignment| assignment.endpoints());
        let each = each.map(|(name, live, buckets)| (vec![name.to_owned()], flag(live), buckets as f64));
        (each.collect::<Vec<_>>(), assignment.map(|assignment| assignment.moves))
    });
    let live = endpoints.iter().map(|(labels, live, _)| (labels.clone(), *live));
    let buckets = endpoints.iter().map(|(labels, _, buckets)| (labels.clone(), *buckets));
    vec![
        Family::gauge(
            "plimsoll_endpoint_connected",
            "1 while this aggregator is connected and has answered.",
            &["endpoint"],
            live,
        ),
        Family::gauge(
            "plimsoll_endpoint_buckets",
            "Buckets assigned to this aggregator.",
            &["endpoint"],
            buckets,
        ),
        Family::counter(
            "plimsoll_buckets_moved_total",
            "Buckets moved from one aggregator to another.",
            &[],
            plain(moved),
        ),
        Family::counter(
            "plimsoll_resolve_failures_total",
            "Failed DNS resolutions of the aggregators; the known addresses stay in use.",
            &[],
            plain(moved.map(|_| count(&control.counters.resolve_failures))),
        ),
    ]
}

/// Returns the metrics of the directive cache, if there is one.
fn cache(control: &Control) -> Vec<Family> {
    let (cache, counters) = (control.cache.as_ref(), &control.counters);
    let (age, rejected) = match counters.restored {
        Restored::Nothing => (None, None),
        Restored::Directives(age) => (Some(age.as_secs_f64()), None),
        Restored::Rejected(reason) => (None, Some((vec![reason.to_owned()], flag(true)))),
    };
    let in_use = cache.map(|_| control.subscription.with(|subscription, _| subscription.is_restored()));
    vec![
        Family::gauge(
            "plimsoll_directive_cache_in_use",
            "1 while decisions use cached directives, before the first ones from an aggregator.",
            &[],
            plain(in_use.map(flag)),
        ),
        Family::gauge(
            "plimsoll_directive_cache_age_seconds",
            "Age of the cached directives when this process started.",
            &[],
            plain(age),
        ),
        Family::gauge(
            "plimsoll_directive_cache_rejected",
            "1 if the directive cache was rejected at the start, by reason.",
            &["reason"],
            rejected,
        ),
        Family::counter(
            "plimsoll_directive_cache_write_failures_total",
            "Failed writes of the directive cache.",
            &[],
            plain(cache.map(|_| count(&counters.save_failures))),
        ),
    ]
}

/// Returns the Unix time, 0 for any earlier one.
fn unix_seconds(at: SystemTime) -> f64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
