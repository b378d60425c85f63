//! Rate and latency of a quota server and of Redis, which take turns on one core while the load has
//! the other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::Server;
use super::commands::{Ask, Commands};
use super::load::{Replies, Shape, send, send_all};
use super::redis::{Persistence, Redis};
use crate::measure::median;
use crate::measure::report::Report;
use crate::sidecar::cores::{LOAD, SERVER};

/// Number of rounds (the median counts) and time of each server in a round.
const ROUNDS: usize = 5;
const DURING: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_millis(300);
const CONNECTIONS: usize = 50;
const PIPELINE: usize = 32;
const PREPARED: usize = 200_000;
/// Keys of the compared loads: as many as are busy at a time.
const KEYS: u64 = 10_000;
/// So many keys that hardly any is used twice between two commits, so each debit is a row on disk.
const MANY_KEYS: u64 = 1_000_000;

struct Target {
    name: &'static str,
    address: SocketAddr,
    ask: Ask,
}

pub(super) fn measure(report: &mut Report) {
    let server = Server::start(&["--durability", "interval:100ms"], Some(SERVER));
    let [nothing, everysec] = [Persistence::Nothing, Persistence::Everysec]
        .map(|persistence| Redis::start(persistence, Some(SERVER)));
    let targets = [
        Target {
            name: "quota server",
            address: server.process.address("listen"),
            ask: Ask::Reduce,
        },
        Target {
            name: "Redis, in memory",
            address: nothing.address,
            ask: nothing.ask.clone(),
        },
        Target {
            name: "Redis, appendfsync everysec",
            address: everysec.address,
            ask: everysec.ask.clone(),
        },
    ];
    for keys in [KEYS, MANY_KEYS] {
        for target in &targets {
            fill(target, keys);
        }
        for pipeline in [1, PIPELINE] {
            let rounds = rounds(&targets, keys, pipeline);
            add_rows(report, &targets, keys, pipeline, &rounds);
        }
    }
}

/// Takes from each key once, so that no round creates buckets.
fn fill(target: &Target, keys: u64) {
    let all = Arc::new(Commands::new(&target.ask, keys, 100, keys as usize));
    let errors = send_all(target.address, &all, CONNECTIONS);
    if errors > 0 {
        println!(
            "       {}: {errors} first takes were refused and repeated",
            target.name
        );
    }
}

fn rounds(targets: &[Target; 3], keys: u64, pipeline: usize) -> Vec<[Replies; 3]> {
    let shape = Shape {
        connections: CONNECTIONS,
        core: Some(LOAD),
        warm_up: WARM_UP,
        during: DURING,
    };
    let least = PREPARED.max(keys as usize);
    let prepared = targets
        .each_ref()
        .map(|target| Arc::new(Commands::new(&target.ask, keys, pipeline, least)));
    let round = |_| std::array::from_fn(|at| send(targets[at].address, &prepared[at], shape));
    (0..ROUNDS).map(round).collect()
}

fn add_rows(
    report: &mut Report,
    targets: &[Target; 3],
    keys: u64,
    pipeline: usize,
    rounds: &[[Replies; 3]],
) {
    let load = format!("{CONNECTIONS} connections, pipeline of {pipeline}, {keys} keys");
    for (at, target) in targets.iter().enumerate() {
        let each = |figure: fn(&Replies) -> f64| {
            median(rounds.iter().map(|round| figure(&round[at])).collect())
        };
        let [rate, middle, p99] = [
            each(|it| it.per_second),
            each(|it| it.median_us),
            each(|it| it.p99_us),
        ];
        let figure = format!(
            "{rate:.0}/s, median {:.2} ms, p99 {:.2} ms",
            middle / 1e3,
            p99 / 1e3
        );
        report.note(&format!("{load}: {}", target.name), figure);
    }
    let ratio = |figure: fn(&Replies) -> f64, other: usize| {
        median(
            rounds
                .iter()
                .map(|round| figure(&round[0]) / figure(&round[other]))
                .collect(),
        )
    };
    let (rate, p99) = (ratio(|it| it.per_second, 1), ratio(|it| it.p99_us, 1));
    if keys == KEYS {
        let (least, bar) = if pipeline == 1 {
            (1.0, ">= 1 x")
        } else {
            (5.0, ">= 5 x")
        };
        report.row(
            &format!("{load}: rate beside Redis in memory"),
            bar,
            format!("{rate:.2} x"),
            rate >= least,
        );
        if pipeline == 1 {
            report.row(
                &format!("{load}: p99 beside Redis in memory"),
                "< 1 x",
                format!("{p99:.2} x"),
                p99 < 1.0,
            );
        }
    } else {
        let durable = ratio(|it| it.per_second, 2);
        let figure = format!("{rate:.2} x, and {durable:.2} x with appendfsync everysec");
        report.note(&format!("{load}: rate beside Redis in memory"), figure);
    }
    let errors: u64 = rounds.iter().flatten().map(|replies| replies.errors).sum();
    report.row(
        &format!("{load}: errors"),
        "0",
        errors.to_string(),
        errors == 0,
    );
}
