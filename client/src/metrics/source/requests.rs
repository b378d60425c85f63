//! The requests of the middleware: requests that passed without a decision, and the responses to
//! the others.

use plimsoll_core::stats::metrics::{Metric, Series, Value, rows};

use super::Source;
use crate::hot::thread_counters::Pass;
use crate::subscription::BucketResponses;

pub(super) const PASSED: Metric<Source> = Metric::counter(
    "plimsoll_requests_passed_total",
    &["reason"],
    "Requests that the middleware admitted without a decision: `no_rule` matches, `unlimited` by a rule, `cors_preflight`, \
     or `counted_before` by a layer outside.",
    |source| rows(Pass::ALL.map(|pass| ([pass.reason()], source.limiter.table.passes.total(pass)))),
);

pub(super) const MATCHES: Metric<Source> = Metric::counter(
    "plimsoll_rule_matches_total",
    &["rule"],
    "Requests of the middleware or sidecar by the rule that they matched, since the rules were read.",
    |source| {
        let matches = source.limiter.table.wirings.matches();
        rows(matches.into_iter().map(|(rule, count)| ([rule], count)))
    },
);

pub(super) const TENANTS: Metric<Source> = Metric::counter(
    "plimsoll_tenants_total",
    &["result"],
    "Requests that the middleware or sidecar asked for their tenant: `found`; `absent` and `invalid` (empty, or, over HTTP, \
     repeated or not UTF-8) count for the class `default`.",
    |source| {
        let tenants = source.limiter.table.passes.tenants();
        rows(tenants.map(|(result, count)| ([result], count)))
    },
);

pub(super) const RESPONSES: [Metric<Vec<BucketResponses>>; 2] = [
    Metric::counter(
        "plimsoll_responses_total",
        &["bucket", "cohort", "code"],
        "Responses, refusals included, by HTTP status or gRPC code (`grpc_ok`, ..) and, while the bucket is in canary, cohort \
         (`canary`, `control`). `error`: the service failed without a response, `ok`: the caller of a sidecar reported a \
         success without a status, `aborted`: the caller cancelled the request.",
        |watched| {
            responses(watched, |of| {
                let codes = of.responses.codes.iter();
                codes
                    .map(|(code, count)| (Some(code.clone()), Value::from(*count)))
                    .collect()
            })
        },
    ),
    Metric::histogram(
        "plimsoll_request_duration_seconds",
        &["bucket", "cohort"],
        "Duration of admitted requests, until the service responds or the caller cancels.",
        |watched| {
            responses(watched, |of| {
                vec![(None, of.responses.durations.clone().into())]
            })
        },
    ),
];

type Labelled = Vec<(Option<String>, Value)>;

fn responses(watched: &[BucketResponses], values: fn(&BucketResponses) -> Labelled) -> Vec<Series> {
    rows(watched.iter().flat_map(|of| {
        let labels = move |last| {
            [
                Some(of.bucket.to_string()),
                Some(of.cohort.to_owned()),
                last,
            ]
        };
        values(of)
            .into_iter()
            .map(move |(last, value)| (labels(last).into_iter().flatten(), value))
    }))
}
