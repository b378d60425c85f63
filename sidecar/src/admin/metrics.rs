//! The metrics page: that of the limiter, and that of the ports.

use plimsoll_admin::metrics_page::{Page, Row, flag, plain};
use plimsoll_admin::ports::add_connections_to;
use plimsoll_client::Metrics;

use super::Sources;
use crate::{http, rls};

/// Returns the page.
pub(super) fn page(limiter: &Metrics, sources: &Sources) -> String {
    let mut page = Page::default();
    let ports = &sources.ports;
    add_connections_to(&mut page, &[("rls", &ports.rls), ("http", &ports.http), ("admin", &ports.admin)]);
    sources.security.add_access_to(&mut page);
    page.counter(
        "plimsoll_sidecar_looks_total",
        "Looks at the clock, ten a second, by whether the process ran 20 ms late or more.",
        &["late"],
        labelled(ports.lag.counts()),
    );
    add_rls_to(&mut page, &sources.rls);
    add_http_to(&mut page, &sources.http);
    add_rules_to(&mut page, sources);
    let mut text = limiter.text();
    text.push_str(&page.text());
    text
}

fn add_rules_to(page: &mut Page, sources: &Sources) {
    let (hash, reloads) = (sources.limits.in_force().rules.hash().to_string(), &sources.reloads);
    page.gauge(
        "plimsoll_sidecar_rules_info",
        "1, with the hash of the rules in force.",
        &["hash"],
        [(vec![hash], 1.0)],
    );
    page.counter(
        "plimsoll_sidecar_rules_reloads_total",
        "Changes of the rules file by result (accepted, refused).",
        &["result"],
        labelled([("accepted", reloads.accepted()), ("refused", reloads.refused())]),
    );
    page.gauge(
        "plimsoll_sidecar_rules_refused",
        "1 while the rules file is invalid and earlier rules are in force.",
        &[],
        plain(flag(reloads.refusal().is_some())),
    );
}

fn add_rls_to(page: &mut Page, counters: &rls::Counters) {
    page.counter(
        "plimsoll_sidecar_rls_requests_total",
        "Requests of the rate limit service by result (ok, withheld, over_limit, rejected).",
        &["result"],
        labelled(counters.requests()),
    );
    page.counter(
        "plimsoll_sidecar_rls_rejected_total",
        "Requests of the rate limit service that were rejected, by reason.",
        &["reason"],
        labelled(counters.rejected()),
    );
    page.counter(
        "plimsoll_sidecar_descriptors_passed_total",
        "Descriptors that counted for no bucket, by cause (no_rule, unlimited).",
        &["cause"],
        labelled(counters.passed()),
    );
    page.counter(
        "plimsoll_sidecar_own_limit_refusals_total",
        "Refusals by the limit that a descriptor brought along; enforced=\"false\" if they were withheld.",
        &["enforced"],
        labelled(counters.own_limits()),
    );
}

fn add_http_to(page: &mut Page, service: &http::Service) {
    let counts = service.counts().into_iter();
    page.counter(
        "plimsoll_sidecar_http_requests_total",
        "Requests of the HTTP port by endpoint and result.",
        &["endpoint", "result"],
        counts.map(|count| (vec![count.endpoint.to_owned(), count.result.to_owned()], count.requests as f64)),
    );
    page.counter(
        "plimsoll_sidecar_http_mistakes_total",
        "Missing or malformed headers in requests of proxies, which then are admitted, by kind.",
        &["kind"],
        labelled(service.mistakes()),
    );
}

fn labelled(rows: impl IntoIterator<Item = (&'static str, u64)>) -> impl Iterator<Item = Row> {
    rows.into_iter().map(|(label, count)| (vec![label.to_owned()], count as f64))
}
