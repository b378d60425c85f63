//! Partitions: the leader of three controllers is cut off from the store, from the aggregators, or from both, or is
//! stopped, under three times the limit.

use std::collections::HashSet;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use plimsoll_testing::fleet::policy;
use plimsoll_testing::members::Members;
use plimsoll_testing::process::{POLL, Process, http};
use plimsoll_testing::proxy::Link;
use serde_json::Value;

use super::takeover::{CONTROLLERS, LIMIT, SETTLE_S, most_passed, under_load};
use crate::measure::report::Report;

/// Seconds from the end of a cut to the next one.
const AFTER_S: u64 = 15;
const ONE_LEADS_WITHIN: Duration = Duration::from_secs(10);
const WATCH_EVERY: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Store,
    Aggregators,
    Both,
    /// The process stops, as on a paused virtual machine.
    Stopped,
}

/// What is cut, for how many seconds, and the bar for what passes.
const CUTS: [(Cut, u64, f64); 11] = [
    (Cut::Store, 5, 1.05),
    (Cut::Aggregators, 5, 1.05),
    (Cut::Both, 5, 1.05),
    (Cut::Store, 30, 1.05),
    (Cut::Aggregators, 30, 1.05),
    (Cut::Both, 30, 1.05),
    (Cut::Store, 50, 1.05),
    (Cut::Aggregators, 50, 1.05),
    (Cut::Both, 50, 1.05),
    (Cut::Stopped, 60, 1.05),
    (Cut::Both, 120, 1.12),
];

struct Healed {
    /// Seconds of the load when the link was cut.
    from_s: u64,
    /// From the healing until exactly one controller leads.
    took: Duration,
    moved: bool,
}

/// The epoch that an aggregator has, and the address of the controller that it follows.
type Followed = (u64, String);

pub(in crate::measure) fn measure(report: &mut Report) {
    let policy = policy(LIMIT, "enforce", false);
    let Some(mut members) = Members::behind_proxies("cuts", CONTROLLERS, &policy) else {
        report.skip("cuts", "none", "etcd is not installed");
        return;
    };
    let lasts_s = SETTLE_S
        + CUTS
            .iter()
            .map(|(_, for_s, _)| for_s + AFTER_S)
            .sum::<u64>();
    let (mut healed, mut followed) = (Vec::new(), Vec::new());
    let record = under_load(&mut members, lasts_s, |members, started| {
        let ends = started + Duration::from_secs(lasts_s);
        scope(|scope| {
            let aggregators = members.aggregators.iter();
            let watching = aggregators.map(|it| scope.spawn(move || watch(it, ends)));
            let watching: Vec<_> = watching.collect();
            let mut from_s = SETTLE_S;
            for (number, (what, for_s, _)) in CUTS.into_iter().enumerate() {
                let due = started + Duration::from_secs(from_s);
                sleep(due.saturating_duration_since(Instant::now()));
                let link = [Link::Frozen, Link::Refused][number % 2];
                let (took, moved) = cut(members, what, link, Duration::from_secs(for_s));
                healed.push(Healed {
                    from_s,
                    took,
                    moved,
                });
                from_s += for_s + AFTER_S;
            }
            let seen = watching.into_iter().map(|it| it.join().unwrap());
            followed = seen.collect::<Vec<_>>();
        });
    });
    for (number, ((what, for_s, bar), done)) in CUTS.into_iter().zip(healed).enumerate() {
        let most = most_passed(&record, done.from_s, done.from_s + for_s + AFTER_S);
        let took = done.took.as_secs_f64();
        report.row(
            &title(what, number, for_s),
            &format!("<= {bar} of the limit in any 10 s, one leads within 10 s"),
            format!(
                "{most:.3}, {took:.1} s{}",
                if done.moved {
                    ", another one leads"
                } else {
                    ""
                }
            ),
            most <= bar && done.took <= ONE_LEADS_WITHIN,
        );
    }
    let back: usize = followed.iter().map(|seen| returns(seen)).sum();
    let changes = followed.iter().map(|seen| seen.len() - 1).sum::<usize>();
    report.row(
        "aggregators that went back to an earlier epoch, or to a leader before within one",
        "0",
        format!("{back} in {changes} changes"),
        back == 0,
    );
}

fn title(what: Cut, number: usize, for_s: u64) -> String {
    let of = match what {
        Cut::Store => "leader cut off from the store",
        Cut::Aggregators => "leader cut off from the aggregators",
        Cut::Both => "leader cut off from both",
        Cut::Stopped => return format!("leader stopped for {for_s} s"),
    };
    let how = ["frozen", "refused"][number % 2];
    format!("{of} for {for_s} s, {how}")
}

/// Cuts the leader off, heals the cut, and returns the time from then until exactly one controller leads, and whether
/// it is another one.
fn cut(members: &Members, what: Cut, link: Link, length: Duration) -> (Duration, bool) {
    let leader = members.until_led();
    let set = |link| {
        let links = &members.links[leader];
        if matches!(what, Cut::Store | Cut::Both) {
            links.store.iter().for_each(|proxy| proxy.set(link));
        }
        if matches!(what, Cut::Aggregators | Cut::Both) {
            links.aggregators.set(link);
        }
    };
    let process = &members.controllers[leader];
    if what == Cut::Stopped {
        process.signal("STOP");
        sleep(length);
        process.signal("CONT");
    } else {
        set(link);
        sleep(length);
        set(Link::Open);
    }
    let healed = Instant::now();
    loop {
        let leaders = (0..CONTROLLERS).filter_map(|number| members.leader(&[number]));
        let leaders: Vec<usize> = leaders.collect();
        let took = healed.elapsed();
        if leaders.len() == 1 || took > ONE_LEADS_WITHIN {
            return (took, leaders != [leader]);
        }
        sleep(POLL);
    }
}

/// Returns what an aggregator followed, each change once.
fn watch(aggregator: &Process, until: Instant) -> Vec<Followed> {
    let mut seen: Vec<Followed> = Vec::new();
    while Instant::now() < until {
        sleep(WATCH_EVERY);
        let status = http(aggregator.address("admin"), "GET", "/status", &[]);
        let status: Value = serde_json::from_str(&status.unwrap().1).unwrap();
        // Without a stream it applies nothing.
        let Some(parent) = status["parent"].as_str() else {
            continue;
        };
        let now = (status["epoch"].as_u64().unwrap_or(0), parent.to_owned());
        if seen.last() != Some(&now) {
            seen.push(now);
        }
    }
    seen
}

/// Counts the steps back to an earlier epoch, or to a leader that was left within the epoch.
fn returns(seen: &[Followed]) -> usize {
    let mut left = HashSet::new();
    let steps = seen.windows(2).filter(|step| {
        left.insert(&step[0]);
        step[1].0 < step[0].0 || left.contains(&step[1])
    });
    steps.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternation_of_leaders_is_counted() {
        let of = |seen: &[(u64, &str)]| {
            let seen = seen.iter().map(|(epoch, at)| (*epoch, (*at).to_owned()));
            returns(&seen.collect::<Vec<_>>())
        };
        assert_eq!(of(&[(1, "a"), (1, "b"), (2, "b"), (2, "a"), (3, "a")]), 0);
        assert_eq!(of(&[(1, "a"), (1, "b"), (1, "a"), (1, "b")]), 2);
        assert_eq!(of(&[(2, "b"), (1, "a"), (2, "b")]), 2);
    }
}
