//! The answers to query gates: numbers from Prometheus that must stay within a bound. Beyond it the gate of the
//! entry fails: it is not promoted, and its canary ends. A number that is not known only holds the promotion back.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::quantity::MonoTime;
use plimsoll_core::rollout::Bound;
use plimsoll_core::rollout::query_gate::{Answer, QueryGateState};
use plimsoll_policy::{Policy, QueryGate, RolloutPolicy};

use crate::state::QueryEvidence;

/// Maximum number of characters kept of an error, which may quote a server.
const ERROR_CHARS_MAX: usize = 200;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GateAnswer {
    /// The time when the answer arrived, or the query failed.
    pub(crate) at: MonoTime,
    /// Time for which a number counts at a gate.
    pub(crate) valid_for: Duration,
    /// The number, which need not be finite, or the reason why there is none.
    pub(crate) value: Result<f64, String>,
}

/// The latest answer to each query of the policy's query gates, by the URL of the server and the query.
#[derive(Clone, Debug, Default)]
pub(crate) struct GateAnswers {
    answers: BTreeMap<(String, String), GateAnswer>,
}

// === impl GateAnswers ===

impl GateAnswers {
    /// Stores an answer if the policy still has its query. An error replaces an earlier number
    /// immediately. O(A Q) for A answers and the policy's Q queries.
    pub(crate) fn insert(&mut self, policy: &Policy, url: &str, query: &str, answer: GateAnswer) {
        self.answers
            .insert((url.to_owned(), query.to_owned()), answer);
        self.retain_asked(policy);
    }

    /// Forgets answers to queries that the policy does not have.
    pub(crate) fn retain_asked(&mut self, policy: &Policy) {
        let is_asked = |url: &str, query: &str| {
            gate_queries(policy).any(|gate| gate.url == url && gate.query == query)
        };
        self.answers.retain(|(url, query), _| is_asked(url, query));
    }

    pub(super) fn of(&self, now: MonoTime, rollout: &RolloutPolicy) -> Vec<QueryGateState> {
        let answered = |gate: &QueryGate| {
            let latest = self.answers.get(&(gate.url.clone(), gate.query.clone()));
            let answer = latest.map_or(
                Answer::Awaited,
                |GateAnswer {
                     at,
                     valid_for,
                     value,
                 }| match value {
                    Err(why) => Answer::Missing(why.chars().take(ERROR_CHARS_MAX).collect()),
                    Ok(value) => Answer::Number {
                        value: *value,
                        age: now.since(*at),
                        good_for: *valid_for,
                    },
                },
            );
            QueryGateState {
                name: gate.name.clone(),
                bound: gate.bound,
                answer,
            }
        };
        rollout.queries.iter().map(answered).collect()
    }
}

/// The query gates of all entries. A query that several entries share is listed once for each.
pub(crate) fn gate_queries(policy: &Policy) -> impl Iterator<Item = &QueryGate> {
    policy
        .entries()
        .flat_map(|(_, entry)| entry.rollout.queries.iter())
}

pub(super) fn evidence(gate: &QueryGateState) -> QueryEvidence {
    let (max, min) = match gate.bound {
        Bound::AtMost(most) => (Some(most), None),
        Bound::AtLeast(least) => (None, Some(least)),
    };
    let known = gate.known();
    let age_ms = match gate.answer {
        Answer::Number { age, .. } => Some(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        Answer::Awaited | Answer::Missing(_) => None,
    };
    QueryEvidence {
        name: gate.name.to_string(),
        value: known.as_ref().ok().copied(),
        max,
        min,
        age_ms,
        unknown: known.err().map(|flaw| flaw.to_string()),
    }
}
