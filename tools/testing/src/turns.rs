//! Turns of tests with real processes: they wait most of the time, so several run together, as long
//! as their load leaves a small machine time for other work.

use std::sync::{Condvar, Mutex, PoisonError};

/// Maximum load of concurrent tests, in requests/s: about a third of the rate that two cores answer
/// with the debug build. A test that exceeds it runs by itself.
const RPS_MAX: u32 = 2_000;
/// Load of a test that uses all the time of the machine.
pub const ALL: u32 = u32::MAX;
/// Load that the processes of a test without requests count as, in requests/s.
pub const IDLE: u32 = 200;
/// Load that a browser counts as, which paints without a graphics card.
pub const BROWSER: u32 = 1_000;

/// Load of the running tests.
static RUNNING: Mutex<u32> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// Turn of a test, until it is dropped.
pub struct Turn(u32);

/// Waits until a test with this load in requests/s may run.
pub fn turn(rps: u32) -> Turn {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let is_full = |running: &mut u32| *running > 0 && running.saturating_add(rps) > RPS_MAX;
    let mut running = ENDED
        .wait_while(running, is_full)
        .unwrap_or_else(PoisonError::into_inner);
    *running += rps;
    Turn(rps)
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= self.0;
        ENDED.notify_all();
    }
}
