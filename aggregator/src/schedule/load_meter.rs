//! How busy this process is: the one place that asks the runtime.

use tokio::runtime::{Handle, RuntimeMetrics};
use tokio::time::{Duration, Instant};

use crate::schedule::report_interval::Load;

/// How often the load is looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// Gathers what the runtime's threads and the ticks have to say.
#[derive(Debug)]
pub(crate) struct LoadMeter {
    runtime: RuntimeMetrics,
    began: Instant,
    /// How long the threads had been busy in all when this period began.
    busy: Duration,
    late: Duration,
}

impl LoadMeter {
    /// Measures the present runtime from now on.
    pub(crate) fn start() -> Self {
        let runtime = Handle::current().metrics();
        Self { busy: busy(&runtime), runtime, began: Instant::now(), late: Duration::ZERO }
    }

    /// A tick that was due at a moment comes now; once a period, what was seen in it.
    pub(crate) fn on_tick(&mut self, due: Instant) -> Option<Load> {
        let now = Instant::now();
        self.late = self.late.max(now.saturating_duration_since(due));
        let span = now.saturating_duration_since(self.began);
        if span < PERIOD {
            return None;
        }
        let busy = busy(&self.runtime);
        let threads = self.runtime.num_workers().max(1) as f64;
        let share = busy.saturating_sub(self.busy).as_secs_f64() / (span.as_secs_f64() * threads);
        let load = Load { busy: share.clamp(0.0, 1.0), late: self.late };
        *self = Self { busy, began: now, late: Duration::ZERO, runtime: self.runtime.clone() };
        Some(load)
    }
}

/// How long the threads have been busy since they started, taken together.
fn busy(runtime: &RuntimeMetrics) -> Duration {
    (0..runtime.num_workers()).map(|worker| runtime.worker_total_busy_duration(worker)).sum()
}
