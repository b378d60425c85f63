//! Sampling, learning, restarts and capacity.

use std::sync::Arc;
use std::time::Duration;

use super::sampler::UNWRITTEN_MAX;
use super::*;
use plimsoll_core::kill::KillGeneration;
use plimsoll_core::quantity::Rate;
use plimsoll_core::report::Counts;
use plimsoll_policy::learning::MINUTES_PER_DAY;

use crate::brain::tests::policy;

fn learns() -> Arc<Policy> {
    policy(
        "buckets: { \"api/*\": { limit: { learned: { until_history: 800 } } }, fixed: { limit: 5 } }",
    )
}

fn bucket(name: &str) -> Bucket {
    Bucket::new(name).unwrap()
}

fn at(s: u64) -> MonoTime {
    MonoTime::from_elapsed(Duration::from_secs(s))
}

fn tally(offered: u64, would_dropped: u64) -> Tally {
    Tally {
        counts: Counts {
            offered,
            would_dropped,
            ..Counts::ZERO
        },
        late: Counts::ZERO,
    }
}

fn sample(rps: f64, clean: bool) -> Sample {
    Sample {
        offered: Rate::new(rps).unwrap(),
        clean,
    }
}

fn minute_of(number: i64, buckets: &[(&str, f64)]) -> MinuteSamples {
    let samples = buckets
        .iter()
        .map(|(name, rps)| (bucket(name), sample(*rps, true)));
    MinuteSamples {
        minute: Minute(number),
        samples: samples.collect(),
    }
}

/// Learns from the minutes of some days; `api/a` is offered a rate that grows by 10 each day.
/// Returns the summaries that were saved last.
fn days(history: &mut History, from: i64, to: i64, policy: &Policy) -> ClosedDays {
    let mut closed = ClosedDays::new();
    for number in from..to {
        let rps = 100.0 + 10.0 * number.div_euclid(MINUTES_PER_DAY as i64) as f64;
        history.on_written(&minute_of(number, &[("api/a", rps)]), policy);
        closed = history.take_closed().unwrap_or(closed);
    }
    closed
}

const DAY: i64 = MINUTES_PER_DAY as i64;

#[test]
fn sample_is_the_difference_of_the_totals() {
    let policy = learns();
    let mut history = History::default();
    let name = bucket("api/a");
    let off = Kill::default();
    let fleet = |generation| Kill {
        fleet: KillGeneration(generation),
        ..off
    };
    let alone = |generation| Kill {
        bucket: KillGeneration(generation),
        ..fleet(2)
    };
    let mut turn = |s: u64, minute: i64, kill: Kill, total: Tally| {
        history.on_time(at(s), Minute(minute), &policy, || {
            [(&name, total, kill)].into_iter()
        });
        history
            .take_unwritten()
            .pop()
            .map(|minute| (minute.minute, minute.samples.values().copied().next()))
    };
    assert_eq!(turn(0, 10, off, tally(500, 3)), None);
    assert_eq!(turn(30, 10, off, tally(900, 3)), None);
    let [clean, unclean] = [true, false].map(|clean| Some(sample(10.0, clean)));
    let cases = [
        (60, 11, off, tally(6_500, 3), Some(sample(100.0, true))),
        // Something would have been refused, and then there were no requests.
        (120, 12, off, tally(7_100, 40), unclean),
        (180, 13, off, tally(7_100, 40), None),
        // The clock jumped, so that this was no minute; it jumped back, and a minute has passed.
        (190, 50, off, tally(9_900, 40), None),
        (250, 20, off, tally(10_500, 40), clean),
        // Killed since, until then, and not any more; then the bucket alone.
        (310, 21, fleet(1), tally(11_100, 40), unclean),
        (370, 22, fleet(2), tally(11_700, 40), unclean),
        (430, 23, fleet(2), tally(12_300, 40), clean),
        (490, 24, alone(1), tally(12_900, 40), unclean),
        (550, 25, alone(2), tally(13_500, 40), unclean),
        (610, 26, alone(2), tally(14_100, 40), clean),
        // Counts that went back are nothing.
        (670, 27, alone(2), tally(100, 0), None),
    ];
    let mut over = 10;
    for (s, minute, kill, total, expected) in cases {
        let ended = turn(s, minute, kill, total);
        assert_eq!(ended, Some((Minute(over), expected)), "at {s} s");
        over = minute;
    }
}

