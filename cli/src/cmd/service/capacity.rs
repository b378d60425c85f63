//! The finite capacity of the demo service, which makes overload visible: a number of workers, a
//! fixed time for each request, and a bounded queue.

use std::collections::VecDeque;
use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use tokio::time::Instant;

/// The capacity of the service. Without workers every request is answered at once.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct CapacityArgs {
    /// Number of workers, each serving one request at a time: the service answers at most WORKERS x 1000 /
    /// WORK_MS requests/s. Without it every request is answered at once
    #[arg(long, env = "PLIMSOLL_WORKERS", value_name = "N", requires = "work_ms")]
    pub(crate) workers: Option<NonZeroUsize>,
    /// Milliseconds that a worker needs for a request
    #[arg(
        long,
        env = "PLIMSOLL_WORK_MS",
        value_name = "MS",
        requires = "workers"
    )]
    pub(crate) work_ms: Option<NonZeroU64>,
    /// Requests that may wait for a worker; further ones are answered with 503 at once
    #[arg(
        long,
        env = "PLIMSOLL_QUEUE",
        value_name = "N",
        default_value_t = 100,
        requires = "workers"
    )]
    pub(crate) queue: usize,
}

/// Workers that take requests in the order of their arrival.
///
/// All work takes equally long, so the completion time of a request is known when it arrives: one
/// list of completion times represents both the workers and the queue. A request keeps its place
/// when its caller gives up, as in most servers: the worker does not notice and completes useless
/// work.
#[derive(Clone, Debug)]
pub(crate) struct Capacity {
    workers: usize,
    queue_max: usize,
    work_time: Duration,
    /// Completion times of waiting and running requests, ascending.
    done_at: VecDeque<Instant>,
}

impl CapacityArgs {
    /// `None` if unlimited.
    pub(crate) fn capacity(&self) -> Option<Capacity> {
        let (workers, work_ms) = self.workers.zip(self.work_ms)?;
        Some(Capacity {
            workers: workers.get(),
            queue_max: self.queue,
            work_time: Duration::from_millis(work_ms.get()),
            done_at: VecDeque::new(),
        })
    }
}

impl Capacity {
    /// Accepts a request and returns its completion time, or `None` if all workers are busy and the
    /// queue is full.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Instant> {
        while self.done_at.front().is_some_and(|done| *done <= now) {
            self.done_at.pop_front();
        }
        let inside = self.done_at.len();
        if inside >= self.workers.saturating_add(self.queue_max) {
            return None;
        }
        // It starts as soon as fewer than WORKERS of the requests before it are left.
        let start = inside
            .checked_sub(self.workers)
            .and_then(|frees_worker| self.done_at.get(frees_worker))
            .copied();
        let done = start.unwrap_or(now) + self.work_time;
        self.done_at.push_back(done);
        Some(done)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn capacity(workers: usize, queue: usize, work_ms: u64) -> Capacity {
        let args = CapacityArgs {
            workers: NonZeroUsize::new(workers),
            work_ms: NonZeroU64::new(work_ms),
            queue,
        };
        args.capacity().unwrap()
    }

    #[test]
    fn requests_beyond_workers_and_queue_are_rejected() {
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
            assert_eq!(
                seen.map(|seen| (seen - begin).as_millis()),
                done,
                "a request at {at} ms"
            );
        }
    }

    #[test]
    fn capacity_without_workers_is_unlimited() {
        assert!(
            CapacityArgs {
                workers: None,
                work_ms: None,
                queue: 5
            }
            .capacity()
            .is_none()
        );
    }

    proptest! {
        /// For any arrivals: the numbers of running and waiting requests stay within workers and
        /// queue, none waits while a worker is idle, and none is rejected while there is room.
        #[test]
        fn full_capacity_is_used_and_never_exceeded(
            gaps in prop::collection::vec(0_u64..12, 1..200),
            (workers, queue) in (1_usize..5, 0_usize..5),
        ) {
            let work = Duration::from_millis(10);
            let mut capacity = capacity(workers, queue, 10);
            let mut now = Instant::now();
            let mut taken: Vec<(Instant, Instant)> = Vec::new(); // start and completion
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
                    prop_assert_eq!(at_work.count(), workers, "no request waits while a worker is idle");
                }
                taken.push((start, done));
            }
        }
    }
}
