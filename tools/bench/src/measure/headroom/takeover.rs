//! Takeovers: the leader of three controllers is killed again and again under three times the limit.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_testing::fleet::policy;
use plimsoll_testing::members::{Members, ZONES};

use super::instances::{Instances, ports};
use super::record::{Decision, Record};
use super::traffic::{Flow, arrivals};
use crate::measure::report::Report;

const LIMIT: u32 = 1_000;
const OFFERED: f64 = 3_000.0;
const CONTROLLERS: usize = 3;
const INSTANCES: usize = 6;
const KILLS: usize = 30;
/// Seconds before the first kill, and between two: a successor has led for some seconds then.
const SETTLE_S: u64 = 20;
const EVERY_S: u64 = 15;
const LASTS_S: u64 = SETTLE_S + KILLS as u64 * EVERY_S;
/// The seconds of a window for the limit.
const WINDOW_S: u64 = 10;
const POLL: Duration = Duration::from_millis(50);

pub(in crate::measure) fn measure(report: &mut Report) {
    let policy = policy(LIMIT, "enforce", false);
    let Some(mut members) = Members::start("takeover", CONTROLLERS, &policy) else {
        report.skip("takeover", "none", "etcd is not installed");
        return;
    };
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
    let load = arrivals(&[(Duration::from_secs(LASTS_S), flows.into())], INSTANCES);
    let is_over = AtomicBool::new(false);
    let took = Mutex::new(Vec::new());
    let record = thread::scope(|scope| {
        scope.spawn(|| {
            let started = Instant::now();
            for kill in 0..KILLS as u64 {
                // The moment within a lease differs from kill to kill.
                let due = Duration::from_secs(SETTLE_S + kill * EVERY_S)
                    + Duration::from_millis(kill * 370 % 1_000);
                thread::sleep(due.saturating_sub(started.elapsed()));
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                took.lock().unwrap().push(take_over(&mut members));
            }
        });
        let record = instances.serve(&load);
        is_over.store(true, Ordering::Relaxed);
        record
    });
    rows(report, took.into_inner().unwrap(), &record);
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

fn rows(report: &mut Report, mut took: Vec<Duration>, record: &Record) {
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
    let passed =
        |decisions: &[Decision]| decisions.iter().filter(|it| it.refused.is_none()).count();
    let windows = SETTLE_S..LASTS_S - WINDOW_S;
    let most = windows
        .map(|from| passed(record.between(from, from + WINDOW_S)))
        .max();
    let most = most.unwrap_or_default() as f64 / (f64::from(LIMIT) * WINDOW_S as f64);
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
    let least = (SETTLE_S..LASTS_S).map(refused).min().unwrap_or_default() as f64;
    let due = OFFERED - f64::from(LIMIT);
    report.row(
        "refused in any second meanwhile",
        ">= half of what is due",
        format!("{:.2} of it", least / due),
        least >= due / 2.0,
    );
    let latest = record
        .between(SETTLE_S, LASTS_S)
        .iter()
        .map(|made| made.late)
        .max();
    let latest = latest.unwrap_or_default().as_millis();
    report.note("longest delay of a request", format!("{latest} ms"));
}
