//! The main loop of a run: in steps of 10 ms, first the events between processes, then the requests of the
//! step.

mod callers;
mod clock;
mod event_queue;
mod fleet;
mod lifecycle;
mod link;
mod streams;
mod world;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use callers::Callers;
use clock::SimTime;
use world::World;

use crate::results::{BIN_S, Run, TraceHash};
use crate::scenario::Scenario;

const STEP_US: u64 = 10_000;
/// Steps before a scenario's time zero, during which the tiers connect; none if the scenario starts
/// the tiers itself.
const SETTLING_STEPS: u64 = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    /// Index into `traffic` of the scenario.
    entry: u32,
    /// Attempts so far, with this one.
    attempt: u32,
    /// Number of the name in place of the tenant's, if the entry has names.
    name: Option<u32>,
}

/// Runs a scenario once. A scenario and a seed determine the run to the last message.
#[must_use]
pub fn run(scenario: &Scenario, seed: u64) -> Run {
    run_watched(scenario, seed, &|_| {})
}

/// Runs a scenario as [`run`] does and calls `watcher(1)` after each virtual second.
#[must_use]
pub fn run_watched(scenario: &Scenario, seed: u64, watcher: &dyn Fn(u64)) -> Run {
    let zero = SimTime(if scenario.start.is_some() {
        0
    } else {
        SETTLING_STEPS * STEP_US
    });
    let mut world = World::new(scenario, seed, zero);
    let mut trace = TraceHash::default();
    for now in (0..zero.0).step_by(STEP_US as usize) {
        world.advance(SimTime(now), &mut trace);
    }
    let steps = (scenario.duration_s / BIN_S).round() as usize;
    let mut callers = Callers::new(scenario, seed, steps);
    let mut underadmitting = Vec::new();
    for step in 0..steps {
        world.advance(zero.plus(step as u64 * STEP_US), &mut trace);
        callers.step(step, &mut world, &mut trace);
        if step % 100 == 99 {
            underadmitting.extend(
                world
                    .underadmitting()
                    .into_iter()
                    .map(|tier| (step / 100 + 1, tier)),
            );
            watcher(1);
        }
    }
    Run {
        seed,
        trace,
        rejections: world.rejections,
        underadmitting,
        buckets: callers.series,
    }
}

/// Runs a scenario for every seed on up to `threads` threads, and returns the runs in the order of
/// the seeds. Each thread calls `watcher(1)` after each virtual second.
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
            done.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(run);
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
