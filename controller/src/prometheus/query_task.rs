//! The task that sends the queries of the policy: for limits, where the last good answer stays
//! active, and for the query gates of rollouts, where a failed query counts as unknown.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::quantity::MonoTime;
use plimsoll_policy::{LimitSource, Policy, Prometheus};
use tokio::task::JoinSet;
use tokio::time::interval;

use crate::admin::Commands;
use crate::brain::LimitAnswer;
use crate::prometheus::{QueryError, answer, client, query};
use crate::rollout::query_gates::{GateAnswer, gate_queries};
use crate::tasks::counters::Counters;

/// Intervals for which an answer counts at a gate.
const ANSWER_INTERVALS: u32 = 3;
/// The shortest interval between two sends of one query.
const EVERY_MIN: Duration = Duration::from_millis(100);
/// The interval between two checks for due queries: a new query is sent within it.
const PERIOD: Duration = Duration::from_millis(500);
/// Queries in flight at once.
const IN_FLIGHT_MAX: usize = 16;
/// One failure in so many in a row is logged.
const LOGGED_EVERY: u64 = 120;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Query {
    pub(super) url: String,
    pub(super) query: String,
}

/// What a query is sent for: nothing if the policy has dropped it while it was in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct Purpose {
    /// A limit. Buckets with other bounds may share an answer.
    pub(super) limit: Option<Prometheus>,
    pub(super) gate: bool,
}

#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) purpose: Purpose,
    pub(super) sent_at: Option<MonoTime>,
    /// Failures in a row.
    pub(super) limit_failures: u64,
    pub(super) gate_failures: u64,
    pub(super) in_flight: bool,
}

pub(crate) struct QueryTask {
    pub(crate) commands: Commands,
    pub(crate) counters: Counters,
    pub(crate) every: Duration,
}

// === impl QueryTask ===

impl QueryTask {
    /// Sends every query of the policy once per interval, forever.
    pub(crate) async fn run(self) {
        let client = match client() {
            Ok(client) => client,
            Err(error) => {
                tracing::error!(%error, "no HTTP client: limits and gates by Prometheus stay unknown");
                return;
            }
        };
        let every = self.every.max(EVERY_MIN);
        let mut queries: BTreeMap<Query, Progress> = BTreeMap::new();
        let mut in_flight = JoinSet::new();
        let mut periods = interval(PERIOD.min(every));
        loop {
            tokio::select! {
                Some(done) = in_flight.join_next() => {
                    let Ok((query, answer)): Result<(Query, Result<String, QueryError>), _> = done else { continue };
                    let Some(progress) = queries.get_mut(&query) else { continue };
                    progress.in_flight = false;
                    self.apply(&query, progress, answer);
                    continue;
                }
                _ = periods.tick() => {}
            }
            let brain = &self.commands.brain;
            let policy = brain.with(|brain, _| brain.policy().clone());
            let now = brain.now();
            update(&mut queries, &policy);
            for (asked, progress) in due(&mut queries, now, every) {
                if in_flight.len() >= IN_FLIGHT_MAX {
                    break;
                }
                (progress.sent_at, progress.in_flight) = (Some(now), true);
                let (client, asked) = (client.clone(), asked.clone());
                in_flight.spawn(async move {
                    let answer = query(&client, &asked.url, &asked.query).await;
                    (asked, answer)
                });
            }
        }
    }

    fn apply(&self, query: &Query, progress: &mut Progress, answer: Result<String, QueryError>) {
        if progress.purpose.gate {
            self.apply_to_gate(query, progress, &answer);
        }
        if let Some(source) = progress.purpose.limit.clone() {
            self.apply_to_limit(&source, progress, answer);
        }
    }

