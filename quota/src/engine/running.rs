//! Runs a batch of operations in order: directly while buckets are in memory, then after each wait.

use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::{Instant, sleep};

use super::Engine;
use super::shard::place::{Moment, Place};
use crate::args::Durability;
use crate::operation::{Answer, Operation, Unavailable};

/// Maximum time that a run waits for the store, from its first wait.
const STORE_DEADLINE: Duration = Duration::from_millis(250);
/// Time by which a debit may be saved too late. Beyond it operations are refused without a wait: the
/// disk hangs, and is not only slow.
pub(super) const LATE_MAX: Duration = Duration::from_millis(200);
/// Pause before buckets are read again for which memory had no room.
const ROOM_DELAY: Duration = Duration::from_millis(10);
/// Maximum number of reads of one run: others may evict what it has read.
const LOADS_MAX: usize = 8;

/// Deadline of a run, set when it is first asked for.
struct Deadline(Option<Instant>);

impl Deadline {
    fn get(&mut self) -> Instant {
        *self
            .0
            .get_or_insert_with(|| Instant::now() + STORE_DEADLINE)
    }
}

impl Engine {
    /// Runs operations in order at `now_ms`, the time of [`Engine::now`], and appends their
    /// answers. Completes immediately if all buckets are in memory and no debit must be on disk
    /// first.
    pub(crate) async fn run(
        &self,
        now_ms: u64,
        operations: &[Operation<'_>],
        answers: &mut Vec<Result<Answer, Unavailable>>,
    ) {
        let shared = &*self.shared;
        let now_ms = shared
            .clock
            .fetch_max(now_ms, Ordering::Relaxed)
            .max(now_ms);
        let mut moment = Moment::new(now_ms);
        let mut deadline = Deadline(None);
        // Indexes of answers that must wait for the commit.
        let mut changes: SmallVec<[usize; 32]> = SmallVec::new();
        let is_always = shared.durability == Durability::Always;
        let (mut at, mut loads, mut misses) = (0, 0, 0);
        // Set once a read has failed: this run reads nothing more. The rest of the batch must not be
        // searched for missing buckets again for each operation.
        let mut unread = None;
        while at < operations.len() {
            if let Err(unavailable) = self.saved_in_time(&mut deadline).await {
                answers.extend(operations.iter().skip(at).map(|_| Err(unavailable)));
                break;
            }
            let mut missing = None;
            for operation in operations.iter().skip(at) {
                moment.is_changed = false;
                let Some(answer) = shared.answer(operation, &mut moment) else {
                    missing = Some(operation);
                    break;
                };
                if is_always && moment.is_changed {
                    changes.push(answers.len());
                }
                answers.push(Ok(answer));
                at += 1;
            }
            if missing.is_none() {
                break;
            }
            if unread.is_none() {
                let rest = operations.get(at..).unwrap_or_default();
                let places = self.missing(rest);
                misses += if loads == 0 { places.len() } else { 0 };
                loads += 1;
                unread = match loads > LOADS_MAX {
                    true => Some(Unavailable::Busy),
                    false => self.load(places, &mut deadline).await.err(),
                };
            }
            if let Some(unavailable) = unread {
                // Only operations with a missing bucket fail; the others are still answered.
                answers.push(Err(unavailable));
                at += 1;
            }
        }
        if is_always
            && moment.commit > shared.progress.durable()
            && let Err(unavailable) = shared.progress.wait(moment.commit, deadline.get()).await
        {
            for change in changes {
                if let Some(answer) = answers.get_mut(change) {
                    *answer = Err(unavailable);
                }
            }
        }
        self.count(operations.len(), misses, answers);
    }

    fn count(&self, operations: usize, misses: usize, answers: &[Result<Answer, Unavailable>]) {
        let counters = &self.shared.counters;
        counters
            .hits
            .fetch_add(operations.saturating_sub(misses) as u64, Ordering::Relaxed);
        if misses > 0 {
            counters.misses.fetch_add(misses as u64, Ordering::Relaxed);
        }
        let unavailable = answers
            .iter()
            .rev()
            .take(operations)
            .filter(|answer| answer.is_err())
            .count();
        if unavailable > 0 {
            counters
                .unavailable
                .fetch_add(unavailable as u64, Ordering::Relaxed);
        }
    }

    /// Waits while the oldest unsaved debit is too old for more of them; under `always` each change
    /// waits for its own commit. Fails without a wait if the disk has failed or hangs.
    async fn saved_in_time(&self, deadline: &mut Deadline) -> Result<(), Unavailable> {
        let shared = &*self.shared;
        let Some(max) = shared.unsaved_max() else {
            return Ok(());
        };
        loop {
            let Some(age) = shared.progress.unsaved().filter(|age| *age > max) else {
                return Ok(());
            };
            if shared.progress.is_failed() || age > max + LATE_MAX {
                return Err(Unavailable::Store);
            }
            if shared.durability == Durability::Always {
                return Ok(());
            }
            shared
                .progress
                .wait(shared.progress.durable() + 1, deadline.get())
                .await?;
        }
    }

    /// Returns the buckets of operations that are not in memory.
    fn missing(&self, operations: &[Operation<'_>]) -> Vec<Place> {
        let buckets = operations.iter().flat_map(Operation::buckets);
        let places = buckets.map(|(key, kind)| self.shared.place(kind.row_key(key)));
        places
            .filter(|place| self.shared.lock(place.shard).find(place).is_none())
            .collect()
    }

    /// Reads buckets into memory. Without room, others are saved and settled, so that they can be
    /// evicted.
    async fn load(&self, places: Vec<Place>, deadline: &mut Deadline) -> Result<(), Unavailable> {
        let shared = &*self.shared;
        if deadline.get() <= Instant::now() {
            return Err(Unavailable::Store);
        }
        let _waiting = shared.progress.enter()?;
        while !self.read(places.clone(), deadline.get()).await? {
            shared.want_commit();
            shared.settling.want_room();
            if deadline.get() <= Instant::now() + ROOM_DELAY {
                return Err(Unavailable::Busy);
            }
            sleep(ROOM_DELAY).await;
        }
        Ok(())
    }
}
