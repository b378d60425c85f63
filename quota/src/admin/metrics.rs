//! The metrics of a quota server.

use std::sync::atomic::Ordering;

use plimsoll_admin::ports;
use plimsoll_admin::security::{ACCESS, CERTIFICATES};
use plimsoll_core::stats::metrics::{
    self, About, Durations, Family, Metric, Series, Value, families, one, rows,
};

use super::Sources;
use crate::engine::{LATENCY_BOUNDS, Latency, Stats};

struct Source<'a> {
    sources: &'a Sources,
    stats: Stats,
}

pub(super) fn page(sources: &Sources) -> Vec<Family> {
    let ports = vec![
        ("resp", sources.ports.resp.clone()),
        ("admin", sources.ports.admin.clone()),
    ];
    [
        families(
            &table(),
            &Source {
                sources,
                stats: sources.engine.stats(),
            },
        ),
        families(&ports::METRICS, &ports),
        families(&CERTIFICATES, &sources.security),
        families(&ACCESS, &sources.security),
    ]
    .concat()
}

pub(super) fn described() -> Vec<About> {
    [
        metrics::described(&table()),
        metrics::described(&ports::METRICS),
        metrics::described(&CERTIFICATES),
        metrics::described(&ACCESS),
    ]
    .concat()
}

fn table<'a>() -> Vec<Metric<Source<'a>>> {
    type M<'a> = Metric<Source<'a>>;
    vec![
        M::gauge(
            "plimsoll_quota_ready",
            &[],
            "1 while the store is open and answers.",
            |s| one(s.sources.engine.is_ready()),
        )
        .first(),
        M::counter(
            "plimsoll_quota_operations_total",
            &["command", "result"],
            "Commands answered: `reduce`, `get`, `sessionize`, `throttle`, `take`, `give`, `other`; by result: `granted`, \
             `refused` (for lack of tokens), `unavailable` (the store failed, or did not answer in time), `busy` (too many \
             waited for it), `error` (the command was wrong).",
            |s| {
                rows(
                    s.sources
                        .resp
                        .operations()
                        .map(|(command, result, count)| ([command, result], count)),
                )
            },
        ),
        M::counter(
            "plimsoll_quota_refused_total",
            &[],
            "Commands that a bucket refused for lack of tokens: the sum of `result` = `refused`.",
            |s| {
                let refused = s
                    .sources
                    .resp
                    .operations()
                    .filter(|(_, result, _)| *result == "refused");
                one(refused.map(|(.., count)| count).sum::<u64>())
            },
        ),
        M::gauge(
            "plimsoll_quota_connections",
            &[],
            "Open connections of the Redis protocol.",
            |s| one(s.sources.resp.open.load(Ordering::Relaxed)),
        ),
        M::counter(
            "plimsoll_quota_connections_total",
            &[],
            "Connections of the Redis protocol so far.",
            |s| one(s.sources.resp.connections.load(Ordering::Relaxed)),
        ),
        M::counter(
            "plimsoll_quota_connections_slow_total",
            &[],
            "Connections closed because their client did not read its replies, finish a command or authenticate in time, or \
             sent nothing for two hours.",
            |s| one(s.sources.resp.slow.load(Ordering::Relaxed)),
        ),
        M::gauge(
            "plimsoll_quota_buckets_in_memory",
            &[],
            "Buckets in memory; others are on disk alone.",
            |s| one(s.stats.buckets),
        ),
        M::gauge(
            "plimsoll_quota_cache_bytes",
            &[],
            "Bytes of the buckets in memory.",
            |s| one(s.stats.cache_bytes),
        ),
        M::gauge(
            "plimsoll_quota_cache_bytes_limit",
            &[],
            "Bytes of the buckets in memory, at most: `--cache-mib` without the part of the store itself.",
            |s| one(s.stats.cache_bytes_max),
        ),
        M::counter(
            "plimsoll_quota_cache_hits_total",
            &[],
            "Operations less misses.",
            |s| one(s.stats.hits),
        ),
        M::counter(
            "plimsoll_quota_cache_misses_total",
            &[],
            "Buckets that were not in memory when a batch first looked for them, once for each time that it names them.",
            |s| one(s.stats.misses),
        ),
        M::gauge(
            "plimsoll_quota_disk_bytes",
            &[],
            "Bytes of the store on disk.",
            |s| one(s.stats.disk_bytes),
        ),
        M::counter(
            "plimsoll_quota_commits_total",
            &[],
            "Commits that are on disk.",
            |s| one(s.stats.commits),
        ),
        M::counter(
            "plimsoll_quota_buckets_saved_total",
            &[],
            "Buckets that commits saved; one bucket counts once in each commit.",
            |s| one(s.stats.saved),
        ),
        M::histogram(
            "plimsoll_quota_commit_duration_seconds",
            &[],
            "Time of a commit until it is on disk.",
            |s| durations(&s.stats.commit),
        ),
        M::histogram(
            "plimsoll_quota_sync_duration_seconds",
            &[],
            "Part of it that is the synchronisation of the journal (fdatasync).",
            |s| durations(&s.stats.sync),
        ),
        M::gauge(
            "plimsoll_quota_unsaved_age_seconds",
            &[],
            "Age of the oldest debit that is not on disk; 0 if all are.",
            |s| one(s.stats.unsaved.unwrap_or_default()),
        ),
        M::counter(
            "plimsoll_quota_clock_steps_total",
            &[],
            "Steps of the wall clock of the machine by a second or more; refills go on without them.",
            |s| one(s.stats.clock_steps),
        ),
        M::gauge(
            "plimsoll_quota_clock_unsure",
            &[],
            "1 if buckets were refilled at the start for more than an hour that only the wall clock told, because the machine \
             booted in between.",
            |s| one(s.stats.clock_unsure),
        ),
        M::gauge(
            "plimsoll_quota_waiting",
            &[],
            "Batches of operations that wait for the store.",
            |s| one(s.stats.waiting),
        ),
        M::counter(
            "plimsoll_quota_store_errors_total",
            &[],
            "Failed reads, writes and synchronisations of the store.",
            |s| one(s.stats.store_errors),
        ),
        M::counter(
            "plimsoll_quota_unavailable_total",
            &[],
            "Operations without an answer, because the store failed, did not answer in time, or too many waited for it.",
            |s| one(s.stats.unavailable),
        ),
    ]
}

fn durations(latency: &Latency) -> Vec<Series> {
    let mut count = 0;
    let mut upto = |values: u64| {
        count += values;
        count
    };
    let buckets = LATENCY_BOUNDS
        .into_iter()
        .zip(latency.counts.map(&mut upto))
        .collect();
    one(Value::from(Durations {
        buckets,
        sum: latency.sum,
        count,
    }))
}
