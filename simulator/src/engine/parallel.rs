//! Runs of one scenario for many seeds on several threads, with results in the order of seeds.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::engine::run_watched;
use crate::results::Run;
use crate::scenario::Scenario;

/// Runs a scenario for every seed on up to `threads` threads, and returns the runs in the order of the seeds.
/// Each thread calls `watcher(1)` after each virtual second.
pub fn simulate(
    scenario: &Scenario,
    seeds: Range<u64>,
    threads: usize,
    watcher: &(dyn Fn(u64) + Sync),
) -> Vec<Run> {
    let next = AtomicU64::new(seeds.start);
    let done = Mutex::new(Vec::new());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let run = run_watched(scenario, seed, watcher);
            done.lock().unwrap_or_else(PoisonError::into_inner).push(run);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let mut runs = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    runs.sort_by_key(|run| run.seed);
    runs
}
