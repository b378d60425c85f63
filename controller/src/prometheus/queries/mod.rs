//! Asks Prometheus servers for the limits that the policy leaves to them, and for what its extra gates hold against their
//! bounds. For a limit an answer that is none changes nothing: the last good one stays. For a gate it counts as unknown.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use plimsoll_policy::{LimitSource, Policy, Prometheus};
use plimsoll_core::quantity::MonoTime;
use plimsoll_proto::shared::Shared;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::prometheus::answer::{self, NoAnswer};
use crate::brain::{Answer, Brain};
use crate::history::learning::Learner;
use crate::admin::metrics::Events;
use crate::rollout::{self, Finding};

/// For how many intervals an answer counts at a gate.
const ANSWER_INTERVALS: u32 = 3;
/// How often a question is asked at most.
const EVERY_MIN: Duration = Duration::from_millis(100);
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

/// What is asked, and of whom.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Question {
    url: String,
    query: String,
}

/// What an answer is for.
#[derive(Clone, Debug, Default)]
struct Purpose {
    /// A limit. Buckets with other bounds may share an answer.
    limit: Option<Prometheus>,
    /// A gate between the stages of a rollout.
    gate: bool,
}

/// How one question has fared.
#[derive(Debug, Default)]
struct Asked {
    purpose: Purpose,
    at: Option<MonoTime>,
    limit_failures: u64,
    gate_failures: u64,
    under_way: bool,
}

/// Whoever asks, and whom it tells.
pub(crate) struct Asker {
    pub(crate) brain: Shared<Brain>,
    pub(crate) learner: Learner,
    pub(crate) events: Events,
    /// How often each question is asked.
    pub(crate) every: Duration,
}

// === impl Asker ===

impl Asker {
    /// Asks every question of the policy again and again until `stop` is cancelled.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let client = client();
        let every = self.every.max(EVERY_MIN);
        let mut asked: BTreeMap<Question, Asked> = BTreeMap::new();
        let mut under_way = JoinSet::new();
        let mut periods = interval(PERIOD.min(every));
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(done) = under_way.join_next() => {
                    let Ok((question, answer)): Result<(Question, Result<String, QueryError>), _> = done else { continue };
                    let Some(of_question) = asked.get_mut(&question) else { continue };
                    of_question.under_way = false;
                    self.take(&question, of_question, answer).await;
                    continue;
                }
                _ = periods.tick() => {}
            }
            let policy = self.brain.with(|brain, _| brain.policy().clone());
            let now = self.brain.now();
            let mut wanted = questions(&policy);
            asked.retain(|question, of_question| of_question.under_way || wanted.contains_key(question));
            for (question, of_question) in &mut asked {
                of_question.purpose = wanted.remove(question).unwrap_or_default();
            }
            asked.extend(
                wanted
                    .into_iter()
                    .map(|(question, purpose)| (question, Asked { purpose, ..Asked::default() })),
            );
            for (question, of_question) in due(&mut asked, now, every) {
                if under_way.len() >= UNDER_WAY_MAX {
                    break;
                }
                (of_question.at, of_question.under_way) = (Some(now), true);
                let (client, question) = (client.clone(), question.clone());
                under_way.spawn(async move {
                    let answer = ask(&client, &question.url, &question.query).await;
                    (question, answer)
                });
            }
        }
    }

    async fn take(&self, question: &Question, asked: &mut Asked, answer: Result<String, QueryError>) {
        if asked.purpose.gate {
            self.take_for_gate(question, asked, &answer);
        }
        if let Some(source) = asked.purpose.limit.clone() {
            self.take_for_limit(&source, asked, answer).await;
        }
    }

    async fn take_for_limit(
        &self,
        source: &Prometheus,
        asked: &mut Asked,
        answer: Result<String, QueryError>,
    ) {
        let Prometheus { url, query, .. } = source;
        let answer = answer.and_then(|text| Ok(answer::rate(&text)?));
        self.events.on_query(answer.is_ok());
        match answer {
            Ok(rate) => {
                if asked.limit_failures > 0 {
                    tracing::info!(url, query, limit_rps = rate.per_second(), "the query is answered again");
                }
                asked.limit_failures = 0;
                let known = |brain: &Brain| brain.answers().get(&(url.clone(), query.clone())).copied();
                if self.brain.with(|brain, _| known(brain)).is_none_or(|known| known.rate != rate) {
                    let (learner, brain, source) = (self.learner.clone(), self.brain.clone(), source.clone());
                    let keep = move || learner.keep_answer(&brain, &source, rate);
                    // Whether it can be kept or not, it is in force.
                    let _ = tokio::task::spawn_blocking(keep).await;
                }
                self.brain.with(|brain, now| brain.on_answer(source, Answer { rate, at: now }));
                self.brain.ring();
            }
            Err(error) => {
                if asked.limit_failures.is_multiple_of(LOGGED_EVERY) {
                    tracing::error!(url, query, %error, "a limit cannot be asked for: the last good answer stays, if there was one");
                }
                asked.limit_failures += 1;
            }
        }
    }

    fn take_for_gate(&self, question: &Question, asked: &mut Asked, answer: &Result<String, QueryError>) {
        let Question { url, query } = question;
        let said = match answer {
            Ok(text) => answer::number(text).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let known = said.as_ref().is_ok_and(|value| value.is_finite());
        self.events.on_gate_query(known);
        if known && asked.gate_failures > 0 {
            tracing::info!(url, query, "the query of a gate is answered again");
            asked.gate_failures = 0;
        }
        if !known {
            if asked.gate_failures.is_multiple_of(LOGGED_EVERY) {
                let answer = said.as_ref().map_or_else(Clone::clone, ToString::to_string);
                tracing::warn!(
                    url,
                    query,
                    answer,
                    "the query of a gate has no answer that counts: the gate is inconclusive, and waits"
                );
            }
            asked.gate_failures += 1;
        }
        let good_for = self.every * ANSWER_INTERVALS;
        self.brain.with(|brain, now| brain.on_finding(url, query, Finding { at: now, good_for, said }));
    }
}

