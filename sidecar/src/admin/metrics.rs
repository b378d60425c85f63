//! The metrics of a sidecar: of its limiter, and of its ports.

use plimsoll_admin::ports;
use plimsoll_admin::security::ACCESS;
use plimsoll_client::Metrics;
use plimsoll_core::stats::metrics::{self, About, Family, Metric, Series, families, one, rows};

use super::Sources;

const METRICS: [Metric<Sources>; 9] = [
    Metric::counter(
        "plimsoll_sidecar_looks_total",
        &["late"],
        "Looks at the clock, ten a second: `true` if the process ran 20 ms late or more, as its host was busy or it was \
         stopped. The share of `true` is that of the time in which proxies do not wait for it.",
        |sources| labelled(sources.ports.lag.counts()),
    ),
    Metric::counter(
        "plimsoll_sidecar_rls_requests_total",
        &["result"],
        "Requests of the rate limit service: `ok`, `withheld` (admitted, and a refusal was not carried out), `over_limit`, \
         `rejected` (not decided).",
        |sources| labelled(sources.rls.requests()),
    ),
    Metric::counter(
        "plimsoll_sidecar_rls_rejected_total",
        &["reason"],
        "Requests of the rate limit service that were not decided, and count for no bucket, by reason.",
        |sources| labelled(sources.rls.rejected()),
    ),
    Metric::counter(
        "plimsoll_sidecar_descriptors_passed_total",
        &["cause"],
        "Descriptors that counted for no bucket: `no_rule` matches, or a rule says `unlimited`.",
        |sources| labelled(sources.rls.passed()),
    ),
    Metric::counter(
        "plimsoll_sidecar_http_requests_total",
        &["endpoint", "result"],
        "Requests of the HTTP port, and each part of a batch: `allowed`, `refused`, `withheld`, `passed` (no rule limits it), \
         `invalid`, `recorded` (a report), `unknown_bucket`.",
        |sources| rows(sources.http.counts.requests()),
    ),
    Metric::counter(
        "plimsoll_sidecar_http_mistakes_total",
        &["kind"],
        "Missing or malformed headers in requests of proxies, which are admitted without a decision or count as one.",
        |sources| labelled(sources.http.counts.mistakes()),
    ),
    Metric::gauge(
        "plimsoll_sidecar_rules_info",
        &["hash"],
        "1, with the hash of the rules in force.",
        |sources| rows([([sources.limits.in_force().rules.hash().to_string()], true)]),
    ),
    Metric::counter(
        "plimsoll_sidecar_rules_reloads_total",
        &["result"],
        "Changes of the rules file: `accepted`, `refused`.",
        |sources| {
            labelled([
                ("accepted", sources.reloads.accepted()),
                ("refused", sources.reloads.refused()),
            ])
        },
    ),
    Metric::gauge(
        "plimsoll_sidecar_rules_refused",
        &[],
        "1 while the rules file is invalid and earlier rules are in force.",
        |sources| one(sources.reloads.refusal().is_some()),
    ),
];

pub(super) fn page(limiter: &Metrics, sources: &Sources) -> Vec<Family> {
    let ports = &sources.ports;
    let ports = vec![
        ("rls", ports.rls.clone()),
        ("http", ports.http.clone()),
        ("admin", ports.admin.clone()),
    ];
    [
        limiter.families(),
        families(&METRICS, sources),
        families(&ports::METRICS, &ports),
        families(&ACCESS, &sources.security),
    ]
    .concat()
}

pub(super) fn described() -> Vec<About> {
    [
        metrics::described(&METRICS),
        metrics::described(&ports::METRICS),
        metrics::described(&ACCESS),
    ]
    .concat()
}

fn labelled(counts: impl IntoIterator<Item = (&'static str, u64)>) -> Vec<Series> {
    rows(counts.into_iter().map(|(label, count)| ([label], count)))
}
