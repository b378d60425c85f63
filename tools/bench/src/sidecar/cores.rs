//! Cores for servers and for load: without them the scheduler decides how much of a core the server
//! gets.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Core of the measured server, and core of load and control plane.
pub(crate) const SERVER: usize = 0;
pub(crate) const LOAD: usize = 1;

/// Starts processes on one core: children inherit the core of the starting thread. On a machine
/// without this core they run anywhere.
pub(crate) fn on_core<T>(core: usize, start: impl FnOnce() -> T) -> T {
    let before = sched_getaffinity(None).unwrap();
    let mut only = CpuSet::new();
    only.set(core);
    let _ = sched_setaffinity(None, &only);
    let started = start();
    sched_setaffinity(None, &before).unwrap();
    started
}

pub(crate) fn on<T>(core: Option<usize>, start: impl FnOnce() -> T) -> T {
    match core {
        Some(core) => on_core(core, start),
        None => start(),
    }
}
