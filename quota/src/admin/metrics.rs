//! The metrics page of a quota server.

use plimsoll_admin::metrics_page::{Page, Row, flag, plain};
use plimsoll_admin::ports::add_connections_to;

use super::Sources;
use crate::engine::{LATENCY_BOUNDS, Latency, Stats};
use crate::resp::Counters;

/// Returns the page.
pub(super) fn page(sources: &Sources) -> String {
    let mut page = Page::default();
    let Sources { engine, ports, resp, security, .. } = sources;
    add_connections_to(&mut page, &[("resp", &ports.resp), ("admin", &ports.admin)]);
    security.add_to(&mut page);
    add_operations_to(&mut page, resp);
    let stats = engine.stats();
    add_memory_to(&mut page, &stats);
    add_commits_to(&mut page, &stats);
    page.counter(
        "plimsoll_quota_clock_steps_total",
        "Steps of the wall clock of the machine; refills go on without them.",
        &[],
        plain(stats.clock_steps as f64),
    );
    page.gauge(
        "plimsoll_quota_clock_unsure",
        "1 if buckets were refilled at the start for more than an hour that only the wall clock told.",
        &[],
        plain(stats.clock_unsure as f64),
    );
    page.gauge(
        "plimsoll_quota_ready",
        "1 while the store is open and answers.",
        &[],
        plain(flag(engine.is_ready())),
    );
    page.text()
}

fn add_operations_to(page: &mut Page, resp: &Counters) {
    let operations: Vec<_> = resp.operations().collect();
    let refused = operations.iter().filter(|(_, result, _)| *result == "refused").map(|(.., count)| count);
    let refused: u64 = refused.sum();
    page.counter(
        "plimsoll_quota_operations_total",
        "Commands answered, by command and result (granted, refused, unavailable, busy, error).",
        &["command", "result"],
        operations.iter().map(|(command, result, count)| -> Row {
            (vec![(*command).to_owned(), (*result).to_owned()], *count as f64)
        }),
    );
    page.counter(
        "plimsoll_quota_refused_total",
        "Commands that a bucket refused for lack of tokens.",
        &[],
        plain(refused as f64),
    );
    page.gauge(
        "plimsoll_quota_connections",
        "Open connections of the Redis protocol.",
        &[],
        plain(resp.open() as f64),
    );
    page.counter(
        "plimsoll_quota_connections_total",
        "Connections of the Redis protocol so far.",
        &[],
        plain(resp.connections() as f64),
    );
    page.counter(
        "plimsoll_quota_connections_slow_total",
        "Connections closed because their client did not read, finish a command or authenticate in time.",
        &[],
        plain(resp.slow() as f64),
    );
}

fn add_memory_to(page: &mut Page, stats: &Stats) {
    page.gauge(
        "plimsoll_quota_buckets_in_memory",
        "Buckets in memory; others are on disk alone.",
        &[],
        plain(stats.buckets as f64),
    );
    page.gauge(
        "plimsoll_quota_cache_bytes",
        "Bytes of the buckets in memory.",
        &[],
        plain(stats.cache_bytes as f64),
    );
    page.gauge(
        "plimsoll_quota_cache_bytes_limit",
        "Bytes of the buckets in memory, at most (--cache-mib).",
        &[],
        plain(stats.cache_bytes_max as f64),
    );
    page.counter(
        "plimsoll_quota_cache_hits_total",
        "Look-ups that found the bucket in memory.",
        &[],
        plain(stats.hits as f64),
    );
    page.counter(
        "plimsoll_quota_cache_misses_total",
        "Look-ups that asked the store.",
        &[],
        plain(stats.misses as f64),
    );
    page.gauge(
        "plimsoll_quota_disk_bytes",
        "Bytes of the store on disk.",
        &[],
        plain(stats.disk_bytes as f64),
    );
}

fn add_commits_to(page: &mut Page, stats: &Stats) {
    page.counter(
        "plimsoll_quota_commits_total",
        "Commits that are on disk.",
        &[],
        plain(stats.commits as f64),
    );
    page.counter(
        "plimsoll_quota_buckets_saved_total",
        "Buckets that commits saved; one bucket counts once in each commit.",
        &[],
        plain(stats.saved as f64),
    );
    page.histogram(
        "plimsoll_quota_commit_duration_seconds",
        "Time of a commit until it is on disk.",
        bins(&stats.commit),
        stats.commit.sum,
    );
    page.histogram(
        "plimsoll_quota_sync_duration_seconds",
        "Time of the synchronisation of the journal in a commit (fdatasync).",
        bins(&stats.sync),
        stats.sync.sum,
    );
    page.gauge(
        "plimsoll_quota_unsaved_age_seconds",
        "Age of the oldest debit that is not on disk; 0 if all are.",
        &[],
        plain(stats.unsaved.unwrap_or_default().as_secs_f64()),
    );
    page.gauge(
        "plimsoll_quota_waiting",
        "Operations that wait for the store.",
        &[],
        plain(stats.waiting as f64),
    );
    page.counter(
        "plimsoll_quota_store_errors_total",
        "Failed reads, writes and synchronisations of the store.",
        &[],
        plain(stats.store_errors as f64),
    );
    page.counter(
        "plimsoll_quota_unavailable_total",
        "Operations without an answer: the store failed, did not answer in time, or too many waited.",
        &[],
        plain(stats.unavailable as f64),
    );
}

fn bins(latency: &Latency) -> impl Iterator<Item = (f64, u64)> {
    LATENCY_BOUNDS.into_iter().chain([f64::INFINITY]).zip(latency.counts)
}
