//! What was answered to the queries of extra gates, and what of it counts now.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plimsoll_core::rollout::Bound;
use plimsoll_policy::{Policy, QueryGate, RolloutPolicy};
use plimsoll_core::rollout::query_gate::{Answer, Extra};
use plimsoll_core::quantity::MonoTime;

use crate::state::QueryExhibit;

/// The longest reason that is kept, in characters: it may quote a server.
const REASON_CHARS_MAX: usize = 200;

/// What became of one question.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// When the answer came, or was given up.
    pub at: MonoTime,
    /// How long it counts.
    pub good_for: Duration,
    /// The number, or why there is none. It need not be finite.
    pub said: Result<f64, String>,
}

/// The latest answer to each query that the policy has for a gate.
#[derive(Clone, Debug, Default)]
pub(super) struct Extras {
    /// By the server's URL, and by the query.
    found: BTreeMap<String, BTreeMap<String, Finding>>,
}

impl Extras {
    /// Takes an answer, if the policy still asks for it. Linear in what it asks.
    pub(super) fn enter(&mut self, policy: &Policy, url: &str, query: &str, finding: Finding) {
        if questions(policy).any(|asked| asked.url == url && asked.query == query) {
            self.found.entry(url.to_owned()).or_default().insert(query.to_owned(), finding);
        }
    }

    /// What is not asked any more has no answer.
    pub(super) fn forget(&mut self, policy: &Policy) {
        let asked: BTreeSet<(&str, &str)> =
            questions(policy).map(|asked| (asked.url.as_str(), asked.query.as_str())).collect();
        for (url, found) in &mut self.found {
            found.retain(|query, _| asked.contains(&(url.as_str(), query.as_str())));
        }
        self.found.retain(|_, found| !found.is_empty());
    }

    /// The extra gates of an entry as they are now.
    pub(super) fn of(&self, now: MonoTime, rollout: &RolloutPolicy) -> Vec<Extra> {
        rollout.queries.iter().map(|query| self.extra(now, query)).collect()
    }

    fn extra(&self, now: MonoTime, query: &QueryGate) -> Extra {
        let found = self.found.get(&query.url).and_then(|found| found.get(&query.query));
        let answer = match found {
            None => Answer::Awaited,
            Some(Finding { said: Err(why), .. }) => {
                Answer::Missing { why: why.chars().take(REASON_CHARS_MAX).collect() }
            }
            Some(Finding { said: Ok(value), at, good_for }) => {
                Answer::Number { value: *value, age: now.since(*at), good_for: *good_for }
            }
        };
        Extra { name: query.name.clone(), bound: query.bound, answer }
    }
}

/// Every query that the policy has for a gate; those that several entries have come several times.
pub(crate) fn questions(policy: &Policy) -> impl Iterator<Item = &QueryGate> {
    let exact = policy.exact_buckets().map(|(_, entry)| entry);
    let all = exact.chain(policy.patterns().map(|(_, entry)| entry));
    all.flat_map(|entry| entry.rollout().queries.iter())
}

/// Extra gates as evidence.
pub(super) fn exhibits(extras: &[Extra]) -> Vec<QueryExhibit> {
    extras.iter().map(exhibit).collect()
}

fn exhibit(extra: &Extra) -> QueryExhibit {
    let (max, min) = match extra.bound {
        Bound::AtMost(most) => (Some(most), None),
        Bound::AtLeast(least) => (None, Some(least)),
    };
    let known = extra.known();
    let age_ms = match extra.answer {
        Answer::Number { age, .. } => Some(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        Answer::Awaited | Answer::Missing { .. } => None,
    };
    QueryExhibit {
        name: extra.name.to_string(),
        value: known.as_ref().ok().copied(),
        max,
        min,
        age_ms,
        unknown: known.err().map(|flaw| flaw.to_string()),
    }
}
