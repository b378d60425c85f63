//! `POST /v1/report`: records responses that callers observed, for the gates of rollouts.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use plimsoll_client::{ObservedResponse, Request};

use super::check::tenant_of;
use super::read::{At, Body, check_batch, check_bucket, read};
use super::types::{Report, ReportBatch};
use crate::http::counts::{Endpoint, Outcome};
use crate::http::problem::Problem;
use crate::http::{Service, empty};
use crate::rules::Rules;

const LATENCY_MS_MAX: f64 = 86_400_000.0;

/// Answers a body. All of it is checked before anything is recorded.
///
/// A bucket without requests since the start of the sidecar has no record: such reports are counted
/// and dropped, because they may be about requests before a restart.
pub(in crate::http) fn report(
    port: &Service,
    body: &[u8],
) -> Result<Response<Full<Bytes>>, Problem> {
    let in_force = port.limits.in_force();
    let rules = &in_force.rules;
    match read::<Report<'_>, ReportBatch<'_>>(body)? {
        Body::Single(report) => record(port, &report, report.observed(rules, At(None))?),
        Body::Batch(batch) => {
            check_batch("reports", &batch.reports)?;
            let reports = batch.reports.iter().enumerate();
            let observed =
                reports.map(|(index, report)| report.observed(rules, At(Some(("reports", index)))));
            let observed: Vec<ObservedResponse> = observed.collect::<Result<_, _>>()?;
            batch
                .reports
                .iter()
                .zip(observed)
                .for_each(|(report, observed)| record(port, report, observed));
        }
    }
    Ok(empty(StatusCode::NO_CONTENT))
}

fn record(port: &Service, report: &Report<'_>, observed: ObservedResponse) {
    let request = Request::new(report.bucket.as_str(), tenant_of(report.tenant.as_ref()));
    let is_known = port.limits.limiter().record(&request, observed);
    port.counts.count(
        Endpoint::V1Report,
        if is_known {
            Outcome::Recorded
        } else {
            Outcome::UnknownBucket
        },
    );
}

impl Report<'_> {
    fn observed(&self, rules: &Rules, at: At<'_>) -> Result<ObservedResponse, Problem> {
        check_bucket(rules, at, &self.bucket)?;
        let response = match (self.status, self.failed) {
            (Some(status @ 100..=599), None) => ObservedResponse::status(status),
            (Some(status), None) => {
                return Err(Problem::of_field(
                    at.member("status"),
                    format!("{status} is not from 100 to 599"),
                ));
            }
            (None, Some(true)) => ObservedResponse::failure(),
            (None, Some(false)) => ObservedResponse::success(),
            (None, None) => {
                return Err(Problem::of_field(
                    at.member("status"),
                    "give the HTTP status, or `failed` instead",
                ));
            }
            (Some(_), Some(_)) => {
                return Err(Problem::of_field(
                    at.member("failed"),
                    "give either `status` or `failed`, not both",
                ));
            }
        };
        let Some(latency) = self.latency_ms else {
            return Ok(response);
        };
        if !(0.0..=LATENCY_MS_MAX).contains(&latency) {
            let fault =
                format!("{latency} is not from 0 to {LATENCY_MS_MAX}, a day in milliseconds");
            return Err(Problem::of_field(at.member("latency_ms"), fault));
        }
        Ok(response.took(Duration::from_secs_f64(latency / 1_000.0)))
    }
}