#[test]
fn buckets_of_a_pattern_learn_separately() {
    let policy = learns();
    let mut history = History::default();
    for number in 0..4 * DAY {
        history.on_written(
            &minute_of(
                number,
                &[("api/a", 100.0), ("api/b", 500.0), ("fixed", 50.0)],
            ),
            &policy,
        );
    }
    let limit = |name| {
        let name = bucket(name);
        history.limit(&name, learned_policy(&policy, &name).unwrap())
    };
    assert_eq!(limit("api/a"), Limit::PerSecond(Rate::new(120.0).unwrap()));
    assert_eq!(limit("api/b"), Limit::PerSecond(Rate::new(600.0).unwrap()));
    assert_eq!(
        limit("api/c"),
        Limit::PerSecond(Rate::new(800.0).unwrap()),
        "without history"
    );
    assert!(learned_policy(&policy, &bucket("fixed")).is_none());
    // The history of a bucket with a fixed limit exists once the policy wants it learned.
    let all = policy_all();
    history.on_policy(&all);
    let fixed = bucket("fixed");
    assert_eq!(
        history.limit(&fixed, learned_policy(&all, &fixed).unwrap()),
        Limit::PerSecond(Rate::new(60.0).unwrap())
    );
    let unknown = bucket("quiet");
    assert_eq!(
        history.limit(&unknown, learned_policy(&all, &unknown).unwrap()),
        Limit::Unknown
    );
}

fn policy_all() -> Arc<Policy> {
    policy("buckets: { \"*\": { limit: { learned: {} } } }")
}

#[test]
fn restart_at_any_minute_changes_nothing() {
    let policy = learns();
    let mut whole = History::default();
    days(&mut whole, 0, 6 * DAY, &policy);
    let name = bucket("api/a");
    let terms = learned_policy(&policy, &name).unwrap();
    for restart in [
        1,
        59,
        DAY - 1,
        DAY,
        DAY + 1,
        3 * DAY,
        4 * DAY + 700,
        6 * DAY - 1,
    ] {
        let mut before = History::default();
        let closed = days(&mut before, 0, restart, &policy);
        // The disk holds earlier days too, which are not learned from twice.
        let minutes = ((restart - 2 * DAY).max(0)..restart).map(|number| {
            minute_of(
                number,
                &[("api/a", 100.0 + 10.0 * number.div_euclid(DAY) as f64)],
            )
        });
        let mut after = History::default();
        after.restore(closed, minutes, &policy);
        assert_eq!(
            after.status(&name, terms),
            before.status(&name, terms),
            "at {restart}"
        );
        days(&mut after, restart, 6 * DAY, &policy);
        assert_eq!(
            after.status(&name, terms),
            whole.status(&name, terms),
            "at {restart}"
        );
    }
}

#[test]
fn lost_summaries_follow_from_the_minutes() {
    let policy = learns();
    let mut history = History::default();
    let minutes = (0..5 * DAY).map(|number| minute_of(number, &[("api/a", 100.0)]));
    history.restore(BTreeMap::new(), minutes, &policy);
    let name = bucket("api/a");
    let status = history.status(&name, learned_policy(&policy, &name).unwrap());
    assert_eq!(
        (status.limit_rps, status.days, status.minutes_today),
        (Some(120.0), 4, 1_440)
    );
    assert_eq!(status.since.as_deref(), Some("1970-01-04T00:00:00Z"));
}

#[test]
fn status_names_what_is_missing() {
    let policy = learns();
    let name = bucket("api/a");
    let terms = learned_policy(&policy, &name).unwrap();
    let mut history = History::default();
    let status = history.status(&name, terms);
    assert!(status.waits_for.unwrap().contains("of which there are 0"));
    days(&mut history, 0, 2 * DAY + 5, &policy);
    let status = history.status(&name, terms);
    assert_eq!(
        (status.limit_rps, status.days, status.minutes_today),
        (None, 2, 5)
    );
    assert!(status.waits_for.unwrap().contains("of which there are 2"));
    history.on_lost();
    assert!(
        history
            .status(&name, terms)
            .waits_for
            .unwrap()
            .contains("written")
    );
    assert_eq!(
        history.counters,
        Counters {
            minutes_lost: 1,
            rejected: 0,
            failing: true
        }
    );
    history.on_written(&minute_of(2 * DAY + 6, &[]), &policy);
    assert!(!history.counters.failing);
}