    fn apply_to_limit(
        &self,
        source: &Prometheus,
        progress: &mut Progress,
        answer: Result<String, QueryError>,
    ) {
        let Prometheus { url, query, .. } = source;
        let answer = answer.and_then(|text| Ok(answer::rate(&text)?));
        self.counters
            .with(|counts| counts.limit_queries.count(answer.is_ok()));
        match answer {
            Ok(rate) => {
                if progress.limit_failures > 0 {
                    tracing::info!(
                        url,
                        query,
                        limit_rps = rate.per_second(),
                        "limit query succeeds again"
                    );
                }
                progress.limit_failures = 0;
                let Commands { brain, events, .. } = &self.commands;
                let changes =
                    brain.with(|brain, at| brain.on_answer(source, LimitAnswer { rate, at }));
                events.add_limits(&changes, "its query answers");
                brain.notify();
            }
            Err(error) => {
                if progress.limit_failures.is_multiple_of(LOGGED_EVERY) {
                    tracing::error!(url, query, %error, "limit query failed: the last good answer stays in force, if there is one");
                }
                progress.limit_failures += 1;
            }
        }
    }

    fn apply_to_gate(
        &self,
        query: &Query,
        progress: &mut Progress,
        answer: &Result<String, QueryError>,
    ) {
        let Query { url, query } = query;
        let value = match answer {
            Ok(text) => answer::number(text).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let known = value.as_ref().is_ok_and(|value| value.is_finite());
        self.counters
            .with(|counts| counts.gate_queries.count(known));
        if known && progress.gate_failures > 0 {
            tracing::info!(url, query, "gate query succeeds again");
            progress.gate_failures = 0;
        }
        if !known {
            if progress.gate_failures.is_multiple_of(LOGGED_EVERY) {
                let answer = value
                    .as_ref()
                    .map_or_else(Clone::clone, ToString::to_string);
                tracing::warn!(
                    url,
                    query,
                    answer,
                    "gate query failed: the gate is inconclusive until it succeeds"
                );
            }
            progress.gate_failures += 1;
        }
        let valid_for = self.every * ANSWER_INTERVALS;
        self.commands.brain.with(|brain, at| {
            let answer = GateAnswer {
                at,
                valid_for,
                value,
            };
            brain
                .rollouts
                .answers
                .insert(&brain.policies.in_force, url, query, answer);
        });
    }
}

pub(crate) fn every(text: &str) -> Result<Duration, String> {
    let every = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if every < EVERY_MIN {
        return Err(format!(
            "the shortest interval is {} ms",
            EVERY_MIN.as_millis()
        ));
    }
    Ok(every)
}

/// Brings the queries in line with the policy. A query in flight stays until its answer arrives.
fn update(queries: &mut BTreeMap<Query, Progress>, policy: &Policy) {
    let mut wanted = queries_of(policy);
    queries.retain(|query, progress| progress.in_flight || wanted.contains_key(query));
    for (query, progress) in &mut *queries {
        progress.purpose = wanted.remove(query).unwrap_or_default();
    }
    queries.extend(wanted.into_iter().map(|(query, purpose)| {
        (
            query,
            Progress {
                purpose,
                ..Progress::default()
            },
        )
    }));
}

pub(super) fn queries_of(policy: &Policy) -> BTreeMap<Query, Purpose> {
    let mut queries: BTreeMap<Query, Purpose> = BTreeMap::new();
    let of = |url: &str, query: &str| Query {
        url: url.to_owned(),
        query: query.to_owned(),
    };
    for (_, bucket) in policy.entries() {
        if let LimitSource::Prometheus(source) = &bucket.source {
            queries
                .entry(of(&source.url, &source.query))
                .or_default()
                .limit = Some(source.clone());
        }
    }
    for gate in gate_queries(policy) {
        queries.entry(of(&gate.url, &gate.query)).or_default().gate = true;
    }
    queries
}

/// Returns the due queries: limits first, then the longest waiting, so that slow servers delay no
/// query forever.
pub(super) fn due(
    queries: &mut BTreeMap<Query, Progress>,
    now: MonoTime,
    every: Duration,
) -> Vec<(&Query, &mut Progress)> {
    let is_due = |progress: &Progress| progress.sent_at.is_none_or(|at| now.since(at) >= every);
    let mut due: Vec<_> = queries
        .iter_mut()
        .filter(|(_, progress)| !progress.in_flight && is_due(progress))
        .collect();
    due.sort_by_key(|(_, progress)| (progress.purpose.limit.is_none(), progress.sent_at));
    due
}
