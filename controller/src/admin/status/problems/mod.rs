//! What is wrong with a fleet, as sentences with remedies: an operator at night reads these first, and a command or a page
//! only prints them. A pure function of the status.

mod controllers;
mod fleet;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use plimsoll_admin::kill_api::KillStatus;
use plimsoll_core::names::Bucket;
use plimsoll_policy::UnixSeconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BucketStatus, Policies, Refusals, Status};
use crate::tasks::events::Severity;

pub use controllers::security as security_problems;

/// Maximum number of problems of one kind.
const EACH_MAX: usize = 8;
/// Maximum number of names in a sentence.
const NAMED_MAX: usize = 5;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// The process, bucket or file concerned.
    pub subject: String,
    /// One sentence: what is wrong, since when, and what follows.
    pub text: String,
    /// A command or an action.
    pub remedy: String,
}

// === impl Problem ===

impl Problem {
    fn critical(subject: impl Display, text: impl Display, remedy: impl Display) -> Self {
        Self {
            severity: Severity::Critical,
            subject: subject.to_string(),
            text: text.to_string(),
            remedy: remedy.to_string(),
        }
    }

    fn warning(subject: impl Display, text: impl Display, remedy: impl Display) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::critical(subject, text, remedy)
        }
    }
}

/// Returns all problems, the worst first.
pub(super) fn list(status: &Status, policies: &Policies, kills: &KillStatus) -> Vec<Problem> {
    let kinds: [Vec<Problem>; 15] = [
        controllers::leadership(status),
        fleet::aggregators(status),
        fleet::killed(status, kills),
        fleet::claims(status),
        fleet::clients(status),
        fleet::quota_store(status),
        fleet::lowered(status),
        fleet::underadmitting(status),
        fleet::uncounted(status),
        controllers::state(status),
        controllers::policy(policies),
        controllers::members(status),
        controllers::security(&status.security),
        fleet::refused_children(status),
        fleet::unlimited(status),
    ];
    let mut problems: Vec<Problem> = kinds.into_iter().flat_map(at_most).collect();
    problems.sort_by_key(|problem| Reverse(problem.severity));
    problems
}

/// Leaves the worst problems of one kind, and says how many there are more.
fn at_most(mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort_by_key(|problem| Reverse(problem.severity));
    let left_out = problems.split_off(problems.len().min(EACH_MAX));
    if let Some(next) = left_out.first() {
        let more = format!("{} more like {}", left_out.len(), next.subject);
        problems.push(Problem {
            severity: next.severity,
            subject: more.clone(),
            text: more,
            remedy: "`plimsoll status --output json` has each".to_owned(),
        });
    }
    problems
}

/// Returns what a fleet is in one line: buckets, zones, clients, and what is refused.
pub(super) fn summary(status: &Status) -> String {
    let mut modes: BTreeMap<_, usize> = BTreeMap::new();
    for bucket in status.buckets.values() {
        *modes.entry(bucket.mode).or_default() += 1;
    }
    let mut parts = Vec::new();
    for (mode, count) in modes.iter().rev() {
        let buckets = match parts.is_empty() {
            true => counted(*count as u64, "bucket"),
            false => count.to_string(),
        };
        parts.push(format!("{buckets} in {}", mode.as_str()));
    }
    if parts.is_empty() {
        parts.push("no bucket".to_owned());
    }
    let connected = status.aggregators.iter().filter(|it| it.connected);
    let zones: BTreeSet<&str> = connected.map(|it| it.zone.as_str()).collect();
    parts.push(counted(zones.len() as u64, "zone"));
    parts.push(counted(status.clients.into(), "client"));
    format!("{}; {}", parts.join(", "), refusing(status))
}

fn refusing(status: &Status) -> String {
    let by = |share: fn(&BucketStatus) -> f64| {
        let each = status.buckets.iter().map(|(name, it)| (name, share(it)));
        let mut some: Vec<_> = each
            .filter(|(_, share)| *share >= Refusals::SHOWN_MIN)
            .collect();
        some.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        some
    };
    let shown = |some: &[(&Bucket, f64)], would: &str| {
        let (name, share) = some.first()?;
        let percent = share * 100.0;
        Some(match some.len() {
            1 => format!(
                "{name} {would}refuse{} {percent:.1} % in 10 s",
                if would.is_empty() { "s" } else { "" }
            ),
            count => format!("{count} buckets {would}refuse, {name} most, {percent:.1} % in 10 s"),
        })
    };
    let refused = by(|bucket| bucket.refusals_10_s.ratio());
    let would = by(|bucket| bucket.refusals_10_s.would_ratio());
    match (shown(&refused, ""), shown(&would, "would ")) {
        (Some(most), _) => most,
        (None, Some(most)) => format!("nothing refused, {most}"),
        (None, None) => "nothing refused in 10 s".to_owned(),
    }
}

/// Returns the first line that an operator reads.
pub(super) fn verdict(problems: &[Problem], summary: &str) -> String {
    if problems.is_empty() {
        return format!("no problems: {summary}");
    }
    if let [problem] = problems {
        return format!("1 problem: {}", problem.text);
    }
    let mut subjects: Vec<&str> = problems.iter().map(|it| it.subject.as_str()).collect();
    subjects.dedup();
    format!("{} problems: {}", problems.len(), named(&subjects))
}

/// Returns the first names, and how many there are more.
fn named(names: &[impl Display]) -> String {
    let shown: Vec<String> = names
        .iter()
        .take(NAMED_MAX)
        .map(ToString::to_string)
        .collect();
    match names.len().saturating_sub(NAMED_MAX) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

pub(crate) fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Returns a time in its greatest unit.
fn span(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Returns ` since ..`, or nothing if that is unknown.
fn since(unix_s: Option<i64>) -> String {
    unix_s.map_or_else(String::new, |at| {
        format!(" since {}", UnixSeconds::from_secs(at))
    })
}
