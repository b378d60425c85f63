//! Frozen tiers: a process stops in the middle of its work, as on a paused virtual machine, and
//! wakes after seconds or minutes. The limit holds meanwhile and again soon after, and a controller
//! does not take its own pause for a silence of others.

use std::thread::sleep;
use std::time::{Duration, Instant};

use plimsoll_testing::fleet::{Fleet, Sample, policy, sample};
use serde_json::Value;

use crate::measure::report::Report;

/// Limit, and offered load as a multiple of it.
const LIMIT: u32 = 1_000;
const OFFERED: u32 = 3;
/// Minimum offered load of a meaningful run, as a multiple of the limit: a busy machine offers
/// less.
const OFFERED_MIN: f64 = 2.0;
const WINDOW: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(100);
const AFTER: Duration = Duration::from_secs(30);
/// Error of the admitted requests that counts as settled, and the time for settling.
const ERROR: f64 = 0.05;
const SETTLED_WITHIN: Duration = Duration::from_secs(10);
const MOST_ADMITTED: f64 = 1.1;
/// Silence of an aggregator until the controller gives its share to others, while its clients use
/// it.
const RELEASED_AFTER: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tier {
    Controller,
    Aggregator,
    Service,
}

pub(crate) fn measure(report: &mut Report) {
    let mut fleet = Fleet::start(&policy(LIMIT, "enforce", false));
    let rps = (OFFERED * LIMIT).to_string();
    // Callers of a frozen service give up soon, or they would need all descriptors.
    fleet.start_load_evenly(&[
        "--rps",
        &rps,
        "--tenant",
        "acme,corner-shop",
        "--timeout",
        "1s",
    ]);
    fleet.until_rates("the limit to hold", WINDOW, |rates| {
        (rates.admitted / f64::from(LIMIT) - 1.0).abs() < ERROR
    });
    for tier in [Tier::Controller, Tier::Aggregator, Tier::Service] {
        for length in report.args.frozen_for.clone() {
            freeze(&fleet, tier, length, report);
        }
    }
}

fn freeze(fleet: &Fleet, tier: Tier, length: Duration, report: &mut Report) {
    let process = match tier {
        Tier::Controller => &fleet.controller,
        Tier::Aggregator => &fleet.zones[0].aggregator,
        Tier::Service => &fleet.zones[0].services[0],
    };
    let mut samples = watch(WINDOW, || fleet.sample());
    // A frozen service answers no question, and decides nothing.
    let before = if tier == Tier::Service {
        sample([process]).admit
    } else {
        0.0
    };
    process.signal("STOP");
    samples.extend(watch(length, || {
        let others = sample(
            fleet
                .services()
                .filter(|service| service.id() != process.id()),
        );
        Sample {
            admit: others.admit + before,
            ..others
        }
    }));
    process.signal("CONT");
    let woke = Instant::now();
    let mut lost = 0;
    let awake = watch(AFTER, || {
        lost = lost.max(fleet.status().as_ref().map_or(0, lost_aggregators));
        fleet.sample()
    });
    let offered = awake[0].rates_until(&awake[awake.len() - 1]).offered;
    samples.extend(awake);

    let windows = windows(&samples);
    let (during, after): (Vec<_>, Vec<_>) = windows.iter().partition(|(begin, _)| *begin < woke);
    let during: Vec<_> = during
        .into_iter()
        .filter(|(begin, _)| *begin + WINDOW <= woke)
        .collect();
    let (of_during, of_after) = (range(&during), range(&after));
    let name = format!("{tier:?} frozen for {}", humantime::format_duration(length)).to_lowercase();
    let title = format!("{name}: admitted in 10 s, meanwhile and after it");
    let figure = format!(
        "{:.2} to {:.2}, {:.2} to {:.2} of the limit",
        of_during.0, of_during.1, of_after.0, of_after.1
    );
    if tier == Tier::Aggregator && length > RELEASED_AFTER {
        report.note(&title, figure);
    } else {
        let is_met = of_during.1.max(of_after.1) <= MOST_ADMITTED;
        report.row(
            &title,
            &format!("<= {MOST_ADMITTED} of the limit"),
            figure,
            is_met,
        );
    }
    let title =
        format!("{name}: from the wake until admitted over 10 s stays within 5 % of the limit");
    let settled = settled(&after).map(|settled| settled - woke);
    let figure = settled.map_or("never".to_owned(), |settled| {
        format!("{:.1} s", settled.as_secs_f64())
    });
    if offered < OFFERED_MIN * f64::from(LIMIT) {
        report.skip(
            &title,
            "<= 10 s",
            &format!("this machine was too busy: {offered:.0} requests/s offered"),
        );
    } else {
        report.row(
            &title,
            "<= 10 s",
            figure,
            settled.is_some_and(|settled| settled <= SETTLED_WITHIN),
        );
    }
    if tier == Tier::Controller {
        let title = format!("{name}: aggregators that it then finds stale or expired");
        report.row(&title, "0", lost.to_string(), lost == 0);
    }
}

fn watch(length: Duration, mut take: impl FnMut() -> Sample) -> Vec<Sample> {
    let begin = Instant::now();
    let mut samples = vec![take()];
    while begin.elapsed() < length {
        sleep(POLL);
        samples.push(take());
    }
    samples
}

fn lost_aggregators(status: &Value) -> usize {
    let aggregators = status["aggregators"].as_array().into_iter().flatten();
    aggregators
        .filter(|aggregator| aggregator["stale"] == true || aggregator["expired"] == true)
        .count()
}

fn windows(samples: &[Sample]) -> Vec<(Instant, f64)> {
    let window = |(at, begin): (usize, &Sample)| {
        let end = samples[at..]
            .iter()
            .find(|end| end.at - begin.at >= WINDOW)?;
        Some((begin.at, begin.rates_until(end).admitted / f64::from(LIMIT)))
    };
    samples.iter().enumerate().filter_map(window).collect()
}

fn range(windows: &[(Instant, f64)]) -> (f64, f64) {
    windows
        .iter()
        .fold((f64::INFINITY, 0.0), |(least, most), (_, admitted)| {
            (least.min(*admitted), most.max(*admitted))
        })
}

fn settled(windows: &[(Instant, f64)]) -> Option<Instant> {
    let last_off = windows
        .iter()
        .rposition(|(_, admitted)| (admitted - 1.0).abs() > ERROR);
    windows
        .get(last_off.map_or(0, |at| at + 1))
        .map(|(begin, _)| *begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_window_off_the_limit_delays_settling() {
        let start = Instant::now();
        let mut admit = 0.0;
        // Twice the limit for 15 s, and then the limit.
        let samples: Vec<Sample> = (0..40)
            .map(|second| {
                let at = start + Duration::from_secs(second);
                let taken = Sample {
                    at,
                    admit,
                    drop: 0.0,
                    would_drop: 0.0,
                };
                admit += f64::from(LIMIT) * if second < 15 { 2.0 } else { 1.0 };
                taken
            })
            .collect();
        let all = windows(&samples);
        assert_eq!(
            all[..2],
            [(start, 2.0), (start + Duration::from_secs(1), 2.0)]
        );
        assert_eq!(
            all.len(),
            30,
            "windows that end after the last sample are left out"
        );
        assert_eq!(settled(&all), Some(start + Duration::from_secs(15)));
        assert_eq!(settled(&all[..15]), None);
    }
}
