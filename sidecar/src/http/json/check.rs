//! `POST /v1/check`: decides about one request or a batch.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::Response;
use http_body_util::Full;
use plimsoll_client::internals::Decided;
use plimsoll_client::{Limiter, Reason, Request, TraceId};
use plimsoll_core::names::DEFAULT_TENANT;
use serde::Serialize;

use super::read::{At, Body, check_batch, check_bucket, read};
use super::types::{BatchAnswer, Check, CheckAnswer, CheckBatch, QuotaAnswer, Text};
use crate::http::counts::{Counts, Endpoint, Outcome};
use crate::http::problem::Problem;
use crate::http::{Service, with_body};
use crate::rules::Rules;

/// Answers a body. All of it is checked before anything is decided, so that an invalid batch counts
/// for nothing.
pub(in crate::http) async fn check(
    port: &Service,
    body: &[u8],
) -> Result<Response<Full<Bytes>>, Problem> {
    let (limiter, in_force) = (port.limits.limiter(), port.limits.in_force());
    let rules = &in_force.rules;
    match read::<Check<'_>, CheckBatch<'_>>(body)? {
        Body::Single(check) => {
            let request = check.request(rules, At(None))?;
            let decided = limiter.explain(&request).await;
            check.count_if_retried(limiter, &request, &decided);
            let answer = answer_of(limiter, &request, &decided);
            count(&port.counts, &answer);
            Ok(json(&answer))
        }
        Body::Batch(batch) => {
            check_batch("requests", &batch.requests)?;
            let checks = batch.requests.iter().enumerate();
            let requests =
                checks.map(|(index, check)| check.request(rules, At(Some(("requests", index)))));
            let requests: Vec<Request<'_>> = requests.collect::<Result<_, _>>()?;
            let together = batch.together == Some(true);
            let decided = if together {
                let trace = batch.requests.iter().find_map(Check::trace);
                limiter
                    .explain_each(&Request::all(&requests).trace(trace))
                    .await
                    .into_vec()
            } else {
                // All wait for the store together.
                join_all(requests.iter().map(|request| limiter.explain(request))).await
            };
            let all = batch.requests.iter().zip(requests.iter().zip(&decided));
            let results = all.map(|(check, (request, decided))| {
                check.count_if_retried(limiter, request, decided);
                answer_of(limiter, request, decided)
            });
            let results: Vec<CheckAnswer> = results.collect();
            results
                .iter()
                .for_each(|answer| count(&port.counts, answer));
            let allowed = together.then(|| results.iter().all(|answer| answer.allowed));
            Ok(json(&BatchAnswer { allowed, results }))
        }
    }
}

impl Check<'_> {
    fn request(&self, rules: &Rules, at: At<'_>) -> Result<Request<'_>, Problem> {
        check_bucket(rules, at, &self.bucket)?;
        let tenant = tenant_of(self.tenant.as_ref());
        let plan = self.plan.as_ref().map_or("", Text::as_str);
        Ok(Request::new(self.bucket.as_str(), tenant)
            .plan(plan)
            .cost(self.cost.unwrap_or(1))
            .trace(self.trace()))
    }

    fn count_if_retried(&self, limiter: &Limiter, request: &Request<'_>, decided: &Decided) {
        if self.retried == Some(true) && decided.is_offered() {
            limiter.count_retried(request);
        }
    }

    fn trace(&self) -> Option<TraceId> {
        TraceId::of_traceparent(self.traceparent.as_ref()?.as_str().as_bytes())
    }
}

/// Returns the tenant in a body, or the class `default` without one. The limiter counts an empty
/// tenant as that class, too.
pub(super) fn tenant_of<'a>(tenant: Option<&'a Text<'_>>) -> &'a str {
    tenant.map_or(DEFAULT_TENANT, Text::as_str)
}

/// Returns the limit that decided: that of the tenant if it refused the request, or else that of the bucket.
fn limit_of(limiter: &Limiter, request: &Request<'_>, reason: Option<Reason>) -> Option<f64> {
    match reason {
        Some(Reason::TenantLimit) => {
            let limit = limiter.tenant_limit(request);
            limit.map(|limit| limit.per_second)
        }
        _ => limiter.limit(request.bucket()),
    }
}

fn answer_of(limiter: &Limiter, request: &Request<'_>, decided: &Decided) -> CheckAnswer {
    let refusal = decided.verdict.ok().err();
    let is_plain = refusal.is_none() && decided.quota.is_none();
    let left = is_plain.then(|| limiter.quota_left(request)).flatten();
    let quota = decided
        .quota
        .as_ref()
        .or(left.as_ref().map(|left| &left.quota));
    CheckAnswer {
        allowed: refusal.is_none(),
        reason: refusal.map(|refusal| refusal.reason().as_str()),
        retry_after_ms: refusal.map(|refusal| millis(refusal.retry_after())),
        limit_rps: limit_of(limiter, request, refusal.map(|refusal| refusal.reason())),
        quota: quota.map(|quota| QuotaAnswer {
            name: quota.name.to_string(),
            max: quota.rate.max(),
            refill: quota.rate.refill(),
            every_ms: quota.rate.every_ms(),
            remaining: left.as_ref().map(|left| left.remaining),
            reset_ms: left.as_ref().map(|left| millis(left.reset)),
        }),
        withheld: decided.withheld.map(|reason| reason.as_str()),
    }
}

/// Rounds up to whole milliseconds, at least one, so that no caller retries too early.
fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000))
        .unwrap_or(u64::MAX)
        .max(1)
}

fn count(counts: &Counts, answer: &CheckAnswer) {
    let outcome = match (answer.allowed, answer.withheld) {
        (false, _) => Outcome::Refused,
        (true, None) => Outcome::Allowed,
        (true, Some(_)) => Outcome::Withheld,
    };
    counts.count(Endpoint::V1Check, outcome);
}

fn json(answer: &impl Serialize) -> Response<Full<Bytes>> {
    // Texts and numbers always serialize.
    let body = serde_json::to_vec(answer).unwrap_or_default();
    with_body(body, "application/json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_rounded_up_to_whole_milliseconds() {
        for (wait, expected) in [
            (Duration::ZERO, 1),
            (Duration::from_nanos(1), 1),
            (Duration::from_millis(2), 2),
            (Duration::from_nanos(2_000_001), 3),
            (Duration::MAX, u64::MAX),
        ] {
            assert_eq!(millis(wait), expected, "{wait:?}");
        }
    }
}