/// Reads how often questions are asked.
pub(crate) fn every(text: &str) -> Result<Duration, String> {
    let every = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if every < EVERY_MIN {
        return Err(format!("a server is asked every {} ms at most", EVERY_MIN.as_millis()));
    }
    Ok(every)
}

/// Every question of the policy, and what its answer is for.
fn questions(policy: &Policy) -> BTreeMap<Question, Purpose> {
    let mut questions: BTreeMap<Question, Purpose> = BTreeMap::new();
    let of = |url: &str, query: &str| Question { url: url.to_owned(), query: query.to_owned() };
    let exact = policy.exact_buckets().map(|(_, bucket)| bucket);
    for bucket in exact.chain(policy.patterns().map(|(_, bucket)| bucket)) {
        if let LimitSource::Prometheus(source) = bucket.source() {
            questions.entry(of(&source.url, &source.query)).or_default().limit = Some(source.clone());
        }
    }
    for gate in rollout::questions(policy) {
        questions.entry(of(&gate.url, &gate.query)).or_default().gate = true;
    }
    questions
}

/// The questions that are due, those for limits first, and then those that have waited longest: servers that are slow may
/// not keep anybody from being asked for ever.
fn due(
    asked: &mut BTreeMap<Question, Asked>,
    now: MonoTime,
    every: Duration,
) -> Vec<(&Question, &mut Asked)> {
    let is_due = |asked: &Asked| asked.at.is_none_or(|at| now.since(at) >= every);
    let mut due: Vec<_> = asked.iter_mut().filter(|(_, asked)| !asked.under_way && is_due(asked)).collect();
    due.sort_by_key(|(_, asked)| (asked.purpose.limit.is_none(), asked.at));
    due
}

fn client() -> HttpClient {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(TIMEOUT));
    Client::builder(TokioExecutor::new()).build(connector)
}

/// Asks once, and yields the one number as it is written.
async fn ask(client: &HttpClient, url: &str, query: &str) -> Result<String, QueryError> {
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
        let number = answer::single(&body.to_bytes());
        // A query that is wrong comes with status 400 and says why.
        match number {
            Err(NoAnswer::Garbled(_)) | Ok(_) if !status.is_success() => {
                let reason = status.canonical_reason().unwrap_or("not an answer").to_owned();
                Err(QueryError::Status { status: status.as_u16(), reason })
            }
            number => Ok(number?),
        }
    };
    timeout(TIMEOUT, answer).await.unwrap_or(Err(QueryError::Slow))
}

#[cfg(test)]
mod tests;
