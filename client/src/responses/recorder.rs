//! The way from a response future to the counters of its bucket. A future may outlive the service and change
//! threads. An `Arc` in every future would make all threads write one reference count for each request; so a
//! future names the limiter, and each thread holds references to the limiters that it records for.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::{Block, Cohort, Ending, Responses};
use crate::hot::sync::lock;

/// Maximum number of limiters that a thread holds references to. Most services have one limiter.
const HELD_MAX: usize = 4;

/// The responses of every limiter of this process, by the limiter's number.
static LIMITERS: Mutex<Limiters> = Mutex::new(Limiters {
    created: 0,
    alive: BTreeMap::new(),
});

thread_local! {
    /// Most recent first.
    static HELD: RefCell<[Option<Arc<Responses>>; HELD_MAX]> = const { RefCell::new([const { None }; HELD_MAX]) };
}

struct Limiters {
    created: u32,
    alive: BTreeMap<u32, Weak<Responses>>,
}

/// Records the response to one request.
#[derive(Clone, Copy, Debug)]
pub struct Recorder {
    pub(crate) limiter: u32,
    pub(crate) bucket: u32,
    /// The key of the request; `u32::MAX` if it is unknown.
    pub(crate) key: u32,
    pub(crate) cohort: Cohort,
}

pub(super) fn register(make: impl FnOnce(u32) -> Responses) -> Arc<Responses> {
    let mut limiters = lock(&LIMITERS);
    limiters.created += 1;
    let responses = Arc::new(make(limiters.created));
    let number = limiters.created;
    limiters.alive.insert(number, Arc::downgrade(&responses));
    responses
}

fn find(limiter: u32) -> Option<Arc<Responses>> {
    lock(&LIMITERS).alive.get(&limiter)?.upgrade()
}

impl Drop for Responses {
    fn drop(&mut self) {
        lock(&LIMITERS).alive.remove(&self.limiter);
    }
}

impl Recorder {
    /// Returns the number of the limiter in this process, and of the bucket in it.
    #[inline]
    pub const fn counts_for(self) -> (u32, u32) {
        (self.limiter, self.bucket)
    }

    /// Records the duration of an admitted request, and its end unless only the body will show it.
    pub fn ended(self, took: Duration, ending: Option<Ending>) {
        self.with_block(|block| {
            block.add_duration(took);
            ending.into_iter().for_each(|ending| block.count(ending));
        });
    }

    /// Records only an end, such as the end of a body.
    pub fn count(self, ending: Ending) {
        self.with_block(|block| block.count(ending));
    }

    /// Records a refusal. Its duration is not recorded, because it does not measure the service;
    /// for the same reason it is no failure, with any status.
    pub fn refused(self, ending: Ending) {
        self.with_block(|block| block.count_refusal(ending));
    }

    /// Calls `log` with the bucket's name and the number of refusals since its last event, without the present one, if
    /// an event is due.
    pub fn log(self, now: Duration, log: impl Fn(&str, u64)) {
        let bucket = self.bucket;
        self.with(|responses| {
            let suppressed = responses.event(bucket as usize, now);
            suppressed
                .into_iter()
                .for_each(|n| log(responses.name(bucket).unwrap_or_default(), n));
        });
    }

    /// Calls `with` with the bucket's name.
    pub fn with_name(self, with: impl Fn(&str)) {
        self.with(|responses| with(responses.name(self.bucket).unwrap_or_default()));
    }

    /// Returns true after a request passed two layers for one bucket of the limiter.
    #[inline]
    pub fn is_stacked(self) -> bool {
        let is_stacked = Cell::new(false);
        self.with(|responses| is_stacked.set(responses.is_stacked.load(Ordering::Relaxed)));
        is_stacked.get()
    }

    fn with_block(self, record: impl Fn(Block<'_>)) {
        self.with(|responses| responses.block(self).into_iter().for_each(&record));
    }

    /// Calls `record` with the limiter's responses, unless they are gone: the limiter was dropped, and no thread holds
    /// a reference. Takes a lock only where this thread holds none, as in its first call.
    fn with(self, record: impl Fn(&Responses)) {
        let is_it = |responses: &&Arc<Responses>| responses.limiter == self.limiter;
        let recorded = HELD.try_with(|held| {
            let mut held = held.try_borrow_mut().ok()?;
            if held[0].as_ref().filter(is_it).is_none() {
                hold_first(&mut held, self.limiter);
            }
            held[0]
                .as_ref()
                .filter(is_it)
                .inspect(|responses| record(responses));
            Some(())
        });
        // The thread is ending and has dropped its references, or `record` has logged to a subscriber that itself
        // makes requests.
        if !matches!(recorded, Ok(Some(()))) {
            find(self.limiter)
                .iter()
                .for_each(|responses| record(responses));
        }
    }
}

/// Moves a limiter to the front. A new one takes the place of the least recently used one.
#[cold]
fn hold_first(held: &mut [Option<Arc<Responses>>; HELD_MAX], limiter: u32) {
    let is_it = |responses: &Arc<Responses>| responses.limiter == limiter;
    match held
        .iter()
        .position(|responses| responses.as_ref().is_some_and(is_it))
    {
        Some(at) => held[..=at].rotate_right(1),
        None => {
            if let Some(found) = find(limiter) {
                held.rotate_right(1);
                held[0] = Some(found);
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn responses() -> Arc<Responses> {
        Responses::new(1, 2)
    }

    fn recorded(responses: &Responses) -> (u64, u64) {
        let recorded = responses.snapshots(0).pop();
        recorded.map_or((0, 0), |(_, all)| {
            (
                all.codes.iter().map(|code| code.1).sum(),
                all.durations.count,
            )
        })
    }

    #[test]
    fn thread_records_for_many_limiters() {
        let limiters: Vec<_> = (0..HELD_MAX + 3).map(|_| responses()).collect();
        for round in 0..5 {
            for (number, limiter) in limiters.iter().enumerate().skip(round) {
                (0..=number).for_each(|_| limiter.recorder(0).ended(MS, Some(Ending::Status(200))));
                limiter.recorder(0).refused(Ending::Status(429));
            }
        }
        for (number, limiter) in limiters.iter().enumerate() {
            let (rounds, durations) = (5.min(number as u64 + 1), number as u64 + 1);
            assert_eq!(
                recorded(limiter),
                (rounds * (durations + 1), rounds * durations),
                "limiter {number}"
            );
        }
    }

    #[test]
    fn recorder_may_be_entered_recursively() {
        let limiter = responses();
        let recorder = limiter.recorder(0);
        limiter.set_name(0, "orders");
        recorder.with_name(|name| {
            assert_eq!(name, "orders");
            recorder.ended(MS, Some(Ending::Status(200)));
        });
        assert_eq!(recorded(&limiter), (1, 1));
    }

    #[test]
    fn response_may_outlive_its_limiter() {
        let limiter = responses();
        let (number, recorder) = (limiter.limiter, limiter.recorder(0));
        drop(limiter);
        recorder.ended(MS, Some(Ending::Error));
        assert!(
            find(number).is_none(),
            "a limiter that is gone is forgotten"
        );
    }
}