#[test]
fn surplus_new_buckets_await_forgotten_ones() {
    let policy = learns();
    let mut history = History::default();
    let flood = |history: &mut History, from: usize, to: usize, minute: i64| {
        let names: Vec<Bucket> = (from..to).map(|n| bucket(&format!("api/{n}"))).collect();
        let off = Kill::default();
        let s = (minute * 60) as u64;
        let none = names.iter().map(|name| (name, Tally::ZERO, off));
        history.on_time(at(s), Minute(minute), &policy, || none);
        let some = names.iter().map(|name| (name, tally(600, 0), off));
        history.on_time(at(s + 60), Minute(minute + 1), &policy, || some);
        for minute in history.take_unwritten() {
            history.on_written(&minute, &policy);
        }
    };
    flood(&mut history, 0, BUCKETS_MAX + 10, 0);
    assert_eq!(
        (history.baselines.len(), history.counters.rejected),
        (BUCKETS_MAX, 10)
    );
    // The next day those are idle and have no peaks, so there is room.
    flood(&mut history, 5_000, 5_001, 2 * DAY);
    flood(&mut history, 5_001, 5_010, 2 * DAY + 5);
    assert!(history.baselines.contains_key(&bucket("api/5009")));
    assert_eq!(
        history.counters.rejected, 11,
        "only the first new bucket of the day came before there was room"
    );
    assert!(
        history
            .take_closed()
            .is_some_and(|closed| closed.len() < BUCKETS_MAX)
    );
}

#[test]
fn named_bucket_always_has_a_history() {
    let text =
        "buckets: { 'api/*': { limit: { learned: {} } }, checkout: { limit: { learned: {} } } }\n";
    let policy = policy(text);
    let mut history = History::default();
    let mut names: Vec<Bucket> = (0..BUCKETS_MAX + 50)
        .map(|n| bucket(&format!("api/{n}")))
        .collect();
    for (minute, last) in [(0, "api/0"), (5, "checkout")] {
        names.push(bucket(last));
        for (step, count) in [(0, 0), (1, 600)] {
            let totals = names
                .iter()
                .map(|name| (name, tally(count, 0), Kill::default()));
            let minute = minute + step;
            history.on_time(at(minute as u64 * 60), Minute(minute), &policy, || {
                totals.clone()
            });
        }
        for minute in history.take_unwritten() {
            history.on_written(&minute, &policy);
        }
    }
    assert!(history.baselines.contains_key(&bucket("checkout")));
    assert_eq!(history.baselines.len(), BUCKETS_MAX + 1);
}

#[test]
fn unsaved_minutes_are_bounded() {
    let policy = learns();
    let mut history = History::default();
    for minute in 0..100 {
        let none: [(&Bucket, Tally, Kill); 0] = [];
        history.on_time(at(minute as u64 * 60), Minute(minute), &policy, || {
            none.into_iter()
        });
    }
    assert_eq!(history.counters.minutes_lost, 99 - UNWRITTEN_MAX as u64);
    let left: Vec<i64> = history
        .take_unwritten()
        .iter()
        .map(|minute| minute.minute.0)
        .collect();
    assert_eq!(left, [94, 95, 96, 97, 98]);
}

#[test]
fn imported_week_is_a_limit_at_once() {
    let policy = learns();
    let mut history = History::default();
    let name = bucket("api/a");
    let mut days = BTreeMap::new();
    for day in 10..17 {
        let mut samples = DaySamples::default();
        let rps = if day < 13 { 300.0 } else { 100.0 };
        (0..200).for_each(|at| samples.record(Minute(at), sample(rps, true)));
        days.insert((name.clone(), Day(day)), samples);
    }
    let filed = history.import(&days, Day(20), false, &policy);
    assert!(filed.iter().all(|(.., filed)| *filed == Some(Filed::Added)) && filed.len() == 7);
    let to_save = history.take_closed().unwrap();
    assert_eq!(to_save.len(), 1);
    let terms = learned_policy(&policy, &name).unwrap();
    assert_eq!(
        history.status(&name, terms).limit_rps,
        Some(360.0),
        "the 95th percentile of all seven"
    );
    let filed = history.import(&days, Day(20), false, &policy);
    assert!(filed.iter().all(|(.., filed)| *filed == Some(Filed::Kept)));
    // A restart keeps it.
    let mut after = History::default();
    after.restore(to_save, [], &policy);
    assert_eq!(after.status(&name, terms), history.status(&name, terms));
}
