//! The judgement of `plimsoll doctor` on the answers of a fleet. The controller's own problems are taken as they are; what it
//! cannot know is judged here: clocks, versions, limits of processes, and tiers that it does not reach.

use std::fmt;

use plimsoll_admin::security::SecurityStatus;
use plimsoll_controller::admin::status::{Problem, Status, security_problems};
use plimsoll_controller::events::Severity;
use serde::Serialize;
use serde_json::Value;

use crate::admin_client::{AdminError, HINT};
use crate::cmd::status::other_versions;

/// Difference of two clocks from which times in events and the ends of kills and boosts mislead.
const CLOCK_WARN_S: f64 = 2.0;
/// Difference from which a certificate may be valid at one machine and invalid at another.
const CLOCK_FAIL_S: f64 = 60.0;
/// Fewer open files than this are soon used up by clients.
const DESCRIPTORS_MIN: u64 = 4_096;
/// Seconds without an answer of the controller from which it counts as lost. A zone is on hold from some 2 s.
const UPSTREAM_OLD_S: f64 = 10.0;
const UPDATE_ALL: &str = "update all to one version, controllers first";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Grade {
    Ok,
    Warn,
    Fail,
}

/// The result of one check.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    #[serde(rename = "result")]
    pub(super) grade: Grade,
    subject: String,
    text: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    remedy: String,
}

impl Check {
    pub(super) fn new(grade: Grade, subject: &str, text: impl ToString, remedy: &str) -> Self {
        Self {
            grade,
            subject: subject.to_owned(),
            text: text.to_string(),
            remedy: remedy.to_owned(),
        }
    }

    pub(super) fn ok(subject: &str, text: impl ToString) -> Self {
        Self::new(Grade::Ok, subject, text, "")
    }

    /// The text of an error has its remedy.
    pub(super) fn unanswered(subject: &str, error: &AdminError) -> Self {
        let text = error.to_string();
        let (text, remedy) = text.split_once(HINT).unwrap_or((&text, ""));
        Self::new(Grade::Fail, subject, text, remedy)
    }

    fn of_problem(problem: &Problem) -> Self {
        let grade = match problem.severity {
            Severity::Critical => Grade::Fail,
            _ => Grade::Warn,
        };
        Self::new(grade, &problem.subject, &problem.text, &problem.remedy)
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grade = match self.grade {
            Grade::Ok => "ok  ",
            Grade::Warn => "warn",
            Grade::Fail => "fail",
        };
        write!(f, "{grade}  {}: {}", self.subject, self.text)?;
        match self.remedy.as_str() {
            "" => Ok(()),
            remedy => write!(f, "; remedy: {remedy}"),
        }
    }
}

/// Checks a leader by what it says: its problems, and a line for each subject that has none.
pub(super) fn of_status(name: &str, status: &Status) -> Vec<Check> {
    let role = status.role.map_or("unknown", |role| role.as_str());
    let epoch = status.epoch;
    let leads = match status.lost_lead {
        Some(_) => "does not lead",
        None => "leads",
    };
    let leads = format!("answers, {leads}, epoch {epoch}; your role is {role}");
    let mut checks = vec![Check::ok(name, leads), version(name, Some(&status.version))];
    if let Some(others) = other_versions(status) {
        let subject = "versions of other processes";
        checks.push(Check::new(Grade::Warn, subject, others, UPDATE_ALL));
    }
    checks.extend(status.problems.iter().map(Check::of_problem));
    let is_well = |subjects: &[&str]| {
        let mut problems = status.problems.iter();
        problems.all(|it| !subjects.contains(&it.subject.as_str()))
    };
    let mut aggregators = status.aggregators.iter();
    let connected = aggregators.all(|it| it.connected && !it.stale) && is_well(&["aggregators"]);
    let members = status.members.is_some() && is_well(&["members", "store"]);
    let certificate = status.security.certificate.is_some() && is_well(&["certificate"]);
    for (is_well, subject, text) in [
        (connected, "aggregators", "all are connected"),
        (members, "members", "one can take over"),
        (certificate, "certificate", "valid"),
        (is_well(&["policy"]), "policy", "none is held back"),
        (is_well(&["state", "audit log"]), "state", "saved"),
        (!status.killed, "kill switch", "the fleet is not killed"),
        (status.killed_locally == 0, "kill files", "none"),
        (
            status.unlisted.is_empty() && is_well(&["buckets"]),
            "buckets",
            "all in the policy",
        ),
    ] {
        checks.extend(is_well.then(|| Check::ok(subject, text)));
    }
    checks
}

