//! Turns of tests with real processes: they wait most of the time, so several run at once, as long as their
//! load together leaves a small machine time for other work.

use std::sync::{Condvar, Mutex, PoisonError};

/// The largest load of the tests that run at once, in requests/s: about half of what two cores answer with
/// the debug build. A test that exceeds it runs alone.
const RPS_MAX: u32 = 3_000;
/// The load of a test that uses all the time the machine has.
pub(crate) const ALL: u32 = u32::MAX;
/// The load that the processes of a test without requests count as, in requests/s.
pub(crate) const IDLE: u32 = 150;

/// The load of the tests that run.
static RUNNING: Mutex<u32> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// The turn of a test, until it is dropped.
pub(crate) struct Turn(u32);

/// Waits until a test with this load in requests/s may run.
pub(crate) fn turn(rps: u32) -> Turn {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let is_full = |running: &mut u32| *running > 0 && running.saturating_add(rps) > RPS_MAX;
    let mut running = ENDED.wait_while(running, is_full).unwrap_or_else(PoisonError::into_inner);
    *running += rps;
    Turn(rps)
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= self.0;
        ENDED.notify_all();
    }
}
