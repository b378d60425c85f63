//! Takeovers: the leader of three controllers is killed again and again under three times the limit.

use std::thread;
use std::time::{Duration, Instant};

use plimsoll_testing::fleet::policy;
use plimsoll_testing::members::{Members, ZONES};

use super::instances::{Instances, ports};
use super::record::{Decision, Record};
use super::returns;
use super::traffic::{Flow, arrivals};
use crate::measure::report::Report;

pub(super) const LIMIT: u32 = 1_000;
const OFFERED: f64 = 3_000.0;
pub(super) const CONTROLLERS: usize = 3;
const INSTANCES: usize = 6;
/// Seconds before the first kill, and between two: a successor has led for some seconds then.
pub(super) const SETTLE_S: u64 = 20;
const EVERY_S: u64 = 15;
/// The seconds of a window for the limit.
const WINDOW_S: u64 = 10;
const POLL: Duration = Duration::from_millis(50);

pub(in crate::measure) fn measure(report: &mut Report) {
    returns::measure(report);
    let policy = policy(LIMIT, "enforce", false);
    let Some(mut members) = Members::start("takeover", CONTROLLERS, &policy) else {
        report.skip("takeover", "none", "etcd is not installed");
        return;
    };
    let kills = report.args.takeover_kills;
    let lasts_s = SETTLE_S + kills * EVERY_S;
    let mut took = Vec::new();
    let record = under_load(&mut members, lasts_s, |members, started| {
        for kill in 0..kills {
            // The moment within a lease differs from kill to kill.
            let due = Duration::from_secs(SETTLE_S + kill * EVERY_S)
                + Duration::from_millis(kill * 370 % 1_000);
            thread::sleep(due.saturating_sub(started.elapsed()));
            if started.elapsed() >= Duration::from_secs(lasts_s) {
                return;
            }
            took.push(take_over(members));
        }
    });
    rows(report, took, &record, lasts_s);
}

/// Offers three times the limit for so many seconds, while `act` does something to the fleet from the moment on that it
/// is given.
pub(super) fn under_load(
    members: &mut Members,
    lasts_s: u64,
    act: impl FnOnce(&mut Members, Instant) + Send,
) -> Record {
    let zones: Vec<_> = ZONES
        .into_iter()
        .zip(members.aggregators.iter().map(ports))
        .collect();
    let instances = Instances::at(&zones, INSTANCES, Box::new(()));
    let flows = ["acme", "corner-shop"].map(|tenant| Flow {
        tenant,
        rps: OFFERED / 2.0,
        group: 1,
    });
    let load = arrivals(&[(Duration::from_secs(lasts_s), flows.into())], INSTANCES);
    thread::scope(|scope| {
        let started = Instant::now();
        scope.spawn(move || act(members, started));
        instances.serve(&load)
    })
}

fn passed(decisions: &[Decision]) -> usize {
    decisions.iter().filter(|it| it.refused.is_none()).count()
}

/// Returns the most that passed in any ten seconds between two, as a multiple of the limit.
pub(super) fn most_passed(record: &Record, from_s: u64, until_s: u64) -> f64 {
    let windows = from_s..until_s - WINDOW_S;
    let most = windows
        .map(|from| passed(record.between(from, from + WINDOW_S)))
        .max();
    most.unwrap_or_default() as f64 / (f64::from(LIMIT) * WINDOW_S as f64)
}

/// Kills the leader, and returns the time until every aggregator has values of its successor.
fn take_over(members: &mut Members) -> Duration {
    let leader = members.until_led();
    let before = members.epochs().into_iter().max().unwrap_or_default();
    members.controllers[leader].kill_9();
    let killed = Instant::now();
    let others: Vec<usize> = (0..CONTROLLERS)
        .filter(|number| *number != leader)
        .collect();
    loop {
        let sends = members
            .leader(&others)
            .and_then(|successor| members.status(successor))
            .is_some_and(|status| status["leading"] == true);
        if sends && members.epochs().iter().all(|epoch| *epoch > before) {
            break;
        }
        thread::sleep(POLL);
    }
    let took = killed.elapsed();
    members.restart(leader);
    took
}

fn rows(report: &mut Report, mut took: Vec<Duration>, record: &Record, lasts_s: u64) {
    took.sort_unstable();
    let seconds = |at: usize| took[at.min(took.len() - 1)].as_secs_f64();
    let (median, longest) = (seconds(took.len() / 2), seconds(took.len() - 1));
    let what = format!(
        "{} kills of the leader: all zones have values of a successor",
        took.len()
    );
    report.row(
        &what,
        "p50 <= 8 s, none > 12 s",
        format!("p50 {median:.1} s, longest {longest:.1} s"),
        median <= 8.0 && longest <= 12.0,
    );
    let most = most_passed(record, SETTLE_S, lasts_s);
    report.row(
        "passed in any 10 s meanwhile",
        "<= 1.03 of the limit",
        format!("{most:.3}"),
        most <= 1.03,
    );
    let refused = |from| {
        let decisions = record.between(from, from + 1);
        decisions.len() - passed(decisions)
    };
    let least = (SETTLE_S..lasts_s).map(refused).min().unwrap_or_default() as f64;
    let due = OFFERED - f64::from(LIMIT);
    report.row(
        "refused in any second meanwhile",
        ">= half of what is due",
        format!("{:.2} of it", least / due),
        least >= due / 2.0,
    );
    let latest = record
        .between(SETTLE_S, lasts_s)
        .iter()
        .map(|made| made.late)
        .max();
    let latest = latest.unwrap_or_default().as_millis();
    report.note("longest delay of a request", format!("{latest} ms"));
}