/// Checks an aggregator or a sidecar by its status and its metrics. One of another version may lack fields.
pub(super) fn of_tier(name: &str, status: &Value, metrics: &str) -> Vec<Check> {
    let mut checks = match status["zone"].as_str() {
        Some(zone) => vec![aggregator(&format!("aggregator {name} of {zone}"), status)],
        None if status["limiter"].is_null() => {
            let remedy = "give those of aggregators and sidecars with --admin";
            let text = "the admin port of another process";
            return vec![Check::new(Grade::Fail, name, text, remedy)];
        }
        None => sidecar(&format!("sidecar {name}"), status, metrics),
    };
    checks.push(version(name, status["version"].as_str()));
    let limit = series(metrics, "plimsoll_descriptors_limit ");
    checks.extend(limit.map(|limit| descriptors(name, limit as u64)));
    let security = serde_json::from_value(status["security"].clone());
    let security: SecurityStatus = security.unwrap_or_default();
    checks.extend(security_problems(&security).iter().map(Check::of_problem));
    checks
}

fn aggregator(name: &str, status: &Value) -> Check {
    match status["upstream_age_s"].as_f64() {
        Some(age) if age < UPSTREAM_OLD_S => Check::ok(name, "answers, and reaches its controller"),
        _ => {
            let text = "its controller does not cover its reports: the zone lives on its holds";
            let remedy = "look at the controller, and at the network between them";
            Check::new(Grade::Fail, name, text, remedy)
        }
    }
}

fn sidecar(name: &str, status: &Value, metrics: &str) -> Vec<Check> {
    let (limiter, warn) = (&status["limiter"], |text: &str, remedy: &str| {
        Check::new(Grade::Warn, name, text, remedy)
    });
    let mut checks = vec![match limiter["connected"].as_u64() {
        Some(1..) => Check::ok(name, "answers, and reaches its aggregators"),
        _ => {
            let text = "no aggregator is connected: it decides by its last directives";
            Check::new(
                Grade::Fail,
                name,
                text,
                "look at the aggregators of its zone",
            )
        }
    }];
    if let Some(cause) = status["rules"]["refused"]
        .as_str()
        .and_then(|it| it.lines().next())
    {
        let text = format!("the rules file is refused, the earlier rules are in use: {cause}");
        checks.push(warn(
            &text,
            "`plimsoll check --sidecar-rules FILE` shows all faults",
        ));
    }
    if limiter["local_kill"] == true {
        checks.push(warn(
            "a kill file stops it from refusing",
            "remove the file of its --kill-file",
        ));
    }
    let problems = limiter["problems"].as_array().into_iter().flatten();
    let problems = problems.filter_map(|it| Some((it["text"].as_str()?, it["problem"].as_str()?)));
    checks.extend(problems.map(|(text, kind)| {
        warn(
            text,
            &format!("docs/guides/running-a-service.md has `{kind}`"),
        )
    }));
    if let Some(count) = series(metrics, "\"no_rule\"} ").filter(|count| *count > 0.0) {
        let text = format!("{count} requests matched no rule since its start, and passed");
        checks.push(warn(&text, "end its rules with one for all others"));
    }
    checks
}

/// Returns the sum of the series of a page of metrics whose names and labels end so.
fn series(metrics: &str, end: &str) -> Option<f64> {
    let lines = metrics.lines().filter(|line| !line.starts_with('#'));
    let values = lines.filter_map(|line| line.split_once(end)?.1.parse::<f64>().ok());
    values.reduce(|sum, value| sum + value)
}

/// Compares the clock of a tier with that of this machine.
pub(super) fn clock(name: &str, ahead_s: f64) -> Check {
    let (subject, by) = (format!("clock of {name}"), ahead_s.abs());
    let way = if ahead_s > 0.0 { "ahead of" } else { "behind" };
    let grade = match by {
        CLOCK_FAIL_S.. => Grade::Fail,
        CLOCK_WARN_S.. => Grade::Warn,
        _ => return Check::ok(&subject, "as on this machine"),
    };
    let text = format!("{by:.0} s {way} this machine");
    Check::new(
        grade,
        &subject,
        text,
        "let NTP set the clocks of both machines",
    )
}

/// Compares a version with that of this command.
fn version(name: &str, version: Option<&str>) -> Check {
    let (subject, own) = (format!("version of {name}"), env!("CARGO_PKG_VERSION"));
    if version == Some(own) {
        return Check::ok(&subject, own);
    }
    let text = format!("{}, of this command {own}", version.unwrap_or("unknown"));
    Check::new(Grade::Warn, &subject, text, UPDATE_ALL)
}

pub(super) fn descriptors(name: &str, limit: u64) -> Check {
    let subject = format!("open files of {name}");
    match limit {
        u64::MAX => Check::ok(&subject, "no limit"),
        DESCRIPTORS_MIN.. => Check::ok(&subject, format!("at most {limit}")),
        _ => {
            let text = format!("at most {limit}, and each connection takes one");
            Check::new(
                Grade::Warn,
                &subject,
                text,
                "raise the hard limit: LimitNOFILE= in its unit, or `ulimit -Hn`",
            )
        }
    }
}
