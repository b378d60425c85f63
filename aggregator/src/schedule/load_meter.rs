//! The load of this process, as the async runtime measures it: the only file of the crate that reads runtime
//! metrics.

use tokio::runtime::{Handle, RuntimeMetrics};
use tokio::time::{Duration, Instant};

use crate::schedule::report_interval::Load;

const PERIOD: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct LoadMeter {
    runtime: RuntimeMetrics,
    began: Instant,
    /// The busy time of all workers before this period.
    busy_before: Duration,
    /// Maximum delay of a tick in this period.
    late: Duration,
}

impl LoadMeter {
    pub(crate) fn start() -> Self {
        let runtime = Handle::current().metrics();
        Self {
            busy_before: busy_time(&runtime),
            runtime,
            began: Instant::now(),
            late: Duration::ZERO,
        }
    }

    /// Takes note of a tick that was due at `due`. Returns the load once per period.
    pub(crate) fn on_tick(&mut self, due: Instant) -> Option<Load> {
        let now = Instant::now();
        self.late = self.late.max(now.saturating_duration_since(due));
        let span = now.saturating_duration_since(self.began);
        if span < PERIOD {
            return None;
        }
        let busy = busy_time(&self.runtime);
        let threads = self.runtime.num_workers().max(1) as f64;
        let share =
            busy.saturating_sub(self.busy_before).as_secs_f64() / (span.as_secs_f64() * threads);
        let load = Load {
            busy: share.clamp(0.0, 1.0),
            late: self.late,
        };
        *self = Self {
            busy_before: busy,
            began: now,
            late: Duration::ZERO,
            runtime: self.runtime.clone(),
        };
        Some(load)
    }
}

/// Returns the busy time of all workers since the runtime began.
fn busy_time(runtime: &RuntimeMetrics) -> Duration {
    (0..runtime.num_workers())
        .map(|worker| runtime.worker_total_busy_duration(worker))
        .sum()
}
