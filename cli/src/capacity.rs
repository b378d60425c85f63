//! The finite capacity of the demo service, so that overload can be seen: so many workers, so long for each request, and
//! a queue that ends.

use std::collections::VecDeque;
use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use tokio::time::Instant;

/// How large the capacity is. Without workers there is no work, and every request is answered at once.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct CapacityArgs {
    /// Give the service a finite capacity: so many requests are worked on at a time. It serves WORKERS x 1000 / WORK_MS
    /// requests/s at most
    #[arg(long, env = "PLIMSOLL_WORKERS", value_name = "N", requires = "work_ms")]
    pub(crate) workers: Option<NonZeroUsize>,
    /// How long a worker needs for a request, in milliseconds
    #[arg(long, env = "PLIMSOLL_WORK_MS", value_name = "MS", requires = "workers")]
    pub(crate) work_ms: Option<NonZeroU64>,
    /// Requests that may wait for a worker; the next one is answered with 503 at once
    #[arg(long, env = "PLIMSOLL_QUEUE", value_name = "N", default_value_t = 100, requires = "workers")]
    pub(crate) queue: usize,
}

/// Workers that take requests in the order of their arrival.
///
/// All work takes equally long, so the moment a request will be done is known when it arrives: one list of such moments
/// is workers and queue in one. A request keeps its place when its caller gives up, as in most servers: nobody tells the
/// worker, and the work is done for nobody.
#[derive(Clone, Debug)]
pub(crate) struct Capacity {
    workers: usize,
    queue: usize,
    work: Duration,
    /// When each request that waits or is worked on will be done, in order.
    done_at: VecDeque<Instant>,
}

impl CapacityArgs {
    /// The capacity asked for; `None` when it is not limited.
    pub(crate) fn capacity(&self) -> Option<Capacity> {
        let (workers, work_ms) = self.workers.zip(self.work_ms)?;
        let work = Duration::from_millis(work_ms.get());
        Some(Capacity { workers: workers.get(), queue: self.queue, work, done_at: VecDeque::new() })
    }
}

impl Capacity {
    /// Takes a request on, and says when it will be done; `None` when all workers are busy and the queue is full.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Instant> {
        while self.done_at.front().is_some_and(|done| *done <= now) {
            self.done_at.pop_front();
        }
        let inside = self.done_at.len();
        if inside >= self.workers.saturating_add(self.queue) {
            return None;
        }
        // It starts when only WORKERS - 1 of those before it are left.
        let start = inside.checked_sub(self.workers).and_then(|ahead| self.done_at.get(ahead)).copied();
        let done = start.unwrap_or(now) + self.work;
        self.done_at.push_back(done);
        Some(done)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn capacity(workers: usize, queue: usize, work_ms: u64) -> Capacity {
        let args =
            CapacityArgs { workers: NonZeroUsize::new(workers), work_ms: NonZeroU64::new(work_ms), queue };
        args.capacity().unwrap()
    }

    #[test]
    fn two_workers_take_two_at_a_time_and_one_may_wait() {
        let begin = Instant::now();
        let mut capacity = capacity(2, 1, 10);
        let table = [
            (0, Some(10)),
            (2, Some(12)),
            (3, Some(20)), // waits for the first
            (4, None),
            (10, Some(22)), // the first is done, the third is at work
            (11, None),
            (50, Some(60)),
        ];
        for (at, done) in table {
            let seen = capacity.take(begin + Duration::from_millis(at));
            assert_eq!(seen.map(|seen| (seen - begin).as_millis()), done, "asked at {at} ms");
        }
    }

    #[test]
    fn no_workers_mean_no_limit() {
        assert!(CapacityArgs { workers: None, work_ms: None, queue: 5 }.capacity().is_none());
    }

    proptest! {
        /// Whatever comes: never more at work than there are workers, never more waiting than may wait, nobody waits
        /// while a worker is idle, and nobody is turned away while there is room.
        #[test]
        fn workers_and_queue_are_never_exceeded_and_never_idle(
            gaps in prop::collection::vec(0_u64..12, 1..200),
            (workers, queue) in (1_usize..5, 0_usize..5),
        ) {
            let work = Duration::from_millis(10);
            let mut capacity = capacity(workers, queue, 10);
            let mut now = Instant::now();
            let mut taken: Vec<(Instant, Instant)> = Vec::new(); // when each starts and is done
            for gap in gaps {
                now += Duration::from_millis(gap);
                let inside = taken.iter().filter(|(_, done)| *done > now).count();
                let done = capacity.take(now);
                prop_assert_eq!(done.is_some(), inside < workers + queue);
                let Some(done) = done else { continue };
                let start = done - work;
                let at_work = taken.iter().filter(|(from, until)| *from <= start && start < *until).count();
                prop_assert!(at_work < workers, "a worker is free");
                if start > now {
                    let before = start - Duration::from_nanos(1);
                    let at_work = taken.iter().filter(|(from, until)| *from <= before && before < *until);
                    prop_assert_eq!(at_work.count(), workers, "nobody waits while a worker is idle");
                }
                taken.push((start, done));
            }
        }
    }
}
