//! Ten million buckets: memory and disk of each, and the time of a restart.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_testing::process::until;

use super::commands::{Ask, Commands, MAX};
use super::load::{Shape, send, send_all};
use super::redis::{Persistence, Redis};
use super::{Server, ask};
use crate::measure::report::Report;
use crate::sidecar::cores::{LOAD, SERVER};
use crate::streams::process::resident_bytes;

const BUCKETS: u64 = 10_000_000;
/// Number of buckets before memory is compared: they fill the cache.
const FEW: u64 = 2_000_000;
const REDIS_BUCKETS: u64 = 1_000_000;
/// Smaller than the buckets need.
const CACHE_MIB: u64 = 128;
const CONNECTIONS: usize = 16;
const PIPELINE: usize = 100;
/// Maximum growth of memory from few buckets to many, and maximum time of a restart.
const GROWTH_MAX: f64 = 1.25;
const RESTART_MAX: Duration = Duration::from_secs(5);

pub(super) fn measure(report: &mut Report) {
    let mut server = Server::start(
        &[
            "--durability",
            "interval:100ms",
            "--cache-mib",
            &CACHE_MIB.to_string(),
        ],
        Some(SERVER),
    );
    let few = fill(&server, FEW);
    let resident_few = resident(&server);
    let all = fill(&server, BUCKETS);
    let resident_all = resident(&server);
    report.note(
        "buckets created, pipeline of 100: the first 2 million; all",
        format!("{few:.0}/s; {all:.0}/s"),
    );
    let figure = format!(
        "{:.2} x ({resident_few:.0} MiB, then {resident_all:.0} MiB)",
        resident_all / resident_few
    );
    let what =
        format!("memory with {BUCKETS} buckets beside {FEW}, with a cache of {CACHE_MIB} MiB");
    report.row(
        &what,
        &format!("<= {GROWTH_MAX} x"),
        figure,
        resident_all <= resident_few * GROWTH_MAX,
    );
    report.note(
        "disk of each bucket before a restart",
        format!("{:.0} bytes", disk(&server) / BUCKETS as f64),
    );

    let took = server.restart_after_kill();
    let figure = format!("{:.2} s", took.as_secs_f64());
    let what =
        format!("from the start of a killed server with {BUCKETS} buckets to its first answer");
    report.row(
        &what,
        &format!("<= {:.0} s", RESTART_MAX.as_secs_f64()),
        figure,
        took <= RESTART_MAX,
    );
    report.note(
        "memory after the restart",
        format!("{:.0} MiB", resident(&server)),
    );

    let reads = Arc::new(Commands::new(&Ask::Reduce, BUCKETS, 1, 1_000_000));
    let shape = Shape {
        connections: 50,
        core: Some(LOAD),
        warm_up: Duration::from_secs(1),
        during: Duration::from_secs(5),
    };
    let replies = send(server.process.address("listen"), &reads, shape);
    let figure = format!(
        "{:.0}/s, p99 {:.2} ms, {} errors",
        replies.per_second,
        replies.p99_us / 1e3,
        replies.errors
    );
    report.note(
        "takes of buckets that are not in memory, 50 connections",
        figure,
    );
    report.note(
        "disk of each bucket at the end",
        format!("{:.0} bytes", disk(&server) / BUCKETS as f64),
    );
    redis(report);
}

/// Memory of Redis with the same buckets, all in memory.
fn redis(report: &mut Report) {
    let redis = Redis::start(Persistence::Nothing, Some(SERVER));
    let empty = resident_bytes(redis.process.id()).unwrap();
    let commands = Arc::new(Commands::new(
        &redis.ask,
        REDIS_BUCKETS,
        PIPELINE,
        REDIS_BUCKETS as usize,
    ));
    assert_eq!(send_all(redis.address, &commands, CONNECTIONS), 0);
    let each = (resident_bytes(redis.process.id()).unwrap() - empty) as f64 / REDIS_BUCKETS as f64;
    report.note("memory of each bucket in Redis", format!("{each:.0} bytes"));
}

fn fill(server: &Server, buckets: u64) -> f64 {
    let commands = Arc::new(Commands::new(
        &Ask::Reduce,
        buckets,
        PIPELINE,
        buckets as usize,
    ));
    let began = Instant::now();
    let errors = send_all(server.process.address("listen"), &commands, CONNECTIONS);
    if errors > 0 {
        println!("       {errors} takes were refused and repeated, because the disk was too slow");
    }
    buckets as f64 / began.elapsed().as_secs_f64()
}

fn resident(server: &Server) -> f64 {
    resident_bytes(server.process.id()).unwrap() as f64 / 1024.0 / 1024.0
}

/// Bytes of the data on disk, once they are stable.
fn disk(server: &Server) -> f64 {
    let mut before = None;
    until("the store to be at rest", || {
        std::thread::sleep(Duration::from_secs(2));
        let now = allocated(&server.directory.path().join("data"));
        (before.replace(now) == Some(now)).then_some(now as f64)
    })
}

fn allocated(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;

    let Ok(entries) = fs::read_dir(path) else {
        return 0;
    };
    let each = entries
        .filter_map(Result::ok)
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => allocated(&entry.path()),
            Ok(metadata) => metadata.blocks() * 512,
            Err(_) => 0, // removed meanwhile
        });
    each.sum()
}

impl Server {
    /// Kills the server, starts it again, and returns the time until it answers correctly.
    fn restart_after_kill(&mut self) -> Duration {
        self.process.kill_9();
        let began = Instant::now();
        self.process = Self::process(&self.directory, &self.flags, self.core);
        let left = ask(self.process.address("listen"), &Ask::Reduce, BUCKETS - 1);
        let took = began.elapsed();
        assert!(left < MAX, "a bucket is full after the restart");
        took
    }
}
