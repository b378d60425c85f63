//! Asks Prometheus servers for the limits that the policy leaves to them. An answer that is none changes nothing: the last
//! good one stays.

use std::collections::HashMap;
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use plimsoll_core::policy::{LimitSource, Policy, Prometheus};
use plimsoll_core::rate::Rate;
use plimsoll_core::time::MonoTime;
use plimsoll_proto::shared::Shared;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::answer::{self, NoAnswer};
use crate::brain::{Answer, Brain};
use crate::learning::Learner;
use crate::metrics::Events;

/// How often each query is asked.
const ASKED_EVERY: Duration = Duration::from_secs(30);
/// How often it is looked whether one is due: a new one should not wait.
const PERIOD: Duration = Duration::from_millis(500);
/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long it may be.
const BYTES_MAX: usize = 64 << 10;
/// Queries that are under way at once.
const UNDER_WAY_MAX: usize = 16;
/// Of so many failures in a row one is logged.
const LOGGED_EVERY: u64 = 120;

type HttpClient = Client<HttpConnector, Empty<Bytes>>;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QueryError {
    #[error("https is not built: write http://, and let a proxy on this machine speak https")]
    Https,
    #[error("{0} is no URL")]
    Url(String),
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Slow,
    #[error("the answer is longer than {BYTES_MAX} bytes")]
    Long,
    #[error("status {status}: {reason}")]
    Status { status: u16, reason: String },
    #[error(transparent)]
    Answer(#[from] NoAnswer),
}

/// How one query has fared.
#[derive(Debug, Default)]
struct Asked {
    at: Option<MonoTime>,
    failures: u64,
    under_way: bool,
}

/// Asks every query of the policy again and again until `stop` is cancelled.
pub(crate) async fn follow(brain: Shared<Brain>, learner: Learner, events: Events, stop: CancellationToken) {
    let client = client();
    let mut asked: HashMap<Prometheus, Asked> = HashMap::new();
    let mut under_way = JoinSet::new();
    let mut periods = interval(PERIOD);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(done) = under_way.join_next() => {
                let Ok((source, answer)): Result<(Prometheus, Result<Rate, QueryError>), _> = done else { continue };
                let Some(of_source) = asked.get_mut(&source) else { continue };
                of_source.under_way = false;
                events.on_query(answer.is_ok());
                take(&brain, &learner, &source, of_source, answer).await;
                continue;
            }
            _ = periods.tick() => {}
        }
        let policy = brain.with(|brain, _| brain.policy().clone());
        let now = brain.now();
        let wanted = queries(&policy);
        asked.retain(|source, of_source| of_source.under_way || wanted.contains(&source));
        for source in wanted {
            let of_source = asked.entry(source.clone()).or_default();
            let is_due = of_source.at.is_none_or(|at| now.since(at) >= ASKED_EVERY);
            if is_due && !of_source.under_way && under_way.len() < UNDER_WAY_MAX {
                (of_source.at, of_source.under_way) = (Some(now), true);
                let (client, source) = (client.clone(), source.clone());
                under_way.spawn(async move {
                    let answer = ask(&client, &source.url, &source.query).await;
                    (source, answer)
                });
            }
        }
    }
}

async fn take(
    brain: &Shared<Brain>,
    learner: &Learner,
    source: &Prometheus,
    asked: &mut Asked,
    answer: Result<Rate, QueryError>,
) {
    let Prometheus { url, query, .. } = source;
    match answer {
        Ok(rate) => {
            if asked.failures > 0 {
                tracing::info!(url, query, limit_rps = rate.per_second(), "the query is answered again");
            }
            asked.failures = 0;
            let known = |brain: &Brain| brain.answers().get(&(url.clone(), query.clone())).copied();
            if brain.with(|brain, _| known(brain)).is_none_or(|known| known.rate != rate) {
                let (learner, brain, source) = (learner.clone(), brain.clone(), source.clone());
                let keep = move || learner.keep_answer(&brain, &source, rate);
                // Whether it can be kept or not, it is in force.
                let _ = tokio::task::spawn_blocking(keep).await;
            }
            brain.with(|brain, now| brain.on_answer(source, Answer { rate, at: now }));
            brain.ring();
        }
        Err(error) => {
            if asked.failures.is_multiple_of(LOGGED_EVERY) {
                tracing::error!(url, query, %error, "a limit cannot be asked for: the last good answer stays, if there was one");
            }
            asked.failures += 1;
        }
    }
}

/// Every query that the policy leaves a limit to.
fn queries(policy: &Policy) -> Vec<&Prometheus> {
    let exact = policy.exact_buckets().map(|(_, bucket)| bucket);
    let all = exact.chain(policy.patterns().map(|(_, bucket)| bucket));
    let of_prometheus = all.filter_map(|bucket| match bucket.source() {
        LimitSource::Prometheus(source) => Some(source),
        _ => None,
    });
    let mut queries: Vec<&Prometheus> = Vec::new();
    for source in of_prometheus {
        // Buckets with other bounds may share an answer.
        if !queries.iter().any(|known| (&known.url, &known.query) == (&source.url, &source.query)) {
            queries.push(source);
        }
    }
    queries
}

fn client() -> HttpClient {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(TIMEOUT));
    Client::builder(TokioExecutor::new()).build(connector)
}

/// Asks once.
async fn ask(client: &HttpClient, url: &str, query: &str) -> Result<Rate, QueryError> {
    if url.starts_with("https://") {
        return Err(QueryError::Https);
    }
    let query = utf8_percent_encode(query, NON_ALPHANUMERIC);
    let whole = format!("{}/api/v1/query?query={query}", url.trim_end_matches('/'));
    let uri = whole.parse().map_err(|_| QueryError::Url(url.to_owned()))?;
    let answer = async {
        let unreachable = |error: &dyn std::error::Error| {
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            QueryError::Unreachable(format!("{error}{cause}"))
        };
        let answer = client.get(uri).await.map_err(|error| unreachable(&error))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), BYTES_MAX).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() { QueryError::Long } else { unreachable(error.as_ref()) }
        })?;
        let rate = answer::rate(&body.to_bytes());
        // A query that is wrong comes with status 400 and says why.
        match rate {
            Err(NoAnswer::Garbled(_)) | Ok(_) if !status.is_success() => {
                let reason = status.canonical_reason().unwrap_or("not an answer").to_owned();
                Err(QueryError::Status { status: status.as_u16(), reason })
            }
            rate => Ok(rate?),
        }
    };
    timeout(TIMEOUT, answer).await.unwrap_or(Err(QueryError::Slow))
}

#[cfg(test)]
mod tests;
