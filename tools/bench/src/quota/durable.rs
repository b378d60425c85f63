//! The cost of durability: callers that wait for the disk, next to callers that do not. Servers and
//! load share all cores: a commit competes with the operations.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_testing::process::http_get;

use super::Server;
use super::commands::{Ask, Commands};
use super::load::{Replies, Shape, send};
use super::redis::{Persistence, Redis};
use crate::measure::median;
use crate::measure::report::Report;

const CALLERS: [usize; 2] = [50, 500];
const ROUNDS: usize = 5;
const DURING: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_millis(300);
const KEYS: u64 = 10_000;
const PREPARED: usize = 200_000;
/// Minimum share of the possible rate of the disk, or of the processor.
const LEAST: f64 = 0.7;
/// Number of writes for timing syncs without a server, and their bytes.
const PROBES: usize = 2_000;
const PROBE_BYTES: usize = 4_096;

struct Round {
    always: Replies,
    interval: Replies,
    redis: Replies,
    /// Median time of a sync in the round of `always`, in seconds, as the server measures it.
    sync_s: f64,
    commits: f64,
}

pub(super) fn measure(report: &mut Report) {
    let always = Server::start(&["--durability", "always"], None);
    let interval = Server::start(&["--durability", "interval:100ms"], None);
    let redis = Redis::start(Persistence::Always, None);
    for callers in CALLERS {
        let commands = Arc::new(Commands::new(&Ask::Reduce, KEYS, 1, PREPARED));
        let scripts = Arc::new(Commands::new(&redis.ask, KEYS, 1, PREPARED));
        let shape = Shape {
            connections: callers,
            core: None,
            warm_up: WARM_UP,
            during: DURING,
        };
        let round = |_| {
            let before = Syncs::of(always.process.address("admin"));
            let of_always = send(always.process.address("listen"), &commands, shape);
            let after = Syncs::of(always.process.address("admin"));
            let of_interval = send(interval.process.address("listen"), &commands, shape);
            Round {
                always: of_always,
                redis: send(redis.address, &scripts, shape),
                interval: of_interval,
                sync_s: after.since(&before).median_s(),
                commits: after.count() - before.count(),
            }
        };
        add_rows(report, callers, &(0..ROUNDS).map(round).collect::<Vec<_>>());
    }
    let probe = format!("{:.3} ms", sync_probe().as_secs_f64() * 1e3);
    report.note(
        &format!("median time of fdatasync after {PROBE_BYTES} bytes, without a server"),
        probe,
    );
}

fn add_rows(report: &mut Report, callers: usize, rounds: &[Round]) {
    let each = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
    let (always, interval) = (
        each(|it| it.always.per_second),
        each(|it| it.interval.per_second),
    );
    let (sync_s, p99) = (each(|it| it.sync_s), each(|it| it.always.p99_us) / 1e3);
    let of = |round: &Round| {
        round.always.per_second / (callers as f64 / round.sync_s).min(round.interval.per_second)
    };
    let share = median(rounds.iter().map(of).collect());
    let group = each(|it| it.always.per_second * (DURING + WARM_UP).as_secs_f64() / it.commits);
    let figure = format!(
        "{share:.2} ({always:.0}/s with p99 {p99:.2} ms; a sync takes {:.3} ms and saves {group:.0} debits; {interval:.0}/s with interval:100ms)",
        sync_s * 1e3
    );
    let what = format!(
        "`always`, {callers} callers: rate beside the lesser of callers per sync and the rate of interval:100ms"
    );
    report.row(&what, &format!(">= {LEAST}"), figure, share >= LEAST);
    let (redis, redis_p99) = (
        each(|it| it.redis.per_second),
        each(|it| it.redis.p99_us) / 1e3,
    );
    let figure = format!("{redis:.0}/s, p99 {redis_p99:.2} ms");
    report.note(
        &format!("{callers} callers: Redis, appendfsync always"),
        figure,
    );
    let errors: u64 = rounds
        .iter()
        .map(|round| round.always.errors + round.interval.errors)
        .sum();
    report.row(
        &format!("{callers} callers: errors"),
        "0",
        errors.to_string(),
        errors == 0,
    );
}

/// Histogram of syncs on a metrics page: upper bounds in seconds, and counts up to each.
struct Syncs(Vec<(f64, f64)>);

impl Syncs {
    fn of(admin: SocketAddr) -> Self {
        Self::parse(&http_get(admin, "/metrics").1)
    }

    fn parse(page: &str) -> Self {
        let buckets = page
            .lines()
            .filter_map(|line| line.strip_prefix("plimsoll_quota_sync_duration_seconds_bucket{"));
        let bucket = |line: &str| {
            let (bound, count) = line.split_once("le=\"")?.1.split_once("\"}")?;
            Some((bound.parse().ok()?, count.trim().parse().ok()?))
        };
        Self(buckets.filter_map(bucket).collect())
    }

    fn since(&self, before: &Self) -> Self {
        let pairs = self.0.iter().zip(&before.0);
        Self(pairs.map(|(now, then)| (now.0, now.1 - then.1)).collect())
    }

    fn count(&self) -> f64 {
        self.0.last().map_or(0.0, |last| last.1)
    }

    /// Median, as if the syncs between two bounds were evenly spread.
    fn median_s(&self) -> f64 {
        let half = self.count() / 2.0;
        let mut below = (0.0, 0.0);
        for (bound, count) in &self.0 {
            if *count >= half && *count > below.1 {
                return below.0 + (bound - below.0) * (half - below.1) / (count - below.1);
            }
            below = (*bound, *count);
        }
        f64::NAN
    }
}

/// Median time of a sync of a file in the directory of temporary files, where the servers have
/// their data.
fn sync_probe() -> Duration {
    let mut file = tempfile::tempfile().unwrap();
    let mut sync = |_| {
        file.write_all(&[0x5a; PROBE_BYTES]).unwrap();
        let began = Instant::now();
        File::sync_data(&file).unwrap();
        began.elapsed().as_secs_f64()
    };
    Duration::from_secs_f64(median((0..PROBES).map(&mut sync).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_median_counts_only_new_samples() {
        let page = |counts: [u32; 3]| {
            let line = |(le, count)| {
                format!("plimsoll_quota_sync_duration_seconds_bucket{{le=\"{le}\"}} {count}\n")
            };
            Syncs::parse(
                &["0.001", "0.002", "+Inf"]
                    .into_iter()
                    .zip(counts)
                    .map(line)
                    .collect::<String>(),
            )
        };
        let new = page([110, 130, 130]).since(&page([100, 100, 100]));
        assert_eq!(new.count(), 30.0);
        assert!(
            (new.median_s() - 0.001_25).abs() < 1e-9,
            "{}",
            new.median_s()
        );
        assert!(page([0, 0, 0]).median_s().is_nan());
    }
}
